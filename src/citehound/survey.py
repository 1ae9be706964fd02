"""The survey: one sub-question put to every document that is selected, in parallel; a row per document.

Owns which questions ask for one, which documents they mean, and the table; turns and checks are those of `loop`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .access import Principal
from .answers import Call, Cell, Claim, Gap, Reference, Row, StopReason
from .budget import Meter
from .config import SourceConfig
from .corpus import Corpus
from .documents import DocumentInfo, Passage
from .drafts import Draft, DraftCitation, DraftClaim
from .errors import CitehoundError, UsageError
from .events import Hits, Read, ToolCalled, ToolFailed
from .evidence import Find, Ledger, Search
from .loop import Conversation, Limits, Outcome, converse
from .models.planner.state import Source, matched_filters
from .models.planner.words import STOP, asks, clauses, fold, language_of, stems, words
from .prompts import single_prompt, survey_instructions
from .single import read_whole, short_query
from .toolbox import MAX_CALLS, tool_name
from .verification import check

AT_ONCE = MAX_CALLS
"""Documents asked at the same time; one such round is one step."""
PASSAGES = 5
"""Passages of a document in the prompt; a short document is read whole."""
WHOLE_CHARS = 6000
CELL_TOKENS = 1000
"""Output cap of one cell."""
MAX_COLUMNS = 4
MAX_TERMS = 6
_PAGE = 200


# What is asked, of which documents.


@dataclass(frozen=True, kw_only=True)
class Column:
    """One thing asked of every document."""

    title: str
    terms: tuple[str, ...]
    """Its words that carry a meaning, as written: what an empty cell was searched for."""

    @property
    def phrase(self) -> str:
        """From the first to the last of its terms, as written."""
        if not self.terms:
            return self.title
        start = self.title.find(self.terms[0])
        end = self.title.rfind(self.terms[-1]) + len(self.terms[-1])
        return self.title[start:end] if 0 <= start < end else self.title


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Documents of one source, narrowed by filters."""

    source: str
    filters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A table to fill: documents and columns."""

    columns: tuple[Column, ...]
    selections: tuple[Selection, ...]
    things: str = "documents"
    """What the question calls the documents."""
    titled: str | None = None
    """Set where the things are known by a word of their titles only: that word."""

    @property
    def described(self) -> str:
        """Which documents, in words: 'contracts (supplier: Alpha)'."""
        return ", ".join(
            s.source + "".join(f" ({key}: {value})" for key, value in s.filters.items()) for s in self.selections
        )


_OF = r"(?:\s+(?:one\s+)?(?:of|von|van|de|di|dei|delle|des|d[aeo]s)\b)?"
_THE = (
    r"(?:\s+(?:the|our|my|your|these|those|current|der|die|den|dem|unsere[rn]?|meine[rn]?|les|des|nos|mes|los|las|nuestr[oa]s|"
    r"os|as|noss[oa]s|i|gli|le|nostr[ie]|de|onze)(?=\s))*"
)
_EACH = (
    r"each|every|all|jede[rsnm]?|alle[rn]?|sämtliche[rn]?|chaque|tous|toutes|cada|todos|todas|ogni|tutti|tutte|elke?|"
    r"iedere?"
)
_MANY = (
    r"which|what|how\s+many|welche[rn]?|wie\s*viele|quels|quelles|combien\s+de|qu[eé]|cu[aá]les|cu[aá]nt[oa]s|quais|quant[oa]s|"
    r"quali|quant[ie]|welke|hoeveel"
)
_PHRASE = re.compile(
    rf"(?<!\w)(?:(?P<each>{_EACH})|(?P<many>{_MANY})){_OF}{_THE}\s+(?P<rest>[^\W\d_][\w-]*(?:\s+[^\W\d_][\w-]*){{0,3}})",
    re.IGNORECASE,
)
_SINGULAR = ("ie", "ung", "heit", "keit", "ss")
_FEW = frozenset(["two", "three", "both", "zwei", "drei", "beiden", "deux", "dos", "dois", "duas", "due", "twee"])
"""'Which of the two …' compares, and asks no survey."""
_BEFORE = re.compile(
    r"(?:(?<!\w)(?:for|in|of|from|across|by|per|under|within|with|does|do|did|is|are|has|have|can|may|must|should|will|"
    r"für|aus|bei|von|nach|laut|unter|pour|dans|de|selon|para|por|en|em|nos|nas|segundo|según|di|nei|nelle|voor|van|"
    r"volgens)\s+)+$",
    re.IGNORECASE,
)
_NOUNS = (
    "document documents file files text texts paper papers page pages dokument dokumente dokumenten datei dateien "
    "fichier fichiers documento documentos archivo archivos arquivo arquivos ficheiro ficheiros documenti documenten"
)
_LEAD_WORDS = """
    that who which is are was were does do did has have had can could may must should will would there it they
    not no never without lack lacks lacking miss misses missing omit omits omitting fail fails failing to don't
    doesn't contain contains containing include includes including mention mentions say says state states specify
    specifies define defines give gives provide provides about any a an the list show tell me us compare find
    please and or what's what of for in on its their allow allows permit permits require requires cover covers
    address addresses regulate regulates
    erlaubt erlauben gestattet gestatten verlangt verlangen autorise autorisent exige exigent permite permiten exigen
    permitem exigem
    der die das den dem des ein eine einen einer eines kein keine keinen keiner keines nicht nie ohne fehlt fehlen
    enthält enthalten hat haben nennt nennen regelt regeln sagt sagen steht stehen ist sind gibt es zeige liste über
    zu und
    qui que ne n pas sans a ont contient contiennent mentionne mentionnent le la les un une aucun aucune de du
    sin tiene tienen contiene contienen menciona mencionan el los las uno una unos unas ningún ninguna sobre
    não sem tem têm contém contêm mencionam o os as um uma nenhum nenhuma
    non senza ha hanno contengono il lo gli i nessun nessuna geen niet zonder heeft hebben bevat bevatten het
