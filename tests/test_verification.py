"""Gaps, currency, occurrences, feedback and rendering; the claims themselves are in the table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from citehound.answers import Citation, Claim, Gap, status_of
from citehound.documents import Document, DocumentInfo, Passage, Section
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.errors import UnknownDocument
from citehound.evidence import Evidence, Find, Search
from citehound.quantities import agree, quantities
from citehound.rendering import render_text
from citehound.verification import Checked, check

QUOTE = "The supplier answers every letter within two days"


@dataclass
class Shelf:
    documents: dict[str, Document]
    infos: dict[str, DocumentInfo] = field(default_factory=dict[str, DocumentInfo])

    def resolve(self, name: str) -> str:
        if name not in self.documents:
            raise UnknownDocument(f"no document {name!r}")
        return name

    def document(self, document: str) -> Document:
        return self.documents[document]

    def info(self, document: str) -> DocumentInfo:
        d = self.documents[document]
        made = DocumentInfo(
            document=d.id, source=d.source, title=d.title, current=True, metadata={}, total_chars=len(d.text)
        )
        return self.infos.get(document, made)


def doc(name: str, text: str = QUOTE + ".") -> Document:
    return Document(id=name, source=name.split("/")[0], path=f"{name.split('/')[-1]}.md", title=name, text=text)


def read(document: Document, start: int = 0, end: int | None = None) -> Passage:
    end = len(document.text) if end is None else end
    return Passage(
        document=document.id,
        section=None,
        title="",
        text=document.text[start:end],
        start=start,
        end=end,
        total_chars=len(document.text),
    )


def quoted(document: str, quote: str = QUOTE, text: str = "Letters are answered.") -> DraftClaim:
    return DraftClaim(text=text, citations=(DraftCitation(document=document, quote=quote),))


def judge(claims: list[DraftClaim], shelf: Shelf, evidence: Evidence) -> Checked:
    return check(Draft(claims=tuple(claims)), evidence, shelf)


def info(name: str, **fields: object) -> DocumentInfo:
    base = DocumentInfo(document=name, source="s", title=name, current=True, metadata={}, total_chars=9)
    return replace(base, **fields)  # pyright: ignore[reportArgumentType]


# --- gaps -----------------------------------------------------------------------------------------------------------


def gap(what: str, *searches: tuple[str, str], reason: str | None = None, finds: tuple[Find, ...] = ()) -> Gap:
    evidence = Evidence(
        searches=tuple(Search(source=s, query=q, filters=(("supplier", "Alpha"),)) for s, q in searches), finds=finds
    )
    return check(Draft(missing=(DraftGap(what=what, reason=reason),)), evidence, Shelf({})).missing[0]


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("A record of annual due diligence on Alpha", "annual due diligence"),
        ("Evidence of due diligence in the contract", "due diligence"),
        ("the Master Agreement", "master agreement limitation of liability"),
        ("any breach-notice clause", "breach notice deadline"),
        ("Liability cap in dollars", "cap on liability"),
        ("Nachweis der jährlichen Prüfung", "jährliche Prüfungen"),
        ("encryption of backups", "backups encrypted"),
    ],
)
def test_a_gap_that_a_search_fits_is_checked(what: str, query: str) -> None:
    found = gap(what, ("contracts", "something else entirely"), ("contracts", query))
    assert found.status == "checked"
    assert found.sources == ("contracts",)
    assert found.queries == (query,)


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("A record of annual due diligence on Alpha", "Alpha contract encryption annex"),
        ("Evidence of due diligence in the contract", "contracts"),
        ("the notice period for termination", "encryption at rest"),
        ("the price of a card", "the of a"),
        ("breach notice", "availability credits"),
        ("due diligence", "payment due date"),
    ],
)
def test_a_gap_that_was_never_searched_for_is_unchecked(what: str, query: str) -> None:
    found = gap(what, ("contracts", query))
    assert found.status == "unchecked"
    assert found.reason == "not searched"
    assert not found.queries


def test_a_find_inside_a_document_checks_a_gap() -> None:
    finds = (Find(document="contracts/alpha", phrase="due diligence", found=False),)
    assert gap("no due diligence clause", finds=finds).sources == ("contracts",)


def test_a_reason_alone_checks_nothing() -> None:
    assert gap("due diligence", reason="I searched for 'due diligence'").status == "unchecked"


def test_a_query_in_another_language_counts_if_the_reason_names_it() -> None:
    searches = (("contratos", "prova da avaliação anual do fornecedor"),)
    assert gap("annual due diligence", *searches).status == "unchecked"
    named = "searched 'prova da avaliação anual do fornecedor'"
    assert gap("annual due diligence", *searches, reason=named).status == "checked"


def test_an_unchecked_gap_goes_back_to_the_model() -> None:
    checked = check(Draft(missing=(DraftGap(what="due diligence"),)), Evidence(), Shelf({}))
    assert checked.feedback == (
        "missing 1: 'due diligence' was not searched: make one search with 2 or more of its words (due, diligence), or "
        "leave it out if the question does not need it",
    )


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_passage_whose_text_has_changed_since_is_no_reading() -> None:
    d = doc("s/a")
    old = replace(read(d), text="Something else stood here when it was read.")
    claim = judge([quoted("s/a")], Shelf({"s/a": d}), Evidence(passages=(old,))).claims[0]
    assert claim.status == "unverified"
    assert claim.citations[0].reason == "not read in this run"


def test_a_quote_over_two_pages_of_reading_counts_as_read() -> None:
    d = doc("s/a")
    evidence = Evidence(passages=(read(d, 0, 20), read(d, 20)))
    assert judge([quoted("s/a")], Shelf({"s/a": d}), evidence).claims[0].status == "verified"


def test_a_quote_half_of_which_was_read_does_not() -> None:
    d = doc("s/a")
    claim = judge([quoted("s/a")], Shelf({"s/a": d}), Evidence(passages=(read(d, 0, 20),))).claims[0]
    assert claim.citations[0].reason == "the place of the quote was not read in this run"


def test_the_place_that_was_read_is_the_one_shown() -> None:
    text = f"{QUOTE}.\n\n{QUOTE} too."
    sections = (
        Section(id="1", title="", level=1, start=0, end=51),
        Section(id="2", title="", level=1, start=51, end=107),
    )
    d = replace(doc("s/a", text), sections=sections)
    second = text.rfind(QUOTE)
    claim = judge([quoted("s/a")], Shelf({"s/a": d}), Evidence(passages=(read(d, second),))).claims[0]
    assert (claim.citations[0].start, claim.citations[0].section) == (second, "2")
    assert claim.citations[0].sentence == f"{QUOTE} too."


def test_a_failed_citation_beside_a_good_one_is_shown_and_sent_back() -> None:
    d = doc("s/a")
    claim = quoted("s/a")
    claim = claim.model_copy(update={"citations": (*claim.citations, DraftCitation(document="s/ghost", quote=QUOTE))})
    checked = judge([claim], Shelf({"s/a": d}), Evidence(passages=(read(d),)))
    assert checked.claims[0].status == "verified"
    assert [c.status for c in checked.claims[0].citations] == ["verified", "unverified"]
    assert "citation 2: no such document" in checked.claims[0].warnings
    assert "citation 2 of 's/ghost' failed" in checked.feedback[0]


def test_quantities_of_a_failed_citation_do_not_count() -> None:
    good, unread = doc("s/a"), doc("s/b", "The supplier has ninety-nine days for it all.")
    claim = DraftClaim(
        text="It has 99 days.",
        citations=(
            DraftCitation(document="s/a", quote=QUOTE),
            DraftCitation(document="s/b", quote="has ninety-nine days for it"),
        ),
    )
    shelf = Shelf({"s/a": good, "s/b": unread})
    assert judge([claim], shelf, Evidence(passages=(read(good),))).claims[0].status == "unverified"


def test_a_bracket_in_a_real_id_needs_the_whole_id() -> None:
    d = doc("s/a]")
    shelf = Shelf({"s/a]": d})
    assert judge([quoted("s/a]")], shelf, Evidence(passages=(read(d),))).claims[0].status == "verified"
    shelf.documents["a]"] = d
    assert judge([quoted("a]")], shelf, Evidence(passages=(read(d),))).claims[0].status == "unverified"


def test_no_claim_and_no_gap_is_dropped() -> None:
    claims = [quoted("s/ghost"), DraftClaim(text="x"), DraftClaim(text="y", kind="conclusion", premises=(1, 2, 9))]
    draft = Draft(claims=tuple(claims), missing=(DraftGap(what="z"), DraftGap(what="")))
    checked = check(draft, Evidence(), Shelf({}))
    assert [c.text for c in checked.claims] == ["Letters are answered.", "x", "y"]
    assert [g.status for g in checked.missing] == ["unchecked", "unchecked"]
    assert status_of(stop_reason="answered", text="t", claims=checked.claims, missing=checked.missing) == "partial"


def test_conclusions_that_rest_on_all_before_them_are_judged_without_multiplying() -> None:
    d = doc("s/a")
    claims = [quoted("s/a")]
    claims += [DraftClaim(text="So it is.", kind="conclusion", premises=tuple(range(1, n))) for n in range(2, 41)]
    checked = judge(claims, Shelf({"s/a": d}), Evidence(passages=(read(d),)))
    assert {c.status for c in checked.claims} == {"verified"}


# --- currency -------------------------------------------------------------------------------------------------------


def versions() -> Shelf:
    infos = {
        "s/v1": info("s/v1", current=False, superseded_by=("s/v2",)),
        "s/v2": info("s/v2", current=False, superseded_by=("s/v3",)),
        "s/v3": info("s/v3", amended_by=("s/change",)),
    }
    return Shelf({name: doc(name) for name in ("s/v1", "s/v2", "s/v3")}, infos)


def test_the_successor_of_a_successor_has_to_be_read() -> None:
    shelf = versions()
    passages = (read(shelf.documents["s/v1"]), read(shelf.documents["s/v2"]))
    checked = judge([quoted("s/v1")], shelf, Evidence(passages=passages))
    assert checked.claims[0].citations[0].reason == "not current, and its successor 's/v3' was not read"
    assert "read 's/v3'" in checked.feedback[0]


def test_an_old_text_is_labelled_also_when_its_successor_was_read() -> None:
    shelf = versions()
    passages = (read(shelf.documents["s/v1"]), read(shelf.documents["s/v3"]))
    claim = judge([quoted("s/v1")], shelf, Evidence(passages=passages)).claims[0]
    assert claim.status == "verified"
    assert claim.citations[0].labels == ("superseded by s/v2",)
    assert "s/v1: superseded by s/v2" in claim.warnings


def test_an_amended_text_is_labelled() -> None:
    shelf = versions()
    claim = judge([quoted("s/v3")], shelf, Evidence(passages=(read(shelf.documents["s/v3"]),))).claims[0]
    assert claim.status == "verified"
    assert claim.citations[0].labels == ("amended by s/change",)


def test_a_text_that_is_not_current_without_a_successor_is_labelled_and_stands() -> None:
    shelf = Shelf({"s/a": doc("s/a")}, {"s/a": info("s/a", current=False, labels=("withdrawn",))})
    claim = judge([quoted("s/a")], shelf, Evidence(passages=(read(shelf.documents["s/a"]),))).claims[0]
    assert (claim.status, claim.citations[0].labels) == ("verified", ("withdrawn",))


def test_a_successor_that_does_not_exist_or_is_a_circle_hides_nothing() -> None:
    infos = {"s/a": info("s/a", current=False, superseded_by=("s/gone", "s/a"))}
    shelf = Shelf({"s/a": doc("s/a")}, infos)
    claim = judge([quoted("s/a")], shelf, Evidence(passages=(read(shelf.documents["s/a"]),))).claims[0]
    assert claim.status == "verified"


# --- quantities -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("72 hours", "seventy-two hours"),
        ("one hundred and twenty days", "120 days"),
        ("EUR 1.5 million", "€1,500,000"),
        ("US$ 3bn", "$3 billion"),
        ("2 March 2025", "2025-03-02"),
        ("48 hours", "two days"),
        ("18 months", "18 months"),
        ("half-yearly", "twice a year"),
        ("quarterly", "four times a year"),
        ("16 KiB", "16,384 bytes"),
        ("1 000 000 EUR", "EUR 1,000,000"),
        ("99.9%", "99.9 per cent"),
        ("a 30-day period", "a period of 30 days"),
    ],
)
def test_two_ways_to_write_a_quantity_agree(one: str, other: str) -> None:
    first, second = quantities(one, language="en"), quantities(other, language="en")
    assert len(first) == len(second) == 1
    assert agree(first[0], second[0]) and agree(second[0], first[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("72 days", "72 hours"),
        ("30 days", "one month"),
        ("1 year", "365 days"),
        ("5 business days", "5 days"),
        ("EUR 5", "EUR 5 million"),
        ("5 %", "5 percentage points"),
        ("10 MB", "10 MiB"),
        ("10 Mbit", "10 MB"),
        ("AES-128", "AES-256"),
        ("2 March 2025", "3 February 2025"),
        ("monthly", "a yearly"),
        ("5", "-5"),
        ("3rd", "3 days"),
    ],
)
def test_different_quantities_do_not_agree(one: str, other: str) -> None:
    first, second = quantities(one, language="en"), quantities(other, language="en")
    assert first and second
    assert not agree(first[0], second[0]) and not agree(second[0], first[0])


@pytest.mark.parametrize(
    "text", ["one of the parties", "a third party", "no one", "the first person", "Annual due diligence"]
)
def test_words_that_count_nothing_are_no_quantities(text: str) -> None:
    assert not [q for q in quantities(text) if q.unit == "count"]


@pytest.mark.parametrize(
    ("language", "text", "value", "unit"),
    [
        ("pt", "vinte e quatro horas", 24, "hour"),
        ("pt", "cento e vinte dias úteis", 120, "business day"),
        ("de", "dreihundertfünfundsechzig Tage", 365, "day"),
        ("de", "1.234,50 Euro", 1234.5, "EUR"),
        ("es", "treinta y un días hábiles", 31, "business day"),
        ("fr", "quatre-vingt-dix jours ouvrables", 90, "business day"),
        ("fr", "1 500 000 euros", 1500000, "EUR"),
        ("it", "ventuno giorni", 21, "day"),
        ("nl", "vijfenveertig werkdagen", 45, "business day"),
        ("ja", "30日間", 30, "day"),
    ],
)
def test_quantities_of_several_languages(language: str, text: str, value: float, unit: str) -> None:
    (found,) = quantities(text, language=language)
    assert (float(found.values[0]), found.unit) == (value, unit)


# --- rendering ------------------------------------------------------------------------------------------------------


def test_an_answer_is_rendered_with_its_citations_marks_and_gaps() -> None:
    claims = (
        Claim(
            text="Notice is due\nwithin 24 hours.",
            status="verified",
            citations=(Citation(document="p/x v4", section="7.3", quote="q", status="verified"),),
        ),
        Claim(text="See [board-minutes-2026-03].", status="uncited"),
        Claim(
            text="It is late.",
            status="unverified",
            citations=(Citation(document="ghost]", quote="q", reason="no such document"),),
        ),
        Claim(text="So it fails.", kind="conclusion", status="verified", premises=(1,)),
        Claim(
            text="It was so.",
            status="verified",
            citations=(Citation(document="p/v3", quote="q", status="verified", labels=("superseded by p/v4",)),),
        ),
    )
    missing = (
        Gap(what="due diligence", status="checked", sources=("contracts",), queries=("due diligence",)),
        Gap(what="the price", reason="not searched"),
    )
    assert render_text(claims, missing) == (
        "1. Notice is due within 24 hours. [p/x v4 §7.3]\n"
        "2. See (board-minutes-2026-03). **(uncited)**\n"
        "3. It is late. **(unverified: 'ghost)': no such document)**\n"
        "4. So it fails. (from 1)\n"
        "5. It was so. [p/v3] (superseded by p/v4)\n"
        "\n"
        "**Missing**\n"
        "\n"
        "- due diligence (searched in contracts: 'due diligence')\n"
        "- the price **(not searched)**"
    )
    assert render_text((), missing[1:]) == "**Missing**\n\n- the price **(not searched)**"
    assert render_text(()) == ""


def test_a_reason_that_says_not_searched_is_not_told_twice() -> None:
    assert gap("due diligence", reason="Not searched.").reason == "Not searched."
    assert gap("due diligence", reason="no time").reason == "not searched (no time)"


def test_the_words_to_search_for_are_words() -> None:
    missing = (DraftGap(what="Whether the Board approved the contract (policy 5.2)"),)
    said = check(Draft(missing=missing), Evidence(), Shelf({})).feedback[0]
    assert "(Board, approved, contract, policy)" in said


def test_the_search_that_the_feedback_asks_for_checks_the_gap() -> None:
    missing = (DraftGap(what="Whether the Board approved the outsourcing of hosting"),)
    said = check(Draft(missing=missing), Evidence(), Shelf({})).feedback[0]
    words = said.split("(")[1].split(")")[0].split(", ")
    few = int(said.split(" or more of its words")[0].split()[-1])
    assert set(words) == {"Board", "approved", "outsourcing", "hosting"}
    evidence = Evidence(searches=(Search(source="s", query=" ".join(words[:few])),))
    assert check(Draft(missing=missing), evidence, Shelf({})).missing[0].status == "checked"
    evidence = Evidence(searches=(Search(source="s", query=" ".join(words[: few - 1])),))
    assert check(Draft(missing=missing), evidence, Shelf({})).missing[0].status == "unchecked"


# --- names with digits ----------------------------------------------------------------------------------------------


def named(
    text: str,
    quote: str,
    *,
    title: str = "Terms of hosting",
    metadata: dict[str, str] | None = None,
    question: str = "",
    more: str = "",
    name: str = "deals/terms",
    extra: tuple[Document, ...] = (),
    sections: tuple[Section, ...] = (),
) -> Claim:
    document = replace(doc(name, f"{quote}. {more}"), title=title, metadata=metadata or {}, sections=sections)
    everything = (document, *extra)
    claim = quoted(document.id, quote, text)
    evidence = Evidence(passages=tuple(read(d) for d in everything))
    return check(Draft(claims=(claim,)), evidence, Shelf({d.id: d for d in everything}), question=question).claims[0]


APPEALS = "The supplier considers every appeal within 14 days"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("4players considers every appeal.", {"metadata": {"supplier": "4players"}}),
        ("4Players considers every appeal.", {"metadata": {"supplier_or_owner": "4players GmbH"}}),
        ("4players considers every appeal.", {"title": "4players: terms of service"}),
        ("4players considers every appeal.", {"name": "4players-terms/appeals"}),
        ("4players considers appeals.", {"question": "Does 4players take appeals?", "more": "Terms of 4players."}),
        ("Studio 54 considers every appeal.", {"metadata": {"supplier": "Studio 54"}}),
        ("Level 3 Communications considers appeals.", {"metadata": {"supplier": "Level 3 Communications"}}),
        ("G4S considers appeals.", {"metadata": {"supplier": "G4S"}, "question": "Does G4S consider appeals?"}),
        ("Amendment 1 lets you appeal.", {"title": "Amendment 1 to the Master Agreement"}),
        ("Amendment 1 lets you appeal.", {"title": "Changes", "name": "deals/master-amendment-1"}),
        ("By Schedule 3 every appeal is considered.", {"title": "Schedule 3 Appeals"}),
        ("Terms 2 let you appeal.", {"title": "Terms 2: appeals"}),
    ],
)
def test_a_name_of_the_cited_document_needs_no_quote(text: str, fields: dict[str, Any]) -> None:
    claim = named(text, APPEALS, **fields)
    assert (claim.status, claim.warnings) == ("verified", ())


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Amendment 2 lets you appeal.", {"title": "Amendment 1 to the Master Agreement"}),
        ("Amendment 1 lets you appeal.", {"title": "Master Agreement"}),
        ("It takes 1 appeal.", {"title": "Amendment 1 to the Master Agreement"}),
        ("Amendment 1 year.", {"title": "Amendment 1 to the Master Agreement"}),
        ("Amendment 1.5 lets you appeal.", {"title": "Amendment 1 to the Master Agreement"}),
        ("4players considers every appeal.", {"metadata": {"supplier": "5players"}}),
        ("4players considers appeals.", {"question": "Does 4players take appeals?"}),
        ("4players considers 4 appeals.", {"metadata": {"supplier": "4players"}}),
        ("It is sealed with AES-256.", {"question": "Is it AES-256?", "more": "AES-256 is for others."}),
        ("It is sealed with AES-256.", {"metadata": {"keywords": "AES-256, seal"}, "question": "Is it AES-256?"}),
        ("It is sealed with 3DES.", {"question": "Is it 3DES?", "more": "3DES is forbidden."}),
        ("Appeals take 30 days.", {"question": "Do appeals take 30 days?", "more": "In 30 days the year ends."}),
        ("Appeals take 30 days.", {"metadata": {"retention": "Keep 30 days"}}),
        ("54 appeals are considered.", {"metadata": {"supplier": "Studio 54"}}),
        ("Top 10 appeals are considered.", {"title": "Top 10 suppliers"}),
        ("The first 2 are considered.", {"title": "Terms 2: appeals"}),
    ],
)
def test_a_number_is_no_name(text: str, fields: dict[str, Any]) -> None:
    assert named(text, APPEALS, **fields).status == "unverified"


def absent(text: str, *documents: Document) -> Claim:
    citations = tuple(DraftCitation(document=d.id, quote="") for d in documents)
    claim = DraftClaim(text=text, kind="absence", citations=citations, terms=("penalty",))
    evidence = Evidence(passages=tuple(read(d) for d in documents))
    return judge([claim], Shelf({d.id: d for d in documents}), evidence).claims[0]


SET = (
    replace(doc("deals/master"), title="Master Agreement"),
    replace(doc("deals/annex-1"), title="Annex 1: Services"),
    replace(doc("deals/annex-2"), title="Annex 2: Prices"),
    replace(doc("deals/amendment-1"), title="Amendment 1"),
)


@pytest.mark.parametrize(
    "text",
    [
        "The Master Agreement and its two annexes have no penalty.",
        "None of the four documents has a penalty.",
        "The Master Agreement, Annex 1, Annex 2 and Amendment 1 have no penalty.",
    ],
)
def test_an_absence_may_count_and_name_the_documents_it_cites(text: str) -> None:
    claim = absent(text, *SET)
    assert (claim.status, claim.warnings) == ("verified", ())


@pytest.mark.parametrize(
    "text",
    [
        "The Master Agreement and its three annexes have no penalty.",
        "None of the five documents has a penalty.",
        "Amendment 2 has no penalty.",
        "There is no penalty of 4 euros.",
        "There is no penalty for two letters.",
        "There is no penalty after four days.",
    ],
)
def test_an_absence_counts_nothing_else(text: str) -> None:
    assert absent(text, *SET).status == "unverified"


def test_an_absence_may_name_a_section_of_its_document() -> None:
    text = "3 Fees\nThe supplier sends every bill within a month."
    fees = Section(id="3", title="Fees", level=1, start=0, end=len(text), number="3")
    document = replace(doc("deals/master", text), sections=(fees,))
    assert absent("Section 3 has no penalty.", document).status == "verified"
    assert absent("Section 4 has no penalty.", document).status == "unverified"
    assert absent("No penalty falls due in 3 months.", document).status == "unverified"


# --- what goes back to the model ------------------------------------------------------------------------------------


def test_feedback_names_causes_once_and_what_is_fine() -> None:
    shelf = Shelf({"s/a": doc("s/a")})
    claims = [
        quoted("s/a"),
        quoted("s/a", "The supplier answers no letter at all"),
        DraftClaim(text="So it is.", kind="conclusion", premises=(1, 2)),
        DraftClaim(text="So it stays.", kind="conclusion", premises=(3,)),
        quoted("s/a"),
    ]
    checked = judge(claims, shelf, Evidence(passages=(read(shelf.documents["s/a"]),)))
    assert [c.status for c in checked.claims] == ["verified", "unverified", "unverified", "unverified", "verified"]
    assert checked.feedback == (
        "claim 2: citation 1 of 's/a' failed: the quote does not stand in the document; copy the words exactly as you "
        "read them",
        "claims 3 and 4 fail only because of claims named above, and pass with them if they still follow",
        "nothing is wrong with claims 1 and 5: keep as they are",
    )


def test_operands_are_asked_for_only_where_there_are_two() -> None:
    text = "Letters are answered within two days. Calls are answered within five days."
    shelf = Shelf({"s/a": doc("s/a", text)})
    evidence = Evidence(passages=(read(shelf.documents["s/a"]),))
    one = quoted("s/a", "Letters are answered within two days", "Within four days.")
    assert "operands" not in judge([one], shelf, evidence).feedback[0]
    assert "(72 - 24)" not in judge([one], shelf, evidence).feedback[0]
    both = DraftClaim(
        text="Calls take four days longer.",
        citations=(*one.citations, DraftCitation(document="s/a", quote="Calls are answered within five days")),
    )
    assert "(72 - 24)" in judge([both], shelf, evidence).feedback[0]


def test_a_quote_over_two_sections_is_told_so() -> None:
    first, second = "1.1 Data at rest is sealed with care.", "1.2 Data on its way is sealed twice."
    text = f"{first} {second}"
    sections = (
        Section(id="1.1", title="", level=2, start=0, end=len(first) + 1, number="1.1"),
        Section(id="1.2", title="", level=2, start=len(first) + 1, end=len(text), number="1.2"),
    )
    shelf = Shelf({"s/a": replace(doc("s/a", text), sections=sections)})
    evidence = Evidence(passages=(read(shelf.documents["s/a"]),))

    def reason(quote: str) -> str:
        claim = judge([quoted("s/a", quote, "Data is sealed.")], shelf, evidence).claims[0]
        assert claim.status == "unverified"
        return claim.citations[0].reason or ""

    over = reason("Data at rest is sealed … is sealed twice")
    assert over == "its parts stand in different sections (1.1, 1.2)"
    assert reason("with care … Data at rest is") == "its parts do not follow one another in this order"
    assert reason("Data at rest … is sealed thrice").startswith("its part 'is sealed thrice' does not stand")


def test_an_amendment_that_was_read_and_cited_is_no_warning() -> None:
    shelf = versions()
    shelf.documents["s/change"] = doc("s/change")
    passages = (read(shelf.documents["s/v3"]), read(shelf.documents["s/change"]))
    both = [quoted("s/v3"), quoted("s/change")]
    alone = judge(both[:1], shelf, Evidence(passages=passages)).claims[0]
    assert alone.warnings == ("s/v3: amended by s/change",)
    unread = judge(both, shelf, Evidence(passages=passages[:1])).claims[0]
    assert unread.warnings == ("s/v3: amended by s/change",)
    cited = judge(both, shelf, Evidence(passages=passages)).claims[0]
    assert (cited.warnings, cited.citations[0].labels) == ((), ("amended by s/change",))


def test_a_section_number_before_a_verb_counts_nothing() -> None:
    shelf = Shelf({"s/a": doc("s/a", "As 7.1 says, the supplier answers every letter within two days.")})
    evidence = Evidence(passages=(read(shelf.documents["s/a"]),))
    claim = quoted("s/a", "As 7.1 says, the supplier answers every letter", "7.1 requires answers to letters.")
    assert judge([claim], shelf, evidence).claims[0].warnings == ()
