"""The questions that run on the server, whether or not anyone waits: starts, follows, cancels and ends them.

Owns the corpus that they share, the chats, and the order in which the server becomes ready. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..access import Principal
from ..answers import Answer
from ..assistant import Assistant
from ..budget import Budget
from ..config import Config
from ..corpus import Corpus
from ..documents import RawDocument
from ..errors import (
    CitehoundError,
    ConfigError,
    ParseError,
    RightsWithdrawn,
    UnknownRun,
    UnknownSource,
    UsageError,
)
from ..events import Answered, Emit, Event, RunStarted, Waiting, nowhere
from ..models import OFFLINE, OpenedModel, open_model, open_small, require_price
from ..parsing.pages import PAGE
from ..parsing.worker import Limits, Worker
from ..runs import RunRecord, RunStore, RunSummary
from ..shown import Shown
from .identity import Rate
from .pace import Pace
from .problems import BUG, Refused

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from ..chat import Chat

log = logging.getLogger("citehound.server")

CLOSE_SECONDS = 10.0
"""How long questions have to end when the server is told to stop."""
NEW_CHAT = "new"
"""Given as the id of a chat, it begins one."""
_DAY = 24 * 3600.0
_MOST_WAITING = 20
"""Pages that may wait to be drawn."""
_MOST_MODELS = 8
"""Models that are kept open."""
_MOST_PAGES = 20
"""Pages that are kept."""
OWN_MODEL = "citehound"
"""The configured model, by the name that `/v1/models` lists."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question with all that may be said about it; None takes what is configured."""

    question: str
    mode: str = "auto"
    model: str | None = None
    max_steps: int | None = None
    max_dollars: float | None = None
    max_seconds: float | None = None
    sources: tuple[str, ...] | None = None
    prefetch: bool | None = None
    chat_id: str | None = None
    chat: Chat | None = None
    """A conversation that the caller keeps, of its own principal, model and sources; it goes before `chat_id`."""


class Running:
    """A question on its way. Its events are numbered from 1; whoever follows gets all of them, then the new ones."""

    def __init__(
        self,
        *,
        principal: Principal,
        may_cost: float = 0.0,
        still: Callable[[Principal], bool] = lambda principal: True,
    ) -> None:
        """`still` says whether somebody may see what it has shown so far."""
        self.principal = principal
        self.may_cost = may_cost
        """Dollars, at most."""
        self.run_id = ""
        self.answer: Answer | None = None
        self.error: CitehoundError | None = None
        """Why there is no answer."""
        self.waiting: int | None = None
        """How many go before it, while it waits for its turn to work."""
        self.done = False
        self.withdrawn = False
        """Its asker has lost the right to something that it has shown: it is ended, and nothing of it is given out."""
        self.events: list[dict[str, Any]] = []
        self._still = still
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[Answer] | None = None

    def emit(self, event: Event) -> None:
        """Takes an event from any thread."""
        data = event.to_dict()
        answer = event.answer if isinstance(event, Answered) else None
        if not self.withdrawn and not self._still(self.principal):
            self.withdrawn = True
            self._loop.call_soon_threadsafe(self.cancel)
        self._loop.call_soon_threadsafe(self._publish, data, answer)

    def _publish(self, data: dict[str, Any], answer: Answer | None) -> None:
        if data["type"] == RunStarted.type and not self.run_id:
            self.run_id = data["run_id"]
        if self.withdrawn:
            return self._wake()
        if answer is not None:
            self.answer = answer
        if data["type"] == Waiting.type:
            self.waiting = data["ahead"]
        self.events.append(data)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def may_see(self, principal: Principal) -> bool:
        """Whether somebody may see all that it has shown; where its asker may not, it ends."""
        if not self.withdrawn and not self._still(self.principal):
            self.withdrawn = True
            self.cancel()
            self._wake()
        return not self.withdrawn if principal == self.principal else self._still(principal)

    async def follow(
        self, after: int = 0, *, principal: Principal | None = None
    ) -> AsyncGenerator[tuple[int, dict[str, Any]]]:
        """Number and event of each after the `after`-th, until the question is over, or `principal` (None: its asker)
        may not see what it has shown."""
        at = max(0, after)
        who = self.principal if principal is None else principal
        while True:
            changed = self._changed
            while at < len(self.events) and self.may_see(who):
                at += 1
                yield at, self.events[at - 1]
            if at < len(self.events) or not self.may_see(who):
                yield at + 1, {"type": "error", "message": str(RightsWithdrawn())}
                return
            if self.done:
                return
            await changed.wait()

    async def begun(self) -> None:
        """Returns once it has a run id. Raises what kept it from beginning."""
        while not self.run_id and not self.done:
            await self._changed.wait()
        if not self.run_id or self.withdrawn:
            raise self.error or RightsWithdrawn()

    async def over(self) -> Answer:
        """The answer, also that of a question which was cancelled. Raises what kept it from being answered."""
        await self.ended()
        if not self.may_see(self.principal):
            raise RightsWithdrawn
        if self.answer is None:
            raise self.error or Refused(503, "the question was cancelled before anything was found; ask again")
        return self.answer

    async def ended(self) -> None:
        while not self.done:
            await self._changed.wait()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def run(self, task: asyncio.Task[Answer]) -> None:
        self._task = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Answer]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, RightsWithdrawn):
                self.withdrawn = True
            elif not isinstance(error, CitehoundError):
                log.error("a question failed: %s: %s", type(error).__name__, " ".join(str(error).split()))
                error = Refused(500, BUG)
            self.error = error
            if self.run_id:
                self.events.append({"type": "error", "message": " ".join(str(error).split())})
        elif not task.cancelled():
            self.answer = task.result()  # with what is to be said of its recording
        self.done = True
        self._wake()


