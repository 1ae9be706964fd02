"""Which mode answers, why, and what follows when one search leaves a part open."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from citehound.answers import Answer
from citehound.assistant import MODES, NO_DOCUMENT, Assistant
from citehound.budget import FREE, Meter, Price
from citehound.config import AgentConfig, Config, RoutingConfig, SourceConfig, VerifyConfig
from citehound.corpus import Corpus
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.errors import UsageError
from citehound.events import Decided, Event
from citehound.judge import DECISION
from citehound.loop import MAX_RETRIES, Conversation
from citehound.models import OpenedModel
from citehound.models.scripted import ScriptedModel, ScriptedRequest, Turn, call
from citehound.routing import STRATEGIES
from small import FILES, GOOD, WITHIN_24, opened, quoting

QUESTION = "Within how many hours must incidents be reported?"
NAMED = "Within how many hours must Alpha report incidents?"
SUM = "What is 12 times 4?"
SEARCH = call("search_rules", {"query": "incidents"})
READ = call("read_document", {"document": "rules/security"})
SURE = {"answerable_without_documents": True, "confidence": "full", "why": "arithmetic"}
SKIP: Turn = call(DECISION, {**SURE, "effort": "one_search", "sources": []})
ONE: Turn = call(
    DECISION, {**SURE, "answerable_without_documents": False, "effort": "one_search", "sources": [], "why": "plain"}
)
MANY: Turn = call(
    DECISION,
    {**SURE, "answerable_without_documents": False, "effort": "several_searches", "sources": [], "why": "hard"},
)
OPEN = Draft(claims=GOOD.claims, missing=(DraftGap(what="the fine"),))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


def ask(
    corpus: Corpus, turns: list[Turn], question: str = QUESTION, *, config: Config | None = None, **options: Any
) -> tuple[Answer, ScriptedModel]:
    model = ScriptedModel(turns)
    return Assistant(config or corpus.config, corpus, model).ask_sync(question, **options), model


def test_every_mode_has_a_strategy() -> None:
    assert tuple(STRATEGIES) == MODES


# direct


@pytest.mark.parametrize("mode", ["auto", "direct"])
def test_a_sum_needs_no_retrieval(corpus: Corpus, mode: str) -> None:
    skip = SKIP if mode == "auto" else call(DECISION, SURE)
    answer, model = ask(corpus, [skip, Draft(text="48")], SUM, mode=mode)
    assert (answer.requested_mode, answer.mode, answer.status) == (mode, "direct", "direct")
    assert answer.text == f"48\n\n{NO_DOCUMENT}"
    assert (answer.calls, answer.claims, answer.usage.searches, answer.usage.retrievals) == ((), (), 0, 0)
    assert "arithmetic" in answer.route
    assert (answer.usage.steps, answer.usage.model_calls, len(model.requests)) == (1, 2, 2)


@pytest.mark.parametrize(
    "reply",
    [
        "yes, skip it",
        call(DECISION, {**SURE, "confidence": "partial"}),
        call(DECISION, {**SURE, "answerable_without_documents": False}),
        RuntimeError("boom"),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "direct"])
def test_doubt_means_retrieve(corpus: Corpus, reply: Turn, mode: str) -> None:
    answer, _ = ask(corpus, [reply, GOOD], mode=mode)
    assert answer.mode == "single"
    assert answer.usage.searches == 2
    assert answer.status == "complete"


@pytest.mark.parametrize("question", [NAMED, "What does the travel policy say?", "What stands in deals?"])
@pytest.mark.parametrize("mode", ["auto", "direct"])
def test_a_question_that_names_something_known_never_skips(corpus: Corpus, question: str, mode: str) -> None:
    answer, model = ask(corpus, [GOOD, GOOD, GOOD, GOOD], question, mode=mode)
    assert answer.usage.searches >= 1
    assert answer.status != "direct"
    assert all(t.name != DECISION for r in model.requests for t in r.parameters.output_tools), "no one was asked"


@pytest.mark.parametrize("mode", ["auto", "direct", "agent"])
@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_model_that_searches_nothing_gets_passages_where_the_question_names_something_known(
    corpus: Corpus, mode: str, steps: int
) -> None:
    question = "Does the contract with Alpha comply with the security policy?"
    model = ScriptedModel([Draft(text="Yes, it does.")], repeat_last=True)
    answer = Assistant(corpus.config, corpus, model).ask_sync(question, mode=mode, max_steps=steps)
    assert (answer.mode, answer.status) == ("agent", "partial")
    assert answer.usage.searches >= 1
    assert answer.usage.steps <= steps
    assert all(claim.status != "verified" for claim in answer.claims if claim.text == "Yes, it does.")
    assert any("names" in warning and "Alpha" in warning for warning in answer.warnings)


def test_a_model_that_doubts_its_own_direct_answer_searches(corpus: Corpus) -> None:
    doubtful = Draft(missing=(DraftGap(what="not certain"),))
    answer, _ = ask(corpus, [SKIP, doubtful, GOOD], "How soon are incidents told?")
    assert answer.mode == "single"
    assert answer.usage.searches == 2
    assert "not certain" in answer.route


def test_the_offline_model_never_skips(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(SUM)
    assert answer.status == "not_found"
    assert answer.usage.searches > 0
    assert "Without a language model" in str(answer.missing[0].reason)
    with pytest.raises(UsageError, match="offline model can only search"):
        Assistant(corpus.config, corpus).ask_sync(SUM, mode="direct")


# auto


def test_one_search_is_enough_for_a_plain_question(corpus: Corpus) -> None:
    answer, model = ask(corpus, [ONE, GOOD])
    assert (answer.requested_mode, answer.mode, answer.status) == ("auto", "single", "complete")
    assert answer.route == "scripted: plain"
    assert (answer.usage.steps, len(model.requests)) == (1, 2)


def test_a_part_left_open_goes_on_to_the_agent_with_what_was_read_and_spent(corpus: Corpus) -> None:
    events: list[Event] = []
    turns: list[Turn] = [ONE, OPEN, call("search_rules", {"query": "fine"}), GOOD]
    answer, model = ask(corpus, turns, emit=events.append)
    assert (answer.mode, answer.status) == ("agent", "complete")
    assert "then one search left open: the fine" in answer.route
    assert answer.usage.steps == 3
    assert (answer.usage.model_calls, answer.usage.retrievals) == (4, 1)
    assert answer.usage.input_tokens == 400
    assert [c.tool for c in answer.calls].count("search_rules") == 2
    prompt = str(model.requests[2].messages[0])
    assert "not answered by them: the fine" in prompt
    assert WITHIN_24 in prompt
    decided = [e for e in events if isinstance(e, Decided)]
    assert [e.what for e in decided] == ["route"], "no further check"


def test_what_was_read_first_can_be_cited_at_the_end(corpus: Corpus) -> None:
    answer, _ = ask(corpus, [ONE, OPEN, GOOD])
    assert [c.status for c in answer.claims] == ["verified"]
    assert all(c.tool != "find_in_document" for c in answer.calls)


def test_an_agent_that_finds_nothing_more_costs_no_verified_claim(corpus: Corpus) -> None:
    gap = Draft(missing=(DraftGap(what="incidents hours"),))
    answer, _ = ask(corpus, [ONE, OPEN, gap, gap])
    assert [c.text for c in answer.claims] == [WITHIN_24]
    assert [g.what for g in answer.missing] == ["the fine"]
    assert "agent found no more than the first search" in answer.warnings


def test_a_comparison_goes_to_the_agent_without_a_call(corpus: Corpus) -> None:
    question = "Does the contract with Alpha comply with the security policy?"
    answer, model = ask(corpus, [SEARCH, READ, GOOD], question)
    assert answer.mode == "agent"
    assert answer.route.startswith("rules: compares")
    assert len(model.requests) == 3


def test_code_has_the_last_word_on_the_side_of_doubt(corpus: Corpus) -> None:
    question = "How soon are incidents told, and has it changed recently?"
    answer, _ = ask(corpus, [SKIP, SEARCH, READ, GOOD], question)
    assert answer.mode == "agent"
    answer, _ = ask(corpus, [ONE, SEARCH, READ, GOOD], question)
    assert answer.mode == "agent"
    assert "asks what has changed" in answer.route


def test_the_judge_may_see_more_than_code(corpus: Corpus) -> None:
    answer, _ = ask(corpus, [MANY, SEARCH, READ, GOOD])
    assert (answer.mode, answer.route) == ("agent", "scripted: hard")


def test_rules_may_decide_for_a_model(corpus: Corpus) -> None:
    config = replace(corpus.config, routing=RoutingConfig(judge="rules"))
    answer, model = ask(corpus, [GOOD], config=config)
    assert (answer.mode, answer.route, len(model.requests)) == ("single", "rules: one plain question", 1)


def test_a_small_model_decides_and_the_other_answers(corpus: Corpus) -> None:
    big, small = ScriptedModel([GOOD], name="big"), ScriptedModel([ONE], name="small")
    answer = Assistant(corpus.config, corpus, big, small=small).ask_sync(QUESTION)
    assert (answer.model, answer.route) == ("big", "small: plain")
    assert (len(big.requests), len(small.requests), answer.usage.model_calls) == (1, 1, 2)


def test_offline_and_by_rules_the_route_is_the_same(corpus: Corpus) -> None:
    config = replace(corpus.config, routing=RoutingConfig(judge="rules"))
    for question in (QUESTION, NAMED, "Does the contract with Alpha comply with the security policy?"):
        offline = Assistant(corpus.config, corpus).ask_sync(question)
        by_rules, _ = ask(corpus, [SEARCH, READ, GOOD] if offline.mode == "agent" else [GOOD], question, config=config)
        assert by_rules.route.split(";")[0] == offline.route.split(";")[0]


def test_a_quote_that_points_elsewhere_is_not_the_last_word(tmp_path: Path) -> None:
    rule = "Incidents must be reported to the bank within 24 hours unless a circular says otherwise."
    files = {**FILES, "rules/security.md": f"# Security policy\n\n## 7 Incidents\n\n{rule}\n"}
    with opened(tmp_path, files) as corpus:
        good = quoting("rules/security", rule)
        answer, _ = ask(corpus, [ONE, good, call("search_rules", {"query": "circular"}), good])
    assert answer.mode == "agent"
    assert "circular" in answer.route


def test_a_model_without_tools_gets_hops(corpus: Corpus) -> None:
    def model(*turns: Turn) -> OpenedModel:
        return OpenedModel(model=ScriptedModel(turns), name="plain", price=FREE, tools=False)

    enough = '{"enough": true, "missing": []}'
    answer = Assistant(corpus.config, corpus, model(enough, GOOD)).ask_sync(QUESTION, mode="agent")
    assert (answer.requested_mode, answer.mode, answer.status) == ("agent", "hops", "complete")
    assert "plain cannot call tools" in answer.route
    question = "Does the contract with Alpha comply with the security policy?"
    quoted = quoting("deals/alpha", "The supplier reports incidents within 72 hours of discovery.")
    answer = Assistant(corpus.config, corpus, model(enough, quoted)).ask_sync(question)
    assert (answer.mode, answer.status) == ("hops", "complete")
    assert "plain cannot call tools" in answer.route


def test_a_window_too_small_to_search_with_gets_hops(corpus: Corpus) -> None:
    model = OpenedModel(
        model=ScriptedModel([call("decision", {"enough": True, "missing": []}), GOOD]), name="local", price=FREE
    )
    answer = Assistant(corpus.config, corpus, replace(model, window=8000)).ask_sync(QUESTION, mode="agent")
    assert (answer.mode, answer.status) == ("hops", "complete")
    assert "local has a context window of 8000 tokens, too small to search with" in answer.route


# prefetch


@pytest.mark.parametrize("by", ["config", "argument"])
def test_a_prefetch_is_in_the_prompt_and_counts_as_read(corpus: Corpus, by: str) -> None:
    config = replace(corpus.config, agent=AgentConfig(prefetch=by == "config"))
    prefetch = True if by == "argument" else None
    answer, model = ask(corpus, [GOOD], config=config, mode="agent", prefetch=prefetch)
    assert (answer.status, answer.mode) == ("complete", "agent")
    assert (answer.usage.steps, answer.usage.retrievals, answer.usage.searches) == (1, 1, 2)
    assert WITHIN_24 in str(model.requests[0].messages)
    assert model.requests[0].parameters.function_tools, "it may still search"


def test_a_prefetch_also_follows_what_was_found_to_where_it_leads(tmp_path: Path) -> None:
    """Many documents share the question's words; the one that answers is only named in the best of them."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "walrus.md").write_text(
        "# Walrus Permit\n\nThe walrus permit fee is set out in the Marine Tariff Schedule.\n", "utf-8"
    )
    for number in range(9):
        (docs / f"w{number}.md").write_text(f"# Note {number}\n\nThe walrus permit fee was discussed.\n", "utf-8")
    (docs / "tariff.md").write_text("# Marine Tariff Schedule\n\nEach licence costs 40 crowns.\n", "utf-8")
    config = Config(root=tmp_path, sources=(SourceConfig(name="docs", path=docs),))
    with Corpus.open(config, write=True) as corpus:
        corpus.sync()
        answer, model = ask(
            corpus,
            [quoting("docs/tariff", "Each licence costs 40 crowns")],
            "What is the walrus permit fee?",
            mode="agent",
            prefetch=True,
        )
        single, _ = ask(
            corpus,
            [quoting("docs/tariff", "Each licence costs 40 crowns")] * 2,
            "What is the walrus permit fee?",
            mode="single",
        )
    assert "40 crowns" in str(model.requests[0].messages)
    assert [c.tool for c in answer.calls].count("follow_leads") == 1
    assert answer.status == "complete"
    assert single.status != "complete", "one search does not find it"


