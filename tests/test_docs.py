"""The documentation tells the truth: examples run, links lead somewhere, no setting or command is left out."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from citehound import config
from citehound.access import Rule
from citehound.cli import cli
from citehound.corpus import Corpus
from citehound.evals.metrics import METRICS

ROOT = Path(__file__).resolve().parents[1]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if DECISIONS not in p.parents),
]
RETENTION = ROOT / "src" / "citehound" / "demos" / "retention"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """(name, text) of every fenced block of a language in all pages."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for n, match in enumerate(FENCE.finditer(page.read_text("utf-8"))):
            if match[1] == language:
                found.append((f"{page.name}-{n}", match[2]))
    return found


def commands() -> list[tuple[str, str]]:
    """(name, command) of every console example."""
    return [
        (f"{name}: {line[2:]}", line[2:])
        for name, text in blocks("console")
        for line in text.splitlines()
        if line.startswith("$ ")
    ]


def section(page: str, heading: str) -> str:
    """The text below a level-two heading."""
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert match, f"no heading {heading!r}"
    return match[1]


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The retention demo, with its index."""
    at = tmp_path_factory.mktemp("docs") / "haulbox"
    shutil.copytree(RETENTION, at, ignore=shutil.ignore_patterns(".citehound"))
    with Corpus.open(config.load(at / "citehound.toml"), write=True) as corpus:
        corpus.sync()
    return at


@pytest.fixture
def folder(indexed: Path, tmp_path: Path) -> Path:
    """A copy of the retention demo that an example may do with as it likes."""
    at = tmp_path / "haulbox"
    shutil.copytree(indexed, at)
    return at


@pytest.fixture
def offline(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the demo's folder, without keys and settings, so that the offline model is used."""
    for name in list(os.environ):
        if name.startswith("CITEHOUND_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("command", [c for _, c in commands()], ids=[n for n, _ in commands()])
def test_console_example_runs(command: str, offline: Path) -> None:
    program, *arguments = shlex.split(command)
    assert program == "citehound"
    if arguments[0] == "eval":
        pytest.importorskip("pydantic_evals")
    if arguments[0] == "init":
        (offline / "citehound.toml").unlink()
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.stderr
    if arguments[0] in {"ask", "search", "read"}:
        assert done.stdout.strip()


@pytest.mark.parametrize("text", [t for _, t in blocks("python")], ids=[n for n, _ in blocks("python")])
def test_python_example_runs(text: str, offline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(text, "example", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("text", [t for _, t in blocks("json")], ids=[n for n, _ in blocks("json")])
def test_json_example_is_json(text: str) -> None:
    assert json.loads(text)


@pytest.mark.parametrize("text", [t for _, t in blocks("toml")], ids=[n for n, _ in blocks("toml")])
def test_toml_example_is_a_valid_configuration(text: str, tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    file = tmp_path / "citehound.toml"
    file.write_text(text, "utf-8")
    assert config.load(file).sources


def test_every_metric_is_documented_as_it_is_defined() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
    rows = [f"| {m.label} | `{m.name}` | {m.meaning} |" for m in METRICS]
    assert [
        line for line in section(page, "Metrics").splitlines() if "` |" in line and "fail-under" not in line
    ] == rows


def test_there_are_examples_of_each_kind() -> None:
    assert len(commands()) >= 8
    assert blocks("python")
    assert blocks("toml")


# settings

SETTINGS = (ROOT / "docs" / "configuration.md").read_text("utf-8")
KINDS = {
    "[model]": config.ModelConfig,
    "[budget]": config.BudgetConfig,
    "[[sources]]": config.SourceConfig,
    "[[access]]": Rule,
    "[index]": config.IndexConfig,
    "[index.embedding]": config.EmbeddingConfig,
    "[index.rerank]": config.RerankConfig,
    "[agent]": config.AgentConfig,
    "[routing]": config.RoutingConfig,
    "[verify]": config.VerifyConfig,
    "[security]": config.SecurityConfig,
    "[chat]": config.ChatConfig,
    "[server]": config.ServerConfig,
    "[dashboard]": config.DashboardConfig,
    "[tracing]": config.TracingConfig,
}
TABLES = list(KINDS)


def settings(table: str) -> dict[str, object]:
    """Every key of a table of the file with its default."""
    return {f.name: f.default for f in dataclasses.fields(KINDS[table])}


@pytest.mark.parametrize("table", TABLES)
def test_every_setting_is_documented_and_no_other(table: str) -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", section(SETTINGS, table), re.MULTILINE)) == set(settings(table))


def test_every_table_of_the_file_is_documented() -> None:
    tables = {f.name for f in dataclasses.fields(config.Config)} - {"root", "path"}
    assert tables == {name.strip("[]") for name in TABLES if "." not in name}


@pytest.mark.parametrize("table", TABLES)
def test_documented_defaults_are_the_real_ones(table: str) -> None:
    for name, default in settings(table).items():
        row = re.search(rf"^\| `{name}` \| (.*?) \|", section(SETTINGS, table), re.MULTILINE)
        assert row, name
        shown = re.fullmatch(r"`(.*)`", row[1])
        if isinstance(default, bool):
            assert shown and shown[1] == str(default).lower(), name
        elif isinstance(default, (int, float)):
            assert shown and float(shown[1]) == float(default), name
        elif isinstance(default, str) and default:
            assert shown and shown[1] == f'"{default}"', name
        else:
            assert not shown, name


def test_every_variable_is_documented_and_no_other() -> None:
    shown = set(re.findall(r"^\| `(CITEHOUND_\w+)` \|", section(SETTINGS, "Environment"), re.MULTILINE))
    assert shown == {*config.ENVIRONMENT, *config.OTHER_ENVIRONMENT}


def test_a_variable_is_documented_with_the_key_that_it_overrides() -> None:
    for name, (table, key) in config.ENVIRONMENT.items():
        assert f"| `{name}` | `{key}` in `[{table}]`" in SETTINGS


# commands


def command_tree() -> click.Group:
    from citehound.cli import cli

    assert isinstance(cli, click.Group)
    return cli


def flags(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield max(parameter.opts, key=len)


def documented_commands() -> dict[str, str]:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    return {
        name: section(page, f"citehound {name}") for name in re.findall(r"^## citehound (\w+)$", page, re.MULTILINE)
    }


def test_every_command_is_documented_and_no_other() -> None:
    real = {name for name, command in command_tree().commands.items() if not command.hidden}
    assert set(documented_commands()) == real


def test_every_flag_is_documented_and_no_other() -> None:
    for name, text in documented_commands().items():
        real = set(flags(command_tree().commands[name]))
        shown = set(re.findall(r"^\| `(-[\w-]+)", text, re.MULTILINE))
        common = {"--config", "--help"}
        assert shown - common == real - common, name


def test_readme_lists_every_command() -> None:
    table = section((ROOT / "README.md").read_text("utf-8"), "Commands")
    shown = set(re.findall(r"^\| `citehound (\w+)", table, re.MULTILINE))
    assert shown == {name for name, command in command_tree().commands.items() if not command.hidden}


# links


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def test_the_pages_have_no_overlong_lines_or_trailing_blanks() -> None:
    for page in PAGES:
        for n, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            assert line == line.rstrip(), f"{page.name}:{n}"


# the site


@pytest.mark.skipif(importlib.util.find_spec("mkdocstrings") is None, reason="mkdocs is not installed")
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.search(
            r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(?:https?:)?//(?!127)""", page.read_text("utf-8")
        ), page
