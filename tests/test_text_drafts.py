"""Drafts that come as text: what is read, what is said to be wrong, and that nothing is mended in silence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessagesTypeAdapter

from citehound.corpus import Corpus
from citehound.drafts import MAX_CITATIONS, MAX_CLAIMS, MAX_DRAFT, Draft, DraftCitation, DraftClaim, cut_down, oversize
from citehound.models.scripted import ScriptedRequest, call
from citehound.prompts import TEXT_FORM, how_to_answer, no_calls_left
from citehound.text_drafts import MAX_FAULTS, read_text
from small import GOOD, WITHIN_24, opened, quoting, run_agent

TEXT = """\
- Incidents are reported within 24 hours. [rules/a b #7 §7.2] "within 24 hours"
[rules/x] “without undue delay”
2. The contract says [deals/alpha] "within 72 hours" [deals/beta §1] «sans délai».

Conclusion (1, 2): They differ.
Absence: Nothing on walruses. [rules/x] "walrus" "walruses"
Missing: the fine (searched rules for "fine")
"""

READ = call("read_document", {"document": "rules/security"})


def cited(claim: DraftClaim) -> list[tuple[str, str]]:
    return [(c.document, c.quote) for c in claim.citations]


def test_the_form_is_read() -> None:
    found = read_text(TEXT)
    one, two, conclusion, absence = found.draft.claims
    assert found.faults == ()
    assert one.text == "Incidents are reported within 24 hours."
    assert cited(one) == [("rules/a b #7", "within 24 hours"), ("rules/x", "without undue delay")]
    assert two.text == "The contract says."
    assert cited(two) == [("deals/alpha", "within 72 hours"), ("deals/beta", "sans délai")]
    assert (conclusion.kind, conclusion.text, conclusion.premises) == ("conclusion", "They differ.", (1, 2))
    assert (absence.kind, absence.terms, cited(absence)) == ("absence", ("walrus", "walruses"), [("rules/x", "")])
    assert [(g.what, g.reason) for g in found.draft.missing] == [("the fine", 'searched rules for "fine"')]


def test_the_example_in_the_prompt_keeps_to_the_form() -> None:
    found = read_text(TEXT_FORM.split("For example:\n", 1)[1])
    assert found.faults == ()
    assert [c.kind for c in found.draft.claims] == ["quoted", "quoted", "conclusion"]
    assert all(c.citations for c in found.draft.claims[:2])
    assert len(found.draft.missing) == 1


def test_quotes_inside_a_statement_belong_to_the_place_that_ends_the_line() -> None:
    (claim,) = read_text('The bank wants reports "within 24 hours" [rules/security §7].').draft.claims
    assert claim.text == 'The bank wants reports "within 24 hours".'
    assert cited(claim) == [("rules/security", "within 24 hours")]


def test_a_quoted_word_before_the_place_stays_in_the_statement() -> None:
    (claim,) = read_text('The "Supplier" reports. [deals/a] "shall report"').draft.claims
    assert (claim.text, cited(claim)) == ('The "Supplier" reports.', [("deals/a", "shall report")])


def test_a_line_that_is_only_a_quote_says_what_it_quotes() -> None:
    first, second = read_text('Hours matter. [a] "x y"\n"within 24 hours" [rules/security]').draft.claims
    assert first.text == "Hours matter."
    assert second.text == '"within 24 hours"'
    assert cited(second) == [("rules/security", "within 24 hours")]


@pytest.mark.parametrize(
    ("text", "fault", "citations"),
    [
        ("I think so.", "line 1 has no [document]", []),
        ('It is so. "says nobody"', "line 1 has no [document]", []),
        ("Compliant with encryption [annex].", "line 1 gives no quoted words after [annex]", [("annex", "")]),
        ('Good. [a] "quote one"\nThen this.', "line 2 has no [document]", [("a", "quote one")]),
        ("Conclusion: they differ.", "line 1 names no claims", []),
        ('Absence: none. "walrus"', "line 1 has no [document]", []),
        ("Absence: none. [a]", "line 1 does not give the words", [("a", "")]),
        ("Missing:", "line 1 does not say what is missing", None),
        ('{"claims": 3}', "the JSON is no answer at claims", []),
        ("{broken", "the JSON is no answer", []),
        ("", "the text is empty", None),
        ('Cut in a quote. [a] "within 24 ho', "line 1 gives no quoted words after [a]", [("a", "")]),
        ("Cut in a place [rules/secu", "line 1 has no [document]", []),
    ],
)
def test_what_does_not_keep_to_the_form_is_said_and_not_mended(
    text: str, fault: str, citations: list[tuple[str, str]] | None
) -> None:
    found = read_text(text)
    assert fault in found.faults[0]
    assert [cited(c) for c in found.draft.claims[:1]] == ([] if citations is None else [citations])


def test_json_counts_also_in_a_fence() -> None:
    found = read_text('```json\n{"claims": [{"text": "x"}], "missing": []}\n```')
    assert (found.faults, found.draft.claims[0].text) == ((), "x")


def test_an_answer_without_documents_has_a_line_of_its_own() -> None:
    found = read_text("No document: 48")
    assert (found.draft.text, found.draft.claims, found.faults) == ("48", (), ())


def test_few_faults_are_said_of_a_text_with_many() -> None:
    assert len(read_text("\n".join(f"line of prose {n}" for n in range(500))).faults) == MAX_FAULTS


@given(st.text(max_size=300))
def test_reading_text_never_raises(text: str) -> None:
    for form in (text, f'Claim: {text} [a] "{text}"', "{" + text, f"Conclusion ({text}): x", f"```\n{text}\n```"):
        read_text(form)


@given(
    st.lists(
        st.sampled_from(["[a]", '"q r s t"', "words", "“q”", "\n", "- ", "Missing:", "Absence:", "(1)"]), max_size=30
    )
)
def test_no_place_or_quote_is_invented(pieces: list[str]) -> None:
    text = " ".join(pieces)
    for claim in read_text(text).draft.claims:
        for citation in claim.citations:
            assert f"[{citation.document}]" in text
            assert citation.quote in text


# in the loop


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def sent(request: ScriptedRequest) -> str:
    return ModelMessagesTypeAdapter.dump_json(list(request.messages)).decode()


GOOD_TEXT = f'Within 24 hours. [rules/security §7] "{WITHIN_24}"'


def test_a_model_without_schemas_is_told_the_form_and_has_no_output_tool(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, GOOD_TEXT], structured="text")
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.outcome.stop_reason == "answered"
    assert ran.outcome.warnings == ()
    first = ran.model.requests[0]
    assert first.parameters.output_tools == []
    assert TEXT_FORM.splitlines()[-1].split('"')[0] in sent(first)


def test_a_text_that_is_malformed_goes_back_once_with_what_is_wrong(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, "It is 24 hours.", GOOD_TEXT], structured="text")
    assert "has no [document]: 'It is 24 hours.'" in sent(ran.model.requests[2])
    assert "write the final answer again" in sent(ran.model.requests[2])
    assert [c.status for c in ran.claims] == ["verified"]
    assert not any("form" in w for w in ran.outcome.warnings)


@pytest.mark.parametrize("structured", ["text", "tool"])
def test_the_second_time_it_is_taken_as_uncited_and_said(corpus: Corpus, structured: str) -> None:
    ran = run_agent(corpus, [READ, "It is 24 hours.", "It is 24 hours."], structured=structured)
    assert [(c.text, c.status) for c in ran.claims] == [("It is 24 hours.", "uncited")]
    assert any("does not keep to its form" in w for w in ran.outcome.warnings)


def test_a_malformed_text_is_shown_when_the_model_fails_afterwards(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, "It is 24 hours.", RuntimeError("gone")], structured="text")
    assert [(c.text, c.status) for c in ran.claims] == [("It is 24 hours.", "uncited")]
    assert ran.outcome.stop_reason == "model_error"


def test_a_text_draft_of_a_model_that_has_the_tool_counts(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, GOOD_TEXT])
    assert [c.status for c in ran.claims] == ["verified"]
    assert len(ran.model.requests) == 2


def test_a_quote_in_text_form_is_checked_like_any_other(corpus: Corpus) -> None:
    wrong = 'Within 12 hours. [rules/security] "Incidents must be reported within 12 hours"'
    ran = run_agent(corpus, [READ, wrong, wrong], structured="text")
    assert [c.status for c in ran.claims] == ["unverified"]


def test_a_call_after_the_last_turn_is_answered_in_the_words_of_the_form() -> None:
    assert "write the final answer now" in no_calls_left("steps", answer=how_to_answer("text"))
    assert "call final_answer now" in no_calls_left("steps", answer=how_to_answer("tool"))


def test_a_native_schema_takes_the_draft_as_json(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, GOOD.model_dump_json()], structured="native")
    assert [c.status for c in ran.claims] == ["verified"]
    first = ran.model.requests[0]
    assert first.parameters.output_tools == []
    assert first.parameters.output_object is not None
    assert first.parameters.output_object.name == "final_answer"


def test_json_that_misses_the_native_schema_goes_back(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, '{"claims": 7}', GOOD.model_dump_json()], structured="native")
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 2


# size


def many(count: int, text: str = "Same.") -> Draft:
    return Draft(claims=tuple(DraftClaim(text=f"{text} {n}") for n in range(count)))


def test_a_draft_of_ordinary_size_is_left_alone() -> None:
    assert oversize(GOOD) == ()
    assert cut_down(GOOD) == GOOD


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (many(MAX_CLAIMS + 1), f"at most {MAX_CLAIMS}"),
        (many(3, "x" * 5000), "has 5002 characters"),
        (
            Draft(claims=(DraftClaim(text="x", citations=(DraftCitation(document="d", quote="q"),) * 400),)),
            f"400 citations, at most {MAX_CITATIONS}",
        ),
        (many(60, "x" * 1500), "characters in all"),
        (Draft(text="x" * (MAX_DRAFT + 1)), "characters in all"),
    ],
)
def test_a_draft_that_is_too_big_is_said_and_cut(draft: Draft, said: str) -> None:
    assert any(said in line for line in oversize(draft))
    assert oversize(cut_down(draft)) == ()


def test_a_runaway_draft_goes_back_and_is_then_cut_in_the_open(corpus: Corpus) -> None:
    flood = Draft(claims=(*quoting("rules/security", WITHIN_24).claims, *many(5000).claims))
    ran = run_agent(corpus, [READ, flood, flood])
    assert "5001 claims, at most" in sent(ran.model.requests[2])
    assert len(ran.claims) == MAX_CLAIMS
    assert ran.claims[0].status == "verified"
    assert any("5001 claims" in w for w in ran.outcome.warnings)
