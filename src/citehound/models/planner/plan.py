"""What to search and read next: leads from what was read, and when to stop; a pure function of the state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from ...index import Lexicon
from .state import LEADS, Hit, Names, Search, Source, State, Text, Weights, matched_filters
from .support import asked_in, questions, supports
from .words import (
    Month,
    Sentence,
    asks_for_change,
    asks_for_older,
    asks_for_summary,
    capitalised,
    clauses,
    code_words,
    compares,
    fold,
    has_value,
    is_changelog,
    is_simple,
    is_yes_no,
    months,
    parts_asked,
    plain_title,
    quantities,
    references,
    requires,
    sentences,
    stems,
    wanted,
    words,
)

MAX_READS = 10
SPECIAL_READS = 8
"""For questions that are answered in a way of their own."""
OTHER_READS = 8
"""Before what the chase reached takes the rest."""
LIKELY = 0.6
"""How well a plain question must be covered for the chase to add nothing."""
LAST_READS = 4
"""Documents of the chase that are read for a plain question that is not covered so."""
FLAT = 1.5
"""Passages a document in a corpus of single passages."""
BLOCK = 3
"""Hits of one document that lead the chase: more than it gives of a document that the question does not name."""
FIRST_READS = 5
ENOUGH = 0.85
MAX_SEARCHES = 14
MAX_CALLS = 8
MAX_STEPS = 9
SINGLE_SEARCHES = 2
MAX_LIVE = 6
"""Sources searched at first of which nothing is known before."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A tool call to make, and why."""

    tool: str
    arguments: Mapping[str, Any]
    why: str


@dataclass(frozen=True, kw_only=True)
class Lead:
    """Something read that points elsewhere: a query for a source, or a document by name."""

    kind: str
    weight: float
    query: str
    source: str
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    only_current: bool = True
    document: str | None = None


@dataclass(frozen=True, kw_only=True)
class Focus:
    """What the question is about, as far as names and cue words tell."""

    weights: Mapping[str, float]
    """Stem to weight of the question's content words."""
    filters: Mapping[str, Mapping[str, str]]
    """Source to the filter values that the question names."""
    titled: tuple[str, ...]
    """Documents whose title the question names."""
    ranked: tuple[Source, ...]
    """Sources, the likeliest first."""
    scores: Mapping[str, float]
    home: frozenset[str]
    """Sources to stay in, because the question names them or their one owner; empty when any may help."""
    compound: bool
    simple: bool
    """One plain thing is asked, which one passage may answer."""
    judging: bool
    change: bool
    older: bool
    wants: frozenset[str]


_LONGEST_NAME = 12
"""Words of the longest title that is looked for in a text."""


def mentioned(text: str, names: Names) -> dict[str, str]:
    """Plain title to how it stands, for titles of two words or more (longest wins) that the text names."""
    low_text = fold(text)
    words_ = re.findall(r"[^\W_]+", low_text)
    titles: list[str] = []
    tails: dict[str, str] = {}
    for at in range(len(words_)):
        for size in range(2, min(_LONGEST_NAME, len(words_) - at) + 1):
            said = " ".join(words_[at : at + size])
            if len(said) < 8:
                continue
            if said in names.plain:
                titles.append(said)
            for document in names.tails.get(said, ()):
                tail = document.rsplit("/", 1)[-1]
                if fold(tail) in low_text:
                    tails.setdefault(plain_title(names.titles[document]), tail)
    found: dict[str, str] = {}
    for title in sorted(dict.fromkeys(titles), key=len, reverse=True):
        if not any(f" {title} " in f" {longer} " for longer in found):
            found[title] = title
    for title, tail in tails.items():
        found.setdefault(title, tail)
    return found


def documents_titled(title: str, names: Names) -> list[str]:
    return list(names.plain.get(title, ()))


def focus_of(state: State, weigh: Weights, names: Names) -> Focus:
    question, language = state.question, state.language
    weights = weigh.of(question)
    taken = frozenset(fold(s.name) for s in state.sources)
    filters = {
        s.name: matched_filters(question, s, language=language, exclude=taken & frozenset()) for s in state.sources
    }
    titled = tuple(d for title in mentioned(question, names) for d in documents_titled(title, names))
    total = sum(weights.values()) or 1.0
    scores: dict[str, float] = {}
    home: set[str] = set()
    question_words = {w.stem for w in words(question, language=language)}
    for source in state.sources:
        best = 0.0
        stemmed = names.stemmed(language)
        near = {d for s in question_words for d in stemmed.holding.get(s, ()) if source_of(d) == source.name}
        for document in sorted(near):
            title = stemmed.titles[document]
            shared = sum(weights[s] for s in title & question_words if s in weights)
            size = sum(weigh(s) for s in title) or 1.0
            best = max(best, (shared / total) * (0.5 + 0.5 * min(1.0, shared / size)))
        described = stems(source.description + " " + source.name.replace("-", " ").replace("_", " "), language=language)
        named = stems(source.name.replace("-", " ").replace("_", " "), language=language) & question_words
        score = best + 0.5 * sum(weights[s] for s in described & question_words if s in weights) / total
        score += 0.4 * bool(named) + 0.5 * bool(filters[source.name])
        score += 0.4 * any(d.startswith(source.name + "/") for d in titled)
        scores[source.name] = score
        if any(len(source.filters[key]) == 1 for key in filters[source.name]):
            home.add(source.name)
    ranked = tuple(sorted(state.sources, key=lambda s: -scores[s.name]))
    if home:
        ranked = tuple(s for s in ranked if s.name in home)
    judging = is_yes_no(question) or compares(question)
    change = asks_for_change(question)
    return Focus(
        weights=weights,
        filters=filters,
        titled=titled,
        ranked=ranked,
        scores=scores,
        home=frozenset(home),
        compound=(judging and compares(question)) or parts_asked(question) > 2,
        simple=is_simple(question) and not (titled and versions_named(question)),
        judging=judging,
        change=change,
        older=asks_for_older(question),
        wants=wanted(question),
    )