"""
_LEAD = frozenset(fold(word) for word in _LEAD_WORDS.split())
_MODAL = frozenset(["can", "could", "may", "must", "should", "will", "would"])
_TAIL = re.compile(
    r"(?:\s+(?:missing|absent|at all|there|fehlt|fehlen|manque|falta|faltan|manca|ontbreekt|in|of|for|on|about|from|"
    r"contain|have|include|mention|say|specify|enthalten))+$",
    re.IGNORECASE,
)
_ASKS_WHAT = re.compile(
    r"^(?:what|which|who|when|where|welche[rsnm]?|was|wer|wann|wo|quel(?:le)?s?|qu[ei]|quand|où|qu[eé]|cu[aá]l|qui[eé]n|"
    r"cu[aá]ndo|qual|quem|quando|onde|quale|chi|dove|wat|wie|wanneer|waar)\s+(?:(?:is|are|was|were|ist|sind|est|sont|es|"
    r"son|é|são|è|sono|zijn)\s+)?",
    re.IGNORECASE,
)


def asks_for_survey(question: str, sources: Sequence[SourceConfig]) -> bool:
    """True when the question asks something of each, every, all or which <things> of a source, by its words alone."""
    things = _things(question, sources, titles=(), values={})
    return things is not None and bool(_columns(question, things, ()))


@dataclass(frozen=True, kw_only=True)
class _Things:
    sources: tuple[str, ...]
    written: str
    start: int
    end: int
    titled: str | None = None
    mentioned: tuple[str, ...] = ()
    """Names of sources in the question that say which of several sources is meant."""


def _things(
    question: str,
    sources: Sequence[SourceConfig],
    *,
    titles: Sequence[tuple[str, str]],
    values: Mapping[str, Sequence[str]],
) -> _Things | None:
    """The quantified things of a question and the sources that hold them.

    Names go before `values` (filter values by source: 'contract'), these before descriptions and titles. Where the
    question names some of the sources that these three find, only those count.
    """
    language = language_of(question)

    def of(text: str) -> frozenset[str]:
        parts = re.sub(r"[_\-/.]", " ", text)
        return stems(parts, language=language) | stems(parts, language="en")

    named = {s.name: of(" ".join([s.name, *s.filters])) for s in sources}
    described = {s.name: of(re.split(r"[.;]\s", s.description, maxsplit=1)[0]) for s in sources}
    valued = {name: {of(value) for value in held} for name, held in values.items()}
    nouns = frozenset(_NOUNS.split())
    for kind in ("named", "any", "valued", "described", "titled"):
        for match in _PHRASE.finditer(question):
            at = match.start("rest")
            for word in reversed(_noun_phrase(match.group("rest"))):
                low = fold(word.group())
                several = match.group("each") is not None or _plural(low, asked=match.group("many"))
                own = of(word.group())
                if not several or not own:
                    continue
                found: tuple[str, ...] = ()
                mentioned: tuple[str, ...] = ()
                titled: str | None = None
                if kind == "named":
                    found = tuple(s.name for s in sources if own & named[s.name])
                elif kind == "any" and low in nouns:
                    found = tuple(s.name for s in sources if own & named[s.name]) or _mentioned(question, sources)
                elif kind == "valued":
                    found = tuple(s.name for s in sources if own in valued.get(s.name, ()))
                elif kind == "described":
                    found = tuple(s.name for s in sources if own & described[s.name])
                elif kind == "titled":
                    having = [d.split("/", 1)[0] for d, title in titles if own & of(title)]
                    found = tuple(s.name for s in sources if having.count(s.name) >= 2)
                    titled = word.group()
                if found and kind != "named":
                    mentioned = tuple(name for name in _written(question, sources) if name in found)
                    found = mentioned or found
                if found:
                    before = _BEFORE.search(question[: match.start()])
                    return _Things(
                        sources=found,
                        written=word.group(),
                        start=before.start() if before is not None else match.start(),
                        end=at + word.end(),
                        titled=titled,
                        mentioned=mentioned,
                    )
    return None


def _noun_phrase(rest: str) -> list[re.Match[str]]:
    """The words after a quantifier up to the first that a noun phrase cannot have: 'each have a supplier' has none."""
    found: list[re.Match[str]] = []
    for word in re.finditer(r"[^\W\d_][\w-]*", rest):
        if fold(word.group()) in STOP or word.group().casefold() in _FEW:
            break
        found.append(word)
    return found


def _plural(word: str, *, asked: str) -> bool:
    """Whether a folded word may be a plural in the language of what asks for it: 'which', 'welche'."""
    if fold(asked).startswith(("which", "what", "how")):  # 'what release', 'which clause' ask for one
        return len(word) > 3 and word.endswith(("s", "people", "men", "children", "criteria")) and word[-2:] != "ss"
    return len(word) > 3 and word[-1] in "sneri" and not word.endswith(_SINGULAR)


def _written(question: str, sources: Sequence[SourceConfig]) -> tuple[str, ...]:
    """The sources whose whole names stand in the question."""
    plain = f" {_plain(question)} "
    return tuple(s.name for s in sources if f" {_plain(s.name)} " in plain)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", fold(text)))


def _mentioned(question: str, sources: Sequence[SourceConfig]) -> tuple[str, ...]:
    """The sources that the question names, or all of them."""
    language = language_of(question)
    said = stems(question, language=language)
    named = [s.name for s in sources if stems(re.sub(r"[_\-]", " ", s.name), language=language) & said]
    return tuple(named or [s.name for s in sources])


def survey_of(
    question: str,
    *,
    corpus: Corpus,
    principal: Principal,
    source: str | None = None,
    filters: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
) -> Survey | None:
    """The survey that a question asks for, or None when it asks for none.

    With a `source` it always is one. `filters` replace those that the question names; `columns` replace what the
    question asks. Raises UsageError for a source or filter that there is not.
    """
    sources = corpus.sources
    if source is not None:
        chosen = next((s for s in sources if s.name == source), None)
        if chosen is None:
            known = ", ".join(repr(s.name) for s in sources)
            raise UsageError(f"no source is called {source!r}; known: {known}")
        sources = (chosen,)
    titles = corpus.lexicon(principal=principal).titles()
    values = {
        s.name: [v for key in s.filters for v in corpus.filter_values(s.name, key, principal=principal)]
        for s in sources
    }
    things = _things(question, sources, titles=titles, values=values)
    if things is None and source is None:
        return None
    names = things.sources if things is not None and source is None else tuple(s.name for s in sources)
    selected = [s for s in sources if s.name in names]
    for key in filters or {}:
        if not any(key in s.filters for s in selected):
            known = ", ".join(repr(k) for s in selected for k in s.filters) or "none"
            raise UsageError(f"no filter {key!r} for {', '.join(map(repr, names))}; there are: {known}")
    selections: list[Selection] = []
    used: list[str] = []
    for one in selected:
        called = things.written if things is not None else ""
        narrowed = [dict(filters)] if filters is not None else _filters(question, called, one, corpus, principal)
        selections += [Selection(source=one.name, filters=f) for f in narrowed]
        used += [value for f in narrowed for value in f.values()]
    for name in things.mentioned if things is not None else ():
        used += [name, re.sub(r"[_\-]+", " ", name)]
    asked = tuple(_column(c, ()) for c in columns) or _columns(question, things, used)
    if not asked:
        return None
    return Survey(
        columns=asked,
        selections=tuple(selections),
        things=things.written if things is not None else "documents",
        titled=things.titled if things is not None and source is None else None,
    )


def _filters(
    question: str, things: str, source: SourceConfig, corpus: Corpus, principal: Principal
) -> list[dict[str, str]]:
    """The filter values that the question names, one mapping per combination; values named whole go first.

    A value that is what the things are called counts as named: 'kind' = 'contract' for 'which contracts'.
    """
    language = language_of(question)
    plain = " " + " ".join(re.findall(r"[^\W_]+", fold(question))) + " "
    known = {k: tuple(corpus.filter_values(source.name, k, principal=principal)) for k in source.filters}
    combined: list[dict[str, str]] = [{}]
    for key, values in known.items():
        whole = {v: " ".join(re.findall(r"[^\W_]+", fold(v))) for v in values}
        named = [v for v, name in whole.items() if len(name) > 1 and f" {name} " in plain]
        named = [v for v in named if not any(f" {whole[v]} " in f" {whole[w]} " for w in named if w != v)]
        if not named:
            only = Source(name=source.name, tool="", description="", filters={key: values})
            named = list(matched_filters(question, only, language=language).values())
        if not named and things:
            own = stems(things, language=language)
            named = [v for v in values if stems(v, language=language) == own][:1]
        if named:
            combined = [{**f, key: value} for f in combined for value in named]
    return combined


def _columns(question: str, things: _Things | None, used: Sequence[str]) -> tuple[Column, ...]:
    """What is asked of each document: the parts of the question, without the things and the filter values."""
    if things is not None:
        question = f"{question[: things.start]} \x00 {question[things.end :]}"
    found: list[Column] = []
    for part in clauses(question):
        if "\x00" not in part and not asks(part):
            continue
        column = _column(part, used)
        if column.terms and column.title not in [c.title for c in found]:
            found.append(column)
    return tuple(found[:MAX_COLUMNS])


def _column(part: str, used: Sequence[str]) -> Column:
    text = " ".join(part.replace("\x00", " ").split())
    for value in used:
        text = re.sub(
            rf"(?:\b(?:of|with|by|from|for|in|von|mit|aus|de|avec|dans|con|com|en|em|di|van|met)\s+)?(?<!\w){re.escape(value)}(?!\w)(?:['’]s)?",
            " ",
            text,
            flags=re.IGNORECASE,
        )
    text = " ".join(text.split()).strip(" ,;:.?!—–-\"'")
    before, lead = None, _LEAD
    while text and text != before:
        before = text
        asking = _ASKS_WHAT.match(text)
        if asking is not None:
            text = text[asking.end() :]
            lead = _LEAD - _MODAL  # "who must be told" is about a duty
        head = re.match(r"[^\W_]+(?:['’][^\W_]+)?", text)
        if head is not None and fold(head.group()) in lead:
            text = text[head.end() :].lstrip(" ,;:'’")
        text = _TAIL.sub("", text).strip(" ,;:.?!—–-\"'")
    said = list(dict.fromkeys(w.text for w in words(text, language=language_of(part))))
    return Column(title=text, terms=tuple(said[:MAX_TERMS]))


# Filling the table.


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What came of asking one document one thing."""

    claims: tuple[Claim, ...] = ()
    stop: StopReason = "answered"
    drafted: bool = False
    why: str | None = None
    queries: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Of an empty cell: its terms that stand nowhere in the document."""


@dataclass(kw_only=True)
class _Unit:
    """One cell on its way."""

    number: int
    info: DocumentInfo
    column: Column
    ledger: Ledger | None = None
    result: _Asked | None = None

    @property
    def agent(self) -> str:
        return f"row-{self.number}"


async def run_survey(conversation: Conversation, *, corpus: Corpus, principal: Principal, survey: Survey) -> Outcome:
    """Fills the table within the conversation's meter; the conversation itself is not used for a request.

    A step is one round: the sub-question put to up to `AT_ONCE` documents at the same time, each in a request of its
    own; the likeliest documents go first. Raises nothing but cancellation and what the corpus raises when it cannot
    list documents.
    """
    documents = await asyncio.to_thread(_documents, conversation, corpus, principal, survey)
    units = [
        _Unit(number=number, info=info, column=column)
        for number, (info, column) in enumerate(
            ((info, column) for info in documents for column in survey.columns), start=1
        )
    ]
    likely = await asyncio.to_thread(_likely, conversation, corpus, principal, survey, len(documents))
    in_order = sorted(units, key=lambda unit: likely.get(unit.info.document, len(likely)))
    stop = await _rounds(conversation, corpus, principal, in_order)
    return await asyncio.to_thread(_outcome, conversation, survey, documents, units, stop)


def _documents(
    conversation: Conversation, corpus: Corpus, principal: Principal, survey: Survey
) -> tuple[DocumentInfo, ...]:
    """The current documents of every selection, each once; every listing is recorded as a call."""
    found: dict[str, DocumentInfo] = {}
    for selection in survey.selections:
        arguments = {"source": selection.source, "filters": dict(selection.filters)}
        conversation.emit(ToolCalled(step=0, tool="list_documents", arguments=arguments, agent=conversation.agent))
        began = time.perf_counter()
        listed: list[DocumentInfo] = []
        while True:
            page = corpus.list_documents(
                selection.source,
                principal=principal,
                filters=dict(selection.filters) or None,
                start=len(listed),
                limit=_PAGE,
            )
            listed += page.documents
            if not page.documents or len(listed) >= page.total:
                break
        if survey.titled is not None:
            listed = [info for info in listed if _has_stem(info.title, survey.titled)]
        found.update({info.document: info for info in listed if info.document not in found})
        conversation.ledger.called(
            Call(
                step=0,
                tool="list_documents",
                arguments=arguments,
                source=selection.source,
                returned=tuple(Reference(document=info.document) for info in listed),
                seconds=round(time.perf_counter() - began, 6),
                agent=conversation.agent,
            )
        )
    return tuple(found.values())


def _has_stem(title: str, word: str) -> bool:
    language = language_of(word)
    return bool(stems(title, language=language) & stems(word, language=language))


def _likely(
    conversation: Conversation, corpus: Corpus, principal: Principal, survey: Survey, count: int
) -> dict[str, int]:
    """The rank of the documents that one search per column finds, so that a short budget goes to these first."""
    found: dict[str, int] = {}
    if count <= AT_ONCE:
        return found
    for column in survey.columns:
        for selection in survey.selections:
            tool, query = tool_name(selection.source), short_query(column.title)
            arguments = {"query": query, **selection.filters}
            conversation.emit(ToolCalled(step=0, tool=tool, arguments=arguments, agent=conversation.agent))
            began = time.perf_counter()
            result = corpus.search(
                selection.source,
                query,
                principal=principal,
                filters=dict(selection.filters) or None,
                k=min(count, _PAGE),
                per_document=1,
            )
            returned = tuple(Reference(document=h.document, section=h.section) for h in result.hits)
            filters = tuple(sorted(selection.filters.items()))
            documents = tuple(h.document for h in result.hits)
            conversation.ledger.saw(
                Search(source=selection.source, query=query, filters=filters, documents=documents), result.hits
            )
            conversation.ledger.called(
                Call(
                    step=0,
                    tool=tool,
                    arguments=arguments,
                    source=selection.source,
                    returned=returned,
                    seconds=round(time.perf_counter() - began, 6),
                    agent=conversation.agent,
                )
            )
            for rank, document in enumerate(documents):
                found[document] = min(rank, found.get(document, rank))
    return found


async def _rounds(
    conversation: Conversation, corpus: Corpus, principal: Principal, units: Sequence[_Unit]
) -> StopReason:
    """Asks until every unit has its answer or the budget ends; returns why it ended."""
    meter, todo = conversation.meter, list(units)
    while todo:
        if meter.steps_left() == 0:
            return "steps"
        seconds = meter.seconds_left()
        if seconds is not None and seconds <= 0:
            return "seconds"
        now, later = todo[:AT_ONCE], todo[AT_ONCE:]
        shares = [meter.child(max_steps=1, parallel=True) for _ in now]
        await asyncio.gather(
            *(_ask(unit, share, conversation, corpus, principal) for unit, share in zip(now, shares, strict=True))
        )
        again = [u for u in now if u.result is not None and u.result.stop == "dollars" and not u.result.drafted]
        if len(again) == len(now):
            return "dollars"
        # The others of this round had reserved their worst case; what they did not spend may do for these.
        todo = [*again, *later]
    return "answered"


async def _ask(unit: _Unit, meter: Meter, main: Conversation, corpus: Corpus, principal: Principal) -> None:
    """One request with the best passages of one document. Sets the unit's result; raises only cancellation."""
    try:
        ledger = unit.ledger
        if ledger is None:
            ledger = unit.ledger = main.ledger.child(unit.agent)
            async with asyncio.timeout(meter.seconds_left()):
                passages = await asyncio.to_thread(_gather, unit, ledger, main, corpus, principal)
        else:
            passages = ledger.evidence().passages
        turn = Conversation(
            model=main.model,
            meter=meter,
            ledger=ledger,
            documents=main.documents,
            question=unit.column.title,
            limits=Limits(turn_tokens=main.limits.turn_tokens, draft_tokens=min(CELL_TOKENS, main.limits.draft_tokens)),
            emit=main.emit,
            agent=unit.agent,
        )
        outcome = await converse(
            turn,
            prompt=single_prompt(unit.column.title, passages),
            instructions=survey_instructions(main.question),
        )
        drafted = turn.checked is not None
        claims = tuple(c for c in outcome.claims if c.kind != "absence") if drafted else ()
        why = next((w for w in reversed(outcome.warnings) if w.startswith("stopped early")), None)
        queries, absent = (), ()
        if drafted and not claims:
            queries, absent = await asyncio.to_thread(_look, unit, ledger, main, corpus, principal)
        unit.result = _Asked(
            claims=claims, stop=outcome.stop_reason, drafted=drafted, why=why, queries=queries, absent=absent
        )
    except TimeoutError:
        unit.result = _Asked(stop="seconds", why="stopped early (seconds): reading the document took too long")
    except Exception as problem:  # one document must not end the others
        why = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:300]
        unit.result = _Asked(stop="model_error", why=why)


