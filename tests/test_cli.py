"""The command line as a user meets it: exit codes, streams, JSON shapes, hostile input, 80 columns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from citehound.answers import Answer, Citation, Claim, Gap
from citehound.cli import cli, commands, output

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = Path(__file__).parent / "snapshots" / "help.txt"
QUESTION = "Does the contract with supplier Alpha comply with the current outsourcing policy?"
FORBIDDEN = {"\x1b", "\x9b", "\x9d", "\x07", "\x08", "\r", "\x00", "\u202e"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CITEHOUND_", "OTEL_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory, bank_root: Path) -> Path:
    """An indexed copy of the bank corpus."""
    folder = tmp_path_factory.mktemp("bank") / "bank"
    shutil.copytree(bank_root, folder, ignore=shutil.ignore_patterns(".citehound"))
    assert run("index", "--config", folder / "citehound.toml").exit_code == 0
    return folder / "citehound.toml"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with one document and no index."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "widget.md").write_text("# Widget\n\nThe widget lasts five years.\n", "utf-8")
    (tmp_path / "citehound.toml").write_text('[[sources]]\nname = "notes"\npath = "notes"\n', "utf-8")
    return tmp_path / "citehound.toml"


def run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


def refused(result: Result, code: int, *says: str) -> str:
    """Checks the exit code, an empty stdout and a last line on stderr with all of `says`."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    line = result.stderr.rstrip("\n").splitlines()[-1]
    for part in says:
        assert part in line
    return line