class Pages:
    """Pages of PDFs as pictures, one at a time, in a process of its own; the latest are kept."""

    def __init__(self) -> None:
        limits = Limits(seconds=20, memory=768 << 20, attachments=50_000_000)
        self._worker = Worker(limits=limits, target="citehound.parsing.pages:render")
        self._one = asyncio.Semaphore(1)
        self._waiting = 0
        self._kept: OrderedDict[tuple[str, str, int], bytes] = OrderedDict()

    async def picture(self, raw: RawDocument, page: int) -> bytes:
        """The page as a PNG. Raises Refused: 404 where there is none, 503 where too many wait already."""
        key = (raw.id, hashlib.sha256(raw.data).hexdigest(), page)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= _MOST_WAITING:
            raise Refused(503, "many pages are being drawn; try again in a moment", retry_after=2)
        self._waiting += 1
        try:
            async with self._one:
                asked = replace(raw, metadata={PAGE: str(page)})
                drawn = await asyncio.to_thread(self._worker.read, asked, language=None)
        except ParseError as error:
            raise Refused(404, f"the page cannot be shown: {error}") from error
        finally:
            self._waiting -= 1
        picture = drawn.attachments[0].data
        self._kept[key] = picture
        while len(self._kept) > _MOST_PAGES:
            self._kept.popitem(last=False)
        return picture

    def close(self) -> None:
        self._worker.close()


@dataclass(kw_only=True)
class _Talk:
    """A chat, and what it was opened with."""

    principal: Principal
    chat: Chat
    model: str | None
    sources: tuple[str, ...] | None
    turn: asyncio.Lock


@dataclass(frozen=True, kw_only=True)
class _Day:
    """What somebody has asked for in the last 24 hours; what ran when that was looked up is not in it."""

    since: float
    questions: int
    dollars: float
    running: frozenset[Running]


