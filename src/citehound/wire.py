"""One model request on its way: money set aside, time kept, faults told apart and tried again; knows no drafts.

Every attempt reserves its worst case first. What is certain to have cost nothing is released; a reply that says its
usage is settled; whatever is unknown (a read time-out, a cut stream, no usage) keeps its reservation.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from .answers import StopReason
from .budget import FREE, Meter, Price
from .errors import BudgetExceeded
from .events import Emit, Retry, nowhere
from .replies import readable
from .security import redact, visible
from .tracing import chat_span

MAX_ATTEMPTS = 5
"""Times one request is sent when the provider fails in a way that may pass."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 20.0
_PATIENCE = 0.6
"""Share of the time allowed that may pass without a sign of life before a request is given up and sent again."""
_IDLE = 30.0
"""Seconds that a stream may pause once it has begun."""
_WORTH = 1.0
"""Seconds below which another attempt is not worth it."""

_PASSING = frozenset({408, 409, 425, 429})
_GATEWAY = frozenset({502, 504, 520, 522, 524})
"""Said by something before the model, which may have worked on the request all the same."""
_SPEND = re.compile(
    r"insufficient_quota|billing|spend(?:ing)?[_ ](?:limit|cap)|hard_limit|credit[_ ]?balance|credits? (?:are |is )?"
    r"exhausted|out of credits|usage_limit_exceeded|payment|exceeded your current quota"
    r"|(?:monthly|daily) (?:limit|budget)",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"(?:prompt|input|request|context|message)s? (?:is |are )?too (?:long|large)|context[_ ](?:length|window|size)"
    r"|maximum context|too many (?:input )?tokens|reduce the length|exceeds? the (?:maximum|limit|available)[^.]*tokens"
    r"|request_too_large|input token count",
    re.IGNORECASE,
)

_UNREADABLE = (
    ModelAPIError,
    UnexpectedModelBehavior,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    RecursionError,
)
"""What SDKs raise for a reply of another shape than they expect."""

