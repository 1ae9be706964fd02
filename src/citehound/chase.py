"""The chase: several hops in one call, without a model, from seeds over links and names to what a question needs.

It reads an index through its `Trail` and ranks passages; it opens no index, and knows no corpus and no model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log

from .embedding import Vectors
from .index.links import Mention, Name, content_words
from .index.trail import Page, Place, Trail

SEEDS = 6
"""Passages from which hops start."""
SPANS = 12
"""Names that are followed from one seed."""
_POOL = 30
_TITLE_SEEDS = 4
_MOST_INSIDE = 1500
LONG = 2
"""Passages from which on a document is searched inside when the question names it."""
SURE = 0.4
"""Of 1: how well a part of the question must match a long document's title and opening."""
AS_SURE = 0.95
"""Of the surest document's measure: from here on another bears the name as well."""
ELSEWHERE = 20
"""Words that would meet by chance in so many times more passages than the document has do not name it."""
NEAR = 0.15
"""What of its neighbours' scores counts for a passage of a document that is searched inside."""
BESIDE = 0.25
"""What a passage that is taken there adds of its own to its neighbours."""
BESIDE_MARKS = 0.5
"""What a capitalised word counts beside a name in quotes."""
_PER_NAME = 6
_PER_MEANING = 3


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a passage was reached."""

    kind: str
    """"search", "named" (the question names it), "link" (a text names it) or "name" (it is about a name in a text)."""
    document: str | None = None
    section: str | None = None
    """Where the pointer stands."""
    said: str = ""
    """The name or reference as it stands there."""

    def __str__(self) -> str:
        if self.document is None:
            return "named in the question" if self.kind == "named" else "found by the question's words"
        at = f" §{self.section}" if self.section else ""
        return f"via {self.document}{at}: {self.said!r}"


@dataclass(frozen=True, kw_only=True)
class Reached:
    """A passage that the chase gives, with its score and the way to it."""

    page: Page
    score: float
    firm: float
    """The score without what vectors add to it, which is there for any question: for `FIRM`."""
    way: Way


@dataclass
class _Candidate:
    """What speaks for a passage, as far as it is known."""

    place: Place
    b: float = 0.0
    ps: float = 0.0
    tm: float = 0.0
    lrc: float = 0.0
    ent: float = 0.0
    dense: float = 0.0
    out: float = 0.0
    link: float = 0.0
    inside: float = 0.0
    way: Way = field(default_factory=lambda: Way(kind="search"))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A question as the chase sees it."""

    text: str
    weights: Mapping[str, float]
    """Stem to inverse document frequency."""
    words: Mapping[str, str]
    rest: Mapping[str, float]
    """The weights of the words that are not part of a document's name."""
    mentions: tuple[Mention, ...]


_WORD = re.compile(r"[^\W_]+")


def _kin(asked: str, there: str) -> float:
    """1 where one stem is made from the other ('direct', 'director'), which tells a relation; .8 where they are one."""
    if asked == there:
        return 0.8
    short, long = (asked, there) if len(asked) <= len(there) else (there, asked)
    return 1.0 if len(short) >= 5 and long.startswith(short) else 0.0


WEIGHTS: dict[str, float] = {
    "b": 1.25,
    "cov": 0.25,
    "rest": 1.0,
    "title": 1.25,
    "seed": 1.0,
    "named": 4.0,
    "link": 1.75,
    "cue": 2.0,
    "name": 4.5,
    "dense": 1.0,
    "out": 0.5,
    "inside": 15.0,
}
"""What each sign of a passage counts; one set of weights for every corpus."""


FIRM = 4.5
"""Score, in these weights and without vectors, below which little more than the question's words hold a passage."""
ALONE = "at most one text stands firm"
"""What is said where no second passage does."""