class Questions:
    """All that runs, over one corpus. Used from one event loop.

    `model` and `small` stand in for the configured ones, as in `Assistant`. `emit` hears of the index being built.
    """

    def __init__(
        self,
        config: Config,
        *,
        model: OpenedModel | Model | None = None,
        small: OpenedModel | Model | None = None,
        emit: Emit = nowhere,
    ) -> None:
        self.config = config
        self.store = RunStore(config.state / "runs.sqlite")
        self.problem: CitehoundError | None = None
        """Why the server cannot become ready."""
        self._model = model
        self._small = small
        self._emit = emit
        self._corpus: Corpus | None = None
        self._running: dict[str, Running] = {}
        self._active: set[Running] = set()
        self._chats: OrderedDict[str, _Talk] = OrderedDict()
        self._models: dict[str, tuple[OpenedModel, OpenedModel]] = {}
        self._opening = threading.Lock()
        self._entered = AsyncExitStack()
        self._rate = Rate(config.server.questions_per_minute)
        self.pace = Pace(config.server.max_questions)
        self.pages = Pages()
        self._closing = False
        self.on_end: Callable[[Running], None] = lambda running: None
        """Hears of each question when it is over."""
        self.knows: Callable[[Principal], bool] = lambda principal: True
        """Whether somebody is still who they were when they asked."""

    # getting ready

    @property
    def ready(self) -> bool:
        return self._corpus is not None and not self._closing

    @property
    def corpus(self) -> Corpus:
        """Raises Refused (503) until the index is there."""
        if self._corpus is None:
            if self.problem is not None:
                raise Refused(503, f"the server cannot answer: {self.problem}")
            raise Refused(503, "the index is being built; try again in a moment", retry_after=5)
        return self._corpus

    async def prepare(self) -> None:
        """Opens the corpus, building its index first where there is none; what fails is kept in `problem`."""
        try:
            corpus = await asyncio.to_thread(self._open)
            for model in self._held():
                await self._entered.enter_async_context(model)
            # What is loaded by now stays; to look through it for garbage, again and again, is a fifth of all work.
            gc.collect()
            gc.freeze()
            self._corpus = corpus
        except CitehoundError as error:
            self.problem = error
        except Exception as error:
            log.error("the corpus cannot be opened: %s: %s", type(error).__name__, error)
            self.problem = CitehoundError("the corpus cannot be opened; 'citehound doctor' says why")

    def _open(self) -> Corpus:
        def emit(event: Event) -> None:
            if self._closing:  # what is in the index by now is kept, and the next start goes on from there
                raise Refused(503, "the server was stopped while its index was being built")
            self._emit(event)

        from .. import chat, routing  # what the first question would wait for

        _ = chat, routing
        if self._model is None and (models := self._opened(self.config)) is not None:
            budget = Budget(max_dollars=self.config.budget.max_dollars)
            require_price(models[0], budget)
            require_price(models[1], budget, table="model.small_price")
        with Corpus.open(self.config, write=True) as probe:
            if probe.is_empty():
                probe.sync(emit=emit)
        return Corpus.open(self.config)

    def _held(self) -> tuple[Model, ...]:
        """The models that keep their connections as long as the server runs."""
        opened = self._models.get(self.config.model.name)
        return () if opened is None else tuple({id(o.model): o.model for o in opened}.values())

    def _opened(self, config: Config) -> tuple[OpenedModel, OpenedModel] | None:
        """The configured model and the one for decisions, the same for all questions; None for the offline model,
        which sees what the asker sees."""
        name = config.model.name
        if name == OFFLINE:
            return None
        with self._opening:
            if name not in self._models:
                opened = open_model(config.model)
                small = opened if config.model.small is None else open_small(config.model)
                self._models[name] = (opened, small)
                while len(self._models) > _MOST_MODELS:
                    self._models.pop(next(n for n in self._models if n not in (name, self.config.model.name)))
            return self._models[name]

    async def close(self) -> None:
        """Ends what runs, as declared partials that are recorded; nothing new is begun."""
        self._closing = True
        active = list(self._active)
        for running in active:
            running.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for running in active:
                    await running.ended()
        self.pace.close()
        await self._entered.aclose()
        await asyncio.to_thread(self.pages.close)
        corpus, self._corpus = self._corpus, None
        if corpus is not None:
            await asyncio.to_thread(corpus.close)

    # asking

    def assistant(
        self, *, principal: Principal, model: str | None = None, sources: Sequence[str] | None = None
    ) -> Assistant:
        """Who answers for this principal. Raises Refused (403) for a model that it may not ask for, UnknownSource."""
        config = self.config
        corpus = self.corpus
        if sources is not None:
            known = {source.name for source in corpus.sources_for(principal)}
            for name in sources:
                if name not in known:
                    raise UnknownSource(f"no source is called {name!r}; GET /v1/sources lists them")
            if not sources:
                raise UsageError("sources is empty; name some, or leave it out")
            corpus = corpus.only(sources, principal=principal)
            config = replace(config, sources=corpus.sources)
        own = model is None or model in (OWN_MODEL, config.model.name)
        if not own:
            assert model is not None
            if not (principal.owner or model == OFFLINE or model in config.server.models):
                raise Refused(
                    403, f"the model {model!r} is not offered here; leave it out, or put it in [server] models"
                )
            config = replace(config, model=replace(config.model, name=model))
        if own and self._model is not None:
            return Assistant(config, corpus, self._model, small=self._small, principal=principal, place=self.pace.place)
        try:
            opened, small = self._opened(config) or (None, None)
        except ConfigError as error:
            if own:
                raise
            raise UsageError(str(error)) from error
        return Assistant(config, corpus, opened, small=small, principal=principal, place=self.pace.place)

    async def start(self, asked: Asked, *, principal: Principal) -> Running:
        """Begins a question. Raises UsageError for one that cannot be asked, Refused when there is no room for it."""
        self._check(asked)
        day = await self._day(principal)
        if self._closing:
            raise Refused(503, "the server is shutting down; ask again in a moment", retry_after=10)
        _ = self.corpus
        if len(self._active) >= self.config.server.max_questions:
            said = f"{len(self._active)} questions are being answered; ask again in a moment"
            raise Refused(503, said, retry_after=2)
        self._check_share(principal)
        may_cost = self._may_cost(asked)
        if day is not None and (beyond := self._beyond(day, may_cost, principal=principal)) is not None:
            said, questions, dollars = beyond
            wait = await asyncio.to_thread(self._wait, day, principal=principal, questions=questions, dollars=dollars)
            raise Refused(429, said, retry_after=wait)
        self._rate.take(principal.name, what="questions")
        shown = Shown(self.corpus, principal)
        running = Running(principal=principal, may_cost=may_cost, still=partial(self._still, shown, principal))
        self._active.add(running)  # with nothing awaited since the places and the day were looked at
        task = asyncio.get_running_loop().create_task(self._answer(asked, running, shown))
        task.add_done_callback(lambda _: self._forget(running))
        running.run(task)
        task.add_done_callback(lambda _: self.on_end(running))
        try:
            await running.begun()
        except asyncio.CancelledError:
            running.cancel()
            raise
        return running

    async def _answer(self, asked: Asked, running: Running, shown: Shown) -> Answer:
        emit = self._listening(running, shown)
        if asked.chat is not None:
            return await _turn(asked.chat, asked, emit)
        if asked.chat_id is not None:
            talk = await self._talk(asked, principal=running.principal)
            async with talk.turn:
                return await _turn(talk.chat, asked, emit)
        assistant = await self._assistant(asked, principal=running.principal)
        return await assistant.ask(
            asked.question,
            mode=asked.mode,
            max_steps=asked.max_steps,
            max_dollars=asked.max_dollars,
            max_seconds=asked.max_seconds,
            prefetch=asked.prefetch,
            emit=emit,
        )

    def _forget(self, running: Running) -> None:
        self._active.discard(running)
        self._running.pop(running.run_id, None)

    def _listening(self, running: Running, shown: Shown) -> Emit:
        def emit(event: Event) -> None:
            if isinstance(event, RunStarted):
                self._running[event.run_id] = running
            shown.add(event)
            running.emit(event)

        return emit

    def _still(self, shown: Shown, asker: Principal, principal: Principal) -> bool:
        """Whether somebody may see what a question has shown, and is who they were."""
        return self.knows(principal) and (shown.to_asker() if principal == asker else shown.to(principal))

    def _check(self, asked: Asked) -> None:
        settings = self.config.server
        for name, value, most in (
            ("max_steps", asked.max_steps, settings.max_steps),
            ("max_dollars", asked.max_dollars, settings.max_dollars),
            ("max_seconds", asked.max_seconds, settings.max_seconds),
        ):
            if value is not None and value > most:
                raise UsageError(f"{name} is {value!r}, at most {most!r} on this server; ask for less")

    def _check_share(self, principal: Principal) -> None:
        """Raises Refused (429) for somebody, no owner, who has half of the places: the rest is for others."""
        share = (self.config.server.max_questions + 1) // 2
        mine = sum(running.principal.name == principal.name for running in self._active)
        if not principal.owner and mine >= share:
            said = f"{mine} of your questions are being answered, and nobody has more at once; wait for one of them"
            raise Refused(429, said, retry_after=2)

    async def _day(self, principal: Principal) -> _Day | None:
        """None for whom there is no limit."""
        settings = self.config.server
        if principal.owner or (settings.questions_per_day is None and settings.dollars_per_day is None):
            return None
        since = time.time() - _DAY
        running = frozenset(r for r in self._active if r.principal.name == principal.name)
        questions, dollars = 0, 0.0
        if self.store.path.exists():
            ids = [r.run_id for r in running if r.run_id]
            questions, dollars = await asyncio.to_thread(self.store.used, since, principal=principal, besides=ids)
        return _Day(since=since, questions=questions, dollars=dollars, running=running)

    def _may_cost(self, asked: Asked) -> float:
        """Dollars that a question costs at most."""
        config = self.config
        talk = self._chats.get(asked.chat_id or "")
        model = talk.model if talk is not None else asked.model
        own = model is None or model in (OWN_MODEL, config.model.name)
        offline = self._model is None and config.model.name == OFFLINE if own else model == OFFLINE
        if offline and not self.corpus.fee:
            return 0.0
        limits = (asked.max_dollars, config.budget.max_dollars, config.server.max_dollars)
        return next(limit for limit in limits if limit is not None)

    def _beyond(self, day: _Day, may_cost: float, *, principal: Principal) -> tuple[str, int, float] | None:
        """Where one more question may go beyond a day's limits: what to say, and how many questions and dollars have
        to become older than a day first."""
        settings = self.config.server
        running = {*day.running, *(r for r in self._active if r.principal.name == principal.name)}
        most = settings.questions_per_day
        if most is not None and (many := day.questions + len(running) + 1 - most) > 0:
            return f"{most} questions in 24 hours are the most that one may ask here; ask again later", many, 0.0
        if settings.dollars_per_day is None:
            return None
        left = settings.dollars_per_day - day.dollars
        free = left - sum(r.may_cost for r in running)
        if may_cost <= free + 1e-9:
            return None
        said = (
            f"this question may cost {may_cost:.2f} dollars, and of {settings.dollars_per_day:.2f} in 24 hours "
            f"{max(0.0, free):.2f} are left; ask again later, or with a lower max_dollars"
        )
        return said, 0, max(0.0, may_cost - left)

    def _wait(self, day: _Day, *, principal: Principal, questions: int, dollars: float) -> float:
        """Seconds until so much has become older than a day; few where only what runs is in the way."""
        if not questions and dollars <= 1e-9:
            return 5
        at = self.store.reached(day.since, principal=principal, questions=questions, dollars=dollars)
        return _DAY if at is None else math.ceil(at - day.since)

    async def _assistant(self, asked: Asked, *, principal: Principal) -> Assistant:
        return await asyncio.to_thread(self.assistant, principal=principal, model=asked.model, sources=asked.sources)

    async def _talk(self, asked: Asked, *, principal: Principal) -> _Talk:
        chat_id = asked.chat_id
        if asked.prefetch is not None:
            raise UsageError("prefetch does not go with a chat; leave one of them out")
        if chat_id == NEW_CHAT:
            assistant = await self._assistant(asked, principal=principal)
            talk = _Talk(
                principal=principal,
                chat=assistant.chat(),
                model=asked.model,
                sources=asked.sources,
                turn=asyncio.Lock(),
            )
            self._chats[talk.chat.id] = talk
            while len(self._chats) > self.config.server.max_chats:
                self._chats.popitem(last=False)
            return talk
        talk = self._chats.get(chat_id or "")
        if talk is None or talk.principal != principal:  # also where the groups have changed since
            raise UnknownRun(f"no chat {chat_id!r}; begin one with chat_id 'new'")
        for name, given, opened in (("model", asked.model, talk.model), ("sources", asked.sources, talk.sources)):
            if given is not None and given != opened:
                raise UsageError(f"{name} is set when a chat begins; begin another one with chat_id 'new'")
        if talk.turn.locked():
            raise Refused(409, "this chat is still answering: wait for it, or begin another one with chat_id 'new'")
        self._chats.move_to_end(talk.chat.id)
        return talk

    # what ran, and what runs

    def count(self) -> int:
        """How many run."""
        return len(self._active)

    def running(self, run_id: str, *, principal: Principal) -> Running | None:
        """The question with this run id while it runs; None where it does not, or is somebody else's."""
        found = self._running.get(run_id)
        if found is None or not (principal.owner or found.principal.name == principal.name):
            return None
        return found if found.may_see(principal) else None

    def all_running(self, *, principal: Principal) -> tuple[Running, ...]:
        """The newest first."""
        mine = [r for r in self._running.values() if principal.owner or r.principal.name == principal.name]
        return tuple(r for r in reversed(mine) if r.may_see(principal))

    async def record(self, run_id: str, *, principal: Principal) -> RunRecord:
        """The record of a run that is over. Raises UnknownRun, also where it shows what `principal` may not see now."""
        return await asyncio.to_thread(self.look_up, run_id, principal=principal)

    def look_up(self, run_id: str, *, principal: Principal) -> RunRecord:
        """As `record`, for a thread."""
        if not self.store.path.exists():
            raise UnknownRun(f"no run {run_id!r}")
        record = self.store.get(run_id, principal=principal)
        if not principal.owner and self.corpus.withheld(record.documents, principal=principal):
            raise UnknownRun(f"no run {run_id!r}")
        return record

    def shown(self, runs: Sequence[RunSummary], *, principal: Principal) -> tuple[RunSummary, ...]:
        """Those that `record` would give. Reads each of them where anything is kept from anybody: for a thread."""
        if principal.owner or not self.corpus.access.limited:
            return tuple(runs)
        shown: list[RunSummary] = []
        for run in runs:
            with suppress(UnknownRun):
                self.look_up(run.run_id, principal=principal)
                shown.append(run)
        return tuple(shown)


async def _turn(chat: Chat, asked: Asked, emit: Emit) -> Answer:
    return await chat.ask(
        asked.question,
        mode=asked.mode,
        max_steps=asked.max_steps,
        max_dollars=asked.max_dollars,
        max_seconds=asked.max_seconds,
        emit=emit,
    )