# relevance of what was read


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A sentence that was read, with how much of the question it and its surroundings hold."""

    text: Text
    sentence: Sentence
    cover: float
    """Share of the question's weight in the sentence, its section's heading and its document's title."""
    own: float
    """Share in the sentence itself."""
    near: float
    """Share in the sentence and its neighbours."""


def scored_sentences(state: State, focus: Focus) -> list[Scored]:
    language = state.language
    total = sum(focus.weights.values()) or 1.0

    def share(found: frozenset[str]) -> float:
        return sum(w for s, w in focus.weights.items() if s in found) / total

    result: list[Scored] = []
    done: set[tuple[str, int]] = set()
    for text in state.texts:
        title = stems(text.title + " " + " ".join(text.metadata.values())[:200], language=language)
        pieces = sentences(text.text)
        found = [stems(p.text, language=language) for p in pieces]
        for i, piece in enumerate(pieces):
            key = (text.document, text.start + piece.start)
            if key in done:
                continue
            done.add(key)
            near = found[i].union(*found[max(0, i - 1) : i + 2])
            result.append(
                Scored(
                    text=text,
                    sentence=piece,
                    cover=share(found[i] | title),
                    own=share(found[i]),
                    near=share(near | title),
                )
            )
    return result


def concerns(text: Text, focus: Focus) -> bool:
    """False for a text in which nobody whom the question names (by a filter value) occurs."""
    named = [value for filters in focus.filters.values() for value in filters.values()]
    if not named or focus.judging or focus.home:
        return True
    inside = fold(f"{text.title} {' '.join(text.metadata.values())} {text.text}")
    return any(fold(value) in inside for value in named)


def versions_named(question: str) -> list[str]:
    """Version numbers that a question names: 'version 2', 'v3'."""
    return re.findall(r"\b(?:version|versión|versão|v)[ .]?(\d+)\b(?![.\d])", question, re.IGNORECASE)


def clause_cover(
    clause: str, scored: list[Scored], state: State, weigh: Weights, focus: Focus
) -> tuple[float, Scored | None]:
    """How well the best place covers one part of the question, with a value of the kind it asks for."""
    weights = weigh.of(clause)
    if not weights:
        return 1.0, None
    total = sum(weights.values())
    kinds = wanted(clause)
    rare = max(weights, key=lambda s: weights[s])
    best: tuple[float, Scored | None] = (0.0, None)
    by_text: dict[int, list[Scored]] = {}
    for one in scored:
        by_text.setdefault(id(one.text), []).append(one)
    for group in by_text.values():
        title = stems(group[0].text.title, language=state.language)
        about = 1.0 if concerns(group[0].text, focus) else 0.4
        found = [stems(one.sentence.text, language=state.language) for one in group]
        for i, one in enumerate(group):
            near = found[i].union(title, *found[max(0, i - 2) : i + 3])
            cover = sum(w for s, w in weights.items() if s in near) / total
            own = sum(w for s, w in weights.items() if s in found[i]) / total
            score = (0.7 * cover + 0.3 * own) * about
            if kinds and not any(has_value(one.sentence.text, kind) for kind in kinds):
                score *= 0.6
            if rare not in near:
                score *= 0.75
            if score > best[0]:
                best = (score, one)
    return best


def covered(state: State, focus: Focus, weigh: Weights, names: Names, scored: list[Scored], *, least: float) -> bool:
    """True when every part of the question has a place that holds its rare words and a fitting value.

    A sentence that only points to a document that was not read is no such place.
    """
    if not scored:
        return False
    read = {*state.documents_read(), *(t.document for t in state.tried)}
    best = max(one.own for one in scored)
    pointing = [one for one in scored if one.own >= 0.9 * best and points_away(one, names, read)]
    language = state.language
    for clause in questions(clauses(state.question), weigh, language=language):
        if asks_for_summary(clause) and any(t.document in focus.titled for t in state.texts):
            continue
        asked = asked_in(clause, weigh, language=language)
        if not asked.weights and not asked.kinds:
            continue
        if clause_cover(clause, scored, state, weigh, focus)[0] < least:
            return False
        if not any(
            supports(asked, one.text, one.sentence, language=language)
            for one in scored
            if one.near > 0 and concerns(one.text, focus)
        ):
            return False
        if any(supports(asked, one.text, one.sentence, language=language) for one in pointing):
            return False
    return True


_SET_ELSEWHERE = re.compile(
    r"\b(?:set|defined|described|given|listed|laid|specified|stated|found|fixed|governed|contained|explained|detailed|"
    r"published|recorded|kept) (?:out |down )?(?:in|by|on)\b|\b(?:see|refer to|according to|pursuant to)\b|"
    r"\b(?:siehe|geregelt in|festgelegt in|definid[oa] (?:em|en|na|no)|descrit[oa] (?:em|na|no)|véase|"
    r"défini dans|voir)\b",
    re.IGNORECASE,
)


def points_away(one: Scored, names: Names, read: set[str]) -> bool:
    """True for a sentence that only points to a document of which no version was read."""
    targets = pointed(one, names)
    return bool(targets) and not read & set(targets)


def pointed(one: Scored, names: Names) -> list[str]:
    """Documents to which a sentence only points for what it speaks of: 'is set in the Security Policy'."""
    said = one.sentence.text
    match = _SET_ELSEWHERE.search(said)
    if match is None or quantities(said):
        return []
    found = [d for title in mentioned(said[match.end() :], names) for d in documents_titled(title, names)]
    return [] if one.text.document in found else found


# leads


def query_of(terms: Mapping[str, float], text: str, *, language: str, most: int) -> str:
    """The heaviest terms, as written and in their order in the text."""
    kept = set(sorted(terms, key=lambda s: -terms[s])[:most])
    found: list[str] = []
    for word in words(text, language=language):
        if word.stem in kept:
            kept.discard(word.stem)
            found.append(word.text)
    return " ".join(found)


def new_terms(text: str, state: State, focus: Focus, weigh: Weights) -> dict[str, float]:
    """Content words of a text that the question lacks and that are neither everywhere nor nowhere."""
    found = weigh.of(text)
    for filters in focus.filters.values():
        for value in filters.values():
            for word in words(value, language=state.language):
                found.pop(word.stem, None)
    return {s: w for s, w in found.items() if s not in focus.weights and not (s.isdigit() and len(s) < 3) and w > 0.4}


