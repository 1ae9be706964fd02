"""The loop: steps, budget, what goes back to the model, and what is shown when something fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from citehound import wire
from citehound.budget import Budget, Price
from citehound.context import request_tokens
from citehound.corpus import Corpus
from citehound.drafts import Draft, DraftClaim, DraftGap
from citehound.loop import Limits
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn, call
from citehound.toolbox import MAX_CALLS
from citehound.wire import MAX_ATTEMPTS
from small import GOOD, WITHIN_24, opened, quoting, run_agent

SEARCH = call("search_rules", {"query": "incidents"})
READ = call("read_document", {"document": "rules/security"})
PRICE = Price(input=5.0, output=25.0, cached=0.5, cache_write=6.25)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def sent(request: ScriptedRequest) -> str:
    """What the model was sent, as text."""
    return ModelMessagesTypeAdapter.dump_json(list(request.messages)).decode()


def other(number: int) -> Any:
    return call("search_rules", {"query": f"incidents number {number}"})


# steps


def test_search_read_answer(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.outcome.stop_reason == "answered"
    assert ran.meter.spent().steps == 3
    assert [c.step for c in ran.ledger.evidence().calls] == [1, 2]


def test_output_is_capped_and_function_tools_are_open_in_a_turn(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD], limits=Limits(turn_tokens=700, draft_tokens=900))
    assert [r.settings.get("max_tokens") for r in ran.model.requests] == [700, 700, 700]
    assert not any(r.tools_withheld for r in ran.model.requests)


def test_at_the_step_cap_the_last_step_is_a_draft_without_tools(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD], budget=Budget(max_steps=3))
    assert [r.tools_withheld for r in ran.model.requests] == [False, False, True]
    assert ran.model.requests[-1].settings.get("max_tokens") == 4000
    assert ran.outcome.stop_reason == "steps"
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 3


def test_tool_definitions_stay_the_same_to_the_end(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD], budget=Budget(max_steps=3))
    shown = [
        [(t.name, t.description, str(t.parameters_json_schema)) for t in r.parameters.function_tools]
        for r in ran.model.requests
    ]
    assert {"search_rules", "search_deals", "read_document"} <= {name for name, _, _ in shown[0]}
    assert shown[0] == shown[1] == shown[2]
    assert [t.name for t in ran.model.requests[-1].parameters.output_tools] == ["final_answer"]


def test_the_history_only_grows(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD])
    one, two, three = (r.messages for r in ran.model.requests)
    assert two[: len(one)] == one
    assert three[: len(two)] == two


def test_calls_in_the_last_draft_are_refused_and_the_run_still_ends(corpus: Corpus) -> None:
    ran = run_agent(corpus, ScriptedModel([SEARCH, READ], repeat_last=True), budget=Budget(max_steps=2))
    assert [c.error is None for c in ran.ledger.evidence().calls] == [True, False]
    assert not ran.ledger.evidence().passages
    assert ran.outcome.stop_reason == "steps"
    assert ran.outcome.missing
    assert ran.meter.spent().steps == 2


def test_a_budget_of_one_step_gives_a_draft_at_once(corpus: Corpus) -> None:
    gap = Draft(missing=(DraftGap(what="the deadline"),))
    ran = run_agent(corpus, [gap], budget=Budget(max_steps=1))
    assert ran.model.requests[0].tools_withheld
    assert [g.status for g in ran.outcome.missing] == ["unchecked"]
    assert ran.outcome.stop_reason == "steps"


def test_parallel_calls_of_one_turn_are_one_step(corpus: Corpus) -> None:
    ran = run_agent(corpus, [[other(n) for n in range(MAX_CALLS + 2)], READ, GOOD])
    calls = ran.ledger.evidence().calls
    assert [c.step for c in calls] == [1] * (MAX_CALLS + 2) + [2]
    assert [c.error is None for c in calls] == [True] * MAX_CALLS + [False] * 2 + [True]
    assert ran.meter.spent().steps == 3


def test_going_in_circles_ends_with_a_draft(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, READ, READ, GOOD])
    assert [r.tools_withheld for r in ran.model.requests] == [False, False, False, True]
    assert ran.outcome.stop_reason == "no_progress"
    assert [c.status for c in ran.claims] == ["verified"]


def test_the_model_is_told_when_few_steps_are_left(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, GOOD], budget=Budget(max_steps=3))
    assert "steps left" not in sent(ran.model.requests[0])
    assert "2 steps left" in sent(ran.model.requests[1])
    assert "no steps left for searching" not in sent(ran.model.requests[1])


# faults of tools and arguments


def test_a_tool_that_fails_ends_nothing(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the index is on fire")

    with monkeypatch.context() as patched:
        patched.setattr(Corpus, "search", broken)
        ran = run_agent(corpus, [SEARCH, READ, GOOD])
    assert "the index is on fire" in sent(ran.model.requests[1])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.outcome.stop_reason == "answered"


@pytest.mark.parametrize(
    "turn",
    [
        call("search_rules", '{"query": "incid'),
        call("search_rules", "[1, 2]"),
        call("delete_everything", {"really": True}),
        call("search_rules", {"self": 1, "query": "x", "name": "y", "arguments": {}}),
        call("read_document", {"document": None}),
    ],
    ids=["cut json", "a list", "unknown tool", "odd names", "null"],
)
def test_calls_that_make_no_sense_end_nothing(corpus: Corpus, turn: Any) -> None:
    ran = run_agent(corpus, [turn, turn, turn, READ, GOOD] if isinstance(turn.arguments, str) else [turn, READ, GOOD])
    assert [c.status for c in ran.claims] == ["verified"]


def test_an_unknown_tool_and_arguments_that_are_no_object_are_answered_like_any_call(corpus: Corpus) -> None:
    ran = run_agent(corpus, [[call("delete_everything"), call("search_rules", "[1]"), READ], GOOD])
    told = sent(ran.model.requests[1])
    assert "no tool 'delete_everything'" in told and "the arguments are no JSON object" in told
    assert [(c.tool, c.error is None) for c in ran.ledger.evidence().calls] == [
        ("delete_everything", False),
        ("search_rules", False),
        ("read_document", True),
    ]
    assert [c.status for c in ran.claims] == ["verified"]


def test_calls_before_a_draft_run_first_and_those_after_it_not_at_all(corpus: Corpus) -> None:
    final = call("final_answer", GOOD.model_dump(mode="json"))
    ran = run_agent(corpus, [[READ, final, SEARCH]])
    assert [c.tool for c in ran.ledger.evidence().calls] == ["read_document"]
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 1


def test_calls_beside_a_draft_that_is_sent_back_run(corpus: Corpus) -> None:
    final = call("final_answer", GOOD.model_dump(mode="json"))
    ran = run_agent(corpus, [SEARCH, [final, READ], GOOD])
    assert "not read" in sent(ran.model.requests[2])
    assert [c.tool for c in ran.ledger.evidence().calls] == ["search_rules", "read_document"]
    assert [c.status for c in ran.claims] == ["verified"]


# drafts that fail their checks


def test_citing_a_hit_that_was_not_read_is_unverified_and_goes_back_once(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, GOOD, GOOD])
    assert [c.status for c in ran.claims] == ["unverified"]
    assert "not read" in (ran.claims[0].citations[0].reason or "")
    assert "not read" in sent(ran.model.requests[2])
    spent = ran.meter.spent()
    assert (spent.steps, spent.model_calls) == (2, 3)
    assert ran.outcome.stop_reason == "answered"


def test_a_draft_can_be_mended_by_reading(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, GOOD, READ, GOOD])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 3


def test_a_draft_is_not_sent_back_when_that_does_not_fit(corpus: Corpus) -> None:
    def usage(request: ScriptedRequest) -> RequestUsage:
        return RequestUsage(input_tokens=2000, output_tokens=4000 if request.tools_withheld else 10)

    # The draft itself fits; after it there is not enough for another.
    price = Price(input=0.0, output=25.0)
    budget = Budget(max_steps=2, max_dollars=0.15)
    ran = run_agent(corpus, ScriptedModel([SEARCH, GOOD], usage=usage), budget=budget, price=price)
    assert len(ran.model.requests) == 2
    assert [c.status for c in ran.claims] == ["unverified"]
    assert ran.outcome.stop_reason == "steps"


def test_a_draft_of_the_wrong_shape_goes_back(corpus: Corpus) -> None:
    wrong = call("final_answer", {"claims": "none"})
    ran = run_agent(corpus, [READ, wrong, GOOD])
    assert "claims: Input should be a valid array" in sent(ran.model.requests[2])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 2


def test_drafts_of_the_wrong_shape_do_not_go_on_for_ever(corpus: Corpus) -> None:
    model = ScriptedModel([READ, call("final_answer", {"claims": "none"})], repeat_last=True)
    ran = run_agent(corpus, model)
    assert ran.outcome.stop_reason == "model_error"
    assert len(model.requests) <= 6
    assert ran.outcome.missing
    assert [c.status for c in ran.claims] == ["verified"]


@pytest.mark.parametrize("structured", ["tool", "native", "text"])
def test_a_draft_that_says_nothing_goes_back(corpus: Corpus, structured: str) -> None:
    ran = run_agent(corpus, [READ, call("final_answer", {"answer": "24 hours"}), GOOD], structured=structured)
    assert "it says nothing" in sent(ran.model.requests[2])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.outcome.stop_reason == "answered"


def test_drafts_that_say_nothing_throw_no_reading_away(corpus: Corpus) -> None:
    model = ScriptedModel([READ, Draft()], repeat_last=True)
    ran = run_agent(corpus, model)
    assert ran.outcome.stop_reason == "model_error"
    assert len(model.requests) == 5
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.outcome.missing


def test_of_two_drafts_in_one_reply_the_second_is_not_taken_for_the_first_one_mended(corpus: Corpus) -> None:
    wrong = call("final_answer", quoting("rules/security", "Incidents are reported within 48 hours.").model_dump())
    ran = run_agent(corpus, [READ, [wrong, wrong], GOOD])
    assert sent(ran.model.requests[2]).count("The checks found faults") == 2
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 2


def test_of_a_heap_of_drafts_only_the_first_are_looked_at(corpus: Corpus) -> None:
    wrong = call("final_answer", {"claims": "none"})
    ran = run_agent(corpus, [READ, [wrong] * 50, GOOD])
    assert sent(ran.model.requests[2]).count("claims: Input should be a valid array") == 3
    assert "step 2: 50 answers came at once; only 3 were looked at" in ran.outcome.warnings


@pytest.mark.parametrize("structured", ["native", "text"])
def test_an_answer_that_should_be_written_may_be_called_for(corpus: Corpus, structured: str) -> None:
    final = call("final_answer", GOOD.model_dump(mode="json"))
    ran = run_agent(corpus, [READ, final], structured=structured)
    assert [c.status for c in ran.claims] == ["verified"]
    assert [c.tool for c in ran.ledger.evidence().calls] == ["read_document"]


def test_a_failing_model_after_a_draft_shows_the_draft_with_its_marks(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, GOOD, ModelHTTPError(status_code=400, model_name="m", body="no")])
    assert [c.status for c in ran.claims] == ["unverified"]
    assert ran.outcome.stop_reason == "model_error"
    assert ran.outcome.warnings


def test_an_answer_without_any_search_goes_back_first(corpus: Corpus) -> None:
    ran = run_agent(corpus, [Draft(text="48."), SEARCH, READ, GOOD])
    assert "Nothing was searched" in sent(ran.model.requests[1])
    assert [c.status for c in ran.claims] == ["verified"]


def test_an_answer_that_needs_no_document_is_taken_the_second_time(corpus: Corpus) -> None:
    ran = run_agent(corpus, [Draft(text="48."), Draft(text="48.")], question="What is 12 times 4?")
    assert ran.outcome.text == "48."
    assert ran.claims == ()


def test_free_text_beside_documents_is_an_uncited_claim(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, Draft(text="Trust me: 24 hours."), Draft(text="Trust me: 24 hours.")])
    assert [(c.text, c.status) for c in ran.claims] == [("Trust me: 24 hours.", "uncited")]
    assert ran.outcome.text is None


def test_a_draft_that_comes_as_text_counts(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, f'Within 24 hours. [rules/security §7] "{WITHIN_24}"'])
    assert [c.status for c in ran.claims] == ["verified"]


def test_chatter_instead_of_a_draft_is_asked_again(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, "I think it is 24 hours.", GOOD])
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 2


# faults of models


def test_a_model_error_gives_a_partial_from_what_was_read(corpus: Corpus) -> None:
    ran = run_agent(corpus, [SEARCH, READ, RuntimeError("boom")])
    assert ran.outcome.stop_reason == "model_error"
    assert [(c.citations[0].quote, c.status) for c in ran.claims] == [(WITHIN_24, "verified")]
    assert [g.status for g in ran.outcome.missing] == ["unchecked"]
    assert "boom" in ran.outcome.warnings[0]


def test_a_model_error_before_anything_has_nothing_to_show(corpus: Corpus) -> None:
    ran = run_agent(corpus, [RuntimeError("no key")])
    assert (ran.claims, ran.outcome.missing, ran.outcome.text) == ((), (), None)
    assert "no key" in ran.outcome.warnings[0]


def test_an_exhausted_script_is_a_model_error(corpus: Corpus) -> None:
    assert "the script has 1 turns" in run_agent(corpus, [READ]).outcome.warnings[0]


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_fault_that_may_pass_is_tried_again_in_the_same_step(corpus: Corpus, status: int) -> None:
    fault = ModelHTTPError(status_code=status, model_name="m", body=None)
    ran = run_agent(corpus, [READ, fault, GOOD], budget=Budget(), price=PRICE)
    assert [c.status for c in ran.claims] == ["verified"]
    spent = ran.meter.spent()
    assert (spent.steps, spent.model_calls, spent.reserved) == (2, 3, 0.0)


def test_a_fault_that_stays_is_not_tried_for_ever(corpus: Corpus) -> None:
    fault = ModelHTTPError(status_code=503, model_name="m", body=None)
    ran = run_agent(corpus, ScriptedModel([READ, fault], repeat_last=True))
    assert len(ran.model.requests) == 1 + MAX_ATTEMPTS
    assert ran.outcome.stop_reason == "model_error"


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_fault_that_will_not_pass_is_not_tried_again(corpus: Corpus, status: int) -> None:
    ran = run_agent(corpus, [READ, ModelHTTPError(status_code=status, model_name="m", body=None)])
    assert len(ran.model.requests) == 2
    assert ran.outcome.stop_reason == "model_error"


def test_an_unknown_outcome_keeps_its_reservation(corpus: Corpus) -> None:
    cut = ModelAPIError(model_name="m", message="connection lost")
    ran = run_agent(corpus, [READ, cut, GOOD], budget=Budget(), price=PRICE)
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().reserved > 0
    assert ran.meter.spent().model_calls == 3


def cut_at(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], finish_reason="length")


def test_a_turn_that_is_cut_gets_the_room_of_a_draft(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, cut_at("CLAIM: It is"), GOOD])
    assert [r.settings.get("max_tokens") for r in ran.model.requests] == [1500, 1500, 4000]
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().steps == 2


@pytest.mark.parametrize("form", ["tool", "native", "text"])
def test_a_final_answer_that_is_cut_in_a_turn_is_asked_for_with_the_room_of_a_draft(corpus: Corpus, form: str) -> None:
    whole = GOOD.model_dump_json()
    part = ToolCallPart("final_answer", whole[:40]) if form == "tool" else TextPart(whole[:40])
    cut = ModelResponse(parts=[part], finish_reason="length")
    good: Turn = f'It is so. [rules/security] "{WITHIN_24}"' if form == "text" else GOOD
    ran = run_agent(corpus, [READ, cut, good], budget=Budget(max_dollars=0.5), price=PRICE, structured=form)
    assert [r.settings.get("max_tokens") for r in ran.model.requests] == [1500, 1500, 4000]
    assert [c.status for c in ran.claims] == ["verified"]
    assert (ran.meter.spent().steps, ran.meter.spent().model_calls) == (2, 3)
    asked = [r.messages for r in ran.model.requests]
    assert len(asked[2]) == len(asked[1])  # what was cut is not sent back to be paid for again


def test_a_draft_that_is_sent_back_gets_the_room_of_a_draft(corpus: Corpus) -> None:
    bad = quoting("rules/security", "Incidents must be reported to the bank within 99 hours of discovery.")
    ran = run_agent(corpus, [READ, bad, GOOD])
    assert [r.settings.get("max_tokens") for r in ran.model.requests] == [1500, 1500, 4000]
    assert [c.status for c in ran.claims] == ["verified"]


def test_a_draft_that_is_sent_back_keeps_room_for_a_last_one(corpus: Corpus) -> None:
    bad = quoting("rules/security", "Incidents must be reported to the bank within 99 hours of discovery.")
    ran = run_agent(corpus, [READ, bad, GOOD], window=20_000)
    assert ran.model.requests[2].settings.get("max_tokens") in (1500, 4000)
    assert [c.status for c in ran.claims] == ["verified"]


@pytest.mark.parametrize(("form", "said"), [("native", "it is no JSON"), ("tool", "calling final_answer")])
def test_prose_instead_of_the_answer_is_told_the_form_it_knows(corpus: Corpus, form: str, said: str) -> None:
    ran = run_agent(corpus, [READ, "Incidents are reported within 24 hours.", GOOD], structured=form)
    told = str(ran.model.requests[2].messages[-1])
    assert said in told
    assert "[document]" not in told
    assert [c.status for c in ran.claims] == ["verified"]


def test_what_fails_before_it_is_sent_costs_nothing(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, UserError("this model has no such setting")], budget=Budget(), price=PRICE)
    assert ran.outcome.stop_reason == "model_error"
    assert ran.meter.spent().reserved == 0


@pytest.mark.parametrize(("free", "share"), [(True, 1.0), (False, 0.6)])
def test_a_free_model_is_waited_for_as_long_as_there_is_time(free: bool, share: float) -> None:
    async def allowed() -> float:
        now = asyncio.get_running_loop().time()
        patience = wire._Patience(allowed=1000.0, streams=False, free=free)  # pyright: ignore[reportPrivateUsage]
        return (patience.limit.when() or 0.0) - now

    assert asyncio.run(allowed()) == pytest.approx(1000.0 * share, abs=60)  # pyright: ignore[reportUnknownMemberType]


def test_a_cut_draft_is_truncated(corpus: Corpus) -> None:
    half = ModelResponse(parts=[ToolCallPart("final_answer", '{"claims": [')], finish_reason="length")
    ran = run_agent(corpus, [READ, half, half])
    assert ran.outcome.stop_reason == "truncated"
    assert [c.status for c in ran.claims] == ["verified"]


def test_a_refusal_is_said(corpus: Corpus) -> None:
    refused = ModelResponse(parts=[TextPart("I cannot help")], finish_reason="content_filter")
    assert run_agent(corpus, [READ, refused]).outcome.stop_reason == "refused"


def test_an_empty_reply_is_asked_again_and_then_said(corpus: Corpus) -> None:
    assert run_agent(corpus, [READ, ModelResponse(parts=[]), GOOD]).outcome.stop_reason == "answered"
    ran = run_agent(corpus, [READ, ModelResponse(parts=[]), ModelResponse(parts=[TextPart(" ")])])
    assert ran.outcome.stop_reason == "empty"


# dollars, seconds, window


def test_when_dollars_run_out_the_turn_becomes_the_last_draft(corpus: Corpus) -> None:
    def usage(request: ScriptedRequest) -> RequestUsage:
        return RequestUsage(input_tokens=6000 * len(request.messages), output_tokens=100)

    model = ScriptedModel([READ, other(1), other(2), other(3), GOOD], usage=usage, repeat_last=True)
    ran = run_agent(corpus, model, budget=Budget(max_dollars=0.50), price=PRICE)
    assert ran.outcome.stop_reason == "dollars"
    assert model.requests[-1].tools_withheld or [c.status for c in ran.claims] == ["verified"]
    spent = ran.meter.spent()
    assert spent.dollars + spent.reserved <= 0.50


def test_without_dollars_for_a_draft_nothing_is_sent(corpus: Corpus) -> None:
    ran = run_agent(corpus, [GOOD], budget=Budget(max_dollars=0.01), price=PRICE)
    assert ran.model.requests == []
    assert ran.outcome.stop_reason == "dollars"
    assert ran.meter.spent().dollars == 0


def test_cached_tokens_are_priced_as_such(corpus: Corpus) -> None:
    usage = RequestUsage(input_tokens=1000, cache_read_tokens=800, cache_write_tokens=100, output_tokens=10)
    ran = run_agent(corpus, ScriptedModel([READ, GOOD], usage=lambda _: usage), price=PRICE, budget=Budget())
    each = (100 * 5.0 + 800 * 0.5 + 100 * 6.25 + 10 * 25.0) / 1_000_000
    assert ran.meter.spent().dollars == pytest.approx(2 * each)
    assert ran.meter.spent().cached_tokens == 1600


def test_results_shrink_to_what_a_last_draft_still_leaves_room_for(corpus: Corpus) -> None:
    budget = Budget(max_dollars=0.31)
    ran = run_agent(corpus, [READ, GOOD], budget=budget, price=PRICE)
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().dollars <= 0.31


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, reply: Any) -> Any:
        def turn(request: ScriptedRequest) -> Any:
            self.now += seconds
            return reply

        return turn


def test_when_time_runs_out_room_is_left_for_a_draft(corpus: Corpus) -> None:
    clock = Clock()
    turns = [clock.after(20, READ), clock.after(20, other(1)), clock.after(20, GOOD)]
    ran = run_agent(corpus, turns, budget=Budget(max_dollars=None, max_seconds=70), clock=clock)
    assert [r.tools_withheld for r in ran.model.requests] == [False, False, True]
    assert ran.outcome.stop_reason == "seconds"
    assert [c.status for c in ran.claims] == ["verified"]


def test_a_model_that_hangs_is_left(corpus: Corpus) -> None:
    class Hanging(ScriptedModel):
        async def request(
            self,
            messages: list[Any],
            model_settings: ModelSettings | None,
            model_request_parameters: ModelRequestParameters,
        ) -> ModelResponse:
            reply = await super().request(messages, model_settings, model_request_parameters)
            if len(self.requests) > 1:
                await asyncio.Event().wait()
            return reply

    clock = Clock()
    model = Hanging([clock.after(69.99, READ), GOOD, GOOD])
    ran = run_agent(corpus, model, budget=Budget(max_dollars=None, max_seconds=70), clock=clock)
    assert ran.outcome.stop_reason == "seconds"
    assert [c.citations[0].quote for c in ran.claims] == [WITHIN_24]


def test_a_full_window_ends_with_a_draft(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, GOOD], window=17_000, limits=Limits(turn_tokens=1500, draft_tokens=4000))
    assert ran.outcome.stop_reason == "answered"
    ran = run_agent(corpus, [GOOD, GOOD], window=12_000)
    assert ran.model.requests[0].tools_withheld
    assert ran.outcome.stop_reason == "context"
    ran = run_agent(corpus, [GOOD], window=4_000)
    assert ran.model.requests == []
    assert ran.outcome.stop_reason == "context"


def test_what_a_document_says_reaches_the_model_as_json_only(corpus: Corpus) -> None:
    ran = run_agent(corpus, [READ, GOOD])
    returned = [
        part for message in ran.model.requests[1].messages for part in message.parts if part.part_kind == "tool-return"
    ]
    (part,) = returned
    content = cast(dict[str, Any], json.loads(part.model_response_str()))
    assert WITHIN_24 in content["text"]


def test_a_conclusion_keeps_its_premises(corpus: Corpus) -> None:
    deal = quoting("deals/alpha", "The supplier reports incidents within 72 hours of discovery.").claims
    both = Draft(
        claims=(
            *GOOD.claims,
            *deal,
            DraftClaim(text="The deadlines differ: 24 hours and 72 hours.", kind="conclusion", premises=(1, 2)),
        )
    )
    ran = run_agent(corpus, [[READ, call("read_document", {"document": "deals/alpha"})], both])
    assert [c.status for c in ran.claims] == ["verified"] * 3
    assert ran.claims[2].premises == (1, 2)


def test_a_tokenizer_that_counts_more_than_estimated_is_believed_from_then_on(corpus: Corpus) -> None:
    def usage(request: ScriptedRequest) -> RequestUsage:
        return RequestUsage(input_tokens=3 * request_tokens(request.messages, request.parameters), output_tokens=10)

    model = ScriptedModel([READ, other(1), other(2), other(3), GOOD], usage=usage)
    ran = run_agent(corpus, model, budget=Budget(max_dollars=0.40), price=PRICE)
    assert ran.meter.spent().dollars <= 0.40
    assert ran.outcome.stop_reason == "dollars"


def test_a_call_of_an_unknown_tool_is_recorded_and_the_run_goes_on(corpus: Corpus) -> None:
    ran = run_agent(corpus, [call("send_mail", {"to": "someone"}), SEARCH, READ, GOOD])
    calls = ran.ledger.evidence().calls
    assert [c.tool for c in calls] == ["send_mail", "search_rules", "read_document"]
    assert "no tool 'send_mail'" in (calls[0].error or "")
    assert ran.outcome.stop_reason == "answered"


def test_a_model_that_never_stops_calling_ends_with_the_reason_it_was_stopped_for(corpus: Corpus) -> None:
    ran = run_agent(corpus, ScriptedModel([READ], repeat_last=True), budget=Budget(max_steps=12))
    assert ran.outcome.stop_reason == "no_progress"
    assert ran.meter.spent().steps == 4
    refused = [c.error for c in ran.ledger.evidence().calls if c.error and "no further calls" in c.error]
    assert refused
    assert all("again and again" in error for error in refused)
