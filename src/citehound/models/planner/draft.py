"""The offline planner's answer: whole sentences quoted from what was read, and what was not found; no judgement."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...index import Lexicon
from .hops import Trodden, dead_ends, trodden, unread_names
from .plan import (
    Focus,
    Scored,
    catchword,
    concerns,
    documents_titled,
    entity_sources,
    focus_of,
    mentioned,
    named_block,
    new_terms,
    pointed,
    requirement_sentences,
    rule_of,
    scored_sentences,
    single_passages,
    source_of,
    versions_named,
    with_next,
)
from .state import Names, State, Text, Weights
from .support import LEAST, LEAST_INSIDE, Asked, asked_in, is_heading, questions, supports
from .words import (
    Quantity,
    Sentence,
    asks_for_summary,
    capitalised,
    clauses,
    has_value,
    is_changelog,
    numbers,
    quantities,
    sentences,
    stems,
    wanted,
    words,
)

MAX_CLAIMS = 12
MAX_STEPS = 5
"""Texts quoted of a way over several."""
_OPENING_WORDS = 3
MAX_FURTHER = 3
"""Of these, beyond what the question names."""
_BULLET = re.compile(r"^[-*•–] (?=\S)")

_DIFFER = {
    "en": "The values differ: {a} in {x}, {b} in {y}.",
    "de": "Die Werte weichen voneinander ab: {a} in {x}, {b} in {y}.",
    "pt": "Os valores diferem: {a} em {x}, {b} em {y}.",
    "es": "Los valores difieren: {a} en {x}, {b} en {y}.",
    "fr": "Les valeurs diffèrent : {a} dans {x}, {b} dans {y}.",
}
_NO_MODEL = "Without a language model Citehound only searches and quotes; nothing that was read answers this."


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A sentence to be quoted."""

    text: Text
    sentence: Sentence

    @property
    def key(self) -> tuple[str, int]:
        return (self.text.document, self.text.start + self.sentence.start)


