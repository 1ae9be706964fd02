"""A lead and its sub-agents: shares, evidence by agent, what the lead may reuse, and what becomes of failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from citehound import config
from citehound.access import OWNER
from citehound.answers import Answer
from citehound.assistant import Assistant
from citehound.budget import Budget, Meter, Price
from citehound.corpus import Corpus
from citehound.documents import Passage
from citehound.drafts import Draft, DraftCitation, DraftClaim, DraftGap
from citehound.errors import BudgetExceeded
from citehound.events import Event
from citehound.evidence import Ledger
from citehound.judge import RulesJudge, SubQuestion
from citehound.models import OpenedModel
from citehound.models.scripted import Reply, ScriptedModel, ScriptedRequest, call
from citehound.runs import RunStore
from small import WITHIN_24, opened, quoting

QUESTION = "How do the incident deadlines of the bank and of Alpha differ?"
BANK, ALPHA = "What deadline does the bank set for incidents?", "What deadline has Alpha agreed to?"
WITHIN_72 = "The supplier reports incidents within 72 hours of discovery."
RULES = quoting("rules/security", WITHIN_24)
DEALS = quoting("deals/alpha", WITHIN_72)
BOTH = Draft(
    claims=(
        *RULES.claims,
        *DEALS.claims,
        DraftClaim(text="The deadlines differ: 24 hours and 72 hours.", kind="conclusion", premises=(1, 2)),
    )
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with opened(tmp_path_factory.mktemp("small")) as corpus:
        yield corpus


class Split(RulesJudge):
    """Rules, but for a split that is given."""

    def __init__(self, corpus: Corpus, parts: tuple[SubQuestion, ...]) -> None:
        super().__init__(corpus.lexicon(principal=OWNER), corpus.sources)
        self.parts = parts

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        return self.parts[:most]


TWO = (SubQuestion(question=BANK, sources=("rules",)), SubQuestion(question=ALPHA, sources=("deals",)))


def prompt_of(request: ScriptedRequest) -> str:
    return str(request.messages[0].parts[0].content)  # type: ignore[union-attr]


def is_lead(request: ScriptedRequest) -> bool:
    return "Findings (JSON)" in prompt_of(request)


def play(*, bank: Reply = RULES, alpha: Reply = DEALS, lead: Reply = BOTH) -> Callable[[ScriptedRequest], Reply]:
    """One reply per agent, whoever asks first."""

    def reply(request: ScriptedRequest) -> Reply:
        if is_lead(request):
            return lead
        return bank if BANK in prompt_of(request) else alpha

    return reply


def ask(
    corpus: Corpus,
    reply: Callable[[ScriptedRequest], Reply] | ScriptedModel,
    *,
    parts: tuple[SubQuestion, ...] = TWO,
    price: Price | None = None,
    usage: tuple[int, int] = (100, 50),
    **options: Any,
) -> tuple[Answer, ScriptedModel]:
    model = reply if isinstance(reply, ScriptedModel) else ScriptedModel([reply], repeat_last=True, usage=usage)
    opened_model = OpenedModel(model=model, name="scripted", price=price or Price(input=0.0, output=0.0))
    assistant = Assistant(corpus.config, corpus, opened_model, judge=Split(corpus, parts))
    return assistant.ask_sync(QUESTION, mode="research", **options), model


def test_the_lead_answers_from_what_its_sub_agents_verified(corpus: Corpus) -> None:
    answer, model = ask(corpus, play())
    assert (answer.mode, answer.status, answer.stop_reason) == ("research", "complete", "answered")
    assert [c.status for c in answer.claims] == ["verified"] * 3
    lead = next(r for r in model.requests if is_lead(r))
    assert lead.parameters.function_tools == []
    told = json.loads(prompt_of(lead).split("Findings (JSON):\n")[1])["parts"]
    assert [(p["part"], p["question"], len(p["findings"])) for p in told] == [
        ("part-1", BANK, 1),
        ("part-2", ALPHA, 1),
    ]
    assert told[0]["findings"][0]["citations"] == [{"document": "rules/security", "quote": WITHIN_24, "section": "7"}]


def test_each_sub_agent_has_its_tools_its_part_and_a_first_retrieval(corpus: Corpus) -> None:
    _, model = ask(corpus, play())
    for request in model.requests:
        if is_lead(request):
            continue
        assert {t.name for t in request.parameters.function_tools} >= {"search_rules", "search_deals", "read_document"}
        assert "Passages (JSON)" in prompt_of(request)
        assert QUESTION not in prompt_of(request)
        assert QUESTION in str(request.messages[0].instructions)  # type: ignore[union-attr]


def test_calls_and_evidence_are_tagged_by_agent(corpus: Corpus) -> None:
    answer, _ = ask(corpus, play())
    by_agent = {name: [c for c in answer.calls if c.agent == name] for name in ("part-1", "part-2")}
    assert {c.source for c in by_agent["part-1"]} == {"rules"}
    assert {c.source for c in by_agent["part-2"]} == {"deals"}
    assert len(by_agent["part-1"]) + len(by_agent["part-2"]) == len(answer.calls)


def test_the_union_of_evidence_is_in_the_order_of_the_agents_and_tagged() -> None:
    def passage(document: str) -> Passage:
        return Passage(document=document, section=None, title="", text="x", start=0, end=1, total_chars=1)

    ledger = Ledger()
    first, second = ledger.child("part-1"), ledger.child("part-2")
    second.read(passage("b"))
    first.read(passage("a"))
    ledger.read(passage("c"))
    evidence = ledger.evidence()
    assert [p.document for p in evidence.passages] == ["c", "a", "b"]
    assert [(name, part.documents_read()) for name, part in evidence.agents] == [("part-1", ("a",)), ("part-2", ("b",))]
    assert first.evidence().documents_read() == ("a",), "no agent sees what another has read"
    with pytest.raises(ValueError, match="'part-1'"):
        ledger.child("part-1")


def test_a_lead_that_cites_what_no_sub_agent_verified_is_caught(corpus: Corpus) -> None:
    stolen = quoting("deals/beta", "The supplier reports incidents without delay to the bank.")

    def reply(request: ScriptedRequest) -> Reply:
        if not is_lead(request) and ALPHA in prompt_of(request) and len(request.messages) == 1:
            return call("read_document", {"document": "deals/beta"})  # read in this run, but cited by nobody
        return play(lead=stolen)(request)

    answer, model = ask(corpus, reply)
    assert any(c.arguments.get("document") == "deals/beta" and c.agent == "part-2" for c in answer.calls)
    leads = [r for r in model.requests if is_lead(r)]
    assert len(leads) == 2, "sent back once"
    assert "not among the citations that the sub-agents verified" in str(leads[1].messages[-1])
    (claim,) = answer.claims
    assert (claim.status, answer.status) == ("unverified", "partial")
    assert claim.citations[0].reason == "not among the citations that the sub-agents verified"


def test_a_lead_that_mends_its_citations_is_complete(corpus: Corpus) -> None:
    stolen = quoting("deals/beta", "The supplier reports incidents without delay to the bank.")
    asked: list[bool] = []

    def reply(request: ScriptedRequest) -> Reply:
        if not is_lead(request):
            return play()(request)
        asked.append(True)
        return stolen if len(asked) == 1 else BOTH

    answer, _ = ask(corpus, reply)
    assert (answer.status, len(answer.claims), len(asked)) == ("complete", 3, 2)


def test_a_lead_may_quote_a_part_of_a_verified_quote_but_no_more_than_it(corpus: Corpus) -> None:
    part = quoting("rules/security", "reported to the bank within 24 hours")
    assert ask(corpus, play(lead=part))[0].status == "complete"
    more = quoting("rules/security", f"{WITHIN_24} 8 Encryption")
    assert ask(corpus, play(lead=more))[0].claims[0].status == "unverified"


def test_what_a_sub_agent_could_not_verify_is_no_finding(corpus: Corpus) -> None:
    forged = quoting("deals/alpha", "The supplier reports incidents within 36 hours of discovery.")
    answer, model = ask(corpus, play(alpha=forged, lead=RULES))
    told = prompt_of(next(r for r in model.requests if is_lead(r)))
    assert "36 hours" not in told
    assert (answer.status, answer.missing[0].what) == ("partial", ALPHA)
    assert "could be verified" in (answer.missing[0].reason or "")
    assert any("part-2" in w and "36 hours" in w for w in answer.warnings)


def test_a_sub_agent_that_fails_is_a_gap_and_costs_nobody_else_anything(corpus: Corpus) -> None:
    answer, model = ask(corpus, play(alpha=RuntimeError("the line is dead"), lead=RULES))
    assert (answer.status, answer.claims[0].status) == ("partial", "verified")
    (gap,) = answer.missing
    assert (gap.what, gap.status) == (ALPHA, "unchecked")
    assert "part-2" in (gap.reason or "")
    assert "the line is dead" in (gap.reason or "")
    assert '"failed"' in prompt_of(next(r for r in model.requests if is_lead(r)))


def test_a_part_without_findings_is_declared_even_when_the_lead_forgets_it(corpus: Corpus) -> None:
    nothing = Draft(missing=(DraftGap(what="the deadline that Alpha has agreed to"),))
    answer, _ = ask(corpus, play(alpha=nothing, lead=RULES))
    assert [gap.what for gap in answer.missing] == ["the deadline that Alpha has agreed to"]
    again, _ = ask(corpus, play(alpha=nothing, lead=RULES.model_copy(update={"missing": nothing.missing})))
    assert len(again.missing) == 1


def test_without_a_lead_the_verified_claims_are_put_together(corpus: Corpus) -> None:
    answer, _ = ask(corpus, play(lead=RuntimeError("the line is dead")))
    assert (answer.stop_reason, answer.status) == ("model_error", "partial")
    assert {c.citations[0].document for c in answer.claims if c.kind == "quoted"} == {"rules/security", "deals/alpha"}
    assert any("put together by code" in warning for warning in answer.warnings)


def test_when_every_sub_agent_fails_there_is_no_lead(corpus: Corpus) -> None:
    dead = RuntimeError("the line is dead")
    answer, model = ask(corpus, play(bank=dead, alpha=dead))
    assert not any(is_lead(r) for r in model.requests)
    assert (answer.stop_reason, [g.what for g in answer.missing]) == ("model_error", [BANK, ALPHA])


def test_sub_agents_work_at_the_same_time(corpus: Corpus) -> None:
    class Together(ScriptedModel):
        async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
            if not any("Findings (JSON)" in str(m) for m in messages):
                self.waiting = getattr(self, "waiting", 0) + 1
                if self.waiting == 2:
                    both.set()
                await asyncio.wait_for(both.wait(), timeout=30)  # fails when they come one after the other
            return await super().request(messages, model_settings, model_request_parameters)

    both = asyncio.Event()
    answer, _ = ask(corpus, Together([play()], repeat_last=True))
    assert answer.status == "complete"
    assert answer.usage.steps == 2, "turns at the same time are one step, the lead's is another"
    assert answer.usage.model_calls == 3


@pytest.mark.parametrize("dollars", [0.002, 0.01, 0.03, 0.06, 0.2])
def test_the_dollar_cap_holds_over_all_agents(corpus: Corpus, dollars: float) -> None:
    def searching(request: ScriptedRequest) -> Reply:
        if is_lead(request):
            return BOTH
        if request.tools_withheld:
            return RULES if BANK in prompt_of(request) else DEALS
        return call("search_rules", {"query": f"incidents {len(request.messages)}"})

    price = Price(input=3.0, output=15.0)
    answer, _ = ask(corpus, searching, price=price, usage=(2500, 300), max_dollars=dollars, max_steps=6)
    assert answer.usage.dollars is not None
    assert answer.usage.dollars <= dollars + 1e-9
    assert answer.usage.steps <= 6
    assert answer.status in ("complete", "partial")


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_the_step_cap_holds_over_all_agents(corpus: Corpus, steps: int) -> None:
    def searching(request: ScriptedRequest) -> Reply:
        if is_lead(request):
            return BOTH
        if request.tools_withheld:
            return RULES if BANK in prompt_of(request) else DEALS
        return call("search_rules", {"query": f"incidents {len(request.messages)}"})

    answer, _ = ask(corpus, searching, max_steps=steps)
    assert answer.usage.steps <= steps
    if steps == 1:
        assert [gap.what for gap in answer.missing] == [BANK, ALPHA]
        assert answer.stop_reason == "steps"
    else:
        assert answer.status == "complete"


def test_more_parts_than_work_at_once_are_all_answered(corpus: Corpus) -> None:
    parts = tuple(SubQuestion(question=f"{BANK} ({n})", sources=("rules",)) for n in range(6))
    answer, model = ask(corpus, play(lead=RULES), parts=parts)
    assert answer.status == "complete"
    assert len(model.requests) == 7
    assert {c.agent for c in answer.calls} == {f"part-{n}" for n in range(1, 7)}


def test_one_part_needs_no_lead(corpus: Corpus) -> None:
    answer, model = ask(corpus, play(), parts=TWO[:1])
    assert (answer.status, len(model.requests)) == ("complete", 1)
    assert any("one agent" in warning for warning in answer.warnings)


def test_the_answer_says_what_it_cost_beside_one_agent(corpus: Corpus) -> None:
    answer, _ = ask(corpus, play())
    said = "research: 2 sub-agents and a lead took 450 tokens, 3.0 times what the dearest sub-agent took alone (150)"
    assert said in answer.warnings
    assert answer.usage.input_tokens + answer.usage.output_tokens == 450


def test_offline_the_bank_question_is_answered_with_both_deadlines_and_the_gap(bank_root: Path, tmp_path: Path) -> None:
    toml = (bank_root / "citehound.toml").read_text("utf-8").replace('path = "', f'path = "{bank_root}/')
    (tmp_path / "citehound.toml").write_text(toml, "utf-8")
    with Corpus.open(config.load(tmp_path / "citehound.toml", env={}), write=True) as corpus:
        corpus.sync()
        question = "Does the contract with supplier Alpha comply with the current outsourcing policy?"
        answer = Assistant(corpus.config, corpus).ask_sync(question, mode="research")
    assert all(claim.status == "verified" for claim in answer.claims)
    differ = [c for c in answer.claims if c.kind == "conclusion" and "24 hours" in c.text and "72 hours" in c.text]
    assert len(differ) == 1
    assert {answer.claims[p - 1].citations[0].document.split("/")[0] for p in differ[0].premises} == {
        "policies",
        "contracts",
    }
    assert any("Annual due diligence" in gap.what and gap.status == "checked" for gap in answer.missing)
    assert len({c.agent for c in answer.calls}) == 3
    assert len({(c.text, tuple(q.document for q in c.citations)) for c in answer.claims}) == len(answer.claims)


def test_a_cancelled_run_is_recorded_with_what_the_sub_agents_had_read(corpus: Corpus) -> None:
    class Hanging(ScriptedModel):
        async def request(self, *args: Any, **kwargs: Any) -> Any:
            self.waiting = getattr(self, "waiting", 0) + 1
            if self.waiting == 2:
                started.set()
            await asyncio.Event().wait()

    async def run() -> None:
        assistant = Assistant(corpus.config, corpus, Hanging([]), judge=Split(corpus, TWO), emit=seen.append)
        task = asyncio.create_task(assistant.ask(QUESTION, mode="research"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    seen: list[Event] = []
    asyncio.run(run())
    answer = RunStore(corpus.config.state / "runs.sqlite").get(str(seen[0].to_dict()["run_id"]), principal=OWNER).answer
    assert answer.stop_reason == "cancelled"
    assert {c.agent for c in answer.calls} == {"part-1", "part-2"}


def test_shares_at_work_at_the_same_time_share_steps_and_never_pass_the_cap() -> None:
    meter = Meter(Budget(max_steps=3, max_dollars=1.0, max_seconds=None))
    a, b = meter.child(parallel=True), meter.child(parallel=True)
    assert [a.begin_step(), b.begin_step(), a.begin_step()] == [1, 1, 2]
    assert meter.spent().steps == 2
    later = meter.child(parallel=True)
    assert later.begin_step() == 1
    assert meter.spent().steps == 3
    with pytest.raises(BudgetExceeded):
        later.begin_step()
    assert (meter.child().budget.max_steps, a.spent().steps) == (0, 2)


def test_a_share_of_the_dollars_is_all_that_a_sub_agent_can_reserve() -> None:
    meter = Meter(Budget(max_steps=None, max_dollars=1.0, max_seconds=None))
    a, b = meter.child(share=0.5, parallel=True), meter.child(share=0.5, parallel=True)
    a.reserve(0.5)
    assert not a.fits(0.01)
    assert b.fits(0.5)
    assert not b.fits(0.51)


def test_a_citation_of_nothing_is_unaffected_outside_research(corpus: Corpus) -> None:
    citation = DraftCitation(document="deals/beta", quote="The supplier reports incidents without delay to the bank.")
    draft = Draft(claims=(DraftClaim(text="Without delay.", citations=(citation,)),))
    read = call("read_document", {"document": "deals/beta"})
    answer = Assistant(corpus.config, corpus, ScriptedModel([read, draft])).ask_sync(QUESTION, mode="agent")
    assert answer.claims[0].status == "verified"
