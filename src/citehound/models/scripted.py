"""A model that plays a script, for tests and replays: exact, offline, and loud when the script runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from ..drafts import Draft


class ScriptExhausted(Exception):
    """More turns were asked for than the script has."""


@dataclass(frozen=True, kw_only=True)
class ScriptedCall:
    """One tool call of a turn. `arguments` may be a string, to send broken JSON."""

    tool: str
    arguments: dict[str, Any] | str = field(default_factory=dict[str, Any])


def call(tool: str, arguments: dict[str, Any] | str | None = None) -> ScriptedCall:
    return ScriptedCall(tool=tool, arguments={} if arguments is None else arguments)


@dataclass(frozen=True, kw_only=True)
class ScriptedRequest:
    """What the model was sent: the settings hold `max_tokens` and `tool_choice`."""

    messages: tuple[ModelMessage, ...]
    settings: ModelSettings
    parameters: ModelRequestParameters

    @property
    def tools_withheld(self) -> bool:
        """True on the last draft: function tools are shown but may not be called."""
        return cast(dict[str, Any], self.settings).get("tool_choice") == "none"


Reply = ScriptedCall | Sequence[ScriptedCall] | Draft | str | ModelResponse | Exception
Turn = Reply | Callable[[ScriptedRequest], Reply]
"""A call, several in parallel, a draft (the final answer), text, a whole response, an exception to raise,
or a function of the request that gives one of these."""

UsageOf = Callable[[ScriptedRequest], RequestUsage]


class ScriptedModel(Model):
    """Plays `turns` in order, one per request; with `repeat_last` the last one again and again.

    `usage` sets what each response reports: fixed (input, output) tokens, or a function of the request.
    `requests` keeps what was sent.
    """

    def __init__(
        self,
        turns: Sequence[Turn],
        *,
        usage: tuple[int, int] | UsageOf = (100, 50),
        repeat_last: bool = False,
        name: str = "scripted",
    ) -> None:
        super().__init__()
        self._turns = tuple(turns)
        self._usage: UsageOf = usage if callable(usage) else _fixed(*usage)
        self._repeat_last = repeat_last
        self._name = name
        self._lock = threading.Lock()
        self.requests: list[ScriptedRequest] = []

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def system(self) -> str:
        return "scripted"

    @property
    def provider(self) -> None:
        return None

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        sent = ScriptedRequest(
            messages=tuple(messages),
            settings=model_settings or ModelSettings(),
            parameters=model_request_parameters,
        )
        with self._lock:
            number = len(self.requests)
            self.requests.append(sent)
        if number >= len(self._turns) and not (self._repeat_last and self._turns):
            raise ScriptExhausted(f"the script has {len(self._turns)} turns, asked for number {number + 1}")
        turn = self._turns[min(number, len(self._turns) - 1)]
        if callable(turn):
            turn = turn(sent)
        if isinstance(turn, Exception):
            raise turn
        response = turn if isinstance(turn, ModelResponse) else ModelResponse(parts=list(_parts(turn, sent, number)))
        if not response.usage.has_values():
            response.usage = self._usage(sent)
        response.model_name = self._name
        return response


def _fixed(input_tokens: int, output_tokens: int) -> UsageOf:
    return lambda _: RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)


def _parts(turn: Reply, sent: ScriptedRequest, number: int) -> Sequence[TextPart | ToolCallPart]:
    if isinstance(turn, str):
        return [TextPart(turn)]
    if isinstance(turn, Draft):
        output = sent.parameters.output_tools
        if not output:
            return [TextPart(turn.model_dump_json())]
        return [ToolCallPart(output[0].name, turn.model_dump(mode="json"), tool_call_id=f"call-{number}")]
    calls = [turn] if isinstance(turn, ScriptedCall) else turn
    if isinstance(calls, ModelResponse | Exception):  # pragma: no cover - handled by the caller
        raise TypeError(f"cannot play {turn!r}")
    return [ToolCallPart(c.tool, c.arguments, tool_call_id=f"call-{number}-{n}") for n, c in enumerate(calls)]
