"""Hops around a pipeline that exists already: two functions of yours, and the decisions between them.

Owns how foreign results are read as passages; what is decided, and by whom, is in `judge`. Indexes and cites nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from .budget import Budget, Meter
from .config import ModelConfig, SourceConfig
from .documents import Passage
from .errors import UsageError
from .events import Decided, Emit, Event, nowhere
from .index import Lexicon
from .judge import Judge, ModelJudge, Reformulation, RulesJudge
from .models import OFFLINE, OpenedModel, open_model, require_price
from .shapes import NAMES, TITLES, field_of, items_of, opening, text_of
from .wording import stems

_SOURCE = "pipeline"
_T = TypeVar("_T")

Retrieve = Callable[[str], Any]
"""Takes a query; gives whatever your retriever gives, or an awaitable of it."""
Generate = Callable[[str, Any], Any]
"""Takes the question and what was retrieved, in the form that `retrieve` gives it."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """One retrieval. `why`: what it was for; empty for the first."""

    query: str
    found: int
    """Results that were not there before."""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Piped:
    """What `generate` made of all that was retrieved. `str()` gives its text."""

    question: str
    generated: Any
    """As `generate` returned it; the list of its parts where that was a generator."""
    text: str
    passages: tuple[Passage, ...]
    """What was retrieved, as read by the judge; their order is that of retrieval."""
    hops: tuple[Hop, ...]
    missing: tuple[str, ...] = ()
    """Parts of the question that the last check did not find in the passages."""
    enough: bool = True
    """The last check found every part; False when the hops ran out before."""
    skipped: bool = False
    """No document was needed, and none was retrieved."""
    dollars: float = 0.0
    """What the decisions cost. What your functions cost is not known here."""
    judge: str = "rules"
    events: tuple[Event, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text


def hops(
    question: str,
    *,
    retrieve: Retrieve,
    generate: Generate,
    max_hops: int = 2,
    model: str | OpenedModel | None = None,
    judge: Judge | None = None,
    max_dollars: float | None = 0.50,
    emit: Emit = nowhere,
) -> Piped:
    """Retrieves, checks against the ORIGINAL question, retrieves again for the missing part only, generates once.

    `retrieve(query)` and `generate(question, retrieved)` are called as they are, sync or async. `retrieved` is all that
    was retrieved, without repetitions, in the form that `retrieve` gives: a list of what it lists (texts, dicts,
    LangChain or LlamaIndex documents, (document, score) pairs), a text if it gives texts, a dict if it gives dicts.

    Decisions are made by rules, or by `model` ('anthropic:claude-sonnet-5'), which also skips retrieval when no
    document is needed; or by a `judge` of your own. A stubborn question ends after `max_hops` retrievals, and what is
    still missing is in `missing`. May be called inside a running event loop, which it blocks: use a thread there.

    Raises UsageError for an empty question, `max_hops` under 1 or results it cannot read as text; ConfigError for a
    model that cannot be opened. What your functions raise goes through.
    """
    if not question.strip():
        raise UsageError("the question is empty: ask something")
    if max_hops < 1:
        raise UsageError(f"max_hops is {max_hops!r}: at least 1 retrieval is needed")
    opened = open_model(ModelConfig(name=model)) if isinstance(model, str) and model != OFFLINE else model
    meter = Meter(Budget(max_steps=None, max_dollars=max_dollars, max_seconds=None))
    if isinstance(opened, OpenedModel):
        require_price(opened, meter.budget)
    run = _Hopping(question, retrieve=retrieve, generate=generate, max_hops=max_hops, emit=emit)

    def judged(got: _Retrieved) -> Judge:
        if judge is not None:
            return judge
        rules = RulesJudge(got.words(), _SOURCES)
        if isinstance(opened, OpenedModel):
            return ModelJudge(opened, meter=meter, rules=rules, sources=_SOURCES)
        return rules

    piped = _run(run, judged)
    spent = meter.spent()
    return replace(piped, dollars=spent.dollars + spent.reserved)


_SOURCES = (SourceConfig(name=_SOURCE, path=Path(), description="What the pipeline retrieves."),)


class _Hopping:
    def __init__(self, question: str, *, retrieve: Retrieve, generate: Generate, max_hops: int, emit: Emit) -> None:
        self._question = question.strip()
        self._retrieve = retrieve
        self._generate = generate
        self._max_hops = max_hops
        self._emit = emit
        self._events: list[Event] = []

    def go(self, judged: Callable[[_Retrieved], Judge], wait: _Wait) -> Piped:
        """Goes through the hops. Your sync functions are called outside of any event loop: they may start their own."""
        got = _Retrieved()
        judge = judged(got)
        if judge.name != "rules":
            skip = wait(judge.skip(self._question))
            if skip.sure:
                self._tell(judge, "skip", "no document is needed", skip.why)
                return self._end(got, judge, [], wait, skipped=True)
        search, tried, made = Reformulation(query=self._question), list[str](), list[Hop]()
        missing: tuple[str, ...] = ()
        enough = False
        while True:
            tried.append(search.query)
            new = got.add(_called(wait, self._retrieve, search.query))
            made.append(Hop(query=search.query, found=new, why=search.why))
            judge = judged(got)
            verdict = wait(judge.sufficient(self._question, got.passages))
            missing, enough = verdict.missing, verdict.enough
            said = "enough" if enough else f"missing: {'; '.join(missing)}"
            self._tell(judge, "sufficient", said, verdict.why)
            if enough or len(made) >= self._max_hops:
                break
            search = wait(judge.reformulate(self._question, missing, got.passages, tried=tried))
            self._tell(judge, "reformulate", search.query, search.why)
        return self._end(got, judge, made, wait, missing=missing, enough=enough)

    def _end(
        self,
        got: _Retrieved,
        judge: Judge,
        made: Sequence[Hop],
        wait: _Wait,
        *,
        missing: tuple[str, ...] = (),
        enough: bool = True,
        skipped: bool = False,
    ) -> Piped:
        generated = _called(wait, self._generate, self._question, got.native())
        if isinstance(generated, Iterator):  # a stream of parts
            generated = _Stream(cast("Iterator[Any]", generated))
        return Piped(
            question=self._question,
            generated=generated,
            text=_said(generated),
            passages=got.passages,
            hops=tuple(made),
            missing=() if enough else missing,
            enough=enough,
            skipped=skipped,
            judge=judge.name,
            events=tuple(self._events),
        )

    def _tell(self, judge: Judge, what: str, verdict: str, why: str) -> None:
        event = Decided(what=what, verdict=verdict, why=why, by=judge.name)
        self._events.append(event)
        self._emit(event)


# Results of any shape -----------------------------------------------------------------------------------------------


class _Retrieved:
    """All that was retrieved, as it came and as passages."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._passages: list[Passage] = []
        self._shape: tuple[str, Any] | None = None
        """('text', None), ('list', None) or ('dict', (key, the first result))."""
        self._stems: list[frozenset[str]] = []

    def add(self, result: Any) -> int:
        """Takes in what one retrieval gave; returns how many of its results are new."""
        shape, items = items_of(result)
        if items or self._shape is None:
            self._shape = self._shape or shape
        known = {" ".join(p.text.split()) for p in self._passages}
        before = len(self._passages)
        for item in items:
            text = text_of(item)
            if text is None:
                raise UsageError(
                    f"retrieve gave a {type(item).__name__} without a text: give strings, dicts with 'text', or "
                    "objects with .text or .page_content"
                )
            folded = " ".join(text.split())
            if not folded or folded in known:
                continue
            known.add(folded)
            number = len(self._passages) + 1
            self._items.append(item)
            self._stems.append(frozenset(stems(text)))
            self._passages.append(
                Passage(
                    document=field_of(item, NAMES) or f"result {number}",
                    section=None,
                    title=field_of(item, TITLES) or opening(text),
                    text=text,
                    start=0,
                    end=len(text),
                    total_chars=len(text),
                )
            )
        return len(self._passages) - before

    def native(self) -> Any:
        """Everything, in the shape of the first result."""
        kind, rest = self._shape or ("list", None)
        if kind == "text":
            return "\n\n".join(cast("list[str]", self._items))
        if kind == "dict":
            key, first = cast("tuple[str, Mapping[str, Any]]", rest)
            return {**first, key: list(self._items)}
        return list(self._items)

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(self._passages)

    def words(self) -> Lexicon:
        """What rules may know: frequencies of what was retrieved so far."""
        return _Words(stems=tuple(self._stems))


