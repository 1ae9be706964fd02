"""Many files, with a kill -9 on the way: nothing that was stored is read again, and memory stays bounded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import chunking
import ingest_scale

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")


def check(result: ingest_scale.Result) -> None:
    assert 0 < result.stored < result.files
    assert result.unchanged == result.stored
    assert result.unchanged + result.indexed == result.files and not result.failed
    assert result.peak_mb < 1024


def test_a_killed_run_goes_on_where_it_was(bank_root: Path, tmp_path: Path) -> None:
    check(ingest_scale.measure(bank_root, tmp_path, files=90, kill_at=20, commit_seconds=0.0))


def test_a_size_of_passages_is_measured(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bank").symlink_to(shared_data / "corpora" / "bank")
    row = chunking.measure(tmp_path / "data", None, cache=tmp_path, scratch=tmp_path, target=60, most=90)
    assert row.passages > 100 and row.words < 90 and row.patterns > 20
    assert 0 < row.in_6 <= row.in_10 <= 1
    assert chunking.chunking.TARGET_WORDS > 60


@pytest.mark.slow
def test_20_000_files_stay_below_a_gigabyte_and_resume(shared_data: Path, tmp_path: Path) -> None:
    check(ingest_scale.measure(shared_data / "corpora", tmp_path, files=20_000, kill_at=2_000))
