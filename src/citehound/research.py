"""The `research` strategy: a lead splits the question, sub-agents work on the parts at the same time, the lead answers.

Owns the shares, the reports and what the lead may reuse. Sub-agents are conversations of `loop`, the split is decided
by the judge, and the same question to many documents is a `survey`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from .access import Principal
from .answers import Citation, Claim, Gap, StopReason
from .budget import Meter
from .corpus import Corpus
from .drafts import Draft, DraftCitation, DraftClaim
from .judge import SubQuestion
from .loop import Conversation, Outcome, converse
from .models import OFFLINE
from .models.planner.draft import differing
from .models.planner.words import language_of, stems
from .prompts import lead_instructions, lead_prompt, part_instructions, prefetch_prompt
from .single import retrieve
from .toolbox import Toolbox
from .verification import check

MAX_PARTS = 6
AT_ONCE = 4
"""Sub-agents that work at the same time."""
PART_TOKENS = 2000
"""Output cap of a sub-agent's summary."""
_FIRST_PROMPT = 8000
"""Input of a sub-agent's first request from above: instructions, tools and six passages; for shares only."""
_SUMMARY = 1500
"""Input that the findings of one part take in the lead's prompt, from above; for the lead's reserve only."""
_LEAD_SECONDS = 0.25
"""Share of the seconds left that is kept for the lead."""
_DIFFER = {
    "en": "The values differ: {a} in {x}, {b} in {y}.",
    "de": "Die Werte weichen voneinander ab: {a} in {x}, {b} in {y}.",
    "pt": "Os valores diferem: {a} em {x}, {b} em {y}.",
    "es": "Los valores difieren: {a} en {x}, {b} en {y}.",
    "fr": "Les valeurs diffèrent : {a} dans {x}, {b} dans {y}.",
}
_ALIKE = 0.5
_MOST_PAIRS = 3


class Splits(Protocol):
    """What research asks of a `Judge`."""

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        """Questions that can be answered apart and together answer this one; at least one, at most `most`."""
        ...


@dataclass(kw_only=True)
class _Part:
    """A sub-question and the sub-agent that works on it."""

    name: str
    question: str
    sources: tuple[str, ...]
    meter: Meter | None = None
    outcome: Outcome | None = None
    why: str = ""
    """Why it stopped early, or was not begun."""

    @property
    def stop(self) -> StopReason:
        return "model_error" if self.outcome is None else self.outcome.stop_reason

    @property
    def verified(self) -> tuple[Claim, ...]:
        return () if self.outcome is None else tuple(c for c in self.outcome.claims if c.status == "verified")

    @property
    def missing(self) -> tuple[Gap, ...]:
        return () if self.outcome is None else self.outcome.missing

    @property
    def failed(self) -> bool:
        """True when it ended early and has nothing to show."""
        return not self.verified and (self.outcome is None or self.stop != "answered")


async def run_research(conversation: Conversation, *, corpus: Corpus, principal: Principal, judge: Splits) -> Outcome:
    """Answers the question of the lead's conversation (which has no toolbox) with sub-agents.

    Everything is spent from the conversation's meter and read into its ledger, tagged by sub-agent. Raises nothing but
    cancellation.
    """
    split = await judge.split(conversation.question, most=MAX_PARTS)
    parts = [
        _Part(name=f"part-{number}", question=part.question, sources=part.sources)
        for number, part in enumerate(split[:MAX_PARTS] or (SubQuestion(question=conversation.question),), start=1)
    ]
    await _Team(lead=conversation, corpus=corpus, principal=principal, alone=len(parts) == 1).work(parts)
    if len(parts) == 1 and parts[0].outcome is not None:
        note = "the question has one part: one agent answered it, without a lead"
        return replace(parts[0].outcome, warnings=(*parts[0].outcome.warnings, note))
    outcome = await _lead(conversation, parts)
    return replace(
        outcome,
        missing=(*outcome.missing, *_undeclared(parts, outcome)),
        warnings=(*outcome.warnings, *_notes(conversation, parts)),
    )


# The sub-agents.


