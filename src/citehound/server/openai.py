"""Citehound as a model behind OpenAI's protocol: `/v1/models` and `/v1/chat/completions`, for front-ends that speak it.

What would change the form of an answer and is not there (several choices, tools, JSON, images, log probabilities) is
refused; what only tunes how a model samples is ignored, and so are system messages: Citehound has instructions of its
own. Earlier messages are the history of a chat. An answer of ours among them names its run, so its citations are taken
from the record and looked at again.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from ..access import Principal
from ..answers import Answer, Citation, Mode
from ..assistant import MAX_QUESTION, MODES
from ..chat import Past
from ..corpus import Corpus
from ..documents import Passage
from ..errors import CitehoundError, UnknownRun
from ..models import OFFLINE
from ..quotes import find_quote, fold
from ..rendering import event_line, markdown_text, render_markdown
from ..security import redact, visible
from ..toolbox import ToolRefused
from .identity import Caller
from .problems import Problem, Refused, problem, status_of
from .questions import OWN_MODEL, Asked, Questions, Running

PING_SECONDS = 15.0
"""A stream without news says so this often, so that nothing in between takes it for dead."""
MOST_MESSAGES = 1000
MOST_TURNS = 30
"""Earlier turns that are looked at."""
_MODES = {f"{OWN_MODEL}-{mode}": mode for mode in MODES if mode != "auto"}
_RUN = re.compile(r"\brun ([0-9a-z]{13})\*$")
_LENGTH = ("steps", "dollars", "seconds", "context", "truncated", "no_progress")
"""Stop reasons of an answer that is cut short."""


class _Refusal(CitehoundError):
    """A request that OpenAI's protocol allows and this server does not."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.code = code
        self.status = status


class _Errors(APIRoute):
    """Routes whose errors have the form that OpenAI's clients know."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"][1:])
                return _error(400, f"{place or 'the body'}: {first['msg']}", param=place or None)
            except _Refusal as error:
                return _error(error.status, str(error), param=error.param, code=error.code)
            except ToolRefused as error:
                return _error(400, str(error))
            except CitehoundError as error:
                status = status_of(error)
                wait = error.retry_after if isinstance(error, Refused) else None
                return _error(400 if status == 422 else status, str(error), retry_after=wait)

        return answered


def _error(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    retry_after: float | None = None,
) -> JSONResponse:
    plain = problem(status, message, retry_after=retry_after)
    kept = {name: plain.headers[name] for name in ("retry-after", "www-authenticate") if name in plain.headers}
    return JSONResponse({"error": _error_body(status, message, param=param, code=code)}, status, headers=kept)


def _error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The object that OpenAI's clients look for under `error`."""
    kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(status)
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    code = code or {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
    return {"message": " ".join(redact(visible(message)).split())[:600], "type": kind, "param": param, "code": code}


_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 500, 502, 503)
}
router = APIRouter(prefix="/v1", route_class=_Errors, responses=_ERRORS)


# what comes in ----------------------------------------------------------------------------------------------------


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Part(_Body):
    type: str = Field(max_length=100)
    text: str | None = Field(default=None, max_length=400_000)


class Message(_Body):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None

    def text(self) -> str:
        """Raises _Refusal for a part that is no text."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content or []
        for part in parts:
            if part.type not in ("text", "input_text", "output_text", "refusal"):
                raise _Refusal(
                    f"content of type {part.type[:40]!r} is not read; send text only",
                    param="messages",
                    code="unsupported_content",
                )
        return "\n".join(part.text or "" for part in parts)


class StreamOptions(_Body):
    include_usage: StrictBool = False


class Extension(BaseModel):
    """What Citehound takes beyond OpenAI's fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Mode | None = Field(default=None, description="Goes before the mode that the model's name says.")
    max_steps: int | None = Field(default=None, ge=1)
    max_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    sources: list[str] | None = Field(default=None, min_length=1, max_length=100)


