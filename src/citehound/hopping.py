"""The `hops` strategy: retrieve, check against the original question, search again for the missing part, answer once.

Evidence accumulates over the rounds and the answer is to the original question from all of it. The number of rounds is
fixed beforehand, so that a stubborn question ends; what stays missing is declared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from .access import Principal
from .config import SourceConfig
from .corpus import Corpus
from .documents import Passage
from .drafts import DraftGap
from .events import Decided
from .judge import Judge, Reformulation
from .loop import Conversation, Outcome, converse
from .prompts import single_instructions, single_prompt
from .single import Retrieved, retrieve, short_query
from .verification import check_gap

MAX_HOPS = 2
"""Retrievals for one question."""


async def run_hops(
    conversation: Conversation,
    *,
    corpus: Corpus,
    principal: Principal,
    judge: Judge,
    max_hops: int = MAX_HOPS,
    sources: Sequence[SourceConfig] | None = None,
    first: Retrieved | None = None,
) -> Outcome:
    """Answers the conversation's question (which has no toolbox) from at most `max_hops` retrievals, one at least.

    `first`: the first of them, where it was made already. Raises only cancellation.
    """
    question = conversation.question
    routed = tuple(corpus.sources if sources is None else sources)
    passages: list[Passage] = []
    notes: list[str] = []
    missing: tuple[str, ...] = ()
    later: list[Passage] = []
    """What the rounds after the first have read."""
    tried = [short_query(question)]
    search = Reformulation(query=question)
    for hop in range(1, max(1, max_hops) + 1):
        got = first if hop == 1 and first is not None else None
        if got is None:
            chosen = tuple(s for s in corpus.sources if s.name in search.sources) or routed
            got = await retrieve(
                search.query,
                corpus=corpus,
                sources=chosen,
                principal=principal,
                ledger=conversation.ledger,
                emit=conversation.emit,
                agent=conversation.agent,
                filters=search.filters,
                only_current=search.only_current,
                known=passages,
            )
        passages += got.passages
        notes += [note for note in got.notes if note not in notes]
        later += got.passages if hop > 1 else ()
        if hop >= max_hops or not _may_go_on(conversation):
            break
        verdict = await judge.sufficient(question, passages)
        said = "enough" if verdict.enough else f"missing: {'; '.join(verdict.missing)}"
        _tell(conversation, judge, "sufficient", said, verdict.why)
        missing = verdict.missing
        if verdict.enough:
            break
        search = await judge.reformulate(question, missing, passages, tried=tried)
        tried.append(short_query(search.query))
        _tell(conversation, judge, "reformulate", search.query, search.why)
    open_parts = [f"looked for in a further search: {'; '.join(missing)}"] if missing else []
    prompt = single_prompt(question, passages, (*notes, *open_parts))
    outcome = await converse(conversation, prompt=prompt, instructions=single_instructions())
    return await asyncio.to_thread(_declared, outcome, missing, later, conversation)


def _may_go_on(conversation: Conversation) -> bool:
    """True while there is time for a decision, another search and the answer."""
    seconds = conversation.meter.seconds_left()
    limit = conversation.meter.budget.max_seconds
    return seconds is None or limit is None or seconds > 0.5 * limit


def _tell(conversation: Conversation, judge: Judge, what: str, verdict: str, why: str) -> None:
    conversation.emit(Decided(what=what, verdict=verdict, why=why, by=judge.name, agent=conversation.agent))


def _declared(
    outcome: Outcome, missing: Sequence[str], later: Sequence[Passage], conversation: Conversation
) -> Outcome:
    """Adds the parts that were searched again and that neither a claim from the later rounds nor a gap speaks of."""
    named = [part for part in missing if part != conversation.question]
    if not named or outcome.missing or outcome.stop_reason != "answered" or outcome.text is not None:
        return outcome
    places = [(p.document, p.start, p.end) for p in later]
    used = any(
        citation.status == "verified"
        and citation.start is not None
        and any(d == citation.document and s <= citation.start < e for d, s, e in places)
        for claim in outcome.claims
        for citation in claim.citations
    )
    if used:
        return outcome
    evidence = conversation.ledger.evidence()
    gaps = tuple(check_gap(DraftGap(what=part, reason="a further search found nothing"), evidence) for part in named)
    return replace(outcome, missing=gaps)