@dataclass(kw_only=True)
class _Team:
    """Starts sub-agents as their shares of the budget allow, and waits for all of them."""

    lead: Conversation
    corpus: Corpus
    principal: Principal
    alone: bool
    running: dict[asyncio.Task[None], _Part] = field(default_factory=dict[asyncio.Task[None], _Part])

    async def work(self, parts: Sequence[_Part]) -> None:
        waiting = list(parts)
        try:
            while waiting or self.running:
                while waiting and len(self.running) < AT_ONCE:
                    meter = self._share(len(waiting), parts)
                    if meter is None:
                        break
                    part = waiting.pop(0)
                    part.meter = meter
                    self.running[asyncio.create_task(self._part(part, meter))] = part
                if not self.running:
                    for part in waiting:
                        part.why = "the budget did not reach it"
                    return
                done, _ = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del self.running[task]
        finally:
            for task in self.running:
                task.cancel()
            await asyncio.gather(*self.running, return_exceptions=True)

    def _share(self, waiting: int, parts: Sequence[_Part]) -> Meter | None:
        """The meter of the next sub-agent, or None when nothing is left for it now.

        What is promised to those at work counts as gone, and so does what the lead needs; what somebody left unspent
        is there for those who come later.
        """
        main = self.lead.meter
        free = max(1, min(waiting, AT_ONCE - len(self.running)))
        at_work = [part.meter for part in self.running.values() if part.meter is not None]
        steps = main.steps_left()
        if steps is not None:
            steps -= 0 if self.alone else 1
            if steps < 1:
                return None
        seconds = main.seconds_left()
        if seconds is not None:
            seconds *= 1.0 if self.alone else 1 - _LEAD_SECONDS
            if seconds <= 0:
                return None
        left, share = main.dollars_left(), 1.0
        if left is not None:
            mine = left - sum(m.dollars_left() or 0.0 for m in at_work) - self._reserve(len(parts), left)
            limits = self.lead.limits
            least = self.lead.price.worst(
                input_tokens=_FIRST_PROMPT, output_tokens=min(PART_TOKENS, limits.draft_tokens) + limits.turn_tokens
            )
            if mine < least and self.running:
                return None
            if least > 0:
                free = max(1, min(free, int(mine / least)))
            share = max(0.0, mine) / free / left if left > 0 else 1.0
        return main.child(share=share, max_steps=steps, max_seconds=seconds, parallel=True)

    def _reserve(self, parts: int, left: float) -> float:
        """Dollars kept for the lead's draft, at most two fifths of what is left."""
        if self.alone:
            return 0.0
        worst = self.lead.price.worst(
            input_tokens=_FIRST_PROMPT // 4 + parts * _SUMMARY, output_tokens=self.lead.limits.draft_tokens
        )
        return min(worst, 0.4 * left)

    async def _part(self, part: _Part, meter: Meter) -> None:
        """Runs one sub-agent to its end. Whatever fails stays with it; raises only cancellation."""
        lead, corpus, principal = self.lead, self.corpus, self.principal
        ledger = lead.ledger.child(part.name)
        try:
            start = [s for s in corpus.sources if s.name in part.sources] or list(corpus.sources)
            toolbox = await asyncio.to_thread(
                lambda: Toolbox(corpus, principal=principal, ledger=ledger, emit=lead.emit, agent=part.name)
            )
            first = await retrieve(
                part.question,
                corpus=corpus,
                sources=start,
                principal=principal,
                ledger=ledger,
                emit=lead.emit,
                agent=part.name,
            )
            conversation = Conversation(
                model=lead.model,
                meter=meter,
                ledger=ledger,
                documents=lead.documents,
                question=part.question,
                toolbox=toolbox,
                limits=replace(lead.limits, draft_tokens=min(PART_TOKENS, lead.limits.draft_tokens)),
                emit=lead.emit,
                agent=part.name,
            )
            outcome = await converse(
                conversation,
                prompt=prefetch_prompt(part.question, first.passages, notes=first.notes),
                instructions=part_instructions(lead.question, corpus.sources),
            )
            if conversation.checked is None:
                # A partial that code composed is no summary of the sub-agent's; what it read stays evidence.
                outcome = replace(outcome, claims=(), missing=())
            part.outcome = outcome
            part.why = next((w for w in reversed(outcome.warnings) if w.startswith("stopped early")), "")
        except Exception as problem:
            part.why = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:300]


# The lead.