def _gather(
    unit: _Unit, ledger: Ledger, main: Conversation, corpus: Corpus, principal: Principal
) -> tuple[Passage, ...]:
    """The passages of one document for one prompt: all of a short one, else the best of a search inside it."""
    document, agent = unit.info.document, unit.agent
    source = unit.info.source
    query = short_query(unit.column.title)
    passages: list[Passage] = []
    if 0 < unit.info.total_chars <= WHOLE_CHARS:
        began = time.perf_counter()
        passages.append(corpus.read(document, principal=principal, limit=WHOLE_CHARS))
        _record_read(passages[0], began, ledger, main, agent=agent, source=source)
        return tuple(passages)
    tool, arguments = tool_name(source), {"query": query, "document": document}
    main.emit(ToolCalled(step=0, tool=tool, arguments=arguments, agent=agent))
    began = time.perf_counter()
    result = corpus.search(
        source, query, principal=principal, documents=[document], only_current=False, k=PASSAGES, per_document=PASSAGES
    )
    returned = tuple(Reference(document=h.document, section=h.section) for h in result.hits)
    ledger.saw(
        Search(source=source, query=query, filters=(("document", document),), documents=(document,)), result.hits
    )
    main.emit(Hits(step=0, source=source, query=query, filters={"document": document}, returned=returned, agent=agent))
    ledger.called(
        Call(
            step=0,
            tool=tool,
            arguments=dict(arguments),
            source=source,
            returned=returned,
            seconds=round(time.perf_counter() - began, 6),
            agent=agent,
        )
    )
    for hit in result.hits:
        began = time.perf_counter()
        passage = read_whole(hit, corpus=corpus, principal=principal)
        passages.append(passage)
        _record_read(passage, began, ledger, main, agent=agent, source=source)
    return tuple(passages)


