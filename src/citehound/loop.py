"""One conversation with a model under a budget: turns, the last draft, its checks, and what is shown when all fails.

Shared by `agent` and `single`; it knows tools only as a `Toolbox` and searches nothing itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic_ai import Agent, ModelRetry, ToolOutput
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
from pydantic_ai.exceptions import (
    ContentFilterError,
    IncompleteToolCall,
    ModelAPIError,
    ModelHTTPError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import UsageLimits
from pydantic_core import SchemaValidator, core_schema

from .answers import Citation, Claim, Gap, Row, StopReason
from .budget import Meter, Price, worst_tokens
from .drafts import Draft, DraftCitation, DraftClaim, DraftGap
from .errors import BudgetExceeded
from .events import Emit, StepStarted, nowhere
from .evidence import Evidence, Ledger
from .models import OpenedModel
from .prompts import FINAL_ANSWER, NOTHING_SEARCHED, feedback, no_calls_left, step_notes, text_draft
from .security import redact, visible
from .toolbox import MAX_CALLS, RESULT_TOKENS, Toolbox
from .verification import Checked, Documents, check

MAX_RETRIES = 3
"""Requests repeated inside the steps of one run because the reply was no usable draft."""
MAX_ATTEMPTS = 3
"""Times one request is sent when the provider fails in a way that may pass."""
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FRAME = 12
"""Tokens around each part of a message."""
_MIN_RESULTS = 2500
"""A turn makes no sense with less room for results than this, in tokens of all its results together."""

_ENOUGH = 1000
"""Retries as pydantic-ai counts them; the conversation ends a run long before."""
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Output caps of one request."""

    turn_tokens: int = 1500
    draft_tokens: int = 4000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a strategy hands to the assistant."""

    claims: tuple[Claim, ...] = ()
    missing: tuple[Gap, ...] = ()
    text: str | None = None
    """Set for an answer that used no document."""
    stop_reason: StopReason = "answered"
    warnings: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    """The table of a survey."""


class Stopped(Exception):
    """Ends the conversation from inside; carries the stop reason and, for the reader, why."""

    def __init__(self, reason: StopReason, why: str) -> None:
        super().__init__(why)
        self.reason: StopReason = reason


class Conversation:
    """The state of one run: what the next request may cost, why it must end, and the last draft that was checked."""

    def __init__(
        self,
        *,
        model: OpenedModel,
        meter: Meter,
        ledger: Ledger,
        documents: Documents,
        question: str,
        toolbox: Toolbox | None = None,
        limits: Limits | None = None,
        emit: Emit = nowhere,
        agent: str = "main",
        sleep: Sleep = asyncio.sleep,
        only: Sequence[Citation] | None = None,
    ) -> None:
        self.model = model
        self.meter = meter
        self.ledger = ledger
        self.documents = documents
        self.question = question
        self.toolbox = toolbox
        self.limits = limits or Limits()
        self.emit = emit
        self.agent = agent
        self.sleep = sleep
        self.only = only
        """Verified citations, and the draft may use no others; None lifts that."""
        self.price: Price = model.price or Price(input=0.0, output=0.0)
        self.forced: StopReason | None = None
        """Why the last draft was asked for; None while the model may go on."""
        self.last = toolbox is None
        """True once function tools are withheld."""
        self.stopped: Stopped | None = None
        self.draft: Draft | None = None
        self.checked: Checked | None = None
        self.warnings: list[str] = []
        self._step = 0
        self._retries = 0
        self._ignored = 0
        """Turns in which calls were made although only the answer was asked for."""
        self._sent_back = False
        self._sent_to_search = False
        self._counted = 0
        """Messages whose tokens a response has reported, together with tools and instructions."""
        self._known = 0
        self._tail = 0
        """Worst case of the next request's input, as of the last one sent and answered."""
        self._base = 0
        self._sent = 0
        self._longest = 0.0
        self._scale = 1.0
        """Above 1 once a provider counted more tokens than the estimate; later estimates grow by it."""

    def stop(self, reason: StopReason, why: str) -> Stopped:
        self.stopped = Stopped(reason, why)
        return self.stopped

    # planning a request

    def plan(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
        """Decides what the next request is (a turn, or the last draft) and returns its cap of output tokens."""
        base = self._base = self.input_tokens(messages, parameters)
        self._sent = len(messages)
        limits = self.limits
        retry = self._step > 0 and _is_retry(messages)
        if retry:
            self._retries += 1
            if self._retries > MAX_RETRIES:
                raise self.stop(self.forced or "model_error", "the model gave no usable draft")
        if not retry:
            if self.toolbox is not None and self.last:
                self._ignored += 1
                if self._ignored > 1:
                    raise self.stop(self.forced or "model_error", "the model called tools instead of answering")
            elif self.toolbox is not None:
                self.forced = self._must_finish(base)
                self.last = self.forced is not None
            if self.meter.steps_left() == 0:
                raise self.stop(self.forced or "steps", "the step cap is reached")
            try:
                self._step = self.meter.begin_step()
            except BudgetExceeded as problem:
                raise self.stop("steps", str(problem)) from problem
            self.emit(StepStarted(step=self._step, agent=self.agent))
            if self.toolbox is not None:
                self.toolbox.begin_step(
                    self._step,
                    notes=() if self.last else step_notes(steps_left=self.meter.steps_left()),
                    closed=no_calls_left(self.forced) if self.last else None,
                )
        elif self.toolbox is not None and not self.last:
            self.forced = self._must_finish(base)
            if self.forced is None and self.meter.steps_left() == 0:
                self.forced = "steps"
            self.last = self.forced is not None
            if self.last:
                self.toolbox.begin_step(self._step, closed=no_calls_left(self.forced))
        if self.last:
            if not self.meter.fits(self.price.worst(input_tokens=base, output_tokens=limits.draft_tokens)):
                raise self.stop("dollars", "not even a last draft fits into the dollars left")
            if self.model.window is not None and base + limits.draft_tokens > self.model.window:
                raise self.stop("context", "what was read fills the model's context window")
            return limits.draft_tokens
        return limits.turn_tokens

    def _must_finish(self, base: int) -> StopReason | None:
        """Why the next request has to be the last draft, or None. `base`: worst case of its input."""
        if self.toolbox is not None and self.toolbox.no_progress:
            return "no_progress"
        steps = self.meter.steps_left()
        if steps is not None and steps <= 1:
            return "steps"
        seconds = self.meter.seconds_left()
        if seconds is not None and seconds <= self._room():
            return "seconds"
        if self._room_for_results(base, turn_tokens=self.limits.turn_tokens) < _MIN_RESULTS:
            return "dollars"
        if self._window_left(base) < _MIN_RESULTS:
            return "context"
        return None

    def _room_for_results(self, base: int, *, turn_tokens: int) -> int:
        """How many tokens of results the dollars left allow, so that a last draft still fits after them.

        `base`: worst case of the input before them; `turn_tokens`: output of the turn, 0 when it is paid already.
        """
        left = self.meter.dollars_left()
        if left is None:
            return MAX_CALLS * RESULT_TOKENS
        after = base + self._echo(turn_tokens)
        fixed = self.price.worst(input_tokens=after, output_tokens=self.limits.draft_tokens)
        if turn_tokens:
            fixed += self.price.worst(input_tokens=base, output_tokens=turn_tokens)
        each = self.price.worst(input_tokens=1, output_tokens=0)
        if each <= 0:
            return MAX_CALLS * RESULT_TOKENS if fixed <= left else 0
        return int((left - fixed) / each)

    def _window_left(self, base: int) -> int:
        """How many tokens of results the window still holds before a last draft."""
        if self.model.window is None:
            return MAX_CALLS * RESULT_TOKENS
        return self.model.window - base - self._echo(self.limits.turn_tokens) - self.limits.draft_tokens

    def _echo(self, turn_tokens: int) -> int:
        """What a turn adds to the next input besides results: its words, and refusals of calls beyond the eighth."""
        return turn_tokens + 2 * self.limits.turn_tokens

    def _room(self) -> float:
        """Seconds to keep for the last draft."""
        limit = self.meter.budget.max_seconds or 0.0
        return max(1.5 * self._longest, min(0.15 * limit, 20.0))

    def input_tokens(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
        """Worst case of a request's input: what was reported before, and an upper estimate of what is new."""
        if 0 < self._counted <= len(messages):
            return self._known + math.ceil(self._scale * _size(messages[self._counted :]))
        return math.ceil(self._scale * request_tokens(messages, parameters))

    # sending a request

    async def send(
        self,
        request: Callable[[dict[str, Any]], Awaitable[ModelResponse]],
        settings: dict[str, Any],
    ) -> ModelResponse:
        """Sends one planned request, again where that may help, each time with a reservation of its own."""
        base = self._base
        grown = emptied = False
        attempt = 1
        while True:
            cap = int(settings["max_tokens"])
            worst = self.price.worst(input_tokens=base, output_tokens=cap)
            try:
                reservation = self.meter.reserve(worst)
            except BudgetExceeded as problem:
                raise self.stop("dollars", str(problem)) from problem
            left = self.meter.seconds_left()
            allowed = None if left is None else max(0.05, left if self.last else left - self._room())
            timer = asyncio.timeout(allowed)
            before = self.meter.spent().seconds
            try:
                async with timer:
                    response = await request(settings)
            except asyncio.CancelledError:
                self.meter.forfeit(reservation)
                raise
            except ModelHTTPError as problem:
                self.meter.settle(reservation, dollars=0.0)
                await self._again(problem, attempt, passing=problem.status_code in _PASSING)
            except Exception as problem:
                self.meter.forfeit(reservation)
                if timer.expired():
                    if self.last or self.toolbox is None:
                        raise self.stop("seconds", "the model did not answer in time") from problem
                    settings = self._close("seconds", settings)
                    continue
                await self._again(problem, attempt, passing=isinstance(problem, ModelAPIError))
            else:
                self._longest = max(self._longest, self.meter.spent().seconds - before)
                usage = response.usage
                if usage.input_tokens or usage.output_tokens or self.model.free:
                    self.meter.settle(
                        reservation,
                        dollars=self.price.of(
                            input_tokens=usage.input_tokens,
                            output_tokens=usage.output_tokens,
                            cached_tokens=usage.cache_read_tokens,
                            cache_write_tokens=usage.cache_write_tokens,
                        ),
                        input_tokens=usage.input_tokens,
                        cached_tokens=usage.cache_read_tokens,
                        output_tokens=usage.output_tokens,
                    )
                else:
                    self.meter.forfeit(reservation)
                if response.finish_reason == "content_filter":
                    raise self.stop("refused", "the model refused to answer")
                if response.finish_reason == "length" and not _whole_calls(response):
                    if grown or cap >= self.limits.draft_tokens:
                        raise self.stop("truncated", f"the reply was cut at {cap} tokens")
                    grown = True
                    settings = {**settings, "max_tokens": self.limits.draft_tokens}
                    continue
                if not _says_something(response):
                    if emptied:
                        raise self.stop("empty", "the model gave an empty reply")
                    emptied = True
                    continue
                response = _with_call(response)
                self._settle_size(response)
                await self._record_unknown(response)
                return response
            attempt += 1

    async def _record_unknown(self, response: ModelResponse) -> None:
        """Calls of tools that do not exist are refused by pydantic-ai; the toolbox records that they were tried."""
        if self.toolbox is None:
            return
        for part in response.parts:
            if isinstance(part, ToolCallPart) and part.tool_name not in (*self.toolbox.names, FINAL_ANSWER):
                await self.toolbox.call(part.tool_name, _arguments(part))

    async def _again(self, problem: Exception, attempt: int, *, passing: bool) -> None:
        """Returns when the request may be sent again, else ends the conversation."""
        left = self.meter.seconds_left()
        if not passing or attempt >= MAX_ATTEMPTS or (left is not None and left <= self._room()):
            raise self.stop("model_error", _one_line(problem)) from problem
        pause = 0.5 * 2**attempt
        await self.sleep(pause if left is None else min(pause, left / 4))

    def _close(self, reason: StopReason, settings: dict[str, Any]) -> dict[str, Any]:
        """Turns a request that was a turn into the last draft."""
        self.forced, self.last = reason, True
        if self.toolbox is not None:
            self.toolbox.begin_step(self._step, closed=no_calls_left(self.forced))
        return {**settings, "max_tokens": self.limits.draft_tokens, "tool_choice": "none"}

    def _settle_size(self, response: ModelResponse) -> None:
        usage = response.usage
        said = _size([response])
        if usage.input_tokens > self._base > 0:
            self._scale *= usage.input_tokens / self._base
        if usage.input_tokens:
            self._counted = self._sent + 1
            self._known = usage.input_tokens + max(usage.output_tokens, said)
        self._tail = self._base + said
        if self.toolbox is not None and not self.last:
            calls = sum(1 for part in response.parts if isinstance(part, ToolCallPart))
            after = self._known or self._tail
            room = min(self._room_for_results(after, turn_tokens=0), self._window_left(after))
            share = room // max(1, min(calls, MAX_CALLS))
            self.toolbox.limit_results(max(300, min(RESULT_TOKENS, share)))

    # checking a draft

    async def validate(self, draft: Draft) -> Draft:
        """The output validator: checks the draft, and sends it back once if the budget allows."""
        evidence = self.ledger.evidence()
        if self.toolbox is not None and not evidence.calls and not self._sent_to_search and not self.last:
            self._sent_to_search = True
            if self._retry_fits(NOTHING_SEARCHED):
                raise ModelRetry(NOTHING_SEARCHED)
        draft = _without_text(draft, used_documents=bool(evidence.calls))
        checked = await asyncio.to_thread(
            check, draft, evidence, self.documents, question=self.question, only=self.only
        )
        self.draft, self.checked = draft, checked
        # Without tools, a gap that was not searched for cannot be mended; a claim can.
        mendable = not self.last or any(claim.status != "verified" for claim in checked.claims)
        if checked.feedback and mendable and not self._sent_back:
            back = feedback("\n".join(f"- {reason}" for reason in checked.feedback))
            if self._retry_fits(back):
                self._sent_back = True
                raise ModelRetry(back)
        return draft

    def _retry_fits(self, back: str) -> bool:
        if self._retries >= MAX_RETRIES:
            return False
        tokens = (self._known or self._tail) + worst_tokens(back) + 20 * _FRAME
        seconds = self.meter.seconds_left()
        if seconds is not None and seconds <= max(self._longest, 0.0):
            return False
        if self.model.window is not None and tokens + self.limits.draft_tokens > self.model.window:
            return False
        return self.meter.fits(self.price.worst(input_tokens=tokens, output_tokens=self.limits.draft_tokens))

    # the end

    def outcome(self, problem: BaseException | None = None) -> Outcome:
        """What to show: the last draft with its marks, or a partial composed from the ledger."""
        reason: StopReason = self.forced or "answered"
        warnings = list(self.warnings)
        if problem is not None:
            reason, why = self._why(problem)
            warnings.append(why)
        if self.checked is not None and self.draft is not None:
            checked = self.checked
            direct = self.draft.text if not checked.claims and not checked.missing else None
            return Outcome(
                claims=checked.claims,
                missing=checked.missing,
                text=direct,
                stop_reason=reason,
                warnings=tuple(warnings),
            )
        return compose_partial(
            self.ledger.evidence(),
            self.documents,
            question=self.question,
            stop_reason=reason,
            warnings=tuple(warnings),
        )

    def _why(self, problem: BaseException) -> tuple[StopReason, str]:
        if self.stopped is not None:
            return self.stopped.reason, f"stopped early ({self.stopped.reason}): {_one_line(self.stopped)}"
        reason: StopReason = "model_error"
        if isinstance(problem, asyncio.CancelledError):
            return "cancelled", "cancelled"
        if isinstance(problem, ContentFilterError):
            reason = "refused"
        elif isinstance(problem, IncompleteToolCall):
            reason = "truncated"
        return reason, f"stopped early ({reason}): {_one_line(problem)}"


def compose_partial(
    evidence: Evidence,
    documents: Documents,
    *,
    question: str,
    stop_reason: StopReason,
    warnings: tuple[str, ...] = (),
) -> Outcome:
    """A declared partial made by code: the sentences read that share most words with the question, and the gap.

    Nothing at all when nothing was called.
    """
    if not evidence.calls:
        return Outcome(stop_reason=stop_reason, warnings=warnings)
    words = {w for w in re.findall(r"\w{4,}", question.casefold())}
    found: dict[str, tuple[int, DraftClaim]] = {}
    for passage in evidence.passages:
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", passage.text):
            sentence = sentence.strip()
            if not 4 <= len(sentence.split()) <= 60:
                continue
            score = len(words & set(re.findall(r"\w{4,}", sentence.casefold())))
            best = found.get(passage.document)
            if score and (best is None or score > best[0]):
                citation = DraftCitation(document=passage.document, quote=sentence)
                found[passage.document] = (score, DraftClaim(text=sentence, citations=(citation,)))
    best_first = sorted(found.values(), key=lambda pair: -pair[0])[:5]
    draft = Draft(
        claims=tuple(claim for _, claim in best_first),
        missing=(
            DraftGap(
                what=question,
                reason="the run ended before an answer was drafted; what was read so far is quoted without judging it",
            ),
        ),
    )
    checked = check(draft, evidence, documents, question=question)
    gaps = tuple(replace(gap, status="unchecked") for gap in checked.missing)
    return Outcome(claims=checked.claims, missing=gaps, stop_reason=stop_reason, warnings=warnings)


async def converse(
    conversation: Conversation, *, prompt: str, instructions: str, settings: Mapping[str, Any] | None = None
) -> Outcome:
    """Runs the conversation to its end. Raises nothing but cancellation."""
    state = conversation
    toolbox = state.toolbox
    agent: Agent[None, Draft] = Agent(
        _MeteredModel(state.model.model, state),
        deps_type=type(None),
        output_type=ToolOutput(
            Draft,
            name=FINAL_ANSWER,
            description="Hand in the final answer: every claim with its quotes, and everything that was not found.",
        ),
        instructions=instructions,
        toolsets=[] if toolbox is None else [_Tools(toolbox)],
        capabilities=[_Budgeted(state)],
        retries={"tools": _ENOUGH, "output": _ENOUGH},
        model_settings=cast(ModelSettings, {"parallel_tool_calls": True, **state.model.settings, **(settings or {})}),
        name=state.agent,
    )
    agent.output_validator(state.validate)
    try:
        await agent.run(prompt, usage_limits=UsageLimits(request_limit=None))
    except Exception as problem:
        return await asyncio.to_thread(state.outcome, problem)
    return state.outcome()


class _MeteredModel(WrapperModel):
    """Sends every request of a run through its conversation, which reserves and settles."""

    def __init__(self, wrapped: Model, conversation: Conversation) -> None:
        super().__init__(wrapped)
        self._conversation = conversation

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        async def once(settings: dict[str, Any]) -> ModelResponse:
            return await self.wrapped.request(messages, cast(ModelSettings, settings), model_request_parameters)

        return await self._conversation.send(once, cast(dict[str, Any], dict(model_settings or {})))


class _Budgeted(AbstractCapability[None]):
    """Plans each request before it is sent: a turn, or the last draft with function tools withheld."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    async def wrap_model_request(
        self,
        ctx: RunContext[None],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        state = self._conversation
        parameters = request_context.model_request_parameters
        cap = state.plan(request_context.messages, parameters)
        settings: dict[str, Any] = {**(request_context.model_settings or {}), "max_tokens": cap}
        if state.last and parameters.function_tools:
            # The definitions stay, so that a cached prefix stays; the output tool can still be called.
            settings["tool_choice"] = "none"
        return await handler(replace(request_context, model_settings=cast(ModelSettings, settings)))


class _Tools(AbstractToolset[None]):
    """A toolbox as pydantic-ai calls it: arguments arrive as they were sent, any object will do."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    @property
    def id(self) -> str:
        return "citehound"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name, description=tool.description, parameters_json_schema=tool.parameters
                ),
                max_retries=_ENOUGH,
                args_validator=_ANY_OBJECT,
            )
            for tool in self._toolbox.tools
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> dict[str, Any]:
        return await self._toolbox.call(name, tool_args)


