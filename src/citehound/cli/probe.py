"""Tries a model with a few tiny requests and says what it can do; spends no more than the meter it is given allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from ..budget import FREE, Meter
from ..context import request_tokens
from ..drafts import Draft
from ..models import OpenedModel, Structured
from ..prompts import FINAL_ANSWER, answer_form
from ..text_drafts import read_text
from ..wire import RequestFailed, Wire, one_line

TURN_TOKENS = 800
"""Output cap of the request that asks for calls; a model may think first."""
DRAFT_TOKENS = 1500
MOST_REQUESTS = 5
WINDOW_SECONDS = 5.0
PAUSE_SECONDS = 1.0
"""Longest pause before a request is sent again."""

_LOOK_UP = ToolDefinition(
    name="look_up",
    description="Looks up one word in the glossary.",
    parameters_json_schema={
        "type": "object",
        "properties": {"word": {"type": "string", "description": "The word to look up."}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_SYSTEM = "This is a test of a connection. Do exactly what is asked, and nothing more."
_ASK_CALLS = (
    'Call the tool look_up twice in one and the same reply: once with the word "alpha" and once with the word "beta". '
    "Write nothing else."
)
_TOLD = {"alpha": "Alpha reports incidents within 24 hours.", "beta": "Beta reports incidents within 72 hours."}
_ASK_DRAFT = (
    "The document glossary/alpha says: Alpha reports incidents within 24 hours. Now hand in the final answer with one "
    "claim, that Alpha reports incidents within 24 hours, and quote the document for it."
)
_ABOUT = "Hand in the final answer: every claim with its quotes, and everything that was not found."
_WINDOW_FIELDS = ("max_model_len", "context_window", "context_length", "max_context_length", "n_ctx", "n_ctx_train")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What was found out. None: it was not tried, as something before it failed."""

    failed: str | None = None
    """Why a request got no answer at all, in one line; nothing was tried after it."""
    kind: str | None = None
    """The kind of fault behind it."""
    calls: int | None = None
    """Calls of a tool in a reply that should have two."""
    structured: Structured | None = None
    """The form in which it handed in an answer; None when no form worked, or none was tried."""
    wrong: str | None = None
    """What was wrong with the form that was asked for first."""
    streams: bool | None = None
    requests: int = 0


@dataclass(kw_only=True)
class _Trial:
    opened: OpenedModel
    wire: Wire
    requests: int = 0

    async def send(
        self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters, *, most: int
    ) -> ModelResponse:
        settings = {"parallel_tool_calls": True, **self.opened.settings, "max_tokens": most}
        if not parameters.function_tools:
            settings.pop("parallel_tool_calls")
        self.requests += 1
        size = request_tokens(messages, parameters) + 200
        return await self.wire.request(messages, settings, parameters, input_tokens=size)


async def try_model(opened: OpenedModel, meter: Meter) -> Tried:
    """Asks for two calls at once, then for an answer, in the form that is configured and, if need be, as text.

    Raises nothing but cancellation. At most `MOST_REQUESTS` requests, not counting those sent again after a fault.
    """
    wire = Wire(
        model=opened.model,
        price=opened.price or FREE,
        meter=meter,
        name=opened.name,
        stream=opened.stream,
        agent="doctor",
        sleep=_briefly,
    )
    trial = _Trial(opened=opened, wire=wire)
    try:
        async with opened.model:
            return await _tried(trial)
    except RequestFailed as problem:
        return Tried(failed=one_line(problem), kind=_kind(problem), requests=trial.requests)
    except Exception as problem:
        return Tried(failed=one_line(problem), kind="unknown", requests=trial.requests)


def _kind(problem: RequestFailed) -> str:
    return problem.reason if problem.fault is None else problem.fault.kind


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(min(seconds, PAUSE_SECONDS))


async def _tried(trial: _Trial) -> Tried:
    opened = trial.opened
    tools = [_LOOK_UP] if opened.tools else []
    asked = ModelRequest(parts=[UserPromptPart(_ASK_CALLS if tools else "Say the word ready.")], instructions=_SYSTEM)
    parameters = ModelRequestParameters(function_tools=tools)
    try:
        reply = await trial.send([asked], parameters, most=TURN_TOKENS)
    except RequestFailed as problem:
        if not trial.wire.stream or problem.fault is None or problem.fault.kind in _NOT_THE_STREAM:
            raise
        trial.wire.stream = False
        reply = await trial.send([asked], parameters, most=TURN_TOKENS)
    calls = [p for p in reply.parts if isinstance(p, ToolCallPart) and _good(p)] if tools else []
    history: list[ModelMessage] = [asked, reply] if _says_something(reply) else []
    found = Tried(calls=len(calls) if tools else None, streams=trial.wire.stream if opened.stream else None)
    try:
        structured, wrong = await _drafted(trial, history, calls, form=opened.structured, tools=tools if calls else [])
        if structured is None and opened.structured != "text":
            structured, _ = await _drafted(trial, [], [], form="text", tools=[])
    except RequestFailed as problem:
        return replace(found, failed=one_line(problem), kind=_kind(problem), requests=trial.requests)
    return replace(found, structured=structured, wrong=wrong, requests=trial.requests)