class _Draft:
    """Claims in the making; a sentence is quoted once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._numbers: dict[tuple[str, int], int] = {}
        self.claims: list[dict[str, Any]] = []
        self.missing: list[dict[str, Any]] = []

    def quote(self, quote: Quote) -> int | None:
        """The number of the claim that quotes this sentence; None when it cannot be cited."""
        known = self._numbers.get(quote.key)
        if known is not None:
            return known
        said = quote.sentence.text
        if len(self.claims) >= MAX_CLAIMS or not citable(quote, self._state):
            return None
        self.claims.append(
            {
                "text": _BULLET.sub("", " ".join(said.split())),
                "kind": "quoted",
                "citations": [{"document": quote.text.document, "quote": said}],
            }
        )
        self._numbers[quote.key] = len(self.claims)
        return len(self.claims)

    def quotes(self, one: Scored) -> bool:
        return Quote(text=one.text, sentence=one.sentence).key in self._numbers

    def differ(self, first: int, second: int, a: Quantity, b: Quantity, x: Text, y: Text) -> None:
        text = _DIFFER[self._state.language].format(a=a.text.strip(), b=b.text.strip(), x=x.document, y=y.document)
        self.claims.append({"text": text, "kind": "conclusion", "premises": [first, second]})

    def lack(self, what: str, reason: str) -> None:
        if what and what not in [m["what"] for m in self.missing]:
            self.missing.append({"what": what, "reason": reason})


def citable(quote: Quote, state: State) -> bool:
    """Long enough, not old while its successor is unread, not refused by the checks before."""
    said = quote.sentence.text
    if len(said) > 900 or len(re.findall(r"[^\W_]+", said)) < 4:
        return False
    if any(said[:80] in reason or " ".join(said.split())[:80] in reason for reason in state.rejections):
        return False
    if not quote.text.current:
        read = set(state.documents_read())
        for label in quote.text.labels:
            match = re.search(r"superseded by (.+)$", label)
            if match is not None and not {n.strip() for n in match.group(1).split(",")} & read:
                return False
    return True


def draft_of(state: State, *, lexicon: Lexicon, names: Names) -> dict[str, Any]:
    """A draft as the output tool takes it."""
    weigh = Weights(lexicon, state.language)
    focus = focus_of(state, weigh, names)
    scored = scored_sentences(state, focus)
    draft = _Draft(state)
    if focus.judging and entity_sources(state, focus):
        _compare(draft, state, focus, weigh, scored)
    _absent_version(draft, state, names)
    if focus.change and not focus.simple and not draft.claims:
        _changed(draft, state, focus, weigh, scored)
    steps = trodden(state) if single_passages(lexicon, names) and read_whole(state.texts) else None
    if not draft.claims and not draft.missing:
        _answer(draft, state, focus, weigh, names, scored, steps)
    if not focus.simple and (focus.judging or focus.change) and not versions_named(state.question):
        _contrast(draft, state, focus, scored)
    if not draft.claims and not draft.missing:
        draft.lack(_topic(state.question), _NO_MODEL)
    unknown = unknown_names(state, weigh)
    for name in unknown:
        draft.lack(name, f"{name!r} stands in no document; {_looked(state)}")
    if steps is not None:
        whole = any(one.cover > 0.99 and draft.quotes(one) for one in scored)
        _broken_hops(draft, state, weigh, names, unknown, steps, whole=whole)
    return {"claims": draft.claims, "missing": draft.missing}


def read_whole(texts: Sequence[Text]) -> bool:
    """True when most of what was read are whole documents: of a part, what it names may stand in the rest."""
    return 2 * sum(1 for text in texts if text.start == 0 and text.end >= text.total_chars) >= len(texts)


def _broken_hops(
    draft: _Draft,
    state: State,
    weigh: Weights,
    names: Names,
    unknown: list[str],
    steps: Trodden,
    *,
    whole: bool,
) -> None:
    """Where a document is one passage about one thing, a name without a text is a hop without its evidence.

    Of long documents only parts are read, so that there a name that was not met tells nothing. `whole`: a sentence that
    is quoted holds what the question asks, so that no second text is needed.
    """
    for name in unread_names(state):
        # 'EFS' of 'Amazon EFS' may do: a quoted sentence that has its rarest word speaks of it.
        terms = weigh.of(name)
        rarest = max(terms, key=lambda s: terms[s])
        quoted = any(rarest in stems(str(claim["text"]), language=state.language) for claim in draft.claims)
        if not quoted and not any(word in name for word in unknown):
            draft.lack(name, f"no text that says {name!r} was found; {_looked(state)}")
    for side in steps.apart:
        draft.lack(side, f"no text about {side!r} was found; {_looked(state)}")
    if steps.broken and not whole:
        subject = ", ".join(dict.fromkeys(t.title for t in steps.subjects))
        lacking = " ".join(dict.fromkeys(steps.lacking)) or _topic(state.question)
        what = f"{lacking}: {subject}" if subject else lacking
        draft.lack(what, f"what was found leads to no text that says it; {_looked(state)}")
    for what, name in dead_ends(state, names):
        draft.lack(f"{what}: {name}", f"no document is about {name!r}; {_looked(state)}")


def unknown_names(state: State, weigh: Weights) -> list[str]:
    """Names in the question, or words of them, that stand nowhere in the corpus: what it tells of them is not there."""
    return list(
        dict.fromkeys(
            word.text
            for name in capitalised(state.question)
            for word in words(name, language=state.language)
            if len(word.text) > 2 and not word.stem.isdigit() and not weigh.frequency(word.text)
        )
    )


def _absent_version(draft: _Draft, state: State, names: Names) -> None:
    """A version that the question names and no document of that title has is a gap."""
    for number in versions_named(state.question):
        for title, written in mentioned(state.question, names).items():
            family = documents_titled(title, names)
            texts = [f"{d} {names.titles[d]}" for d in family]
            texts += [f"version {t.metadata.get('version', '')}" for t in state.texts if t.document in family]
            if family and not any(re.search(rf"(?:\bv|version |-|_){number}\b", t, re.IGNORECASE) for t in texts):
                draft.lack(f"version {number} of {written}", _looked(state))


def _contrast(draft: _Draft, state: State, focus: Focus, scored: list[Scored]) -> None:
    """Sentences of two documents that say nearly the same with other values; at most two pairs."""
    if any(claim["kind"] == "conclusion" for claim in draft.claims):
        return
    language = state.language
    with_values = [
        (one, frozenset(s for s in stems(one.sentence.text, language=language) if not s.isdigit()))
        for one in scored
        if quantities(one.sentence.text) and len(one.sentence.text) < 600
    ]
    found: list[tuple[float, Scored, Scored, tuple[Quantity, Quantity]]] = []
    for i, (a, ours) in enumerate(with_values[:300]):
        for b, theirs in with_values[i + 1 : 300]:
            if a.text.document == b.text.document or len(ours & theirs) < 3:
                continue
            alike = len(ours & theirs) / max(1, min(len(ours), len(theirs)))
            pair = differing(a.sentence.text, b.sentence.text)
            asked_apart = [(x - y) & set(focus.weights) for x, y in ((ours, theirs), (theirs, ours))]
            if alike >= 0.5 and pair is not None and not all(asked_apart):
                found.append((alike + max(a.cover, b.cover) + 0.02 * len(ours & theirs), a, b, pair))
    found.sort(key=lambda f: -f[0])
    for _, a, b, pair in found[:2]:
        first = draft.quote(Quote(text=a.text, sentence=a.sentence))
        second = draft.quote(Quote(text=b.text, sentence=b.sentence))
        if first is not None and second is not None:
            draft.differ(first, second, pair[0], pair[1], a.text, b.text)


def _topic(clause: str) -> str:
    return " ".join(clause.split()).rstrip(" ?.!;,")


def _looked(state: State, sources: list[str] | None = None) -> str:
    """Where a thing was looked for, in words."""
    done: dict[str, list[str]] = {}
    for search in state.searches:
        if sources is None or search.source in sources:
            done.setdefault(search.source, []).append(search.query)
    if not done:
        return _NO_MODEL
    return "; ".join(f"searched {name}: {' | '.join(dict.fromkeys(q))}" for name, q in done.items())[:600]


# requirement beside evidence


def _heading(text: Text, sentence: Sentence) -> str:
    """The nearest short line above a sentence that ends without a stop."""
    for line in reversed(text.text[: sentence.start].splitlines()):
        line = line.strip()
        if line and len(line) <= 70 and line[-1] not in ".;:,|":
            return line
    return ""


def _compare(draft: _Draft, state: State, focus: Focus, weigh: Weights, scored: list[Scored]) -> None:
    own = set(entity_sources(state, focus))
    language = state.language
    demands = requirement_sentences(state, focus, scored, weigh)[:10]
    evidence = [
        one
        for one in scored
        if source_of(one.text.document) in own
        and one.text.document not in focus.titled
        and len(words(one.sentence.text, language=language)) >= 3
        and _heading(one.text, one.sentence) != one.sentence.text
    ]
    if not demands or not evidence:
        return
    found: list[tuple[Scored, list[Scored], Mapping[str, float]]] = []
    for demand in demands:
        terms = new_terms(_bare(demand.sentence.text), state, focus, weigh)
        terms = {s: w for s, w in terms.items() if not s.isdigit()}
        if len(terms) < 2:
            continue
        catch = stems(catchword(demand.sentence.text), language=language) & set(terms)
        terms = {s: w * (3.0 if s in catch else 1.0) for s, w in terms.items()}
        total = sum(terms.values())
        rare = set(sorted(terms, key=lambda s: -terms[s])[: max(3, len(terms) // 2)])
        ranked: list[tuple[float, Scored]] = []
        for one in evidence:
            own_stems = stems(one.sentence.text, language=language)
            near = own_stems | stems(_heading(one.text, one.sentence), language=language)
            shared = {s for s in terms if s in near}
            score = sum(terms[s] for s in shared) / total + 0.25 * sum(terms[s] for s in shared & own_stems) / total
            units = {q.unit for q in quantities(demand.sentence.text)} & {q.unit for q in quantities(one.sentence.text)}
            fits = (len(shared) >= 2 and shared & rare) or (catch and len(shared & catch) >= min(2, len(catch)))
            if fits and own_stems & set(terms):
                ranked.append((score + 0.1 * bool(units), one))
        ranked.sort(key=lambda r: -r[0])
        matched = [one for score, one in ranked[:2] if score >= 0.3 and score >= 0.6 * ranked[0][0]]
        found.append((demand, matched, terms))
    # A demand without evidence is a gap where a neighbour has evidence (the section applies) or the question names it.
    applies = {(d.text.document, _chapter(d)) for d, matched, _ in found if matched}
    if not focus.titled:
        # No rule document is named: only the demands that fit best, and no gaps for the others.
        found = [f for f in found if f[1]][:3]
    found.sort(key=lambda f: (f[0].text.document, f[0].text.start + f[0].sentence.start))
    for demand, matched, terms in found:
        if not matched and ((demand.text.document, _chapter(demand)) not in applies or not _searched(demand, state)):
            continue
        first = draft.quote(Quote(text=demand.text, sentence=demand.sentence))
        if first is None:
            continue
        if not matched:
            label = catchword(demand.sentence.text) or " ".join(_bare(demand.sentence.text).split()[:8])
            if len(words(label, language=language)) < 2:
                label += f": {_evidence_words(demand, terms, language)}"
            places = "; ".join(f"{name}: {', '.join(focus.filters[name].values())}" for name in sorted(own))
            draft.lack(f"{label} ({places})", _looked(state, sorted(own)))
            continue
        for one in matched:
            second = draft.quote(Quote(text=one.text, sentence=one.sentence))
            if second is None:
                continue
            pair = differing(demand.sentence.text, one.sentence.text)
            if pair is not None:
                draft.differ(first, second, pair[0], pair[1], demand.text, one.text)


def _searched(demand: Scored, state: State) -> bool:
    """True when some search asked for what opens the demand."""
    label = catchword(demand.sentence.text) or demand.sentence.text
    wanted_stems = stems(label, language=state.language)
    return any(
        len(wanted_stems & stems(search.query, language=state.language)) >= min(2, len(wanted_stems))
        for search in state.searches
    )


def _bare(sentence: str) -> str:
    return re.sub(r"^\W*(?:\d+(?:\.\d+)*\.?|\([a-z0-9]+\)|[-*•])\s+", "", sentence)


def _evidence_words(demand: Scored, terms: Mapping[str, float], language: str) -> str:
    kept = set(sorted(terms, key=lambda s: -terms[s])[:5])
    out: list[str] = []
    for word in words(_bare(demand.sentence.text), language=language):
        if word.stem in kept:
            kept.discard(word.stem)
            out.append(word.text)
    return " ".join(out)


def _chapter(one: Scored) -> str:
    """The numbered chapter a sentence stands in ('7' of '7.2 …'), else its section or heading."""
    lines = (one.text.text[: one.sentence.start] + one.sentence.text).splitlines()
    for line in reversed(lines):
        match = re.match(r"\W*(\d+)(?:\.\d+)*\.?\s", line.strip())
        if match is not None:
            return match.group(1)
    return one.text.section or _heading(one.text, one.sentence)


def differing(first: str, second: str) -> tuple[Quantity, Quantity] | None:
    """The first pair of quantities of one unit whose values differ, if the texts share no value of that unit."""
    ours, theirs = quantities(first), quantities(second)
    for a in ours:
        same = [b for b in theirs if b.unit == a.unit]
        if same and all(b.value != a.value for b in same):
            return a, same[0]
    return None


def same_subject(first: str, second: str, pair: tuple[Quantity, Quantity] | None, *, language: str) -> bool:
    """False where each of two sentences opens, before the value, with words for its subject that the other lacks."""
    if pair is None:
        return False
    openings = [
        frozenset(
            [w.stem for w in words(said[: quantity.start], language=language) if not w.stem.isdigit()][:_OPENING_WORDS]
        )
        for said, quantity in zip((first, second), pair, strict=True)
    ]
    held = [stems(said, language=language) for said in (first, second)]
    return not (openings[0] - held[1] and openings[1] - held[0])


# the sentences that answer


def _answer(
    draft: _Draft,
    state: State,
    focus: Focus,
    weigh: Weights,
    names: Names,
    scored: list[Scored],
    steps: Trodden | None,
) -> None:
    """Per part of the question the sentences that are evidence for it, else a gap."""
    language = state.language
    near = [one for one in scored if concerns(one.text, focus)]
    block = {hit.document for hit in named_block(state)}
    for clause in questions(clauses(state.question), weigh, language=language):
        if asks_for_summary(clause) and _summary(draft, clause, state, focus, weigh):
            continue
        asked = asked_in(clause, weigh, language=language)
        whole = _ranked(clause, near, state, weigh)
        ranked = [r for r in whole if r[0] > 0]
        if not asked.weights and not asked.kinds:
            ranked = []
        ranked = [
            r
            for r in ranked[:40]
            if supports(
                asked,
                r[1].text,
                r[1].sentence,
                language=language,
                least=LEAST_INSIDE if r[1].text.document in block else LEAST,
            )
        ]
        # Of the document that the question names, where that says something.
        ranked = [r for r in ranked if r[1].text.document in block] or ranked
        taken: list[tuple[int, Scored]] = []
        documents: dict[str, int] = {}
        for score, one in ranked[:12]:
            limit = 2 if not taken or one.text.document == taken[0][1].text.document else 1
            if score < 0.8 * ranked[0][0] or len(taken) >= 4 or documents.get(one.text.document, 0) >= limit:
                continue
            number = draft.quote(Quote(text=one.text, sentence=one.sentence))
            if number is not None:
                documents[one.text.document] = documents.get(one.text.document, 0) + 1
                taken.append((number, one))
        for _, one in list(taken):
            _quote_pointed(draft, one, whole, asked, state, names)
        for i, (first, a) in enumerate(taken):
            for second, b in taken[i + 1 :]:
                pair = differing(a.sentence.text, b.sentence.text)
                ours, theirs = stems(a.sentence.text, language=language), stems(b.sentence.text, language=language)
                alike = len(ours & theirs) / max(1, min(len(ours), len(theirs)))
                of_one = alike >= 0.5 and same_subject(a.sentence.text, b.sentence.text, pair, language=language)
                if pair is not None and of_one and a.text.document != b.text.document:
                    draft.differ(first, second, pair[0], pair[1], a.text, b.text)
        on_the_way = steps is not None and steps.evidence and not asked.sum and (steps.paired or not taken)
        if on_the_way and steps is not None and _quote_steps(draft, whole, asked, steps, done=frozenset(documents)):
            continue
        if not taken:
            reason = _NO_MODEL if asked.sum else _looked(state)
            beside = _metadata_of(clause, state, weigh)
            if beside:
                reason = f"{beside}, which is not text and cannot be quoted; {reason}"
            elif asked.nowhere:
                reason = f"{', '.join(map(repr, asked.nowhere))}: in no document; {reason}"
            draft.lack(_topic(clause), reason)


def _quote_pointed(
    draft: _Draft, one: Scored, ranked: list[tuple[float, Scored]], asked: Asked, state: State, names: Names
) -> None:
    """What a read document says to which a quoted sentence only points; a gap where it says nothing of it."""
    targets = set(pointed(one, names))
    if not targets:
        return
    there = [r[1] for r in ranked if r[1].text.document in targets]
    for other in there:
        said = stems(other.sentence.text, language=state.language)
        fits = not asked.kinds or any(has_value(other.sentence.text, kind) for kind in asked.kinds)
        if fits and said & set(asked.weights) and draft.quote(Quote(text=other.text, sentence=other.sentence)):
            return
    what = "nothing in it answers this" if there else "it was not read"
    draft.lack(_topic(one.sentence.text)[:200], f"points to {', '.join(sorted(targets))}; {what}")


def _metadata_of(clause: str, state: State, weigh: Weights) -> str:
    """'metadata of … has owner: …' where a document that the clause speaks of has a field that it asks for."""
    language = state.language
    asked = {word.stem for word in words(clause, language=language)}
    for text in state.texts:
        if not asked & stems(text.title, language=language):
            continue
        for key, value in text.metadata.items():
            if value.strip() and stems(key.replace("_", " "), language=language) & asked:
                return f"metadata of {text.document} has {key}: {value[:80]}"
    return ""


def _quote_steps(
    draft: _Draft, ranked: list[tuple[float, Scored]], asked: Asked, steps: Trodden, *, done: frozenset[str]
) -> bool:
    """The best sentence of each text on the way, where no sentence alone says all that is asked."""
    subjects = [t.document for t in steps.subjects]
    reached = [t.document for t in steps.reached]
    best: dict[str, Scored] = {}
    for _, one in ranked:
        best.setdefault(one.text.document, one)
    further = [document for document in best if document in reached][:MAX_FURTHER]
    chosen = [one for document, one in best.items() if document in subjects or document in further][:MAX_STEPS]
    if asked.kinds and not any(has_value(one.sentence.text, kind) for one in chosen for kind in asked.kinds):
        return False
    quoted = [
        draft.quote(Quote(text=one.text, sentence=one.sentence)) for one in chosen if one.text.document not in done
    ]
    return any(number is not None for number in quoted)


def _summary(draft: _Draft, clause: str, state: State, focus: Focus, weigh: Weights) -> bool:
    """Quotes the body of the document that is to be summed up: what opens each section; never its title."""
    language = state.language
    weights = asked_in(clause, weigh, language=language).weights
    total = sum(weights.values()) or 1.0

    def fits(text: Text) -> float:
        return sum(w for s, w in weights.items() if s in stems(text.title, language=language)) / total

    texts = [t for t in state.texts if not t.found]
    best = max(texts, key=lambda t: (t.document in focus.titled, t.current, fits(t)), default=None)
    if best is None or (best.document not in focus.titled and fits(best) < 0.5):
        return False
    sections: list[list[Sentence]] = [[]]
    for one in sentences(best.text):
        if is_heading(one):
            sections.append([])
        elif len(words(one.text, language=language)) >= 3:
            sections[-1].append(one)
    sections = [s for s in sections if s]
    most = max(1, 6 // max(1, len(sections)))
    quoted = 0
    for section in sections:
        for one in section[:most]:
            if quoted < 6 and draft.quote(Quote(text=best, sentence=one)) is not None:
                quoted += 1
    return quoted > 0


def _changed(draft: _Draft, state: State, focus: Focus, weigh: Weights, scored: list[Scored]) -> None:
    """The rule beside what a record of changes says of it: words of the rule, the same unit, another value."""
    rule = rule_of(state, scored)
    if rule is None:
        return
    terms = {s: w for s, w in new_terms(with_next(rule, scored), state, focus, weigh).items() if not s.isdigit()}
    figures = {q.value for q in quantities(rule.sentence.text)}
    found: list[tuple[float, Scored, tuple[Quantity, Quantity] | None]] = []
    for one in scored:
        if not is_changelog(f"{one.text.document} {one.text.title}"):
            continue
        # The record names the rule's figure, as the new one or as the one before, or speaks of what is asked.
        linked = any(number in figures for number in numbers(one.sentence.text))
        pair = differing(rule.sentence.text, one.sentence.text)
        shared = stems(one.sentence.text, language=state.language) & set(terms)
        if (linked and (len(shared) >= 2 or one.own >= 0.4)) or (pair is not None and len(shared) >= 2 and one.own > 0):
            weight = sum(terms[s] for s in shared) + 10.0 * one.own + 100.0 * linked
            found.append((weight, one, pair))
    if not found:
        return
    _, change, pair = max(found, key=lambda f: f[0])
    first = draft.quote(Quote(text=rule.text, sentence=rule.sentence))
    second = draft.quote(Quote(text=change.text, sentence=change.sentence))
    if first is not None and second is not None and pair is not None:
        draft.differ(first, second, pair[0], pair[1], rule.text, change.text)


def _ranked(clause: str, scored: list[Scored], state: State, weigh: Weights) -> list[tuple[float, Scored]]:
    """Sentences by how well they answer one part of the question."""
    weights = {s: w for s, w in weigh.of(clause).items() if not s.isdigit()} or dict(weigh.of(clause))
    total = sum(weights.values()) or 1.0
    kinds = wanted(clause)
    found: list[tuple[float, Scored]] = []
    headings: dict[int, list[Sentence]] = {}
    for one in scored:
        said = [word for word in words(one.sentence.text, language=state.language) if not word.stem.isdigit()]
        if len(said) < 3 and is_heading(one.sentence):
            continue
        pieces = headings.setdefault(id(one.text), sentences(one.text.text))
        at = next((i for i, p in enumerate(pieces) if p.start == one.sentence.start), 0)
        around = frozenset[str]().union(
            *(stems(p.text, language=state.language) for p in pieces[max(0, at - 1) : at + 2])
        )
        # A document is about what it is called: its sentences need not say that, and others' gain little by saying it.
        called = f"{one.text.document.replace('/', ' ').replace('-', ' ')} {one.text.title}"
        named = stems(called, language=state.language)
        own = stems(one.sentence.text, language=state.language)
        own |= named if own & weights.keys() else frozenset()
        title = named | stems(_heading(one.text, one.sentence), language=state.language)
        score = (
            0.6 * sum(w for s, w in weights.items() if s in own)
            + 0.25 * sum(w for s, w in weights.items() if s in around)
            + 0.15 * sum(w for s, w in weights.items() if s in title)
        ) / total
        if kinds:
            score *= 1.15 if any(has_value(one.sentence.text, kind) for kind in kinds) else 0.7
        if not one.text.current:
            score *= 0.85
        found.append((score, one))
    found.sort(key=lambda f: -f[0])
    return found