def entity_sources(state: State, focus: Focus) -> list[str]:
    """Sources in which the question names somebody (a filter value)."""
    return [s.name for s in state.sources if focus.filters.get(s.name)]


def relevant_texts(state: State, focus: Focus, scored: list[Scored]) -> list[tuple[Text, float]]:
    best: dict[int, tuple[Text, float]] = {}
    for one in scored:
        old = best.get(id(one.text))
        value = max(one.cover, 0.8 * one.near)
        if old is None or value > old[1]:
            best[id(one.text)] = (one.text, value)
    return sorted(best.values(), key=lambda x: -x[1])


def source_of(document: str) -> str:
    return document.split("/", 1)[0]


def requirement_sentences(state: State, focus: Focus, scored: list[Scored], weigh: Weights) -> list[Scored]:
    """Sentences that ask something, from documents outside the entity's own, the closest to the question first."""
    own = set(entity_sources(state, focus))
    titled = set(focus.titled)
    found: list[tuple[float, int, Scored]] = []
    for order, one in enumerate(scored):
        document = one.text.document
        if not one.text.current or not requires(one.sentence.text):
            continue
        if source_of(document) in own and document not in titled:
            continue
        if len(one.sentence.text) > 600 or len(words(one.sentence.text, language=state.language)) < 4:
            continue
        weight = one.cover + 0.5 * (document in titled) + 0.15 * bool(quantities(one.sentence.text))
        found.append((weight, order, one))
    if titled & {f[2].text.document for f in found}:
        found = [f for f in found if f[2].text.document in titled]
    found.sort(key=lambda f: (-f[0], f[1]))
    return [f[2] for f in found]


def _subject(sentence: str) -> str:
    """Without the number that opens it ('7.2 Encryption. …')."""
    return re.sub(r"^\W*(?:\d+(?:\.\d+)*\.?|\([a-z0-9]+\)|[-*•])\s+", "", sentence)


def dated_documents(state: State, focus: Focus, names: Names) -> list[str]:
    """Documents whose id bears a date that the question names, if these are few."""
    when = months(state.question)
    sources = focus.home or {s.name for s in state.sources}
    found = [d for d in names.titles if source_of(d) in sources and when and _dated(d, when)]
    return found if len(found) <= 4 else []


_DATES = re.compile(r"\d{4}[-_.]?\d{2}([-_.]?\d{2})?|\bv\d[\w.]*\b")


def siblings(document: str, names: Names) -> list[str]:
    """Other versions of a document: the same file name (dates and versions aside) and the same title."""

    def parts(one: str) -> tuple[str, str]:
        pieces = one.split("/")
        return _DATES.sub("", pieces[-1]).strip("-_. "), plain_title(names.titles.get(one, ""))

    own = document.split("/")
    mine = parts(document)
    found: list[tuple[int, str]] = []
    for other in names.by_source.get(source_of(document), ()):
        if other == document or parts(other)[0] != mine[0]:
            continue
        pieces = other.split("/")
        same = 0
        while same < min(len(pieces), len(own)) and _DATES.sub("", pieces[-1 - same]) == _DATES.sub("", own[-1 - same]):
            same += 1
        if same >= 2 or (parts(other)[1] == mine[1] and mine[0] not in ("index", "readme")):
            found.append((-same, other))
    return [other for _, other in sorted(found)]


def catchword(sentence: str) -> str:
    """'Encryption' of '7.2 Encryption. Every third party …'; empty without one."""
    match = re.match(r"[A-ZÀ-Þ][^.:]{2,60}(?=[.:]\s)", _subject(sentence))
    return match.group() if match is not None else ""


def rule_of(state: State, scored: list[Scored]) -> Scored | None:
    """The sentence with a value that is closest to the question, outside records of changes."""
    rules = [
        one
        for one in scored
        if one.text.current
        and quantities(one.sentence.text)
        and not is_changelog(f"{one.text.document} {one.text.title}")
    ]
    best = max(rules, key=lambda one: (one.cover, one.own), default=None)
    return best if best is not None and best.cover >= 0.3 else None


def with_next(one: Scored, scored: list[Scored]) -> str:
    """The sentence and the one that follows it."""
    after = [o for o in scored if o.text is one.text and o.sentence.start > one.sentence.start]
    following = min(after, key=lambda o: o.sentence.start, default=None)
    return one.sentence.text + (" " + following.sentence.text if following is not None else "")