def _is_retry(messages: Sequence[ModelMessage]) -> bool:
    """True when the request asks for a better draft. By names, as versions of the library differ in the parts."""
    latest = messages[-1] if messages else None
    if not isinstance(latest, ModelRequest):
        return False
    for part in latest.parts:
        kind, tool = str(part.part_kind), getattr(part, "tool_name", None)
        if kind == "retry-feedback" or (kind == "retry-prompt" and tool in (None, FINAL_ANSWER)):
            return True
        if tool == FINAL_ANSWER and getattr(part, "outcome", "") == "retried":
            return True
    return False


def request_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Upper estimate of a request's input tokens: messages, tools and the schema of the answer."""
    tools = [
        {"name": t.name, "description": t.description, "parameters": t.parameters_json_schema}
        for t in (*parameters.function_tools, *parameters.output_tools)
    ]
    return worst_tokens(json.dumps(tools, ensure_ascii=False)) + _FRAME * (len(tools) + 10) + _size(messages)


def _size(messages: Sequence[ModelMessage]) -> int:
    """Upper estimate of the tokens of messages, frames included."""
    total = 0
    for message in messages:
        if isinstance(message, ModelRequest) and message.instructions:
            total += worst_tokens(message.instructions)
        for part in message.parts:
            total += _FRAME
            if isinstance(part, ToolCallPart):
                total += worst_tokens(part.args_as_json_str()) + 8
            elif isinstance(part, TextPart):
                total += worst_tokens(part.content)
            else:
                content = getattr(part, "content", "")
                text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
                total += worst_tokens(text)
    return total


