"""Worlds that several modules replay attacks in: each is planted and indexed once."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from attacks import HOST, MANY, READ, SHORT, Attack, plant, plant_all
from replaying import Recorder, World, recording, world

_RECORDER = Recorder()


@pytest.fixture(scope="module")
def recorder() -> Generator[Recorder]:
    with pytest.MonkeyPatch.context() as patch, recording(patch, _RECORDER):
        yield _RECORDER


def _planting(rows: Sequence[Attack], folder: Path) -> None:
    plant_all(rows, folder)
    plant(READ, channel="body", host=HOST, folder=folder, name=HOST)


@pytest.fixture(scope="session")
def together(bank_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """A row of every family in one corpus."""
    root = tmp_path_factory.mktemp("together") / "corpus"
    with pytest.MonkeyPatch.context() as patch, recording(patch, _RECORDER):
        opening = world(bank_root, root, _RECORDER, lambda folder: _planting(SHORT, folder))
        made = opening.__enter__()
    yield made
    opening.__exit__(None, None, None)


@pytest.fixture(scope="session")
def many(bank_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    """Every row that leaves others alone in one corpus, for the long forms."""
    root = tmp_path_factory.mktemp("many") / "corpus"
    with pytest.MonkeyPatch.context() as patch, recording(patch, _RECORDER):
        opening = world(bank_root, root, _RECORDER, lambda folder: _planting(MANY, folder))
        made = opening.__enter__()
    yield made
    opening.__exit__(None, None, None)
