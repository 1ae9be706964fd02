"""Fixtures that several test modules share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