def test_without_prefetch_nothing_is_searched_beforehand(corpus: Corpus) -> None:
    answer, _ = ask(corpus, [SEARCH, READ, GOOD], mode="agent")
    assert answer.usage.retrievals == 0


def test_offline_a_prefetch_often_saves_the_search(corpus: Corpus) -> None:
    answer = Assistant(corpus.config, corpus).ask_sync(QUESTION, mode="agent", prefetch=True)
    assert WITHIN_24 in [c.quote for claim in answer.claims for c in claim.citations]
    assert (answer.usage.steps, answer.usage.searches) == (1, 2)
    lacking = Assistant(corpus.config, corpus).ask_sync(
        "What is the fine for a late walrus?", mode="agent", prefetch=True
    )
    assert lacking.usage.searches > 2, "it goes on where the passages are not enough"


# support


def test_support_is_off_by_default_and_labelled_when_on(corpus: Corpus) -> None:
    answer, _ = ask(corpus, [GOOD], mode="single")
    assert [c.support for c in answer.claims] == [None]
    config = replace(corpus.config, verify=VerifyConfig(support="model"))
    opinion = call(DECISION, {"verdict": "unsupported", "why": "says less"})
    answer, _ = ask(corpus, [GOOD, opinion], mode="single", config=config)
    assert [(c.status, c.support) for c in answer.claims] == [("verified", "unsupported")]
    assert answer.claims[0].warnings == ("support is unsupported in the judgement of scripted: says less",)
    assert answer.status == "complete"


