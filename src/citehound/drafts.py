"""The draft a model hands in: claims with quotes, and what is missing; pydantic, because it comes from outside."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DraftCitation(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    document: str = Field(description="The document id exactly as a tool gave it.")
    quote: str = Field(description="Words copied exactly from what you read in that document; join parts with …")


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
    """The final answer: every claim with its quotes, and everything that could not be found."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    claims: tuple[DraftClaim, ...] = ()
    missing: tuple[DraftGap, ...] = ()
    text: str | None = Field(default=None, description="Only for an answer that needs no document; else leave out.")
