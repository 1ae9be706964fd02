"""What one run has SEEN (hits) and READ (passages): a locked `Ledger` for tools, and its frozen `Evidence`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from .answers import Call
from .documents import Passage, SearchHit


@dataclass(frozen=True, kw_only=True)
class Search:
    """One search as it was run: for gaps and absences."""

    source: str
    query: str
    filters: tuple[tuple[str, str], ...] = ()
    documents: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Find:
    """One search inside a document: `found` is False when the phrase stands nowhere in it."""

    document: str
    phrase: str
    found: bool


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A frozen copy of a ledger."""

    hits: tuple[SearchHit, ...] = ()
    passages: tuple[Passage, ...] = ()
    searches: tuple[Search, ...] = ()
    finds: tuple[Find, ...] = ()
    calls: tuple[Call, ...] = ()
    agents: tuple[tuple[str, Evidence], ...] = ()
    """The parts of the agents that shared the work, by name; all of it is in the tuples above too."""
    carried: tuple[Passage, ...] = ()
    """What earlier turns of a chat have read; it counts as read, and as nothing else."""

    def documents_read(self) -> tuple[str, ...]:
        """Ids in the order of first reading."""
        return tuple(dict.fromkeys(p.document for p in self.passages))

    def was_read(self, document: str, start: int, end: int) -> bool:
        """True when every code point of `[start, end)` was in some passage read of `document`."""
        at = start
        for s, e in sorted((p.start, p.end) for p in self.passages if p.document == document):
            if s <= at < e:
                at = e
            if at >= end:
                return True
        return at >= end

    def read_whole(self, document: str) -> bool:
        """True when the passages read of `document` cover all of its text."""
        total = next((p.total_chars for p in self.passages if p.document == document), None)
        return total is not None and self.was_read(document, 0, total)


class Ledger:
    """Collects evidence while a run lasts. Safe under threads; `evidence()` gives a frozen copy.

    `carried` is what earlier turns of a chat have read.
    """

    def __init__(self, *, carried: Sequence[Passage] = ()) -> None:
        self._carried = tuple(carried)
        self._lock = threading.Lock()
        self._hits: list[SearchHit] = []
        self._passages: list[Passage] = []
        self._searches: list[Search] = []
        self._finds: list[Find] = []
        self._calls: list[Call] = []
        self._children: dict[str, Ledger] = {}

    def child(self, agent: str) -> Ledger:
        """The ledger of one of several agents: what it collects is evidence here too, tagged by its name.

        `evidence()` has the children in the order of their making, however their work overlapped.
        """
        with self._lock:
            if agent in self._children:
                raise ValueError(f"there is an agent {agent!r} already: give each its own name")
            self._children[agent] = made = Ledger()
            return made

    def saw(self, search: Search, hits: tuple[SearchHit, ...]) -> None:
        with self._lock:
            self._searches.append(search)
            self._hits.extend(hits)

    def read(self, passage: Passage) -> None:
        with self._lock:
            self._passages.append(passage)

    def found(self, find: Find, passages: tuple[Passage, ...]) -> None:
        with self._lock:
            self._finds.append(find)
            self._passages.extend(passages)

    def called(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def evidence(self) -> Evidence:
        with self._lock:
            children = dict(self._children)
            own = Evidence(
                hits=tuple(self._hits),
                passages=tuple(self._passages),
                searches=tuple(self._searches),
                finds=tuple(self._finds),
                calls=tuple(self._calls),
                carried=self._carried,
            )
        if not children:
            return own
        agents = tuple((name, child.evidence()) for name, child in children.items())
        parts = [own, *(part for _, part in agents)]
        return Evidence(
            hits=tuple(hit for part in parts for hit in part.hits),
            passages=tuple(passage for part in parts for passage in part.passages),
            searches=tuple(search for part in parts for search in part.searches),
            finds=tuple(find for part in parts for find in part.finds),
            calls=tuple(call for part in parts for call in part.calls),
            agents=agents,
            carried=own.carried,
        )
