"""The retention demo shows what it claims: one search misses the change, the loop finds it by a lead, not by luck."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from citehound import config
from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.corpus import Corpus

QUESTION = "What's our current file retention policy, and has it changed recently?"
UPDATE = "Uploads now stay around for 90 days before the Sweeper deletes them (was 30)."
RULE = "uploaded files are kept for 30 days."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = Path(__file__).resolve().parents[1] / "src" / "citehound" / "demos" / "retention"
    at = tmp_path_factory.mktemp("demo") / "retention"
    shutil.copytree(here, at, ignore=shutil.ignore_patterns(".citehound"))
    return at


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Iterator[Corpus]:
    with Corpus.open(config.load(folder / "citehound.toml"), write=True) as corpus:
        corpus.sync()
        yield corpus


def ask(folder: Path, mode: str) -> Answer:
    with Assistant(config.load(folder / "citehound.toml")) as assistant:
        return assistant.ask_sync(QUESTION, mode=mode)


@pytest.fixture(scope="module")
def single(folder: Path, corpus: Corpus) -> Answer:
    return ask(folder, "single")


@pytest.fixture(scope="module")
def agent(folder: Path, corpus: Corpus) -> Answer:
    return ask(folder, "agent")


def quotes(answer: Answer) -> str:
    return " ".join(c.quote for claim in answer.claims for c in claim.citations if c.status == "verified")


def test_rule_and_update_stand_among_at_least_forty_other_passages(corpus: Corpus) -> None:
    assert corpus.lexicon(principal=OWNER).passages >= 42
    assert RULE in corpus.document("docs/README", principal=OWNER).text
    assert UPDATE in corpus.document("changelog/2026", principal=OWNER).text


def test_the_period_is_stated_nowhere_else(corpus: Corpus) -> None:
    days = [
        listed.document
        for listed in corpus.list_documents(None, principal=OWNER).documents
        if re.search(r"\b(30|90) days\b", corpus.document(listed.document, principal=OWNER).text)
    ]
    assert sorted(days) == ["changelog/2026", "docs/README"]


def test_searching_the_question_leaves_the_update_out(corpus: Corpus) -> None:
    at = corpus.document("changelog/2026", principal=OWNER).text.index(UPDATE)
    for source in ("changelog", None):
        hits = corpus.search(source, QUESTION, principal=OWNER, k=6, per_document=6).hits
        assert len(hits) == 6
        assert not any(h.document == "changelog/2026" and h.start <= at < h.end for h in hits)


def test_searching_the_mechanism_that_the_rule_names_finds_the_update(corpus: Corpus) -> None:
    at = corpus.document("changelog/2026", principal=OWNER).text.index(UPDATE)
    hits = corpus.search("changelog", "Sweeper", principal=OWNER).hits
    assert any(h.document == "changelog/2026" and h.start <= at < h.end for h in hits)


def test_single_reads_the_rule_and_not_the_update(single: Answer) -> None:
    assert single.mode == "single"
    assert "30 days" in quotes(single)
    assert "90 days" not in single.text


def test_agent_quotes_the_rule_and_the_update(agent: Answer) -> None:
    assert "30 days" in quotes(agent)
    assert "90 days" in quotes(agent)
    cited = {c.document for claim in agent.claims for c in claim.citations if c.status == "verified"}
    assert {"docs/README", "changelog/2026"} <= cited


def test_agent_finds_the_update_by_a_word_that_only_the_rule_has(agent: Answer) -> None:
    asked = set(re.findall(r"\w+", QUESTION.lower()))
    leads = [
        set(re.findall(r"\w+", str(call.arguments["query"]).lower())) - asked
        for call in agent.calls
        if call.tool == "search_changelog"
    ]
    assert any({"sweeper", "sweep", "swept"} & words for words in leads)


def test_agent_stays_within_eight_reads(agent: Answer) -> None:
    assert agent.usage.reads <= 8
    assert agent.usage.steps <= 12
