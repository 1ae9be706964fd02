"""Decisions that are no chat turns (skip, route, sufficient, reformulate, split, support), by a model or by rules.

Owns what is asked of a judge and how strictly its reply is read; searches nothing and answers nothing. Doubt goes the
safe way: retrieve, not sufficient, support unclear.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from . import prompts
from .answers import Claim, SupportVerdict
from .budget import FREE, Meter, worst_tokens
from .config import SourceConfig
from .documents import Passage
from .errors import BudgetExceeded
from .followups import FollowUp, Known, follow_up, invented
from .index import Lexicon
from .models import OpenedModel
from .models.planner.draft import differing
from .models.planner.plan import (
    Focus,
    Lead,
    Scored,
    concerns,
    entity_sources,
    focus_of,
    leads,
    mentioned,
    new_terms,
    query_of,
    requirement_sentences,
    rule_of,
    scored_sentences,
    source_of,
    with_next,
)
from .models.planner.state import Names, Source, State, Text, Weights
from .models.planner.support import asked_in, questions, supports
from .models.planner.words import asks_for_change as speaks_of_change
from .models.planner.words import asks_for_older as speaks_of_older
from .models.planner.words import (
    asks_for_summary,
    capitalised,
    clauses,
    code_words,
    compares,
    fold,
    is_changelog,
    is_simple,
    is_yes_no,
    language_of,
    numbers,
    parts_asked,
    quantities,
    stems,
    words,
)
from .security import Prompt, visible
from .wording import content_stems

RouteMode = Literal["direct", "single", "agent", "research"]

REPLY_TOKENS = 600
"""Output cap of one decision."""
MOST_SECONDS = 20.0
"""A decision that takes longer is taken as doubt."""
LEAST_SECONDS = 1.0
"""With less time left nothing is asked."""
DECISION = "decision"
"""Name of the output tool that a decision is asked for with."""


# What is decided.


@dataclass(frozen=True, kw_only=True)
class Signals:
    """What code can tell from the question and the names of the corpus, without any model."""

    named: tuple[str, ...] = ()
    """Sources, metadata values and titles that the question names. With one of them retrieval is never skipped."""
    entities: tuple[str, ...] = ()
    """Metadata values and titles among `named`."""
    vocabulary: tuple[str, ...] = ()
    """Sources whose names, descriptions or titles share words with the question, the closest first."""
    filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Source to the filter values that the question names."""
    home: tuple[str, ...] = ()
    """Sources whose one owner the question names: what is asked stands there."""
    parts: int = 1
    """Things asked."""
    comparison: bool = False
    change: bool = False
    survey: bool = False
    """The same is asked of every document of a kind; whoever can carry that out says so."""
    simple: bool = True
    """One plain thing is asked."""

    def compound(self) -> tuple[str, ...]:
        """Why one search will not do, in words; empty when it may."""
        reasons: list[str] = []
        if self.comparison:
            reasons.append("compares")
        if self.change:
            reasons.append("asks what has changed")
        if self.parts > 2:
            reasons.append(f"asks {self.parts} things")
        if len(self.entities) > 1 and not self.simple:
            reasons.append(f"names {', '.join(self.entities[:3])}")
        if not reasons and not self.simple:
            reasons.append("has several parts")
        return tuple(reasons)


@dataclass(frozen=True, kw_only=True)
class Skip:
    """`sure` only when the question can be answered fully and with full confidence without any document."""

    sure: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Route:
    mode: RouteMode
    why: str
    sources: tuple[str, ...] = ()
    """Where to search first; empty means everywhere."""


