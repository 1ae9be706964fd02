"""What is kept on the disk is for whoever runs Citehound alone, unless they have said otherwise."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner

from citehound import config
from citehound.access import OWNER
from citehound.assistant import Assistant
from citehound.backup import backup, restore
from citehound.cli import cli
from citehound.config import Config
from citehound.corpus import Corpus
from citehound.runs import RunStore
from citehound.server.tokens import FILE, Tokens
from small import write_corpus


@pytest.fixture(autouse=True)
def lax() -> Generator[None]:
    """A umask that would let everybody in."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def used(root: Path) -> Config:
    """A state with an index, a run and a token."""
    made = config.load(write_corpus(root), env={})
    with Assistant(made) as assistant:
        assistant.ask_sync("Within how many hours must incidents be reported?", mode="single")
    Tokens(made.state / FILE).add("ann")
    return made


def test_the_state_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    state = used(tmp_path).state
    assert mode(state) == 0o700
    assert {mode(path) for path in [*state.glob("*.sqlite*"), *state.glob("tokens.json*")]} == {0o600}
    assert (state / "index" / "documents.db").exists()


def test_each_thing_that_is_kept_makes_the_folder_private_if_it_comes_first(tmp_path: Path) -> None:
    Tokens(tmp_path / "a" / FILE).add("ann")
    RunStore(tmp_path / "b" / "runs.sqlite").list(principal=OWNER)
    made = config.load(write_corpus(tmp_path / "c"), env={})
    with Corpus.open(made, write=True) as corpus:
        corpus.sync()
    assert [mode(folder) for folder in (tmp_path / "a", tmp_path / "b", made.state)] == [0o700] * 3


@pytest.mark.slow
def test_a_folder_that_lets_others_in_on_purpose_is_left_so_and_the_doctor_says_it(tmp_path: Path) -> None:
    made = config.load(write_corpus(tmp_path), env={})
    made.state.mkdir(mode=0o750)
    used(tmp_path)
    assert mode(made.state) == 0o750
    assert mode(made.state / "runs.sqlite") == mode(made.state / FILE) == 0o600
    with Corpus.open(made, write=True) as corpus:
        corpus.sync(rebuild=True)
    assert mode(made.state) == 0o750
    ran = CliRunner().invoke(cli, ["doctor", "--config", str(made.path), "--no-calls", "--json"])
    (found,) = [f for f in json.loads(ran.stdout)["findings"] if f["check"] == "state"]
    assert found["status"] == "note" and "mode 750" in found["says"] and "chmod 700" in found["do"]
    made.state.chmod(0o700)
    ran = CliRunner().invoke(cli, ["doctor", "--config", str(made.path), "--no-calls", "--json"])
    assert not [f for f in json.loads(ran.stdout)["findings"] if f["check"] == "state"]


@pytest.mark.slow
def test_what_is_restored_lets_in_whom_the_folder_let_in_before(tmp_path: Path) -> None:
    made = used(tmp_path / "here")
    backup(made, tmp_path / "b.tar.gz")
    made.state.chmod(0o750)
    _, kept = restore(made, tmp_path / "b.tar.gz", force=True)
    assert mode(made.state) == 0o750 and kept is not None
    new = config.load(write_corpus(tmp_path / "new"), env={})
    restore(new, tmp_path / "b.tar.gz")
    assert mode(new.state) == 0o700
