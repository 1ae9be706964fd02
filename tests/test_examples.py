"""The examples in examples/ run, against a server that plays the model."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import protocol_server
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


def loop(
    config: Path, *script: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[str], list[protocol_server.Received]]:
    with protocol_server.serve(list(script), protocol="anthropic") as model:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "loop.py"), str(config), QUESTION],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "ANTHROPIC_BASE_URL": model.base_url, "ANTHROPIC_API_KEY": "none"},
        )
        return done, model.requests()


def test_the_plain_loop_is_at_most_60_lines() -> None:
    assert len((EXAMPLES / "loop.py").read_text("utf-8").splitlines()) <= 60


def test_the_plain_loop_searches_reads_and_answers(config: Path) -> None:
    done, requests = loop(config, SEARCH, READ, final(GOOD))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "1. Incidents must be reported within 24 hours. [rules/security §7]",
        "status: complete",
    ]
    assert requests[0].tool_names[:3] == ["search_rules", "search_deals", "read_document"]
    assert WITHIN_24 in json.dumps(requests[2].messages[-1], ensure_ascii=False)


def test_the_plain_loop_sends_a_lie_back_once_and_then_shows_it_as_one(config: Path) -> None:
    done, requests = loop(config, READ, final(LIE), final(LIE))
    assert done.returncode == 3, done.stderr
    assert "48 hours" in str(requests[2].messages[-1]["content"])
    assert "**(unverified" in done.stdout and "status: partial" in done.stdout


# TypeScript. Slow, as npm fetches packages: `make test-typescript`.


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


@contextmanager
def serving(config: Path) -> Generator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "citehound", "serve", "--port", "0", "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        yield next(found.group() for line in process.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
    finally:
        process.terminate()
        process.communicate(timeout=30)


def typescript(
    built: Path, config: Path, *script: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    node = _tool("node")
    with serving(config) as base, protocol_server.serve(list(script), protocol="anthropic") as model:
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
                "CITEHOUND_URL": base,
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
