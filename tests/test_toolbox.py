"""What a model gets from the tools, and what the ledger keeps of it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citehound.access import OWNER, Principal
from citehound.budget import worst_tokens
from citehound.config import SourceConfig
from citehound.corpus import Corpus
from citehound.errors import ConfigError
from citehound.events import Event
from citehound.evidence import Ledger
from citehound.toolbox import (
    MAX_CALLS,
    RESULT_TOKENS,
    Finding,
    Tool,
    Toolbox,
    check_effects,
    corpus_tools,
    read_page,
    search_source,
    tool_name,
)
from small import FILES, TOML, WITHIN_24, opened


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


class Used:
    """A toolbox in its first step."""

    def __init__(self, corpus: Corpus, *, extra: tuple[Tool, ...] = ()) -> None:
        self.ledger = Ledger()
        self.corpus = corpus
        self.events: list[Event] = []
        self.box = Toolbox(corpus, principal=OWNER, ledger=self.ledger, emit=self.events.append, extra=extra)
        self.box.begin_step(1)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return asyncio.run(self.box.call(name, arguments))

    def together(self, *calls: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        async def run() -> list[dict[str, Any]]:
            return await asyncio.gather(*(self.box.call(name, arguments) for name, arguments in calls))

        return asyncio.run(run())


@pytest.fixture
def used(corpus: Corpus) -> Used:
    return Used(corpus)


def test_every_source_gets_a_search_tool_beside_the_three_common_ones(used: Used) -> None:
    assert used.box.names == (
        "search_rules",
        "search_deals",
        "read_document",
        "find_in_document",
        "follow_leads",
        "list_documents",
    )
    assert all(tool.effect == "read" for tool in used.box.tools)


def test_a_source_name_becomes_an_identifier() -> None:
    assert tool_name("our wiki (old)") == "search_our_wiki__old_"


def test_sources_that_would_share_a_tool_are_refused() -> None:
    class Two:
        def sources_for(self, principal: Principal) -> tuple[SourceConfig, ...]:
            return tuple(SourceConfig(name=name, path=Path("x")) for name in ("a-b", "a.b"))

    with pytest.raises(ConfigError, match="would share the tool name 'search_a_b'"):
        corpus_tools(cast(Corpus, Two()), principal=OWNER)


def test_filters_are_enums_while_there_are_few_values(used: Used) -> None:
    parameter = used.box.tool("search_deals").parameters["properties"]["supplier"]
    assert sorted(parameter["enum"]) == ["Alpha", "Beta"]
    assert "supplier" not in used.box.tool("search_rules").parameters["properties"]


def test_filters_are_strings_beyond_fifty_values(tmp_path: Path) -> None:
    many = {f"deals/{n}.md": f"---\nsupplier: S{n}\n---\n# Deal {n}\n\nText of deal {n}.\n" for n in range(51)}
    with opened(tmp_path, {**FILES, **many}) as corpus:
        parameter = Used(corpus).box.tool("search_deals").parameters["properties"]["supplier"]
    assert parameter["type"] == "string"
    assert "enum" not in parameter


def test_a_search_is_seen_and_not_read(used: Used) -> None:
    result = used.call("search_rules", query="report incidents")
    hit = result["hits"][0]
    assert (hit["document"], hit["section"]) == ("rules/security", "7")
    assert len(hit["snippet"]) <= 300
    assert hit["current"] is True
    evidence = used.ledger.evidence()
    assert [s.query for s in evidence.searches] == ["report incidents"]
    assert evidence.hits
    assert not evidence.passages
    assert evidence.calls[0].returned[0].document == "rules/security"


def test_a_filter_narrows_and_its_value_is_in_the_hit(used: Used) -> None:
    result = used.call("search_deals", query="incidents", supplier="Beta")
    assert [(h["document"], h["supplier"]) for h in result["hits"]] == [("deals/beta", "Beta")]
    assert used.ledger.evidence().searches[0].filters == (("supplier", "Beta"),)


def test_an_unknown_filter_value_gives_no_hits_and_the_nearest(used: Used) -> None:
    result = used.call("search_deals", query="incidents", supplier="Alfa")
    assert result["hits"] == []
    assert "Alpha" in " ".join(result["notes"])


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("search_rules", {"query": "x" * 257}, "at most 256"),
        ("search_rules", {"query": "  "}, "non-empty"),
        ("search_rules", {}, "query must be"),
        ("search_rules", {"query": "a", "supplier": "Alpha"}, "no parameter 'supplier'"),
        ("search_rules", {"query": "a", "k": "many"}, "whole number"),
        ("search_rules", {"query": "a", "only_current": "perhaps"}, "true or false"),
        ("search_rules", {"query": ["a"]}, "query must be"),
        ("read_document", {"document": "rules/nothing-like-it"}, "rules/nothing-like-it"),
        ("read_document", {"document": "rules/security", "section": "99"}, "99"),
        ("read_document", {"document": "rules/security", "start": -1}, "whole number"),
        ("read_document", {"document": "../../etc/passwd"}, "passwd"),
        ("find_in_document", {"document": "rules/security", "phrase": "y" * 300}, "at most 256"),
        ("list_documents", {"source": "none"}, "no source 'none'"),
        ("list_documents", {"source": "deals", "filters": {"owner": "x"}}, "no filter 'owner'"),
        ("list_documents", {"source": "deals", "filters": "Alpha"}, "must be an object"),
        ("delete_document", {"document": "rules/security"}, "no tool 'delete_document'"),
    ],
)
def test_wrong_arguments_come_back_as_one_line_that_helps(
    used: Used, name: str, arguments: dict[str, Any], said: str
) -> None:
    result = used.call(name, **arguments)
    assert set(result) == {"error"}
    assert said in result["error"]
    assert "\n" not in result["error"]
    call = used.ledger.evidence().calls[0]
    assert call.error == result["error"]
    assert [e.type for e in used.events] == ["tool_called", "tool_failed"]


def test_reading_gives_exactly_the_text_and_counts_as_read(used: Used, corpus: Corpus) -> None:
    result = used.call("read_document", document="rules/security", section="7")
    text = corpus.document("rules/security", principal=OWNER).text
    assert result["text"] == text[result["start"] : result["end"]]
    assert WITHIN_24 in result["text"]
    passage = used.ledger.evidence().passages[0]
    assert (passage.document, passage.start, passage.end) == ("rules/security", result["start"], result["end"])
    assert [e.type for e in used.events] == ["tool_called", "read"]


def test_finding_nothing_is_kept_as_such(used: Used) -> None:
    result = used.call("find_in_document", document="rules/travel", phrase="aeroplane")
    assert (result["total"], result["passages"]) == (0, [])
    find = used.ledger.evidence().finds[0]
    assert (find.document, find.phrase, find.found) == ("rules/travel", "aeroplane", False)


def test_what_find_shows_counts_as_read(used: Used) -> None:
    result = used.call("find_in_document", document="rules/security", phrase="within 24 hours")
    assert result["total"] == 1
    start, end = result["passages"][0]["start"], result["passages"][0]["end"]
    assert used.ledger.evidence().was_read("rules/security", start, end)


def test_listing_takes_filters(used: Used) -> None:
    result = used.call("list_documents", source="deals", filters={"supplier": "Alpha"})
    assert [(d["document"], d["supplier"]) for d in result["documents"]] == [("deals/alpha", "Alpha")]
    assert result["total"] == 1
    assert not used.ledger.evidence().passages


def test_the_same_call_again_is_answered_by_reference(used: Used) -> None:
    used.call("search_rules", query="incidents")
    used.box.begin_step(2)
    again = used.call("search_rules", query=" Incidents ", k=6, only_current=True)
    assert again["repeated"] is True
    assert "step 1" in again["note"]
    assert not used.box.no_progress
    assert len(used.ledger.evidence().searches) == 1


def test_the_third_same_call_ends_the_search(used: Used) -> None:
    for step in (1, 2, 3):
        used.box.begin_step(step)
        used.call("read_document", document="rules/security")
    assert used.box.no_progress


def test_other_arguments_are_another_call(used: Used) -> None:
    for section in ("7", "8", None):
        assert "repeated" not in used.call("read_document", document="rules/security", section=section)
    assert not used.box.no_progress


def test_a_failed_call_may_be_tried_again(corpus: Corpus) -> None:
    tries: list[int] = []

    def run(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the disk is away\nfor now")
        return Finding(result={"fine": True})

    used = Used(corpus, extra=(Tool(name="odd", description="", parameters={}, effect="read", run=run),))
    assert used.call("odd")["error"] == "odd failed (OSError: the disk is away for now); try another call"
    assert used.call("odd") == {"fine": True}


def test_calls_beyond_eight_in_a_step_are_refused(used: Used) -> None:
    results = used.together(*(("search_rules", {"query": f"incidents {n}"}) for n in range(MAX_CALLS + 2)))
    assert ["error" in r for r in results] == [False] * MAX_CALLS + [True, True]
    assert "at most 8 calls in one step" in results[-1]["error"]
    used.box.begin_step(2)
    assert "error" not in used.call("search_rules", query="incidents 9")


def test_a_hit_shown_before_is_one_line(used: Used) -> None:
    used.call("search_rules", query="incidents discovery")
    result = used.call("search_rules", query="reported to the bank")
    assert {"document": "rules/security", "section": "7", "shown": "in this step"} in result["hits"]
    used.box.begin_step(2)
    result = used.call("search_rules", query="discovery of incidents")
    assert {"document": "rules/security", "section": "7", "shown": "at step 1"} in result["hits"]


def test_a_hit_whose_text_was_given_says_so(used: Used) -> None:
    used.call("read_document", document="rules/security")
    hits = used.call("search_rules", query="incidents discovery")["hits"]
    assert {"document": "rules/security", "section": "7", "read": True} in hits


def test_what_others_have_read_is_shown_in_full(used: Used) -> None:
    passage = read_page(used.corpus, "rules/security", principal=OWNER)
    used.ledger.read(passage)
    hits = used.call("search_rules", query="incidents discovery")["hits"]
    assert all("read" not in hit and hit["snippet"] for hit in hits)


def test_a_text_read_whole_says_so_and_says_nothing_twice(used: Used) -> None:
    result = used.call("read_document", document="deals/alpha")
    assert result["whole"] is True
    assert not {"next_start", "total_chars"} & set(result)
    assert not {"title", "declared_id"} & set(result["metadata"])
    assert result["metadata"]["supplier"] == "Alpha"
    section = used.call("read_document", document="rules/security", section="8")
    assert "whole" not in section and section["total_chars"] > section["end"] - section["start"]


def test_a_page_takes_in_a_short_rest(tmp_path: Path) -> None:
    toml = TOML.split("\n\n")[0] + "\n"
    sizes = {"short": 6_100, "long": 12_000}
    files = {f"rules/{name}.txt": "word " * (size // 5) for name, size in sizes.items()}
    with opened(tmp_path, files, toml=toml) as corpus:
        used = Used(corpus)
        assert used.call("read_document", document="rules/short")["whole"] is True
        assert used.call("read_document", document="rules/long")["next_start"] <= 6_000
        hits = used.call("search_rules", query="word")["hits"]
        starts = [hit.get("start") for hit in hits if hit["document"] == "rules/long"]
        assert all(start is None or start >= 6_000 for start in starts)


def test_a_hit_deep_in_a_long_text_can_be_read_from_its_place(tmp_path: Path) -> None:
    toml = TOML.split("\n\n")[0] + "\n"
    text = "filler text here. " * 800 + "\n\nThe zebra is striped in black.\n\n" + "filler text there. " * 800
    with opened(tmp_path, {"rules/long.txt": text}, toml=toml) as corpus:
        used = Used(corpus)
        hit = used.call("search_rules", query="zebra striped")["hits"][0]
        page = used.call("read_document", document=hit["document"], start=hit["start"])
        assert "The zebra is striped in black." in page["text"]


def test_a_filter_without_hits_names_what_it_leaves(used: Used) -> None:
    notes = used.call("search_deals", query="zebra", supplier="Beta")["notes"]
    assert notes == [
        "nothing found; 1 document has supplier = 'Beta': deals/beta; read there, or search with other words"
    ]
    assert "other words" in used.call("search_deals", query="zebra")["notes"][0]


def test_finding_nothing_always_says_so(used: Used) -> None:
    for phrase in ("aeroplane", "aeroplane tickets of gold"):
        result = used.call("find_in_document", document="rules/travel", phrase=phrase)
        assert any("stands nowhere" in note for note in result["notes"])


def test_calls_are_recorded_in_the_order_they_were_asked_for(corpus: Corpus) -> None:
    second_is_done = threading.Event()

    def slow(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        assert second_is_done.wait(timeout=30)
        return Finding(result={})

    def quick(arguments: Mapping[str, Any], max_tokens: int) -> Finding:
        second_is_done.set()
        return Finding(result={})

    tools = tuple(
        Tool(name=name, description="", parameters={}, effect="read", run=run)
        for name, run in (("slow", slow), ("quick", quick))
    )
    used = Used(corpus, extra=tools)
    used.together(("slow", {}), ("quick", {}))
    assert [c.tool for c in used.ledger.evidence().calls] == ["slow", "quick"]


def test_no_calls_in_a_closed_step(used: Used) -> None:
    used.box.begin_step(2, closed="no further calls")
    assert used.call("read_document", document="rules/security") == {"error": "no further calls"}
    assert not used.ledger.evidence().passages


def test_notes_of_the_budget_go_into_the_first_result(used: Used) -> None:
    used.box.begin_step(2, notes=("2 steps left",))
    first = used.call("search_rules", query="incidents")
    second = used.call("search_rules", query="travel")
    assert "2 steps left" in first["notes"]
    assert "2 steps left" not in second.get("notes", [])


def test_a_long_document_comes_in_pages_that_join_and_stay_under_the_cap(tmp_path: Path) -> None:
    words = " ".join(f"{n * 7919 % 10007} paragraph-{n}" for n in range(4000))
    with opened(tmp_path, {"rules/long.txt": words}, toml=TOML.split("\n\n")[0] + "\n") as corpus:
        used = Used(corpus)
        text, start, steps = "", 0, 0
        while start is not None:
            steps += 1
            used.box.begin_step(steps)
            page = used.call("read_document", document="rules/long", start=start)
            assert worst_tokens(json.dumps(page, ensure_ascii=False)) <= RESULT_TOKENS
            assert page["start"] == len(text)
            text, start = text + page["text"], page["next_start"]
        assert text == corpus.document("rules/long", principal=OWNER).text
        assert used.ledger.evidence().read_whole("rules/long")
        used.box.begin_step(steps + 1)
        used.box.limit_results(500)
        page = used.call("read_document", document="rules/long", start=7)
        assert worst_tokens(json.dumps(page, ensure_ascii=False)) <= 500


def test_at_most_two_hits_of_a_document(tmp_path: Path) -> None:
    sections = "".join(f"## {n} Part\n\nIncidents of kind {n} are reported.\n\n" for n in range(1, 9))
    with opened(tmp_path, {**FILES, "rules/many.md": f"# Many\n\n{sections}"}) as corpus:
        hits = Used(corpus).call("search_rules", query="incidents reported", k=12)["hits"]
    assert [h["document"] for h in hits].count("rules/many") == 2


ODD = ["Größe #7/a b & c", "x/50% [draft] (v2)", "été/où", "semi;colon, comma", "日本 語/契約", "a.b.c", "q?uestion"]


def test_ids_with_spaces_signs_and_accents_work(tmp_path: Path) -> None:
    files = {f"rules/{name}.md": f"# Paper {n}\n\nClause number {n} is about walruses.\n" for n, name in enumerate(ODD)}
    with opened(tmp_path, files, toml=TOML.split("\n\n")[0] + "\n") as corpus:
        used = Used(corpus)
        listed = [d["document"] for d in used.call("list_documents", source="rules")["documents"]]
        assert sorted(listed) == sorted(f"rules/{name}" for name in ODD)
        for step, document in enumerate(listed, start=1):
            used.box.begin_step(step)
            assert "walruses" in used.call("read_document", document=document)["text"]
            assert used.call("find_in_document", document=document, phrase="walruses")["total"] == 1


def test_results_hold_nothing_invisible(tmp_path: Path) -> None:
    text = "# Fine\n\nWalruses\u200b are \u202efine\u202c animals\U000e0041 \x1b[31mhere\x07.\n"
    with opened(tmp_path, {**FILES, "rules/odd.md": text}) as corpus:
        used = Used(corpus)
        shown = json.dumps(
            [used.call("search_rules", query="walruses"), used.call("read_document", document="rules/odd")],
            ensure_ascii=False,
        )
    assert "alrus" in shown
    assert not any(c in shown for c in "\u200b\u202e\u202c\U000e0041\x1b\x07")


def test_superseded_versions_are_hidden_and_counted(tmp_path: Path) -> None:
    old = "---\nstatus: superseded\n---\n# Security policy\n\n## 7 Incidents\n\nIncidents are reported within a week.\n"
    with opened(tmp_path, {**FILES, "rules/security-v1.md": old}) as corpus:
        used = Used(corpus)
        result = used.call("search_rules", query="incidents reported")
        assert "rules/security-v1" not in [h["document"] for h in result["hits"]]
        assert result["hidden_superseded"] == 1
        every = used.call("search_rules", query="incidents reported", only_current=False)
    (old_hit,) = [h for h in every["hits"] if h["document"] == "rules/security-v1"]
    assert old_hit["current"] is False
    assert old_hit["labels"]


def test_a_person_gets_what_the_model_gets(used: Used, corpus: Corpus) -> None:
    shown = used.call("search_rules", query="incidents")
    mine = search_source(corpus, "rules", "incidents", principal=OWNER)
    assert [(h["document"], h["section"], h["snippet"]) for h in shown["hits"]] == [
        (h.document, h.section, h.snippet) for h in mine.hits
    ]
    assert used.call("read_document", document="rules/security")["text"] == (
        read_page(corpus, "rules/security", principal=OWNER).text
    )


EFFECTS = st.lists(st.sampled_from(["read", "egress", "write"]), max_size=6)


@given(effects=EFFECTS, private=st.lists(st.booleans(), min_size=1, max_size=4))
def test_a_tool_that_writes_or_reaches_out_beside_private_sources_is_refused(
    effects: list[Any], private: list[bool]
) -> None:
    tools = [
        Tool(name=f"t{n}", description="", parameters={}, effect=effect, run=lambda a, m: Finding(result={}))
        for n, effect in enumerate(effects)
    ]
    sources = [SourceConfig(name=f"s{n}", path=Path("x"), private=p) for n, p in enumerate(private)]
    if "write" in effects or ("egress" in effects and any(private)):
        with pytest.raises(ConfigError):
            check_effects(tools, sources)
    else:
        check_effects(tools, sources)


def test_the_toolbox_itself_refuses_a_writing_tool(corpus: Corpus) -> None:
    tool = Tool(name="w", description="", parameters={}, effect="write", run=lambda a, m: Finding(result={}))
    with pytest.raises(ConfigError, match="'w' writes"):
        Used(corpus, extra=(tool,))


def test_a_book_of_hundreds_of_chapters_has_an_outline_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    chapters = "".join(f"## Chapter {n} of the book\n\nWords of {n}.\n\n" for n in range(1, 701))
    with opened(tmp_path, {**FILES, "rules/book.md": f"# The book\n\n{chapters}"}) as corpus:
        outline = corpus.read("rules/book", principal=OWNER).outline
        assert outline[0].title == "The book" and 150 < len(outline) <= 200
        shown = Used(corpus).call("read_document", document="rules/book")
        numbers = [int(entry["title"].split()[1]) for entry in shown["outline"][1:]]
        assert len(numbers) > 30 and numbers == sorted(numbers)
        gaps = [b - a for a, b in zip([0, *numbers], [*numbers, 700], strict=True)]
        assert max(gaps) < 2 * 700 / len(numbers)
        assert "find_in_document" in " ".join(shown["notes"])


def test_what_leads_show_is_neither_read_nor_searched(corpus: Corpus) -> None:
    used = Used(corpus)
    shown = used.call("follow_leads", question="Within how many hours must incidents be reported?")
    assert any(WITHIN_24 in hit["snippet"] for hit in shown["hits"])  # all that there is of so small a text
    evidence = used.ledger.evidence()
    assert (evidence.passages, evidence.searches, evidence.finds) == ((), (), ())
    assert not any(event.type == "read" for event in used.events)
