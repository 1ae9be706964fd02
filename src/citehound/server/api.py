"""The routes of the JSON API: bodies in, the same types out that Python has; what they do is done on lower floors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from pydantic import BaseModel, ConfigDict, Field

from ..access import Principal
from ..answers import Answer, Mode, Status, StopReason
from ..assistant import MAX_QUESTION
from ..config import SourceConfig
from ..corpus import Corpus, FileReport
from ..documents import DocumentInfo, Passage, SearchResult
from ..drafts import MAX_CLAIMS, MAX_GAPS, Draft, DraftCitation, DraftClaim, DraftGap, oversize
from ..errors import UnknownSource
from ..runs import MOST_REASON, Feedback, RunSummary
from ..security import visible
from ..session import CheckedAnswer, check_answer
from ..toolbox import MAX_HITS, MAX_QUERY, read_page, search_source
from .evidence import evidence_of_places, evidence_of_run, joined
from .identity import COOKIE, SESSION_SECONDS, Caller, Gatekeeper
from .problems import NOT_FOUND, Problem, Refused
from .questions import Asked, Questions, Running

PING_SECONDS = 15.0
_RUN_ID = r"^[0-9a-z]{1,40}$"
_PROBLEM: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{Problem.__name__}"}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
    for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 431, 500, 503)
}
"""What any route may answer; always JSON, whatever a route gives when all is well."""
router = APIRouter(prefix="/v1", responses=ERRORS)


def questions_of(request: Request) -> Questions:
    return request.app.state.questions


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Ask(_Body):
    """A question. What is left out is as configured; a field that is not known is ignored."""

    question: str = Field(min_length=1, max_length=MAX_QUESTION)
    mode: Mode = "auto"
    model: str | None = Field(default=None, min_length=1, max_length=200)
    max_steps: int | None = Field(default=None, ge=1)
    max_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    sources: list[str] | None = Field(default=None, max_length=100, description="Only these are searched.")
    prefetch: bool | None = None
    chat_id: str | None = Field(
        default=None, max_length=40, description="'new' begins a conversation; the answer has its id for what follows."
    )

    def asked(self) -> Asked:
        question = visible(self.question).strip()
        if not question:
            raise Refused(422, "the question is empty: ask something")
        return Asked(
            question=question,
            mode=self.mode,
            model=self.model,
            max_steps=self.max_steps,
            max_dollars=self.max_dollars,
            max_seconds=self.max_seconds,
            sources=None if self.sources is None else tuple(self.sources),
            prefetch=self.prefetch,
            chat_id=self.chat_id,
        )


class Search(_Body):
    query: str = Field(min_length=1, max_length=MAX_QUERY)
    source: str | None = Field(default=None, max_length=200, description="None searches all.")
    filters: dict[str, str] = Field(default_factory=dict[str, str], max_length=20)
    all_versions: bool = False
    k: int = Field(default=6, ge=1, le=MAX_HITS)


class Place(_Body):
    """What was read: a document, a section with all below it, or a span of its text."""

    document: str = Field(min_length=1, max_length=1000)
    section: str | None = Field(default=None, max_length=500)
    start: int | None = Field(default=None, ge=0)
    end: int | None = Field(default=None, ge=0)


def _plainly(schema: dict[str, Any]) -> None:
    """As the fields are."""


class CheckedCitation(DraftCitation):
    """The quote may be left out for an absence."""

    model_config = ConfigDict(json_schema_extra=_plainly)


class CheckedClaim(DraftClaim):
    citations: tuple[CheckedCitation, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride] - frozen


class Verify(_Body):
    """An answer to check. What counts as read is what is named here, and what the run has read."""

    claims: list[CheckedClaim] = Field(default_factory=list[CheckedClaim], max_length=MAX_CLAIMS)
    missing: list[DraftGap] = Field(default_factory=list[DraftGap], max_length=MAX_GAPS)
    question: str = Field(default="", max_length=MAX_QUESTION)
    read: list[Place] = Field(default_factory=list[Place], max_length=200)
    run_id: str | None = Field(default=None, pattern=_RUN_ID)


class SignIn(_Body):
    token: str = Field(min_length=1, max_length=200)


class Opinion(_Body):
    good: bool
    reason: str = Field(default="", max_length=MOST_REASON)


@dataclass(frozen=True, kw_only=True)
class Begun:
    run_id: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that is over, or one that goes on: then there is no summary and no answer yet."""

    run_id: str
    running: bool
    """Also while it waits."""
    question: str
    waiting: int | None = None
    """While it waits for its turn to work: how many go before it."""
    summary: RunSummary | None = None
    answer: Answer | None = None
    feedback: Feedback | None = None