@dataclass(frozen=True, kw_only=True)
class Sufficiency:
    """`enough` is False whenever `missing` names a part."""

    enough: bool
    missing: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Reformulation:
    """The next search, for the missing part only."""

    query: str
    sources: tuple[str, ...] = ()
    """Empty means every routed source."""
    only_current: bool = True
    filters: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class SubQuestion:
    question: str
    sources: tuple[str, ...] = ()
    """Empty means every source."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """Whether quotes show a claim, in the eyes of `by`."""

    verdict: SupportVerdict
    why: str = ""
    by: str = "model"


class Judge(Protocol):
    """Decides; never raises but for cancellation. Questions and passages are material, never instructions."""

    @property
    def name(self) -> str:
        """'rules', or the model's name."""
        ...

    async def skip(self, question: str) -> Skip:
        """Can it be answered fully and confidently without any document?"""
        ...

    async def route(self, question: str, signals: Signals) -> Route:
        """Skip and route in one decision."""
        ...

    async def sufficient(self, question: str, passages: Sequence[Passage]) -> Sufficiency:
        """Do the passages address every part of the question?"""
        ...

    async def reformulate(
        self, question: str, missing: Sequence[str], passages: Sequence[Passage], *, tried: Sequence[str]
    ) -> Reformulation:
        """A query for the missing parts that is none of those tried."""
        ...

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        """Questions that can be answered apart and together answer this one; at least one, at most `most`."""
        ...

    async def support(self, claim: str, quotes: Sequence[str]) -> Support:
        """Do the quotes alone show the claim?"""
        ...


async def judge_support(claims: Sequence[Claim], judge: Judge) -> tuple[Claim, ...]:
    """The claims, the verified ones with `support` and, where the judge doubts, a warning that names it.

    Status stays as it is: an opinion neither mends a citation that failed nor breaks one that holds.
    """

    def quotes(claim: Claim) -> list[str]:
        own = [c.quote for c in claim.citations if c.status == "verified" and c.quote]
        return own + [q for n in claim.premises if 1 <= n <= len(claims) for q in quotes_of(claims[n - 1])]

    def quotes_of(claim: Claim) -> list[str]:
        return [c.quote for c in claim.citations if c.status == "verified" and c.quote]

    async def one(claim: Claim) -> Claim:
        shown = quotes(claim)
        if claim.status != "verified" or claim.kind == "absence" or not shown:
            return claim
        opinion = await judge.support(claim.text, shown)
        if opinion.verdict == "supported":
            return replace(claim, support=opinion.verdict)
        why = f": {opinion.why}" if opinion.why else ""
        warning = f"support is {opinion.verdict} in the judgement of {opinion.by}{why}"
        return replace(claim, support=opinion.verdict, warnings=(*claim.warnings, warning))

    return tuple(await asyncio.gather(*(one(claim) for claim in claims)))


# By rules.

