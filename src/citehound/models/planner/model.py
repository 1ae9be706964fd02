"""The offline planner as a pydantic-ai `Model`: reads the messages, gives tool calls or a draft; keeps no state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_ai._run_context import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from ...index import Lexicon
from .draft import draft_of
from .plan import Planned, next_calls
from .quarantined import is_quarantined, reply
from .state import Names, read_state

MODEL_NAME = "offline"
_CHARS_PER_TOKEN = 4


class OfflineModel(Model):
    """A model without any LLM: it searches, follows leads and quotes. Safe under concurrency."""

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__(
            profile=ModelProfile(
                supports_json_schema_output=True, supports_json_object_output=True, supports_tools=True
            )
        )
        self._lexicon = lexicon
        self._names = Names.of(lexicon)

    @property
    def model_name(self) -> str:
        return MODEL_NAME

    @property
    def system(self) -> str:
        return "citehound"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        model_settings, model_request_parameters = self.prepare_request(model_settings, model_request_parameters)
        # It thinks with the processor, and a server has other questions on this loop.
        return await asyncio.to_thread(self._respond, messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        model_settings, model_request_parameters = self.prepare_request(model_settings, model_request_parameters)
        response = await asyncio.to_thread(self._respond, messages, model_settings, model_request_parameters)
        yield _Whole(model_request_parameters=model_request_parameters, response=response)

    def _respond(
        self,
        messages: Sequence[ModelMessage],
        model_settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        if is_quarantined(parameters):
            calls = reply(messages, parameters, lexicon=self._lexicon)
            made: list[ModelResponsePart] = [
                ToolCallPart(name, arguments, tool_call_id=f"offline_{n}") for n, (name, arguments) in enumerate(calls)
            ]
            return ModelResponse(parts=made, model_name=MODEL_NAME, usage=_usage(messages, made))
        choice: object = dict(model_settings or {}).get("tool_choice")
        tools = [] if choice == "none" else list(parameters.function_tools)
        state = read_state(messages, parameters.function_tools, lexicon=self._lexicon, names=self._names)
        planned = next_calls(state, lexicon=self._lexicon, names=self._names) if tools else []
        parts: list[ModelResponsePart] = [
            ToolCallPart(call.tool, dict(call.arguments), tool_call_id=f"offline_{state.steps + 1}_{n}")
            for n, call in enumerate(planned, start=1)
        ]
        if not parts:
            draft = draft_of(state, lexicon=self._lexicon, names=self._names)
            if tools and state.steps_left is not None:
                unlimited = replace(state, steps_left=None, drafts=0)
                draft = cut_short(draft, next_calls(unlimited, lexicon=self._lexicon, names=self._names))
            if parameters.output_tools:
                name = parameters.output_tools[0].name
                parts = [ToolCallPart(name, draft, tool_call_id=f"offline_{state.steps + 1}_draft")]
            else:
                parts = [TextPart(json.dumps(draft, ensure_ascii=False))]
        return ModelResponse(parts=parts, model_name=MODEL_NAME, usage=_usage(messages, parts))


def cut_short(draft: dict[str, Any], wanted: Sequence[Planned]) -> dict[str, Any]:
    """The draft, with a gap for what would have been searched and read next if steps were left."""
    if not wanted:
        return draft
    gap = {"what": "what else the texts point to", "reason": f"the step limit left {len(wanted)} calls unmade"}
    return {**draft, "missing": [*draft["missing"], gap]}


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, default=str, ensure_ascii=False))


def _usage(messages: Sequence[ModelMessage], parts: Sequence[ModelResponsePart]) -> RequestUsage:
    """An estimate from the text's length, so that budgets and reports have something to count."""
    chars = 0
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions:
            chars += len(message.instructions)
        for part in message.parts:
            chars += _size(getattr(part, "content", None) or getattr(part, "args", None) or "")
    given = sum(_size(getattr(p, "content", None) or getattr(p, "args", None) or "") for p in parts)
    return RequestUsage(input_tokens=max(1, chars // _CHARS_PER_TOKEN), output_tokens=max(1, given // _CHARS_PER_TOKEN))


@dataclass
class _Whole(StreamedResponse):
    """A response that is complete before its stream begins."""

    response: ModelResponse = field(default_factory=lambda: ModelResponse(parts=[]))
    created: datetime = field(default_factory=lambda: datetime.now(tz=UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        self._usage = self.response.usage
        for index, part in enumerate(self.response.parts):
            if isinstance(part, ToolCallPart):
                yield self._parts_manager.handle_tool_call_part(
                    vendor_part_id=index,
                    tool_name=part.tool_name,
                    args=part.args_as_dict(),
                    tool_call_id=part.tool_call_id,
                )
            elif isinstance(part, TextPart):
                for event in self._parts_manager.handle_text_delta(vendor_part_id=index, content=part.content):
                    yield event

    async def close_stream(self) -> None:
        return None

    @property
    def model_name(self) -> str:
        return MODEL_NAME

    @property
    def provider_name(self) -> str | None:
        return "citehound"

    @property
    def provider_url(self) -> str | None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self.created
