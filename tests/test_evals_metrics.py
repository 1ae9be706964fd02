"""Every metric, with values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from citehound.answers import Answer, Call, Citation, Claim, Gap, Reference, Usage
from citehound.budget import Budget
from citehound.evals import metrics
from citehound.evals.cases import Case, Need
from citehound.evals.metrics import METRICS, Observation, Stretch

POLICY, OLD, DEAL, WIKI = "policies/p-v4", "policies/p-v3", "contracts/alpha", "wiki/home"


def cited(document: str, *, status: str = "verified", quote: str = "within 24 hours of discovery") -> Claim:
    good = status == "verified"
    return Claim(
        text="Reports are due within 24 hours.",
        status="verified" if good else "unverified",
        citations=(
            Citation(document=document, quote=quote, status="verified" if good else "unverified", section="7.3"),
        ),
    )


def searched(source: str, *documents: str, step: int = 1) -> Call:
    return Call(
        step=step,
        tool=f"search_{source}",
        arguments={"query": "x"},
        source=source,
        returned=tuple(Reference(document=d) for d in documents),
    )


def read(document: str, start: int = 0, end: int = 100, *, step: int = 1) -> Stretch:
    return Stretch(document=document, section=None, start=start, end=end, step=step)


def answer(
    *claims: Claim,
    missing: tuple[Gap, ...] = (),
    calls: tuple[Call, ...] = (),
    status: str = "complete",
    stop: str = "answered",
    usage: Usage | None = None,
    text: str = "",
) -> Answer:
    return Answer(
        question="q",
        requested_mode="agent",
        mode="agent",
        route="asked for",
        model="scripted",
        status=status,  # type: ignore[arg-type]
        text=text,
        claims=claims,
        missing=missing,
        calls=calls,
        stop_reason=stop,  # type: ignore[arg-type]
        usage=usage or Usage(steps=3, searches=len(calls), reads=2, input_tokens=1000, cached_tokens=250),
    )


def case(
    kind: str = "compound",
    *,
    must_read: tuple[str, ...] | None = (),
    points: tuple[str, ...] | None = (),
    missing: tuple[str, ...] | None = (),
    max_steps: int | None = None,
) -> Case:
    return Case(
        id="c",
        question="q",
        kind=kind,  # type: ignore[arg-type]
        must_read=must_read,
        answer_points=points,
        missing=missing,
        max_steps=max_steps,
    )


def needs(*documents: str) -> tuple[Need, ...]:
    return tuple(Need(name=d, document=d) for d in documents)


# reading


def test_must_read_recall_is_the_share_of_needed_documents_that_were_read() -> None:
    run = Observation(answer=answer(), case=case(), needs=needs(POLICY, DEAL), reads=(read(POLICY), read(WIKI)))
    assert metrics.must_read_recall(run) == 0.5
    assert metrics.all_read(run) == 0.0
    assert metrics.all_read(replace(run, reads=(read(POLICY), read(DEAL)))) == 1.0


def test_without_must_read_there_is_nothing_to_recall() -> None:
    run = Observation(answer=answer(), case=case(must_read=None), reads=(read(POLICY),))
    assert metrics.must_read_recall(run) is None
    assert metrics.all_read(run) is None
    assert metrics.read_precision(run) is None


def test_a_superseded_document_does_not_stand_for_the_current_one() -> None:
    run = Observation(answer=answer(), case=case(), needs=needs(POLICY), reads=(read(OLD),))
    assert metrics.must_read_recall(run) == 0.0
    assert metrics.read_precision(run) == 0.0


@pytest.mark.parametrize(
    ("start", "end", "met"), [(0, 100, False), (0, 101, True), (150, 160, True), (199, 400, True), (200, 400, False)]
)
def test_a_needed_section_is_read_when_some_of_it_is(start: int, end: int, met: bool) -> None:
    section = Need(name=f"{POLICY}#7.3", document=POLICY, start=100, end=200)
    run = Observation(answer=answer(), case=case(), needs=(section,), reads=(read(POLICY, start, end),))
    assert metrics.must_read_recall(run) == float(met)


def test_evidence_recall_looks_only_into_the_text_shown_of_the_pattern_s_document() -> None:
    run = Observation(
        answer=answer(),
        case=case(),
        shown={POLICY: ("within 24 hours",), DEAL: ("AES-256 at rest",)},
        patterns=((POLICY, "24 hours"), (DEAL, "AES-256"), (DEAL, "24 hours"), (WIKI, "home")),
    )
    assert metrics.evidence_recall(run) == 0.5
    assert metrics.evidence_recall(replace(run, patterns=())) is None


def test_read_precision_counts_documents_not_reads() -> None:
    reads = (read(POLICY, 0, 50), read(POLICY, 50, 100), read(WIKI), read(OLD), read(DEAL))
    run = Observation(answer=answer(), case=case(), needs=needs(POLICY), patterns=((DEAL, "x"),), reads=reads)
    assert metrics.read_precision(run) == 0.5
    assert metrics.read_precision(replace(run, reads=())) is None


def test_reads_helped_when_a_verified_citation_is_from_them() -> None:
    made = answer(cited(POLICY), cited(DEAL, status="unverified"))
    run = Observation(answer=made, reads=(read(POLICY), read(DEAL), read(WIKI), read(POLICY)))
    assert metrics.reads_that_helped(run) == pytest.approx(1 / 3)
    assert metrics.reads_that_helped(replace(run, reads=())) is None
    assert metrics.reads_that_helped(replace(run, answer=answer())) == 0.0


def test_a_search_is_useless_when_none_of_its_documents_is_cited() -> None:
    calls = (searched("policies", POLICY, OLD), searched("contracts", DEAL), searched("wiki"), searched("wiki", WIKI))
    run = Observation(answer=answer(cited(POLICY), calls=calls))
    assert metrics.useless_searches(run) == 0.75
    assert metrics.useless_searches(Observation(answer=answer(cited(POLICY)))) is None


def test_repeated_reads_lie_wholly_in_what_was_read_before() -> None:
    reads = (read(POLICY, 0, 100), read(POLICY, 0, 100), read(POLICY, 20, 40), read(POLICY, 90, 120), read(DEAL))
    assert metrics.repeated_reads(Observation(answer=answer(), reads=reads)) == 2.0


def test_stopping_early_means_no_search_after_all_was_read() -> None:
    calls = (searched("policies", POLICY, step=1), searched("wiki", WIKI, step=2))
    run = Observation(
        answer=answer(calls=calls), case=case("single"), needs=needs(POLICY), reads=(read(POLICY, step=2),)
    )
    assert metrics.stopped_early(run) == 1.0
    late = replace(run, reads=(read(POLICY, step=1), read(POLICY, step=3)))
    assert metrics.stopped_early(late) == 0.0
    assert metrics.stopped_early(replace(run, case=case("compound"))) is None
    assert metrics.stopped_early(replace(run, reads=())) is None


# answering


@pytest.mark.parametrize(
    ("text", "point", "covered"),
    [
        ("The supplier reports within 24 hours.", "within 24 hours", True),
        ("The supplier reports within twenty-four hours.", "24 hours", True),
        ("The supplier reports within 72 hours.", "within 24 hours", False),
        ("Recorded calls are kept for seven years.", "seven years", True),
        ("Recorded calls are kept for 7 years.", "seven years", True),
        ("The price is EUR 1.12 a card.", "EUR 1.12", True),
        ("The price is EUR 11.20 a card.", "EUR 1.12", False),
        ("A credit of 5 % of the monthly fee.", "5 % of the monthly fee for each full 0.1 % below", False),
        ("Write to shield@hey.com.", "write to shield@hey.com", True),
        ("Nothing of the kind.", "due diligence is done every calendar year", False),
        ("Suppliers undergo due diligence each calendar year.", "due diligence every calendar year", True),
    ],
)
def test_a_point_is_covered_by_its_quantities_and_half_of_its_words(text: str, point: str, covered: bool) -> None:
    assert metrics.covers(text, point) is covered


def test_optional_points_are_not_counted() -> None:
    made = answer(text="Reports are due within 24 hours.")
    points = ("within 24 hours", "(optional) a warranty of 120 days", "a penalty of 5 %")
    assert metrics.answer_points(Observation(answer=made, case=case(points=points))) == 0.5
    assert metrics.answer_points(Observation(answer=made, case=case(points=("(optional) x",)))) is None
    assert metrics.answer_points(Observation(answer=made)) is None


def test_quotes_and_gaps_count_as_said() -> None:
    made = answer(cited(POLICY, quote="a warranty of 120 days"), missing=(Gap(what="annual due diligence report"),))
    points = ("warranty of 120 days", "no due diligence report")
    assert metrics.answer_points(Observation(answer=made, case=case(points=points))) == 1.0


def test_citations_valid_counts_citations_and_claims_verified_claims() -> None:
    two = replace(cited(POLICY), citations=(*cited(POLICY).citations, *cited(DEAL, status="unverified").citations))
    bare = Claim(text="Somebody said so.")
    run = Observation(answer=answer(two, cited(WIKI), bare))
    assert metrics.citations_valid(run) == pytest.approx(2 / 3)
    assert metrics.claims_verified(run) == pytest.approx(2 / 3)
    assert metrics.claims_uncited(run) == pytest.approx(1 / 3)


def test_nothing_cited_is_no_valid_citation_and_no_invalid_one() -> None:
    run = Observation(answer=answer(Claim(text="So.")))
    assert metrics.citations_valid(run) is None
    assert metrics.claims_uncited(run) == 1.0
    assert metrics.claims_verified(Observation(answer=answer())) is None


# gaps

GAP = (Gap(what="due diligence", status="checked"),)


@pytest.mark.parametrize(
    ("missing", "declared", "recall", "precision", "false", "overclaimed"),
    [
        (("due diligence",), GAP, 1.0, 1.0, None, 0.0),
        (("due diligence",), (), 0.0, None, None, 1.0),
        ((), GAP, None, 0.0, 1.0, 0.0),
        ((), (), None, None, 0.0, 0.0),
        (None, GAP, None, None, None, None),
    ],
)
def test_gaps_are_measured_by_what_the_case_misses(
    missing: tuple[str, ...] | None,
    declared: tuple[Gap, ...],
    recall: float | None,
    precision: float | None,
    false: float | None,
    overclaimed: float | None,
) -> None:
    run = Observation(answer=answer(cited(POLICY), missing=declared), case=case(missing=missing))
    assert metrics.gap_recall(run) == recall
    assert metrics.gap_precision(run) == precision
    assert metrics.false_gaps(run) == false
    assert metrics.overclaimed(run) == overclaimed


def test_an_unanswerable_case_has_a_gap_even_where_it_does_not_name_it() -> None:
    run = Observation(answer=answer(status="not_found", missing=GAP), case=case("unanswerable", missing=()))
    assert metrics.gap_recall(run) == 1.0
    assert metrics.false_gaps(run) is None


def test_gaps_checked_is_the_share_that_was_searched_for() -> None:
    run = Observation(answer=answer(missing=(*GAP, Gap(what="price"))))
    assert metrics.gaps_checked(run) == 0.5
    assert metrics.gaps_checked(Observation(answer=answer())) is None


# cost


def test_what_it_took_is_taken_from_the_usage() -> None:
    usage = Usage(
        steps=5, searches=4, reads=3, input_tokens=2000, cached_tokens=500, output_tokens=80, dollars=0.02, seconds=1.5
    )
    run = Observation(answer=answer(usage=usage))
    assert metrics.steps(run) == 5
    assert metrics.searches(run) == 4
    assert metrics.reads(run) == 3
    assert metrics.input_tokens(run) == 2000
    assert metrics.output_tokens(run) == 80
    assert metrics.cached_share(run) == 0.25
    assert metrics.dollars(run) == 0.02
    assert metrics.seconds(run) == 1.5
    assert metrics.cached_share(Observation(answer=answer(usage=Usage()))) is None
    assert metrics.dollars(Observation(answer=answer(usage=Usage(dollars=None)))) is None


@pytest.mark.parametrize(("most", "kept"), [(3, 1.0), (2, 0.0), (None, None)])
def test_steps_kept_is_the_case_s_own_bound(most: int | None, kept: float | None) -> None:
    assert metrics.steps_kept(Observation(answer=answer(), case=case(max_steps=most))) == kept


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (Budget(max_steps=3, max_dollars=0.5), 1.0),
        (Budget(max_steps=2, max_dollars=0.5), 0.0),
        (Budget(max_steps=3, max_dollars=0.01), 0.0),
        (Budget(max_steps=None, max_dollars=None), 1.0),
        (None, None),
    ],
)
def test_budget_kept(budget: Budget | None, kept: float | None) -> None:
    made = answer(usage=Usage(steps=3, dollars=0.02))
    assert metrics.budget_kept(Observation(answer=made, budget=budget)) == kept


@pytest.mark.parametrize(
    ("status", "stop", "complete", "answered"),
    [
        ("complete", "answered", 1.0, 1.0),
        ("not_found", "answered", 1.0, 1.0),
        ("direct", "answered", 1.0, 1.0),
        ("partial", "steps", 0.0, 0.0),
        ("partial", "answered", 0.0, 1.0),
        ("failed", "model_error", 0.0, 0.0),
    ],
)
def test_complete_and_answered(status: str, stop: str, complete: float, answered: float) -> None:
    run = Observation(answer=answer(status=status, stop=stop))
    assert metrics.complete(run) == complete
    assert metrics.answered(run) == answered


def test_every_metric_has_a_definition_and_a_name_of_its_own() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) == len({metric.label for metric in METRICS})
    for metric in METRICS:
        assert metric.meaning.endswith("."), metric.name


def test_metrics_without_gold_have_values_for_a_bare_run_and_those_with_gold_have_none() -> None:
    bare = Observation(answer=answer(cited(POLICY), calls=(searched("policies", POLICY),)), reads=(read(POLICY),))
    scored = metrics.score(bare)
    assert {m.name for m in METRICS if m.gold and scored[m.name] is not None} == set()
    assert scored["citations_valid"] == 1.0
    assert scored["useless_searches"] == 0.0
