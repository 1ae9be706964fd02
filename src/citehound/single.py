"""The `single` strategy: one retrieval made by code, six whole passages in the prompt, one answer; static RAG."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .access import Principal
from .answers import Call, Reference
from .config import SourceConfig
from .corpus import Corpus
from .documents import Passage, SearchHit, SearchResult
from .errors import CitehoundError
from .events import Emit, Hits, Read, ToolCalled, ToolFailed, nowhere
from .evidence import Ledger, Search
from .index.fusion import shared_out
from .loop import Conversation, Outcome, converse
from .models.planner.words import language_of, words
from .prompts import single_instructions, single_prompt
from .toolbox import MAX_QUERY, search_source, tool_name

PASSAGES = 6
"""Whole passages in the prompt, of all sources together."""
FOLLOWED = 2
"""Passages more where a first retrieval also follows links and names."""
_RANK = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""


@dataclass(frozen=True, kw_only=True)
class Retrieved:
    passages: tuple[Passage, ...]
    notes: tuple[str, ...] = field(default=())


async def run_single(
    conversation: Conversation,
    *,
    corpus: Corpus,
    principal: Principal,
    sources: Sequence[SourceConfig] | None = None,
    retrieved: Retrieved | None = None,
) -> Outcome:
    """Answers the conversation's question (which has no toolbox) from one retrieval. Raises only cancellation.

    `retrieved`: that retrieval, where it was made already.
    """
    if retrieved is None:
        retrieved = await retrieve(
            conversation.question,
            corpus=corpus,
            sources=corpus.sources if sources is None else sources,
            principal=principal,
            ledger=conversation.ledger,
            emit=conversation.emit,
            agent=conversation.agent,
        )
    prompt = single_prompt(conversation.question, retrieved.passages, retrieved.notes)
    return await converse(conversation, prompt=prompt, instructions=single_instructions())


async def retrieve(
    question: str,
    *,
    corpus: Corpus,
    sources: Sequence[SourceConfig],
    principal: Principal,
    ledger: Ledger,
    emit: Emit = nowhere,
    agent: str = "main",
    filters: Mapping[str, Mapping[str, str]] | None = None,
    only_current: bool = True,
    known: Sequence[Passage] = (),
    follow: int = 0,
) -> Retrieved:
    """Searches each source once with the question and reads the best passages whole; all of it is in the ledger.

    `filters` go by source. What stands whole in `known`, read before, is passed over. Up to `follow` passages more are
    read to which a link or a name leads (see `Corpus.chase`).
    """
    query = short_query(question)
    before = {(p.document, p.start, p.end) for p in known}
    found = await asyncio.gather(
        *(
            _search(
                query,
                source,
                corpus,
                principal,
                filters=(filters or {}).get(source.name, {}),
                only_current=only_current,
                k=PASSAGES + len(before) if before else PASSAGES,
                emit=emit,
                agent=agent,
            )
            for source in sources
        )
    )
    for searched in found:  # in the order of the sources, whichever was quicker
        searched.record(ledger)
    owners = {
        (h.document, h.start, h.end): source.name
        for source, searched in zip(sources, found, strict=True)
        for h in searched.result.hits
    }
    fused = [
        h for h in fuse([searched.result.hits for searched in found]) if (h.document, h.start, h.end) not in before
    ]
    several = shared_out(
        fused,
        PASSAGES,
        source=lambda h: owners[h.document, h.start, h.end],
        open_sources={source.name for source in sources if source.trust == "open"},
    )
    passages: list[Passage] = []

    async def read(hit: SearchHit, source: str) -> None:
        began = time.perf_counter()
        try:
            settled = await asyncio.to_thread(corpus.settled, hit, query, principal=principal)
            passage = await asyncio.to_thread(read_whole, settled, corpus=corpus, principal=principal)
        except CitehoundError:  # it went between search and read
            return
        passages.append(passage)
        ledger.read(passage)
        arguments = {"document": passage.document, "section": passage.section, "start": passage.start}
        emit(ToolCalled(step=0, tool="read_document", arguments=arguments, agent=agent))
        ledger.called(
            Call(
                step=0,
                tool="read_document",
                arguments=arguments,
                source=source,
                returned=(Reference(document=passage.document, section=passage.section),),
                seconds=round(time.perf_counter() - began, 6),
                agent=agent,
            )
        )
        emit(
            Read(
                step=0,
                document=passage.document,
                section=passage.section,
                start=passage.start,
                end=passage.end,
                agent=agent,
            )
        )

    for hit in several:
        await read(hit, owners[hit.document, hit.start, hit.end])
    if follow:
        held = {*before, *((h.document, h.start, h.end) for h in several)}
        leads = await _leads(question, sources, corpus, principal, ledger=ledger, emit=emit, agent=agent)
        for hit in [h for h in leads if (h.document, h.start, h.end) not in held][:follow]:
            await read(hit, hit.document.partition("/")[0])
    hidden = sum(searched.result.hidden_superseded for searched in found)
    notes = (f"{hidden} hits of superseded or draft documents were left out",) if hidden else ()
    return Retrieved(passages=tuple(passages), notes=notes)


@dataclass(frozen=True, kw_only=True)
class _Searched:
    """One source, searched by code."""

    result: SearchResult
    search: Search | None
    """None where it failed."""
    call: Call

    def record(self, ledger: Ledger) -> None:
        if self.search is not None:
            ledger.saw(self.search, self.result.hits)
        ledger.called(self.call)


async def _search(
    query: str,
    source: SourceConfig,
    corpus: Corpus,
    principal: Principal,
    *,
    filters: Mapping[str, str],
    only_current: bool,
    k: int,
    emit: Emit,
    agent: str,
) -> _Searched:
    name = tool_name(source.name)
    arguments: dict[str, Any] = {"query": query, **filters, **({} if only_current else {"only_current": False})}
    emit(ToolCalled(step=0, tool=name, arguments=arguments, agent=agent))
    began = time.perf_counter()
    result, error = SearchResult(hits=()), None
    try:
        result = await asyncio.to_thread(
            search_source,
            corpus,
            source.name,
            query,
            principal=principal,
            filters=filters,
            only_current=only_current,
            k=k,
            agent=agent,
        )
    except Exception as problem:  # one source that fails must not end the run
        error = " ".join(f"{name} failed ({type(problem).__name__}: {problem})".split())
        emit(ToolFailed(step=0, tool=name, error=error, agent=agent))
    returned = tuple(Reference(document=h.document, section=h.section) for h in result.hits)
    search = None
    if error is None:
        documents = tuple(dict.fromkeys(h.document for h in result.hits))
        search = Search(source=source.name, query=query, filters=tuple(sorted(filters.items())), documents=documents)
        emit(
            Hits(
                step=0,
                source=source.name,
                query=query,
                filters=dict(filters),
                returned=returned,
                hidden_superseded=result.hidden_superseded,
                agent=agent,
            )
        )
    call = Call(
        step=0,
        tool=name,
        arguments=dict(arguments),
        source=source.name,
        returned=returned,
        error=error,
        seconds=round(time.perf_counter() - began, 6),
        agent=agent,
    )
    return _Searched(result=result, search=search, call=call)


async def _leads(
    question: str,
    sources: Sequence[SourceConfig],
    corpus: Corpus,
    principal: Principal,
    *,
    ledger: Ledger,
    emit: Emit,
    agent: str,
) -> list[SearchHit]:
    """Where links and names lead to from what the question finds, best first."""
    arguments = {"question": question}
    emit(ToolCalled(step=0, tool="follow_leads", arguments=arguments, agent=agent))
    began = time.perf_counter()
    names = {source.name for source in sources}
    found = await asyncio.to_thread(corpus.chase, question, principal=principal, k=2 * PASSAGES)
    hits = [
        one.hit for one in found if one.way.kind in ("link", "name") and one.hit.document.partition("/")[0] in names
    ]
    ledger.called(
        Call(
            step=0,
            tool="follow_leads",
            arguments=arguments,
            returned=tuple(Reference(document=h.document, section=h.section) for h in hits),
            seconds=round(time.perf_counter() - began, 6),
            agent=agent,
        )
    )
    return hits


def read_whole(hit: SearchHit, *, corpus: Corpus, principal: Principal) -> Passage:
    """The hit's whole chunk (a page may end before it does, so this reads on)."""
    passage = corpus.read(hit.document, principal=principal, start=hit.start, limit=max(1, hit.end - hit.start))
    while passage.end < hit.end:
        more = corpus.read(hit.document, principal=principal, start=passage.end, limit=hit.end - passage.end)
        if more.end <= passage.end:
            break
        passage = replace(passage, text=passage.text + more.text, end=more.end, next_start=more.next_start)
    return replace(passage, section=hit.section)


def short_query(question: str) -> str:
    """The question's content words as a query (all of it where it has none), cut at a word to what a query may hold."""
    content = dict.fromkeys(word.text for word in words(question, language=language_of(question)))
    query = " ".join(content) or " ".join(question.split())
    if len(query) <= MAX_QUERY:
        return query
    return query[: MAX_QUERY + 1].rsplit(" ", 1)[0][:MAX_QUERY]


def fuse(rankings: Sequence[Sequence[SearchHit]]) -> list[SearchHit]:
    """Hits of several searches in one order, by reciprocal rank; ties by score, then by order of the searches."""
    scored: dict[tuple[str, int, int], tuple[float, float, int, SearchHit]] = {}
    for hits in rankings:
        for rank, hit in enumerate(hits, start=1):
            place = (hit.document, hit.start, hit.end)
            before = scored.get(place)
            points = 1 / (_RANK + rank) + (before[0] if before else 0.0)
            scored[place] = (points, hit.score, before[2] if before else len(scored), hit)
    return [row[3] for row in sorted(scored.values(), key=lambda row: (-row[0], -row[1], row[2]))]
