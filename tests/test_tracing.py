"""Spans: one per search, with source, query, filters and ids; nothing without OTEL_ variables; no secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from citehound import tracing
from citehound.config import TracingConfig
from citehound.tracing import configured, run_span, search_span, tool_span


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    return exporter


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


def test_a_search_says_source_query_filters_and_ids(spans: InMemorySpanExporter) -> None:
    with search_span(source="contracts", query="incident hours", filters={"supplier": "Alpha"}, step=3) as traced:
        traced.returned(["contracts/a §2.1", "contracts/b"])
    span = only(spans)
    assert span.name == "retrieval contracts"
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.data_source.id": "contracts",
        "gen_ai.retrieval.query.text": "incident hours",
        "gen_ai.agent.name": "main",
        "citehound.step": 3,
        "citehound.filters": '{"supplier": "Alpha"}',
        "citehound.returned": ("contracts/a §2.1", "contracts/b"),
        "citehound.returned.count": 2,
    }


def test_calls_hang_under_their_run(spans: InMemorySpanExporter) -> None:
    with run_span(run_id="r1", question="q", mode="agent", model="offline") as run:
        with tool_span(tool="read_document", arguments={"document": "a"}, step=1):
            pass
        run.usage(input_tokens=10, output_tokens=2, cached_tokens=4, dollars=None)
    tool, whole = spans.get_finished_spans()
    assert tool.parent is not None
    assert tool.parent.span_id == whole.context.span_id
    attributes = whole.attributes or {}
    assert whole.name == "invoke_agent citehound"
    assert attributes["gen_ai.usage.input_tokens"] == 10
    assert attributes["citehound.run_id"] == "r1"
    assert "citehound.dollars" not in attributes


def test_a_failure_is_marked(spans: InMemorySpanExporter) -> None:
    with tool_span(tool="search_x") as traced:
        traced.failed("no such source")
    assert not only(spans).status.is_ok
    assert only(spans).status.description == "no such source"


def test_spans_hold_no_secret_and_no_control_character(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    with search_span(source="a\x1b[2J", query="sk-canary-0123456789 \u202e", filters={"k": "sk-canary-0123456789"}):
        pass
    text = only(spans).to_json()
    assert "canary" not in text
    assert "\\u001b" not in text
    assert "\\u202e" not in text


def test_long_text_is_cut(spans: InMemorySpanExporter) -> None:
    with search_span(source="a", query="x" * 10_000):
        pass
    assert len(str((only(spans).attributes or {})["gen_ai.retrieval.query.text"])) == 2000


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_export_is_set_up_only_when_asked_for(env: dict[str, str], expected: bool) -> None:
    assert configured(env) is expected


def test_an_unknown_exporter_is_named() -> None:
    note = tracing.configure({"OTEL_TRACES_EXPORTER": "zipkin"})
    assert note is not None
    assert "'zipkin'" in note
    grpc = tracing.configure({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert grpc is not None
    assert "http/protobuf" in grpc


def in_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_missing_exporter_is_said_in_one_line() -> None:
    code = (
        "import sys; sys.modules['opentelemetry.sdk.trace'] = None\n"
        "from citehound.tracing import configure; print(configure({'OTEL_TRACES_EXPORTER': 'console'}))"
    )
    assert "pip install 'citehound[otel]'" in in_process(code)


def test_spans_are_exported_when_the_variables_ask_for_it() -> None:
    code = (
        "import sys; sys.stderr = sys.stdout\n"
        "from citehound.tracing import configure, search_span\n"
        "assert configure({'OTEL_TRACES_EXPORTER': 'console'}) is None\n"
        "with search_span(source='s', query='q'): pass"
    )
    assert '"retrieval s"' in in_process(code)


def test_without_variables_the_sdk_is_not_even_imported() -> None:
    code = (
        "import sys; from citehound.tracing import configure, search_span\n"
        "assert configure({}) is None\n"
        "with search_span(source='s', query='q') as t: t.returned(['a'])\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry.sdk')])"
    )
    assert in_process(code).strip() == "[]"


def test_each_attempt_of_a_request_has_a_chat_span(
    spans: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai.exceptions import ModelHTTPError

    from citehound.budget import Budget, Price
    from citehound.models.scripted import call
    from small import GOOD, opened, run_agent

    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    fault = ModelHTTPError(529, "m", {"error": {"message": "Overloaded, sk-canary-0123456789"}})
    with opened(tmp_path) as corpus:
        run_agent(
            corpus,
            [call("read_document", {"document": "rules/security"}), fault, GOOD],
            budget=Budget(),
            price=Price(input=5.0, output=25.0),
        )
    chats = [span for span in spans.get_finished_spans() if span.name == "chat scripted"]
    shown = [dict(span.attributes or {}) for span in chats]
    assert [(a["citehound.step"], a["citehound.attempt"]) for a in shown] == [(1, 1), (2, 1), (2, 2)]
    first, failed, last = shown
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "scripted"
    assert first["gen_ai.request.max_tokens"] == 1500
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (100, 50)
    assert last["citehound.dollars"] == pytest.approx((100 * 5 + 50 * 25) / 1_000_000)
    assert failed["error.type"] == "server"
    assert not chats[1].status.is_ok
    assert "gen_ai.usage.input_tokens" not in failed
    assert "canary" not in "".join(span.to_json() for span in chats)


# What is sent -------------------------------------------------------------------------------------------------------


class Collector(BaseHTTPRequestHandler):
    """Keeps what is posted to it, by path."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        received: dict[str, list[bytes]] = self.server.received  # type: ignore[attr-defined]
        received.setdefault(self.path, []).append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    server.received = {}  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def asked(folder: Path, toml: str) -> subprocess.CompletedProcess[str]:
    from small import TOML, write_corpus

    config = write_corpus(folder, toml=TOML + toml)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "CITEHOUND_"))}
    command = [sys.executable, "-m", "citehound", "ask", "Which canary must be reported?", "--config", config, "--json"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=inherited)


