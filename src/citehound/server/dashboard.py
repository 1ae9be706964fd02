"""Routes of the dashboard and of Prometheus, and the watch over failed citations; the numbers come from `dashboard`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from ..access import OWNER, Principal
from ..answers import Answer
from ..dashboard import Dashboard, Matching, Selection, Withheld, citation_alert, dashboard, matching
from ..errors import CitehoundError
from .api import ERRORS, questions_of
from .identity import Caller
from .metrics import CONTENT_TYPE, Counted, Metrics
from .problems import Refused
from .questions import Questions, Running

log = logging.getLogger("citehound.server")

SCRAPER = "metrics"
"""A token of this group may read /metrics beside the owners'."""
CHART = Path(__file__).parents[1] / "evals" / "static" / "chart"
"""Chart.js, which the reports of evaluations use too."""
_MOST_COUNTED = 10_000
"""Runs that are known to be counted."""
_LATEST = 32_503_680_000
"""The year 3000, in seconds since the epoch."""
router = APIRouter(responses=ERRORS)


class Chosen(BaseModel):
    """Which runs are meant; what is left out leaves a thing open."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    since: float | None = Field(default=None, ge=0, le=_LATEST, allow_inf_nan=False, description="Seconds since 1970.")
    until: float | None = Field(default=None, ge=0, le=_LATEST, allow_inf_nan=False, description="Not included.")
    source: str | None = Field(default=None, max_length=200)
    mode: str | None = Field(default=None, max_length=40)
    model: str | None = Field(default=None, max_length=200)
    status: str | None = Field(default=None, max_length=40)
    stop_reason: str | None = Field(default=None, max_length=40)
    searches: int | None = Field(default=None, ge=0, le=10**9, description="Exactly so many.")
    capped: bool | None = Field(default=None, description="Whether a limit of the budget ended it.")
    failed: bool | None = Field(default=None, description="Whether one of its citations failed.")
    unverified: bool | None = Field(default=None, description="Whether one of its claims is not verified.")
    document: str | None = Field(default=None, max_length=1000, description="Was read.")
    gap: str | None = Field(default=None, max_length=1000, description="The topic of a gap, as the dashboard gives it.")
    good: bool | None = Field(default=None, description="What was thought of it.")
    min_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    min_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def selection(self) -> Selection:
        return Selection(**{f.name: getattr(self, f.name) for f in fields(Selection)})


class Wanted(Chosen):
    zone: str = Field(default="UTC", max_length=64, description="An IANA time zone: where a day begins.")


class Page(Chosen):
    limit: int = Field(default=50, ge=1, le=200)
    before: str | None = Field(default=None, pattern=r"^[0-9a-z]{1,40}$", description="Only runs older than this one.")


@router.get("/v1/dashboard", summary="The numbers of all runs that you may see")
async def get_dashboard(wanted: Annotated[Wanted, Query()], request: Request, caller: Caller) -> Dashboard:
    questions = questions_of(request)
    zone = _zone(wanted.zone)

    def look() -> Dashboard:
        return dashboard(
            questions.store,
            wanted.selection(),
            principal=caller,
            zone=zone,
            settings=questions.config.dashboard,
            documents=_documents(questions, caller),
            withheld=_withheld(questions, caller),
        )

    return await asyncio.to_thread(look)


@router.get("/v1/dashboard/runs", summary="The runs behind a number, the newest first")
async def dashboard_runs(wanted: Annotated[Page, Query()], request: Request, caller: Caller) -> Matching:
    questions = questions_of(request)

    def look() -> Matching:
        return matching(
            questions.store,
            wanted.selection(),
            principal=caller,
            withheld=_withheld(questions, caller),
            limit=wanted.limit,
            before=wanted.before,
        )

    return await asyncio.to_thread(look)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "As Prometheus reads it."}
    },
    summary="Numbers for Prometheus",
)
async def get_metrics(request: Request, caller: Caller) -> Response:
    if not (caller.owner or SCRAPER in caller.groups):
        raise Refused(
            403, f"these are everyone's numbers: a token of the group {SCRAPER!r} may read them, and the owner's"
        )
    metrics: Metrics = request.app.state.metrics
    watch: Watch = request.app.state.watch
    await watch.catch_up()
    return Response(await asyncio.to_thread(metrics.text), headers={"content-type": CONTENT_TYPE})


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Refused(422, f"no time zone is called {name!r}; use a name as in 'Europe/Berlin'") from None


def _withheld(questions: Questions, principal: Principal) -> Withheld | None:
    """None where nothing is kept from anybody. Raises Refused (503) while there is no index to look at."""
    if principal.owner or not questions.corpus.access.limited:
        return None

    def of(documents: Sequence[str]) -> list[str]:
        return [name for name in documents if questions.corpus.withheld((name,), principal=principal)]

    return of


def _documents(questions: Questions, principal: Principal) -> dict[str, str] | None:
    """Documents that a search finds, with their titles; None while there is no index."""
    try:
        listed = questions.corpus.list_documents(None, principal=principal, limit=10**9)
    except CitehoundError:
        return None
    return {info.document: info.title for info in listed.documents}


class Watch:
    """Counts every question that ends from now on, whoever asked it, and looks whether too many citations failed
    lately; says so in the log when that changes."""

    def __init__(self, questions: Questions, metrics: Metrics) -> None:
        self._questions = questions
        self._metrics = metrics
        self._raised = False
        self._begun = time.time()
        self._looked = 0
        """The last row of the facts that was looked at."""
        self._counted: OrderedDict[str, None] = OrderedDict()
        """Runs that are in the metrics, the latest of them."""
        self._one = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None

    def ended(self, running: Running) -> None:
        """A question of this server is over."""
        if running.answer is not None:
            self._count(running.answer)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._look())

    def _count(self, answer: Answer) -> None:
        if answer.run_id in self._counted:
            return
        self._counted[answer.run_id] = None
        while len(self._counted) > _MOST_COUNTED:
            self._counted.popitem(last=False)
        self._metrics.answered(answer)

    async def catch_up(self) -> None:
        """Counts what others have recorded: the command line, MCP over stdio, programs in Python."""
        async with self._one:
            try:
                while found := await asyncio.to_thread(self._newer):
                    for row, answer in found:
                        self._looked = row
                        if answer is not None:
                            self._count(answer)
            except CitehoundError as error:
                log.warning("questions of others cannot be counted: %s", error)
            await self._look()

    def _newer(self) -> list[tuple[int, Answer | None]]:
        """The next runs that were recorded since the start; None for what is counted or cannot be read."""
        store = self._questions.store
        if not store.path.exists():
            return []
        with store.reading() as db:
            rows: list[tuple[int, str]] = db.execute(
                "SELECT id, run FROM run_facts WHERE id > ? AND created >= ? ORDER BY id LIMIT 100",
                (self._looked, self._begun),
            ).fetchall()
        found: list[tuple[int, Answer | None]] = []
        for row, run_id in rows:
            answer = None
            if run_id not in self._counted:
                with suppress(CitehoundError, ValueError, TypeError, KeyError):  # a record that cannot be read
                    answer = store.get(run_id, principal=OWNER).answer
            found.append((row, answer))
        return found

    async def _look(self) -> None:
        try:
            found = await asyncio.to_thread(
                citation_alert, self._questions.store, self._questions.config.dashboard, principal=OWNER
            )
        except CitehoundError as error:
            log.warning("failed citations cannot be counted: %s", error)
            return
        self._metrics.alert(found.raised)
        if found.raised and not self._raised:
            log.warning("%s; the dashboard lists them", found.message)
        elif self._raised and not found.raised:
            log.info("citations are well again: %d of %d failed lately", found.failed, found.citations)
        self._raised = found.raised


def add(app: FastAPI) -> None:
    """Adds the routes, and what counts questions and requests; the last thing that is added to an application."""
    questions: Questions = app.state.questions
    metrics = Metrics(running=questions.count, waiting=lambda: questions.pace.waiting)
    app.state.metrics = metrics
    watch = app.state.watch = Watch(questions, metrics)
    questions.on_end = watch.ended
    app.include_router(router)
    app.router.routes.insert(0, Mount("/static/chart", StaticFiles(directory=CHART)))  # before the one of /static
    app.add_middleware(Counted, metrics=metrics)
