"""One retrieval by code, one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.corpus import Corpus
from citehound.documents import SearchHit
from citehound.drafts import Draft, DraftGap
from citehound.evidence import Ledger
from citehound.models.scripted import ScriptedModel, Turn, call
from citehound.single import PASSAGES, fuse, retrieve, short_query
from small import FILES, GOOD, WITHIN_24, opened, quoting

QUESTION = "Within how many hours must incidents be reported?"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def ask(corpus: Corpus, turns: list[Turn], **limits: Any) -> tuple[Answer, ScriptedModel]:
    model = ScriptedModel(turns)
    return Assistant(corpus.config, corpus, model).ask_sync(QUESTION, mode="single", **limits), model


def test_one_search_per_source_and_one_answer(corpus: Corpus) -> None:
    answer, model = ask(corpus, [GOOD])
    assert (answer.status, answer.stop_reason, answer.mode) == ("complete", "answered", "single")
    assert sorted(c.tool for c in answer.calls if c.tool != "read_document") == ["search_deals", "search_rules"]
    assert (answer.usage.searches, answer.usage.steps, answer.usage.model_calls) == (2, 1, 1)
    reads = [c for c in answer.calls if c.tool == "read_document"]
    assert 0 < len(reads) == answer.usage.reads <= PASSAGES
    assert all(c.returned[0].document == c.arguments["document"] and c.error is None for c in reads)
    assert {(c.source, c.arguments["document"]) for c in reads} >= {("rules", "rules/security")}
    assert model.requests[0].parameters.function_tools == []
    assert dict(model.requests[0].settings)["max_tokens"] == 4000


def test_passages_are_whole_in_the_prompt_and_count_as_read(corpus: Corpus) -> None:
    ledger = Ledger()
    got = asyncio.run(retrieve(QUESTION, corpus=corpus, sources=corpus.sources, principal=OWNER, ledger=ledger))
    assert any(WITHIN_24 in p.text for p in got.passages)
    for p in got.passages:
        assert p.text == corpus.document(p.document, principal=OWNER).text[p.start : p.end]
    assert ledger.evidence().passages == got.passages
    places = {(h.document, h.start, h.end) for h in ledger.evidence().hits}
    assert {(p.document, p.start, p.end) for p in got.passages} <= places


def test_at_most_six_passages_and_chunks_are_whole(tmp_path: Path) -> None:
    many = {
        f"rules/r{n}.md": f"# Rule {n}\n\n" + f"Incidents of kind {n} are reported. It takes a form.\n\nSee {n}. " * 9
        for n in range(12)
    }
    with opened(tmp_path, {**FILES, **many}) as corpus:
        ledger = Ledger()
        got = asyncio.run(retrieve(QUESTION, corpus=corpus, sources=corpus.sources, principal=OWNER, ledger=ledger))
        places = {(h.document, h.start, h.end) for h in ledger.evidence().hits}
    assert len(got.passages) == PASSAGES
    assert {(p.document, p.start, p.end) for p in got.passages} <= places


def test_a_quote_that_no_passage_holds_is_unverified(corpus: Corpus) -> None:
    forged = quoting("rules/security", "Incidents must be reported within 36 hours of discovery.")
    answer, model = ask(corpus, [forged, forged])
    assert answer.status == "partial"
    assert [c.status for c in answer.claims] == ["unverified"]
    assert len(model.requests) == 2
    assert answer.usage.steps == 1


def test_a_model_that_calls_tools_where_there_are_none_is_not_asked_for_ever(corpus: Corpus) -> None:
    search = call("search_rules", {"query": "incidents"})
    answer, model = ask(corpus, [search, search, search, search])
    assert len(model.requests) == 4
    assert "no tool 'search_rules': call final_answer" in str(model.requests[-1].messages)
    assert (answer.stop_reason, answer.status, answer.usage.steps) == ("model_error", "partial", 1)
    assert answer.claims, "what was retrieved is shown"


def test_nothing_found_is_a_checked_gap(corpus: Corpus) -> None:
    answer, _ = ask(corpus, [Draft(missing=(DraftGap(what="hours to report incidents"),))])
    assert answer.status == "not_found"
    assert [g.status for g in answer.missing] == ["checked"]


def test_one_source_that_fails_does_not_end_the_run(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Corpus.search

    def failing(self: Corpus, source: str | None, query: str, **options: Any) -> Any:
        if source == "deals":
            raise OSError("no disk")
        return search(self, source, query, **options)

    monkeypatch.setattr(Corpus, "search", failing)
    answer, _ = ask(corpus, [GOOD])
    assert answer.status == "complete"
    assert [c.error is None for c in answer.calls if c.tool == "search_deals"] == [False]


def test_a_long_question_becomes_a_query_that_is_cut_at_a_word() -> None:
    query = short_query("incidents   " * 60)
    assert len(query) <= 256
    assert query.endswith("incidents")
    assert short_query("x" * 500) == "x" * 256


HITS = st.lists(
    st.builds(
        lambda n, score: SearchHit(
            document=f"d{n}", section=None, title="", snippet="", score=score, current=True, metadata={}, start=0, end=1
        ),
        st.integers(0, 9),
        st.floats(0, 5),
    ),
    max_size=6,
    unique_by=lambda hit: hit.document,
)


@given(st.lists(HITS, max_size=4))
def test_fusing_keeps_each_place_once_and_first_ranks_first(rankings: list[list[SearchHit]]) -> None:
    fused = fuse(rankings)
    assert len({h.document for h in fused}) == len(fused)
    assert {h.document for h in fused} == {h.document for hits in rankings for h in hits}
    for hits in rankings:
        if hits and all(hits[0].document == other[0].document for other in rankings if other):
            assert fused[0].document == hits[0].document
