"""Replays the shared hostile inputs of the command line and of files: exit codes, one line, nothing else harmed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from citehound import config
from citehound.access import OWNER
from citehound.corpus import Corpus, SyncReport

ROOT = Path(__file__).resolve().parents[1]
ATTACKS = ROOT.parent / "shared" / "data" / "attacks"
RETENTION = ROOT / "src" / "citehound" / "demos" / "retention"
RUN = "import sys; from citehound.cli import main; sys.exit(main())"
FILE = ATTACKS / "hostile_inputs.jsonl"
ROWS = {r["id"]: r for r in map(json.loads, FILE.read_text("utf-8").splitlines())} if FILE.is_file() else {}
ELSEWHERE = ("http", "mcp")
"""Surfaces whose rows are replayed by the tests of the server and of MCP."""


def of(surface: str) -> list[dict[str, Any]]:
    return [row for row in ROWS.values() if row["surface"] == surface]


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['id']} {row['name']}" for row in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small corpus with its configuration."""
    at = tmp_path / "corpus"
    shutil.copytree(RETENTION, at, ignore=shutil.ignore_patterns(".citehound"))
    return at


def citehound(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CITEHOUND_") and not k.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=cwd, env=clean | (env or {}), capture_output=True, check=False
    )


def prepared(row: dict[str, Any], folder: Path, tmp_path: Path) -> list[str]:
    """The arguments of a row, its files written and its placeholders filled in."""
    names = {"D": folder}
    for name, text in row["request"].get("files", {}).items():
        names[name] = tmp_path / f"{name}.toml"
        names[name].write_text(text, "utf-8")
    arguments: list[str] = []
    for argument in row["request"]["argv"]:
        filled = re.sub(r"\{\{(\w+)\}\}", lambda m: str(names[m[1]]), argument)
        if argument == "{{D}}":  # our `index` takes the folder by its configuration
            arguments += ["--config", str(folder / "citehound.toml")]
        else:
            arguments.append(filled)
    if arguments[:1] == ["--config"]:  # an option of each command here
        arguments = [arguments[2], *arguments[:2], *arguments[3:]]
    if arguments[:1] == ["ask"]:
        citehound("index", cwd=folder)
    if row["name"] == "API key missing":
        arguments += ["--model", "anthropic:claude-opus-5-5"]
    if row["request"].get("pipe"):
        arguments = ["search", "docs", "files"]
    build = row["request"].get("build", {})
    if build.get("kind") == "symlink":
        (folder / "docs" / "linked.md").symlink_to(build["target"])
        (folder / "docs" / "linked-folder").symlink_to("/etc")
    elif build.get("kind") == "fifo_and_dev":
        os.mkfifo(folder / "docs" / "pipe.md")
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                os.mknod(folder / "docs" / "zero.md", 0o20644, os.makedev(1, 5))
    return arguments


@pytest.mark.parametrize("row", of("cli"), ids=ids(of("cli")))
def test_command_line_survives(row: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    if "signal" in row["request"]:
        pytest.skip("needs a slow model: see test_cli.test_an_interrupt_exits_130_and_the_run_is_kept")
    expect = row["expect"]
    arguments = prepared(row, folder, tmp_path)
    if row["request"].get("pipe"):
        citehound("index", cwd=folder)
        script = f'{sys.executable} -c "$RUN" {" ".join(arguments)} | head -c 1; exit ${{PIPESTATUS[0]}}'
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env={**os.environ, "RUN": RUN}, capture_output=True, check=False
        )
    else:
        done = citehound(*arguments, cwd=folder, env=row["request"].get("env"))
    out = (done.stdout + done.stderr).decode("utf-8", "replace")
    assert done.returncode in expect.get("exit", [0, 1, 2, 3]), out
    assert "Traceback" not in out
    if "stderr_or_stdout" in expect:
        assert expect["stderr_or_stdout"] in out.lower()
    if expect.get("names_path"):
        assert "/nonexistent.toml" in out
    if expect.get("names_key"):
        assert re.search(r"steps|dolars", out)
    if done.returncode in (1, 2) and arguments:
        lines = [line for line in done.stderr.decode().splitlines() if line.strip()]
        assert len([line for line in lines if not re.match(r"(?i)usage:|try ", line)]) <= 1, out
    for entry in expect.get("must_not", []):
        kind, _, value = entry.partition(":")
        if kind == "bytes":
            assert bytes.fromhex(value) not in done.stdout + done.stderr
        elif kind == "text":
            assert value not in out
        elif kind == "indexed":
            check_not_indexed("root:" if value == "/etc" else value, folder)


