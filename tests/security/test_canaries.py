"""A secret of the process is put wherever something is written: no output, record, log, trace or page has it."""

from __future__ import annotations

import base64
import json
import logging
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from replaying import instructions_of, marks_of
from starlette.testclient import TestClient

from citehound import config, tracing
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.backup import backup
from citehound.budget import FREE
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.errors import CitehoundError
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, call
from citehound.runs import RunStore
from citehound.security import for_log_json
from citehound.server.app import create_app
from citehound.server.report import report
from small import opened

KEY = "sk-canary/9c+41==f00d?x"
FORMS = [
    KEY,
    quote(KEY, safe=""),
    json.dumps(KEY)[1:-1],
    base64.b64encode(KEY.encode()).decode(),
    base64.urlsafe_b64encode(b"ab" + KEY.encode() + b"c").decode(),
]
RUN = "import sys; from citehound.cli import main; sys.exit(main())"


def leaks(*texts: str | bytes) -> list[str]:
    """The forms of the key that stand in what was written, also where only a middle of base64 does."""
    held = "\n".join(t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in texts)
    middle = base64.b64encode(KEY.encode()).decode().rstrip("=")[:-2]
    return [form for form in [*FORMS, middle] if form in held]


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """What was logged here; not by the client that asks."""
    return "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith("httpx"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def telling() -> ScriptedModel:
    """A model that knows the key and says it everywhere."""
    said = " and ".join(FORMS)
    return ScriptedModel(
        [
            [
                call("search_rules", {"query": KEY}),
                call("search_deals", {"query": "x", "supplier": KEY}),
                call(KEY, {"k": KEY}),
            ],
            [
                call("find_in_document", {"document": "rules/security", "phrase": KEY}),
                call("read_document", {"document": KEY}),
            ],
            Draft(
                claims=(DraftClaim(text=said, citations=(DraftCitation(document=KEY, quote=said),)),),
                missing=(DraftGap(what=said, reason=said),),
            ),
        ],
        repeat_last=True,
    )


def test_nothing_that_is_kept_or_shown_of_a_run_has_the_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    from citehound.cli import output

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("test"))
    caplog.set_level(logging.DEBUG)
    printed, lines = output.Steps(), output.JsonLines(to_stderr=True)

    def emit(event: Event) -> None:
        printed(event)
        lines(event)

    with opened(tmp_path) as corpus:
        model = OpenedModel(model=telling(), name="scripted", price=FREE)
        answer = Assistant(corpus.config, corpus, model, emit).ask_sync(f"What is {KEY}?", mode="agent")
        store = RunStore(corpus.config.state / "runs.sqlite")
        store.give_feedback(answer.run_id, good=False, reason=f"it says {KEY}", principal=OWNER)
        record = store.get(answer.run_id, principal=OWNER)
        output.show_answer(answer)
        output.out_json(answer.to_dict())
        output.show_run(record)
        output.show_runs(store.list(principal=OWNER))
        page = report(record)
    ended = exporter.get_finished_spans()
    spans = [f"{s.name} {dict(s.attributes or {})} {s.status.description} {s.events}" for s in ended]
    shown = capsys.readouterr()
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "index" not in file.parts]
    assert len(spans) > 4 and "[redacted]" in shown.out and "[redacted]" in page
    assert leaks(shown.out, shown.err, page, *spans, *kept, logged(caplog)) == []


def test_nothing_that_the_server_says_has_the_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with opened(tmp_path):
        pass  # so that the server finds an index
    app = create_app(
        config.load(tmp_path / "citehound.toml"),
        model=OpenedModel(model=telling(), name="scripted", price=FREE),
        port=8321,
    )
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        asked = client.post("/v1/ask", json={"question": f"What is {KEY}?", "mode": "agent"})
        run = f"/v1/runs/{asked.headers['x-run-id']}"
        bodies = [asked.text, client.get(run).text, client.get(f"{run}/events").text, client.get(f"{run}/report").text]
        bodies += [client.get(f"/v1/documents/{quote(KEY, safe='')}").text, client.get("/v1/runs").text]
        bodies += [client.post("/v1/search", json={"query": KEY, "source": KEY}).text, client.get("/metrics").text]
        bodies += [client.post("/v1/ask", json={"question": KEY, "mode": KEY, KEY: KEY}).text]
        streamed = client.post(
            "/v1/ask", json={"question": f"And {KEY}?", "mode": "agent"}, headers={"Accept": "text/event-stream"}
        )
        bodies.append(streamed.text)
    assert asked.status_code == streamed.status_code == 200
    assert leaks(*bodies, logged(caplog)) == []
    assert "[redacted]" in asked.text