def leads(state: State, focus: Focus, weigh: Weights, names: Names, scored: list[Scored]) -> list[Lead]:
    language = state.language
    found: list[Lead] = []
    known = set(names.sources) | {s.name for s in state.sources}
    usable = {s.name for s in state.sources}
    read = set(state.documents_read())
    asked_titles = set(mentioned(state.question, names))
    texts = relevant_texts(state, focus, scored)
    worth = {id(t): w for t, w in texts}

    # 1. What labels say: the text that replaced or amended this one.
    shown: list[tuple[str, tuple[str, ...], float]] = [
        (t.document, t.labels, worth.get(id(t), 0.3)) for t in state.texts
    ]
    for search in state.searches:
        shown.extend((h.document, h.labels, 0.25) for h in search.hits[:3])
    for _, labels, weight in shown:
        for label in labels:
            match = re.search(r"\b(superseded|amended) by (.+)$", label)
            if match is None:
                continue
            for name in re.split(r",\s*", match.group(2)):
                if name.strip() in names.titles and name.strip() not in read and source_of(name.strip()) in usable:
                    kind = match.group(1)
                    found.append(
                        Lead(kind=kind, weight=2.0 + weight, query="", source=source_of(name), document=name.strip())
                    )

    # 2. Requirements: look for their rare words where the question's somebody is.
    own = entity_sources(state, focus)
    if focus.judging and own:
        for n, one in enumerate(requirement_sentences(state, focus, scored, weigh)[:6]):
            said = _subject(one.sentence.text)
            terms = new_terms(said, state, focus, weigh)
            # The catchword that opens a numbered demand says what it is about.
            for lead_word in stems(catchword(one.sentence.text), language=language) & set(terms):
                terms[lead_word] += 10.0
            query = query_of(terms, said, language=language, most=6)
            if len(query.split()) < 2:
                continue
            for source in own:
                found.append(
                    Lead(
                        kind="requirement",
                        weight=(1.6 if focus.titled else 0.9) + one.cover - 0.03 * n,
                        query=query,
                        source=source,
                        filters=focus.filters[source],
                    )
                )

        # What the somebody promises in figures, where rules for it may stand.
        facts = [
            one
            for one in scored
            if source_of(one.text.document) in own and any(q.is_time for q in quantities(one.sentence.text))
        ]
        met: dict[str, int] = {}
        for text in {t.document: t for t in state.texts}.values():
            for found_stem in stems(text.text, language=language):
                met[found_stem] = met.get(found_stem, 0) + 1
        linking: list[tuple[float, Scored, dict[str, float]]] = []
        for one in facts:
            terms = {s: w for s, w in new_terms(one.sentence.text, state, focus, weigh).items() if not s.isdigit()}
            # A word that stands nowhere but in what was read leads nowhere.
            written = {w.stem: w.text for w in words(one.sentence.text, language=language)}
            measured = stems(" ".join(q.text for q in quantities(one.sentence.text)), language=language)
            terms = {
                s: w for s, w in terms.items() if s not in measured and weigh.frequency(written[s]) > met.get(s, 0)
            }
            linking.append((one.near + 0.05 * sum(terms.values()), one, terms))
        linking.sort(key=lambda f: -f[0])
        for _, one, terms in linking[:8]:
            query = query_of(terms, one.sentence.text, language=language, most=4)
            if len(query.split()) < 2:
                continue
            for source in [s.name for s in focus.ranked if s.name not in own][:1]:
                found.append(
                    Lead(
                        kind="fact",
                        weight=1.2 + one.near - 0.8 * bool(focus.titled),
                        query=query,
                        source=source,
                    )
                )

    # 3. Names of other documents, and terms defined there.
    for text, weight in texts[:6]:
        best = sorted(
            (one for one in scored if one.text is text),
            key=lambda one: -(one.cover + 0.3 * requires(one.sentence.text)),
        )[:40]
        for one in best:
            for title in mentioned(one.sentence.text, names):
                targets = [d for d in documents_titled(title, names) if source_of(d) in (focus.home or usable)]
                if title in asked_titles or not targets or set(targets) & read or text.document in targets:
                    continue
                rest = new_terms(one.sentence.text, state, focus, weigh)
                inside = {w.stem for w in words(title, language=language)}
                rest = {s: w for s, w in rest.items() if s not in inside}
                query = f"{title} {query_of(rest, one.sentence.text, language=language, most=3)}".strip()
                cue = 0.4 if requires(one.sentence.text) or re.search(_POINTER, one.sentence.text) else 0.0
                line = one.text.text[: one.sentence.end].rsplit("\n", 1)[-1]
                cue += 0.3 * requires(line.removesuffix(one.sentence.text))
                found.append(
                    Lead(
                        kind="title",
                        weight=0.9 + weight * 0.6 + one.cover * 0.5 + cue,
                        query=query,
                        source=source_of(targets[0]),
                        document=_preferred(targets, focus, state),
                    )
                )

    # 4. Annexes, schedules and the like of the same document's family.
    for text, weight in texts[:5]:
        for reference in dict.fromkeys(references(text.text)):
            source = source_of(text.document)
            if source not in usable or fold(reference) in fold(state.question) or fold(reference) in fold(text.title):
                continue
            found.append(
                Lead(
                    kind="reference",
                    weight=0.7 + weight * 0.5,
                    query=f"{reference} {query_of(dict(focus.weights), state.question, language=language, most=2)}",
                    source=source,
                    filters=focus.filters.get(source, {}),
                )
            )

    # 5. Parts of the question that nothing read covers.
    parts = clauses(state.question)
    if len(parts) > 1 or state.searches:
        for part in parts:
            weights = weigh.of(part)
            if len(weights) < 2:
                continue
            cover, _ = clause_cover(part, scored, state, weigh, focus)
            if cover >= 0.6:
                continue
            query = query_of(weights, part, language=language, most=8)
            for source in focus.ranked[:3]:
                found.append(
                    Lead(
                        kind="part",
                        weight=1.0 - cover * 0.4 + 0.3 * focus.scores[source.name],
                        query=query,
                        source=source.name,
                        filters=focus.filters[source.name],
                    )
                )

    # 6. Older versions and records of changes.
    if focus.older or months(state.question):
        for source in focus.ranked[:2]:
            found.append(
                Lead(
                    kind="older",
                    weight=1.5 + 0.2 * focus.scores[source.name],
                    query=query_of(dict(focus.weights), state.question, language=language, most=10),
                    source=source.name,
                    filters=focus.filters[source.name],
                    only_current=False,
                )
            )
    if focus.older or focus.change:
        for document in dated_documents(state, focus, names):
            if document not in read:
                found.append(Lead(kind="dated", weight=1.9, query="", source=source_of(document), document=document))
        for text, weight in texts[:3]:
            for document in siblings(text.document, names)[:2]:
                if document not in read and (weight >= 0.25 or not text.current):
                    found.append(
                        Lead(
                            kind="sibling",
                            weight=1.2 + weight + 0.5 * (not text.current),
                            query="",
                            source=source_of(document),
                            document=document,
                        )
                    )
    if focus.change:
        # A record of changes kept in another source words things as the rule does, not as the question.
        rule = rule_of(state, scored)
        if rule is not None:
            said = with_next(rule, scored)
            terms = new_terms(said, state, focus, weigh)
            for source in [s for s in state.sources if s.name != source_of(rule.text.document)]:
                if is_changelog(f"{source.name} {source.description}"):
                    found.append(
                        Lead(
                            kind="changelog",
                            weight=1.4 + rule.cover,
                            query=query_of(terms, said, language=language, most=6),
                            source=source.name,
                            only_current=False,
                        )
                    )
        best = sorted(scored, key=lambda one: -one.cover)[:6]
        for one in best:
            terms = new_terms(one.sentence.text, state, focus, weigh)
            codes = [c for c in code_words(one.sentence.text) if 0 < len(c) < 60]
            base = query_of(dict(focus.weights), state.question, language=language, most=3)
            extra = " ".join(codes[:2]) or query_of(terms, one.sentence.text, language=language, most=3)
            source = source_of(one.text.document)
            logs = [d for d in names.by_source.get(source, ()) if is_changelog(d + " " + names.titles[d])]
            for log in [d for d in logs if d not in read][:1]:
                found.append(
                    Lead(
                        kind="changelog",
                        weight=1.0 + one.cover,
                        query=f"{names.titles[log]} {base} {extra}",
                        source=source,
                        document=log,
                        only_current=False,
                    )
                )
            found.append(
                Lead(
                    kind="changelog",
                    weight=0.8 + one.cover * 0.8,
                    query=f"{base} {extra}",
                    source=source,
                    only_current=False,
                )
            )

    # What the best text is about, beside what the question still lacks.
    if texts and texts[0][1] >= 0.25 and not focus.simple:
        for text, weight in texts[:2]:
            counts: dict[str, int] = {}
            for word in words(text.text, language=language):
                counts[word.stem] = counts.get(word.stem, 0) + 1
            about = {
                s: counts[s] * w
                for s, w in new_terms(text.text, state, focus, weigh).items()
                if not s.isdigit() and counts[s] > 1 and w > 1.0
            }
            lacking = {s: w for s, w in focus.weights.items() if s not in counts}
            present = {s: w for s, w in focus.weights.items() if s in counts}
            query = " ".join(
                (
                    query_of(about, text.text, language=language, most=2),
                    query_of(present, state.question, language=language, most=2),
                    query_of(lacking, state.question, language=language, most=2),
                )
            ).strip()
            for source in _elsewhere(text.document, focus, state)[:2]:
                found.append(
                    Lead(
                        kind="topic",
                        weight=0.7 + 0.6 * weight,
                        query=query,
                        source=source,
                        filters=focus.filters[source],
                    )
                )

    # 7. Rare words and names of the best sentences.
    best = sorted(scored, key=lambda one: -(one.cover + 0.15 * requires(one.sentence.text)))[:6]
    floor = 0.5 * max((one.cover for one in best), default=0.0)
    best = [one for one in best if one.cover >= max(0.2, floor)]
    residual = _residual(focus, scored)
    rest = query_of(residual, state.question, language=language, most=3)
    for one in best:
        sentence = one.sentence.text
        for span in list(dict.fromkeys(capitalised(sentence)))[:4]:
            inside = {w.stem for w in words(span, language=language)}
            if not inside or inside <= (set(focus.weights) | stems(one.text.title, language=language)):
                continue
            frequency = max((weigh.frequency(w.text) for w in words(span, language=language)), default=0)
            if frequency > 60 and len(inside) < 2:
                continue
            for source in _elsewhere(one.text.document, focus, state)[:2]:
                found.append(
                    Lead(
                        kind="name",
                        weight=0.35 + 0.5 * one.cover,
                        query=f"{span} {rest}".strip(),
                        source=source,
                        filters=focus.filters[source] if source != source_of(one.text.document) else {},
                    )
                )
        terms = new_terms(sentence, state, focus, weigh)
        query = query_of(terms, sentence, language=language, most=4)
        if len(terms) >= 2 and query:
            anchor = query_of(dict(focus.weights), state.question, language=language, most=2)
            cue = 0.3 if re.search(_POINTER, sentence) else 0.0
            for n, source in enumerate(_elsewhere(one.text.document, focus, state)[:3]):
                found.append(
                    Lead(
                        kind="rare",
                        weight=0.4 + 0.6 * one.cover + cue - 0.1 * n,
                        query=f"{query} {anchor}",
                        source=source,
                        filters=focus.filters[source],
                    )
                )
    found = [lead for lead in found if lead.source in known]
    found.sort(key=lambda lead: -lead.weight)
    return found