def _record_read(
    passage: Passage, began: float, ledger: Ledger, main: Conversation, *, agent: str, source: str
) -> None:
    arguments = {"document": passage.document, "section": passage.section, "start": passage.start}
    main.emit(ToolCalled(step=0, tool="read_document", arguments=arguments, agent=agent))
    ledger.read(passage)
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
    main.emit(
        Read(
            step=0,
            document=passage.document,
            section=passage.section,
            start=passage.start,
            end=passage.end,
            agent=agent,
        )
    )


def _look(
    unit: _Unit, ledger: Ledger, main: Conversation, corpus: Corpus, principal: Principal
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Searches the document inside for the column's words: what was looked for, and what of it stands nowhere."""
    document, source = unit.info.document, unit.info.source
    phrases = list(dict.fromkeys([unit.column.phrase, *unit.column.terms]))
    absent: list[str] = []
    for phrase in phrases:
        arguments = {"document": document, "phrase": phrase}
        main.emit(ToolCalled(step=1, tool="find_in_document", arguments=arguments, agent=unit.agent))
        began = time.perf_counter()
        error: str | None = None
        try:
            found = corpus.find(document, phrase, principal=principal, limit=1)
            ledger.found(Find(document=document, phrase=phrase, found=found.total > 0), ())
            if found.total == 0 and (phrase != unit.column.phrase or len(phrases) == 1) and not found.passages:
                absent.append(phrase)
        except CitehoundError as problem:
            error = " ".join(str(problem).split())
            main.emit(ToolFailed(step=1, tool="find_in_document", error=error, agent=unit.agent))
        ledger.called(
            Call(
                step=1,
                tool="find_in_document",
                arguments=arguments,
                source=source,
                error=error,
                seconds=round(time.perf_counter() - began, 6),
                agent=unit.agent,
            )
        )
    return tuple(phrases), tuple(absent)


# The answer.

_NOTHING = {
    "en": "Nothing about {what} was found in the documents named here: none of its words stands there.",
    "de": "Nichts über {what} wurde in den hier genannten Dokumenten gefunden: keines der Wörter steht dort.",
    "fr": "Rien sur {what} dans les documents cités ici : aucun de ces mots n'y figure.",
    "es": "Nada sobre {what} en los documentos citados aquí: ninguna de sus palabras figura allí.",
    "pt": "Nada sobre {what} nos documentos citados aqui: nenhuma das suas palavras lá está.",
}
_APART = {
    "en": "Nothing about {what} was found in the documents named here: as a whole it stands nowhere there, "
    "single words of it do.",
    "de": "Nichts über {what} wurde in den hier genannten Dokumenten gefunden: als Ganzes steht es dort nirgends, "
    "einzelne Wörter schon.",
    "fr": "Rien sur {what} dans les documents cités ici : l'expression n'y figure pas, certains de ses mots si.",
    "es": "Nada sobre {what} en los documentos citados aquí: la expresión no figura allí, algunas de sus palabras sí.",
    "pt": "Nada sobre {what} nos documentos citados aqui: a expressão não está lá, algumas das suas palavras sim.",
}


@dataclass(kw_only=True)
class _Table:
    """The answer in the making."""

    claims: list[Claim] = field(default_factory=list[Claim])
    missing: list[Gap] = field(default_factory=list[Gap])
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict[tuple[str, str], Cell])


