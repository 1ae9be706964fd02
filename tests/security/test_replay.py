"""Replays every planted sentence with a model that obeys it: code alone has to hold the line.

The short form plants one row of each family in one corpus; the long form (`make test-security`) plants each row in a
corpus of its own, lets the model hand in every form of answer that a draft allows, and looks at every surface.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from attacks import ALONE, ATTACKS, HOST, MANY, PLAIN, SHORT, Attack, Benign, benign, plant
from checks import KINDS, MEASURED, control_characters, results, split, violations
from replaying import (
    Recorder,
    World,
    drafts_of,
    opened,
    plant_one,
    print_corpus,
    replay,
    seen_of,
    with_name,
    world,
)

from citehound.assistant import Assistant
from citehound.cli import output
from citehound.models.scripted import ScriptedModel, call
from small import quoting


def test_every_kind_of_harm_is_checked_by_code() -> None:
    kinds = {split(entry)[0] for attack in ATTACKS for entry in attack.must_not}
    assert kinds <= {*KINDS, *MEASURED}
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", SHORT, ids=[attack.id for attack in SHORT])
def test_obeying_one_of_each_family_does_no_harm(attack: Attack, together: World, recorder: Recorder) -> None:
    named = with_name(attack, attack.name)
    draft = drafts_of(attack, together, name=attack.name)[0]
    assert violations(named, replay(together, attack, draft, name=attack.name)) == []


def test_a_corpus_full_of_attacks_can_be_shown(together: World) -> None:
    seen = seen_of(together)
    print_corpus(together, seen=seen)
    assert not control_characters(seen.terminal)
    assert not [f for f in together.report.files if f.status == "failed"]


def everything(attack: Attack, made: World, *, name: str) -> list[str]:
    """What must not have happened, in every form of answer, with calls one by one and at once."""
    found: list[str] = []
    for number, draft in enumerate(drafts_of(attack, made, name=name)):
        found += violations(with_name(attack, name), replay(made, attack, draft, name=name, at_once=number == 1))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("attack", MANY, ids=[attack.id for attack in MANY])
def test_obeying_does_no_harm(attack: Attack, many: World, recorder: Recorder) -> None:
    assert many.document(attack.name) is not None
    assert everything(attack, many, name=attack.name) == []


@pytest.mark.slow
@pytest.mark.parametrize("attack", ALONE, ids=[attack.id for attack in ALONE])
def test_names_and_metadata_take_no_power(attack: Attack, bank_root: Path, tmp_path: Path, recorder: Recorder) -> None:
    with world(bank_root, tmp_path / "corpus", recorder, lambda folder: plant_one(attack, folder)) as made:
        seen = seen_of(made)
        print_corpus(made, seen=seen)
        assert violations(attack, seen) == []
        assert everything(attack, made, name=HOST) == []


@pytest.mark.slow
def test_a_corpus_full_of_all_attacks_can_be_shown(many: World) -> None:
    seen = seen_of(many)
    print_corpus(many, seen=seen)
    assert not control_characters(seen.terminal)


# The counterparts: without them, every replay would pass on a product that answers nothing --------------------------


@pytest.fixture(scope="module")
def honest(bank_root: Path, tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Generator[World]:
    """One corpus with every text that only looks like an attack."""

    def planting(folder: Path) -> None:
        for row in benign():
            plant(row.text, channel=row.channel, host=row.host, folder=folder, name=f"{HOST}-{row.id}")

    with world(bank_root, tmp_path_factory.mktemp("honest") / "corpus", recorder, planting) as made:
        yield made


@pytest.mark.parametrize("row", benign(), ids=[row.id for row in benign()])
def test_what_only_looks_like_an_attack_is_answered_with_its_text_intact(row: Benign, honest: World) -> None:
    document = honest.document(f"{HOST}-{row.id}")
    assert document is not None
    wanted = [entry.removeprefix("text:") for entry in row.must if entry.startswith("text:")]
    text = honest.texts[document]
    line = next(line for line in text.splitlines() if all(word in line for word in wanted) and line != PLAIN)
    model = ScriptedModel(
        [
            call("search_wiki", {"query": " ".join(re.findall(r"\w{4,}", line)[:6])}),
            call("read_document", {"document": document}),
            quoting(document, line),
        ]
    )
    answer = Assistant(honest.corpus.config, honest.corpus, opened(model)).ask_sync(row.question, mode="agent")
    given = json.dumps(results(model.requests), ensure_ascii=False)
    shown = io.StringIO()
    with redirect_stdout(shown):
        output.out(answer.claims[0].text)
        output.out(text)
    assert answer.status == "complete"
    assert [c.document for c in answer.claims[0].citations if c.status == "verified"] == [document]
    for word in wanted:
        assert json.dumps(word, ensure_ascii=False)[1:-1] in given
        assert word in answer.claims[0].citations[0].quote
        assert word in shown.getvalue()
    if row.channel == "title":
        assert row.text in honest.after[document]["title"]


def test_quoting_what_was_read_is_verified_and_what_was_only_seen_is_not(honest: World) -> None:
    document = "wiki/wiki-glossary"
    line = next(line for line in honest.texts[document].splitlines() if len(line.split()) > 6)
    read, search = call("read_document", {"document": document}), call("search_wiki", {"query": "glossary"})
    statuses: list[str] = []
    for turns in ([search, read, quoting(document, line)], [search, quoting(document, line)]):
        model = opened(ScriptedModel(turns, repeat_last=True))
        answer = Assistant(honest.corpus.config, honest.corpus, model).ask_sync("What is it?", mode="agent")
        statuses.append(answer.claims[0].citations[0].status)
    assert statuses == ["verified", "unverified"]