class _Chase:
    trace: list[tuple[Place, dict[str, float]]] | None = None

    def __init__(self, trail: Trail, question: str) -> None:
        self.trail = trail
        self.asked = self._ask(question)
        self.found: dict[Place, _Candidate] = {}
        self._idf: dict[str, float] = {}

    # what things weigh

    def idf(self, stem: str) -> float:
        known = self._idfs.get(stem)
        if known is None:
            n = max(1, self.trail.passages)
            frequency = min(n, self.trail.frequency(stem))
            known = self._idfs[stem] = log(1 + (n - frequency + 0.5) / (frequency + 0.5))
        return known

    _idfs: dict[str, float]

    def _ask(self, question: str) -> _Asked:
        self._idfs = {}
        stems = dict(content_words(question, self.trail.language))
        mentions = tuple(self.trail.mentions(question, capitalised=False))
        names = [(m.start, m.end) for m in mentions if m.words > 1 or (m.capitalised and not m.opens)]
        weights = {s: self.idf(s) for s in stems if self.trail.frequency(s)}
        return _Asked(
            text=question,
            weights=weights,
            words={s: word.group() if (word := _WORD.match(question, at)) else s for s, at in stems.items()},
            rest={s: w for s, w in weights.items() if not any(start <= stems[s] < end for start, end in names)},
            mentions=mentions,
        )

    def candidate(self, place: Place) -> _Candidate:
        known = self.found.get(place)
        if known is None:
            known = self.found[place] = _Candidate(place=place)
        return known

    def share(self, weights: Mapping[str, float], held: Iterable[str] | frozenset[str]) -> float:
        total = sum(weights.values())
        return sum(w for s, w in weights.items() if s in held) / total if total else 0.0

    def title_share(self, page: Page, *held: frozenset[str] | Mapping[str, float]) -> float:
        """The share of the title's weight that is held."""
        weights = {s: self.idf(s) for s in page.wording.title}
        total = sum(weights.values())
        return sum(w for s, w in weights.items() if any(s in h for h in held)) / total if total else 0.0

    # the steps

    def run_from(self, row: int, *, k: int, per_document: int) -> list[Reached]:
        """Where one document leads: its passages nearest to the question are the seeds, and are not given."""
        asked = self.asked
        if not asked.words:
            return []
        vectors = self.trail.embed([asked.text])
        near = inside(self.trail, row, frozenset(asked.weights), asked.text)[:SEEDS] or [((row, 0), 1.0)]
        for place, value in near:
            page = self.trail.page(place)
            if page is not None:
                self._hop(page, value, {}, titles=False)
        cosines = {} if vectors is None else dict(self.trail.similar(vectors[0], limit=_POOL))
        self.found = {place: c for place, c in self.found.items() if place[0] != row and (c.link or c.ent)}
        return self._ranked({}, cosines, k=k, per_document=per_document)

    def run(self, *, k: int, per_document: int) -> list[Reached]:
        asked = self.asked
        if not asked.words:
            return []
        first = self.trail.ranked(dict.fromkeys(asked.weights, 1.0), limit=200)
        best = first[0][1] if first else 1.0
        b = {place: score / best for place, score in first}
        for place, _ in first[:_POOL]:
            self.candidate(place).b = b[place]
        vectors = self.trail.embed([asked.text])
        cosines = {} if vectors is None else dict(self.trail.similar(vectors[0], limit=_POOL))
        for place in list(cosines)[:10]:
            self.candidate(place)
        self._mentioned(b)
        self._long(vectors)
        seeds = self._seeds(b)
        for order, (seed, weight) in enumerate(seeds):
            self._hop(seed, weight, b, titles=order < _TITLE_SEEDS)
        return self._ranked(b, cosines, k=k, per_document=per_document)

    def _mentioned(self, b: Mapping[Place, float]) -> None:
        """Documents that the question names."""
        self.best_named: dict[Place, float] = {}
        for mention in self.asked.mentions:
            weight = 1.0 if mention.words > 1 else 0.3 if mention.opens else 0.7
            weight *= 1.0 if mention.capitalised else 0.4
            places: list[tuple[float, Place, float]] = []
            for row, called in mention.documents[:20]:
                place = self._entry(row, b)
                places.append((b.get(place, 0.0), place, weight * called))
            for _, place, value in places:
                candidate = self.candidate(place)
                if value > candidate.tm:
                    candidate.tm = value
                    candidate.way = Way(kind="named")
            if places:
                _, place, value = max(places, key=lambda p: (p[0], p[2]))
                self.best_named[place] = max(value, self.best_named.get(place, 0.0))

    def _long(self, vectors: Vectors | None) -> None:
        """Where the question names a long document, the passages inside it are ranked by its own measure."""
        named = named_documents(self.trail, self.asked.text)
        if len(named) > 2 and named[2].sure >= AS_SURE * named[0].sure:
            return  # What many bear names none of them.
        for one in named[:2]:
            strength = (one.sure / named[0].sure) ** 2
            for place, value in inside(self.trail, one.row, one.rest, one.asked):
                candidate = self.candidate(place)
                if strength * value > candidate.inside:
                    candidate.inside = strength * value
                    candidate.way = Way(kind="named")

    def _entry(self, row: int, b: Mapping[Place, float]) -> Place:
        """The passage of a document by which it is entered: the best for the question, else the first."""
        known = [(score, place) for place, score in b.items() if place[0] == row]
        return max(known)[1] if known else (row, 0)

    def _seeds(self, b: Mapping[Place, float]) -> list[tuple[Page, float]]:
        scored = sorted(
            ((0.5 * b.get(p, 0.0) + 0.5 * self.best_named.get(p, 0.0) + 0.1 * c.tm, p) for p, c in self.found.items()),
            key=lambda s: (-s[0], s[1]),
        )
        top = scored[0][0] if scored else 1.0
        seeds: list[tuple[Page, float]] = []
        for score, place in scored[:SEEDS]:
            page = self.trail.page(place)
            if page is None or score <= 0:
                continue
            self.candidate(place).ps = score / top
            seeds.append((page, score / top))
        return seeds

    def _hop(self, seed: Page, ps: float, b: Mapping[Place, float], *, titles: bool) -> None:
        asked = self.asked
        held = seed.wording.held
        residual = {s: w for s, w in asked.weights.items() if s not in held}
        lacking = self.trail.ranked(dict.fromkeys(residual, 1.0), limit=200) if residual else []
        top = lacking[0][1] if lacking else 1.0
        rb = {place: score / top for place, score in lacking}
        if titles and seed.wording.title:
            for place, _ in self.trail.ranked(dict.fromkeys(seed.wording.title, 1.0), limit=8):
                self.candidate(place)
        cues = self._cues(seed, residual)
        self._links(seed, ps, residual, cues)
        self._names(seed, ps, residual, rb, cues)

    def _cues(self, seed: Page, residual: Mapping[str, float]) -> dict[str, float]:
        """How far each word of a seed means what is still looked for: by its stem, or as its vector tells."""
        if not residual:
            return {}
        written: dict[str, str] = {}
        for stem, start in zip(seed.wording.stems, seed.wording.starts, strict=True):
            if stem not in written:
                match = _WORD.match(seed.text, start)
                written[stem] = match.group() if match is not None else stem
        found = {stem: max((_kin(asked, stem) for asked in residual), default=0.0) for stem in written}
        vectors = self.trail.embed([*(self.asked.words[s] for s in residual), *written.values()])
        if vectors is not None:
            likeness = (vectors[len(residual) :] @ vectors[: len(residual)].T).max(axis=1)
            for stem, cosine in zip(written, likeness.tolist(), strict=True):
                found[stem] = max(found[stem], min(1.0, max(0.0, (cosine - 0.2) * 3.0)))
        return found

    @staticmethod
    def _cue(cues: Mapping[str, float], seed: Page, start: int, end: int) -> float:
        return max((cues.get(stem, 0.0) for stem in seed.wording.around(start, end)), default=0.0)

    def _links(self, seed: Page, ps: float, residual: Mapping[str, float], cues: Mapping[str, float]) -> None:
        for n, mention in enumerate(self.trail.mentions(seed.text, capitalised=True)):
            cue = self._cue(cues, seed, mention.start, mention.end)
            rows = [r for r in mention.documents if r[0] != seed.place[0]]
            for row, weight in rows[:8]:
                place: Place = (row, 0)
                page = self.trail.page(place)
                if page is None:
                    continue
                cov = self.share(residual, page.wording.held)
                value = ps * weight * (0.5 + 0.3 * cue + 0.2 / (1 + n) + 0.5 * cov)
                candidate = self.candidate(place)
                if value > candidate.link:
                    candidate.link = value
                    candidate.lrc = ps * weight * cue
                    if candidate.way.kind == "search" and place not in self.first:
                        candidate.way = self._way("link", seed, seed.text[mention.start : mention.end])

    first: frozenset[Place] = frozenset()

    def _way(self, kind: str, seed: Page, said: str) -> Way:
        return Way(kind=kind, document=seed.head.document, section=seed.section, said=said)

    def _names(
        self,
        seed: Page,
        ps: float,
        residual: Mapping[str, float],
        rb: Mapping[Place, float],
        cues: Mapping[str, float],
    ) -> None:
        known = set(self.asked.weights) | set(seed.wording.title)
        spans: dict[tuple[str, ...], Name] = {}
        for name in seed.wording.names:
            stems = tuple(s for s, _ in content_words(name.text, seed.head.language))
            if stems and not all(s in known for s in stems):
                spans.setdefault(stems, name)
            if len(spans) >= SPANS:
                break
        out = self.candidate(seed.place)
        rest = " ".join(self.asked.words[s] for s in residual)
        vectors = self.trail.embed([f"{name.text} {rest}" for name in spans.values()]) if spans else None
        for number, (stems, name) in enumerate(spans.items()):
            weights = {s: self.idf(s) for s in stems if self.trail.frequency(s)}
            whole = sum(weights.values())
            if not whole:
                continue
            ranked = self.trail.ranked(dict.fromkeys(weights, 1.0), limit=25)
            if not ranked:
                continue
            top = ranked[0][1]
            near = sorted(ranked, key=lambda r: (-(r[1] / top + 0.7 * rb.get(r[0], 0.0)), r[0]))[:_PER_NAME]
            cosines: dict[Place, float] = {}
            if vectors is not None:
                places = [place for place, _ in ranked]
                cosines = dict(
                    zip(places, self.trail.likeness(vectors[number : number + 1], places)[0].tolist(), strict=True)
                )
                also = sorted(ranked, key=lambda r: (-cosines[r[0]], r[0]))[:_PER_MEANING]
                near = list(dict.fromkeys([*near, *also]))
            cue = self._cue(cues, seed, name.start, name.end)
            scarce = 0.4 + 0.6 * min(whole, 16.0) / 16.0
            for place, score in near:
                if place == seed.place:
                    continue
                page = self.trail.page(place)
                if page is None:
                    continue
                held = page.wording.held
                ecov = sum(w for s, w in weights.items() if s in held) / whole
                if ecov < 0.5:
                    continue
                tq = self.title_share(page, frozenset(weights), self.asked.weights)
                cov = self.share(residual, held)
                sen = max(
                    (self.share(weights, s) * self.share(residual, s) for s in page.wording.sentences), default=0.0
                )
                strength = rb.get(place, 0.0)
                raw = (
                    ecov
                    * (
                        0.2 * score / top
                        + 0.2 * cue
                        + 0.4 * strength
                        + 0.3 * tq
                        + 0.5 * cov
                        + 0.5 * sen
                        + 0.5 * max(0.0, cosines.get(place, 0.0))
                    )
                    * scarce
                )
                candidate = self.candidate(place)
                if ps * raw > candidate.ent:
                    candidate.ent = ps * raw
                    if candidate.way.kind == "search":
                        candidate.way = self._way("name", seed, name.text)
                out.out = max(out.out, raw * (0.3 + cov))

    def _ranked(
        self, b: Mapping[Place, float], cosines: Mapping[Place, float], *, k: int, per_document: int
    ) -> list[Reached]:
        asked = self.asked
        reached: list[_Ranked] = []
        for place, c in self.found.items():
            page = self.trail.page(place)
            if page is None:
                continue
            values = {
                "b": b.get(place, 0.0),
                "cov": self.share(asked.weights, page.wording.held),
                "rest": self.share(asked.rest, page.wording.held),
                "title": self.title_share(page, asked.weights),
                "seed": c.ps,
                "named": c.tm,
                "link": c.link,
                "cue": c.lrc,
                "name": c.ent,
                "dense": cosines.get(place, 0.0),
                "out": c.out,
                "inside": c.inside,
            }
            score = sum(WEIGHTS[key] * value for key, value in values.items())
            if self.trace is not None:
                self.trace.append((place, values))
            firm = score - WEIGHTS["dense"] * values["dense"]
            reached.append(_Ranked(score=score, firm=firm, page=page, candidate=c))
        reached = _inside_order(reached)
        reached.sort(key=lambda r: (-r.score, r.page.place))
        kept: list[Reached] = []
        count: dict[int, int] = {}
        for one in reached:
            if len(kept) >= k:
                break
            # The passages of a document that the question names are what is asked for.
            row = one.page.place[0]
            if count.get(row, 0) < per_document or one.candidate.inside:
                count[row] = count.get(row, 0) + 1
                kept.append(Reached(page=one.page, score=one.score, firm=one.firm, way=one.candidate.way))
        return kept