def _outcome(
    conversation: Conversation,
    survey: Survey,
    documents: Sequence[DocumentInfo],
    units: Sequence[_Unit],
    stop: StopReason,
) -> Outcome:
    table = _Table()
    for unit in units:
        table.cells[unit.info.document, unit.column.title] = _cell(unit, stop, table)
    for column in survey.columns:
        own = [unit for unit in units if unit.column is column]
        _absences(own, table, conversation)
        _unreached(own, column, table, survey)
    rows = tuple(
        Row(
            document=info.document,
            title=info.title,
            cells=tuple(table.cells[info.document, column.title] for column in survey.columns),
        )
        for info in documents
    )
    if not documents:
        table.missing.append(
            Gap(what=conversation.question, reason=f"no document of {survey.described} is current and fits the filters")
        )
    tried = [unit.result for unit in units if unit.result is not None]
    if stop == "answered" and tried and not any(result.drafted for result in tried):
        stop = tried[0].stop
    return Outcome(
        claims=tuple(table.claims),
        missing=tuple(table.missing),
        text=None,
        stop_reason=stop,
        warnings=_warnings(conversation, units),
        rows=rows,
    )


def _cell(unit: _Unit, stop: StopReason, table: _Table) -> Cell:
    column, result = unit.column.title, unit.result
    if result is None or not result.drafted:
        why = result.why if result is not None and result.why else f"stopped early ({stop})"
        return Cell(column=column, status="not_reached", reason=why)
    if not result.claims:
        return Cell(column=column, status="not_found", queries=result.queries)
    first = len(table.claims) + 1
    table.claims += [replace(claim, premises=tuple(p + first - 1 for p in claim.premises)) for claim in result.claims]
    good = any(c.status == "verified" for c in result.claims)
    citations = {
        (c.document, c.start, c.end): c for claim in result.claims for c in claim.citations if c.status == "verified"
    }
    return Cell(
        column=column,
        status="found" if good else "unverified",
        text=" ".join(claim.text for claim in result.claims),
        claim=first,
        claims=tuple(range(first, first + len(result.claims))),
        citations=tuple(citations.values()),
    )


