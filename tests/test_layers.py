"""Imports only go down, and what is heavy is imported when it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = (
    "pydantic_ai",
    "pydantic",
    "tantivy",
    "docutils",
    "rich",
    "selectolax",
    "opentelemetry",
    "yaml",
    "markdown_it",
    "pyromark",
)


def test_the_import_contract_holds() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    if not command.exists():
        pytest.skip("import-linter is not installed in this environment")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*[m.partition('.')[0] for m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_loads_nothing_heavy() -> None:
    statement = "from citehound.cli import main\ntry: main(['--help'])\nexcept SystemExit as e: assert e.code == 0"
    assert loaded_after(statement) & set(HEAVY) == set()


@pytest.mark.parametrize("command", ["init", "index", "ask", "search", "read", "runs", "demo"])
def test_the_help_of_a_command_loads_nothing_heavy(command: str) -> None:
    statement = f"from citehound.cli import main\ntry: main(['{command}', '--help'])\nexcept SystemExit: pass"
    assert loaded_after(statement) & set(HEAVY) == set()


def test_the_configuration_loads_nothing_heavy() -> None:
    assert loaded_after("import citehound.config, citehound.runs, citehound.security") & set(HEAVY) == set()


def test_no_provider_sdk_is_loaded_by_the_package() -> None:
    assert loaded_after("import citehound.assistant") & {"anthropic", "openai", "google", "mistralai", "boto3"} == set()


@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is POSIX")
def test_the_help_takes_under_0_3_seconds_of_cpu() -> None:
    code = (
        "import resource, subprocess, sys\n"
        "def run():\n"
        "    before = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "    subprocess.run([sys.executable, '-m', 'citehound', '--help'], stdout=subprocess.DEVNULL, check=True)\n"
        "    after = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime\n"
        "print(min(run() for _ in range(3)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3