_POINTER = re.compile(
    r"\b(?:see|as defined|defined in|meaning given|set (?:out )?in|described in|according to|under the|unless|"
    r"except|otherwise|"
    r"attached|refer(?:s|red)? to|specified in|recorded in|siehe|gemäß|definiert|ver|conforme|definid[oa]|véase|"
    r"según|voir|selon|défini)\b",
    re.IGNORECASE,
)


def _residual(focus: Focus, scored: list[Scored]) -> dict[str, float]:
    best = max(scored, key=lambda one: one.cover, default=None)
    if best is None:
        return dict(focus.weights)
    have = stems(best.sentence.text + " " + best.text.title, language="en")
    return {s: w for s, w in focus.weights.items() if s not in have} or dict(focus.weights)


def _elsewhere(document: str, focus: Focus, state: State) -> list[str]:
    """Other sources first, the document's own last."""
    own = source_of(document)
    others = [s.name for s in focus.ranked if s.name != own]
    if own in focus.home:
        return [own, *others]
    return [*others, own] if own in {s.name for s in state.sources} else others


def _preferred(targets: list[str], focus: Focus, state: State) -> str:
    """Of several versions the one that is not known to be old; the last id otherwise."""
    old = {h.document for s in state.searches for h in s.hits if not h.current}
    return max(targets, key=lambda d: (d not in old, d))


# choosing


def _same_search(lead: Lead, search: Search, language: str) -> bool:
    if search.source != lead.source or dict(search.filters) != dict(lead.filters):
        return False
    if search.only_current and not lead.only_current:
        return False
    ours, theirs = stems(lead.query, language=language), stems(search.query, language=language)
    if not ours:
        return True
    return (len(ours & theirs) >= 0.8 * len(ours) and len(theirs) <= len(ours) * 1.5) or ours == theirs


