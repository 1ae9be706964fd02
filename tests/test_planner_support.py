"""A sentence is evidence for a part of a question only where its rare words and a fitting value meet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.config import Config, ModelConfig, SourceConfig
from citehound.corpus import Corpus
from citehound.models.planner.state import Source, matched_filters
from citehound.models.planner.support import counts
from citehound.models.planner.words import asks, clauses, quantities

LIBRARY = """# Library

Pupils may borrow up to four books for three weeks. Overdue books cost 20 cents a day.
The library is run by Ms Ferreira.
"""
TRIPS = """# School trips

The cost of a trip is limited to EUR 250 per pupil. One teacher accompanies every 12 pupils.
Alcohol is not allowed.
"""
LEAVE = """# Leave

## Annual leave
Every employee has 28 days of annual leave a year. Requests are approved by the line manager.

## Sick leave
A doctor's certificate is needed from the fourth day. Staff report sickness before 10:00 on the first day.

## Pay day
The salary is paid on the last day of the month.
"""

Ask = Callable[[str], Answer]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    root = tmp_path_factory.mktemp("support")
    for name, text in (("school/library", LIBRARY), ("school/trips", TRIPS), ("staff/leave", LEAVE)):
        path = root / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sources = (
        SourceConfig(name="school", path=root / "school", description="School rules for pupils."),
        SourceConfig(name="staff", path=root / "staff", description="The staff handbook."),
    )
    config = Config(root=root, sources=sources, model=ModelConfig(name="offline"))
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()

    def run(question: str) -> Answer:
        with Assistant(config, record=False) as assistant:
            return assistant.ask_sync(question, mode="agent")

    return run


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How many books may pupils borrow?", "four books"),
        ("What does an overdue book cost?", "20 cents"),
        ("Is alcohol allowed?", "Alcohol is not allowed"),
        ("Who runs the library?", "Ferreira"),
        ("How many pupils does one teacher accompany?", "every 12 pupils"),
        ("How many days of annual leave do employees have?", "28 days"),
        ("I am ill. From which day is a doctor's certificate needed?", "fourth day"),
    ],
)
def test_what_a_text_says_is_quoted(ask: Ask, question: str, said: str) -> None:
    answer = ask(question)
    assert answer.status == "complete"
    assert answer.missing == ()
    assert said in answer.claims[0].text


@pytest.mark.parametrize(
    "question",
    [
        "How much does school lunch cost?",
        "How many pupils attend the school?",
        "How many employees does the company have?",
        "What is the salary of a line manager?",
        "Who is the head of the school?",
        "What is the maximum weight of a suitcase on a school trip?",
    ],
)
def test_words_that_only_stand_near_are_no_evidence(ask: Ask, question: str) -> None:
    answer = ask(question)
    assert answer.status == "not_found"
    assert answer.claims == ()
    assert [gap.status for gap in answer.missing] == ["checked"]


def test_the_part_without_evidence_is_declared_beside_the_other(ask: Ask) -> None:
    answer = ask("How many books may pupils borrow, and what does a library card cost?")
    assert "four books" in answer.claims[0].text
    assert [gap.what for gap in answer.missing] == ["and what does a library card cost"]


def test_a_summary_quotes_the_body_and_not_the_title(ask: Ask) -> None:
    said = [claim.text for claim in ask("Summarise the library rules.").claims]
    assert any("four books" in text for text in said)
    assert "Library" not in said


def test_a_sentence_that_tells_asks_nothing() -> None:
    told, asked = clauses("I was ill last week. How long may I stay at home?")
    assert not asks(told)
    assert asks(asked)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("Up to four old books.", True),
        ("Books | 4", True),
        ("EUR 250 per book.", False),
        ("One desk for every 12 books.", False),
        ("3) If the books are lost, say so.", False),
    ],
)
def test_a_number_counts_what_follows_it(text: str, counted: bool) -> None:
    assert counts(text, "book", language="en") is counted


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What does Oriental Financial Group pay?", {}),
        ("What does the Legacy contract say?", {"supplier": "Legacy Marketing Group"}),
        ("What does Legacy Marketing Group charge?", {"supplier": "Legacy Marketing Group"}),
    ],
)
def test_a_word_that_ends_another_name_is_no_filter(question: str, found: dict[str, str]) -> None:
    source = Source(name="c", tool="search_c", description="", filters={"supplier": ("Legacy Marketing Group", "Acme")})
    assert matched_filters(question, source, language="en") == found


@pytest.mark.parametrize(
    ("text", "value"),
    [("900 million dollars", 9e8), ("USD 900 million", 9e8), ("2.5 billion euros", 2.5e9), ("900 dollars", 900)],
)
def test_millions_and_billions_are_amounts_of_money(text: str, value: float) -> None:
    assert [(q.text, q.value, q.unit) for q in quantities(f"The price is {text}.")] == [(text, value, "money")]