def check_not_indexed(text: str, folder: Path) -> None:
    with Corpus.open(config.load(folder / "citehound.toml"), write=True) as corpus:
        corpus.sync()
        for listed in corpus.list_documents(None, principal=OWNER, only_current=False).documents:
            assert text not in corpus.document(listed.document, principal=OWNER).text


# files


def build(kind: dict[str, Any], at: Path) -> list[str]:
    """Writes the file of a row into a folder and gives the names; of formats that come later a small stand-in."""
    match kind["kind"]:
        case "html_depth":
            n = kind["n"]
            (at / "deep.html").write_text("<div>" * n + "deep text at the bottom" + "</div>" * n, "utf-8")
            return ["deep.html"]
        case "json_depth":
            n = kind["n"]
            (at / "deep.json").write_text("[" * n + "]" * n, "utf-8")
            return ["deep.json"]
        case "long_line":
            with (at / "long.txt").open("wb") as file:  # sparse: takes no room on disk
                file.truncate(kind["mb"] * 1024 * 1024)
            return ["long.txt"]
        case "xxe":
            text = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "{kind["uri"]}">]><svg><text>&e;</text></svg>'
            for name in ("x.xml", "x.svg", "x.html"):
                (at / name).write_text(text, "utf-8")
            return ["x.xml", "x.svg", "x.html"]
        case "zip_slip":
            with zipfile.ZipFile(at / "slip.docx", "w") as archive:
                archive.writestr(kind["entry"], "slipped")
            return ["slip.docx"]
        case "docx_xml" | "zip_bomb" | "nested_zip":
            with zipfile.ZipFile(at / "odd.docx", "w", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr("word/document.xml", "<x/>" * 1000)
            return ["odd.docx"]
        case _:
            (at / "odd.pdf").write_bytes(b"%PDF-1.7\n1 0 obj<</Type/Pages/Kids[1 0 R]>>endobj\n")
            return ["odd.pdf"]


@pytest.mark.parametrize("row", of("ingest"), ids=ids(of("ingest")))
def test_hostile_file_fails_alone(row: dict[str, Any], folder: Path) -> None:
    names = build(row["request"]["build"], folder / "docs")
    with Corpus.open(config.load(folder / "citehound.toml"), write=True) as corpus:
        report: SyncReport = corpus.sync()
        files = {f.path: f for f in report.files if f.source == "docs"}
        for name in names:
            assert files[name].status in ("indexed", "skipped", "failed")
            assert files[name].status == "indexed" or files[name].reason
        others = [f for f in report.files if f.path.endswith(".md")]
        assert len(others) == 8
        assert all(f.status == "indexed" for f in others)
        for entry in row["expect"].get("must_not", []):
            kind, _, value = entry.partition(":")
            if kind == "file":
                assert not Path(value).exists()
            elif kind == "indexed":
                for listed in corpus.list_documents(None, principal=OWNER, only_current=False).documents:
                    assert value not in corpus.document(listed.document, principal=OWNER).text


def test_every_row_has_a_surface_that_is_tested_or_comes_later() -> None:
    if not ROWS:
        pytest.skip("needs the shared data folder beside the repository")
    assert {row["surface"] for row in ROWS.values()} == {"cli", "ingest", *ELSEWHERE}