async def _lead(conversation: Conversation, parts: Sequence[_Part]) -> Outcome:
    """The final answer from the verified claims: written by the model, or put together by code where there is none."""
    verified = [claim for part in parts for claim in part.verified]
    usable = tuple(c for claim in verified for c in claim.citations if c.status == "verified")
    if not verified or conversation.model.name == OFFLINE:
        stops: list[StopReason] = [part.stop for part in parts if part.meter is not None]
        stop: StopReason = "answered" if verified or "answered" in stops else _first(stops, conversation.meter)
        return await asyncio.to_thread(_composed, conversation, parts, stop)
    conversation.only = usable
    outcome = await converse(
        conversation,
        prompt=lead_prompt(conversation.question, [_findings(part) for part in parts]),
        instructions=lead_instructions(),
    )
    if conversation.checked is None:
        composed = await asyncio.to_thread(_composed, conversation, parts, outcome.stop_reason)
        note = "the lead gave no answer: the verified claims of the sub-agents are put together by code"
        return replace(composed, warnings=(*outcome.warnings, note))
    return outcome


def _first(stops: Sequence[StopReason], meter: Meter) -> StopReason:
    """Why the sub-agents ended, or which limit let nobody begin."""
    if stops:
        return stops[0]
    if (meter.seconds_left() or 0.0) <= 0 and meter.budget.max_seconds is not None:
        return "seconds"
    steps = meter.steps_left()
    return "steps" if steps is not None and steps <= 1 else "dollars"


def _findings(part: _Part) -> dict[str, Any]:
    """What the lead is shown of one part: verified claims with their quotes, and what is missing."""
    numbers = {number: at for at, number in enumerate(_verified_numbers(part), start=1)}
    shown: list[dict[str, Any]] = []
    for claim in part.verified:
        one: dict[str, Any] = {"claim": claim.text, "kind": claim.kind}
        if claim.citations:
            one["citations"] = [_shown(c) for c in claim.citations if c.status == "verified"]
        if claim.premises:
            one["from"] = [numbers[p] for p in claim.premises if p in numbers]
        if claim.terms:
            one["terms"] = list(claim.terms)
        shown.append(one)
    found: dict[str, Any] = {"part": part.name, "question": part.question, "findings": shown}
    if part.missing:
        found["missing"] = [gap.what for gap in part.missing]
    if part.failed:
        found["failed"] = f"this part has no findings ({part.stop})"
    return found


def _verified_numbers(part: _Part) -> list[int]:
    claims = part.outcome.claims if part.outcome is not None else ()
    return [number for number, claim in enumerate(claims, start=1) if claim.status == "verified"]


def _shown(citation: Citation) -> dict[str, Any]:
    shown: dict[str, Any] = {"document": citation.document, "quote": citation.quote}
    if citation.section:
        shown["section"] = citation.section
    if citation.labels:
        shown["labels"] = list(citation.labels)
    return shown


def _composed(conversation: Conversation, parts: Sequence[_Part], stop: StopReason) -> Outcome:
    """The claims of all parts, each once, values that differ between documents side by side, and the gaps."""
    claims: list[Claim] = []
    for part in parts:
        numbers: dict[int, int] = {}
        fresh: list[int] = []
        for number, claim in enumerate(part.outcome.claims if part.outcome is not None else (), start=1):
            known = next((n for n, c in enumerate(claims, start=1) if _same(c, claim)), None)
            if known is None:
                claims.append(claim)
                known = len(claims)
                fresh.append(known)
            numbers[number] = known
        for at in fresh:
            premises = tuple(numbers.get(p, p) for p in claims[at - 1].premises)
            claims[at - 1] = replace(claims[at - 1], premises=premises)
    claims += _contrasts(conversation, claims)
    missing: dict[str, Gap] = {}
    for part in parts:
        others = [p for p in parts if p is not part and p.question == part.question]
        for gap in part.missing:
            # One who began elsewhere found nothing on the whole of it, and another did.
            answered = any(claim.kind == "quoted" for other in others for claim in other.verified)
            if not (answered and _is_all_of(gap.what, part.question)):
                missing.setdefault(gap.what, gap)
    return Outcome(claims=tuple(claims), missing=tuple(missing.values()), stop_reason=stop)


