"""The examples in examples/ run, against a server that plays the model."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import protocol_server
from citehound.access import OWNER
from citehound.config import load
from citehound.corpus import Corpus
from citehound.session import Session
from served import serving
from small import WITHIN_24, opened

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
QUESTION = "Within how many hours must incidents be reported?"
GOOD = f'Incidents must be reported within 24 hours. [rules/security] "{WITHIN_24}"'
LIE = f'Incidents must be reported within 48 hours. [rules/security] "{WITHIN_24}"'
SEARCH = {"kind": "tool", "name": "search_rules", "args": {"query": "incidents reported"}}
READ = {"kind": "tool", "name": "read_document", "args": {"document": "rules/security"}}


def final(text: str) -> dict[str, Any]:
    return {"kind": "final", "text": text}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    with opened(folder):
        return folder / "citehound.toml"


def played(config: Path, *script: dict[str, Any]) -> tuple[Any, list[protocol_server.Received]]:
    """The loop's verdict on an answer, and what its model was sent."""
    anthropic = pytest.importorskip("anthropic", reason="needs the anthropic package")
    loop = runpy.run_path(str(EXAMPLES / "loop.py"))
    with (
        protocol_server.serve(list(script), protocol="anthropic") as model,
        Corpus.open(load(config, env={})) as corpus,
        anthropic.Anthropic(base_url=model.base_url, api_key="none") as client,
    ):
        return loop["answer"](QUESTION, Session(corpus, principal=OWNER), client, "m"), model.requests()


def test_the_plain_loop_is_at_most_60_lines() -> None:
    assert len((EXAMPLES / "loop.py").read_text("utf-8").splitlines()) <= 60


def test_the_plain_loop_searches_reads_and_answers(config: Path) -> None:
    checked, requests = played(config, SEARCH, READ, final(GOOD))
    assert (checked.status, checked.claims[0].status) == ("complete", "verified")
    assert requests[0].tool_names[:3] == ["search_rules", "search_deals", "read_document"]
    assert WITHIN_24 in json.dumps(requests[2].messages[-1], ensure_ascii=False)


def test_the_plain_loop_sends_a_lie_back_once_and_then_shows_it_as_one(config: Path) -> None:
    checked, requests = played(config, READ, final(LIE), final(LIE))
    assert (checked.status, checked.claims[0].status) == ("partial", "unverified")
    assert "48 hours" in str(requests[2].messages[-1]["content"])


def test_the_plain_loop_ends_where_its_model_never_answers(config: Path) -> None:
    checked, requests = played(config, {**SEARCH, "repeat": True})
    assert (len(requests), checked) == (16, None)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "code", "shown"), [(GOOD, 0, "complete"), (LIE, 3, "partial")])
def test_the_plain_loop_runs_as_a_program(config: Path, text: str, code: int, shown: str) -> None:
    with protocol_server.serve([SEARCH, READ, final(text), final(text)], protocol="anthropic") as model:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "loop.py"), str(config), QUESTION],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "none"},
        )
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == f"status: {shown}"
    assert ("**(unverified" in done.stdout) == (code == 3)


# TypeScript. Slow, as npm fetches packages: `make test-typescript` runs it.


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: the TypeScript example needs Node 20 and npm")
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TypeScript example, installed from its lock file, type-checked and built."""
    npm = _tool("npm")
    _tool("node")
    folder = tmp_path_factory.mktemp("typescript") / "example"
    shutil.copytree(EXAMPLES / "typescript", folder, ignore=shutil.ignore_patterns("node_modules", "build"))
    for command in (["ci", "--no-audit", "--no-fund"], ["run", "check"], ["run", "build"]):
        done = subprocess.run([npm, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def typescript(
    built: Path, config: Path, *script: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    node = _tool("node")
    with serving(config) as server, protocol_server.serve(list(script), protocol="anthropic") as model:
        done = subprocess.run(
            [node, "build/ask.js", QUESTION],
            cwd=built,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "ANTHROPIC_BASE_URL": model.base_url,
                "ANTHROPIC_API_KEY": "none",
                "CITEHOUND_URL": server.url,
            },
        )
        return done, model.requests()


def handed_in(text: str) -> dict[str, Any]:
    claim = {"text": text, "citations": [{"document": "rules/security", "quote": WITHIN_24}]}
    return {"kind": "tool", "name": "final_answer", "args": {"claims": [claim], "missing": []}}


TS_SEARCH = {"kind": "tool", "name": "search", "args": {"query": "incidents reported", "source": "rules"}}


@pytest.mark.slow
def test_the_typescript_loop_searches_reads_and_has_its_answer_checked(built: Path, config: Path) -> None:
    done, requests = typescript(built, config, TS_SEARCH, READ, handed_in(WITHIN_24), final("Done."))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == f"1. {WITHIN_24} (verified)"
    assert f'[rules/security §7] "{WITHIN_24}" (verified)' in done.stdout
    assert done.stdout.splitlines()[-1] == "status: complete"
    assert requests[0].tool_names == ["search", "read_document", "final_answer"]
    assert "rules/security" in json.dumps(requests[1].messages[-1])


@pytest.mark.slow
def test_a_lie_in_the_typescript_loop_is_sent_back_once_and_then_shown_as_one(built: Path, config: Path) -> None:
    lie = handed_in("Incidents must be reported within 48 hours.")
    done, requests = typescript(built, config, READ, lie, lie, final("Done."))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "(unverified)" in done.stdout and "status: partial" in done.stdout
    assert "48 hours" in json.dumps(requests[2].messages[-1])


@pytest.mark.slow
def test_what_the_typescript_loop_has_not_read_is_not_verified(built: Path, config: Path) -> None:
    done, _ = typescript(built, config, TS_SEARCH, handed_in(WITHIN_24), READ, handed_in(WITHIN_24), final("Done."))
    assert done.returncode == 0, done.stdout + done.stderr  # sent back, then read
    done, _ = typescript(built, config, TS_SEARCH, handed_in(WITHIN_24), handed_in(WITHIN_24), final("Done."))
    assert done.returncode == 3 and "not read" in done.stdout


def test_the_lock_file_names_no_address() -> None:
    lock = json.loads((EXAMPLES / "typescript" / "package-lock.json").read_text("utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    assert all("integrity" in package for name, package in lock["packages"].items() if name)