def _whole_calls(response: ModelResponse) -> bool:
    """True when a cut response still holds calls, and each of them is whole."""
    calls = [p for p in response.parts if isinstance(p, ToolCallPart)]
    for part in calls:
        if isinstance(part.args, str):
            try:
                json.loads(part.args)
            except ValueError:
                return False
    return bool(calls)


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    try:
        return part.args_as_dict()
    except ValueError:
        return {}


def _says_something(response: ModelResponse) -> bool:
    return any(isinstance(p, ToolCallPart) or (isinstance(p, TextPart) and p.content.strip()) for p in response.parts)


def _with_call(response: ModelResponse) -> ModelResponse:
    """A draft that came as text becomes the call it should have been."""
    if any(isinstance(p, ToolCallPart) for p in response.parts):
        return response
    draft = text_draft("".join(p.content for p in response.parts if isinstance(p, TextPart)))
    if draft is None:
        return response
    kept = [p for p in response.parts if not isinstance(p, TextPart)]
    return replace(response, parts=[*kept, ToolCallPart(FINAL_ANSWER, draft.model_dump(mode="json"))])


def _without_text(draft: Draft, *, used_documents: bool) -> Draft:
    """Free text is for answers without documents; beside documents it becomes a claim that nothing is cited for."""
    if not draft.text or not draft.text.strip() or draft.claims or draft.missing:
        return draft.model_copy(update={"text": None}) if draft.text else draft
    if not used_documents:
        return draft
    return Draft(claims=(DraftClaim(text=draft.text.strip()),))


def _one_line(problem: BaseException) -> str:
    text = " ".join(visible(redact(str(problem))).split())
    return f"{text or type(problem).__name__}"[:300]
