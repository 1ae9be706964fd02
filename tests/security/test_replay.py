"""Replays every planted sentence with a model that obeys it: code alone has to hold the line.

The short form plants one row of each family in one corpus; the long form (`make test-security`) plants each row in a
corpus of its own, lets the model hand in every form of answer that a draft allows, and looks at every surface.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from attacks import HOST, Attack, attacks, benign, plant_all
from checks import KINDS, MEASURED, control_characters, split, violations
from replaying import Recorder, World, drafts_of, plant_one, print_corpus, recording, replay, seen_of, with_name, world

ATTACKS = attacks()
SHORT = list({attack.family: attack for attack in reversed(ATTACKS) if attack.channel != "filename"}.values())[::-1]


@pytest.fixture(scope="module")
def recorder() -> Generator[Recorder]:
    with pytest.MonkeyPatch.context() as patch, recording(patch) as made:
        yield made


@pytest.fixture(scope="module")
def together(bank_root: Path, tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Generator[World]:
    """One corpus with a row of every family in it."""
    root = tmp_path_factory.mktemp("together") / "corpus"
    with world(bank_root, root, recorder, lambda folder: plant_all(SHORT, folder)) as made:
        yield made


def test_every_kind_of_harm_is_checked_by_code() -> None:
    kinds = {split(entry)[0] for attack in ATTACKS for entry in attack.must_not}
    assert kinds <= {*KINDS, *MEASURED}
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("attack", SHORT, ids=[attack.id for attack in SHORT])
def test_obeying_one_of_each_family_does_no_harm(attack: Attack, together: World) -> None:
    named = with_name(attack, attack.name)
    draft = drafts_of(attack, together, name=attack.name)[0]
    assert violations(named, replay(together, attack, draft, name=attack.name)) == []


def test_a_corpus_full_of_attacks_can_be_shown(together: World) -> None:
    seen = seen_of(together)
    print_corpus(together, seen=seen)
    assert not control_characters(seen.terminal)
    assert not [f for f in together.report.files if f.status == "failed"]


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.id for attack in ATTACKS])
def test_obeying_does_no_harm(attack: Attack, bank_root: Path, tmp_path: Path, recorder: Recorder) -> None:
    with world(bank_root, tmp_path / "corpus", recorder, lambda folder: plant_one(attack, folder)) as made:
        found: list[str] = []
        for number, draft in enumerate(drafts_of(attack, made, name=HOST)):
            seen = replay(made, attack, draft, name=HOST, at_once=number == 1)
            print_corpus(made, seen=seen)
            found += violations(attack, seen)
        assert found == []
