"""Short forms of the benchmarks that play a load against a local model server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import budget  # noqa: E402
import loads  # noqa: E402
import overhead  # noqa: E402
import tokens  # noqa: E402
from citehound.corpus import Corpus  # noqa: E402


@pytest.fixture(scope="module")
def bank(bank_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    corpus = budget.opened(bank_root, tmp_path_factory.mktemp("bank"))
    yield corpus
    corpus.close()


def test_a_shared_cap_is_never_passed_and_hardly_left_over(bank: Corpus) -> None:
    row = budget.run(bank, questions=12, cap=0.9, seed=5)
    assert row.overshoot == pytest.approx(0.0, abs=budget.MAX_OVERSHOOT)
    assert row.billed == pytest.approx(row.booked)
    assert row.unused is not None and row.unused < 0.35
    assert row.reasons.get("dollars")


def test_a_shared_cap_holds_when_replies_get_lost(bank: Corpus) -> None:
    row = budget.run(bank, questions=8, cap=0.3, seed=6, faults=0.3)
    assert row.overshoot == pytest.approx(0.0, abs=budget.MAX_OVERSHOOT)
    assert row.billed <= row.booked + 1e-9


def test_loads_depend_on_the_question_and_the_attempt_only() -> None:
    asked = {"role": "user", "content": f"Why? {loads.label(3, seed=9)}"}
    tools = [{"name": "search_rules", "input_schema": {}}]
    body: dict[str, Any] = {"messages": [asked], "tools": tools, "max_tokens": 1500}
    first = loads.investigate(body, {"attempt": 0})
    assert first == loads.investigate(body, {"attempt": 0}) != loads.investigate(body, {"attempt": 1})
    assert first["usage"]["output_tokens"] <= 1500
    assert loads.numbers_of(asked["content"]) == (3, 9)


def test_an_investigation_sends_less_than_a_naive_loop_and_keeps_its_prefix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens.main(["--corpus", "bank", "--limit", "1", "--json", "--cache", str(tmp_path)])
    data = json.loads(capsys.readouterr().out)
    (row,) = data["corpora"]
    assert row["requests"] == tokens.TURNS
    assert row["tokens"] < row["naive_tokens"]
    assert row["prefix"] > 0.8
    assert row["dollars"] < row["naive_cached_dollars"] < row["naive_dollars"]


def test_every_contestant_is_measured_and_one_that_is_missing_is_named() -> None:
    names = ("floor", "citehound", *(() if overhead.has_langchain(sys.executable) else ("langchain",)))
    rows = overhead.measure(runs=1, warm_up=0, python=sys.executable, names=names)
    assert [row.name for row in rows] == list(names)
    assert all(row.wall_ms > 0 and row.cpu_ms > 0 and row.peak_mb > 0 for row in rows if row.installed)
    missing = not overhead.has_langchain(sys.executable)
    assert ("langchain | not installed" in overhead.table(rows)) == missing
