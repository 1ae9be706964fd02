"""What a model is sent again and again: results are short and capped, old ones shrink once, and the prefix stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Sequence
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage

from citehound.agent import run_agent as ask
from citehound.budget import Budget, Meter, Price, worst_tokens
from citehound.context import Compaction, compacting, request_tokens, size
from citehound.corpus import Corpus
from citehound.events import Compacted, Event
from citehound.loop import Outcome
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, call
from citehound.toolbox import RESULT_TOKENS
from small import GOOD, TOML, conversation_of, opened, quoting, run_agent

OPUS = Price(input=5.0, output=25.0, cached=0.5, cache_write=6.25)
LONG = " ".join(f"Clause {n} says that records of kind {n} are kept for {n} years." for n in range(1, 400))
FILES = {
    "rules/long.md": f"# Long\n\n## 1 Records\n\n{LONG}\n",
    **{
        f"rules/note-{n}.md": f"# Note {n}\n\n## 1 Alpha\n\nIncident note {n} tells how incident {n} was handled: "
        + f"the desk wrote report {n}, waited for the vendor and closed incident {n} in the end. " * 3
        + "\n"
        for n in range(40)
    },
    "deals/alpha.md": "---\nsupplier: Alpha\n---\n# Alpha\n\n## 1 Terms\n\nReports come within 72 hours.\n",
}
NOTE_3 = "Incident note 3 tells how incident 3 was handled"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Generator[Corpus]:
    with opened(tmp_path_factory.mktemp("context"), FILES, toml=TOML) as corpus:
        yield corpus


def search(query: str) -> Any:
    return call("search_rules", {"query": query, "k": 12})


def read(document: str, **more: Any) -> Any:
    return call("read_document", {"document": document, **more})


def returned(request: ScriptedRequest) -> list[dict[str, Any]]:
    """The results in a request, oldest first."""
    return [
        json.loads(part.model_response_str())
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def as_sent(messages: Sequence[ModelMessage]) -> list[Any]:
    return json.loads(ModelMessagesTypeAdapter.dump_json(list(messages)))


def counted(request: ScriptedRequest) -> RequestUsage:
    """A tokenizer that counts two thirds of the upper estimate, as real ones do for prose."""
    return RequestUsage(input_tokens=request_tokens(request.messages, request.parameters) * 2 // 3, output_tokens=60)


SEARCHES = [search(f"incident note {n} desk vendor") for n in range(12)]


# compaction


def test_old_search_results_shrink_once_when_the_window_fills(corpus: Corpus) -> None:
    events: list[Event] = []
    model = ScriptedModel([read("rules/note-3"), *SEARCHES, quoting("rules/note-3", NOTE_3)], usage=counted)
    ran = run_agent(corpus, model, window=19_000, emit=events.append)
    assert [e.type for e in events].count("compacted") == 1
    (told,) = [e for e in events if isinstance(e, Compacted)]
    at = next(n for n, r in enumerate(model.requests) if any("shortened" in row for row in returned(r)))
    before, after = returned(model.requests[at - 1]), returned(model.requests[at])
    assert told.results == sum(1 for row in after if "shortened" in row) > 1
    assert all(isinstance(hit, str) for row in after if "shortened" in row for hit in row["hits"])
    assert "text" in after[0] and after[0] == before[0]  # what was read is left as it is
    assert "shortened" not in after[-1]  # the newest result was not seen yet
    assert size(model.requests[at].messages) < size(model.requests[at - 1].messages)
    assert any("shortened to fit" in w for w in ran.outcome.warnings)


def test_the_prefix_changes_once_and_then_only_grows(corpus: Corpus) -> None:
    model = ScriptedModel([*SEARCHES, GOOD], usage=counted)
    run_agent(corpus, model, window=19_000)
    sent = [as_sent(r.messages) for r in model.requests]
    changed = [n for n in range(1, len(sent)) if sent[n][: len(sent[n - 1])] != sent[n - 1]]
    assert len(changed) == 1
    assert changed[0] < len(sent) - 1


def test_without_need_nothing_shrinks(corpus: Corpus) -> None:
    model = ScriptedModel([*SEARCHES[:3], GOOD], usage=counted)
    run_agent(corpus, model, window=200_000)
    assert not any("shortened" in row for r in model.requests for row in returned(r))


def test_more_turns_fit_than_without_compaction(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def turns() -> int:
        model = ScriptedModel([*SEARCHES, GOOD], usage=counted, repeat_last=True)
        run_agent(corpus, model, window=20_000)
        return sum(1 for r in model.requests if not r.tools_withheld)

    def never(*_: object) -> int:
        return 0

    with_it = turns()
    monkeypatch.setattr("citehound.loop.Conversation._compact", never)
    assert with_it > turns()


def test_a_hit_that_was_shortened_is_shown_again_when_it_is_found_again(corpus: Corpus) -> None:
    first = search("incident note 0 desk vendor")
    turns = iter(SEARCHES[1:])
    again: list[ScriptedRequest] = []

    def turn(request: ScriptedRequest) -> Any:
        if any("shortened" in row for row in returned(request)):
            again.append(request)
            return first if len(again) == 1 else GOOD
        return next(turns)

    run_agent(corpus, ScriptedModel([first, turn], usage=counted, repeat_last=True), window=18_000)
    result = returned(again[1])[-1]
    assert "repeated" not in result
    assert any("snippet" in hit for hit in result["hits"])


def test_a_window_that_is_full_all_the_same_ends_as_a_declared_partial(corpus: Corpus) -> None:
    starts = iter(range(0, 30_000, 2500))

    def turn(request: ScriptedRequest) -> Any:
        return quoting("rules/note-3", NOTE_3) if request.tools_withheld else read("rules/long", start=next(starts))

    model = ScriptedModel([read("rules/note-3"), turn], usage=counted, repeat_last=True)
    ran = run_agent(corpus, model, window=17_000)
    assert ran.outcome.stop_reason == "context"
    assert [c.status for c in ran.claims] == ["verified"]
    assert model.requests[-1].tools_withheld


def test_a_provider_that_says_too_long_gets_a_shorter_last_request(corpus: Corpus) -> None:
    full = ModelHTTPError(400, "m", {"error": {"message": "prompt is too long"}})
    model = ScriptedModel([read("rules/note-3"), *SEARCHES[:4], full, quoting("rules/note-3", NOTE_3)], usage=counted)
    ran = run_agent(corpus, model)
    assert any("shortened" in row for row in returned(model.requests[-1]))
    assert model.requests[-1].tools_withheld
    assert ran.outcome.stop_reason == "context"
    assert [c.status for c in ran.claims] == ["verified"]


def test_a_provider_that_says_too_long_again_leaves_every_document_read_quoted(corpus: Corpus) -> None:
    full = ModelHTTPError(400, "m", {"error": {"message": "prompt is too long"}})
    model = ScriptedModel([[read(f"rules/note-{n}") for n in range(7)], *SEARCHES[:4], full, full], usage=counted)
    ran = run_agent(corpus, model)
    assert ran.outcome.stop_reason == "context"
    assert {c.document for claim in ran.claims for c in claim.citations} == {f"rules/note-{n}" for n in range(7)}
    assert len(model.requests) == 7


def test_compaction_changes_no_message_that_it_was_given(corpus: Corpus) -> None:
    ran = run_agent(corpus, [*SEARCHES[:2], GOOD])
    messages = list(ran.model.requests[-1].messages)
    before = as_sent(messages)
    found = compacting(messages)
    once = found.compaction.applied(messages)
    assert as_sent(messages) == before
    assert found.saved > 0
    assert as_sent(Compaction(upto=len(messages) - 1).applied(once)) == as_sent(once)
    assert as_sent(once[-1:]) == before[-1:]


def test_the_estimate_counts_tools_schema_and_messages() -> None:
    empty = request_tokens([], ModelRequestParameters())
    message = ModelRequest(parts=[], instructions="word " * 100)
    assert request_tokens([message], ModelRequestParameters()) >= empty + 100


# results


def test_every_result_is_capped(corpus: Corpus) -> None:
    ran = run_agent(
        corpus, [[read("rules/long"), search("incident"), call("list_documents", {"source": "rules"})], GOOD]
    )
    for row in returned(ran.model.requests[1]):
        assert worst_tokens(json.dumps(row, ensure_ascii=False)) <= RESULT_TOKENS + 100


def test_a_page_that_was_read_is_answered_by_naming_its_step(corpus: Corpus) -> None:
    ran = run_agent(corpus, [read("rules/note-3"), read("rules/note-3", section="1"), quoting("rules/note-3", NOTE_3)])
    again = returned(ran.model.requests[2])[-1]
    assert "text" not in again
    assert again["note"].startswith("its text stands above at step 1")
    assert (again["document"], again["repeated"]) == ("rules/note-3", True)
    assert [c.status for c in ran.claims] == ["verified"]
    assert [c.error for c in ran.ledger.evidence().calls] == [None, None]


def test_the_next_page_is_no_repeat(corpus: Corpus) -> None:
    ran = run_agent(corpus, [read("rules/long"), read("rules/long", start=3000), GOOD])
    assert "text" in returned(ran.model.requests[2])[-1]


# dollars


def test_five_tool_turns_of_3000_tokens_fit_at_opus_prices_and_defaults(corpus: Corpus) -> None:
    """Nothing is cached, every turn's results are 3,000 tokens as the provider counts them."""

    def usage(request: ScriptedRequest) -> RequestUsage:
        turns = len(returned(request))
        return RequestUsage(input_tokens=2500 + 3100 * turns, output_tokens=100)

    turns = [read("rules/long", start=3000 * n) for n in range(5)]
    ran = run_agent(
        corpus,
        ScriptedModel([*turns, quoting("rules/long", "records of kind 1 are kept for 1 years")], usage=usage),
        budget=Budget(),
        price=OPUS,
    )
    assert [r.tools_withheld for r in ran.model.requests[:5]] == [False] * 5
    assert len(ran.ledger.evidence().calls) == 5
    assert all(call.error is None for call in ran.ledger.evidence().calls)
    assert [c.status for c in ran.claims] == ["verified"]
    assert ran.meter.spent().dollars <= 0.50


