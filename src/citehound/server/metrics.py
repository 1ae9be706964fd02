"""The counters for Prometheus, of questions that ended and of requests that were answered; stores nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .. import __version__
from ..answers import Answer
from ..security import visible
from ..tracing import continuing

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_FAST = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_DOLLARS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_COUNTS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 48)
_METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH")
_ASKING = ("/v1/ask", "/v1/runs", "/v1/chat/completions")
"""Paths that begin a question when they are posted to."""


class Metrics:
    """The counters of one application, in a registry of their own; `running` says how many questions run,
    `waiting` how many of them wait for their turn."""

    def __init__(self, *, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        disable_created_metrics()  # when a series began; nobody asks for that
        self._registry = made = CollectorRegistry()
        ProcessCollector(registry=made)
        by = ("mode", "model")

        def counter(name: str, what: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"citehound_{name}", what, labels, registry=made)

        def histogram(name: str, what: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"citehound_{name}", what, labels, buckets=buckets, registry=made)

        Gauge("citehound_info", "Version of Citehound", ("version",), registry=made).labels(__version__).set(1)
        Gauge("citehound_questions_running", "Questions being answered", registry=made).set_function(running)
        said = "Those of them that wait for their turn"
        Gauge("citehound_questions_waiting", said, registry=made).set_function(waiting)
        self._alert = Gauge("citehound_citation_alert", "1 while too many citations failed lately", registry=made)
        self._questions = counter("questions", "Questions that ended", (*by, "status", "stop_reason"))
        self._refused = counter("questions_refused", "Questions turned away", ("reason",))
        self._seconds = histogram("question_seconds", "Seconds per question", by, _SECONDS)
        self._cost = histogram("question_dollars", "Dollars per question, where the price is known", by, _DOLLARS)
        self._steps = histogram("question_steps", "Steps per question", by, _COUNTS)
        self._searches = histogram("question_searches", "Searches per question", by, _COUNTS)
        self._reads = counter("reads", "Passages read", by)
        self._calls = counter("model_calls", "Requests to models", by)
        self._tokens = counter("tokens", "Tokens; 'input' includes 'cached'", ("model", "kind"))
        self._dollars = counter("dollars", "Dollars spent, where the price is known", by)
        self._claims = counter("claims", "Claims, by verdict", ("status",))
        self._citations = counter("citations", "Citations, by verdict", ("status",))
        self._gaps = counter("gaps", "Declared gaps", ("status",))
        self._requests = counter("http_requests", "HTTP requests", ("method", "route", "status"))
        self._latency = histogram("http_request_seconds", "Seconds to the head of the answer", ("route",), _FAST)
        for reason in ("busy", "rate"):
            self._refused.labels(reason)
        for status in ("verified", "unverified"):
            self._citations.labels(status)

    def answered(self, answer: Answer) -> None:
        """Counts a question that is over."""
        usage, model = answer.usage, visible(answer.model)
        by = (answer.mode, model)
        self._questions.labels(*by, answer.status, answer.stop_reason).inc()
        self._seconds.labels(*by).observe(usage.seconds)
        self._steps.labels(*by).observe(usage.steps)
        self._searches.labels(*by).observe(usage.searches)
        self._reads.labels(*by).inc(usage.reads)
        self._calls.labels(*by).inc(usage.model_calls)
        if usage.dollars is not None:
            self._cost.labels(*by).observe(usage.dollars)
            self._dollars.labels(*by).inc(usage.dollars)
        tokens = {"input": usage.input_tokens, "cached": usage.cached_tokens, "output": usage.output_tokens}
        for kind, number in tokens.items():
            self._tokens.labels(model, kind).inc(number)
        for claim in answer.claims:
            self._claims.labels(claim.status).inc()
            for citation in claim.citations:
                self._citations.labels(citation.status).inc()
        for gap in answer.missing:
            self._gaps.labels(gap.status).inc()

    def alert(self, raised: bool) -> None:
        self._alert.set(int(raised))

    def requested(self, *, method: str, path: str, route: str, status: int, seconds: float) -> None:
        """Counts a request; `seconds` are those to the head of its answer."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._latency.labels(route).observe(seconds)
        if method == "POST" and path in _ASKING and status in (429, 503):
            self._refused.labels("rate" if status == 429 else "busy").inc()

    def text(self) -> str:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry).decode()


class Counted:
    """Counts every request, also those that the guard refuses, and continues the trace of the caller. Plain ASGI."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = time.perf_counter()

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requested(
                    method=scope["method"],
                    path=scope["path"],
                    route=_route(scope),
                    status=message["status"],
                    seconds=time.perf_counter() - begun,
                )
            await send(message)

        with continuing(Headers(scope=scope)):
            await self._app(scope, receive, counting)


def _route(scope: Scope) -> str:
    """The route's pattern, never the path itself: there are only so many of them."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    first = scope["path"].split("/")[1] if "/" in scope["path"] else ""
    return f"/{first}" if first in ("static", "mcp") else "none"