def first_searches(state: State, focus: Focus, weigh: Weights, names: Names) -> list[Planned]:
    """The question's content terms, in the sources that its words point to, and in those of which nothing is known."""
    query = query_of(dict(focus.weights), state.question, language=state.language, most=14) or state.question
    ranked = list(focus.ranked)
    if not ranked:
        return []
    top = focus.scores[ranked[0].name]
    chosen = [ranked[0]]
    for source in ranked[1:]:
        score = focus.scores[source.name]
        close = score >= 0.8 * top or top < 0.35
        if focus.compound:
            close = score >= 0.45 * top or len(chosen) < 2 or (bool(entity_sources(state, focus)) and not focus.titled)
        if close or source.name not in names.by_source:
            chosen.append(source)
    live = sum(source.name not in names.by_source for source in chosen)
    most = max(3 if focus.compound else SINGLE_SEARCHES, min(live, MAX_LIVE))
    return [
        _search(source, query, focus.filters[source.name], only_current=True, why="the question's terms")
        for source in chosen[:most]
    ]


def _search(source: Source, query: str, filters: Mapping[str, str], *, only_current: bool, why: str) -> Planned:
    arguments: dict[str, Any] = {"query": query, **filters}
    if not only_current:
        arguments["only_current"] = False
        arguments["k"] = 10
    return Planned(tool=source.tool, arguments=arguments, why=why)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    document: str
    section: str | None
    score: float
    why: str
    total_chars: int | None = None
    phrase: str | None = None
    """To look for in the document, where reading its section did not show the hit."""


def candidates(state: State, focus: Focus, weigh: Weights, names: Names) -> list[Candidate]:
    """Hits worth reading, best first."""
    language = state.language
    total = sum(focus.weights.values()) or 1.0
    read = {t.document for t in state.texts}
    titled = set(focus.titled)
    when = months(state.question)
    best: dict[tuple[str, str | None], Candidate] = {}
    often: dict[str, float] = {}
    for search in state.searches:
        for document in dict.fromkeys(h.document for h in search.hits):
            rank = next(h.rank for h in search.hits if h.document == document)
            often[document] = often.get(document, 0.0) + 0.5 / (2 + rank)
    for order, search in enumerate(state.searches):
        asked = weigh.of(search.query)
        asked_total = sum(asked.values()) or 1.0
        first = all(s in focus.weights for s in asked)
        for hit in search.hits:
            seen = already_read(hit, state)
            phrase = None
            if seen or (hit.document in read and _is_root(hit)):
                phrase = unseen_phrase(hit, state) if state.has_find else None
                if phrase is None:
                    continue
            inside = stems(f"{hit.title} {hit.section or ''} {hit.snippet}", language=language)
            cover = sum(w for s, w in focus.weights.items() if s in inside) / total
            lead = sum(w for s, w in asked.items() if s in inside) / asked_total
            title = stems(hit.title, language=language)
            named = sum(w for s, w in focus.weights.items() if s in title) / total
            if not first and lead < 0.45 and cover < 0.25:
                continue
            fit = 1.0 if first else max(lead, cover)
            score = 0.55 * cover + 0.55 * lead + 0.35 * fit / (1 + hit.rank) + 0.35 * named
            score += 0.25 * (not first) * (hit.rank == 0) * lead
            score += 0.45 * (hit.document in titled and hit.current)
            score += 0.3 * bool(search.filters) * (hit.rank < 3)
            score += 0.1 * any(label.startswith("amend") for label in hit.labels)
            score += 0.25 * (focus.change and not focus.simple and is_changelog(hit.document + " " + hit.title))
            if hit.document in read:
                score -= 0.35 if phrase is None else 0.1
            if not hit.current:
                replaced = any(label.startswith("superseded") for label in hit.labels)
                score -= 0.0 if focus.older or (focus.change and not replaced) else 0.5
                if focus.older and when and _dated(hit.document, when):
                    score += 0.8
            score += 0.02 * order + min(0.5, 0.6 * (often[hit.document] - 0.5 / (2 + hit.rank)))
            key = (hit.document, hit.section)
            if key not in best or score > best[key].score:
                best[key] = Candidate(
                    document=hit.document,
                    section=hit.section,
                    score=score,
                    why=f"hit for {search.query!r}",
                    total_chars=hit.total_chars,
                    phrase=phrase,
                )
    return sorted(best.values(), key=lambda c: -c.score)


def _dated(document: str, when: list[Month]) -> bool:
    there = months(document)
    return any(
        a.year == b.year and (a.month is None or b.month is None or a.month == b.month) for a in there for b in when
    )


def already_read(hit: Hit, state: State) -> bool:
    for tried in state.tried:
        if tried.document == hit.document and tried.tool == "read_document":
            if tried.section == hit.section:
                return True
            if tried.section is None and hit.section is None:
                return True
            if tried.section is not None and hit.section is not None and _within(hit.section, tried.section):
                return True
    for text in state.texts:
        if text.document == hit.document:
            if text.start == 0 and text.end >= text.total_chars:
                return True
            if hit.section is not None and text.section == hit.section:
                return True
            if hit.snippet and fold(hit.snippet.strip("… .\n")[:60]) in fold(text.text):
                return True
    return False


def _is_root(hit: Hit) -> bool:
    """True when the hit's section is the one that bears the document's title, so that reading it begins at the top."""
    if hit.section is None:
        return True
    slug = "-".join(re.findall(r"[^\W_]+", fold(hit.title.split(" > ")[0])))
    return len(hit.section) > 3 and (slug == fold(hit.section) or slug.startswith(fold(hit.section)))


def unseen_phrase(hit: Hit, state: State) -> str | None:
    """Words of a hit that none of the document's text shown so far holds, when its section was longer than a page."""
    snippet = max((p.strip() for p in re.split(r"…|\n", hit.snippet)), key=len, default="")
    if len(snippet.split()) < 5:
        return None
    shown = [fold(t.text) for t in state.texts if t.document == hit.document]
    long = any(t.next_start is not None for t in state.texts if t.document == hit.document)
    middle = snippet.split()[1:-1] if len(snippet.split()) > 8 else snippet.split()
    phrase = " ".join(middle[:8])
    if not long or any(" ".join(fold(phrase).split()) in " ".join(text.split()) for text in shown):
        return None
    if any(t.phrase == phrase and t.document == hit.document for t in state.tried):
        return None
    return phrase


def _within(section: str, outer: str) -> bool:
    return section == outer or section.startswith((outer + ".", outer + "/"))