def test_where_dollars_are_short_the_last_draft_gets_less_room_but_half(corpus: Corpus) -> None:
    def usage(request: ScriptedRequest) -> RequestUsage:
        return RequestUsage(input_tokens=9000 * len(request.messages), output_tokens=100)

    model = ScriptedModel([*SEARCHES, GOOD], usage=usage, repeat_last=True)
    ran = run_agent(corpus, model, budget=Budget(max_dollars=0.50), price=OPUS)
    caps = [r.settings.get("max_tokens") for r in model.requests if r.tools_withheld]
    assert ran.outcome.stop_reason == "dollars"
    assert all(cap is not None and 2000 <= cap <= 4000 for cap in caps)
    assert ran.meter.spent().dollars + ran.meter.spent().reserved <= 0.50


@pytest.mark.parametrize("dollars", [0.4, 1.0, 3.0])
def test_the_cap_holds_with_many_questions_at_once(corpus: Corpus, dollars: float) -> None:
    shared = Meter(Budget(max_steps=None, max_dollars=dollars, max_seconds=None))
    most = 0.0

    class Slow(ScriptedModel):
        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            nonlocal most
            await asyncio.sleep(0)  # lets the others reserve in between
            spent = shared.spent()
            most = max(most, spent.dollars + spent.reserved)
            return await super().request(messages, model_settings, model_request_parameters)

    def usage(request: ScriptedRequest) -> RequestUsage:
        cap = int(request.settings.get("max_tokens", 0))
        return RequestUsage(input_tokens=request_tokens(request.messages, request.parameters), output_tokens=cap)

    lost = ModelHTTPError(504, "m", None)

    async def one(number: int) -> Outcome:
        turns = [read(f"rules/note-{number}"), lost if number % 4 == 0 else search("incident"), GOOD]
        model = OpenedModel(model=Slow(turns, usage=usage, repeat_last=True), name="m", price=OPUS)
        conversation = conversation_of(corpus, model, meter=shared.child(max_steps=6))
        return await ask(conversation, sources=corpus.sources)

    async def everything() -> list[Outcome]:
        return await asyncio.gather(*(one(n) for n in range(12)))

    outcomes = asyncio.run(everything())
    spent = shared.spent()
    assert most <= dollars + 1e-9
    assert spent.dollars + spent.reserved <= dollars + 1e-9
    assert len(outcomes) == 12
    assert all(outcome.stop_reason for outcome in outcomes)
    if dollars < 1:
        assert any(outcome.stop_reason == "dollars" for outcome in outcomes)