def program(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-W", "error", "-m", "citehound", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, **options)


# help


def help_pages() -> str:
    pages: list[str] = []
    for name in ("", *sorted(n for n, c in cli.commands.items() if not c.hidden)):
        result = run(*([name] if name else []), "--help")
        assert result.exit_code == 0
        pages.append(result.stdout)
    return "\n".join(pages)


def test_the_help_reads_as_it_did() -> None:
    pages = help_pages()
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(pages, "utf-8")
    assert pages == SNAPSHOT.read_text("utf-8"), "run with UPDATE_SNAPSHOTS=1 when the change is wanted"


def test_the_help_fits_80_columns() -> None:
    assert [line for line in help_pages().splitlines() if len(line) > 80] == []


def test_every_command_takes_config() -> None:
    for name, command in cli.commands.items():
        if not command.hidden:
            assert "--config" in [o for p in command.params for o in p.opts], name


def test_without_arguments_the_usage_is_shown() -> None:
    result = run()
    assert result.exit_code == 2
    assert "Usage:" in result.output


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("citehound ")


# wrong usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["frobnicate"], "frobnicate"),
        (["ask"], "QUESTION"),
        (["ask", "x", "--mode", "deep"], "deep"),
        (["ask", "x", "--max-steps", "0"], "--max-steps"),
        (["ask", "x", "--max-dollars", "-1"], "--max-dollars"),
        (["ask", ""], "the question is empty"),
        (["ask", " \n\t"], "the question is empty"),
        (["ask", "\x1b\x07\u202e"], "the question is empty"),
        (["ask", "x" * 8001], "at most 8,000"),
        (["search", "notes", "x", "--filter", "supplier"], "KEY=VALUE"),
        (["search", "notes", "x", "--filter", "a=1", "--filter", "a=2"], "twice"),
        (["search", "note", "x"], "did you mean 'notes'?"),
        (["search", "notes", " "], "query is empty"),
        (["search", "notes", "x", "-k", "0"], "-k"),
        (["read", "nothing"], "'nothing'"),
        (["read", "nosuch"], "'citehound search SOURCE WORDS' finds documents"),
        (["read", "wigdet"], "nearest: 'notes/widget'"),
        (["read", "widget", "--start", "999999"], "past the end: 'notes/widget' has 36 characters"),
        (["search", "notes", "x", "--per-document", "0"], "--per-document"),
        (["read", "widget", "--section", "99"], "'99'"),
        (["runs", "nothing"], "'nothing'"),
        (["index", "--report", "no/such/folder/x.json"], "--report"),
        (["demo", "other"], "other"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(small: Path, arguments: list[str], says: str) -> None:
    extra = ["--config", str(small)] if arguments != ["frobnicate"] else []
    refused(run(*arguments, *extra), 2, says)


def test_a_wrong_configuration_is_one_line_and_exit_2(small: Path, tmp_path: Path) -> None:
    refused(run("ask", "x", "--config", tmp_path / "no.toml"), 2, "no.toml")
    refused(run("--config", tmp_path / "no.toml", "ask", "x"), 2, "no.toml")
    small.write_text("[budget]\nmax_step = 1\n")
    for command in (["index"], ["ask", "x"], ["search", "a", "b"], ["read", "a"], ["runs"]):
        refused(run(*command, "--config", small), 2, "did you mean 'budget.max_steps'?")


def test_an_unknown_model_is_one_line_and_exit_2(small: Path) -> None:
    result = run("ask", "x y", "--model", "nobody:nothing", "--config", small)
    refused(result, 2, "nobody")


def test_a_bug_is_one_line_that_says_how_to_report_it(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(commands, "load", broken)
    line = refused(run("runs", "--config", small), 1, "RuntimeError: two lines", "CITEHOUND_DEBUG=1")
    assert line.startswith("error: ")
    monkeypatch.setenv("CITEHOUND_DEBUG", "1")
    shown = run("runs", "--config", small)
    assert shown.exit_code == 1
    assert "Traceback" in shown.stderr and "RuntimeError: two" in shown.stderr


# init and index


def test_init_writes_a_file_that_index_and_ask_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("# Widget\n\nThe widget lasts five years.\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("init").exit_code == 0
    assert run("index", "--strict").exit_code == 0
    assert "notes/a" in run("search", "notes", "widget").stdout
    refused(run("init"), 2, "is there already")


def test_init_refuses_a_folder_without_documents(tmp_path: Path) -> None:
    refused(run("init", tmp_path), 2, "no documents")
    refused(run("init", tmp_path / "nowhere"), 2, "nowhere")
    assert not (tmp_path / "citehound.toml").exists()


def test_index_reports_every_file(small: Path, tmp_path: Path) -> None:
    (tmp_path / "notes" / "scan.pdf").write_bytes(b"%PDF-1.4")
    report = tmp_path / "report.json"
    first = run("index", "--config", small, "--report", report)
    assert first.exit_code == 0
    assert "1 indexed" in first.stdout
    assert "scan.pdf" in first.stdout
    data = json.loads(report.read_text("utf-8"))
    assert data["counts"]["indexed"] == 1
    assert {f["path"]: f["status"] for f in data["files"]}["scan.pdf"] == "failed"
    assert all(f["reason"] for f in data["files"] if f["status"] in ("skipped", "failed"))
    assert "1 unchanged" in run("index", "--config", small).stdout
    assert "1 indexed" in run("index", "--rebuild", "--config", small).stdout


def test_explain_shows_how_a_file_is_read_section_by_section(small: Path, tmp_path: Path) -> None:
    page = tmp_path / "notes" / "new.html"
    page.write_text("<h1>Leave</h1><p>Rest.</p><h2>Sick leave</h2><p>Tell us by <b>ten</b>.</p>", "utf-8")
    result = run("index", "--explain", page, "--config", small)
    assert result.exit_code == 0
    assert "format: html" in result.stdout and "title: Leave" in result.stdout
    assert "Sick leave" in result.stdout and "Tell us by ten." in result.stdout
    assert not (tmp_path / ".citehound").exists()
    page.write_bytes(b"%PDF-1.4")
    refused(run("index", "--explain", page, "--config", small), 2, "damaged")
    refused(run("index", "--explain", tmp_path / "none.md", "--config", small), 2, "none.md")


def test_a_file_of_another_source_and_what_is_hidden_are_not_reported(small: Path) -> None:
    with small.open("a") as file:
        file.write('[[sources]]\nname = "root"\npath = "."\ninclude = ["/*.md"]\n')
    for name in ("loose.md", "left.txt", ".hidden.md"):
        (small.parent / name).write_text("# Loose\n\nText.\n", "utf-8")
    result = run("index", "--config", small)
    assert "2 indexed, 0 unchanged, 0 removed, 1 skipped" in result.stdout
    assert "root/left.txt: not included" in " ".join(result.stdout.split())
    assert not any(word in result.stdout for word in ("widget", "hidden", ".toml", ".citehound"))


def test_index_strict_fails_on_a_failed_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from citehound.corpus import FileReport, SyncReport

    bad = FileReport(source="notes", path="b.md", status="failed", reason="broken")

    def failing(*_: object, **__: object) -> SyncReport:
        return SyncReport(files=(bad,))

    monkeypatch.setattr(commands, "_sync", failing)
    assert run("index", "--config", small).exit_code == 0
    strict = run("index", "--strict", "--config", small)
    assert strict.exit_code == 3
    assert "notes/b.md: broken" in strict.stdout


def test_a_corrupt_index_is_refused_until_it_is_rebuilt(small: Path, tmp_path: Path) -> None:
    assert run("index", "--config", small).exit_code == 0
    for file in (tmp_path / ".citehound" / "index").rglob("*"):
        if file.is_file():
            file.write_bytes(b"garbage" * 200)
    refused(run("search", "notes", "widget", "--config", small), 1, "citehound index --rebuild")
    assert run("index", "--rebuild", "--config", small).exit_code == 0
    assert "widget" in run("search", "notes", "widget", "--config", small).stdout


# ask

ANSWER_KEYS = {
    "question",
    "requested_mode",
    "mode",
    "route",
    "model",
    "status",
    "text",
    "claims",
    "missing",
    "calls",
    "stop_reason",
    "usage",
    "warnings",
    "run_id",
}


def test_ask_json_is_one_answer(bank: Path) -> None:
    result = run("ask", QUESTION, "--json", "--config", bank)
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert set(answer) >= ANSWER_KEYS
    assert answer["question"] == QUESTION
    assert (answer["requested_mode"], answer["mode"], answer["model"]) == ("auto", "agent", "offline")
    assert set(answer["claims"][0]) >= {"text", "kind", "status", "warnings", "citations", "premises"}
    citation = answer["claims"][0]["citations"][0]
    assert set(citation) >= {
        "document",
        "section",
        "page",
        "quote",
        "start",
        "end",
        "sentence",
        "status",
        "reason",
    }
    assert set(answer["missing"][0]) >= {"what", "status", "sources", "queries", "reason"}
    call = answer["calls"][0]
    assert set(call) >= {"step", "agent", "tool", "arguments", "source", "returned", "error", "seconds"}
    assert set(answer["usage"]) >= {
        "steps",
        "model_calls",
        "searches",
        "reads",
        "input_tokens",
        "cached_tokens",
        "output_tokens",
        "dollars",
        "seconds",
    }
    searches = [c for c in answer["calls"] if c["tool"].startswith("search_")]
    assert answer["usage"]["searches"] == len(searches)


def test_ask_shows_steps_on_stderr_and_the_answer_on_stdout(bank: Path) -> None:
    result = run("ask", QUESTION, "--config", bank)
    assert result.exit_code == 0
    assert "search contracts [supplier=Alpha]" in result.stderr
    assert "read policies/outsourcing-policy-v4" in result.stderr
    assert "Sources" in result.stdout
    assert "72 hours" in result.stdout
    assert "[verified;" in result.stdout
    assert "MISSING: " in result.stdout
    assert "offline | agent |" in result.stdout
    assert "search contracts" not in result.stdout.split("MISSING")[0]
    everything = result.stdout + result.stderr
    assert [line for line in everything.splitlines() if len(line) > 80] == []
    assert not FORBIDDEN & set(everything)


def test_ask_without_an_index_builds_it_first(small: Path) -> None:
    result = run("ask", "How long does the widget last?", "--config", small)
    assert result.exit_code == 0
    assert "indexing" in result.stderr
    assert "five years" in result.stdout


def test_ask_needs_no_files_where_every_source_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "live_notes.py").write_text("def search(query):\n    return ['Deleted files are kept for 90 days.']\n")
    (tmp_path / "citehound.toml").write_text(
        '[[sources]]\nname = "notes"\nkind = "python"\ncall = "live_notes:search"\ndescription = "Notes."\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = run("ask", "How long are deleted files kept?", "--json", "--config", tmp_path / "citehound.toml")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["claims"][0]["text"] == "Deleted files are kept for 90 days."


def test_ask_reads_the_question_from_stdin(small: Path) -> None:
    result = run("ask", "-", "--json", "--config", small, stdin="How long does the\x00 \x1b[31mwidget last?\n")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["question"] == "How long does the [31mwidget last?"
    refused(run("ask", "-", "--config", small, stdin=""), 2, "the question is empty")
    refused(run("ask", "-", "--config", small, stdin="x" * 1_000_000), 2, "8,000")
    assert run("ask", "-", "--config", small, stdin=b"widget \xff\xfe last?").exit_code == 0
    assert run("ask", "-", "--config", small, stdin="é" * 8000).exit_code == 0


def test_events_are_one_object_a_line_and_end_with_the_answer(small: Path) -> None:
    result = run("ask", "How long does the widget last?", "--events", "--config", small)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert events[0]["type"] == "run_started"
    assert events[-1]["type"] == "answer"
    assert {"step_started", "tool_called", "hits", "read", "verdict"} <= {e["type"] for e in events}
    both = run("ask", "How long does the widget last?", "--events", "--json", "--config", small)
    assert json.loads(both.stdout)["status"] == events[-1]["answer"]["status"]
    assert '"type": "hits"' in both.stderr


def test_strict_is_a_gate(small: Path) -> None:
    assert run("ask", "How long does the widget last?", "--strict", "--config", small).exit_code == 0
    result = run("ask", "Which moons has Saturn?", "--strict", "--config", small)
    assert result.exit_code == 3
    assert result.stdout
    assert run("ask", "Which moons has Saturn?", "--config", small).exit_code == 0


def test_limits_of_the_command_line_count(bank: Path) -> None:
    result = run("ask", QUESTION, "--max-steps", "2", "--json", "--config", bank)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["usage"]["steps"] <= 2


def test_single_mode_searches_each_source_once(bank: Path) -> None:
    answer = json.loads(run("ask", QUESTION, "--mode", "single", "--json", "--config", bank).stdout)
    assert answer["mode"] == "single"
    sources = [c["source"] for c in answer["calls"] if c["tool"].startswith("search_")]
    assert len(sources) == len(set(sources))
    read = [c["returned"][0]["document"] for c in answer["calls"] if c["tool"] == "read_document"]
    assert 0 < len(read) == answer["usage"]["reads"] <= 6
    tree = run("runs", answer["run_id"], "--config", bank).stdout
    assert tree.count("read_document document=") == len(read)


@pytest.mark.parametrize(
    ("stop", "ctrl_c"),
    [(signal.SIGINT, "default_int_handler"), (signal.SIGTERM, "default_int_handler"), (signal.SIGTERM, "SIG_IGN")],
)
def test_an_interrupt_exits_130_and_the_run_is_kept(small: Path, stop: signal.Signals, ctrl_c: str) -> None:
    code = (
        "import os, signal, sys, asyncio\n"
        f"signal.signal(signal.SIGINT, signal.{ctrl_c})\n"
        "from citehound import loop\n"
        f"async def hang(*a, **k): os.kill(os.getpid(), {int(stop)}); await asyncio.sleep(30)\n"
        "import citehound.agent; citehound.agent.run_agent = hang\n"
        f"from citehound.cli import main; main(['ask', 'How long?', '--config', {str(small)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in done.stderr
    assert [r["status"] for r in json.loads(run("runs", "--json", "--config", small).stdout)] != []


def test_nobody_reading_is_no_error(bank: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "citehound", "read", "outsourcing-policy-v4", "--json", "--config", str(bank)]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert done.returncode in (0, 1)
    assert b"rror" not in done.stderr


def test_a_terminal_without_unicode_gets_replacements(small: Path, tmp_path: Path) -> None:
    (tmp_path / "notes" / "widget.md").write_text("# Widget\n\nThe widget “lasts” fünf years.\n", "utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = program("ask", "How long does the widget last?", "--config", small, env=environment)
    assert done.returncode == 0, done.stderr
    assert "?lasts? fünf".encode("latin-1") in done.stdout


def test_on_a_terminal_there_is_a_bar_and_no_banner(small: Path) -> None:
    import pty

    main_end, terminal_end = pty.openpty()
    command = [sys.executable, "-m", "citehound", "ask", "How long does the widget last?", "--config", str(small)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal_end)
    os.close(terminal_end)
    shown = b""
    while True:
        try:
            part = os.read(main_end, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(main_end)
    assert process.stdout is not None
    result = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert b"indexing" in shown
    assert b"pydantic" not in shown
    assert b"five years" in result
    assert b"\x1b" not in result


# search and read


def test_search_json_has_its_shape(bank: Path) -> None:
    data = json.loads(run("search", "policies", "outsourcing policy", "--json", "--config", bank).stdout)
    assert set(data) >= {"hits", "hidden_superseded"}
    assert data["hidden_superseded"] >= 1
    for hit in data["hits"]:
        assert set(hit) >= {"document", "section", "title", "snippet", "score", "current", "metadata"}
        assert hit["current"] is True
        assert len(hit["snippet"]) <= 300


def test_search_narrows_and_widens(bank: Path) -> None:
    def found(*extra: str) -> list[str]:
        out = run("search", "contracts", "incident notification", "--json", "--config", bank, *extra).stdout
        return [h["document"] for h in json.loads(out)["hits"]]

    assert found("--filter", "supplier=Alpha")
    assert all("alpha" in d for d in found("--filter", "supplier=Alpha"))
    assert found("--filter", "supplier=Nobody") == []
    assert len(found("-k", "1")) == 1
    old = run("search", "policies", "outsourcing", "--all-versions", "-k", "12", "--json", "--config", bank).stdout
    assert "policies/outsourcing-policy-v3" in [h["document"] for h in json.loads(old)["hits"]]


def test_search_says_what_was_hidden(bank: Path) -> None:
    assert "--all-versions" in run("search", "policies", "outsourcing policy", "--config", bank).stdout


def test_search_shows_more_of_one_document_when_asked(small: Path) -> None:
    parts = "".join(
        f"## {n} Part\n\nThe gadget has part {n}. " + "It is made of steel. " * 40 + "\n\n" for n in range(5)
    )
    (small.parent / "notes" / "gadget.md").write_text(f"# Gadget\n\n{parts}", "utf-8")
    bounded = json.loads(run("search", "notes", "gadget part", "--json", "--config", small).stdout)
    assert [h["document"] for h in bounded["hits"]].count("notes/gadget") == 2
    assert any("'notes/gadget' held back; --per-document" in n for n in bounded["notes"])
    more = run("search", "notes", "gadget part", "--per-document", "12", "-k", "12", "--json", "--config", small)
    wide = json.loads(more.stdout)
    assert [h["document"] for h in wide["hits"]].count("notes/gadget") >= 5
    assert wide["notes"] == []


@pytest.mark.parametrize(("query", "noted"), [("???", True), ("-- !", True), ("zebra", False)])
def test_a_query_without_words_is_noted(small: Path, query: str, noted: bool) -> None:
    found = run("search", "--json", "--config", small, "--", "notes", query)
    assert found.exit_code == 0
    assert any("no words to search for" in n for n in json.loads(found.stdout)["notes"]) is noted


def test_a_variable_that_is_no_setting_is_noted(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITEHOUND_SOMETHING", "1")
    result = run("runs", "--config", small)
    assert result.exit_code == 0 and result.stdout == ""
    assert "CITEHOUND_SOMETHING" in result.stderr and "is ignored; the nearest is CITEHOUND_" in result.stderr


def test_pages_of_a_read_join_without_a_gap(small: Path, tmp_path: Path) -> None:
    text = "# Long\n\n" + "\n\n".join(f"Paragraph {n} says something about the matter of it." for n in range(400))
    (tmp_path / "notes" / "long.md").write_text(text, "utf-8")
    assert run("index", "--config", small).exit_code == 0
    pages: list[dict[str, Any]] = []
    start: int | None = 0
    while start is not None:
        page = json.loads(run("read", "long", "--start", str(start), "--json", "--config", small).stdout)
        assert set(page) >= {
            "document",
            "section",
            "title",
            "text",
            "start",
            "end",
            "next_start",
            "total_chars",
            "outline",
            "current",
            "metadata",
        }
        pages.append(page)
        start = page["next_start"]
    assert len(pages) > 2
    whole = "".join(p["text"] for p in pages)
    assert len(whole) == pages[0]["total_chars"]
    assert "Paragraph 399 says" in whole


def test_read_prints_the_text_alone_on_stdout(bank: Path) -> None:
    result = run("read", "outsourcing-policy-v4", "--section", "7.2", "--config", bank)
    data = json.loads(run("read", "outsourcing-policy-v4", "--section", "7.2", "--json", "--config", bank).stdout)
    assert result.stdout == data["text"] + "\n"
    assert "policies/outsourcing-policy-v4 §7.2" in result.stderr


# runs and demo


def test_runs_lists_and_shows_a_tree(bank: Path) -> None:
    answer = json.loads(run("ask", QUESTION, "--json", "--config", bank).stdout)
    listing = run("runs", "--config", bank)
    assert answer["run_id"] in listing.stdout
    tree = run("runs", answer["run_id"][:12], "--config", bank)
    assert tree.exit_code == 0
    for part in (
        answer["run_id"],
        "|- step 1",
        "search contracts [supplier=Alpha]",
        "-> ",
        "[verified]",
        "MISSING",
        "`- ",
    ):
        assert part in tree.stdout
    assert [line for line in tree.stdout.splitlines() if len(line) > 80] == []
    data = json.loads(run("runs", answer["run_id"], "--json", "--config", bank).stdout)
    assert data["claims"] == answer["claims"]
    assert data["events"][0]["type"] == "run_started"
    assert len(json.loads(run("runs", "--limit", "1", "--json", "--config", bank).stdout)) == 1


def test_runs_before_the_first_run_is_no_error(small: Path) -> None:
    result = run("runs", "--config", small)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert not (small.parent / ".citehound").exists()


@pytest.mark.parametrize(("name", "part"), [("compliance", "72 hours"), ("retention", "30 days")])
def test_the_demos_run_outside_the_package(
    name: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bank_root: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = sorted(p for p in bank_root.parent.rglob("*") if "__pycache__" not in p.parts)
    result = run("demo", name)
    assert result.exit_code == 0
    assert part in result.stdout
    assert sorted(p for p in bank_root.parent.rglob("*") if "__pycache__" not in p.parts) == before
    assert list((tmp_path / "cache").rglob("*.sqlite"))
    assert run("demo", name).exit_code == 0


def test_a_demo_finds_a_place_when_the_cache_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("demo").exit_code == 0
    assert list(tmp_path.glob("citehound-*/demos/bank-*"))


# what an answer looks like


def shown(answer: Answer) -> str:
    @click.command()
    def show() -> None:
        output.show_answer(answer)

    return CliRunner().invoke(show).stdout


def hostile(text: str) -> str:
    return f"{text} \x1b]8;;http://evil.example\x07link\x1b\\ \x9b2J \u202etxt \x08\r\x00"


def test_nothing_of_an_answer_reaches_the_terminal_unclean() -> None:
    citation = Citation(document=hostile("a/b"), quote=hostile("quote"), section=hostile("1"), reason=hostile("why"))
    answer = Answer(
        question="q",
        requested_mode="auto",
        mode="agent",
        route="",
        model=hostile("m"),
        status="partial",
        text=hostile("text"),
        claims=(Claim(text=hostile("claim"), warnings=(hostile("warning"),), citations=(citation,)),),
        missing=(Gap(what=hostile("what"), reason=hostile("reason"), queries=(hostile("q"),)),),
        warnings=(hostile("warning"),),
        run_id="r1",
    )
    assert not FORBIDDEN & set(shown(answer))


def test_doubts_and_gaps_cannot_be_overlooked() -> None:
    bad = Citation(document="a/b", quote="never written there", section="1", reason="the quote is not in the text")
    answer = Answer(
        question="q",
        requested_mode="auto",
        mode="agent",
        route="",
        model="offline",
        status="partial",
        text="1. Something. **(unverified)**",
        claims=(Claim(text="Something.", status="unverified", citations=(bad,)), Claim(text="Else.")),
        missing=(Gap(what="the annual report"), Gap(what="b", status="checked", sources=("x",), queries=("report",))),
        stop_reason="steps",
    )
    text = shown(answer)
    assert "[NOT VERIFIED; claim 1]" in text
    assert "the quote is not in the text" in text
    assert "[NO CITATION]" in text
    assert "MISSING: 2 things not found in the documents" in text
    assert "NOT SEARCHED FOR" in text
    assert "searched x for 'report'" in text
    assert "PARTIAL" in text
    assert "the step limit was reached" in " ".join(text.split())
    assert "\x1b" not in text


def test_wide_and_endless_words_are_wrapped() -> None:
    for text in ("漢字" * 200, "x" * 500, "word " * 100, "é" * 300):
        lines = output.wrap(text, first="1. ", rest="   ")
        assert len(lines) > 1
        assert "".join("".join(lines).split()).replace("1.", "", 1) == "".join(text.split())
        for line in lines:
            assert len(line) + sum(1 for c in line if ord(c) > 0x2E80) <= 80


# a state folder that cannot be written


def as_reader(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The program without the right of root to write what is read-only."""

    def drop() -> None:
        import ctypes

        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)

    command = [sys.executable, "-m", "citehound", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=drop if os.geteuid() == 0 else None
    )


@pytest.fixture
def read_only(small: Path) -> Iterator[Path]:
    """A corpus with an index and one run, whose state nobody may write."""
    assert run("index", "--config", small).exit_code == 0
    assert run("ask", "How long does the widget last?", "--config", small).exit_code == 0
    state = small.parent / ".citehound"
    paths = [state, *state.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield small
    for path in paths:
        path.chmod(0o755)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="rights are dropped as Linux does")
def test_a_state_that_cannot_be_written_can_be_read(read_only: Path) -> None:
    if as_reader("index", "--config", read_only).returncode == 0:
        pytest.skip("the rights of root cannot be dropped here")
    state = read_only.parent / ".citehound"
    before = {p: p.stat().st_mtime_ns for p in state.rglob("*")}
    found = as_reader("search", "notes", "widget", "--config", read_only)
    assert (found.returncode, "notes/widget" in found.stdout) == (0, True), found.stderr
    page = as_reader("read", "widget", "--config", read_only)
    assert (page.returncode, "five years" in page.stdout) == (0, True), page.stderr
    listed = as_reader("runs", "--config", read_only)
    assert (listed.returncode, "How long does the widget last?" in listed.stdout) == (0, True), listed.stderr
    answered = as_reader("ask", "How long does the widget last?", "--json", "--config", read_only)
    answer = json.loads(answered.stdout)
    assert (answered.returncode, answer["status"]) == (0, "complete")
    noted = [w for w in answer["warnings"] if w.startswith("the run was not recorded")]
    assert len(noted) == 1 and "permissions" in noted[0] and "move" not in noted[0]
    assert {p: p.stat().st_mtime_ns for p in state.rglob("*")} == before