def small_documents(lexicon: Lexicon, names: Names) -> bool:
    """True when the corpus's documents are, on average, short enough to be read whole."""
    return lexicon.passages <= 15 * max(1, len(names.titles))


def single_passages(lexicon: Lexicon, names: Names) -> bool:
    """True when nearly every document is one passage, as in an encyclopedia or a list of cards."""
    return lexicon.passages <= FLAT * max(1, len(names.titles))


def read_call(candidate: Candidate, state: State, *, small: bool) -> Planned:
    if candidate.phrase is not None:
        return Planned(
            tool="find_in_document",
            arguments={"document": candidate.document, "phrase": candidate.phrase},
            why=candidate.why,
        )
    whole = candidate.total_chars is not None and candidate.total_chars <= 6000
    unread = candidate.document not in {t.document for t in state.texts}
    if candidate.section is None or whole or (candidate.total_chars is None and small and unread):
        return Planned(tool="read_document", arguments={"document": candidate.document}, why=candidate.why)
    return Planned(
        tool="read_document",
        arguments={"document": candidate.document, "section": candidate.section},
        why=candidate.why,
    )


def _urgent(state: State, focus: Focus, names: Names, scored: list[Scored]) -> list[Planned]:
    """Versions that a question about a change needs: the dated one, its other version, and the rest of both."""
    if not (focus.older or focus.change):
        return []
    tried = {t.document for t in state.tried}
    dated = dated_documents(state, focus, names)
    found = [d for d in dated if d not in tried]
    for text in state.texts:
        if not text.current or text.document in dated:
            others = [d for d in siblings(text.document, names) if d not in tried]
            current = [d for d in others if not is_old(d, state)]
            found.extend((current or others)[:1])
    calls = [
        Planned(tool="read_document", arguments={"document": d}, why="another version") for d in dict.fromkeys(found)
    ]
    if calls or not dated:
        return calls
    # Both versions are open: read on where they go on, the longer known one first.
    pairs = {d for d in dated if d in tried} | {s for d in dated for s in siblings(d, names) if s in tried}
    for document in sorted(pairs):
        pages = [t for t in state.texts if t.document == document and not t.found]
        if len(siblings(document, names)) and pages and len(pairs) <= 4:
            last = max(pages, key=lambda t: t.end)
            if last.next_start is not None:
                calls.append(
                    Planned(
                        tool="read_document",
                        arguments={"document": document, "start": last.next_start},
                        why="the rest of a version",
                    )
                )
    return calls


def is_old(document: str, state: State) -> bool:
    """True when a hit or a text said that the document is not current, or its id says so."""
    if any(h.document == document and not h.current for s in state.searches for h in s.hits):
        return True
    if any(t.document == document and not t.current for t in state.texts):
        return True
    return re.search(r"superseded|archived?|obsolete|deprecated|withdrawn|old\b", document) is not None


def _direct_read(lead: Lead, state: State, *, small: bool) -> Planned:
    """A document by name; in a corpus of long documents at the section that a search or its other version showed."""
    arguments: dict[str, Any] = {"document": lead.document}
    if not small:
        section = next((h.section for s in state.searches for h in s.hits if h.document == lead.document), None)
        if section is not None:
            arguments["section"] = section
    return Planned(tool="read_document", arguments=arguments, why=lead.kind)


def _special(state: State, focus: Focus) -> bool:
    """Questions with a way of their own: somebody is judged by rules, or versions are told apart."""
    return bool(focus.judging and entity_sources(state, focus)) or (
        (focus.older or focus.change) and bool(focus.titled) and bool(versions_named(state.question))
    )


def named_block(state: State) -> list[Hit]:
    """The chase's hits in the document that leads it, where the question names that document and it is long."""
    if not state.chased:
        return []
    first = state.chased[0].document
    if any(t.document == first and t.start == 0 and t.end >= t.total_chars for t in state.texts):
        return []  # Short enough to be read whole.
    block = list(takewhile(lambda hit: hit.document == first, state.chased))
    return block if len(block) >= BLOCK else []


def _chased_reads(
    state: State, ranked: list[Candidate], *, reads_left: int, small: bool, hits: Sequence[Hit] | None = None
) -> list[Planned]:
    """What the chase reached (or these `hits` of it), in its order; before it what the searches rank first."""
    most = FIRST_READS if not state.texts else MAX_CALLS
    calls: list[Planned] = []
    wanted: list[Candidate] = [] if state.texts or hits is not None else ranked[:1]
    wanted += [
        Candidate(
            document=h.document, section=h.section, score=0.0, why="reached by the chase", total_chars=h.total_chars
        )
        for h in (state.chased or () if hits is None else hits)
        if not already_read(h, state)
    ]
    for candidate in wanted:
        call = read_call(candidate, state, small=small)
        if len(calls) < min(most, reads_left) and call.arguments not in [c.arguments for c in calls]:
            calls.append(call)
    return calls


def _inside_reads(state: State, focus: Focus, ranked: list[Candidate], *, small: bool) -> list[Planned]:
    """What is unread of the passages of a document that the question names, in the order of the chase.

    What is asked of one document may stand in several places of it, which no sentence that was read can tell.
    """
    block = named_block(state)
    left = MAX_READS - len(state.tried)
    if not block or not state.has_read or left <= 0 or _special(state, focus):
        return []
    calls = _chased_reads(state, [], reads_left=left, small=small, hits=block)
    if calls and not state.texts and ranked and len(calls) < min(FIRST_READS, left):
        # A short one is soon read: the best hit of the searches beside it.
        best = read_call(ranked[0], state, small=small)
        calls += [best] if best.arguments not in [c.arguments for c in calls] else []
    return calls


def chase_first(state: State, focus: Focus, *, lexicon: Lexicon, names: Names) -> bool:
    """Whether the chase alone says what to read: where documents are single passages."""
    if not state.chased or not state.has_read or _special(state, focus):
        return False
    return single_passages(lexicon, names)


