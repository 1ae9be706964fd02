"""The checked claims and gaps of an answer as markdown for people, and an event as a line of text; pure.

Escapes nothing for a terminal; no words of others are HTML in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .answers import Cell, Citation, Claim, Gap, Row
from .documents import trust_label

_BRACKETS = str.maketrans({"[": "(", "]": ")"})


@dataclass(frozen=True, kw_only=True)
class Style:
    """How an answer is written for those who read it."""

    label: Callable[[Citation], str]
    """A verified citation, behind its claim."""
    plain: Callable[[str], str]
    """Words of others on one line, so that they are taken for nothing else."""
    cell: Callable[[str], str]
    """A cell of a table, whose words have been through `plain`."""


def citation_label(citation: Citation) -> str:
    """`[document §7.2]`, or `[document]` when no section is known."""
    return f"[{citation.document} §{citation.section}]" if citation.section else f"[{citation.document}]"


_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def without_tags(text: str) -> str:
    """Markdown in which nothing is HTML, for clients that let HTML through."""
    return _TAG.sub(r"\\<", text)


def _plain(text: str) -> str:
    return without_tags(re.sub(r"\s+", " ", text).strip().translate(_BRACKETS))


def _in_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


PLAIN = Style(label=citation_label, plain=_plain, cell=_in_cell)


def render_text(claims: Sequence[Claim], missing: Sequence[Gap] = (), *, style: Style = PLAIN) -> str:
    """Each claim with `[document §section]` per verified citation, marks for the rest, then what is missing.

    Only code writes square brackets: those of a claim's own words become round ones, so no claim can look cited.
    """
    lines = [_claim(number, claim, style) for number, claim in enumerate(claims, start=1)]
    return "\n".join(_with_missing(lines, missing, style))


def _with_missing(lines: list[str], missing: Sequence[Gap], style: Style) -> list[str]:
    if missing:
        if lines:
            lines.append("")
        lines.append("**Missing**")
        lines.append("")
        lines += [_gap(gap, style) for gap in missing]
    return lines


NOT_FOUND = "nothing found"
NOT_REACHED = "not reached"


def render_survey(
    rows: Sequence[Row], claims: Sequence[Claim], missing: Sequence[Gap] = (), *, style: Style = PLAIN
) -> str:
    """A table with a row per document, then the claims that stand in no cell, then what is missing."""
    columns = [cell.column for cell in rows[0].cells] if rows else []
    lines = [*survey_counts(rows, style=style), ""] if rows else []
    if rows:
        lines.append(_table_line(["document", *map(style.plain, columns)], style))
        lines.append(_table_line(["---"] * (len(columns) + 1), style))
        lines += [
            _table_line([style.plain(row.document), *(_cell(cell, claims, style) for cell in row.cells)], style)
            for row in rows
        ]
    others = survey_claims(rows, claims)
    if others:
        lines += ["", *(_claim(number, claim, style) for number, claim in others)]
    return "\n".join(_with_missing(lines, missing, style))


def survey_counts(rows: Sequence[Row], *, style: Style = PLAIN) -> list[str]:
    """Per column, in how many documents something was found."""
    lines: list[str] = []
    for at, cell in enumerate(rows[0].cells if rows else ()):
        states = [row.cells[at].status for row in rows]
        counts = [
            (states.count("found"), "with a quote"),
            (states.count("not_found"), NOT_FOUND),
            (states.count("unverified"), "not verified"),
            (states.count("not_reached"), NOT_REACHED),
        ]
        said = ", ".join(f"{count} {what}" for count, what in counts if count)
        lines.append(f"{style.plain(cell.column)}: {len(rows)} document{'' if len(rows) == 1 else 's'} ({said})")
    return lines


def survey_claims(rows: Sequence[Row], claims: Sequence[Claim]) -> list[tuple[int, Claim]]:
    """The claims that stand in no cell, with their numbers."""
    inside = {number for row in rows for cell in row.cells for number in cell.claims}
    return [(number, claim) for number, claim in enumerate(claims, start=1) if number not in inside]


def _table_line(cells: Sequence[str], style: Style) -> str:
    return "| " + " | ".join(map(style.cell, cells)) + " |"


def _cell(cell: Cell, claims: Sequence[Claim], style: Style) -> str:
    if cell.status == "not_reached":
        return f"*{NOT_REACHED}*"
    if not cell.claims:
        return f"*{NOT_FOUND}*"
    return " ".join(_claim(number, claims[number - 1], style) for number in cell.claims if number <= len(claims))


def _claim(number: int, claim: Claim, style: Style) -> str:
    parts = [f"{number}. {style.plain(claim.text)}"]
    verified = [c for c in claim.citations if c.status == "verified"]
    parts += dict.fromkeys(style.label(c) for c in verified)
    if claim.kind == "conclusion" and claim.premises:
        parts.append(f"(from {', '.join(map(str, claim.premises))})")
    if claim.kind == "absence" and claim.terms:
        parts.append(f"(looked for: {', '.join(style.plain(repr(' '.join(t.split()))) for t in claim.terms)})")
    labels = dict.fromkeys(label for c in verified for label in (*c.labels, *trust_label(c.trust)))
    if labels:
        parts.append(f"({style.plain('; '.join(labels))})")
    if claim.status == "uncited":
        parts.append("**(uncited)**")
    elif claim.status == "unverified":
        reasons = [f"{_plain(c.document)!r}: {c.reason}" for c in claim.citations if c.status != "verified"]
        reasons = reasons or [w for w in claim.warnings if not w.startswith(("clipped", "converted"))]
        parts.append(f"**(unverified{': ' + style.plain('; '.join(dict.fromkeys(reasons))) if reasons else ''})**")
    elif failed := [f"{_plain(c.document)!r}: {c.reason}" for c in claim.citations if c.status != "verified"]:
        parts.append(f"*(also cited, not verified: {style.plain('; '.join(dict.fromkeys(failed)))})*")
    if any(w.startswith("clipped") for w in claim.warnings):
        parts.append("*(clipped: the sentence goes on with a negation or condition)*")
    return " ".join(parts)


def _gap(gap: Gap, style: Style) -> str:
    what = style.plain(gap.what)
    if gap.status == "unchecked":
        return f"- {what} **(not searched)**"
    where = f" in {style.plain(', '.join(gap.sources))}" if gap.sources else ""
    queries = ", ".join(style.plain(repr(_plain(q))) for q in gap.queries)
    return f"- {what} (searched{where}{': ' + queries if queries else ''})"


# For programs that take Markdown: chat front-ends, wikis.

_ACTIVE = re.compile(r"[\\`*_\[\]<>|~&$]")
"""Signs that may begin markup, HTML or a formula."""
_LEADING = re.compile(r"^(?:[-+#]|\d+[.)](?=\s|$))")
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://[^\s`]+|(?:mailto|xmpp|javascript|data|tel|file):[^\s`]+|[^\s`@]+@[^\s`@]+"
    r"|(?:[\w-]+\.)+[a-z]{2,}(?:[:/][^\s`]*)?",
    re.IGNORECASE,
)
"""What a front-end may turn into a link by itself."""


def markdown_text(text: str) -> str:
    """Words of others as Markdown that shows them and is nothing else: no markup, HTML, image or link.

    Addresses become code, as many front-ends make links of them otherwise.
    """
    line = " ".join(text.split())
    parts: list[str] = []
    at = 0
    for found in _ADDRESS.finditer(line):
        parts += [_ACTIVE.sub(r"\\\g<0>", line[at : found.start()]), _code(found.group())]
        at = found.end()
    shown = "".join([*parts, _ACTIVE.sub(r"\\\g<0>", line[at:])])
    return _LEADING.sub(lambda m: m.group()[:-1] + "\\" + m.group()[-1], shown)


def _code(text: str) -> str:
    return f"`{text.replace('`', ' ').replace('|', ' ')}`"


def render_markdown(claims: Sequence[Claim], missing: Sequence[Gap] = (), rows: Sequence[Row] = ()) -> str:
    """Each claim with numbers of references, what is missing, and the references with their quotes."""
    numbers: dict[tuple[str, str | None, str], int] = {}
    listed: list[str] = []

    def label(citation: Citation) -> str:
        key = (citation.document, citation.section, citation.quote)
        if key not in numbers:
            numbers[key] = len(numbers) + 1
            section = f" §{markdown_text(citation.section)}" if citation.section else ""
            page = f", page {citation.page}" if citation.page is not None else ""
            quote = f": “{markdown_text(citation.quote)}”" if citation.quote.strip() else ""
            listed.append(f"- \\[{numbers[key]}\\] {_code(citation.document)}{section}{page}{quote}")
        return f"\\[{numbers[key]}\\]"

    style = Style(label=label, plain=markdown_text, cell=str)
    body = render_survey(rows, claims, missing, style=style) if rows else render_text(claims, missing, style=style)
    return "\n".join([body, "", "**References**", "", *listed]) if listed else body


def event_line(event: Mapping[str, Any]) -> str | None:
    """An event (`Event.to_dict()`) as a line for somebody who waits; None for one that is no news to him."""
    match event:
        case {"type": "waiting", "ahead": int(ahead)}:
            said = f"waits for its turn, {ahead} before it"
        case {"type": "hits", "source": source, "query": query, "filters": filters, "returned": returned}:
            narrowed = f" [{', '.join(f'{k}={v}' for k, v in filters.items())}]" if filters else ""
            said = f'searched {source}{narrowed} for "{query}": {len(returned)} hit{"" if len(returned) == 1 else "s"}'
        case {"type": "read", "document": document, "section": section}:
            said = f"read {document}{f' §{section}' if section else ''}"
        case {"type": "tool_failed", "tool": tool, "error": error}:
            said = f"{tool} failed: {error}"
        case {"type": "retry", "reason": reason}:
            said = f"asks the model again: {reason}"
        case {"type": "decision", "what": what, "verdict": verdict}:
            said = f"decided on {what}: {verdict}"
        case {"type": "claim", "number": 1}:
            said = "drafted an answer; its quotes are checked"
        case _:
            return None
    agent = event.get("agent", "main")
    return " ".join((said if agent == "main" else f"[{agent}] {said}").split())[:300]