def _absences(units: Sequence[_Unit], table: _Table, conversation: Conversation) -> None:
    """What the empty cells of a column amount to: absences where the checks bear them out, else gaps."""
    empty = [u for u in units if u.result is not None and u.result.drafted and not u.result.claims]
    if not empty:
        return
    column = empty[0].column
    language = language_of(conversation.question)
    evidence = conversation.ledger.evidence()
    whole = [u for u in empty if u.result is not None and set(column.terms) <= set(u.result.absent)]
    rest = [u for u in empty if u not in whole]
    for group, terms, wording in ((whole, column.terms, _NOTHING), (rest, (column.phrase,), _APART)):
        left = list(group)
        while left:
            names = [u.info.document for u in left]
            claim = DraftClaim(
                text=wording.get(language, wording["en"]).format(what=f"“{column.title}”"),
                kind="absence",
                citations=tuple(DraftCitation(document=name, quote="") for name in names),
                terms=terms,
            )
            checked = check(Draft(claims=(claim,)), evidence, conversation.documents, question=conversation.question)
            failed = {c.document for c in checked.claims[0].citations if c.status != "verified"}
            if not failed:
                if checked.claims[0].status == "verified":
                    table.claims.append(checked.claims[0])
                    left = []
                break
            left, refused = [u for u in left if u.info.document not in failed], left
            _undecided([u for u in refused if u.info.document in failed], table)
        _undecided(left, table)