def next_calls(state: State, *, lexicon: Lexicon, names: Names) -> list[Planned]:
    """The calls of the next step; none when it is time to hand in the draft."""
    planned = _next_calls(state, lexicon=lexicon, names=names)
    ended = state.steps_left is not None and state.steps_left <= 2
    if planned or ended or not state.chased or not state.texts or state.drafts or state.steps >= MAX_STEPS:
        return planned
    weigh = Weights(lexicon, state.language)
    focus = focus_of(state, weigh, names)
    left = MAX_READS - len(state.tried)
    small = small_documents(lexicon, names)
    if focus.simple:
        if covered(state, focus, weigh, names, scored_sentences(state, focus), least=LIKELY):
            return []
        left = min(left, LAST_READS - sum(1 for t in state.tried if t.document in {h.document for h in state.chased}))
    if _special(state, focus) or left <= 0:
        return []
    # Leads have run dry: what the chase reached takes the reads that are left.
    return _chased_reads(state, [], reads_left=left, small=small)


def _next_calls(state: State, *, lexicon: Lexicon, names: Names) -> list[Planned]:
    if not state.sources or (state.steps_left is not None and state.steps_left <= 2) or state.steps >= MAX_STEPS:
        return []
    if state.drafts:
        return []
    weigh = Weights(lexicon, state.language)
    focus = focus_of(state, weigh, names)
    if not state.searches:
        # A first retrieval that is in the prompt is often enough for one plain question.
        prefetched = state.texts and not state.open_parts and focus.simple
        if prefetched and covered(state, focus, weigh, names, scored_sentences(state, focus), least=0.3):
            return []
        first = first_searches(state, focus, weigh, names)
        if state.has_leads and state.has_read:
            asked = Planned(tool=LEADS, arguments={"question": state.question[:1000]}, why="several hops in one call")
            return [*first[: MAX_CALLS - 1], asked]
        return first
    scored = scored_sentences(state, focus)
    chasing = chase_first(state, focus, lexicon=lexicon, names=names)
    own_way = state.chased is None or _special(state, focus)
    reads_left = (MAX_READS if chasing else SPECIAL_READS if own_way else OTHER_READS) - len(state.tried)
    searches_left = (8 if focus.simple else MAX_SEARCHES) - len(state.searches)
    small = small_documents(lexicon, names)
    last_search_unread = not state.texts or max(s.step for s in state.searches) >= max(
        (t.step for t in state.texts), default=0
    )
    ranked = candidates(state, focus, weigh, names) if state.has_read else []
    inside = _inside_reads(state, focus, ranked, small=small)
    if inside:
        return inside
    hidden = [c for c in ranked[:3] if c.phrase is not None and c.score >= 0.8 * ranked[0].score]
    if hidden and reads_left > 0 and len(state.searches) <= SINGLE_SEARCHES:
        return [read_call(hidden[0], state, small=small)]
    if not focus.compound:
        tried = len(state.searches) >= SINGLE_SEARCHES
        least = (0.3 if tried else 0.45) if focus.simple else 0.65
        if chasing:
            # Over several hops a text that holds the question's words may yet lack the hop: only a full match ends it.
            least = ENOUGH
        unsure = focus.titled and versions_named(state.question) and all(s.only_current for s in state.searches)
        if not unsure and covered(state, focus, weigh, names, scored, least=least):
            return []

    if chasing:
        return _chased_reads(state, ranked, reads_left=reads_left, small=small)

    planned: list[Planned] = []
    urgent = _urgent(state, focus, names, scored) if state.has_read else []
    if urgent and reads_left > 0:
        return urgent[: min(4, reads_left)]
    if last_search_unread and reads_left > 0 and ranked:
        many = 2 if not state.texts else 3
        chosen: list[Candidate] = []
        per_source: set[str] = set()
        floor = max(0.55 * ranked[0].score, 0.3 if state.texts else 0.0)
        own = set(entity_sources(state, focus)) if focus.judging and not focus.titled and not focus.home else set[str]()
        for candidate in ranked:
            # Of somebody whom the question names, everything is worth reading before leads are followed.
            theirs = source_of(candidate.document) in own and not state.texts
            if len(chosen) >= min(many + focus.compound + 2 * bool(own), reads_left):
                break
            if not theirs and candidate.score < floor:
                continue
            if any(c.document == candidate.document for c in chosen):
                continue
            # Asked what holds and whether it changed: first one text of each, the rule and the record of changes.
            log = is_changelog(candidate.document)
            if focus.change and not state.texts and any(is_changelog(c.document) == log for c in chosen):
                continue
            chosen.append(candidate)
            per_source.add(source_of(candidate.document))
        planned.extend(read_call(c, state, small=small) for c in chosen)
        if planned:
            return planned
    if searches_left <= 0 or (state.steps_left is not None and state.steps_left <= 2):
        return []
    if not focus.compound and len(state.searches) >= SINGLE_SEARCHES and reads_left <= 0:
        return []
    follow = leads(state, focus, weigh, names, scored)
    used: list[Lead] = []
    most = 4
    if focus.simple:
        most = max(1, SINGLE_SEARCHES - len(state.searches)) if len(state.searches) <= SINGLE_SEARCHES else 3
    direct = 0
    for lead in follow:
        if len(used) >= min(most, searches_left):
            break
        if lead.document is not None and (not lead.query or small) and lead.kind != "changelog":
            if reads_left - sum(1 for p in planned if p.tool == "read_document") > 0 and not any(
                t.document == lead.document for t in state.tried
            ):
                call = _direct_read(lead, state, small=small)
                if call.arguments not in [p.arguments for p in planned] and (lead.kind != "title" or direct < 1):
                    direct += lead.kind == "title"
                    planned.append(call)
            continue
        if reads_left <= 0:
            continue
        if any(_same_search(lead, s, state.language) for s in state.searches):
            continue
        if any(
            u.source == lead.source
            and len(stems(u.query, language=state.language) & stems(lead.query, language=state.language))
            >= 0.6 * max(1, len(stems(lead.query, language=state.language)))
            for u in used
        ):
            continue
        source = next(s for s in state.sources if s.name == lead.source)
        used.append(lead)
        planned.append(_search(source, lead.query, lead.filters, only_current=lead.only_current, why=lead.kind))
    return planned[:MAX_CALLS]