_COMPARISON = re.compile(
    r"\b(?:which of (?:the )?(?:two|three|both)|as opposed to|(?:compared|in comparison) (?:to|with)|versus|vs|"
    r"differences? between|rather than|welche[rs]? (?:der|von) (?:beiden|zwei)|im vergleich|unterschied|"
    r"(?:how|wie) [^?.!]{2,80} (?:compare|differ|unterscheide[nt])|"
    r"^\W*(?:please )?(?:compare|vergleiche|compare[zr]|compara)|"
    r"qual d[ao]s (?:duas|dois)|em compara[cç]ão|diferença|cuál de (?:los|las) dos|diferencia|lequel des deux|"
    r"différence)\b",
    re.IGNORECASE,
)
_POINTS_ELSEWHERE = re.compile(
    r"\b(?:unless|except (?:as|where|when|if)|subject to|save as|without prejudice to|notwithstanding|"
    r"sofern|soweit|vorbehaltlich|es sei denn|salvo|exceto|a menos que|sin perjuicio|sauf|sous réserve)\b"
    r"(?P<rest>[^.;\n]{4,120})",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(?:otherwise|set out|stated|provided|permitted|says?|described|agreed|specified|required|laid down|"
    r"anders|bestimmt|vereinbart|contrário|disposto|previsto|dispone|contrario|prévu|stipul\w+)\b",
    re.IGNORECASE,
)


def _past(question: str) -> bool:
    """Two things are asked, and one of them of the past."""
    return parts_asked(question) >= 2 and speaks_of_change(question) and speaks_of_older(question)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """A question with what was read for it, as the rules look at it."""

    state: State
    focus: Focus
    weigh: Weights
    scored: list[Scored]


class RulesJudge:
    """Decides without any model: deterministic, no word of any particular corpus, and it never skips retrieval."""

    def __init__(self, lexicon: Lexicon, sources: Sequence[SourceConfig]) -> None:
        self._lexicon = lexicon
        self._names = Names.of(lexicon)
        self._sources = tuple(
            Source(
                name=s.name,
                tool=f"search_{s.name}",
                description=s.description,
                filters={key: tuple(values) for key, values in lexicon.values(s.name).items()},
            )
            for s in sources
        )

    @property
    def name(self) -> str:
        return "rules"

    def signals(self, question: str) -> Signals:
        """What code can tell of a question; no call, no search."""
        case = self._look(question, ())
        focus = case.focus
        plain = f" {_plain(question)} "
        sources = tuple(s.name for s in self._sources if f" {_plain(s.name)} " in plain)
        values = tuple(dict.fromkeys(v for found in focus.filters.values() for v in found.values()))
        titles = tuple(mentioned(question, self._names).values())
        single_titles = tuple(
            title
            for title in dict.fromkeys(self._names.titles.values())
            if len(_plain(title)) >= 4 and f" {_plain(title)} " in plain and _is_name(title, question)
        )
        known = tuple(
            value
            for source in self._sources
            for found in source.filters.values()
            for value in found
            if len(_plain(value)) >= 2 and not _plain(value).isdigit() and f" {_plain(value)} " in plain
        )
        entities = tuple(dict.fromkeys((*values, *known, *titles, *single_titles)))
        top = max(focus.scores.values(), default=0.0)
        near = sorted((n for n, s in focus.scores.items() if s >= max(0.2, 0.6 * top)), key=lambda n: -focus.scores[n])
        comparison = (is_yes_no(question) and compares(question)) or _COMPARISON.search(question) is not None
        comparison = comparison or (len(_proper(question)) > 1 and compares(question) and "which" in plain)
        simple = is_simple(question)
        return Signals(
            named=tuple(dict.fromkeys((*sources, *entities))),
            entities=entities,
            vocabulary=tuple(near),
            filters={name: dict(found) for name, found in focus.filters.items() if found},
            home=tuple(sorted(focus.home)),
            parts=parts_asked(question),
            comparison=comparison and not (simple and is_yes_no(question) and not _COMPARISON.search(question)),
            change=(not simple and speaks_of_change(question)) or _past(question),
            simple=simple and not comparison and not _past(question),
        )

    async def skip(self, question: str) -> Skip:
        return Skip(sure=False, why="rules never skip retrieval")

    async def route(self, question: str, signals: Signals) -> Route:
        if signals.survey and not signals.comparison:
            return Route(mode="research", why="asks the same of many documents", sources=signals.vocabulary)
        reasons = signals.compound()
        if reasons:
            return Route(mode="agent", why="; ".join(reasons), sources=signals.vocabulary)
        return Route(mode="single", why="one plain question", sources=signals.vocabulary)

    async def sufficient(self, question: str, passages: Sequence[Passage]) -> Sufficiency:
        return await asyncio.to_thread(self.uncovered, question, passages)

    def uncovered(self, question: str, passages: Sequence[Passage]) -> Sufficiency:
        """`sufficient`, sync: it costs nothing."""
        if not passages:
            return Sufficiency(enough=False, missing=(question,), why="nothing was found")
        case = self._look(question, passages)
        language = case.state.language
        missing: list[str] = []
        why: list[str] = []
        for part in questions(clauses(question), case.weigh, language=language):
            if self._answered(part, case):
                continue
            missing.append(_topic(part))
            why.append(f"no passage answers {_topic(part)!r}")
        if case.focus.change and not case.focus.simple:
            part = self._change_missing(case)
            if part is not None and part not in missing:
                missing.append(part)
                why.append("no record of a change says anything of the rule")
        if case.focus.judging and entity_sources(case.state, case.focus) and not case.focus.home:
            own = set(entity_sources(case.state, case.focus))
            if not requirement_sentences(case.state, case.focus, case.scored, case.weigh):
                missing.append("what is required")
                why.append("no requirement was read")
            elif not any(source_of(t.document) in own for t in case.state.texts):
                missing.append("what was agreed")
                why.append(f"nothing of {', '.join(sorted(own))} was read")
        pointer = next(iter(self.pointers(question, passages)), None)
        if pointer is not None and not missing:
            missing.append(pointer)
            why.append("a passage that answers points to something unread")
        missing = list(dict.fromkeys(missing))
        return Sufficiency(enough=not missing, missing=tuple(missing), why="; ".join(why) or "every part is covered")

    def pointers(self, question: str, passages: Sequence[Passage]) -> tuple[str, ...]:
        """Sentences that answer and name something unread that may decide otherwise ('unless a circular says so')."""
        case = self._look(question, passages)
        return tuple(_topic(one.sentence.text) for one in self._pointing(case) if self._backs(one, case))

    def _pointing(self, case: _Read) -> list[Scored]:
        """Sentences read that name an unread text as what decides otherwise, in the order of the passages."""
        found: list[Scored] = []
        language = case.state.language
        for one in case.scored:
            match = _POINTS_ELSEWHERE.search(one.sentence.text)
            if match is None or not one.text.current or _SAYS.search(match.group("rest")) is None:
                continue
            named = stems(_SAYS.sub(" ", match.group("rest")), language=language)
            elsewhere = any(
                len(named & stems(t.text + " " + t.title, language=language)) >= max(1, len(named) // 2)
                for t in case.state.texts
                if t.document != one.text.document
            )
            if named and not elsewhere:
                found.append(one)
        return found

    def _backs(self, one: Scored, case: _Read) -> bool:
        language = case.state.language
        return any(
            supports(asked_in(part, case.weigh, language=language), one.text, one.sentence, language=language)
            for part in questions(clauses(case.state.question), case.weigh, language=language)
        )

    def _answered(self, part: str, case: _Read) -> bool:
        if asks_for_summary(part) and any(t.document in case.focus.titled for t in case.state.texts):
            return True
        asked = asked_in(part, case.weigh, language=case.state.language)
        if not asked.weights and not asked.kinds:
            return True
        return any(
            supports(asked, one.text, one.sentence, language=case.state.language)
            for one in case.scored
            if one.near > 0 and concerns(one.text, case.focus)
        )

    def _change_missing(self, case: _Read) -> str | None:
        """The part that asks for a change, unless a record of changes that was read speaks of the rule."""
        rule = rule_of(case.state, case.scored)
        asking = [p for p in clauses(case.state.question) if speaks_of_change(p)]
        part = _topic(asking[-1]) if asking else "whether it changed"
        logs = any(is_changelog(f"{d} {t}") for d, t in self._names.titles.items())
        if self._names.titles and not logs:
            return None  # without any titles nobody knows whether there is a record of changes
        if rule is None:
            return part
        terms = {
            s for s in new_terms(with_next(rule, case.scored), case.state, case.focus, case.weigh) if not s.isdigit()
        }
        figures = set(numbers(rule.sentence.text))
        for one in case.scored:
            if not is_changelog(f"{one.text.document} {one.text.title}"):
                continue
            shared = stems(one.sentence.text, language=case.state.language) & terms
            linked = any(number in figures for number in numbers(one.sentence.text))
            differs = differing(rule.sentence.text, one.sentence.text) is not None
            if (linked and (len(shared) >= 2 or one.own >= 0.4)) or (differs and len(shared) >= 2 and one.own > 0):
                return None
        return part

    async def reformulate(
        self, question: str, missing: Sequence[str], passages: Sequence[Passage], *, tried: Sequence[str]
    ) -> Reformulation:
        return await asyncio.to_thread(self._reformulate, question, missing, passages, tried)

    def _reformulate(
        self, question: str, missing: Sequence[str], passages: Sequence[Passage], tried: Sequence[str]
    ) -> Reformulation:
        case = self._look(question, passages)
        language = case.state.language
        usual = {fold(q) for q in tried}
        options: list[Reformulation] = []
        if case.focus.change and not case.focus.simple:
            options += self._of_change(case)
        if case.focus.change or case.focus.judging:
            options += [
                _from_lead(lead)
                for lead in leads(case.state, case.focus, case.weigh, self._names, case.scored)
                if lead.kind in ("changelog", "requirement", "fact", "superseded", "amended") and lead.weight >= 1.2
            ][:3]
        for lead in leads(case.state, case.focus, case.weigh, self._names, case.scored):
            title = self._names.titles.get(lead.document or "")
            if lead.kind in ("superseded", "amended") and title:
                options.append(Reformulation(query=title, sources=(lead.source,), why=lead.kind))
                break
        for one in self._pointing(case):
            terms = new_terms(one.sentence.text, case.state, case.focus, case.weigh)
            pointed = query_of(terms, one.sentence.text, language=language, most=6)
            options.append(Reformulation(query=pointed, why="what the text says may decide otherwise"))
        options.append(self._of_parts(missing or (question,), case))
        options += [
            _from_lead(lead)
            for lead in leads(case.state, case.focus, case.weigh, self._names, case.scored)
            if lead.kind in ("title", "reference", "topic", "rare", "part")
        ]
        for option in options:
            if len(option.query.split()) >= 1 and fold(option.query) not in usual:
                return option
        return Reformulation(query=" ".join(missing) or question, why="the missing part as it is asked")

    def _of_change(self, case: _Read) -> list[Reformulation]:
        """What a record of changes would say of the rule: its names, its figures and its own words."""
        rule = rule_of(case.state, case.scored)
        if rule is None:
            return []
        said = with_next(rule, case.scored)
        asked = set(case.focus.weights)
        language = case.state.language
        marked = dict.fromkeys((*capitalised(said), *code_words(said)))
        names = [name for name in marked if not stems(name, language=language) <= asked]
        figures = [q.text for q in quantities(rule.sentence.text)]
        terms = new_terms(rule.sentence.text, case.state, case.focus, case.weigh)
        own = query_of(terms, rule.sentence.text, language=language, most=4)
        home = source_of(rule.text.document)
        kept = [s.name for s in self._sources if is_changelog(f"{s.name} {s.description}")]
        logs = {source_of(d) for d, t in self._names.titles.items() if is_changelog(f"{d} {t}")}
        sources = tuple(kept) or tuple(sorted(logs)) or (home,)
        words = [*names[:3], *figures[:2], *filter(None, [own])]
        if not self._names.titles:  # where nothing is known of what there is, a record of changes is asked for
            known = stems(rule.sentence.text, language=language)
            rest = {s: w for s, w in case.focus.weights.items() if s not in known}
            words = [*words, query_of(rest, case.state.question, language=language, most=3), "changelog"]
        query = " ".join(words)
        return [Reformulation(query=query, sources=sources, only_current=False, why="changes of the rule")]

    def _of_parts(self, missing: Sequence[str], case: _Read) -> Reformulation:
        """The missing parts' own words, with the names and identifiers of the passage closest to the question."""
        language = case.state.language
        text = " ".join(missing)
        weights = {s: w for s, w in case.weigh.of(text).items()}
        own = query_of(weights, text, language=language, most=8)
        best = max(case.scored, key=lambda one: (one.cover, one.near), default=None)
        codes: list[str] = []
        if best is not None and best.cover >= 0.15:
            codes = list(dict.fromkeys(c for c in code_words(best.text.text) if 3 < len(c) < 60 and "." in c))[:2]
        sources = tuple(sorted(case.focus.home))
        return Reformulation(query=" ".join((*codes, own)).strip(), sources=sources, why="the missing part")

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        return await asyncio.to_thread(self._split, question, most)

    def _split(self, question: str, most: int) -> tuple[SubQuestion, ...]:
        case = self._look(question, ())
        parts = questions(clauses(question), case.weigh, language=case.state.language)
        told = [p for p in clauses(question) if p not in parts and not any(p in q for q in parts)]
        if len(parts) > 1:
            context = " ".join(told)
            subject = query_of(
                {s: w for s, w in case.focus.weights.items()}, parts[0], language=case.state.language, most=4
            )
            found = [
                SubQuestion(question=_joined(part, context, "" if n == 0 else subject)) for n, part in enumerate(parts)
            ]
            return tuple(found[: max(1, most)])
        near = [s.name for s in case.focus.ranked if case.focus.scores[s.name] > 0][: max(1, most)]
        if len(near) > 1:
            return tuple(SubQuestion(question=question, sources=(name,)) for name in near)
        return (SubQuestion(question=question),)

    async def follow_up(
        self, question: str, earlier: Sequence[str], *, told: str = "", clarify: bool = False
    ) -> FollowUp:
        """The question of a chat made self-contained; `earlier` are those before it, made so already."""
        weigh = Weights(self._lexicon, language_of(f"{question} {earlier[-1] if earlier else ''}"))
        return await asyncio.to_thread(follow_up, question, earlier, known=self.known, weigh=weigh, clarify=clarify)

    @cached_property
    def known(self) -> Known:
        """The names of the corpus."""
        return Known(names=self._names, sources=self._sources)

    async def support(self, claim: str, quotes: Sequence[str]) -> Support:
        said = " ".join(quotes)
        wanted = content_stems(claim)
        if wanted and wanted <= content_stems(said):
            return Support(verdict="supported", why="every word of the claim stands in its quotes", by="rules")
        return Support(verdict="unclear", why="rules cannot tell", by="rules")

    def _look(self, question: str, passages: Sequence[Passage]) -> _Read:
        language = language_of(question)
        state = State(
            question=question,
            language=language,
            sources=self._sources,
            has_read=False,
            has_find=False,
            searches=(),
            texts=tuple(_text(p) for p in passages),
            tried=(),
            steps_left=None,
            steps=0,
        )
        weigh = Weights(self._lexicon, language)
        focus = focus_of(state, weigh, self._names)
        return _Read(state=state, focus=focus, weigh=weigh, scored=scored_sentences(state, focus))


def _from_lead(lead: Lead) -> Reformulation:
    return Reformulation(
        query=lead.query,
        sources=(lead.source,),
        only_current=lead.only_current,
        filters={lead.source: lead.filters} if lead.filters else {},
        why=lead.kind,
    )


def _text(passage: Passage) -> Text:
    return Text(
        document=passage.document,
        section=passage.section,
        title=passage.title,
        text=passage.text,
        start=passage.start,
        end=passage.end,
        total_chars=passage.total_chars,
        next_start=None,
        current=passage.current,
        labels=passage.labels,
        metadata=dict(passage.metadata),
        outline=(),
        step=0,
    )


def _plain(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", fold(text)))


def _is_name(title: str, question: str) -> bool:
    """A title of one word counts as named only where it is written like a name."""
    if len(_plain(title).split()) > 1:
        return True
    return re.search(rf"(?<!^)\b{re.escape(title.strip())}\b", question) is not None and title[:1].isupper()


def _proper(question: str) -> list[str]:
    return list(dict.fromkeys(n for n in capitalised(question) if len(words(n, language="en")) > 0))


def _topic(clause: str) -> str:
    return " ".join(clause.split()).rstrip(" ?.!;,")


def _joined(part: str, context: str, subject: str) -> str:
    text = _topic(part)
    text = text[:1].upper() + text[1:] + "?"
    text = f"{text} ({subject})" if subject and len(part.split()) < 8 else text
    return f"{context} {text}".strip()


# By a model.


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SkipReply(_Reply):
    answerable_without_documents: bool
    confidence: Literal["full", "partial", "none"] = Field(description="full only if nothing could be wrong or missing")
    why: str = Field(description="one short sentence", max_length=400)


class RouteReply(SkipReply):
    effort: Literal["one_search", "several_searches", "survey"]
    sources: list[str] = Field(description="names of the sources to search first; empty for all")


class SufficientReply(_Reply):
    enough: bool
    missing: list[str] = Field(description="each part of the question that the passages do not answer")


class ReformulateReply(_Reply):
    query: str = Field(min_length=1, max_length=256, description="a few words as the documents would put it")
    sources: list[str] = Field(description="names of the sources to search; empty for all")


class SplitPart(_Reply):
    question: str = Field(min_length=1, max_length=1000)
    sources: list[str]


class SplitReply(_Reply):
    questions: list[SplitPart] = Field(min_length=1)


class FollowUpReply(_Reply):
    question: str = Field(
        min_length=1, max_length=2000, description="the question, understood without what came before"
    )
    earlier_is_enough: bool = Field(description="true only if the quotes shown answer every part of it")


class AskBackReply(FollowUpReply):
    ask_back: str = Field(max_length=300, description="empty, unless the question cannot be searched at all")


class SupportReply(_Reply):
    verdict: Literal["supported", "unsupported", "unclear"]
    why: str = Field(description="one short sentence", max_length=400)


R = TypeVar("R", bound=_Reply)


class ModelJudge:
    """Asks a small model, one structured call per decision, each reserved on `meter` before it is sent.

    `rules` decides where the reply is malformed, late or cannot be paid, and no safe side settles it. Give it a
    `Meter.child()` to bound what all decisions of a run may cost.
    """

    def __init__(self, model: OpenedModel, *, meter: Meter, rules: RulesJudge, sources: Sequence[SourceConfig]) -> None:
        self._model = model
        self._meter = meter
        self._rules = rules
        self._sources = tuple(sources)

    @property
    def name(self) -> str:
        return self._model.name

    async def skip(self, question: str) -> Skip:
        reply, problem = await self._ask(prompts.judge_skip(), prompts.judge_question(question), SkipReply)
        if reply is None:
            return Skip(sure=False, why=problem)
        return Skip(sure=reply.answerable_without_documents and reply.confidence == "full", why=_line(reply.why))

    async def route(self, question: str, signals: Signals) -> Route:
        reply, problem = await self._ask(
            prompts.judge_route(self._sources), prompts.judge_question(question, signals.compound()), RouteReply
        )
        if reply is None:
            route = await self._rules.route(question, signals)
            return replace(route, why=f"{problem}; by rules: {route.why}")
        sources = self._known(reply.sources)
        if reply.answerable_without_documents and reply.confidence == "full":
            return Route(mode="direct", why=_line(reply.why), sources=sources)
        mode: RouteMode = {"one_search": "single", "several_searches": "agent", "survey": "research"}[reply.effort]  # type: ignore[assignment]
        return Route(mode=mode, why=_line(reply.why), sources=sources)

    async def sufficient(self, question: str, passages: Sequence[Passage]) -> Sufficiency:
        if not passages:
            return Sufficiency(enough=False, missing=(question,), why="nothing was found")
        reply, problem = await self._ask(
            prompts.judge_sufficient(), prompts.single_prompt(question, passages), SufficientReply
        )
        if reply is None:
            return Sufficiency(enough=False, missing=(question,), why=problem)
        missing = tuple(dict.fromkeys(m for m in map(_line, reply.missing) if m))
        if reply.enough and not missing:
            return Sufficiency(enough=True, why="every part is covered")
        return Sufficiency(enough=False, missing=missing or (question,), why="not every part is covered")

    async def reformulate(
        self, question: str, missing: Sequence[str], passages: Sequence[Passage], *, tried: Sequence[str]
    ) -> Reformulation:
        prompt = prompts.judge_reformulate_prompt(question, missing, passages, tried)
        reply, problem = await self._ask(prompts.judge_reformulate(self._sources), prompt, ReformulateReply)
        query = "" if reply is None else _line(reply.query)
        if reply is None or not query or fold(query) in {fold(q) for q in tried}:
            found = await self._rules.reformulate(question, missing, passages, tried=tried)
            return replace(found, why=f"{problem or 'the query was tried before'}; by rules: {found.why}")
        return Reformulation(query=query, sources=self._known(reply.sources), why=", ".join(missing))

    async def split(self, question: str, *, most: int) -> tuple[SubQuestion, ...]:
        reply, _ = await self._ask(
            prompts.judge_split(self._sources, most=most), prompts.judge_question(question), SplitReply
        )
        if reply is None:
            return await self._rules.split(question, most=most)
        return tuple(
            SubQuestion(question=_line(part.question), sources=self._known(part.sources))
            for part in reply.questions[: max(1, most)]
        )

    async def follow_up(
        self, question: str, earlier: Sequence[str], *, told: str = "", clarify: bool = False
    ) -> FollowUp:
        """The question of a chat made self-contained; `told` is what was said before, as JSON.

        A reply that is malformed, or that brings in names or leaves some out, is not used: then the question stays as
        it was asked. Only with `clarify` something is asked back.
        """
        if not earlier and not clarify:
            return FollowUp(question=question)
        if not earlier:  # nothing can be missing from a question that means something by itself
            found = await self._rules.follow_up(question, earlier, clarify=True)
            if found.clarification is None:
                return found
        reply, problem = await self._ask(
            prompts.judge_follow_up(clarify=clarify),
            prompts.judge_follow_up_prompt(question, told),
            AskBackReply if clarify else FollowUpReply,
        )
        if reply is None:
            return FollowUp(question=question, open=True, why=problem)
        back = _line(reply.ask_back) if isinstance(reply, AskBackReply) else ""
        if back:
            return FollowUp(question=question, open=True, clarification=back, why="it cannot be searched as it is")
        said = " ".join(reply.question.split())
        wrong = invented(said, question, known=self._rules.known, earlier=earlier, told=told)
        if wrong:
            return FollowUp(question=question, open=True, why=f"the judge's wording was not used: {wrong}")
        if said.casefold() == " ".join(question.split()).casefold():
            return FollowUp(question=question, enough=reply.earlier_is_enough)
        return FollowUp(question=said, why="made self-contained", enough=reply.earlier_is_enough)

    async def support(self, claim: str, quotes: Sequence[str]) -> Support:
        reply, problem = await self._ask(
            prompts.judge_support(), prompts.judge_support_prompt(claim, quotes), SupportReply
        )
        if reply is None:
            return Support(verdict="unclear", why=problem, by=self.name)
        return Support(verdict=reply.verdict, why=_line(reply.why), by=self.name)

    def _known(self, names: Sequence[str]) -> tuple[str, ...]:
        """Names of sources as configured; one that is unknown makes the whole list worthless."""
        known = {s.name for s in self._sources}
        return tuple(dict.fromkeys(names)) if all(n in known for n in names) else ()

    async def _ask(self, instructions: Prompt, prompt: Prompt, reply: type[R]) -> tuple[R | None, str]:
        """The reply, or None and what was wrong. One request, reserved before and settled after."""
        schema = reply.model_json_schema()
        if not self._model.tools:
            form = f"Reply with one JSON object of this schema and nothing else:\n{json.dumps(schema)}"
            instructions = Prompt(f"{instructions}\n\n{form}")
        parameters = ModelRequestParameters()
        if self._model.tools:
            tool = ToolDefinition(
                name=DECISION, description="Hand in the decision.", parameters_json_schema=schema, kind="output"
            )
            parameters = ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
        left = self._meter.seconds_left()
        if left is not None and left <= LEAST_SECONDS:
            return None, "there is no time for a decision"
        price = self._model.price or FREE
        size = worst_tokens(instructions) + worst_tokens(prompt) + worst_tokens(json.dumps(schema)) + 100
        try:
            reservation = self._meter.reserve(price.worst(input_tokens=size, output_tokens=REPLY_TOKENS))
        except BudgetExceeded:
            return None, "the budget has no room for a decision"
        allowed = MOST_SECONDS if left is None else min(MOST_SECONDS, 0.25 * left)
        settings = cast(ModelSettings, {**self._model.settings, "max_tokens": REPLY_TOKENS})
        try:
            async with asyncio.timeout(max(0.05, allowed)):
                response = await self._model.model.request(
                    [ModelRequest.user_text_prompt(prompt, instructions=instructions)], settings, parameters
                )
        except asyncio.CancelledError:
            self._meter.forfeit(reservation)
            raise
        except ModelHTTPError as problem:
            self._meter.settle(reservation, dollars=0.0)
            return None, f"the judge could not be asked (HTTP {problem.status_code})"
        except Exception as problem:
            self._meter.forfeit(reservation)
            return None, f"the judge could not be asked ({type(problem).__name__})"
        usage = response.usage
        if usage.input_tokens or usage.output_tokens or self._model.free:
            self._meter.settle(
                reservation,
                dollars=price.of(
                    input_tokens=usage.input_tokens,
                    output_tokens=usage.output_tokens,
                    cached_tokens=usage.cache_read_tokens,
                    cache_write_tokens=usage.cache_write_tokens,
                ),
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cache_read_tokens,
                output_tokens=usage.output_tokens,
            )
        else:
            self._meter.forfeit(reservation)
        read = parse(response, reply)
        return read, "" if read is not None else "the judge gave no usable reply"


def parse(response: ModelResponse, reply: type[R]) -> R | None:
    """The one decision in a response: a call of the output tool, or bare JSON. None for anything else."""
    if response.finish_reason in ("length", "content_filter"):
        return None
    calls = [p for p in response.parts if isinstance(p, ToolCallPart)]
    try:
        if calls:
            if len(calls) > 1 or calls[0].tool_name != DECISION:
                return None
            return reply.model_validate_json(json.dumps(calls[0].args_as_dict()))
        text = "".join(p.content for p in response.parts if isinstance(p, TextPart)).strip()
        return reply.model_validate_json(re.sub(r"^```(?:json)?\s*|\s*```$", "", text))
    except (ValidationError, ValueError, TypeError, AssertionError):
        return None


def _line(text: str) -> str:
    return " ".join(visible(text).split())[:400]
