"""The short form of the scale and retrieval benchmarks: they run, and what they say adds up."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import retrieval
import scale


@pytest.mark.parametrize("engine", ["citehound", "fts5"])
def test_a_small_index_is_built_searched_and_changed(engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    built = scale.build(engine, folder, passages=300)
    assert built is not None and scale.build(engine, folder, passages=300) is None
    row = scale.measure(engine, folder, passages=300, queries=10, built=built)
    assert (row.passages, row.build_seconds, row.build_cpu_seconds) == (300, built.seconds, built.cpu_seconds)
    assert 0 < row.p50_ms <= row.p95_ms and row.bytes_on_disk > 0


def test_a_labelled_set_is_scored_with_and_without_vectors(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    texts = {"a": "Refunds are paid within ten days.", "b": "Disks are encrypted.", "c": "Clocks are wound."}
    rows = [json.dumps({"id": key, "title": key, "text": text}) for key, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(rows), "utf-8")
    asked: list[dict[str, str | list[str]]] = [
        {"question": "When are refunds paid?", "must_read": ["a"]},
        {"question": "Which disks are encrypted?", "must_read": ["b"]},
        {"question": "Who is the king?", "must_read": []},
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)), "utf-8")
    found = retrieval.labelled_set(folder, tmp_path / "state", most=10, fusion=False, notes=[])
    own = {row.retriever: row for row in found if row.retriever.startswith("citehound")}
    assert set(own) == {"citehound", "citehound, words"}
    assert all((row.questions, row.ndcg, row.recall5, row.all10) == (2, 100.0, 100.0, 100.0) for row in own.values())
    around = retrieval.labelled_set(folder, tmp_path / "state", most=10, fusion=True, notes=[])
    assert {row.kind for row in around} == {"all", "even", "odd"}
    assert {row.retriever for row in around} == {"citehound, words", *retrieval.neighbours()}
    notes: list[str] = []
    embedders = ["static", "test_embedding:letters"]
    compared = retrieval.labelled_set(
        folder, tmp_path / "state", most=10, fusion=False, notes=notes, embedders=embedders
    )
    scores = {row.retriever: row.recall5 for row in compared}
    assert {"citehound, words", "static alone", "static fills up", "letters alone", "letters by default"} <= set(scores)
    assert scores["static alone"] == 100.0 and all("ms of CPU" in note for note in notes) and len(notes) == 2


def test_scores_are_those_of_the_textbook() -> None:
    assert retrieval.score(["x", "a"], frozenset({"a"})) == (1 / retrieval.math.log2(3), 1.0, 1.0, 1.0)
    assert retrieval.score(["x"], frozenset({"a", "b"})) == (0.0, 0.0, 0.0, 0.0)
    assert retrieval.score(["a", "x"], frozenset({"a", "b"}))[1:] == (0.5, 0.5, 0.0)
