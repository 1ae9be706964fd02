"""What is shipped and how it is installed: locked, complete, without anything of the machine it was made on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: Path) -> dict[str, str]:
    lines = [n for n in lock.read_text("utf-8").splitlines() if n and not n.startswith(("#", " "))]
    assert all(re.match(r"[A-Za-z0-9_.-]+==[\w.]+", n) for n in lines), "every line is an exact pin"
    return {canonical(n.partition("==")[0]): n.partition("==")[2].split()[0] for n in lines}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_a_lock_pins_every_dependency_and_names_no_host(lock: Path) -> None:
    names = {canonical(re.match(r"[\w.-]+", d).group()) for d in PROJECT["project"]["dependencies"]}  # type: ignore[union-attr]
    assert names - set(pins(lock)) == set()
    assert not re.search(r"://|--(extra-)?index|find-links", lock.read_text("utf-8"))


def test_both_ends_of_the_supported_range_are_locked() -> None:
    newest, other = pins(ROOT / "requirements" / "newest.txt"), pins(ROOT / "requirements" / "dev.txt")
    assert other["pydantic-ai-slim"] == other["pydantic-evals"] == "2.62.0"
    assert newest["pydantic-ai-slim"] != other["pydantic-ai-slim"]


def test_every_import_is_a_declared_dependency() -> None:
    declared = {canonical(re.match(r"[\w.-]+", d).group()) for d in PROJECT["project"]["dependencies"]}  # type: ignore[union-attr]
    provided = {"pydantic-ai-slim": "pydantic_ai", "pyyaml": "yaml", "opentelemetry-api": "opentelemetry"}
    modules = {provided.get(d, d.replace("-", "_").removesuffix("_py")) for d in declared}
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {a.name.partition(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    for name, needs in PROJECT["project"]["optional-dependencies"].items():  # what only a file that needs it imports
        modules |= {canonical(re.match(r"[\w.-]+", d).group()).replace("-", "_") for d in needs}  # type: ignore[union-attr]
        modules |= {name} if any(d.startswith("pydantic-ai-slim[") for d in needs) else set()
    # Parts of pydantic, fastapi, uvicorn, mcp and langchain, which pin them.
    parts = {"pydantic_core", "starlette", "anyio", "h11", "mcp_types", "langchain_core", "langgraph"}
    assert found - set(sys.stdlib_module_names) - {"citehound"} - modules - parts == set()


def test_the_package_is_typed_and_brings_its_demos() -> None:
    package = files("citehound")
    assert (package / "py.typed").is_file()
    for name in ("bank", "retention"):
        assert (package / "demos" / name / "citehound.toml").is_file()


def test_ci_runs_make_check() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make check", "make test-wheel"} <= set(script.read_text("utf-8").splitlines())


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_an_old_python_is_refused_with_a_clear_line(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 9, 0); exec(sys.argv[1])" "$2"\n'
    )
    python.chmod(0o755)
    command = ["make", "-s", "demo", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "needs Python 3.11 or later" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_knows_its_targets() -> None:
    for target in ("demo", "test", "check", "bench", "test-crash", "test-wheel", "test-newest", "lock"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