def test_a_question_on_the_command_line_is_sent_to_the_collector(tmp_path: Path, collector: HTTPServer) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs citehound[otel]")
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    address = f"http://127.0.0.1:{collector.server_port}"
    done = asked(tmp_path, f'\n[tracing]\nendpoint = "{address}"\ntexts = false\n')
    answer = json.loads(done.stdout)
    received: dict[str, list[bytes]] = collector.received  # type: ignore[attr-defined]
    assert set(received) == {"/v1/traces", "/v1/metrics"}
    spans = [
        span
        for body in received["/v1/traces"]
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    whole = next(span for span in spans if span.name == "invoke_agent citehound")
    said = {a.key: a.value.string_value or a.value.int_value for a in whole.attributes}
    assert said["citehound.run_id"] == answer["run_id"]
    assert said["citehound.status"] == answer["status"]
    assert said["citehound.searches"] == answer["usage"]["searches"]
    assert sum(span.name.startswith("retrieval ") for span in spans) >= answer["usage"]["searches"]
    assert "canary" not in str(spans), "texts are off"
    points = {
        metric.name: metric
        for body in received["/v1/metrics"]
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    (searches,) = points["citehound.searches"].sum.data_points
    assert searches.as_int == answer["usage"]["searches"]
    assert {"citehound.questions", "gen_ai.client.operation.duration"} <= set(points)


def test_variables_go_before_the_configuration() -> None:
    settings = TracingConfig(endpoint="http://here:4318/")
    for signal in ("TRACES", "METRICS"):
        assert configured({}, signal=signal, settings=settings)
        assert not configured({f"OTEL_{signal}_EXPORTER": "none"}, signal=signal, settings=settings)
        assert not configured({"OTEL_SDK_DISABLED": "true"}, signal=signal, settings=settings)
        assert not configured({}, signal=signal, settings=TracingConfig())
    assert tracing._address({}, "TRACES", settings) == {"endpoint": "http://here:4318/v1/traces"}
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        assert tracing._address({name: "http://there:4318"}, "TRACES", settings) == {}
    assert tracing._address({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "x"}, "METRICS", settings) != {}


def test_a_request_goes_on_with_the_trace_it_comes_from(spans: InMemorySpanExporter) -> None:
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    for given in (headers, {}):
        with tracing.continuing(given), tool_span(tool="x"):
            pass
    inside, outside = spans.get_finished_spans()
    assert inside.context.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert inside.parent is not None and inside.parent.span_id == 0xB7AD6B7169203331
    assert outside.parent is None