def _undecided(units: Sequence[_Unit], table: _Table) -> None:
    """Empty cells whose words do stand in the document: searched for, and left to the reader."""
    for unit in units:
        if unit.result is None:
            continue
        reason = "its words stand in the document, but no passage that was read answers; read it yourself"
        key = (unit.info.document, unit.column.title)
        table.cells[key] = replace(table.cells[key], reason=reason)
        table.missing.append(
            Gap(
                what=f"{unit.column.title} in {unit.info.document}",
                status="checked",
                sources=(unit.info.source,),
                queries=unit.result.queries,
                reason=reason,
            )
        )


def _unreached(units: Sequence[_Unit], column: Column, table: _Table, survey: Survey) -> None:
    """One gap that lists what was not asked."""
    left = [u for u in units if table.cells[u.info.document, column.title].status == "not_reached"]
    if not left:
        return
    whys = dict.fromkeys(table.cells[u.info.document, column.title].reason or "" for u in left)
    names = ", ".join(u.info.document for u in left)
    table.missing.append(
        Gap(
            what=f"{column.title}: {len(left)} of {len(units)} {survey.things} not reached: {names}",
            status="unchecked",
            reason="; ".join(list(whys)[:3]),
        )
    )


def _warnings(conversation: Conversation, units: Sequence[_Unit]) -> tuple[str, ...]:
    """What the survey cost, as it was counted."""
    asked = [u for u in units if u.result is not None and u.result.drafted]
    spent = conversation.meter.spent()
    tokens = spent.input_tokens + spent.output_tokens
    if not asked or not tokens:
        return ()
    rounds = f"{spent.steps} round{'' if spent.steps == 1 else 's'}"
    return (
        f"survey: {len(asked)} of {len(units)} cells asked in {spent.model_calls} requests and {rounds}, "
        f"{tokens:,} tokens in all, {tokens // len(asked):,} per cell",
    )
