"""An Anthropic model that also takes replies without usage, as gateways send them: nothing reported reads as zero.

Zero tokens mean "not measured" to whoever pays: a reply that says something has cost something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self, cast

from anthropic.types.beta import BetaMessage, BetaMessageDeltaUsage, BetaUsage
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicStreamedResponse


class LenientAnthropicModel(AnthropicModel):
    """`AnthropicModel`, but a missing usage is no error."""

    # Versions of the library differ in what else these two take; it is handed on.

    def _process_response(self, response: BetaMessage, *rest: Any, **named: Any) -> ModelResponse:
        if cast(object, response.usage) is None:
            response.usage = BetaUsage(input_tokens=0, output_tokens=0)
        return super()._process_response(response, *rest, **named)

    async def _process_streamed_response(self, response: Any, *rest: Any, **named: Any) -> AnthropicStreamedResponse:
        return await super()._process_streamed_response(cast(Any, _WithUsage(response)), *rest, **named)


class _WithUsage:
    """A stream of events whose missing usage is filled in with zeros; all else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._events: AsyncIterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._events is None:
            self._events = aiter(self._stream)
        return _filled(await anext(self._events))

    async def peek(self) -> Any:
        return _filled(await self._stream.peek())


def _filled(event: Any) -> Any:
    message = getattr(event, "message", None)
    if message is not None and getattr(message, "usage", 0) is None:
        message.usage = BetaUsage(input_tokens=0, output_tokens=0)
    if getattr(event, "type", "") == "message_delta" and getattr(event, "usage", 0) is None:
        event.usage = BetaMessageDeltaUsage(output_tokens=0)
    return event
