"""A name that no text tells of is a gap beside the answer, where every document is one passage about one thing."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.corpus import Corpus
from small import opened

TOML = """
[model]
name = "offline"

[[sources]]
name = "people"
path = "people"
"""
FILES = {
    "people/film.md": "# The Silent Harbour\n\nThe Silent Harbour is a drama of 1950 directed by Erna Voss.\n",
    "people/voss.md": "# Erna Voss\n\nErna Voss was born in Lund in 1910 and worked as a painter before.\n",
    "people/ship.md": "# The Quiet Ship\n\nThe Quiet Ship is a drama of 1960 directed by Karl Ask.\n",
    "people/pier.md": "# Ida Holm\n\nIda Holm acted in the drama The Lost Pier and lived in Lund.\n",
    **{f"people/other-{n}.md": f"# Harbour {n}\n\nA harbour of number {n} was born of water.\n" for n in range(20)},
}


@pytest.fixture
def corpus(tmp_path: Path) -> Generator[Corpus]:
    with opened(tmp_path, FILES, toml=TOML) as found:
        yield found


def ask(corpus: Corpus, question: str) -> Answer:
    return Assistant(corpus.config, corpus=corpus, record=False).ask_sync(question, mode="agent")


def test_a_name_whose_text_is_there_is_no_gap(corpus: Corpus) -> None:
    answer = ask(corpus, "Where was the director of The Silent Harbour born?")
    assert answer.claims and not answer.missing


def test_somebody_whom_no_document_is_about_is_a_gap(corpus: Corpus) -> None:
    answer = ask(corpus, "Where was the director of The Quiet Ship born?")
    assert any("Karl Ask" in gap.what for gap in answer.missing)


def test_a_side_of_a_comparison_that_no_text_names_is_a_gap(corpus: Corpus) -> None:
    answer = ask(corpus, "Which drama came out first, The Silent Harbour or Water of Lund?")
    assert any("Water of Lund" in gap.what for gap in answer.missing)


def test_a_side_that_other_texts_only_name_is_a_gap(corpus: Corpus) -> None:
    answer = ask(corpus, "Which drama came out first, The Silent Harbour or The Lost Pier?")
    assert any("The Lost Pier" in gap.what for gap in answer.missing)


def test_both_sides_are_quoted_where_no_sentence_says_what_is_compared(corpus: Corpus) -> None:
    answer = ask(corpus, "Which drama is older, The Silent Harbour or The Quiet Ship?")
    quoted = " ".join(claim.text for claim in answer.claims)
    assert "1950" in quoted and "1960" in quoted and not answer.missing


def test_a_subject_that_leads_to_nothing_of_what_is_asked_is_a_gap(corpus: Corpus) -> None:
    answer = ask(corpus, "Where did the father of Erna Voss work as a painter?")
    assert any(gap.what == "father: Erna Voss" for gap in answer.missing)
