"""OpenTelemetry spans of a run with the GenAI semantic names; cheap while nobody listens, stores nothing.

Spans go to whatever tracer provider the process has. `configure()` sets one up, only when OTEL_ variables ask for it.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .security import for_log

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NAME = "citehound"
_MOST = 2000
"""Characters of an attribute; longer ones are cut."""

_Value = str | int | float | bool | Sequence[str] | None


def configured(env: Mapping[str, str] | None = None) -> bool:
    """True when the environment asks for traces to be exported."""
    env = os.environ if env is None else env
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = env.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    return any(env.get(name) for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))


def configure(env: Mapping[str, str] | None = None) -> str | None:
    """Exports spans as the OTEL_ variables say; returns one line when it cannot, else None.

    Does nothing without OTEL_ variables, or when the embedding application has set a tracer provider itself.
    """
    env = os.environ if env is None else env
    if not configured(env):
        return None
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    kind = env.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower() or "otlp"
    protocol = (
        env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or env.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
    )
    if kind not in ("otlp", "console"):
        return f"OTEL_TRACES_EXPORTER is {kind!r}; Citehound exports 'otlp' and 'console', so no trace is sent"
    if kind == "otlp" and protocol != "http/protobuf":
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; Citehound exports 'http/protobuf', so no trace is sent"
    try:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        if kind == "console":
            import sys

            exporter: Any = export.ConsoleSpanExporter(out=sys.stderr)
        else:
            exporter = importlib.import_module(
                "opentelemetry.exporter.otlp.proto.http.trace_exporter"
            ).OTLPSpanExporter()
        resource: Any = importlib.import_module("opentelemetry.sdk.resources").Resource.create(
            {} if env.get("OTEL_SERVICE_NAME") else {"service.name": _NAME}
        )
    except ImportError:
        return "OTEL_ variables ask for traces, but the exporter is not installed; pip install 'citehound[otel]'"
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(
        export.SimpleSpanProcessor(exporter) if kind == "console" else export.BatchSpanProcessor(exporter)
    )
    trace.set_tracer_provider(provider)
    return None


class Traced:
    """One open span. Setting something on a span that nobody records does nothing."""

    def __init__(self, span: Span) -> None:
        self._span = span

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

    def returned(self, ids: Sequence[str]) -> None:
        """The documents (with section) that a search or read gave."""
        self.set("citehound.returned", list(ids))
        self.set("citehound.returned.count", len(ids))

    def failed(self, reason: str) -> None:
        """Marks the span as failed, with one line."""
        if self._span.is_recording():
            from opentelemetry.trace import Status, StatusCode

            self._span.set_status(Status(StatusCode.ERROR, _clean(reason)))

    def usage(
        self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0, dollars: float | None = None
    ) -> None:
        self.set("gen_ai.usage.input_tokens", input_tokens)
        self.set("gen_ai.usage.output_tokens", output_tokens)
        self.set("gen_ai.usage.cache_read.input_tokens", cached_tokens)
        self.set("citehound.dollars", dollars)


@contextmanager
def run_span(*, run_id: str, question: str, mode: str, model: str) -> Generator[Traced]:
    """The span of a whole run: `invoke_agent citehound`."""
    with _span(f"invoke_agent {_NAME}") as traced:
        traced.set("gen_ai.operation.name", "invoke_agent")
        traced.set("gen_ai.agent.name", _NAME)
        traced.set("gen_ai.request.model", model)
        traced.set("citehound.run_id", run_id)
        traced.set("citehound.mode", mode)
        traced.set("citehound.question", question)
        yield traced


@contextmanager
def chat_span(
    *, model: str, provider: str, max_tokens: int, step: int | None = None, attempt: int = 1, agent: str = "main"
) -> Generator[Traced]:
    """The span of one request to a model: `chat MODEL`; one that is sent again has a span per attempt."""
    with _span(f"chat {model}") as traced:
        traced.set("gen_ai.operation.name", "chat")
        traced.set("gen_ai.provider.name", provider)
        traced.set("gen_ai.request.model", model)
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
        traced.set("gen_ai.retrieval.query.text", query)
        traced.set("gen_ai.agent.name", agent)
        traced.set("citehound.step", step)
        if filters:
            traced.set("citehound.filters", json.dumps(dict(sorted(filters.items())), ensure_ascii=False))
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
            traced.set("gen_ai.tool.call.arguments", json.dumps(dict(arguments), ensure_ascii=False, default=str))
        yield traced


@contextmanager
def _span(name: str) -> Generator[Traced]:
    with _tracer().start_as_current_span(_clean(name)) as span:
        yield Traced(span)


def _tracer() -> Tracer:
    from opentelemetry import trace

    return trace.get_tracer(_NAME)


def _clean(text: str) -> str:
    text = for_log(text)
    return text if len(text) <= _MOST else text[: _MOST - 1] + "…"
