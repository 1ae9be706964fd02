"""What happens while a run lasts, as values; an `Emit` callable is passed down and decides what to do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .answers import Answer, Claim, ClaimKind, Gap, Reference


@dataclass(frozen=True, kw_only=True)
class Event:
    type: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    type: ClassVar[str] = "run_started"
    run_id: str
    question: str
    mode: str
    route: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Waiting(Event):
    """The run has begun and waits for its turn to work; `ahead` says how many go before it, None that it works now."""

    type: ClassVar[str] = "waiting"
    ahead: int | None
    seconds: float
    """It has waited so long."""


@dataclass(frozen=True, kw_only=True)
class Decided(Event):
    """A small decision: `what` is skip, route, sufficient, reformulate or follow_up; `by` is 'rules' or a model."""

    type: ClassVar[str] = "decision"
    what: str
    verdict: str
    why: str
    by: str
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class StepStarted(Event):
    """A turn of the model begins; `seconds` and `dollars` are what the whole run has spent until then."""

    type: ClassVar[str] = "step_started"
    step: int
    agent: str = "main"
    seconds: float = 0.0
    dollars: float | None = 0.0
    """None when the model's price is unknown."""


@dataclass(frozen=True, kw_only=True)
class ToolCalled(Event):
    """A tool call is about to run."""

    type: ClassVar[str] = "tool_called"
    step: int
    tool: str
    arguments: dict[str, Any]
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class Hits(Event):
    """A search returned."""

    type: ClassVar[str] = "hits"
    step: int
    source: str
    query: str
    filters: dict[str, str]
    returned: tuple[Reference, ...]
    hidden_superseded: int = 0
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class Read(Event):
    """A passage was read (read, find, or a whole chunk put in a prompt)."""

    type: ClassVar[str] = "read"
    step: int
    document: str
    section: str | None
    start: int
    end: int
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class ToolFailed(Event):
    type: ClassVar[str] = "tool_failed"
    step: int
    tool: str
    error: str
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class Retry(Event):
    """A request to the model failed and is sent again after `wait` seconds."""

    type: ClassVar[str] = "retry"
    step: int
    attempt: int
    """The number of the attempt that failed, from 1."""
    reason: str
    wait: float
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class FactRead(Event):
    """In quarantined reading: what the reader found on one question, as the planner is told it."""

    type: ClassVar[str] = "fact"
    step: int
    fact: str
    """'f3', as the planner names it."""
    document: str
    asked: str
    kind: str
    found: bool
    told: dict[str, Any]
    """All that the planner learns of it."""
    start: int | None
    end: int | None
    """Span of the quoted sentence, which the planner never sees; None where nothing was found."""
    agent: str = "reader"


@dataclass(frozen=True, kw_only=True)
class Compacted(Event):
    """The model's window is nearly full: old search results are sent as one line per hit from now on."""

    type: ClassVar[str] = "compacted"
    step: int
    results: int
    """How many results were shortened."""
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class ClaimDrafted(Event):
    """A claim as the model drafted it, before any check; a draft that is sent back is followed by another."""

    type: ClassVar[str] = "claim"
    step: int
    draft: int
    """The number of the draft, from 1."""
    number: int
    text: str
    kind: ClaimKind
    documents: tuple[str, ...]
    """What its citations name, as the model wrote it."""
    agent: str = "main"


@dataclass(frozen=True, kw_only=True)
class ClaimChecked(Event):
    """A claim with its verdict."""

    type: ClassVar[str] = "verdict"
    number: int
    claim: Claim


@dataclass(frozen=True, kw_only=True)
class GapDeclared(Event):
    type: ClassVar[str] = "gap"
    gap: Gap


@dataclass(frozen=True, kw_only=True)
class Answered(Event):
    type: ClassVar[str] = "answer"
    answer: Answer


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """Indexing goes on: `done` of `total` files."""

    type: ClassVar[str] = "progress"
    done: int
    total: int
    what: str
    passages: int = 0
    """Made so far in this run."""


Emit = Callable[[Event], None]


def nowhere(event: Event) -> None:
    """An `Emit` that drops everything."""
