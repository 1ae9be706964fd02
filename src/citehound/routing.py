"""Which strategy answers a question and what follows when it does not suffice; the strategies themselves are elsewhere.

`STRATEGIES` is the table of modes. Each gets a `Task` and gives a `Done`: what came out, in which mode, and why. Doubt
means: retrieve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .access import Principal
from .agent import run_agent
from .answers import Claim
from .budget import Meter
from .config import Config, SourceConfig
from .corpus import Corpus
from .events import Decided, Emit
from .evidence import Ledger
from .hopping import run_hops
from .judge import Judge, ModelJudge, Route, RulesJudge, Signals
from .loop import Conversation, Limits, Outcome, converse
from .models import OFFLINE, OpenedModel
from .prompts import direct_instructions, question_prompt
from .quarantine import run_quarantined
from .research import run_research
from .security import Prompt
from .single import FOLLOWED, Retrieved, retrieve, run_single
from .survey import Survey, asks_for_survey, run_survey, survey_of
from .toolbox import Toolbox

JUDGE_SHARE = 0.2
"""Most of a run's dollars that its decisions may cost together."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a strategy gives: `mode` is the one that answered, `route` says why it was that one."""

    outcome: Outcome
    mode: str
    route: str


class Task:
    """One question with everything a strategy needs; shared by the strategies that one run goes through."""

    def __init__(
        self,
        *,
        question: str,
        config: Config,
        corpus: Corpus,
        principal: Principal,
        model: OpenedModel,
        small: OpenedModel,
        meter: Meter,
        ledger: Ledger,
        emit: Emit,
        max_hops: int | None = None,
        prefetch: bool | None = None,
        judge: Judge | None = None,
        survey: Survey | None = None,
        earlier: Prompt | None = None,
    ) -> None:
        self.question = question
        self.config = config
        self.corpus = corpus
        self.principal = principal
        self.model = model
        self.small = small
        self.meter = meter
        self.ledger = ledger
        self.emit = emit
        self.max_hops = config.budget.max_hops if max_hops is None else max_hops
        self.prefetch = config.agent.prefetch if prefetch is None else prefetch
        self.survey = survey
        self.earlier = earlier
        """What a prompt says of earlier turns of a chat."""
        self.reuse = False
        """In a chat: what was read earlier is enough to answer."""
        self._given = judge
        self._rules: RulesJudge | None = None
        self._judge: Judge | None = None

    def rules(self) -> RulesJudge:
        if self._rules is None:
            self._rules = RulesJudge(self.corpus.lexicon(principal=self.principal), self.corpus.sources)
        return self._rules

    def signals(self) -> Signals:
        signals = self.rules().signals(self.question)
        return replace(signals, survey=asks_for_survey(self.question, self.corpus.sources))

    def judge(self) -> Judge:
        """The judge of this run: the one that was given, rules without a model or where they are asked for."""
        if self._judge is None:
            if self._given is not None:
                self._judge = self._given
            elif OFFLINE in (self.model.name, self.small.name) or self.config.routing.judge == "rules":
                self._judge = self.rules()
            else:
                meter = self.meter.child(share=JUDGE_SHARE)
                self._judge = ModelJudge(self.small, meter=meter, rules=self.rules(), sources=self.corpus.sources)
        return self._judge

    def conversation(self, toolbox: Toolbox | None = None) -> Conversation:
        return Conversation(
            model=self.model,
            meter=self.meter,
            ledger=self.ledger,
            documents=self.corpus.view(principal=self.principal),
            question=self.question,
            toolbox=toolbox,
            limits=Limits(turn_tokens=self.config.model.turn_tokens, draft_tokens=self.config.model.draft_tokens),
            emit=self.emit,
            earlier=None if self.model.name == OFFLINE else self.earlier,
        )

    def toolbox(self) -> Toolbox:
        return Toolbox(self.corpus, principal=self.principal, ledger=self.ledger, emit=self.emit)

    def routed(self, names: Sequence[str]) -> tuple[SourceConfig, ...]:
        """The sources of these names, or all of them where none is known."""
        return tuple(s for s in self.corpus.sources if s.name in names) or tuple(self.corpus.sources)

    async def retrieve(self, sources: Sequence[SourceConfig] | None = None, *, follow: int = 0) -> Retrieved:
        """The first retrieval: each source once, with the question; see `single.retrieve` for `follow`."""
        return await retrieve(
            self.question,
            corpus=self.corpus,
            sources=self.corpus.sources if sources is None else sources,
            principal=self.principal,
            ledger=self.ledger,
            emit=self.emit,
            follow=follow,
        )