def test_support_never_upgrades_a_failed_citation(corpus: Corpus) -> None:
    config = replace(corpus.config, verify=VerifyConfig(support="model"))
    forged = quoting("rules/security", "Incidents must be reported within 36 hours of discovery.")
    answer, model = ask(corpus, [forged, forged], mode="single", config=config)
    assert [(c.status, c.support) for c in answer.claims] == [("unverified", None)]
    assert len(model.requests) == 2


def test_support_needs_a_model(corpus: Corpus) -> None:
    config = replace(corpus.config, verify=VerifyConfig(support="model"))
    answer = Assistant(config, corpus).ask_sync(QUESTION)
    assert any("needs a model" in w for w in answer.warnings)


# models that lie, loop and stall

WORDS = ("incidents", "alpha", "hours", "encryption", "trains", "walrus", "fine", "booking", "circular", "bank")
NOISE = ("", "sure", "{", '{"claims": 3}', "CLAIM: x\nQUOTE [rules/security]: y", '{"enough": true}')


LIMIT = 120.0


class Clock:
    """Seconds that pass only when a request takes them; counts the requests sent when the time was up.

    A request that is under way is not cut here, as it would be by a real clock: hence a last draft, and its repeats.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.late = 0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> None:
        self.late += self.now > LIMIT
        self.now += seconds


def unruly(chance: random.Random, clock: Clock) -> Callable[[ScriptedRequest], Any]:
    """A model that makes up claims, repeats calls, asks for thousands, breaks off, stalls and refuses."""

    def turn(request: ScriptedRequest) -> Any:
        kind = chance.randrange(14)
        clock.takes(chance.choice((0.1, 0.1, 1.0, 45.0)))
        word = chance.choice(WORDS)
        if kind == 0:
            return call("search_rules", {"query": "incidents"})
        if kind == 1:
            return [call(f"search_{chance.choice(('rules', 'deals', 'x'))}", {"query": word}) for _ in range(30)]
        if kind == 2:
            return call("read_document", {"document": chance.choice(("rules/security", "rules/none", "../x"))})
        if kind == 3:
            return chance.choice(NOISE)
        if kind == 4:
            return RuntimeError("cut")
        if kind == 5:
            return ModelHTTPError(chance.choice((400, 429, 500, 529)), "scripted")
        if kind == 6:
            return TimeoutError("stalled")
        if kind == 7:
            return ModelResponse(parts=[TextPart("no")], finish_reason=chance.choice(("content_filter", "length")))
        if kind == 8:
            return ModelResponse(parts=[ToolCallPart(DECISION, '{"enough": tr')])
        if kind == 9:
            return call(DECISION, {**SURE, "effort": "survey", "sources": ["x"]})
        if kind == 10:
            return call(DECISION, {"enough": False, "missing": [word] * 40})
        lie = f"{word} within {chance.randrange(99)} hours of discovery"
        citations = (DraftCitation(document=chance.choice(("rules/security", "none")), quote=lie),)
        return Draft(
            claims=(DraftClaim(text=lie, citations=citations), *GOOD.claims)[: chance.randrange(3)],
            missing=(DraftGap(what=word),)[: chance.randrange(2)],
            text=chance.choice((None, lie)),
        )

    return turn


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time as a `Clock` gives it to every run, and no pauses before a request is repeated."""

    async def no_pause(seconds: float) -> None:
        return None

    made = Clock()
    monkeypatch.setattr("citehound.assistant.Meter", partial(Meter, clock=made))
    for module in ("routing", "research", "survey"):
        monkeypatch.setattr(f"citehound.{module}.Conversation", partial(Conversation, sleep=no_pause))
    return made


