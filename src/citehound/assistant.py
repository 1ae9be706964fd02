"""`ask`: the only place where corpus, model, strategy and records meet; builds the objects and makes the `Answer`."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .answers import Answer, StopReason, Usage, status_of
from .budget import FREE, Budget, Meter
from .config import Config, load
from .corpus import Corpus
from .errors import CitehoundError, UsageError
from .events import Answered, ClaimChecked, Emit, Event, GapDeclared, RunStarted, nowhere
from .evidence import Evidence, Ledger
from .index import OWNER, Principal
from .models import OFFLINE, OFFLINE_WARNING, OpenedModel, open_model, require_price
from .rendering import render_text
from .runs import RunStore, new_run_id
from .tracing import run_span

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from .loop import Outcome

MODES = ("auto", "agent", "single")
_LATER = ("direct", "hops", "research")
MAX_QUESTION = 8000


class Assistant:
    """Answers questions over one corpus.

    `model` may be an opened model, a pydantic-ai `Model` (taken as free unless it comes as `OpenedModel` with its
    price), or None for the configured one. Safe for parallel `ask` calls. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        config: Config,
        corpus: Corpus | None = None,
        model: OpenedModel | Model | None = None,
        emit: Emit = nowhere,
        *,
        principal: Principal = OWNER,
        record: bool = True,
    ) -> None:
        self.config = config
        self.emit = emit
        self._principal = principal
        self._record = record
        self._owns_corpus = corpus is None
        self._corpus = corpus
        self._model = model
        self._opened: OpenedModel | None = None

    @classmethod
    def open(
        cls, path: Path | str | None = None, *, model: OpenedModel | Model | None = None, emit: Emit = nowhere
    ) -> Self:
        """An assistant for a `citehound.toml`; without a path, the one here or in a parent folder."""
        return cls(load(None if path is None else Path(path)), model=model, emit=emit)

    @property
    def corpus(self) -> Corpus:
        """The corpus; without an index it is built first."""
        if self._corpus is None:
            self._corpus = _open_corpus(self.config, self.emit)
        return self._corpus

    def close(self) -> None:
        if self._owns_corpus and self._corpus is not None:
            self._corpus.close()
            self._corpus = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def ask(
        self,
        question: str,
        *,
        mode: str = "auto",
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """Answers `question` and records the run. None takes a limit from the configuration; `math.inf` lifts it.

        Raises UsageError (wrong mode, limits or configuration) and IndexUnusable before anything is spent. A tool or
        model that fails raises nothing: the answer says so. A cancelled run is recorded as a partial, then the
        cancellation goes on.
        """
        question = _checked_question(question)
        strategy = _checked_mode(mode)
        budget = _budget(self.config, max_steps=max_steps, max_dollars=max_dollars, max_seconds=max_seconds)
        corpus = await asyncio.to_thread(lambda: self.corpus)
        opened = await asyncio.to_thread(self._open_model, corpus)
        require_price(opened, budget)
        send = self.emit if emit is None else emit
        run = _Run(
            question=question,
            requested=mode,
            mode=strategy,
            route=_ROUTES[mode],
            opened=opened,
            meter=Meter(budget),
            principal=self._principal,
            emit=send,
        )
        with run_span(run_id=run.id, question=question, mode=strategy, model=opened.name) as traced:
            try:
                answer = await run.run(corpus, self.config)
            except asyncio.CancelledError:
                await asyncio.shield(asyncio.to_thread(self._save, run, run.cancelled(corpus)))
                raise
            used = answer.usage
            traced.usage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=used.cached_tokens,
                dollars=used.dollars,
            )
        return await asyncio.to_thread(self._save, run, answer)

    def ask_sync(
        self,
        question: str,
        *,
        mode: str = "auto",
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """`ask` for callers without an event loop."""
        return asyncio.run(
            self.ask(
                question,
                mode=mode,
                max_steps=max_steps,
                max_dollars=max_dollars,
                max_seconds=max_seconds,
                emit=emit,
            )
        )

    def _open_model(self, corpus: Corpus) -> OpenedModel:
        if self._opened is None:
            given = self._model
            if given is None:
                self._opened = open_model(self.config.model, corpus.lexicon(principal=self._principal))
            elif isinstance(given, OpenedModel):
                self._opened = given
            else:
                self._opened = OpenedModel(model=given, name=given.model_name, price=FREE)
        return self._opened

    def _save(self, run: _Run, answer: Answer) -> Answer:
        """Records the run; a store that cannot be written costs a warning, not the answer."""
        if self._record:
            try:
                RunStore(self.config.state / "runs.sqlite").save(answer, events=run.events)
            except Exception as problem:
                note = f"the run was not recorded: {' '.join(str(problem).split())}"
                answer = replace(answer, warnings=(*answer.warnings, note))
        return answer


_ROUTES = {
    "auto": "auto: always the agent, there is no routing yet",
    "agent": "asked for",
    "single": "asked for",
}


class _Run:
    """One question on its way: its ledger, its events and what becomes of it."""

    def __init__(
        self,
        *,
        question: str,
        requested: str,
        mode: str,
        route: str,
        opened: OpenedModel,
        meter: Meter,
        principal: Principal,
        emit: Emit,
    ) -> None:
        self.id = new_run_id()
        self.question = question
        self.events: list[Event] = []
        self._requested = requested
        self._mode = mode
        self._route = route
        self._opened = opened
        self._meter = meter
        self._principal = principal
        self._send = emit
        self._ledger = Ledger()

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._send(event)

    async def run(self, corpus: Corpus, config: Config) -> Answer:
        from .loop import Conversation, Limits, Outcome

        self.emit(
            RunStarted(
                run_id=self.id, question=self.question, mode=self._mode, route=self._route, model=self._opened.name
            )
        )
        try:
            toolbox = None
            if self._mode == "agent":
                from .toolbox import Toolbox

                toolbox = await asyncio.to_thread(
                    lambda: Toolbox(corpus, principal=self._principal, ledger=self._ledger, emit=self.emit)
                )
            conversation = Conversation(
                model=self._opened,
                meter=self._meter,
                ledger=self._ledger,
                documents=corpus.view(principal=self._principal),
                question=self.question,
                toolbox=toolbox,
                limits=Limits(turn_tokens=config.model.turn_tokens, draft_tokens=config.model.draft_tokens),
                emit=self.emit,
            )
            if toolbox is not None:
                from .agent import run_agent

                outcome = await run_agent(conversation, sources=corpus.sources)
            else:
                from .single import run_single

                outcome = await run_single(conversation, corpus=corpus, principal=self._principal)
        except CitehoundError:
            raise
        except Exception as problem:
            why = f"stopped early (model_error): {type(problem).__name__}: {' '.join(str(problem).split())}"
            outcome = Outcome(stop_reason="model_error", warnings=(why,))
        return self._answer(outcome)

    def cancelled(self, corpus: Corpus) -> Answer:
        """The record of a run that was cancelled: what had been read until then."""
        from .loop import compose_partial

        return self._answer(
            compose_partial(
                self._ledger.evidence(),
                corpus.view(principal=self._principal),
                question=self.question,
                stop_reason="cancelled",
            )
        )

    def _answer(self, outcome: Outcome) -> Answer:
        evidence = self._ledger.evidence()
        spent = self._meter.spent()
        warnings = list(outcome.warnings)
        if self._opened.name == OFFLINE:
            warnings.append(OFFLINE_WARNING)
        if spent.reserved > 0:
            warnings.append(
                f"the outcome of a request is unknown: its worst case of ${spent.reserved:.4f} is counted as spent"
            )
        text = outcome.text.strip() if outcome.text else ""
        if not text and (outcome.claims or outcome.missing):
            text = render_text(outcome.claims, outcome.missing)
        reason: StopReason = outcome.stop_reason
        answer = Answer(
            question=self.question,
            requested_mode=self._requested,
            mode=self._mode,
            route=self._route,
            model=self._opened.name,
            status=status_of(
                stop_reason=reason,
                text=text,
                claims=outcome.claims,
                missing=outcome.missing,
                direct=outcome.text is not None,
            ),
            text=text,
            claims=outcome.claims,
            missing=outcome.missing,
            calls=evidence.calls,
            stop_reason=reason,
            usage=Usage(
                steps=spent.steps,
                model_calls=spent.model_calls,
                searches=sum(1 for call in evidence.calls if call.tool.startswith("search_")),
                reads=_reads(evidence, self._mode),
                input_tokens=spent.input_tokens,
                cached_tokens=spent.cached_tokens,
                output_tokens=spent.output_tokens,
                dollars=None if self._opened.price is None else spent.dollars + spent.reserved,
                seconds=round(spent.seconds, 3),
            ),
            warnings=tuple(warnings),
            run_id=self.id,
        )
        for number, claim in enumerate(answer.claims, start=1):
            self.emit(ClaimChecked(number=number, claim=claim))
        for gap in answer.missing:
            self.emit(GapDeclared(gap=gap))
        self.emit(Answered(answer=answer))
        return answer


_READING = ("read_document", "find_in_document")


def _reads(evidence: Evidence, mode: str) -> int:
    """Calls that read and were not refused; in `single`, the passages that code put in the prompt."""
    if mode == "single":
        return len(evidence.passages)
    return sum(1 for call in evidence.calls if call.error is None and call.tool in _READING)


def _checked_question(question: str) -> str:
    text = question.strip()
    if not text:
        raise UsageError("the question is empty: ask something")
    if len(text) > MAX_QUESTION:
        raise UsageError(f"the question has {len(text)} characters, at most {MAX_QUESTION}: shorten it")
    return text


def _checked_mode(mode: str) -> str:
    if mode in _LATER:
        raise UsageError(f"mode {mode!r} is not built yet: use one of {', '.join(map(repr, MODES))}")
    if mode not in MODES:
        raise UsageError(f"no mode {mode!r}: use one of {', '.join(map(repr, MODES))}")
    return "agent" if mode == "auto" else mode


def _budget(config: Config, *, max_steps: int | None, max_dollars: float | None, max_seconds: float | None) -> Budget:
    steps = config.budget.max_steps if max_steps is None else max_steps
    dollars = config.budget.max_dollars if max_dollars is None else max_dollars
    seconds = config.budget.max_seconds if max_seconds is None else max_seconds
    if steps < 1:
        raise UsageError(f"max_steps is {steps!r}: at least 1 step is needed")
    for name, value in (("max_dollars", dollars), ("max_seconds", seconds)):
        if value is not None and not value >= 0:
            raise UsageError(f"{name} is {value!r}: give a number from 0, or inf for no limit")
    return Budget(
        max_steps=steps,
        max_dollars=None if dollars is None or math.isinf(dollars) else dollars,
        max_seconds=None if seconds is None or math.isinf(seconds) else seconds,
    )


def _open_corpus(config: Config, emit: Emit) -> Corpus:
    corpus = Corpus.open(config, write=True)
    try:
        if corpus.is_empty():
            corpus.sync(emit=emit)
    except BaseException:
        corpus.close()
        raise
    return corpus
