"""`citehound doctor`: what it finds, what it says helps, what it spends, and what it never shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from citehound.cli import main
from citehound.config import load
from citehound.corpus import Corpus
from protocol_server import Server, refusing, serve
from small import write_corpus

KEY = "sk-nothing-real-but-long-enough"
DRAFT = {
    "claims": [
        {
            "text": "Alpha reports incidents within 24 hours.",
            "citations": [{"document": "glossary/alpha", "quote": "Alpha reports incidents within 24 hours."}],
        }
    ],
    "missing": [],
}
TWO_CALLS = {"kind": "tools", "calls": [{"name": "look_up", "args": {"word": w}} for w in ("alpha", "beta")]}
WELL = [TWO_CALLS, {"kind": "draft", "draft": DRAFT}]
TEXT = 'Alpha reports incidents within 24 hours. [glossary/alpha] "Alpha reports incidents within 24 hours."'
CLAUDE, GPT = "anthropic:claude-opus-5-5", "openai-chat:gpt-5.6-sol"


@dataclass(frozen=True, kw_only=True)
class Told:
    code: int
    data: dict[str, Any]
    text: str

    def of(self, check: str) -> dict[str, Any]:
        return next(f for f in self.data["findings"] if f["check"] == check)

    @property
    def faults(self) -> list[str]:
        return [f["check"] for f in self.data["findings"] if f["status"] == "fault"]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "CITEHOUND_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = write_corpus(tmp_path)
    with Corpus.open(load(path, env={}), write=True) as corpus:
        corpus.sync()
    return path


def doctor(toml: Path, *arguments: str) -> Told:
    ran = CliRunner().invoke(main, ["doctor", "--config", str(toml), "--json", *arguments])
    plain = CliRunner().invoke(main, ["doctor", "--config", str(toml), "--no-calls", *arguments])
    return Told(code=ran.exit_code, data=json.loads(ran.stdout), text=ran.output + plain.output)


def settings(toml: Path, lines: str) -> None:
    toml.write_text(lines + "\n" + toml.read_text("utf-8"), "utf-8")


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve(WELL * 3) as server:
        aim(server, monkeypatch)
        yield server


def aim(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_without_a_model_nothing_is_called_and_all_is_well(toml: Path) -> None:
    told = doctor(toml)
    assert (told.code, told.data["ok"], told.data["dollars"]) == (0, True, 0)
    assert "nothing is called" in told.of("model")["says"]
    assert told.of("index")["says"] == "it has every file as it is now"


@pytest.mark.parametrize(("model", "form"), [(CLAUDE, "native"), (GPT, "tool")])
def test_a_model_that_can_everything_is_said_to(toml: Path, well: Server, model: str, form: str) -> None:
    told = doctor(toml, "--model", model)
    assert told.code == 0, told.data
    for check in ("key", "price", "window", "tool call", "parallel calls", "structured answer", "streaming"):
        assert told.of(check)["status"] == "ok"
    uses = told.data["uses"]
    assert (uses["model"], uses["structured"], uses["stream"]) == (model, form, True)
    assert uses["modes"][0] == "agent"
    assert uses["window"] >= 100_000
    assert uses["dollars_per_million"]["cache_write"] > uses["dollars_per_million"]["input"]
    assert 0 < told.data["dollars"] <= 0.10
    assert len(well.requests()) == 2


def test_it_spends_no_more_than_the_cap_of_a_question(toml: Path, well: Server) -> None:
    settings(toml, "[budget]\nmax_dollars = 0.0001")
    told = doctor(toml, "--model", CLAUDE)
    assert told.faults == ["calls"]
    assert "max_dollars" in told.of("calls")["do"]
    assert well.requests() == []


def test_without_calls_the_model_is_left_alone(toml: Path, well: Server) -> None:
    told = doctor(toml, "--model", CLAUDE, "--no-calls")
    assert told.code == 0
    assert well.requests() == []


def test_a_missing_key_is_a_fault_that_names_its_variable(toml: Path) -> None:
    told = doctor(toml, "--model", CLAUDE)
    assert (told.code, told.faults) == (3, ["key"])
    assert "ANTHROPIC_API_KEY" in told.of("key")["do"]
    assert "gate not met: 1 fault found: key" in told.text


def test_a_refused_key_is_a_fault_and_is_never_shown(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"kind": "http", "status": 401, "error_type": "authentication_error", "message": f"bad key {KEY}"}
    with serve([said] * 3) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", GPT)
        assert len(server.requests()) == 1
    assert (told.code, told.faults) == (3, ["key"])
    assert KEY not in told.text


def test_a_model_that_calls_no_tool_is_offered_single_and_hops(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve([{"kind": "final", "text": "ready"}, {"kind": "final", "text": TEXT, "repeat": True}]) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", GPT)
        assert told.code == 3
        assert "tools = false" in told.of("tool call")["do"]
        assert told.data["uses"]["modes"] == ["single", "hops"]
        assert told.data["uses"]["structured"] == "text"
        settings(toml, '[model]\ntools = false\nstructured = "text"')
        assert doctor(toml, "--model", GPT).code == 0, "as it says, all is well"


def test_one_call_at_a_time_is_a_note(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"kind": "tool", "name": "look_up", "args": {"word": "alpha"}}
    with serve([one, WELL[1]]) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", GPT)
    assert told.code == 0
    assert told.of("parallel calls")["status"] == "note"


def test_a_form_that_does_not_work_is_replaced_by_one_that_does(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"kind": "http", "status": 400, "error_type": "invalid_request_error", "message": "schema is not known"}
    with serve([TWO_CALLS, refused, {"kind": "final", "text": TEXT}]) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", CLAUDE)
    assert told.faults == ["structured answer"]
    assert "schema is not known" in told.of("structured answer")["says"]
    assert told.of("structured answer")["do"] == 'set `structured = "text"` under [model]'
    assert told.data["uses"]["structured"] == "text"


def test_what_was_found_before_a_failure_is_told(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {"kind": "http", "status": 402, "error_type": "billing_error", "message": "credit balance is too low"}
    with serve([TWO_CALLS, spent]) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", GPT)
    assert told.of("tool call")["status"] == "ok"
    assert told.faults == ["structured answer"]
    assert "balance" in told.of("structured answer")["do"]


def test_a_server_that_cannot_stream_is_asked_without(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"kind": "http", "status": 400, "error_type": "invalid_request_error", "message": "no streaming"}
    with serve([refused, *WELL]) as server:
        aim(server, monkeypatch)
        told = doctor(toml, "--model", GPT)
    assert told.code == 0
    assert told.of("streaming")["do"] == "set `stream = false` under [model]"
    assert told.data["uses"]["stream"] is False


def test_a_server_that_is_not_there_is_a_fault(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citehound.cli.probe.PAUSE_SECONDS", 0.0)
    with refusing() as address:
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{address}/v1")
        told = doctor(toml, "--model", "ollama:qwen3")
    assert told.faults == ["calls"]
    assert "start the server" in told.of("calls")["do"]
    assert told.of("price")["says"].startswith("free")


def test_an_unknown_price_is_a_fault_under_a_cap_and_nothing_is_asked(toml: Path, well: Server) -> None:
    told = doctor(toml, "--model", "openai-compatible:mine")
    assert told.faults == ["price"]
    assert "[model.price]" in told.of("price")["do"]
    assert told.of("window")["status"] == "note"
    assert well.requests() == []
    settings(toml, "[model.price]\ninput = 0\noutput = 0\n")
    assert doctor(toml, "--model", "openai-compatible:mine").code == 0


def test_the_small_model_is_tried_too(toml: Path, well: Server) -> None:
    settings(toml, '[model]\nsmall = "openai-compatible:little"')
    told = doctor(toml, "--model", GPT)
    assert told.faults == ["small model: price"]
    assert "[model.small_price]" in told.of("small model: price")["do"]
    settings(toml, "[model.small_price]\ninput = 1\noutput = 2\n")
    told = doctor(toml, "--model", GPT)
    assert told.code == 0, told.data
    assert told.of("small model")["says"] == "openai-compatible:little works"


def test_a_key_on_its_way_without_encryption_is_noted(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://models.example/v1")
    told = doctor(toml, "--model", GPT, "--no-calls")
    assert told.code == 0
    assert told.of("address")["says"] == "the key and the documents go to models.example unencrypted"


def test_a_name_that_is_not_known_is_a_fault(toml: Path) -> None:
    told = doctor(toml, "--model", "antropic:claude-opus-5-5")
    assert told.faults == ["model"]
    assert "did you mean 'anthropic:claude-opus-5-5'?" in told.of("model")["says"]


def test_a_missing_index_is_a_note(tmp_path: Path) -> None:
    told = doctor(write_corpus(tmp_path))
    assert told.code == 0
    assert told.of("index") == {
        "check": "index",
        "status": "note",
        "says": "there is none yet; the first question would build it",
        "do": "run 'citehound index'",
    }


def test_an_outdated_index_says_which_files_differ(toml: Path) -> None:
    (toml.parent / "deals/beta.md").unlink()
    (toml.parent / "deals/alpha.md").write_text("# Contract Alpha\n\nAnother text.\n", "utf-8")
    (toml.parent / "deals/gamma.md").write_text("# Contract Gamma\n\nA new one.\n", "utf-8")
    told = doctor(toml)
    assert told.code == 0
    assert "1 new (gamma.md), 1 changed (alpha.md), 1 removed (beta.md)" in told.of("index")["says"]
    assert told.of("index")["do"] == "run 'citehound index'"


def test_a_broken_index_is_a_fault(toml: Path) -> None:
    for file in (toml.parent / ".citehound/index").rglob("*"):
        if file.is_file():
            file.write_bytes(b"broken")
    told = doctor(toml)
    assert (told.code, told.faults) == (3, ["index"])


def test_files_that_could_not_be_read_are_told(toml: Path) -> None:
    (toml.parent / "deals/torn.pdf").write_bytes(b"%PDF-1.7 torn")
    with Corpus.open(load(toml, env={}), write=True) as corpus:
        corpus.sync()
    told = doctor(toml)
    note = next(f for f in told.data["findings"] if "torn.pdf" in f["says"])
    assert (note["check"], note["status"]) == ("sources", "note")


@pytest.mark.parametrize("broken", ["[modell]\n", "not toml", '[model]\nname = ""\n'])
def test_a_configuration_that_is_wrong_is_a_fault(toml: Path, broken: str) -> None:
    settings(toml, broken)
    told = doctor(toml)
    assert (told.code, told.faults) == (3, ["configuration"])
    assert told.data["uses"] is None


def test_people_get_lines_with_what_helps(toml: Path, well: Server) -> None:
    ran = CliRunner().invoke(main, ["doctor", "--config", str(toml), "--model", CLAUDE])
    assert ran.exit_code == 0
    assert "for at most $0.10 in all" in ran.stderr
    assert "ok     tool call: works" in ran.stdout
    assert "Will be used: anthropic:claude-opus-5-5; modes agent, single, hops;" in ran.stdout
