"""The answer and its parts: the one run record that CLI, server, evals and dashboard read; no logic beyond `status_of`.

JSON shape: DESIGN contract of `ask --json`; fields may be added, none renamed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Mode = Literal["auto", "direct", "single", "hops", "agent", "research"]
Status = Literal["complete", "partial", "not_found", "direct", "failed", "clarification"]
"""`clarification` only comes in a chat: what was meant is asked back, and nothing was searched."""
ClaimKind = Literal["quoted", "conclusion", "absence"]
ClaimStatus = Literal["verified", "unverified", "uncited"]
SupportVerdict = Literal["supported", "unsupported", "unclear"]
StopReason = Literal[
    "answered",
    "steps",
    "dollars",
    "seconds",
    "no_progress",
    "context",
    "refused",
    "truncated",
    "empty",
    "cancelled",
    "model_error",
]


@dataclass(frozen=True, kw_only=True)
class Citation:
    """A quote and what code found out about it."""

    document: str
    quote: str
    section: str | None = None
    page: int | None = None
    start: int | None = None
    end: int | None = None
    sentence: str | None = None
    """The whole sentence(s) in which the quote stands."""
    status: Literal["verified", "unverified"] = "unverified"
    reason: str | None = None
    """Why it failed, None when verified."""
    labels: tuple[str, ...] = ()
    """'superseded by …', 'amended by …', 'draft'."""
    trust: str = "reviewed"
    """Of the document's source: 'reviewed', or 'open' where many people can write."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    text: str
    kind: ClaimKind = "quoted"
    status: ClaimStatus = "uncited"
    warnings: tuple[str, ...] = ()
    citations: tuple[Citation, ...] = ()
    premises: tuple[int, ...] = ()
    """Numbers (1-based, as shown) of the claims it rests on."""
    terms: tuple[str, ...] = ()
    """kind 'absence': what was looked for."""
    support: SupportVerdict | None = None
    """What a model thinks of claim and quotes (`[verify] support`); `status` does not depend on it. None: not asked."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Something that could not be found, and where it was looked for."""

    what: str
    status: Literal["checked", "unchecked"] = "unchecked"
    sources: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reference:
    document: str
    section: str | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call as it happened (also a retrieval that code made)."""

    step: int
    tool: str
    arguments: dict[str, Any]
    source: str | None = None
    returned: tuple[Reference, ...] = ()
    error: str | None = None
    seconds: float = 0.0
    agent: str = "main"


CellStatus = Literal["found", "not_found", "unverified", "not_reached"]
"""Of a cell: a cited fact; searched inside the document without a hit; a claim that failed; not asked."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one document says on one thing that was asked of all."""

    column: str
    status: CellStatus
    text: str = ""
    """The claims of the cell, or empty."""
    claim: int | None = None
    """Number (1-based, as shown) of the first of them."""
    claims: tuple[int, ...] = ()
    """Numbers of all of them."""
    citations: tuple[Citation, ...] = ()
    queries: tuple[str, ...] = ()
    """What was looked for inside the document."""
    reason: str | None = None
    """Why it was not reached, or what to know about it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One document of a survey, with a cell per column."""

    document: str
    title: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    steps: int = 0
    model_calls: int = 0
    searches: int = 0
    reads: int = 0
    retrievals: int = 0
    """Rounds in which code searched the sources (`single`, `hops`, a prefetch); a model's own searches are none."""
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = 0.0
    """None when the model's price is unknown."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    question: str
    requested_mode: str
    mode: str
    route: str
    model: str
    status: Status
    text: str
    claims: tuple[Claim, ...] = ()
    missing: tuple[Gap, ...] = ()
    calls: tuple[Call, ...] = ()
    stop_reason: StopReason = "answered"
    usage: Usage = field(default_factory=Usage)
    warnings: tuple[str, ...] = ()
    run_id: str = ""
    rows: tuple[Row, ...] = ()
    """The table of a survey; empty for every other answer."""
    rewritten: str | None = None
    """In a chat: the question made self-contained, as it was searched and answered. None: as it was asked."""
    clarification: str | None = None
    """In a chat: what is asked back, where the question cannot be searched."""
    chat_id: str | None = None
    turn: int | None = None
    """Number of the question in its chat, from 1."""
    quarantine: bool = False
    """Texts were read by a model without tools, and the one that searched saw none of them."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object of `ask --json`; round floats are kept as they are."""
        return asdict(self)


def status_of(
    *, stop_reason: StopReason, text: str, claims: tuple[Claim, ...], missing: tuple[Gap, ...], direct: bool = False
) -> Status:
    """The first that holds: failed, direct, not_found, complete; else partial."""
    if not text.strip() and not claims and not missing:
        return "failed"
    if direct and text.strip() and not claims:
        return "direct"
    checked = all(gap.status == "checked" for gap in missing)
    if stop_reason == "answered" and missing and checked and not any(c.kind == "quoted" for c in claims):
        return "not_found"
    if stop_reason == "answered" and claims and checked and all(c.status == "verified" for c in claims):
        return "complete"
    return "partial"