def _is_all_of(what: str, question: str) -> bool:
    """True for a gap that says the question again."""
    language = language_of(question)
    asked = stems(question, language=language)
    return len(stems(what, language=language) & asked) >= 0.8 * len(asked)


def _same(a: Claim, b: Claim) -> bool:
    return a.text == b.text and [(c.document, c.quote) for c in a.citations] == [
        (c.document, c.quote) for c in b.citations
    ]


def _contrasts(conversation: Conversation, claims: Sequence[Claim]) -> list[Claim]:
    """Conclusions on quotes of two documents that say nearly the same with other values, as far as they hold."""
    language = language_of(conversation.question)
    quoted = [
        (number, claim, frozenset(s for s in stems(claim.text, language=language) if not s.isdigit()))
        for number, claim in enumerate(claims, start=1)
        if claim.kind == "quoted" and claim.status == "verified"
    ]
    together = {frozenset(claim.premises) for claim in claims if claim.kind == "conclusion"}
    evidence = conversation.ledger.evidence()
    found: list[Claim] = []
    for at, (first, a, ours) in enumerate(quoted):
        for second, b, theirs in quoted[at + 1 :]:
            x, y = a.citations[0].document, b.citations[0].document
            pair = differing(a.text, b.text)
            if pair is None or x == y or frozenset((first, second)) in together:
                continue
            if len(ours & theirs) < 2 or len(ours & theirs) < _ALIKE * min(len(ours), len(theirs)):
                continue
            text = _DIFFER[language].format(a=pair[0].text.strip(), b=pair[1].text.strip(), x=x, y=y)
            draft = Draft(
                claims=(_draft(a), _draft(b), DraftClaim(text=text, kind="conclusion", premises=(1, 2))),
            )
            checked = check(draft, evidence, conversation.documents, question=conversation.question).claims[2]
            if checked.status == "verified" and len(found) < _MOST_PAIRS:
                found.append(replace(checked, premises=(first, second)))
    return found


def _draft(claim: Claim) -> DraftClaim:
    citations = tuple(
        DraftCitation(document=c.document, quote=c.quote) for c in claim.citations if c.status == "verified"
    )
    return DraftClaim(text=claim.text, kind=claim.kind, citations=citations)


# What is said beside the answer.


def _undeclared(parts: Sequence[_Part], outcome: Outcome) -> list[Gap]:
    """Parts that failed, and gaps of parts without any finding that the answer does not speak of."""
    found: list[Gap] = []
    known = {gap.what for gap in outcome.missing}
    for part in parts:
        if part.failed:
            why = part.why or f"stopped early ({part.stop})"
            found.append(
                Gap(what=part.question, status="unchecked", sources=part.sources, reason=f"{part.name}: {why}")
            )
        elif not part.verified and not part.missing:
            reason = f"{part.name}: none of its claims could be verified"
            found.append(Gap(what=part.question, status="unchecked", sources=part.sources, reason=reason))
        elif not part.verified and not outcome.missing:
            found += [gap for gap in part.missing if gap.what not in known]
        known |= {gap.what for gap in found}
    return found


def _notes(conversation: Conversation, parts: Sequence[_Part]) -> list[str]:
    """What it cost beside one agent, as counted; sub-agents that ended early; claims that failed their checks."""
    notes: list[str] = []
    begun = [part.meter.spent() for part in parts if part.meter is not None]
    spent = conversation.meter.spent()
    total = spent.input_tokens + spent.output_tokens
    dearest = max((one.input_tokens + one.output_tokens for one in begun), default=0)
    if len(begun) > 1 and dearest:
        notes.append(
            f"research: {len(begun)} sub-agents and a lead took {total:,} tokens, {total / dearest:.1f} times what the "
            f"dearest sub-agent took alone ({dearest:,})"
        )
    for part in parts:
        if part.outcome is not None and part.verified and part.stop != "answered":
            notes.append(f"{part.name} ended early ({part.stop}); what it had found by then is used")
        for claim in part.outcome.claims if part.outcome is not None else ():
            if claim.status != "verified" and conversation.checked is not None:
                notes.append(f"{part.name}: a claim failed its checks and was kept from the lead: {claim.text[:200]!r}")
    return notes


__all__ = ["AT_ONCE", "MAX_PARTS", "Splits", "run_research"]