@pytest.mark.slow
def test_neither_evaluations_nor_reports_nor_exports_nor_backups_have_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pydantic_evals")
    from citehound.cli import output
    from citehound.evals.cases import Case
    from citehound.evals.page import write_page
    from citehound.evals.runner import evaluate_sync

    caplog.set_level(logging.DEBUG)
    with opened(tmp_path) as corpus:
        made = corpus.config
    case = Case(
        id="one",
        question=f"What is {KEY}?",
        kind="single",
        must_read=("rules/security",),
        answer_points=(KEY,),
        missing=(),
    )
    model = OpenedModel(model=telling(), name="scripted", price=FREE)
    done = evaluate_sync(made, (case,), modes=("agent",), models=("m",), opened={"m": model})
    write_page(tmp_path / "evaluation.html", done, made)
    output.out_json(done.to_dict())
    app = create_app(made, model=model, port=8321)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        asked = {"model": "citehound", "messages": [{"role": "user", "content": f"What is {KEY}?"}]}
        bodies = [client.post("/v1/chat/completions", json=asked).text]
        bodies.append(client.post("/v1/chat/completions", json={**asked, "stream": True}).text)
        bodies += [client.get(path).text for path in ("/v1/dashboard", "/v1/dashboard/runs", "/metrics", "/v1/runs")]
    backup(made, tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        held = {m.name: file.read() for m in tar if (file := tar.extractfile(m)) is not None}
    kept = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and "index" not in file.parts]
    shown = capsys.readouterr()
    assert {"runs.sqlite", "backup.json"} <= held.keys() and b"[redacted]" in held["runs.sqlite"]
    assert "[redacted]" in (tmp_path / "evaluation.html").read_text("utf-8") and "[redacted]" in bodies[0]
    assert leaks(*held.values(), *kept, *bodies, shown.out, shown.err, logged(caplog)) == []


def crash(tmp_path: Path, debug: str) -> subprocess.CompletedProcess[str]:
    """The command line with a bug in it that says the key."""
    code = f"from citehound.cli import commands\ndef broken(*_):\n    raise RuntimeError({KEY!r} + ' is the key')\n"
    return subprocess.run(
        [sys.executable, "-c", f"{code}commands.load = broken\n{RUN}", "runs"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CITEHOUND_DEBUG": debug},
    )


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_crash_report_does_not_have_the_key(tmp_path: Path, debug: str) -> None:
    done = crash(tmp_path, debug)
    assert done.returncode == 1
    assert "RuntimeError: [redacted] is the key" in done.stderr
    assert ("Traceback" in done.stderr) == (debug == "1")
    assert leaks(done.stdout, done.stderr.replace(f"raise RuntimeError({KEY!r}", "")) == []


def test_an_error_of_a_provider_that_repeats_the_key_is_hidden(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from citehound.cli import output

    with opened(tmp_path) as corpus:
        model = ScriptedModel([CitehoundError(f"401: {KEY} is no valid key")], repeat_last=True)
        scripted = OpenedModel(model=model, name="scripted", price=FREE)
        answer = Assistant(corpus.config, corpus, scripted).ask_sync("What is it?", mode="agent")
        output.show_answer(answer)
        output.out_json(answer.to_dict())
        kept = [file.read_bytes() for file in tmp_path.rglob("runs.sqlite*")]
    shown = capsys.readouterr()
    assert leaks(shown.out, shown.err, *kept) == []


def test_instructions_and_marks_are_kept_from_answers(tmp_path: Path) -> None:
    """Both are written by code and mean nothing to a reader; a model that is told to repeat them does so in vain."""

    def repeating(request: ScriptedRequest) -> Draft:
        assert marks_of(request)
        return Draft(claims=(DraftClaim(text=f"{instructions_of(request)} {' '.join(marks_of(request))}"),))

    with opened(tmp_path) as corpus:
        model = ScriptedModel([call("read_document", {"document": "rules/security"}), repeating], repeat_last=True)
        scripted = OpenedModel(model=model, name="scripted", price=FREE)
        answer = Assistant(corpus.config, corpus, scripted).ask_sync("What is it?", mode="agent")
    long = [line for line in instructions_of(model.requests[0]).splitlines() if len(line) >= 100]
    assert len(long) > 5
    assert not [line for line in long if line in answer.text or line in str(answer.claims)]
    assert not [mark for mark in marks_of(model.requests[-1]) if mark in str(answer)]


def test_a_record_loses_nothing_else() -> None:
    assert json.loads(for_log_json({"a": ["\u202e", "é", KEY]})) == {"a": ["\u202e", "é", "[redacted]"]}
