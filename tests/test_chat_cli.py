"""`citehound chat` as a user meets it: lines in, answers out, commands, pipes, interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from citehound.chat import Chat
from citehound.cli import cli
from small import write_corpus

ALPHA = "Within how many hours does Alpha report incidents?"
FORBIDDEN = {"\x1b", "\x9b", "\x07", "\x08", "\x00", "\u202e"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("CITEHOUND_", "OTEL_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_corpus(tmp_path_factory.mktemp("chat"))
    assert CliRunner().invoke(cli, ["index", "--config", str(path)]).exit_code == 0
    return path


def chat(toml: Path, lines: str | bytes, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["chat", "--config", str(toml), *arguments], input=lines)


def test_a_follow_up_is_answered_and_shown_as_it_was_understood(toml: Path) -> None:
    done = chat(toml, f"{ALPHA}\nand for Beta?\n")
    assert done.exit_code == 0, done.output
    assert "within 72 hours of discovery" in done.stdout
    assert "Understood as: Within how many hours does Beta report incidents?" in " ".join(done.stdout.split())
    assert "read deals/beta" in done.stderr
    assert "> " not in done.stderr  # nobody types here


def test_json_is_one_answer_a_line(toml: Path) -> None:
    done = chat(toml, f"{ALPHA}\n\n/sources\nand for Beta?\n/quit\nand for Gamma?\n", "--json")
    assert done.exit_code == 0, done.output
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(a["turn"], a["question"]) for a in answers] == [(1, ALPHA), (2, "and for Beta?")]
    assert answers[1]["rewritten"] == ALPHA.replace("Alpha", "Beta")
    assert answers[0]["chat_id"] == answers[1]["chat_id"]
    assert answers[0]["run_id"] != answers[1]["run_id"]


def test_sources_lists_what_was_read_and_cited(toml: Path) -> None:
    done = chat(toml, f"/sources\n{ALPHA}\n/sources\n")
    assert "nothing was read yet" in done.stdout
    assert "deals/alpha  (read in turn 1; cited in 1)" in done.stdout


def test_new_begins_anew(toml: Path) -> None:
    done = chat(toml, f"{ALPHA}\n/new\nand for Beta?\n", "--json")
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["chat_id"] != second["chat_id"]
    assert (second["turn"], second["rewritten"]) == (1, None)


def test_an_unknown_command_is_named_and_nothing_is_asked(toml: Path) -> None:
    done = chat(toml, "/help\n")
    assert done.exit_code == 0
    assert done.stdout == ""
    assert "/new begins anew" in done.stderr


@pytest.mark.parametrize("lines", ["", "\n \n\t\n", "/quit\n", b"\x00\x1b\x07\n", b"\xff\xfe\n/quit"])
def test_an_end_without_a_question_is_no_error(toml: Path, lines: str | bytes) -> None:
    done = chat(toml, lines)
    if lines != b"\xff\xfe\n/quit":
        assert done.stdout == ""
    assert done.exit_code == 0


def test_a_line_that_is_too_long_is_refused_and_the_chat_goes_on(toml: Path) -> None:
    done = chat(toml, "x" * 300_000 + f"\n{ALPHA}\n" + "y" * 9000)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("more than 8,000 characters") == 2
    assert "within 72 hours" in done.stdout


def test_nothing_unseen_reaches_the_terminal(toml: Path) -> None:
    done = chat(toml, f"{ALPHA[:-1]}\x1b[2J\u202e?\r\n/sour\x07ces\n")
    assert not FORBIDDEN & set(done.stdout + done.stderr)
    assert "deals/alpha" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--mode", "deep"], "deep"),
        (["--max-steps", "0"], "--max-steps"),
        (["--model", " "], "--model is empty"),
        (["--mode", "direct"], "can only search"),
    ],
)
def test_wrong_usage_ends_the_chat(toml: Path, arguments: list[str], says: str) -> None:
    done = chat(toml, f"{ALPHA}\n", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_the_runs_of_a_chat_say_so(toml: Path) -> None:
    assert chat(toml, f"{ALPHA}\nand for Beta?\n", "--json").exit_code == 0
    listed = CliRunner().invoke(cli, ["runs", "--config", str(toml), "--json"])
    newest, before = json.loads(listed.stdout)[:2]
    assert (newest["turn"], before["turn"], newest["chat_id"]) == (2, 1, before["chat_id"])
    table = CliRunner().invoke(cli, ["runs", "--config", str(toml)]).stdout.splitlines()
    assert f"[chat {newest['chat_id'][-4:]}, 2] and for" in table[1]
    shown = CliRunner().invoke(cli, ["runs", newest["run_id"], "--config", str(toml)]).stdout
    assert f"turn 2 of chat {newest['chat_id']}" in shown
    assert "Understood as: Within how many hours does Beta" in shown


def test_an_interrupt_ends_the_question_and_not_the_chat(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = Chat.ask_sync, list[str]()

    def interrupted(self: Chat, question: str) -> Any:
        asked.append(question)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return real(self, question)

    monkeypatch.setattr(Chat, "ask_sync", interrupted)
    done = chat(toml, f"{ALPHA}\n{ALPHA}\n")
    assert done.exit_code == 0, done.output
    assert "interrupted" in done.stderr
    assert "within 72 hours" in done.stdout


def test_a_question_without_an_answer_is_told_at_the_end(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    real = Chat.ask_sync

    def failing(self: Chat, question: str) -> Any:
        return replace(real(self, question), status="failed", text="", claims=(), missing=())

    monkeypatch.setattr(Chat, "ask_sync", failing)
    done = chat(toml, f"{ALPHA}\n{ALPHA}\n")
    assert done.exit_code == 1
    assert "2 of the questions got no answer" in done.stderr


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 130)])
def test_a_signal_in_the_middle_of_a_question_keeps_its_record(toml: Path, stop: signal.Signals, code: int) -> None:
    program = (
        "import os, sys, asyncio\n"
        "import citehound.agent\n"
        "real, asked = citehound.agent.run_agent, []\n"
        "async def once(*a, **k):\n"
        "    asked.append(1)\n"
        "    if len(asked) == 1:\n"
        f"        os.kill(os.getpid(), {int(stop)})\n"
        "        await asyncio.sleep(30)\n"
        "    return await real(*a, **k)\n"
        "citehound.agent.run_agent = once\n"
        "from citehound.cli import main\n"
        f"main(['chat', '--json', '--mode', 'agent', '--config', {str(toml)!r}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=f"{ALPHA}\nand for Beta?\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    listed = json.loads(CliRunner().invoke(cli, ["runs", "--config", str(toml), "--json"]).stdout)
    if stop == signal.SIGTERM:
        assert done.stdout == ""
        assert (listed[0]["stop_reason"], listed[0]["turn"]) == ("cancelled", 1)
        return
    answer = json.loads(done.stdout)
    assert (answer["turn"], answer["rewritten"]) == (2, ALPHA.replace("Alpha", "Beta"))
    assert (listed[1]["stop_reason"], listed[1]["turn"], listed[1]["chat_id"]) == ("cancelled", 1, answer["chat_id"])


def test_an_interrupt_ends_a_chat_that_waits_for_a_question(toml: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "citehound", "chat", "--config", str(toml), "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(f"{ALPHA}\n".encode())
        running.stdin.flush()
        answer = json.loads(running.stdout.readline())  # it answers before its input ends
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert answer["status"] == "complete"
    assert running.returncode == 130
    assert b"Traceback" not in said