class Completion(_Body):
    """A request as OpenAI's clients send it. Fields that are not listed are ignored."""

    model: str = Field(min_length=1, max_length=200)
    messages: list[Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    citehound: Extension = Extension()


def _check(body: Completion) -> None:
    """Raises _Refusal for what would change the form of the answer."""
    kind = (body.response_format or {}).get("type", "text")
    unsupported = {
        "n": body.n not in (None, 1),
        "tools": bool(body.tools) and body.tool_choice != "none",
        "functions": bool(body.functions),
        "response_format": kind != "text",
        "logprobs": bool(body.logprobs),
        "modalities": any(m != "text" for m in body.modalities or ()),
        "audio": bool(body.audio),
        "stop": bool(body.stop),
    }
    for name, wrong in unsupported.items():
        if wrong:
            raise _Refusal(f"{name} is not supported; leave it out", param=name, code="unsupported_parameter")
    for message in body.messages:
        if message.role in ("tool", "function"):
            said = f"messages of the role {message.role!r} are not read; the tools are Citehound's own"
            raise _Refusal(said, param="messages", code="unsupported_content")


# models -----------------------------------------------------------------------------------------------------------


def _model_names(questions: Questions) -> tuple[str, ...]:
    return tuple(dict.fromkeys((OWN_MODEL, *_MODES, *questions.config.server.models)))


def _model_json(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "citehound"}


@router.get("/models", summary="The models, as OpenAI lists them")
async def list_models(request: Request, caller: Caller) -> dict[str, Any]:
    questions: Questions = request.app.state.questions
    return {"object": "list", "data": [_model_json(name) for name in _model_names(questions)]}


@router.get("/models/{model:path}", summary="One model")
async def get_model(model: Annotated[str, Path(max_length=200)], request: Request, caller: Caller) -> dict[str, Any]:
    if model not in _model_names(request.app.state.questions):
        raise _no_model(model)
    return _model_json(model)


def _no_model(name: str) -> _Refusal:
    said = f"no model {name[:80]!r}; GET /v1/models lists those that there are"
    return _Refusal(said, param="model", code="model_not_found", status=404)


# completions ------------------------------------------------------------------------------------------------------


@router.post(
    "/chat/completions",
    response_model=None,
    responses={
        200: {
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/event-stream": {"schema": {"type": "string"}},
            },
            "description": "A completion, or with `stream` its chunks; `citehound` in it is the Answer.",
        }
    },
    summary="Ask, as OpenAI's clients do",
)
async def complete(body: Completion, request: Request, caller: Caller) -> Response:
    questions: Questions = request.app.state.questions
    _check(body)
    asked = await asyncio.to_thread(_asked, body, questions, caller)
    running = await questions.start(asked, principal=caller)
    headers = {"X-Run-Id": running.run_id}
    created = int(time.time())
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        stream = _stream(running, model=body.model, created=created, include_usage=usage)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
    answer = await _awaited(running, request)
    if answer.status == "failed":
        raise _Refusal(_failed(answer), status=502)
    return JSONResponse(_completion(answer, model=body.model, created=created), headers=headers)


def _asked(body: Completion, questions: Questions, principal: Principal) -> Asked:
    """The question, with the conversation before it. Reads records and documents: for a thread."""
    messages = [(m.role, visible(m.text()).strip()) for m in body.messages if m.role in ("user", "assistant")]
    if not messages or messages[-1][0] != "user" or not messages[-1][1]:
        raise _Refusal("the last message must be the user's, with a question in it", param="messages")
    question = messages[-1][1]
    if len(question) > MAX_QUESTION:
        said = f"the question has {len(question)} characters, at most {MAX_QUESTION}: shorten the last message"
        raise _Refusal(said, param="messages", code="string_above_max_length")
    own = body.model == OWN_MODEL or body.model in _MODES
    offered = (*_model_names(questions), questions.config.model.name, OFFLINE)
    if body.model not in offered and not (principal.owner and ":" in body.model):
        raise _no_model(body.model)
    more = body.citehound
    model = None if own else body.model
    sources = None if more.sources is None else tuple(more.sources)
    asked = Asked(
        question=question,
        mode=more.mode or _MODES.get(body.model, "auto"),
        model=model,
        max_steps=more.max_steps,
        max_dollars=more.max_dollars,
        max_seconds=more.max_seconds,
        sources=sources,
    )
    earlier = _turns(messages[:-1])
    if not earlier:
        return asked
    chat = questions.assistant(principal=principal, model=model, sources=sources).chat()
    for question_before, said in earlier[-MOST_TURNS:]:
        past, read = _taken_up(question_before, said, questions, principal)
        chat.take_up(past, read)
    return replace(asked, chat=chat)