@dataclass(frozen=True, kw_only=True)
class _Words:
    """A `Lexicon` of what was retrieved. It has no titles: what else there is to retrieve is not known."""

    stems: tuple[frozenset[str], ...]

    @property
    def passages(self) -> int:
        return len(self.stems)

    def frequency(self, term: str) -> int:
        wanted = set(stems(term))
        return sum(wanted <= held for held in self.stems) if wanted else 0

    def values(self, source: str) -> Mapping[str, tuple[str, ...]]:
        return {}

    def titles(self) -> Sequence[tuple[str, str]]:
        return ()


# Your functions -----------------------------------------------------------------------------------------------------


class _Wait:
    """Waits for awaitables in an event loop that runs only meanwhile, and is the same for all of them."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def __call__(self, awaitable: Awaitable[_T]) -> _T:
        async def waited() -> _T:
            return await awaitable

        return self._runner.run(waited())


def _called(wait: _Wait, function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that may be sync, async, or give an async iterator."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        result = wait(result)
    if hasattr(result, "__aiter__"):
        result = wait(_listed(result))
    return result


class _Stream(list[Any]):
    """The parts of a stream, read to its end."""


async def _listed(parts: Any) -> _Stream:
    return _Stream([part async for part in parts])


def _said(generated: Any) -> str:
    """The text of what `generate` gave."""
    if isinstance(generated, _Stream):
        return "".join(text_of(part) or "" for part in cast("list[Any]", generated))
    return generated if isinstance(generated, str) else text_of(generated) or str(generated)


def _run(run: _Hopping, judged: Callable[[_Retrieved], Judge]) -> Piped:
    """Runs to the end; where an event loop is running, on another thread."""

    def go() -> Piped:
        with asyncio.Runner() as runner:
            return run.go(judged, _Wait(runner))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return go()
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(go).result()
