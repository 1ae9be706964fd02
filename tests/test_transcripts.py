"""Four investigations that a careful reader played by hand as the model: replayed, they end as recorded and score as a
person scores them.

Beside the model's replies, each fixture has the hand scores and why (`hand`, `why`), worked out from the transcript and
the case before the metrics were first run on them.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from citehound import config
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.budget import FREE
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.evals.cases import Case
from citehound.evals.metrics import score
from citehound.evals.runner import observe
from citehound.events import Event
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, Turn, call

FOLDER = Path(__file__).parent / "data" / "transcripts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True, kw_only=True)
class Replayed:
    told: dict[str, Any]
    answer: Answer
    model: ScriptedModel
    scores: dict[str, float | None]


def turn_of(reply: dict[str, Any]) -> Turn:
    if "answer" in reply:
        return Draft.model_validate(reply["answer"])
    return [call(c["name"], c["arguments"]) for c in reply["tool_calls"]]


def case_of(told: dict[str, Any]) -> Case:
    row = told["case"]
    return Case(
        id=row["id"],
        question=row["question"],
        kind=row["kind"],
        must_read=tuple(row["must_read"]),
        answer_points=tuple(row["answer_points"]),
        missing=tuple(row["missing"]),
    )


def toml_of(told: dict[str, Any], folder: Path) -> str:
    """Sources in the shared corpora, as the transcript had them."""
    lines: list[str] = []
    for source in told["sources"]:
        lines += ["[[sources]]", f"name = {json.dumps(source['name'])}"]
        lines.append(f"path = {json.dumps((folder / source['path']).as_posix())}")
        lines += [f"{key} = {json.dumps(source[key])}" for key in ("filters", "include") if key in source]
    return "\n".join(lines) + "\n"


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) if name.startswith("pol-") else name for name in NAMES],
)
def replayed(request: pytest.FixtureRequest, bank_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    told: dict[str, Any] = json.loads((FOLDER / f"{request.param}.json").read_text("utf-8"))
    home = tmp_path_factory.mktemp(told["name"])
    if told["corpus"] == "bank":
        shutil.copytree(bank_root, home, dirs_exist_ok=True)
    else:
        corpora: Path = request.getfixturevalue("shared_data") / "corpora"
        (home / "citehound.toml").write_text(toml_of(told, corpora / told["corpus"]), "utf-8")
    read = config.load(home / "citehound.toml", env={})
    model = ScriptedModel([turn_of(reply) for reply in told["replies"]])
    opened = OpenedModel(model=model, name="scripted", price=FREE, structured=told["structured"])
    events: list[Event] = []
    with Corpus.open(read, write=True) as corpus:
        corpus.sync()
        answer = Assistant(read, corpus, opened, emit=events.append).ask_sync(told["question"], mode=told["mode"])
        observed = observe(answer, [event.to_dict() for event in events], corpus, case=case_of(told))
    return Replayed(told=told, answer=answer, model=model, scores=score(observed))


def test_a_replayed_investigation_ends_as_recorded(replayed: Replayed) -> None:
    answer, recorded = replayed.answer, replayed.told["recorded"]
    reasons = [c.reason for claim in answer.claims for c in claim.citations if c.reason]
    assert [[claim.kind, claim.status] for claim in answer.claims] == recorded["claims"], reasons
    assert (answer.status, [gap.status for gap in answer.missing]) == (recorded["status"], recorded["missing"])
    assert answer.stop_reason == "answered"
    assert len(replayed.model.requests) == len(replayed.told["replies"])


def test_a_replayed_investigation_has_no_false_warning(replayed: Replayed) -> None:
    warned = [warning for claim in replayed.answer.claims for warning in claim.warnings]
    assert not [w for w in warned if "counted otherwise" in w or "amended by" in w]


def test_metrics_give_what_a_person_gives_by_hand(replayed: Replayed) -> None:
    hand = replayed.told["hand"]
    assert len(hand) == 7
    assert {name: replayed.scores[name] for name in hand} == pytest.approx(hand)  # pyright: ignore[reportUnknownMemberType]


def test_there_are_four_transcripts_of_three_corpora() -> None:
    told = [json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in NAMES]
    assert len(told) >= 4
    assert {"bank", "contracts", "policies"} == {each["corpus"] for each in told}
    assert sum(each["corpus"] == "bank" for each in told) >= 2
