"""The draft a model hands in: claims with quotes, and what is missing; pydantic, because it comes from outside."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


def _with_quote(schema: dict[str, Any]) -> None:
    """A model is asked for a quote in every citation; one without is taken, for the check to judge."""
    schema["required"] = ["document", "quote"]
    schema["properties"]["quote"].pop("default")


class DraftCitation(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_extra=_with_quote)

    document: str = Field(description="The document id exactly as a tool gave it.")
    quote: str = Field("", description="Words copied exactly from what you read in that document; join parts with …")


class DraftClaim(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    text: str = Field(description="One statement, in the language of the question.")
    kind: Literal["quoted", "conclusion", "absence"] = Field(
        default="quoted",
        description=(
            "quoted: a citation shows it. conclusion: it follows from other claims (premises). "
            "absence: the cited documents were searched for `terms` and do not have it."
        ),
    )
    citations: tuple[DraftCitation, ...] = Field(default=(), description="For 'absence' the quote may be empty.")
    premises: tuple[int, ...] = Field(default=(), description="Numbers (from 1) of the claims a conclusion rests on.")
    terms: tuple[str, ...] = Field(default=(), description="For 'absence': the words that were looked for.")


class DraftGap(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    what: str = Field(description="What the question needs and was not found.")
    reason: str | None = Field(default=None, description="Where it was looked for.")


class Draft(BaseModel):
    """The final answer: every claim with its quotes, and everything that was looked for and not found."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    claims: tuple[DraftClaim, ...] = ()
    missing: tuple[DraftGap, ...] = ()
    text: str | None = Field(default=None, description="Only for an answer that needs no document; else leave out.")


MAX_CLAIMS = 80
MAX_CITATIONS = 16
"""Citations of one claim."""
MAX_GAPS = 40
MAX_TEXT = 2000
"""Characters of a claim, of what is missing, and of each term."""
MAX_QUOTE = 3000
MAX_DRAFT = 60_000
"""Characters of a whole draft."""


def oversize(draft: Draft) -> tuple[str, ...]:
    """What is too big about a draft, a line each; empty for one of any ordinary size."""
    found: list[str] = []
    if len(draft.claims) > MAX_CLAIMS:
        found.append(f"{len(draft.claims)} claims, at most {MAX_CLAIMS}")
    if len(draft.missing) > MAX_GAPS:
        found.append(f"{len(draft.missing)} missing entries, at most {MAX_GAPS}")
    for number, claim in enumerate(draft.claims[:MAX_CLAIMS], start=1):
        if len(claim.citations) > MAX_CITATIONS:
            found.append(f"claim {number} has {len(claim.citations)} citations, at most {MAX_CITATIONS}")
        if len(claim.text) > MAX_TEXT:
            found.append(f"claim {number} has {len(claim.text)} characters, at most {MAX_TEXT}")
    total = sum(_characters(claim) for claim in draft.claims) + sum(len(g.what) for g in draft.missing)
    if total + len(draft.text or "") > MAX_DRAFT:
        found.append(f"{total + len(draft.text or '')} characters in all, at most {MAX_DRAFT}")
    return tuple(found[:8])


def cut_down(draft: Draft) -> Draft:
    """The first part of a draft that is too big; the caller says that it was cut."""
    claims: list[DraftClaim] = []
    left = MAX_DRAFT
    for claim in draft.claims[:MAX_CLAIMS]:
        small = DraftClaim(
            text=_cut(claim.text, MAX_TEXT),
            kind=claim.kind,
            citations=tuple(
                DraftCitation(document=c.document[:300], quote=_cut(c.quote, MAX_QUOTE))
                for c in claim.citations[:MAX_CITATIONS]
            ),
            premises=claim.premises[:MAX_CLAIMS],
            terms=tuple(_cut(term, MAX_TEXT) for term in claim.terms[:MAX_CITATIONS]),
        )
        left -= _characters(small)
        if left < 0:
            break
        claims.append(small)
    gaps = tuple(
        DraftGap(what=_cut(g.what, MAX_TEXT), reason=_cut(g.reason, MAX_TEXT) if g.reason else None)
        for g in draft.missing[:MAX_GAPS]
    )
    return Draft(claims=tuple(claims), missing=gaps, text=_cut(draft.text, MAX_DRAFT) if draft.text else None)


def _characters(claim: DraftClaim) -> int:
    quoted = sum(len(c.document) + len(c.quote) for c in claim.citations)
    return len(claim.text) + quoted + sum(len(term) for term in claim.terms)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