@dataclass(frozen=True, kw_only=True)
class RunList:
    runs: tuple[RunSummary, ...]
    """The newest first."""
    running: tuple[Begun, ...]
    """Those that are not over yet; only without filters."""
    next_before: str | None
    """To pass as `before` for older ones; None at the end."""


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    name: str
    description: str
    kind: str
    private: bool
    trust: str
    documents: int
    filters: Mapping[str, tuple[str, ...]]
    """Each with its values, the most frequent first; at most 50."""
    synced: float | None = None
    """When files were last brought in, in seconds since the epoch; None where that is not known."""
    failed: int = 0
    """Files that could not be read; only an owner sees them."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A document in the list of its source."""

    document: str
    source: str
    title: str
    current: bool
    labels: tuple[str, ...]
    status: str | None
    version: str | None
    metadata: Mapping[str, str]
    total_chars: int
    sections: int
    pages: int
    """0 where the format has none."""
    format: str
    warnings: tuple[str, ...]
    """What is to be said of how it was read."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    documents: tuple[Listed, ...]
    total: int
    """How many there are, of which `documents` may be a page."""
    hidden_superseded: int


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """What became of each file of a source."""

    source: str
    synced: float | None
    files: tuple[FileReport, ...]


@dataclass(frozen=True, kw_only=True)
class SignedIn:
    """Who asks, as the server sees it."""

    name: str
    groups: tuple[str, ...]
    owner: bool


@dataclass(frozen=True, kw_only=True)
class SourceList:
    sources: tuple[SourceInfo, ...]


# asking ------------------------------------------------------------------------------------------------------------

_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"description": "A chat, or a run, is not over yet.", "content": _PROBLEM}
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Answer,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "The answer; with `Accept: text/event-stream` the events, the last of which has it.",
    },
    **_CONFLICT,
}


@router.post("/ask", response_model=Answer, responses=_STREAM, summary="Ask, and wait for the answer")
async def ask(body: Ask, request: Request, caller: Caller) -> Response:
    questions = questions_of(request)
    running = await questions.start(body.asked(), principal=caller)
    headers = {"X-Run-Id": running.run_id}
    if _wants_events(request):
        return EventSourceResponse(_stream(running), headers=headers)
    answer = await _unless_gone(running, request)
    return JSONResponse(answer.to_dict(), headers=headers)


async def _unless_gone(running: Running, request: Request) -> Answer:
    """The answer; a question that nobody waits for any more is cancelled."""
    answered = asyncio.ensure_future(running.over())
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            running.cancel()
        return await answered
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post("/runs", status_code=202, responses=_CONFLICT, summary="Ask in the background")
async def start_run(body: Ask, request: Request, caller: Caller, response: Response) -> Begun:
    running = await questions_of(request).start(body.asked(), principal=caller)
    response.headers["X-Run-Id"] = running.run_id
    return Begun(run_id=running.run_id)


# runs --------------------------------------------------------------------------------------------------------------

RunId = Annotated[str, Path(pattern=_RUN_ID)]


@router.get("/runs", summary="Runs, the newest first")
async def list_runs(
    request: Request,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    before: Annotated[str | None, Query(pattern=_RUN_ID)] = None,
    status: Status | None = None,
    mode: Mode | None = None,
    model: Annotated[str | None, Query(max_length=200)] = None,
    stop_reason: StopReason | None = None,
    source: Annotated[str | None, Query(max_length=200)] = None,
    since: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    until: Annotated[float | None, Query(allow_inf_nan=False)] = None,
) -> RunList:
    questions = questions_of(request)
    found: tuple[RunSummary, ...] = ()
    kept = questions.store.path.exists()
    if before is not None and not (kept and await asyncio.to_thread(questions.store.has, before, principal=caller)):
        raise Refused(422, "before: no run has this id; pass the next_before of the page before, or leave it out")
    if kept:
        found = await asyncio.to_thread(
            questions.store.list,
            limit + 1,
            principal=caller,
            before=before,
            status=status,
            mode=mode,
            model=model,
            stop_reason=stop_reason,
            source=source,
            since=since,
            until=until,
        )
    plain = all(v is None for v in (before, status, mode, model, stop_reason, source, since, until))
    running = questions.all_running(principal=caller) if plain else ()
    return RunList(
        runs=await asyncio.to_thread(questions.shown, found[:limit], principal=caller),
        running=tuple(Begun(run_id=r.run_id) for r in running),
        next_before=found[limit - 1].run_id if len(found) > limit else None,
    )


@router.get("/runs/{run_id}", summary="One run")
async def get_run(run_id: RunId, request: Request, caller: Caller) -> Run:
    questions = questions_of(request)
    running = questions.running(run_id, principal=caller)
    if running is not None:
        return Run(run_id=run_id, running=True, question=str(running.events[0]["question"]), waiting=running.waiting)
    record = await questions.record(run_id, principal=caller)
    return Run(
        run_id=record.summary.run_id,
        running=False,
        question=record.answer.question,
        summary=record.summary,
        answer=record.answer,
        feedback=record.feedback,
    )


@router.get(
    "/runs/{run_id}/events",
    response_model=None,
    responses={
        200: {
            "content": {
                "text/event-stream": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            },
            "description": "The events after `Last-Event-ID`, until the run is over; as JSON those there are.",
        }
    },
    summary="What happens, or happened",
)
async def run_events(run_id: RunId, request: Request, caller: Caller) -> Response:
    questions = questions_of(request)
    after = _last_event_id(request)
    running = questions.running(run_id, principal=caller)
    if running is None:
        record = await questions.record(run_id, principal=caller)
        events = [*map(dict, record.events), {"type": "answer", "answer": record.answer.to_dict()}]
    else:
        events = list(running.events)
    if not _wants_events(request, unless="application/json"):
        return JSONResponse(events[after:])
    if running is not None:
        return EventSourceResponse(_stream(running, after, principal=caller))
    return EventSourceResponse(_replayed(events, after))


@router.post("/runs/{run_id}/cancel", status_code=202, summary="End a run early")
async def cancel_run(run_id: RunId, request: Request, caller: Caller) -> Begun:
    questions = questions_of(request)
    running = questions.running(run_id, principal=caller)
    if running is None:
        await questions.record(run_id, principal=caller)  # a run that is over is left as it is
    else:
        running.cancel()
    return Begun(run_id=run_id)


@router.post("/runs/{run_id}/feedback", responses=_CONFLICT, summary="Say what you think of a run")
async def give_feedback(run_id: RunId, body: Opinion, request: Request, caller: Caller) -> Feedback:
    questions = questions_of(request)
    if questions.running(run_id, principal=caller) is not None:
        raise Refused(409, "the run is not over yet; wait for its answer")
    record = await questions.record(run_id, principal=caller)
    full = record.summary.run_id
    await asyncio.to_thread(questions.store.give_feedback, full, good=body.good, reason=body.reason, principal=caller)
    given = (await questions.record(full, principal=caller)).feedback
    assert given is not None
    return given


# documents ---------------------------------------------------------------------------------------------------------


@router.get("/sources", summary="What can be searched")
async def list_sources(request: Request, caller: Caller) -> SourceList:
    corpus = questions_of(request).corpus

    def look() -> SourceList:
        return SourceList(sources=tuple(_source(corpus, s, principal=caller) for s in corpus.sources_for(caller)))

    return await asyncio.to_thread(look)


def _source(corpus: Corpus, source: SourceConfig, *, principal: Principal) -> SourceInfo:
    shown = corpus.list_documents(source.name, principal=principal, only_current=False, limit=1)
    return SourceInfo(
        name=source.name,
        description=source.description,
        kind=source.kind,
        private=source.private,
        trust=source.trust,
        documents=shown.total,
        filters={
            key: tuple(corpus.filter_values(source.name, key, principal=principal)[:50]) for key in source.filters
        },
        synced=None if source.live else corpus.synced,
        failed=corpus.failed(source.name) if principal.owner and not source.live else 0,
    )


SourceName = Annotated[str, Path(min_length=1, max_length=200)]


@router.get("/sources/{name}/documents", summary="The documents of a source")
async def list_documents(
    name: SourceName,
    request: Request,
    caller: Caller,
    start: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    all_versions: bool = False,
) -> Listing:
    corpus = _with_source(request, name, caller)

    def look() -> Listing:
        found = corpus.list_documents(name, principal=caller, only_current=not all_versions, start=start, limit=limit)
        return Listing(
            documents=tuple(_listed(corpus, info, principal=caller) for info in found.documents),
            total=found.total,
            hidden_superseded=found.hidden_superseded,
        )

    return await asyncio.to_thread(look)


def _listed(corpus: Corpus, info: DocumentInfo, *, principal: Principal) -> Listed:
    document = corpus.document(info.document, principal=principal)
    return Listed(
        document=info.document,
        source=info.source,
        title=info.title,
        current=info.current,
        labels=info.labels,
        status=info.metadata.get("status"),
        version=info.metadata.get("version"),
        metadata=info.metadata,
        total_chars=info.total_chars,
        sections=len(document.sections),
        pages=len(document.pages),
        format=document.stated_format,
        warnings=document.warnings,
    )


@router.get("/sources/{name}/report", summary="How the files of a source were read")
async def ingest_report(name: SourceName, request: Request, caller: Caller) -> Ingested:
    corpus = _with_source(request, name, caller)
    files = await asyncio.to_thread(corpus.ingested, name, principal=caller)
    return Ingested(source=name, synced=corpus.synced, files=files)


def _with_source(request: Request, name: str, principal: Principal) -> Corpus:
    corpus = questions_of(request).corpus
    if name not in {source.name for source in corpus.sources_for(principal)}:
        raise UnknownSource(f"no source is called {name!r}")
    return corpus


@router.get("/documents/{document:path}", summary="Read a page of a document")
async def read_document(
    document: Annotated[str, Path(max_length=1000)],
    request: Request,
    caller: Caller,
    section: Annotated[str | None, Query(max_length=500)] = None,
    start: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int | None, Query(ge=1, le=100_000)] = None,
) -> Passage:
    corpus = questions_of(request).corpus
    if limit is None:
        return await asyncio.to_thread(read_page, corpus, document, principal=caller, section=section, start=start)
    return await asyncio.to_thread(corpus.read, document, principal=caller, section=section, start=start, limit=limit)


@router.post("/search", summary="Search, exactly as a model would")
async def search(body: Search, request: Request, caller: Caller) -> SearchResult:
    corpus = questions_of(request).corpus
    return await asyncio.to_thread(
        search_source,
        corpus,
        body.source,
        body.query,
        principal=caller,
        filters=body.filters,
        only_current=not body.all_versions,
        k=body.k,
    )


@router.get(
    "/pages/{document:path}",
    response_class=Response,
    responses={200: {"content": {"image/png": {"schema": {"type": "string", "format": "binary"}}}}},
    summary="A page of a PDF as it looks",
)
async def page_picture(
    document: Annotated[str, Path(max_length=1000)],
    request: Request,
    caller: Caller,
    page: Annotated[int, Query(ge=1, le=100_000)] = 1,
) -> Response:
    questions = questions_of(request)
    found = await asyncio.to_thread(questions.corpus.original, document, principal=caller)
    if found is None or not found[1].pages:
        raise Refused(404, NOT_FOUND)
    picture = await questions.pages.picture(found[0], page)
    return Response(picture, media_type="image/png", headers={"Cache-Control": "private, max-age=300"})


@router.post("/verify", responses=_CONFLICT, summary="Check an answer against what was read")
async def verify(body: Verify, request: Request, caller: Caller) -> CheckedAnswer:
    questions = questions_of(request)
    draft = Draft(claims=tuple(body.claims), missing=tuple(body.missing))
    if too_big := oversize(draft):
        raise Refused(422, "; ".join(too_big))
    corpus = questions.corpus
    record = None
    if body.run_id is not None:
        if questions.running(body.run_id, principal=caller) is not None:
            raise Refused(409, "the run is not over yet; wait for its answer")
        record = await questions.record(body.run_id, principal=caller)

    def look() -> CheckedAnswer:
        view = corpus.view(principal=caller)
        places = [(p.document, p.section, p.start, p.end) for p in body.read]
        evidence = joined(
            evidence_of_places(corpus, places, principal=caller), evidence_of_run(record, corpus, principal=caller)
        )
        return check_answer(draft, evidence, view, question=body.question)

    return await asyncio.to_thread(look)


# sessions of the page ----------------------------------------------------------------------------------------------


@router.get("/session", summary="Who am I?")
async def who(caller: Caller) -> SignedIn:
    return SignedIn(name=caller.name, groups=tuple(sorted(caller.groups)), owner=caller.owner)


@router.post("/session", summary="Begin a session of the page with a token")
async def sign_in(body: SignIn, request: Request, response: Response) -> SignedIn:
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    token = gatekeeper.sign_in(body.token, client=request.client.host if request.client else "")
    response.set_cookie(
        COOKIE,
        gatekeeper.sessions.begin(token),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=bool(request.state.secure),
        path="/",
    )
    return SignedIn(name=token.name, groups=tuple(sorted(token.groups)), owner=token.owner)


@router.delete("/session", status_code=204, summary="End the session")
async def sign_out(request: Request, response: Response) -> None:
    gatekeeper: Gatekeeper = request.app.state.gatekeeper
    session = request.cookies.get(COOKIE)
    if session is not None:
        gatekeeper.sessions.end(session)
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=bool(request.state.secure))


# streams -----------------------------------------------------------------------------------------------------------


def _wants_events(request: Request, *, unless: str | None = None) -> bool:
    """True when the client accepts a stream; without `unless` only one that names it."""
    accept = request.headers.get("accept", "").lower()
    return "text/event-stream" in accept if unless is None else unless not in accept


def _last_event_id(request: Request) -> int:
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not given.isascii() or not given.isdigit() or len(given) > 9:
        raise Refused(400, f"Last-Event-ID is {given[:40]!r}; send the number of the last event that came")
    return int(given)


async def _stream(running: Running, after: int = 0, *, principal: Principal | None = None) -> AsyncGenerator[bytes]:
    """The events as they come, with a sign of life where none does."""
    events = aiter(running.follow(after, principal=principal))
    upcoming: asyncio.Future[tuple[int, dict[str, Any]]] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait((upcoming,), timeout=PING_SECONDS)
            if not done:
                yield KEEPALIVE_COMMENT
                continue
            try:
                number, event = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = None
            yield _event(number, event)
    finally:
        if upcoming is not None:
            upcoming.cancel()


async def _replayed(events: list[dict[str, Any]], after: int) -> AsyncIterator[bytes]:
    for number, event in enumerate(events, start=1):
        if number > after:
            yield _event(number, event)


def _event(number: int, event: Mapping[str, Any]) -> bytes:
    return format_sse_event(data_str=json.dumps(event), event=str(event["type"]), id=str(number))
