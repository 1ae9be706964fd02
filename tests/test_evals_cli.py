"""`citehound eval` as a user meets it: output, gates, baseline, page, recorded runs, feedback and new cases."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("pydantic_evals")

from citehound.cli import cli

CASES = "cases.jsonl"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CITEHOUND_", "OTEL_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path, bank_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "haulbox"
    shutil.copytree(bank_root.parent / "retention", folder, ignore=shutil.ignore_patterns(".citehound"))
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_modes_stand_side_by_side_in_a_table_that_fits(home: Path) -> None:
    done = run("eval", CASES, "--modes", "single,agent")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert any(line.split() == ["single", "agent"] for line in lines)
    assert any(line.startswith("must read") for line in lines)
    assert max(map(len, lines)) <= 100
    assert "agent against single" in done.stdout


def test_json_is_the_contract(home: Path) -> None:
    done = run("eval", CASES, "--modes", "agent", "--json")
    row = json.loads(done.stdout)["modes"]["agent"]
    assert 0 <= row["metrics"]["must_read_recall"] <= 1
    for case in row["cases"]:
        assert {"id", "metrics", "run_id"} <= set(case)
        shown = run("runs", case["run_id"], "--json")
        assert json.loads(shown.stdout)["run_id"] == case["run_id"]


def test_a_gate_that_is_not_met_exits_3_and_says_which(home: Path) -> None:
    done = run("eval", CASES, "--modes", "agent", "--fail-under", "searches=1000,citations_valid=1")
    assert done.exit_code == 3
    assert "agent: searches is" in done.stderr and "under 1000" in done.stderr
    assert "citations_valid" not in done.stderr.splitlines()[-1]
    assert run("eval", CASES, "--modes", "agent", "--fail-under", "citations_valid=1").exit_code == 0


def test_a_baseline_is_compared(home: Path) -> None:
    before = run("eval", CASES, "--modes", "agent", "--json").stdout
    Path("old.json").write_text(before, "utf-8")
    same = run("eval", CASES, "--modes", "agent", "--baseline", "old.json")
    assert "nothing changed against the baseline" in same.stdout
    worse = json.loads(before)
    worse["modes"]["agent"]["cases"][0]["metrics"]["must_read_recall"] = 0.0
    Path("old.json").write_text(json.dumps(worse), "utf-8")
    changed = run("eval", CASES, "--modes", "agent", "--baseline", "old.json")
    assert f"better  agent {worse['modes']['agent']['cases'][0]['id']}: must read 0.00 -> " in changed.stdout


def test_the_report_is_written(home: Path) -> None:
    done = run("eval", CASES, "--modes", "single,agent", "--report", "out.html")
    assert done.exit_code == 0
    html = Path("out.html").read_text("utf-8")
    assert html.startswith("<!doctype html>") and "Chart" in html


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a file of cases"),
        (("none.jsonl",), "there are no cases at 'none.jsonl'"),
        ((CASES, "--runs"), "name a file of cases, or one of --runs and --new RUN"),
        ((CASES, "--since", "7d"), "--since goes with --runs"),
        (("--runs", "--since", "soon"), "is no span of time"),
        ((CASES, "--modes", "best"), "--modes names 'best'"),
        ((CASES, "--modes", ","), "--modes is empty"),
        ((CASES, "--fail-under", "must_red=1"), "names no metric"),
        ((CASES, "--baseline", "citehound.toml"), "the baseline 'citehound.toml' cannot be read"),
        ((CASES, "--report", "no/such/folder.html"), "its folder does not exist"),
        ((CASES, "--judge"), "--judge needs a model"),
        (("--new", "zzz"), "no run 'zzz'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(home: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run("eval", *arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_an_unknown_document_in_a_case_is_told_before_anything_is_asked(home: Path) -> None:
    Path("bad.jsonl").write_text('{"id": "a", "question": "How long?", "must_read": ["docs/READM"]}', "utf-8")
    done = run("eval", "bad.jsonl")
    assert done.exit_code == 2
    assert "case 'a'" in done.stderr and "docs/README" in done.stderr.splitlines()[-1]
    assert "no runs yet" in run("runs").output


def test_recorded_runs_are_measured_and_judged_by_people(home: Path) -> None:
    assert "no recorded runs" in run("eval", "--runs").stdout
    assert run("ask", "How long are files kept?").exit_code == 0
    (line,) = json.loads(run("runs", "--json").stdout)
    noted = run("runs", line["run_id"], "--good", "--reason", "found the change")
    assert noted.exit_code == 0 and "noted" in noted.stderr
    shown = run("runs", line["run_id"])
    assert "feedback: good" in shown.stdout and "found the change" in shown.stdout
    assert json.loads(run("runs", line["run_id"], "--json").stdout)["feedback"] == {
        "good": True,
        "reason": "found the change",
    }
    measured = run("eval", "--runs", "--since", "1h")
    assert "1 recorded runs" in measured.stdout and "citations valid" in measured.stdout
    case = json.loads(run("eval", "--new", line["run_id"]).stdout)
    assert case["question"] == "How long are files kept?"
    assert case["must_read"] and case["answer_points"]
    Path("new.jsonl").write_text(json.dumps(case), "utf-8")
    again = json.loads(run("eval", "new.jsonl", "--modes", "auto", "--json").stdout)
    assert again["modes"]["auto"]["metrics"]["must_read_recall"] == 1.0


@pytest.mark.parametrize(
    "arguments", [("--good",), ("x", "--reason", "why"), ("zzz", "--bad"), ("--bad", "--reason", "x" * 3000)]
)
def test_feedback_without_a_run_is_refused(home: Path, arguments: tuple[str, ...]) -> None:
    assert run("runs", *arguments).exit_code == 2


def test_compound_questions_are_suggested_where_documents_name_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {
        "a.md": "# Outsourcing Policy\n\n## 7 Encryption\n\nAlgorithms are set in the Information Security Policy.\n",
        "b.md": "# Information Security Policy\n\n## 4 Ciphers\n\nAES-256 is required.\n",
    }.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "citehound.toml").write_text('[[sources]]\nname = "p"\npath = "."\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    (case,) = [json.loads(line) for line in run("eval", "--new", "suggest").stdout.splitlines()]
    assert case["must_read"] == ["p/a#7", "p/b"]
    assert "Algorithms are set in the Information Security Policy." in case["question"]


def test_nothing_to_suggest_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("# Alone\n\nNobody else is here.\n", "utf-8")
    (tmp_path / "citehound.toml").write_text('[[sources]]\nname = "p"\npath = "."\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    done = run("eval", "--new", "suggest")
    assert done.exit_code == 2
    assert "nothing to suggest" in done.stderr
