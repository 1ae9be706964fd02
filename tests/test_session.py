"""What somebody else's loop gets: tools that answer in full each time, and the check of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from citehound.access import OWNER
from citehound.corpus import Corpus
from citehound.session import Session
from small import TOML, WITHIN_24, opened


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("session")) as corpus:
        yield corpus


def test_a_quote_counts_only_after_its_document_was_read(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    answer = f'Incidents are reported within 24 hours. [rules/security] "{WITHIN_24}"'
    session.call_sync("search_rules", {"query": "incidents reported"})
    before = session.check_answer(answer)
    session.call_sync("read_document", {"document": "rules/security"})
    after = session.check_answer(answer)
    assert (before.status, before.claims[0].status) == ("partial", "unverified")
    assert any("not read" in line or "read" in line for line in before.feedback)
    assert (after.status, after.claims[0].status, after.feedback) == ("complete", "verified", ())


def test_numbers_must_agree_with_the_quotes(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    session.call_sync("read_document", {"document": "rules/security"})
    checked = session.check_answer(f'Incidents are reported within 48 hours. [rules/security] "{WITHIN_24}"')
    assert checked.claims[0].status == "unverified"
    assert "48 hours" in " ".join(checked.feedback)


def test_a_call_made_again_is_answered_in_full_again(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    calls = [session.call_sync("search_rules", {"query": "incidents"}) for _ in range(4)]
    reads = [session.call_sync("read_document", {"document": "rules/travel"}) for _ in range(4)]
    assert calls[0]["hits"] and all(call == calls[0] for call in calls)
    assert "Trains" in reads[0]["text"] and all(read == reads[0] for read in reads)


def test_what_goes_wrong_is_one_line(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    for name, arguments in (
        ("no_such_tool", {}),
        ("read_document", {"document": {"a": 1}}),
        ("read_document", {"document": "nobody/knows"}),
        ("search_rules", {"query": "x" * 300}),
        ("search_rules", {"query": "incidents", "colour": "red"}),
    ):
        result = session.call_sync(name, arguments)
        assert set(result) == {"error"}, result
        assert "\n" not in result["error"] and len(result["error"]) <= 500


def test_many_calls_at_once_are_all_kept(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)

    async def all_at_once() -> None:
        names = ["rules/security", "rules/travel", "deals/alpha", "deals/beta"] * 5
        await asyncio.gather(*(session.call("read_document", {"document": name}) for name in names))

    asyncio.run(all_at_once())
    assert set(session.evidence().documents_read()) == {"rules/security", "rules/travel", "deals/alpha", "deals/beta"}
    assert len(session.evidence().passages) == 4


def test_a_call_works_where_an_event_loop_runs_already(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)

    async def within() -> dict[str, object]:
        return session.call_sync("read_document", {"document": "rules/travel"})

    assert "Trains" in str(asyncio.run(within())["text"])


def test_what_was_read_is_bounded(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citehound.session.MOST_PASSAGES", 2)
    session = Session(corpus, principal=OWNER)
    for name in ("rules/security", "rules/travel", "rules/security", "deals/alpha"):
        session.call_sync("read_document", {"document": name})
    assert session.evidence().documents_read() == ("rules/security", "deals/alpha")


def test_an_answer_without_citations_is_no_complete_one(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    checked = session.check_answer("Incidents must be reported within 24 hours.")
    assert checked.status == "partial"
    assert checked.claims[0].status == "uncited"
    assert checked.feedback


def test_an_answer_as_data_is_read_as_one(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    session.call_sync("read_document", {"document": "rules/security"})
    claim = {"text": WITHIN_24, "citations": [{"document": "rules/security", "quote": WITHIN_24}]}
    assert session.check_answer({"claims": [claim]}).status == "complete"
    broken = session.check_answer({"claims": 7})
    assert broken.status == "failed" and "claims" in broken.feedback[0]
    assert session.check_answer({"claims": [claim], "missing": [{"what": "audits"}]}).status == "partial"


def test_a_gap_is_checked_once_it_was_searched_for(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    session.call_sync("search_deals", {"query": "annual audit"})
    checked = session.check_answer("Missing: annual audit of suppliers (searched deals)")
    assert (checked.status, checked.missing[0].status) == ("not_found", "checked")


def test_an_oversize_answer_is_cut_and_says_so(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    checked = session.check_answer({"claims": [{"text": f"claim {n}"} for n in range(500)]})
    assert len(checked.claims) <= 80
    assert "500 claims" in checked.feedback[0]


def test_the_tools_and_instructions_name_the_sources(corpus: Corpus) -> None:
    session = Session(corpus, principal=OWNER)
    names = [tool.name for tool in session.tools]
    assert names[:2] == ["search_rules", "search_deals"]
    assert {"read_document", "find_in_document", "follow_leads", "list_documents"} <= set(names)
    assert "What suppliers have agreed to." in session.instructions
    assert '[document] "' in session.instructions


def test_a_source_that_reaches_out_is_no_tool_beside_a_private_one(tmp_path: Path) -> None:
    """Also with quarantined reading, which allows both in one configuration: this loop reads whole texts."""
    web = (
        '[[sources]]\nname = "web"\nkind = "web"\nprivate = false\ndomains = ["example.org"]\n'
        'search_url = "https://search.example.org/s?q={query}"\n'
    )
    with opened(tmp_path, toml=f"[security]\nquarantine = true\n\n{TOML}\n{web}") as corpus:
        names = [tool.name for tool in Session(corpus, principal=OWNER).tools]
    assert "search_rules" in names and "search_web" not in names
    public = TOML.replace("[[sources]]", "[[sources]]\nprivate = false")
    with opened(tmp_path, toml=f"{public}\n{web}") as corpus:
        assert "search_web" in [tool.name for tool in Session(corpus, principal=OWNER).tools]