def unruly_runs(corpus: Corpus, mode: str, clock: Clock, *, count: int) -> None:
    price = Price(input=3.0, output=15.0, cached=0.3)

    async def run(number: int) -> None:
        chance = random.Random(f"{mode}-{number}")
        clock.now, clock.late = 0.0, 0

        def usage(request: ScriptedRequest) -> RequestUsage:
            cap = request.settings.get("max_tokens", 100)
            return RequestUsage(input_tokens=chance.randrange(50, 900), output_tokens=chance.randrange(1, cap))

        model = ScriptedModel([unruly(chance, clock)], usage=usage, repeat_last=True)
        steps, dollars = chance.randrange(1, 9), chance.choice((0.0, 0.001, 0.02, 0.2))
        start = chance.choice(("what is", "within how many hours must", "which of the two is sooner:", "list all"))
        question = f"{start} {' '.join(chance.choices(WORDS, k=4))}{chance.choice(('?', ', and has it changed?'))}"
        opened_model = OpenedModel(model=model, name="unruly", price=price, window=60_000)
        assistant = Assistant(corpus.config, corpus, opened_model, record=False)
        answer = await assistant.ask(
            question, mode=mode, max_steps=steps, max_dollars=dollars, max_seconds=LIMIT, max_hops=3
        )
        told = f"{mode}-{number}: {question!r}"
        assert answer.usage.steps <= steps, told
        assert answer.usage.dollars is not None
        assert answer.usage.dollars <= dollars + 1e-9, told
        assert clock.late <= 1 + MAX_RETRIES, told
        assert answer.status in ("complete", "partial", "not_found", "direct", "failed"), told
        assert answer.mode in MODES
        assert answer.status != "failed" or answer.stop_reason != "answered", told

    async def main() -> None:
        for number in range(count):
            await run(number)

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_models_that_lie_loop_and_stall_end_within_every_cap(corpus: Corpus, mode: str, clock: Clock) -> None:
    unruly_runs(corpus, mode, clock, count=40)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_five_hundred_unruly_questions_per_mode(corpus: Corpus, mode: str, clock: Clock) -> None:
    unruly_runs(corpus, mode, clock, count=500)
