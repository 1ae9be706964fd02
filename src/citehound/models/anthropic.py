"""An Anthropic model that also takes replies without usage, as gateways send them: nothing reported reads as zero.

Zero tokens mean "not measured" to whoever pays: a reply that says something has cost something.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Self, cast

from anthropic.types.beta import BetaMessage, BetaMessageDeltaUsage, BetaUsage
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings, AnthropicStreamedResponse


class LenientAnthropicModel(AnthropicModel):
    """`AnthropicModel`, but a missing usage is no error."""

    def _process_response(
        self,
        response: BetaMessage,
        model_request_parameters: ModelRequestParameters,
        model_settings: AnthropicModelSettings,
        history_fetched_pages: Sequence[tuple[str, str]] = (),
        *,
        code_execution_in_open_turn: bool = False,
    ) -> ModelResponse:
        if cast(object, response.usage) is None:
            response.usage = BetaUsage(input_tokens=0, output_tokens=0)
        return super()._process_response(
            response,
            model_request_parameters,
            model_settings,
            history_fetched_pages,
            code_execution_in_open_turn=code_execution_in_open_turn,
        )

    async def _process_streamed_response(
        self,
        response: Any,
        model_request_parameters: ModelRequestParameters,
        model_settings: AnthropicModelSettings,
        history_fetched_pages: Sequence[tuple[str, str]] = (),
        *,
        code_execution_in_open_turn: bool = False,
    ) -> AnthropicStreamedResponse:
        return await super()._process_streamed_response(
            cast(Any, _WithUsage(response)),
            model_request_parameters,
            model_settings,
            history_fetched_pages,
            code_execution_in_open_turn=code_execution_in_open_turn,
        )


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