Strategy = Callable[[Task], Awaitable[Done]]


# The plain strategies.


async def single(task: Task) -> Done:
    outcome = await run_single(task.conversation(), corpus=task.corpus, principal=task.principal)
    return Done(outcome=outcome, mode="single", route="asked for")


async def hops(task: Task) -> Done:
    return Done(outcome=await _hops(task), mode="hops", route="asked for")


async def _hops(
    task: Task, *, sources: Sequence[SourceConfig] | None = None, first: Retrieved | None = None
) -> Outcome:
    judge = await asyncio.to_thread(task.judge)
    if sources is None:
        signals = await asyncio.to_thread(task.signals)
        sources = task.routed(signals.home)
    return await run_hops(
        task.conversation(),
        corpus=task.corpus,
        principal=task.principal,
        judge=judge,
        max_hops=task.max_hops,
        sources=sources,
        first=first,
    )


SMALLEST_WINDOW = 16_000
"""Tokens. Instructions, tools, one turn with its results and a last draft need about as much."""


def _unable(model: OpenedModel) -> str | None:
    """Why a model cannot be an agent, or None."""
    if not model.tools:
        return f"{model.name} cannot call tools"
    if model.window is not None and model.window < SMALLEST_WINDOW:
        return f"{model.name} has a context window of {model.window} tokens, too small to search with"
    return None


async def agent(task: Task) -> Done:
    """The tool loop, after one fixed retrieval with `prefetch`; `hops` where the model cannot call tools."""
    unable = _unable(task.model)
    if unable:
        why = f"asked for agent; {unable}, so it was hops"
        return Done(outcome=await _hops(task), mode="hops", route=why)
    toolbox = await asyncio.to_thread(task.toolbox)
    prefetched = None
    if task.prefetch:
        signals = await asyncio.to_thread(task.signals)
        prefetched = await task.retrieve(task.routed(signals.home), follow=FOLLOWED)
    outcome = await run_agent(task.conversation(toolbox), sources=task.corpus.sources, prefetched=prefetched)
    route = "asked for" if prefetched is None else "asked for; a first retrieval is in the prompt"
    if outcome.text is not None and prefetched is None:
        signals = await asyncio.to_thread(task.signals)
        if signals.named:  # never without documents, also where the model insists
            prefetched = await task.retrieve(task.routed(signals.home), follow=FOLLOWED)
            outcome = await run_agent(task.conversation(toolbox), sources=task.corpus.sources, prefetched=prefetched)
            unsearched = f"the model searched nothing, but the question names {', '.join(signals.named[:3])}"
            outcome = replace(outcome, warnings=(*outcome.warnings, f"{unsearched}: a first retrieval was made"))
    return Done(outcome=outcome, mode="agent", route=route)


async def research(task: Task) -> Done:
    """A survey where one is given or asked for; else sub-agents and a lead; `hops` where the model has no tools."""
    survey = task.survey or await _survey_of(task)
    if survey is not None:
        return await _survey(task, survey, why="asked for")
    unable = _unable(task.model)
    if unable:
        why = f"asked for research; {unable}, so it was hops"
        return Done(outcome=await _hops(task), mode="hops", route=why)
    judge = await asyncio.to_thread(task.judge)
    outcome = await run_research(task.conversation(), corpus=task.corpus, principal=task.principal, judge=judge)
    return Done(outcome=outcome, mode="research", route="asked for")


async def _survey_of(task: Task) -> Survey | None:
    return await asyncio.to_thread(survey_of, task.question, corpus=task.corpus, principal=task.principal)


async def _survey(task: Task, survey: Survey, *, why: str) -> Done:
    outcome = await run_survey(task.conversation(), corpus=task.corpus, principal=task.principal, survey=survey)
    return Done(outcome=outcome, mode="research", route=f"{why}; the same is asked of {survey.described}")


# direct


async def direct(task: Task) -> Done:
    """Answers without a document where the judge is sure that none is needed; else like `auto`."""
    rules = await asyncio.to_thread(task.rules)
    signals = await asyncio.to_thread(task.signals)
    if signals.named:
        why = f"asked for direct, but the question names {', '.join(signals.named[:3])}"
        return await _searched(task, signals, await rules.route(task.question, signals), why=why)
    judge = await asyncio.to_thread(task.judge)
    skip = await judge.skip(task.question)
    _tell(task, judge, "skip", "skip" if skip.sure else "retrieve", skip.why)
    if skip.sure:
        outcome = await _direct(task)
        if outcome is not None:
            return Done(outcome=outcome, mode="direct", route=f"asked for; {skip.why}")
        why = "asked for direct, but the model was not certain without documents"
    else:
        why = f"asked for direct, but documents may be needed: {skip.why}"
    return await _searched(task, signals, await rules.route(task.question, signals), why=why)