_NOT_THE_STREAM = ("auth", "connection", "context", "spend_limit", "rate_limit", "timeout")


async def _drafted(
    trial: _Trial,
    history: Sequence[ModelMessage],
    calls: Sequence[ToolCallPart],
    *,
    form: Structured,
    tools: list[ToolDefinition],
) -> tuple[Structured | None, str | None]:
    """The form if an answer came in it; else None and what was wrong."""
    results = [ToolReturnPart(c.tool_name, _told(c), tool_call_id=c.tool_call_id) for c in calls]
    asked = ModelRequest(
        parts=[*results, UserPromptPart(_ASK_DRAFT)], instructions=f"{_SYSTEM}\n\n{answer_form(form)}".strip()
    )
    schema = Draft.model_json_schema()
    parameters = ModelRequestParameters(function_tools=tools)
    if form == "tool":
        answer = ToolDefinition(name=FINAL_ANSWER, description=_ABOUT, parameters_json_schema=schema, kind="output")
        parameters = replace(parameters, output_mode="tool", output_tools=[answer], allow_text_output=False)
    elif form == "native":
        shape = OutputObjectDefinition(json_schema=schema, name=FINAL_ANSWER, description=_ABOUT)
        parameters = replace(parameters, output_mode="native", output_object=shape)
    try:
        reply = await trial.send([*history, asked], parameters, most=DRAFT_TOKENS)
    except RequestFailed as problem:
        if problem.fault is None or problem.fault.kind not in ("rejected", "malformed", "server", "refused"):
            raise
        return None, one_line(problem)
    return _read(reply, form)


def _read(reply: ModelResponse, form: Structured) -> tuple[Structured | None, str | None]:
    if reply.finish_reason == "length":
        return None, f"the answer was cut at {DRAFT_TOKENS} tokens"
    text = "".join(p.content for p in reply.parts if isinstance(p, TextPart)).strip()
    handed = next((p for p in reply.parts if isinstance(p, ToolCallPart) and p.tool_name == FINAL_ANSWER), None)
    try:
        if handed is not None:
            draft = Draft.model_validate(handed.args_as_dict())
        elif form == "native":
            draft = Draft.model_validate_json(text)
        else:
            told = read_text(text)
            if form == "tool" and not told.cites:
                return None, "it called no output tool"
            if told.faults:
                return None, f"the text form was not kept: {told.faults[0]}"
            if form == "tool" and told.draft.claims:
                return "text", "it wrote text instead"
            draft = told.draft
    except (ValidationError, ValueError) as problem:
        first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        return None, one_line(f"the answer does not fit the schema: {first}")
    return (form, None) if draft.claims else (None, "the answer has no claim")


def _good(call: ToolCallPart) -> bool:
    """True for a call of the tool there is, with the argument it takes."""
    try:
        arguments: dict[str, Any] = call.args_as_dict()
    except (ValueError, AssertionError):
        return False
    return call.tool_name == _LOOK_UP.name and isinstance(arguments.get("word"), str)


def _told(call: ToolCallPart) -> str:
    return _TOLD.get(str(call.args_as_dict().get("word")).casefold(), "no such word")


def _says_something(reply: ModelResponse) -> bool:
    """True for a reply that can stand in a history: whole calls, or text."""
    calls = [p for p in reply.parts if isinstance(p, ToolCallPart)]
    if calls:
        return all(_good(c) for c in calls)
    return any(isinstance(p, TextPart) and p.content.strip() for p in reply.parts)


async def told_window(opened: OpenedModel) -> int | None:
    """The context window that the server itself tells, where its list of models has one; None when it does not."""
    client: Any = getattr(opened.model, "client", None)
    name = opened.model.model_name
    try:
        async with asyncio.timeout(WINDOW_SECONDS):
            async for model in client.models.list():
                if getattr(model, "id", None) == name:
                    return _window_in({**getattr(model, "__dict__", {}), **(model.model_extra or {})})
    except Exception:
        return None
    return None


def _window_in(fields: dict[str, Any]) -> int | None:
    for at in (fields, fields.get("meta")):
        if not isinstance(at, dict):
            continue
        for key in _WINDOW_FIELDS:
            value = cast("dict[str, Any]", at).get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