@dataclass(frozen=True, kw_only=True)
class _Ranked:
    score: float
    firm: float
    page: Page
    candidate: _Candidate


def _inside_order(reached: Sequence[_Ranked]) -> list[_Ranked]:
    """Passages of a document that is searched inside keep the scores they have together, in its own order."""
    groups: dict[int, list[int]] = {}
    for n, one in enumerate(reached):
        if one.candidate.inside:
            groups.setdefault(one.page.place[0], []).append(n)
    result = list(reached)
    for members in groups.values():
        scores = sorted((reached[n].score for n in members), reverse=True)
        order = sorted(members, key=lambda n: (-reached[n].candidate.inside, reached[n].page.place))
        for score, n in zip(scores, order, strict=True):
            result[n] = replace(reached[n], score=score)
    return result


# documents named, and the passages inside them

_CLAUSE = re.compile(
    r"[;:?!]\s+|,\s+(?=(?:what|which|who|when|where|how|does|do|is|are|can|may|must|and)\b)", re.IGNORECASE
)
_MARKED = re.compile(r"[\"“„«]([^\"“”„«»\n]{2,80})[\"”“»]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
_HEADING = re.compile(
    r"^\W*(?:(?:section|article|clause|§)?\s*\d+(?:\.\d+)*[.)]?|\([a-z0-9]+\))?\s*([A-ZÀ-Þ][^.:;\n]{2,70})(?=[.:;]|$)",
    re.MULTILINE | re.IGNORECASE,
)
_MEANS = re.compile(
    r"[\"“„«]([^\"“”„«»\n]{2,60})[\"”“»][^.;\n]{0,40}?"
    r"\b(?:means?|shall mean|has the meaning|bedeutet|significa|désigne)\b"
)


@dataclass(frozen=True, kw_only=True)
class Named:
    """A long document that a part of the question names."""

    row: int
    sure: float
    """How surely, of 1."""
    rest: frozenset[str]
    """Stems that are asked of it."""
    asked: str
    """The question without the part that names it."""


def named_documents(trail: Trail, question: str) -> list[Named]:
    """Long documents that a part of the question names, surest first.

    A name is capitalised or quoted; its words weigh what tells the likeliest documents apart.
    """
    parts = [p for p in _CLAUSE.split(question) if p and p.strip()]
    clauses = [frozenset(s for s, _ in content_words(part, trail.language)) for part in parts]
    whole = frozenset[str]().union(*clauses)
    found: dict[int, Named] = {}
    for clause, part in zip(clauses, parts, strict=True):
        words = content_words(part, trail.language)
        called = {s for s, at in words if at > 0 and _capital(part, at)}
        if not called:
            continue
        marks = [match.span(1) for match in _MARKED.finditer(part)]
        marked = {s for s, at in words if s in called and any(start <= at < end for start, end in marks)}
        # What stands in quotes is a name more surely than what is only capitalised beside it.
        factors = {s: 0.3 for s, _ in words} | dict.fromkeys(called, BESIDE_MARKS if marked else 1.0)
        factors |= dict.fromkeys(marked, 1.0)
        joined = [s for s in _joined([s for s, _ in words]) if s not in factors]
        factors |= dict.fromkeys((s for s in joined if trail.frequency(s)), 1.0)
        ranked = trail.ranked({s: f for s, f in factors.items() if trail.frequency(s)}, limit=400)
        rows = list(dict.fromkeys(row for (row, _), _ in ranked))[:40]
        pages: list[tuple[Page, int, frozenset[str]]] = []
        for row in rows:
            head = trail.head(row)
            page = trail.page((row, 0)) if head is not None and head.passages >= LONG else None
            if head is not None and page is not None:
                pages.append((page, head.passages, _title_words(page)))
        count = {s: sum(1 for page, _, title in pages if s in page.wording.held or s in title) for s in factors}
        weights = {
            s: f * _scarcity(len(pages), count[s], trail.passages, trail.frequency(s))
            for s, f in factors.items()
            if count[s] or (s in called and s not in joined)
        }
        total = sum(w for s, w in weights.items() if s not in joined)
        if not total:
            continue
        for page, passages, title in pages:
            naming = {s for s in (called | set(joined)) & title if not s.isdigit()}
            if not naming or _chance(trail, naming) > ELSEWHERE * passages:
                continue  # Numbers, words of its opening alone, or that stand nearly everywhere, name no document.
            share = min(1.0, sum(w for s, w in weights.items() if s in title) / total)
            opening = min(1.0, sum(w for s, w in weights.items() if s in page.wording.held or s in title) / total)
            score = (2.0 * share + opening) / 3.0
            row = page.place[0]
            if score >= SURE and (row not in found or score > found[row].sure):
                asked = " ".join(other for other in parts if other is not part) if whole - clause else question
                found[row] = Named(row=row, sure=score, rest=(whole - clause) or (whole - title), asked=asked)
    return sorted(found.values(), key=lambda one: (-one.sure, one.row))


def _scarcity(among: int, count: int, passages: int, frequency: int) -> float:
    """What a word tells of the likeliest documents; one that none of them has, no more than it tells of the corpus."""
    local = log(1 + (among - count + 0.5) / (count + 0.5))
    return local if count else min(local, log(1 + passages / max(1, frequency)))


def _chance(trail: Trail, stems: Iterable[str]) -> float:
    """In how many passages these words would meet if they knew nothing of each other."""
    expected = float(max(1, trail.passages))
    for stem in stems:
        expected *= max(1, trail.frequency(stem)) / max(1, trail.passages)
    return expected


def _title_words(page: Page) -> frozenset[str]:
    """The words of a title, also those that are written as one ('AcmeBetaTesters')."""
    apart = _CAMEL.sub(" ", page.head.title)
    return frozenset(page.wording.title) | frozenset(s for s, _ in content_words(apart, page.head.language))


def _capital(text: str, at: int) -> bool:
    word = _WORD.match(text, at)
    return word is not None and not word.group().islower()


def _joined(stems: Sequence[str]) -> list[str]:
    """Two neighbours written as one: 'eulerhermes'."""
    return [a + b for a, b in pairwise(stems)]


def inside(trail: Trail, row: int, stems: frozenset[str], question: str) -> list[tuple[Place, float]]:
    """The passages of one document by its own word frequencies, headings, definitions, meaning and neighbours."""
    head = trail.head(row)
    pages = [trail.page((row, n)) for n in range(min(head.passages, _MOST_INSIDE))] if head is not None else []
    known = [page for page in pages if page is not None]
    if not known or not stems:
        return []
    count = {s: sum(1 for p in known if s in p.wording.held) for s in stems}
    weights = {s: log(1 + (len(known) - n + 0.5) / (n + 0.5)) for s, n in count.items() if n}
    total = sum(weights.values()) or 1.0
    mean = sum(len(p.wording.stems) for p in known) / len(known) or 1.0
    scores: list[float] = []
    for page in known:
        length = len(page.wording.stems)
        score = 0.0
        for stem, weight in weights.items():
            tf = page.wording.stems.count(stem)
            score += weight * 2.2 * tf / (tf + 1.2 * (0.25 + 0.75 * length / mean))
        scores.append(score)
    top = max(scores) or 1.0
    scores = [score / top for score in scores]
    vectors = trail.embed([question])
    if vectors is not None:
        cosines = trail.likeness(vectors, [p.place for p in known])[0].tolist()
        best = max(0.05, *cosines)
        scores = [score + max(0.0, cosine / best) for score, cosine in zip(scores, cosines, strict=True)]
    for n, page in enumerate(known):
        headed = frozenset(
            s for m in _HEADING.finditer(page.text) for s, _ in content_words(m.group(1), trail.language)
        )
        scores[n] += 0.3 * sum(w for s, w in weights.items() if s in headed) / total
        for match in _MEANS.finditer(page.text):
            term = [s for s, _ in content_words(match.group(1), trail.language)]
            if term and all(s in weights for s in term):
                scores[n] += 1.0
                break
    padded = [0.0, *scores, 0.0]
    return _taken([padded[n + 1] + NEAR * (padded[n] + padded[n + 2]) for n in range(len(known))], known)


def _taken(scores: list[float], pages: Sequence[Page]) -> list[tuple[Place, float]]:
    """The best passages in turn, scores over the first's; what a text says runs on, so each taken raises its
    neighbours."""
    own = list(scores)
    open_ = set(range(len(pages)))
    found: list[tuple[Place, float]] = []
    top = max(own) or 1.0
    last = 1.0
    while open_ and len(found) < _POOL:
        n = max(open_, key=lambda n: (own[n], -n))
        open_.remove(n)
        last = min(last, own[n] / top)
        found.append((pages[n].place, last))
        for beside in (n - 1, n + 1):
            if beside in open_:
                own[beside] += BESIDE * scores[n]
    return found


def chase(
    trail: Trail, question: str, *, k: int = 10, per_document: int = 2, start: int | None = None
) -> list[Reached]:
    """The `k` passages that the question most likely needs, best first, at most `per_document` of each document.

    With `start`, a document's row, only where that document leads.
    """
    hunt = _Chase(trail, question)
    if start is not None:
        return hunt.run_from(start, k=k, per_document=per_document)
    return hunt.run(k=k, per_document=per_document)