FaultKind = Literal[
    "rate_limit",
    "spend_limit",
    "server",
    "connection",
    "timeout",
    "cut",
    "malformed",
    "context",
    "auth",
    "rejected",
    "refused",
    "unknown",
]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What went wrong with one attempt."""

    kind: FaultKind
    said: str
    """One line without secrets, for people and for the run record."""
    passing: bool = False
    """Sending it again may help."""
    billed: bool = True
    """The attempt may have cost something. False: certainly not."""
    wait: float | None = None
    """Seconds that the provider asks to wait."""


class RequestFailed(Exception):
    """No reply could be had. `reason` is how the run should end; `fault` is None where time or money ended it."""

    def __init__(self, reason: StopReason, said: str, *, fault: Fault | None = None) -> None:
        super().__init__(said)
        self.reason: StopReason = reason
        self.fault = fault


class StreamCut(Exception):
    """What came is not the whole reply: its stream ended early, or the model paused its turn."""


@dataclass(kw_only=True)
class Wire:
    """How requests of one run reach their model. `chance` gives numbers in [0, 1) for the jitter of pauses."""

    model: Model
    price: Price
    meter: Meter
    name: str = ""
    stream: bool = False
    """Read replies as they come; turned off once a stream ends without saying why."""
    emit: Emit = nowhere
    agent: str = "main"
    sleep: Sleep = asyncio.sleep
    chance: Callable[[], float] = random.random
    faults: list[Fault] = field(default_factory=list[Fault])
    """Faults after which the request was sent again, and the one that ended it."""
    longest: float = 0.0
    """Seconds that the slowest reply took."""

    async def request(
        self,
        messages: Sequence[ModelMessage],
        settings: Mapping[str, Any],
        parameters: ModelRequestParameters,
        *,
        input_tokens: int,
        step: int = 0,
        keep: float = 0.0,
    ) -> ModelResponse:
        """Sends a request until it is answered, or until that makes no sense any more: then raises RequestFailed.

        `input_tokens`: the worst case of its input; settings hold `max_tokens`; `keep`: seconds to leave unused.
        """
        worst = self.price.worst(input_tokens=input_tokens, output_tokens=int(settings["max_tokens"]))
        attempt = 1
        while True:
            try:
                reservation = self.meter.reserve(worst)
            except BudgetExceeded as problem:
                raise RequestFailed("dollars", str(problem)) from problem
            before = self.meter.spent().seconds
            timer = _Patience(allowed=self._allowed(keep), streams=self.stream, free=self.price == FREE)
            with chat_span(
                model=self.model.model_name,
                provider=self.model.system,
                max_tokens=int(settings["max_tokens"]),
                step=step,
                attempt=attempt,
                agent=self.agent,
            ) as traced:
                try:
                    async with timer.limit:
                        response = readable(await self._once(messages, settings, parameters, timer))
                except asyncio.CancelledError:
                    self.meter.forfeit(reservation)
                    traced.failed("cancelled")
                    raise
                except Exception as problem:
                    if timer.limit.expired():
                        fault = Fault(kind="timeout", said="the model did not answer in time", passing=True)
                    else:
                        fault = fault_of(problem)
                    if fault.billed:
                        self.meter.forfeit(reservation)
                    else:
                        self.meter.settle(reservation, dollars=0.0)
                    self.faults.append(fault)
                    traced.set("error.type", fault.kind)
                    traced.failed(fault.said)
                    failed: Exception | None = problem
                else:
                    self.longest = max(self.longest, self.meter.spent().seconds - before)
                    usage = response.usage
                    known = (usage.input_tokens > 0 and usage.output_tokens > 0) and not usage.unmeasured_requests
                    dollars = 0.0
                    if known or self.price == FREE:
                        dollars = self.price.of(
                            input_tokens=usage.input_tokens,
                            output_tokens=usage.output_tokens,
                            cached_tokens=usage.cache_read_tokens,
                            cache_write_tokens=usage.cache_write_tokens,
                        )
                        self.meter.settle(
                            reservation,
                            dollars=dollars,
                            input_tokens=usage.input_tokens,
                            cached_tokens=usage.cache_read_tokens,
                            output_tokens=usage.output_tokens,
                        )
                    else:
                        self.meter.forfeit(reservation)
                        dollars = reservation.dollars
                    traced.set("gen_ai.response.model", response.model_name)
                    traced.set("gen_ai.response.finish_reasons", [response.finish_reason or "stop"])
                    traced.usage(
                        input_tokens=usage.input_tokens,
                        output_tokens=usage.output_tokens,
                        cached_tokens=usage.cache_read_tokens,
                        dollars=dollars,
                    )
                    return response
            await self._pause(fault, attempt, step=step, keep=keep, failed=failed)
            attempt += 1

    async def _once(
        self,
        messages: Sequence[ModelMessage],
        settings: Mapping[str, Any],
        parameters: ModelRequestParameters,
        timer: _Patience,
    ) -> ModelResponse:
        given = cast(ModelSettings, dict(settings))
        if not self.stream:
            response = await self.model.request(list(messages), given, parameters)
            if response.state != "complete":
                raise StreamCut(f"the reply is {response.state}")
            return response
        async with self.model.request_stream(list(messages), given, parameters) as reply:
            async for _ in reply:
                timer.lives()
        response = reply.get()
        if response.state != "complete":
            raise StreamCut(f"the reply is {response.state}: its stream ended before it did")
        if _silent_end(response):
            self.stream = False
            raise StreamCut("the stream ended without saying why")
        return response

    def _allowed(self, keep: float) -> float | None:
        left = self.meter.seconds_left()
        return None if left is None else max(0.05, left - keep)

    async def _pause(self, fault: Fault, attempt: int, *, step: int, keep: float, failed: Exception | None) -> None:
        """Returns when the request may be sent again, else raises RequestFailed."""
        left = self.meter.seconds_left()
        spare = None if left is None else left - keep
        if fault.kind == "timeout" and spare is not None and spare <= _WORTH:
            raise RequestFailed("seconds", fault.said, fault=fault) from failed
        if not fault.passing:
            reason: StopReason = (
                "context" if fault.kind == "context" else "refused" if fault.kind == "refused" else "model_error"
            )
            raise RequestFailed(reason, fault.said, fault=fault) from failed
        if attempt >= MAX_ATTEMPTS:
            raise RequestFailed("model_error", f"{fault.said} ({attempt} attempts)", fault=fault) from failed
        pause = pause_before(attempt, wait=fault.wait, chance=self.chance())
        if spare is not None and (spare <= 0 or pause >= spare):
            if fault.wait is not None and fault.wait >= spare:
                said = f"{fault.said}; it asks to wait {fault.wait:.0f} s, and {max(0.0, left or 0.0):.0f} s are left"
                raise RequestFailed("model_error", said, fault=fault) from failed
            if spare <= 0:
                raise RequestFailed("model_error", fault.said, fault=fault) from failed
            pause = max(fault.wait or 0.0, spare / 4)
        self.emit(Retry(step=step, attempt=attempt, reason=fault.said, wait=round(pause, 3), agent=self.agent))
        await self.sleep(pause)


class _Patience:
    """The time-out of one attempt: the time allowed in all, and the time without a sign of life."""

    def __init__(self, *, allowed: float | None, streams: bool, free: bool = False) -> None:
        self.limit = asyncio.timeout(None)
        self._streams = streams
        self._free = free
        self._allowed = allowed
        if allowed is not None:
            self._end = asyncio.get_running_loop().time() + allowed
            # A free model is one's own: asked again, it would start the same prompt anew.
            self.limit = asyncio.timeout(allowed if free or allowed <= _WORTH else allowed * _PATIENCE)

    def lives(self) -> None:
        """A part of the reply has come."""
        if self._allowed is not None and not self.limit.expired():
            now = asyncio.get_running_loop().time()
            idle = self._allowed if self._free else max(_IDLE, self._allowed / 4)
            self.limit.reschedule(min(self._end, now + idle))


def pause_before(attempt: int, *, wait: float | None, chance: float) -> float:
    """Seconds to wait after failed attempt number `attempt`: full jitter, or what the provider asks and a bit more."""
    if wait is not None:
        return wait + chance * min(1.0, wait / 4)
    return chance * min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))


def fault_of(problem: Exception) -> Fault:
    """What an exception raised by a provider means."""
    if isinstance(problem, ModelHTTPError):
        return _http_fault(problem)
    said = one_line(problem)
    if isinstance(problem, ModelContextWindowExceededError):
        return Fault(kind="context", said=said)
    if isinstance(problem, ModelQuotaExceededError):
        return Fault(kind="spend_limit", said=said)
    if isinstance(problem, ModelAuthenticationError | ModelRequestRejectedError | UserError):
        return Fault(kind="rejected", said=said, billed=False)  # a UserError is raised before anything is sent
    if isinstance(problem, ModelConnectionError):
        sent = problem.phase not in ("connect", "pool")
        late = isinstance(problem, ModelTimeoutError)
        where = "" if problem.phase is None else f" ({problem.phase})"
        what = "the provider did not answer in time" if late else "the connection to the provider failed"
        return Fault(
            kind="timeout" if late else "connection", said=f"{what}{where}: {said}"[:300], passing=True, billed=sent
        )
    if isinstance(problem, ModelRequestTimeout):
        return Fault(kind="timeout", said=said, passing=True)
    if isinstance(problem, StreamCut):
        return Fault(kind="cut", said=said, passing=True)
    if isinstance(problem, ContentFilterError):
        return Fault(kind="refused", said="the model refused to answer")
    status = getattr(problem.__cause__, "status_code", None)
    if isinstance(status, int) and 300 <= status < 400:
        said = f"the provider's address answers {status}, a redirect, and none is followed: check base_url"
        return Fault(kind="rejected", said=said, billed=False)
    if isinstance(problem, _UNREADABLE):
        return Fault(kind="malformed", said=f"the provider's reply cannot be read: {said}"[:300], passing=True)
    return Fault(kind="unknown", said=said)


def _http_fault(problem: ModelHTTPError) -> Fault:
    status, names = problem.status_code, f"{problem.provider_error_code or ''} {problem.provider_error_type or ''}"
    message, code = _message(problem.body)
    everything = f"{names} {code} {message}"
    label = problem.provider_error_type or problem.provider_error_code or code
    said = one_line(f"the provider answered {status}{f' {label}' if label else ''}{f': {message}' if message else ''}")
    page = isinstance(problem.body, str) and problem.body.lstrip().startswith("<")
    billed = problem.in_stream or (status in _GATEWAY and (page or status != 502))
    if isinstance(problem, ModelContextWindowExceededError) or (
        status in (400, 413, 422) and _TOO_LONG.search(everything)
    ):
        return Fault(kind="context", said=said, billed=billed)
    if isinstance(problem, ModelQuotaExceededError) or status == 402 or (status < 500 and _SPEND.search(everything)):
        return Fault(kind="spend_limit", said=f"{said}; a limit of the account is reached"[:300], billed=billed)
    if status in (401, 403):
        return Fault(kind="auth", said=f"the provider refused the API key ({status}): check it", billed=billed)
    if status == 404:
        return Fault(kind="rejected", said=f"{said}; check the model's name and base_url"[:300], billed=billed)
    passing = status in _PASSING or status >= 500
    if problem.provider_retry_hint is not None:
        passing = problem.provider_retry_hint
    return Fault(
        kind="rate_limit" if status == 429 else "server" if status >= 500 else "rejected",
        said=said,
        passing=passing,
        billed=billed,
        wait=problem.retry_after,
    )


def _message(body: object) -> tuple[str, str]:
    """The message and the code in an error body, whatever its shape; a page gives its text."""
    if isinstance(body, str):
        return re.sub(r"<[^>]*>", " ", body), ""
    if not isinstance(body, Mapping):
        return "", ""
    fields = cast(Mapping[str, Any], body)
    inner: Any = fields.get("error")
    if isinstance(inner, str):
        return inner, str(fields.get("code") or "")
    error = cast(Mapping[str, Any], inner) if isinstance(inner, Mapping) else fields
    code = error.get("code") or error.get("error_code") or ""
    details: Any = error.get("details")
    if isinstance(details, Mapping):
        code = code or cast(Mapping[str, Any], details).get("error_code") or ""
    return str(error.get("message") or ""), str(code)


def _silent_end(response: ModelResponse) -> bool:
    """True when a streamed reply of a provider has no reason for its end, as after a connection closed too early."""
    if response.provider_name is None or response.finish_reason == "content_filter":
        return False
    said = (response.provider_details or {}).get("finish_reason")  # a reason that nobody knows is one, too
    return not said and response.finish_reason in (None, "stop")


def one_line(problem: BaseException | str) -> str:
    """A problem as one short line, without secrets."""
    text = " ".join(visible(redact(str(problem))).split())
    return f"{text or type(problem).__name__}"[:300]