async def _direct(task: Task) -> Outcome | None:
    """An answer without documents; None when the model doubts, so that documents are searched."""
    conversation = task.conversation()
    conversation.earlier = None  # with it, the answer would use documents
    outcome = await converse(conversation, prompt=question_prompt(task.question), instructions=direct_instructions())
    if outcome.text and outcome.text.strip() and not outcome.claims and not outcome.missing:
        return outcome
    return None


# auto


async def auto(task: Task) -> Done:
    """Decides skip and route once; an answer from one search that leaves a part open goes on to the agent."""
    if task.reuse:
        outcome = await _from_earlier(task)
        if outcome is not None:
            return Done(outcome=outcome, mode="single", route="what was read earlier in this chat is enough")
    rules = await asyncio.to_thread(task.rules)
    signals = await asyncio.to_thread(task.signals)
    judge = await asyncio.to_thread(task.judge)
    route, by = await decide(task.question, signals, judge=judge, rules=rules)
    _tell(task, by, "route", route.mode, route.why)
    if route.mode == "direct":
        outcome = await _direct(task)
        if outcome is not None:
            return Done(outcome=outcome, mode="direct", route=f"{by.name}: {route.why}")
        route = await rules.route(task.question, signals)
        return await _searched(task, signals, route, why="the model was not certain without documents")
    return await _searched(task, signals, route, why=f"{by.name}: {route.why}")


async def _from_earlier(task: Task) -> Outcome | None:
    """An answer from what earlier turns of a chat have read, without a search; None where that leaves a part open."""
    nothing = Retrieved(passages=(), notes=("nothing was searched anew: what was read earlier is below",))
    outcome = await run_single(task.conversation(), corpus=task.corpus, principal=task.principal, retrieved=nothing)
    whole = outcome.stop_reason == "answered" and outcome.claims and not outcome.missing
    return outcome if whole and all(claim.status == "verified" for claim in outcome.claims) else None


def settled(signals: Signals) -> bool:
    """True where code can tell both: a known name rules out skipping, and the words leave no doubt of the effort.

    A plain question that seems so wrongly goes on to the agent by itself, once its draft says what is missing.
    """
    return bool(signals.named) and (bool(signals.compound()) or signals.parts <= 1)


async def decide(question: str, signals: Signals, *, judge: Judge, rules: RulesJudge) -> tuple[Route, Judge]:
    """The route, and who decided it. No call is made where code can tell (`settled`).

    Code has the last word on the side of doubt: a question that names something known is never skipped, and one that
    compares or asks for a change never gets by with one search.
    """
    if settled(signals):
        return await rules.route(question, signals), rules
    reasons = signals.compound()
    route = await judge.route(question, signals)
    if route.mode == "direct" and (signals.named or reasons):
        named = f"names {', '.join(signals.named[:3])}" if signals.named else "; ".join(reasons)
        route = replace(await rules.route(question, signals), why=f"it {named}, so documents are searched")
    if route.mode == "single" and reasons:
        route = replace(route, mode="agent", why=f"{'; '.join(reasons)} ({route.why})")
    if route.mode == "research" and (not signals.survey or signals.comparison):
        route = replace(route, mode="agent", why=f"no survey is asked for ({route.why})")
    return route, judge


async def _searched(task: Task, signals: Signals, route: Route, *, why: str) -> Done:
    """Answers by the route's strategy, never without documents."""
    if route.mode == "research":
        survey = await _survey_of(task)
        if survey is not None:
            return await _survey(task, survey, why=why)
        route = replace(route, mode="agent")
    if route.mode == "agent":
        unable = _unable(task.model)
        if unable:
            return Done(outcome=await _hops(task), mode="hops", route=f"{why}; {unable}")
        return replace(await agent(task), route=why)
    sources = task.routed(route.sources if len(route.sources) < len(task.corpus.sources) else ())
    retrieved = await task.retrieve(sources)
    first = await run_single(task.conversation(), corpus=task.corpus, principal=task.principal, retrieved=retrieved)
    open_parts = await asyncio.to_thread(_open_parts, task, first, retrieved)
    if not open_parts or not _may_escalate(task, first):
        return Done(outcome=first, mode="single", route=why)
    why = f"{why}; then one search left open: {'; '.join(open_parts)[:300]}"
    if _unable(task.model):
        outcome, mode = await _hops(task, sources=sources, first=retrieved), "hops"
    else:
        toolbox = await asyncio.to_thread(task.toolbox)
        outcome, mode = (
            await run_agent(
                task.conversation(toolbox), sources=task.corpus.sources, prefetched=retrieved, uncovered=open_parts
            ),
            "agent",
        )
    if _shows(first.claims) and not _shows(outcome.claims):
        warnings = (*first.warnings, *outcome.warnings, f"{mode} found no more than the first search")
        kept = replace(first, stop_reason=outcome.stop_reason, warnings=tuple(dict.fromkeys(warnings)))
        return Done(outcome=kept, mode=mode, route=why)
    return Done(outcome=outcome, mode=mode, route=why)


