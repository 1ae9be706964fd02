"""OpenTelemetry spans and metrics of a run with the GenAI semantic names; cheap while nobody listens, stores nothing.

They go to whatever providers the process has. `configure()` sets them up, only when OTEL_ variables or `[tracing]` in
the configuration ask for it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .config import TracingConfig
from .security import for_log

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span, Tracer

_NAME = "citehound"
_MOST = 2000
"""Characters of an attribute; longer ones are cut."""
_KINDS = ("otlp", "console", "none")

_Value = str | int | float | bool | Sequence[str] | None
_texts = True
"""Whether spans carry what was asked and searched for; `configure` sets it."""


def configured(
    env: Mapping[str, str] | None = None, *, signal: str = "TRACES", settings: TracingConfig | None = None
) -> bool:
    """True when environment or configuration ask for TRACES or METRICS to be exported."""
    env = os.environ if env is None else env
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return _endpoint(env, signal) or (settings is not None and settings.endpoint is not None)


def _endpoint(env: Mapping[str, str], signal: str) -> bool:
    return any(env.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"))


def configure(env: Mapping[str, str] | None = None, *, settings: TracingConfig | None = None) -> str | None:
    """Exports spans and metrics as the OTEL_ variables say, or else `settings`; returns one line when it cannot.

    Does nothing when neither asks for it, or for what the embedding application has set a provider itself.
    """
    global _texts
    _texts = settings is None or settings.texts
    env = os.environ if env is None else env
    wanted = [signal for signal in ("TRACES", "METRICS") if configured(env, signal=signal, settings=settings)]
    for signal in wanted:
        kind = _kind(env, signal)
        protocol = (
            env.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
            or env.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or "http/protobuf"
        )
        if kind not in _KINDS:
            return f"OTEL_{signal}_EXPORTER is {kind!r}; Citehound exports 'otlp' and 'console', so nothing is sent"
        if kind == "otlp" and protocol != "http/protobuf":
            return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; Citehound exports 'http/protobuf', so nothing is sent"
    try:
        if "TRACES" in wanted:
            _send_spans(env, settings)
        if "METRICS" in wanted:
            _send_metrics(env, settings)
    except ImportError:
        return "traces or metrics are asked for, but the exporter is not installed; pip install 'citehound[otel]'"
    return None


def _kind(env: Mapping[str, str], signal: str) -> str:
    return env.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() or "otlp"


def _address(env: Mapping[str, str], signal: str, settings: TracingConfig | None) -> dict[str, str]:
    """What to tell an exporter; nothing where the variables do, which it reads itself."""
    if settings is None or settings.endpoint is None or _endpoint(env, signal):
        return {}
    return {"endpoint": f"{settings.endpoint.rstrip('/')}/v1/{signal.lower()}"}


def _resource(env: Mapping[str, str]) -> Any:
    resources: Any = importlib.import_module("opentelemetry.sdk.resources")
    return resources.Resource.create({} if env.get("OTEL_SERVICE_NAME") else {"service.name": _NAME})


def _send_spans(env: Mapping[str, str], settings: TracingConfig | None) -> None:
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
    export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    if _kind(env, "TRACES") == "console":
        processor = export.SimpleSpanProcessor(export.ConsoleSpanExporter(out=sys.stderr))
    else:
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        processor = export.BatchSpanProcessor(otlp.OTLPSpanExporter(**_address(env, "TRACES", settings)))
    provider = sdk.TracerProvider(resource=_resource(env))
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)


def _send_metrics(env: Mapping[str, str], settings: TracingConfig | None) -> None:
    from opentelemetry import metrics

    sdk: Any = importlib.import_module("opentelemetry.sdk.metrics")
    if isinstance(metrics.get_meter_provider(), sdk.MeterProvider):
        return
    export: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
    if _kind(env, "METRICS") == "console":
        exporter = export.ConsoleMetricExporter(out=sys.stderr)
    else:
        otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        exporter = otlp.OTLPMetricExporter(**_address(env, "METRICS", settings))
    reader = export.PeriodicExportingMetricReader(exporter)
    metrics.set_meter_provider(sdk.MeterProvider(resource=_resource(env), metric_readers=[reader]))


@contextmanager
def continuing(headers: Mapping[str, str]) -> Generator[None]:
    """What is traced inside belongs to the trace that the headers of a request name (W3C `traceparent`), if any."""
    if "traceparent" not in headers:
        yield
        return
    from opentelemetry import context, propagate

    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


@lru_cache(maxsize=1)
def _meters() -> tuple[Histogram, Histogram, Counter, Counter, Counter]:
    """Tokens and seconds of requests to models; questions, searches and dollars."""
    from opentelemetry import metrics

    meter = metrics.get_meter(_NAME)
    return (
        meter.create_histogram("gen_ai.client.token.usage", unit="{token}", description="Tokens per request"),
        meter.create_histogram("gen_ai.client.operation.duration", unit="s", description="Seconds per operation"),
        meter.create_counter("citehound.questions", unit="{question}", description="Questions that ended"),
        meter.create_counter("citehound.searches", unit="{search}", description="Searches"),
        meter.create_counter("citehound.dollars", unit="USD", description="Dollars spent"),
    )


class Traced:
    """One open span. Setting something on a span that nobody records does nothing."""

    def __init__(self, span: Span, *, counted: Mapping[str, str] | None = None) -> None:
        self._span = span
        self._counted = counted
        """Attributes under which tokens are counted; None where those of its parts are."""

    def set(self, name: str, value: _Value) -> None:
        """Sets an attribute; text is made visible, cut and stripped of secrets. None is left out."""
        if value is None or not self._span.is_recording():
            return
        if isinstance(value, str):
            self._span.set_attribute(name, _clean(value))
        elif isinstance(value, int | float):
            self._span.set_attribute(name, value)
        else:
            self._span.set_attribute(name, [_clean(v) for v in value])

    def tell(self, name: str, value: str) -> None:
        """`set` for what was asked or searched for, which is left out where `[tracing] texts` is off."""
        if _texts:
            self.set(name, value)

    def returned(self, ids: Sequence[str]) -> None:
        """The documents (with section) that a search or read gave."""
        self.set("citehound.returned", list(ids))
        self.set("citehound.returned.count", len(ids))

    def failed(self, reason: str) -> None:
        """Marks the span as failed, with one line."""
        if self._span.is_recording():
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, _clean(reason) if _texts else None))

    def usage(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, dollars: float | None = None
    ) -> None:
        self.set("gen_ai.usage.input_tokens", input_tokens)
        self.set("gen_ai.usage.output_tokens", output_tokens)
        self.set("gen_ai.usage.cache_read.input_tokens", cached_tokens)
        self.set("citehound.dollars", dollars)
        if self._counted is not None:
            tokens = _meters()[0]
            tokens.record(input_tokens, {**self._counted, "gen_ai.token.type": "input"})
            tokens.record(output_tokens, {**self._counted, "gen_ai.token.type": "output"})

    def answered(
        self, *, mode: str, model: str, status: str, stop_reason: str, steps: int, searches: int, dollars: float | None
    ) -> None:
        """How a run ended; counts it too."""
        by = {"citehound.mode": mode, "gen_ai.request.model": model}
        ended = {"citehound.status": status, "citehound.stop_reason": stop_reason}
        for name, value in ({**by, **ended, "citehound.steps": steps, "citehound.searches": searches}).items():
            self.set(name, value)
        _, _, questions, searched, spent = _meters()
        questions.add(1, {**by, **ended})
        searched.add(searches, by)
        if dollars is not None:
            spent.add(dollars, by)


@contextmanager
def run_span(*, run_id: str, question: str, mode: str, model: str) -> Generator[Traced]:
    """The span of a whole run: `invoke_agent citehound`."""
    by = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": model}
    with _timed(by), _span(f"invoke_agent {_NAME}") as traced:
        for name, value in by.items():
            traced.set(name, value)
        traced.set("gen_ai.agent.name", _NAME)
        traced.set("citehound.run_id", run_id)
        traced.set("citehound.mode", mode)
        traced.tell("citehound.question", question)
        yield traced


@contextmanager
def chat_span(
    *, model: str, provider: str, max_tokens: int, step: int | None = None, attempt: int = 1, agent: str = "main"
) -> Generator[Traced]:
    """The span of one request to a model: `chat MODEL`; one that is sent again has a span per attempt."""
    by = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
    with _timed(by), _span(f"chat {model}", counted=by) as traced:
        for name, value in by.items():
            traced.set(name, value)
        traced.set("gen_ai.request.max_tokens", max_tokens)
        traced.set("gen_ai.agent.name", agent)
        traced.set("citehound.step", step)
        traced.set("citehound.attempt", attempt)
        yield traced


@contextmanager
def search_span(
    *, source: str, query: str, filters: Mapping[str, str] | None = None, step: int | None = None, agent: str = "main"
) -> Generator[Traced]:
    """The span of one search: `retrieval SOURCE`. Call `returned` with the ids on what it yields."""
    with _span(f"retrieval {source}") as traced:
        traced.set("gen_ai.operation.name", "retrieval")
        traced.set("gen_ai.data_source.id", source)
        traced.tell("gen_ai.retrieval.query.text", query)
        traced.set("gen_ai.agent.name", agent)
        traced.set("citehound.step", step)
        if filters:
            traced.tell("citehound.filters", json.dumps(dict(sorted(filters.items())), ensure_ascii=False))
        yield traced


@contextmanager
def tool_span(
    *, tool: str, arguments: Mapping[str, Any] | None = None, step: int | None = None, agent: str = "main"
) -> Generator[Traced]:
    """The span of one tool call: `execute_tool TOOL`."""
    with _span(f"execute_tool {tool}") as traced:
        traced.set("gen_ai.operation.name", "execute_tool")
        traced.set("gen_ai.tool.name", tool)
        traced.set("gen_ai.tool.type", "function")
        traced.set("gen_ai.agent.name", agent)
        traced.set("citehound.step", step)
        if arguments is not None:
            traced.tell("gen_ai.tool.call.arguments", json.dumps(dict(arguments), ensure_ascii=False, default=str))
        yield traced


@contextmanager
def _span(name: str, *, counted: Mapping[str, str] | None = None) -> Generator[Traced]:
    # By itself, OpenTelemetry would write down what an exception says, whatever that is.
    with _tracer().start_as_current_span(_clean(name), record_exception=False, set_status_on_exception=False) as span:
        traced = Traced(span, counted=counted)
        try:
            yield traced
        except Exception as error:
            traced.failed(f"{type(error).__name__}: {error}")
            raise


@contextmanager
def _timed(by: Mapping[str, str]) -> Generator[None]:
    """Counts the seconds until its end."""
    begun = perf_counter()
    try:
        yield
    finally:
        _meters()[1].record(perf_counter() - begun, by)


def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer(_NAME)


def _clean(text: str) -> str:
    text = for_log(text)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
