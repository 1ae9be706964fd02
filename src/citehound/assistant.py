"""`ask`: the only place where corpus, model, strategy and records meet; builds the objects and makes the `Answer`."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from .access import OWNER, Principal
from .answers import Answer, Call, Claim, StopReason, Usage, status_of
from .budget import FREE, Budget, Meter
from .config import Config, bare, load
from .corpus import Corpus
from .errors import CitehoundError, RightsWithdrawn, UsageError
from .events import Answered, ClaimChecked, Decided, Emit, Event, GapDeclared, RunStarted, nowhere
from .evidence import Evidence, Ledger
from .models import OFFLINE, OFFLINE_WARNING, OpenedModel, open_model, open_small, require_price
from .rendering import render_survey, render_text, without_tags
from .runs import RunStore, new_run_id
from .shown import Shown
from .tracing import run_span
from .verification import differing

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from .chat import Chat, Turn
    from .judge import Judge
    from .loop import Outcome
    from .routing import Task
    from .sources.python import PythonSource
    from .survey import Survey

MODES = ("auto", "direct", "single", "hops", "agent", "research")
MAX_QUESTION = 8000
Place = Callable[[Emit], AbstractAsyncContextManager[None]]
"""Entered when a run has begun, before it works, and left when it is over. It may wait, and tells so by events."""
NO_DOCUMENT = "No document was used for this answer."


class Assistant:
    """Answers questions over one corpus.

    `model` may be an opened model, a pydantic-ai `Model` (taken as free unless it comes as `OpenedModel` with its
    price), or None for the configured one; `small` is the same for decisions, None the configured one or else `model`.
    `judge` decides instead of both. `sources` are functions that are searched beside the configured sources (see
    `citehound.source`); a corpus that is given has its own. `place` makes runs wait for their turn. Safe for parallel
    `ask` calls. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        config: Config,
        corpus: Corpus | None = None,
        model: OpenedModel | Model | None = None,
        emit: Emit = nowhere,
        *,
        small: OpenedModel | Model | None = None,
        judge: Judge | None = None,
        principal: Principal = OWNER,
        record: bool = True,
        sources: Sequence[Callable[..., Any]] = (),
        place: Place = nullcontext,
    ) -> None:
        self.config = config
        self._functions = _python_sources(sources)
        self.emit = emit
        self._principal = principal
        self._record = record
        self._place = place
        self._owns_corpus = corpus is None
        self._corpus = corpus
        self._model = model
        self._opened: OpenedModel | None = None
        self._small = small
        self._small_opened: OpenedModel | None = None
        self._judge = judge
        self._remove: Callable[[], Any] | None = None
        """Takes the temporary folder away."""

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        sources: Sequence[Callable[..., Any]] = (),
        model: OpenedModel | Model | None = None,
        emit: Emit = nowhere,
    ) -> Self:
        """An assistant for a `citehound.toml`; without a path, the one here or in a parent folder.

        `sources` are functions, searched beside what the file names: see `citehound.source`.
        """
        return cls(load(None if path is None else Path(path)), model=model, emit=emit, sources=sources)

    @classmethod
    def over(
        cls,
        *sources: Callable[..., Any],
        model: OpenedModel | Model | str | None = None,
        folder: Path | str | None = None,
        emit: Emit = nowhere,
    ) -> Self:
        """An assistant without a configuration file, over functions of your own: see `citehound.source`.

        Settings come from the environment; `model` may be a name, as in the file. Runs are recorded in `folder`;
        without one, in a temporary folder that goes when the assistant is closed.
        """
        if not sources:
            raise UsageError("Assistant.over needs at least one function to search with")
        made = None if folder is not None else tempfile.mkdtemp(prefix="citehound-")
        root = Path(folder if folder is not None else made or "").absolute()
        try:
            config = bare(root)
            if isinstance(model, str):
                config, model = replace(config, model=replace(config.model, name=model)), None
            assistant = cls(config, model=model, emit=emit, sources=sources)
        except BaseException:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            raise
        if made is not None:
            assistant._remove = weakref.finalize(assistant, shutil.rmtree, made, True)
        return assistant

    @property
    def corpus(self) -> Corpus:
        """The corpus; without an index it is built first."""
        if self._corpus is None:
            self._corpus = _open_corpus(self.config, self.emit, self._functions)
        return self._corpus

    def close(self) -> None:
        if self._owns_corpus and self._corpus is not None:
            self._corpus.close()
            self._corpus = None
        if self._remove is not None:
            self._remove()

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
        max_hops: int | None = None,
        prefetch: bool | None = None,
        survey: Survey | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """Answers `question` and records the run. None takes a limit from the configuration; `math.inf` lifts it.

        `prefetch` puts a first retrieval into the prompt of the `agent` mode; `survey` is the table that the `research`
        mode is to fill, where it is not to be read from the question (see the method `survey`).

        Raises UsageError (wrong mode, limits or configuration) and IndexUnusable before anything is spent. A tool or
        model that fails raises nothing: the answer says so. A cancelled run is recorded as a partial, then the
        cancellation goes on. RightsWithdrawn where the asker loses, meanwhile, the right to something that was found.
        """
        return await self._ask(
            question,
            mode=mode,
            max_steps=max_steps,
            max_dollars=max_dollars,
            max_seconds=max_seconds,
            max_hops=max_hops,
            prefetch=prefetch,
            survey=survey,
            emit=emit,
        )

    async def _ask(
        self,
        question: str,
        *,
        mode: str,
        max_steps: int | None,
        max_dollars: float | None,
        max_seconds: float | None,
        max_hops: int | None = None,
        prefetch: bool | None = None,
        survey: Survey | None = None,
        emit: Emit | None,
        turn: Turn | None = None,
    ) -> Answer:
        question = _checked_question(question)
        _checked_mode(mode)
        if self.config.security.quarantine and (mode == "research" or survey is not None):
            raise UsageError(
                "mode 'research' does not read in quarantine: use 'agent', which asks document by document"
            )
        if max_hops is not None and max_hops < 1:
            raise UsageError(f"max_hops is {max_hops!r}: at least 1 retrieval is needed")
        budget = _budget(self.config, max_steps=max_steps, max_dollars=max_dollars, max_seconds=max_seconds)
        corpus = await asyncio.to_thread(lambda: self.corpus)
        opened = await asyncio.to_thread(self._open_model, corpus)
        require_price(opened, budget)
        if mode == "direct" and opened.name == OFFLINE:
            raise UsageError(
                "mode 'direct' answers without documents, and the offline model can only search them: "
                "name a model, or leave the mode out"
            )
        small = await asyncio.to_thread(self._open_small, corpus, opened, mode, turn)
        if small is not opened:
            require_price(small, budget, table="model.small_price")
        send = self.emit if emit is None else emit
        meter = Meter(budget)
        asks_provider = next((s.name for s in corpus.sources if s.engine == "provider"), None)
        provider = None
        if asks_provider is not None:
            from .models.websearch import provider_search

            provider = provider_search(small, source=asks_provider, meter=meter)
        corpus = await asyncio.to_thread(
            corpus.for_run, question, principal=self._principal, meter=meter, provider=provider
        )
        run = _Run(
            question=question,
            requested=mode,
            opened=opened,
            small=small,
            meter=meter,
            principal=self._principal,
            judge=self._judge,
            emit=send,
            turn=turn,
            quarantine=self.config.security.quarantine,
            shown=Shown(corpus, self._principal, documents=[] if turn is None else {p.document for p in turn.read}),
            place=self._place,
        )
        with run_span(run_id=run.id, question=question, mode=mode, model=opened.name) as traced:
            try:
                async with opened.model, small.model:  # closes their connections once nobody asks any more
                    answer = await run.run(corpus, self.config, max_hops=max_hops, prefetch=prefetch, survey=survey)
                await run.allowed()
            except asyncio.CancelledError:
                await asyncio.shield(asyncio.to_thread(self._save, run, run.cancelled(corpus)))
                if run.withdrawn:
                    run.task.uncancel()
                    raise RightsWithdrawn from None
                raise
            used = answer.usage
            traced.usage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=used.cached_tokens,
                dollars=used.dollars,
            )
            traced.answered(
                mode=answer.mode,
                model=opened.name,
                status=answer.status,
                stop_reason=answer.stop_reason,
                steps=used.steps,
                searches=used.searches,
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
        max_hops: int | None = None,
        prefetch: bool | None = None,
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
                max_hops=max_hops,
                prefetch=prefetch,
                emit=emit,
            )
        )

    def chat(
        self,
        *,
        mode: str = "auto",
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
    ) -> Chat:
        """Opens a conversation: each question may lean on those before it, and has a budget of its own.

        The limits are those of each turn; for the rest see `ask` and `[chat]` in the configuration.
        """
        from .chat import Chat

        _checked_mode(mode)
        return Chat(
            self._ask_turn,
            lambda: self.corpus,
            principal=self._principal,
            settings=self.config.chat,
            mode=mode,
            max_steps=max_steps,
            max_dollars=max_dollars,
            max_seconds=max_seconds,
        )

    async def _ask_turn(
        self,
        turn: Turn,
        *,
        mode: str,
        max_steps: int | None,
        max_dollars: float | None,
        max_seconds: float | None,
        emit: Emit | None,
    ) -> Answer:
        return await self._ask(
            turn.asked,
            mode=mode,
            max_steps=max_steps,
            max_dollars=max_dollars,
            max_seconds=max_seconds,
            emit=emit,
            turn=turn,
        )

    async def survey(
        self,
        question: str,
        *,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """Asks the same of every document of a source and gives a table: `Answer.rows`, and Markdown in `Answer.text`.

        Source, filters and columns are taken from the question where they are not given ("which contracts of Alpha
        lack an incident deadline?"). Raises UsageError when it names no documents, or a source or filter that there
        is not; for the rest see `ask`.
        """
        from .survey import survey_of

        text = _checked_question(question)
        corpus = await asyncio.to_thread(lambda: self.corpus)
        found = await asyncio.to_thread(
            survey_of,
            text,
            corpus=corpus,
            principal=self._principal,
            source=source,
            filters=filters,
            columns=columns,
        )
        if found is None:
            raise UsageError("the question names no documents to ask: give source=…, or ask 'which <documents> …'")
        return await self.ask(
            text,
            mode="research",
            max_steps=max_steps,
            max_dollars=max_dollars,
            max_seconds=max_seconds,
            survey=found,
            emit=emit,
        )

    def survey_sync(
        self,
        question: str,
        *,
        source: str | None = None,
        filters: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        max_steps: int | None = None,
        max_dollars: float | None = None,
        max_seconds: float | None = None,
        emit: Emit | None = None,
    ) -> Answer:
        """`survey` for callers without an event loop."""
        return asyncio.run(
            self.survey(
                question,
                source=source,
                filters=filters,
                columns=columns,
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

    def _open_small(self, corpus: Corpus, opened: OpenedModel, mode: str, turn: Turn | None) -> OpenedModel:
        """The model for decisions; the answering one where none is named, or where none will be asked."""
        asked = mode not in _UNDECIDED or self.config.verify.support == "model" or turn is not None
        asked = asked or self.config.security.quarantine
        if opened.name == OFFLINE or self._judge is not None or not asked:
            return opened
        if self._small_opened is None:
            given = self._small
            if isinstance(given, OpenedModel):
                self._small_opened = given
            elif given is not None:
                self._small_opened = OpenedModel(model=given, name=given.model_name, price=FREE)
            elif self._model is None and self.config.model.small is not None:
                self._small_opened = open_small(self.config.model, corpus.lexicon(principal=self._principal))
            else:
                self._small_opened = opened
        return self._small_opened

    def _save(self, run: _Run, answer: Answer) -> Answer:
        """Records the run; a store that cannot be written costs a warning, not the answer."""
        if self._record:
            try:
                RunStore(self.config.state / "runs.sqlite").save(answer, events=run.events, principal=self._principal)
            except Exception as problem:
                note = f"the run was not recorded: {' '.join(str(problem).split())}"
                answer = replace(answer, warnings=(*answer.warnings, note))
        return answer


_UNDECIDED = ("single", "agent")
"""Modes in which nothing is decided by a judge."""


class _Run:
    """One question on its way: its ledger, its events and what becomes of it."""

    def __init__(
        self,
        *,
        question: str,
        requested: str,
        opened: OpenedModel,
        small: OpenedModel,
        meter: Meter,
        principal: Principal,
        judge: Judge | None,
        emit: Emit,
        shown: Shown,
        place: Place,
        turn: Turn | None = None,
        quarantine: bool = False,
    ) -> None:
        """Belongs to the task that makes it."""
        self.id = new_run_id()
        self.question = question
        self.events: list[Event] = []
        self.withdrawn = False
        """Whoever asked may not see any more what it has shown: it is being cancelled."""
        self._shown = shown
        self._place = place
        self._works = False
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        """The one that it runs in."""
        self._loop = asyncio.get_running_loop()
        self._requested = requested
        self._mode = requested
        self._route = "asked for" if requested != "auto" else "not decided yet"
        self._opened = opened
        self._small = small
        self._meter = meter
        self._principal = principal
        self._judge = judge
        self._send = emit
        self._turn = turn
        self._quarantine = quarantine
        self._ledger = Ledger(carried=() if turn is None else turn.read)

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._shown.add(event)
        if not self.withdrawn and not self._shown.to_asker():
            self.withdrawn = True
            self._loop.call_soon_threadsafe(self.task.cancel)
        if not self.withdrawn:
            self._send(event)

    async def allowed(self) -> None:
        """Lets the cancellation through where the right to what was shown is gone by now."""
        if self.withdrawn:
            await asyncio.sleep(0)

    async def run(
        self,
        corpus: Corpus,
        config: Config,
        *,
        max_hops: int | None = None,
        prefetch: bool | None = None,
        survey: Survey | None = None,
    ) -> Answer:
        self.emit(
            RunStarted(
                run_id=self.id, question=self.question, mode=self._mode, route=self._route, model=self._opened.name
            )
        )
        async with self._place(self.emit):
            self._works = True
            self._meter.restart()
            return await self._work(corpus, config, max_hops=max_hops, prefetch=prefetch, survey=survey)

    async def _work(
        self, corpus: Corpus, config: Config, *, max_hops: int | None, prefetch: bool | None, survey: Survey | None
    ) -> Answer:
        from .loop import Outcome
        from .routing import Task, strategy

        task = Task(
            question=self.question,
            config=config,
            corpus=corpus,
            principal=self._principal,
            model=self._opened,
            small=self._small,
            meter=self._meter,
            ledger=self._ledger,
            emit=self.emit,
            max_hops=max_hops,
            prefetch=prefetch,
            judge=self._judge,
            survey=survey,
        )
        try:
            if self._turn is not None and await self._understood(self._turn, task):
                return self._answer(Outcome())
            done = await strategy(self._requested, quarantine=config.security.quarantine)(task)
            self._mode, self._route, outcome = done.mode, done.route, done.outcome
            if config.verify.support == "model":
                outcome = await self._supported(outcome, task)
        except CitehoundError:
            raise
        except Exception as problem:
            why = f"stopped early (model_error): {type(problem).__name__}: {' '.join(str(problem).split())}"
            outcome = Outcome(stop_reason="model_error", warnings=(why,))
        return self._answer(outcome)

    async def _understood(self, turn: Turn, task: Task) -> bool:
        """Makes the question of a chat self-contained; True where something has to be asked back instead."""
        from .judge import ModelJudge

        # A model that rewrites a question from earlier answers has seen texts: in quarantine, rules do it.
        judge = await asyncio.to_thread(task.rules if task.config.security.quarantine else task.judge)
        rules = await asyncio.to_thread(task.rules)
        found = await turn.understand(judge=judge, rules=rules)
        by = judge.name if isinstance(judge, ModelJudge) else rules.name
        if found.clarification:
            self.emit(Decided(what="follow_up", verdict=f"asks back: {found.clarification}", why=found.why, by=by))
            self._mode = "direct"
            self._route = found.why
            return True
        if found.why:
            self.emit(Decided(what="follow_up", verdict=found.question, why=found.why, by=by))
        task.question = found.question
        task.reuse = found.enough and bool(turn.read)
        room = self._opened.window
        most = turn.settings.history_tokens
        task.earlier = await asyncio.to_thread(turn.told, most if room is None else min(most, room // 4))
        return False

    async def _supported(self, outcome: Outcome, task: Task) -> Outcome:
        """The outcome with a model's opinion on its verified claims; nothing else about them changes."""
        from .judge import judge_support

        if not any(claim.status == "verified" for claim in outcome.claims):
            return outcome
        judge = await asyncio.to_thread(task.judge)
        if judge.name == "rules":
            said = "support was not judged: [verify] support = 'model' needs a model that judges"
            return replace(outcome, warnings=(*outcome.warnings, said))
        claims: tuple[Claim, ...] = await judge_support(outcome.claims, judge)
        return replace(outcome, claims=claims)

    def cancelled(self, corpus: Corpus) -> Answer:
        """The record of a run that was cancelled: what had been read until then."""
        from .loop import compose_partial

        return self._answer(
            compose_partial(
                self._ledger.evidence(),
                corpus.view(principal=self._principal),
                question=self._asked(),
                stop_reason="cancelled",
                declared=None if self._works else "the run was ended while it waited for its turn",
            )
        )

    def _asked(self) -> str:
        """The question as it is searched."""
        understood = None if self._turn is None else self._turn.understood
        return self.question if understood is None else understood.question

    def _answer(self, outcome: Outcome) -> Answer:
        evidence = self._ledger.evidence()
        spent = self._meter.spent()
        warnings = list(outcome.warnings)
        turn = self._turn
        understood = None if turn is None else turn.understood
        if turn is not None:
            warnings += turn.notes
        # A model sees that its own search failed; that of a retrieval by code would stay unseen.
        unseen = (call.error for call in evidence.calls if call.step == 0 and call.tool.startswith("search_"))
        warnings += dict.fromkeys(error for error in unseen if error)
        if self._opened.name == OFFLINE:
            warnings.append(OFFLINE_WARNING)
        if spent.reserved > 0:
            warnings.append(
                f"the outcome of a request is unknown: its worst case of ${spent.reserved:.4f} is counted as spent"
            )
        warnings += differing(outcome.claims)
        text = without_tags(outcome.text.strip()) if outcome.text else ""
        back = None if understood is None else understood.clarification
        if back:
            text = back
        if outcome.rows:
            text = render_survey(outcome.rows, outcome.claims, outcome.missing)
        elif not text and (outcome.claims or outcome.missing):
            text = render_text(outcome.claims, outcome.missing)
        reason: StopReason = outcome.stop_reason
        if reason == "answered" and not (text or outcome.claims or outcome.missing):
            reason = "empty"
            warnings.append("the model handed in an answer with nothing in it")
        direct = outcome.text is not None and bool(text) and not outcome.claims
        answer = Answer(
            question=self.question,
            requested_mode=self._requested,
            mode=self._mode,
            route=self._route,
            model=self._opened.name,
            status="clarification"
            if back
            else status_of(
                stop_reason=reason,
                text=text,
                claims=outcome.claims,
                missing=outcome.missing,
                direct=direct,
            ),
            text=f"{text}\n\n{NO_DOCUMENT}" if direct else text,
            claims=outcome.claims,
            missing=outcome.missing,
            calls=evidence.calls,
            stop_reason=reason,
            usage=Usage(
                steps=spent.steps,
                model_calls=spent.model_calls,
                searches=sum(1 for call in evidence.calls if call.tool.startswith("search_")),
                reads=sum(1 for call in evidence.calls if call.error is None and call.tool in _READING),
                retrievals=_retrievals(evidence),
                input_tokens=spent.input_tokens,
                cached_tokens=spent.cached_tokens,
                output_tokens=spent.output_tokens,
                dollars=None if self._opened.price is None else spent.dollars + spent.reserved,
                seconds=round(spent.seconds, 3),
            ),
            warnings=tuple(warnings),
            run_id=self.id,
            rows=outcome.rows,
            rewritten=None if self._asked() == self.question else self._asked(),
            clarification=back,
            chat_id=None if turn is None else turn.chat_id,
            turn=None if turn is None else turn.number,
            quarantine=self._quarantine,
        )
        if turn is not None:
            turn.evidence, turn.answer = evidence, answer
        for number, claim in enumerate(answer.claims, start=1):
            self.emit(ClaimChecked(number=number, claim=claim))
        for gap in answer.missing:
            self.emit(GapDeclared(gap=gap))
        self.emit(Answered(answer=answer))
        return answer


_READING = ("read_document", "find_in_document")


def _retrievals(evidence: Evidence) -> int:
    """Rounds of searching that code made: they carry no step, and one round asks every source the same."""
    rounds = {(str(c.arguments.get("query")), c.agent) for c in evidence.calls if _is_by_code(c)}
    return len(rounds)


def _is_by_code(call: Call) -> bool:
    return call.step == 0 and call.tool.startswith("search_")


def _checked_question(question: str) -> str:
    text = question.strip()
    if not text:
        raise UsageError("the question is empty: ask something")
    if len(text) > MAX_QUESTION:
        raise UsageError(f"the question has {len(text)} characters, at most {MAX_QUESTION}: shorten it")
    return text


def _checked_mode(mode: str) -> None:
    if mode not in MODES:
        raise UsageError(f"no mode {mode!r}: use one of {', '.join(map(repr, MODES))}")


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


def _python_sources(functions: Sequence[Callable[..., Any]]) -> tuple[PythonSource, ...]:
    if not functions:
        return ()
    from .sources.python import PythonSource

    return tuple(PythonSource.of(function) for function in functions)


def _open_corpus(config: Config, emit: Emit, functions: Sequence[PythonSource] = ()) -> Corpus:
    corpus = Corpus.open(config, write=True, functions=functions)
    try:
        if corpus.is_empty():
            corpus.sync(emit=emit)
    except BaseException:
        corpus.close()
        raise
    return corpus
