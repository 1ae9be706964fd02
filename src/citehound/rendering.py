"""The checked claims and gaps of an answer as markdown for people; pure, escapes nothing for a terminal or for HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .answers import Citation, Claim, Gap

_BRACKETS = str.maketrans({"[": "(", "]": ")"})


def render_text(claims: Sequence[Claim], missing: Sequence[Gap] = ()) -> str:
    """Each claim with `[document §section]` per verified citation, marks for the rest, then what is missing.

    Only code writes square brackets: those of a claim's own words become round ones, so no claim can look cited.
    """
    lines = [_claim(number, claim) for number, claim in enumerate(claims, start=1)]
    if missing:
        if lines:
            lines.append("")
        lines.append("**Missing**")
        lines.append("")
        lines += [_gap(gap) for gap in missing]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().translate(_BRACKETS)


def citation_label(citation: Citation) -> str:
    """`[document §7.2]`, or `[document]` when no section is known."""
    return f"[{citation.document} §{citation.section}]" if citation.section else f"[{citation.document}]"


def _claim(number: int, claim: Claim) -> str:
    parts = [f"{number}. {_plain(claim.text)}"]
    verified = [c for c in claim.citations if c.status == "verified"]
    parts += dict.fromkeys(citation_label(c) for c in verified)
    if claim.kind == "conclusion" and claim.premises:
        parts.append(f"(from {', '.join(map(str, claim.premises))})")
    if claim.kind == "absence" and claim.terms:
        parts.append(f"(looked for: {', '.join(repr(_plain(t)) for t in claim.terms)})")
    labels = dict.fromkeys(label for c in verified for label in c.labels)
    if labels:
        parts.append(f"({_plain('; '.join(labels))})")
    if claim.status == "uncited":
        parts.append("**(uncited)**")
    elif claim.status == "unverified":
        reasons = [f"{_plain(c.document)!r}: {c.reason}" for c in claim.citations if c.status != "verified"]
        reasons = reasons or [w for w in claim.warnings if not w.startswith(("clipped", "converted"))]
        parts.append(f"**(unverified{': ' + _plain('; '.join(dict.fromkeys(reasons))) if reasons else ''})**")
    elif failed := [f"{_plain(c.document)!r}: {c.reason}" for c in claim.citations if c.status != "verified"]:
        parts.append(f"*(also cited, not verified: {_plain('; '.join(dict.fromkeys(failed)))})*")
    if any(w.startswith("clipped") for w in claim.warnings):
        parts.append("*(clipped: the sentence goes on with a negation or condition)*")
    return " ".join(parts)


def _gap(gap: Gap) -> str:
    what = _plain(gap.what)
    if gap.status == "unchecked":
        return f"- {what} **(not searched)**"
    where = f" in {', '.join(gap.sources)}" if gap.sources else ""
    queries = ", ".join(repr(_plain(q)) for q in gap.queries)
    return f"- {what} (searched{where}{': ' + queries if queries else ''})"