def _open_parts(task: Task, outcome: Outcome, retrieved: Retrieved) -> tuple[str, ...]:
    """What an answer from one search leaves open: what it says itself, and where what it cites points to the unread."""
    open_parts = [gap.what for gap in outcome.missing]
    open_parts += [claim.text for claim in outcome.claims if claim.status != "verified"]
    if not open_parts and outcome.claims:
        open_parts += task.rules().pointers(task.question, retrieved.passages)
    if not outcome.claims and not outcome.missing:
        open_parts.append(task.question)
    return tuple(dict.fromkeys(" ".join(part.split()) for part in open_parts))


def _may_escalate(task: Task, outcome: Outcome) -> bool:
    """False when the provider failed or nothing is left to spend."""
    steps, dollars, seconds = task.meter.steps_left(), task.meter.dollars_left(), task.meter.seconds_left()
    limit = task.meter.budget.max_seconds
    if outcome.provider_failed or outcome.stop_reason in ("cancelled", "refused", "dollars", "seconds", "steps"):
        return False
    if steps is not None and steps < 2:
        return False
    if seconds is not None and limit is not None and seconds < 0.3 * limit:
        return False
    return dollars is None or task.model.free or dollars > 0


def _shows(claims: Sequence[Claim]) -> bool:
    return any(claim.status == "verified" for claim in claims)


def _tell(task: Task, judge: Judge, what: str, verdict: str, why: str) -> None:
    task.emit(Decided(what=what, verdict=verdict, why=why, by=judge.name))


# Quarantined reading


async def quarantined(task: Task, *, mode: str = "agent", route: str = "asked for") -> Done:
    """The tool loop (or one retrieval) with a planner that sees no text, and a reader that has no tools."""
    outcome = await run_quarantined(
        task.question,
        corpus=task.corpus,
        principal=task.principal,
        planner=task.model,
        reader=task.small,
        meter=task.meter,
        ledger=task.ledger,
        emit=task.emit,
        limits=Limits(turn_tokens=task.config.model.turn_tokens, draft_tokens=task.config.model.draft_tokens),
        prefetch=task.prefetch,
        searching=mode != "single",
    )
    return Done(outcome=outcome, mode=mode, route=f"{route}; read in quarantine")


async def _quarantined_single(task: Task) -> Done:
    return await quarantined(task, mode="single")


async def _quarantined_direct(task: Task) -> Done:
    """Without documents where that is certain: nothing but the question is in that prompt. Else in quarantine."""
    signals = await asyncio.to_thread(task.signals)
    if not signals.named:
        judge = await asyncio.to_thread(task.judge)
        skip = await judge.skip(task.question)
        _tell(task, judge, "skip", "skip" if skip.sure else "retrieve", skip.why)
        outcome = await _direct(task) if skip.sure else None
        if outcome is not None:
            return Done(outcome=outcome, mode="direct", route=f"asked for; {skip.why}")
    return await quarantined(task, route="asked for direct, but documents may be needed")


def strategy(mode: str, *, quarantine: bool = False) -> Strategy:
    """What carries out a mode; with quarantined reading, that mode in quarantine, or the agent for those without."""
    return (QUARANTINED if quarantine else STRATEGIES)[mode]


STRATEGIES: Mapping[str, Strategy] = {
    "auto": auto,
    "direct": direct,
    "single": single,
    "hops": hops,
    "agent": agent,
    "research": research,
}
"""Mode to what carries it out."""
QUARANTINED: Mapping[str, Strategy] = {
    "auto": quarantined,
    "direct": _quarantined_direct,
    "single": _quarantined_single,
    "hops": quarantined,
    "agent": quarantined,
}
"""The same with quarantined reading; `research` is refused before."""
