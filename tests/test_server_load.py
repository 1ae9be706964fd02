"""The short form of the load benchmark: many questions at once, and those beyond turned away at once."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import load


def test_many_questions_at_once_are_all_answered_and_those_beyond_turned_away() -> None:
    done = load.measure(questions=12, parallel=6, latency=0.05, steps=3)
    assert done.errors == 0
    assert (done.refused, done.refused_wrong) == (load.EXCESS, 0)
    assert done.memory_growth < load.MAX_GROWTH
