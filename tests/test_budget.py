"""Limits, reservations and estimates; and that no model, whatever it does, spends beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from citehound.budget import Budget, Meter, Price, worst_tokens
from citehound.corpus import Corpus
from citehound.drafts import Draft
from citehound.errors import BudgetExceeded
from citehound.models.scripted import ScriptedModel, ScriptedRequest, call
from small import GOOD, opened, run_agent

PRICE = Price(input=5.0, output=25.0, cached=0.5, cache_write=6.25)


def test_worst_case_uses_the_dearest_input_price() -> None:
    assert PRICE.worst(input_tokens=1_000_000, output_tokens=0) == 6.25
    assert PRICE.worst(input_tokens=0, output_tokens=1_000_000) == 25.0


def test_cached_and_written_tokens_have_their_own_price() -> None:
    dollars = PRICE.of(input_tokens=1_000_000, cached_tokens=600_000, cache_write_tokens=200_000, output_tokens=0)
    assert dollars == pytest.approx(0.2 * 5 + 0.6 * 0.5 + 0.2 * 6.25)
    plain = Price(input=5.0, output=25.0)
    assert plain.of(input_tokens=1_000_000, cached_tokens=600_000, output_tokens=0) == 5.0


def test_a_reservation_that_does_not_fit_is_refused() -> None:
    meter = Meter(Budget(max_dollars=1.0))
    meter.reserve(0.6)
    with pytest.raises(BudgetExceeded) as refused:
        meter.reserve(0.6)
    assert refused.value.limit == "dollars"
    assert meter.dollars_left() == pytest.approx(0.4)


def test_settling_frees_what_was_not_spent_and_counts_once() -> None:
    meter = Meter(Budget(max_dollars=1.0))
    reservation = meter.reserve(0.6)
    for _ in range(2):
        meter.settle(reservation, dollars=0.1, input_tokens=7)
    spent = meter.spent()
    assert (spent.dollars, spent.reserved, spent.model_calls, spent.input_tokens) == (0.1, 0.0, 1, 7)


def test_what_rounding_leaves_is_not_reserved() -> None:
    meter = Meter(Budget(max_dollars=1.0))
    held = [meter.reserve(dollars) for dollars in (0.1, 0.2, 0.3)]
    for reservation in held:
        meter.settle(reservation, dollars=0.01)
    assert meter.spent().reserved == 0.0


def test_an_unknown_outcome_keeps_the_money() -> None:
    meter = Meter(Budget(max_dollars=1.0))
    meter.forfeit(meter.reserve(0.6))
    assert meter.dollars_left() == pytest.approx(0.4)
    assert meter.spent().model_calls == 1


def test_steps_end() -> None:
    meter = Meter(Budget(max_steps=2))
    assert [meter.begin_step(), meter.begin_step()] == [1, 2]
    with pytest.raises(BudgetExceeded) as refused:
        meter.begin_step()
    assert refused.value.limit == "steps"


def test_a_child_spends_its_parents_money() -> None:
    parent = Meter(Budget(max_dollars=1.0, max_steps=10))
    child = parent.child(share=0.5, max_steps=3)
    assert child.budget.max_dollars == 0.5
    child.settle(child.reserve(0.4), dollars=0.4)
    child.begin_step()
    assert parent.dollars_left() == pytest.approx(0.6)
    assert parent.steps_left() == 9
    parent.reserve(0.55)
    assert not child.fits(0.1)
    with pytest.raises(BudgetExceeded):
        child.reserve(0.1)


def test_no_limit_is_none() -> None:
    meter = Meter(Budget(max_steps=None, max_dollars=None, max_seconds=None))
    assert (meter.steps_left(), meter.dollars_left(), meter.seconds_left()) == (None, None, None)
    meter.reserve(1e9)
    child = meter.child(share=0.1)
    assert child.dollars_left() is None


def test_time_is_counted_by_the_clock_given() -> None:
    now = [10.0]
    meter = Meter(Budget(max_seconds=5.0), clock=lambda: now[0])
    now[0] = 13.0
    assert meter.seconds_left() == 2.0
    assert meter.child().budget.max_seconds == 2.0
    now[0] = 99.0
    assert meter.seconds_left() == 0.0


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "forfeit", "child"]), st.floats(0, 0.7), st.integers(0, 9)),
    max_size=40,
)


@given(actions=ACTIONS, cap=st.floats(0, 2))
def test_settled_and_reserved_never_pass_the_cap(actions: list[tuple[str, float, int]], cap: float) -> None:
    root = Meter(Budget(max_dollars=cap))
    meters, open_ones = [root], []
    for what, amount, index in actions:
        meter = meters[index % len(meters)]
        if what == "reserve":
            try:
                open_ones.append((meter, meter.reserve(amount)))
            except BudgetExceeded:
                assert not meter.fits(amount)
        elif what == "child":
            meters.append(meter.child(share=min(1.0, amount)))
        elif open_ones:
            owner, reservation = open_ones.pop(index % len(open_ones))
            if what == "settle":
                owner.settle(reservation, dollars=reservation.dollars * amount)
            else:
                owner.forfeit(reservation)
        for one in meters:
            spent = one.spent()
            limit = one.budget.max_dollars
            assert limit is not None
            assert spent.dollars + spent.reserved <= limit + 1e-9


@pytest.mark.parametrize(
    "text",
    [
        "The supplier reports incidents within 72 hours of discovery, unless agreed otherwise.",
        "Der Auftragnehmer unterrichtet die Bank unverzüglich über Störungen.",
        '{"document": "policies/outsourcing-policy-v4", "section": "7.2", "current": true}',
        "0123456789 0123456789 0123456789",
        "QmFzZTY0IHRleHQgaGFzIG5vIHdvcmRz",
    ],
)
def test_the_estimate_is_well_above_one_token_per_word_and_not_above_one_per_byte(text: str) -> None:
    assert 1.5 * len(text.split()) <= worst_tokens(text) <= len(text.encode())


@pytest.mark.parametrize("text", ["委託先は二十四時間以内に報告する", "日本語の契約", "🙂🙂🙂"])
def test_signs_beyond_ascii_count_more_than_one_token_each(text: str) -> None:
    assert worst_tokens(text) >= 2 * len(text)


@given(st.text(max_size=300), st.text(max_size=300))
def test_the_estimate_grows_with_the_text(one: str, two: str) -> None:
    assert worst_tokens(one) <= worst_tokens(one + " " + two) + 1
    assert worst_tokens("") == 0


# Whatever a model does.


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


CALLS = st.one_of(
    st.builds(
        lambda n: call("search_rules", {"query": f"incidents {n}"}),
        st.integers(0, 3),
    ),
    st.sampled_from(
        [
            call("read_document", {"document": "rules/security"}),
            call("read_document", {"document": "deals/alpha"}),
            call("find_in_document", {"document": "rules/travel", "phrase": "trains"}),
            call("list_documents", {"source": "deals"}),
            call("search_deals", {"query": "incidents", "supplier": "Nobody"}),
            call("no_such_tool", {}),
            call("search_rules", "{"),
            call("final_answer", {"claims": 7}),
        ]
    ),
)
TURNS: st.SearchStrategy[Any] = st.one_of(
    st.lists(CALLS, min_size=1, max_size=11),
    st.sampled_from(
        [
            GOOD,
            Draft(),
            Draft(text="Just so."),
            "some words",
            "",
            ModelResponse(parts=[TextPart("cut")], finish_reason="length"),
            ModelResponse(parts=[TextPart("no")], finish_reason="content_filter"),
            RuntimeError("boom"),
            ModelHTTPError(status_code=429, model_name="m", body=None),
            ModelHTTPError(status_code=400, model_name="m", body=None),
            ModelAPIError(model_name="m", message="lost"),
        ]
    ),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_model_spends_beyond_its_budget(corpus: Corpus, data: st.DataObject) -> None:
    """Tokens are what a provider can report: input within the estimate of what was sent (at one rate per run, as a
    tokenizer has), output within `max_tokens`."""
    rate = data.draw(st.floats(0.2, 1.0), label="tokens per estimated token")
    steps = data.draw(st.integers(1, 6), label="max_steps")
    dollars = data.draw(st.sampled_from([0.0, 0.05, 0.15, 0.2, 0.3, 0.5, 1.0]), label="max_dollars")
    turns = data.draw(st.lists(TURNS, min_size=1, max_size=9), label="turns")
    share = data.draw(st.floats(0.0, 1.0), label="share of max_tokens")

    def usage(request: ScriptedRequest) -> RequestUsage:
        from citehound.context import request_tokens

        sent = int(rate * request_tokens(request.messages, request.parameters))
        written = data.draw(st.integers(0, sent), label="written to the cache")
        cap = int(dict(request.settings)["max_tokens"])
        return RequestUsage(
            input_tokens=sent,
            cache_write_tokens=written,
            cache_read_tokens=(sent - written) // 2,
            output_tokens=int(share * cap),
        )

    model = ScriptedModel(turns, usage=usage, repeat_last=True)
    ran = run_agent(corpus, model, budget=Budget(max_steps=steps, max_dollars=dollars), price=PRICE)
    spent = ran.meter.spent()
    assert spent.dollars + spent.reserved <= dollars + 1e-9
    assert spent.steps <= steps
    assert spent.model_calls == len(model.requests)
    evidence = ran.ledger.evidence()
    for step in range(1, steps + 1):
        assert sum(1 for c in evidence.calls if c.step == step and c.error is None) <= 8
    assert all("max_tokens" in r.settings for r in model.requests)


def test_what_is_left_for_one_of_many_is_what_all_of_them_left() -> None:
    shared = Meter(Budget(max_steps=None, max_dollars=1.0, max_seconds=None))
    one, other = shared.child(max_steps=5), shared.child(max_steps=5)
    reservation = one.reserve(0.7)
    left = other.dollars_left()
    assert left is not None and abs(left - 0.3) < 1e-9
    one.settle(reservation, dollars=0.1)
    left = other.dollars_left()
    assert left is not None and abs(left - 0.9) < 1e-9


def test_a_share_knows_what_the_whole_run_has_spent() -> None:
    whole = Meter(Budget(max_steps=10, max_dollars=1.0))
    whole.settle(whole.reserve(0.25), dollars=0.25)
    share = whole.child(share=0.5).child()
    share.settle(share.reserve(0.125), dollars=0.125)
    assert (share.spent().dollars, share.run_spent().dollars, whole.run_spent().dollars) == (0.125, 0.375, 0.375)