def _turns(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Question and answer of each earlier turn; what was asked and not answered is left out."""
    turns: list[tuple[str, str]] = []
    question = ""
    for role, text in messages:
        if role == "user":
            question = text
        elif question and text:
            turns.append((question[:MAX_QUESTION], text))
            question = ""
    return turns


def _taken_up(question: str, said: str, questions: Questions, principal: Principal) -> tuple[Past, list[Passage]]:
    """An earlier turn, from its record where the text names a run of this principal; else as it is told."""
    found = _RUN.search(said.rstrip())
    if found is not None:
        try:
            record = questions.look_up(found.group(1), principal=principal)
        except UnknownRun:
            record = None
        if record is not None and record.summary.run_id == found.group(1):
            return _from_record(record.answer, questions.corpus, principal)
    return Past(number=0, asked=question, question=question, status="direct", text=said), []


def _from_record(answer: Answer, corpus: Corpus, principal: Principal) -> tuple[Past, list[Passage]]:
    """The turn without the claims whose quotes no longer stand, and what their quotes show as read."""
    read: list[Passage] = []
    fallen: set[int] = set()
    for number, claim in enumerate(answer.claims, start=1):
        for citation in claim.citations:
            if citation.status != "verified" or not citation.quote.strip():
                continue
            passages = _still(citation, corpus, principal)
            read += passages
            if not passages:
                fallen.add(number)
        if fallen & set(claim.premises):
            fallen.add(number)
    text = "" if answer.claims or answer.clarification else answer.text
    if fallen:
        text = f"{len(fallen)} claims are left out: their documents have changed or are gone"
    past = Past(
        number=0,
        asked=answer.question,
        question=answer.rewritten or answer.question,
        status=answer.status,
        claims=tuple(c for number, c in enumerate(answer.claims, start=1) if number not in fallen),
        missing=tuple(gap.what for gap in answer.missing),
        text=text,
        clarification=answer.clarification,
        run_id=answer.run_id,
    )
    return past, read


def _still(citation: Citation, corpus: Corpus, principal: Principal) -> list[Passage]:
    """The places of a quote, with the sentence around them, as the document has them now; none where it fell."""
    try:
        document = corpus.document(citation.document, principal=principal)
        info = corpus.info(document.id, principal=principal)
    except CitehoundError:
        return []
    place = find_quote(
        document, fold(document.text), citation.quote, was_read=lambda span: span.start == citation.start
    )
    if place is None:
        return []
    spans = [(span.start, span.end) for span in place.spans]
    if citation.sentence:
        around = document.text.find(citation.sentence, max(0, place.start - len(citation.sentence)))
        if 0 <= around <= place.start and place.end <= around + len(citation.sentence):
            spans = [(around, around + len(citation.sentence))]
    return [
        Passage(
            document=document.id,
            section=citation.section,
            title=document.title,
            text=document.text[start:end],
            start=start,
            end=end,
            total_chars=len(document.text),
            current=info.current,
            metadata=info.metadata,
            labels=info.labels,
        )
        for start, end in spans
    ]


# what goes out ----------------------------------------------------------------------------------------------------


def answer_markdown(answer: Answer) -> str:
    """An answer for a front-end that shows Markdown: its state, claims with references, and the run it is of."""
    if answer.claims or answer.missing:
        body = render_markdown(answer.claims, answer.missing, answer.rows)
    else:
        body = "\n".join(markdown_text(line) for line in answer.text.splitlines())
    head = {
        "partial": "**Partial answer:** not all of it is verified or found; the marks say what.",
        "not_found": "**Not found** in the documents that were searched.",
    }.get(answer.status, "")
    if head and answer.stop_reason != "answered":
        head += f" The search ended early: {answer.stop_reason}."
    notes = "\n".join(f"- note: {markdown_text(warning)}" for warning in answer.warnings)
    end = f"*{answer.status.replace('_', ' ')} · run {answer.run_id}*"
    return "\n\n".join(part for part in (head, body, notes, end) if part)


def _finish(answer: Answer) -> str:
    if answer.stop_reason == "refused":
        return "content_filter"
    return "length" if answer.stop_reason in _LENGTH else "stop"


def _usage(answer: Answer) -> dict[str, Any]:
    used = answer.usage
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens},
    }


def _failed(answer: Answer) -> str:
    why = f": {answer.warnings[0]}" if answer.warnings else ""
    return f"there is no answer (stopped: {answer.stop_reason}{why})"


def _completion(answer: Answer, *, model: str, created: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer_markdown(answer), "refusal": None}
    return {
        "id": f"chatcmpl-{answer.run_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}],
        "usage": _usage(answer),
        "citehound": answer.to_dict(),
    }


async def _awaited(running: Running, request: Request) -> Answer:
    """The answer; a question that nobody waits for any more is cancelled."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answered = asyncio.ensure_future(running.over())
    left = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((answered, left), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            running.cancel()
        return await answered
    finally:
        left.cancel()


async def _stream(running: Running, *, model: str, created: int, include_usage: bool) -> AsyncGenerator[bytes]:
    """The chunks: steps as `reasoning_content` while it is searched, then the answer, line by line.

    A client that goes away ends the question, which is recorded as a partial.
    """

    def chunk(delta: dict[str, Any] | None, *, finish: str | None = None, more: dict[str, Any] | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        return _data(
            {
                "id": f"chatcmpl-{running.run_id}",
                "object": "chat.completion.chunk",
                "created": created,
                "model": model,
                "choices": choices,
                **({"usage": None} if include_usage else {}),
                **(more or {}),
            }
        )

    try:
        yield chunk({"role": "assistant", "content": ""})
        async for line in _lines(running):
            yield b": waiting\n\n" if line is None else chunk({"reasoning_content": f"{line}\n"})
        try:
            answer = await running.over()
            if answer.status == "failed":
                raise _Refusal(_failed(answer), status=502)
        except CitehoundError as error:
            yield _data({"error": _error_body(502, str(error))})
            return
        for piece in answer_markdown(answer).splitlines(keepends=True):
            yield chunk({"content": piece})
        yield chunk({}, finish=_finish(answer), more={"citehound": answer.to_dict()})
        if include_usage:
            yield chunk(None, more={"usage": _usage(answer)})
        yield b"data: [DONE]\n\n"
    finally:
        if not running.done:
            running.cancel()


async def _lines(running: Running) -> AsyncGenerator[str | None]:
    """What happens, a line each; None where nothing has for a while."""
    events = aiter(running.follow())
    upcoming = asyncio.ensure_future(anext(events, None))
    try:
        while True:
            done, _ = await asyncio.wait((upcoming,), timeout=PING_SECONDS)
            if not done:
                yield None
                continue
            found = upcoming.result()
            if found is None:
                return
            upcoming = asyncio.ensure_future(anext(events, None))
            line = event_line(found[1])
            if line is not None:
                yield markdown_text(redact(visible(line)))  # front-ends show it as Markdown, too
    finally:
        upcoming.cancel()


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
