"""Fixtures that several test modules share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import LifoQueue
from types import TracebackType
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings

from citehound.parsing.worker import Limits, Worker, Workers

ROOT = Path(__file__).resolve().parents[1]

# The same examples each time, and none of them judged by how long a busy machine takes.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared corpora, awkward files and attacks; skips when this checkout stands alone."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder beside the repository")
    return folder


@pytest.fixture(scope="session")
def bank_root() -> Path:
    """The bundled bank corpus."""
    return ROOT / "src" / "citehound" / "demos" / "bank"


class WarmWorkers(Workers):
    """Workers whose processes are kept for the next test: to start one takes as long as to read a hundred files."""

    idle: ClassVar[dict[tuple[Limits, str], list[Worker]]] = {}

    def __init__(self, count: int, *, limits: Limits | None = None, target: str = "citehound.parsing:parse") -> None:
        super().__init__(count, limits=limits, target=target)
        self._kept = self.idle.setdefault((limits if limits is not None else Limits(), target), [])
        self._all = [self._kept.pop() if self._kept else worker for worker in self._all]
        self._free = LifoQueue()
        for worker in sorted(self._all, key=lambda worker: worker.pid is not None):
            self._free.put(worker)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            super().__exit__(kind, error, at)
            return
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._kept.extend(sorted(self._all, key=lambda worker: worker.pid is not None))


@pytest.fixture(scope="session", autouse=True)
def _warm_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citehound.corpus.Workers", WarmWorkers)
        yield
    for workers in WarmWorkers.idle.values():
        for worker in workers:
            worker.close()


@pytest.fixture
def cold_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the processes themselves."""
    monkeypatch.setattr("citehound.corpus.Workers", Workers)
