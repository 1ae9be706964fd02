"""Ranks the passages of one document for a query: words, headings, definitions, meaning, neighbours; it finds none."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .analysis import analyse, known_language, query_terms
from .functionwords import FUNCTION_WORDS

HEADING = 0.3
DEFINITION = 1.0
DENSE = 1.0
NEIGHBOUR = 0.3
_K1 = 1.2
_B = 0.75
_DEFINED = re.compile(
    r"[\"“”„«'‘]([^\"“”„«»'’\n]{2,80})[\"“”»'’]\s*(?:\([^)\n]{0,60}\)\s*)?(?:\w+\s+){0,3}?"
    r"(?:mean|refer|denote|defin|bedeut|bezeichn|désign|signifi|signific|entiend|entend)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The words of a document's passages, kept between queries."""

    bodies: tuple[Counter[str], ...]
    headings: tuple[Counter[str], ...]
    defined: tuple[tuple[frozenset[str], ...], ...]
    """By passage: the words of each term that it defines."""
    language: str

    @classmethod
    def of(cls, passages: Sequence[tuple[str, str]], *, language: str) -> Contents:
        """`passages` are (heading, text), in order."""
        code = known_language(language)
        return cls(
            bodies=tuple(Counter(analyse(text, code).stems) for _, text in passages),
            headings=tuple(Counter(analyse(heading, code).stems) for heading, _ in passages),
            defined=tuple(
                tuple(frozenset(analyse(term, code).stems) for term in _DEFINED.findall(text)) for _, text in passages
            ),
            language=code,
        )


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A passage by its place in the document."""

    ordinal: int
    score: float
    words: float
    """Share of the best score by words; 0 where none of the query's words stands in it or its heading."""


def rank(contents: Contents, query: str, *, cosines: Sequence[float] | None = None) -> list[Ranked]:
    """Every passage, best first, equal ones in the order of the text. `cosines` are those of query and passages."""
    empty = FUNCTION_WORDS.get(contents.language, frozenset())
    terms = [term for term in query_terms(query, [contents.language]) if term.stems]
    stems = [term.stems[0] for term in terms if term.exact not in empty] or [term.stems[0] for term in terms]
    words = _share(_bm25(contents.bodies, stems))
    headings = _share(_bm25(contents.headings, stems))
    asked = set(stems)
    base: list[float] = []
    for at, _ in enumerate(contents.bodies):
        score = words[at] + HEADING * headings[at]
        if cosines is not None:
            score += DENSE * cosines[at]
        if any(term and term <= asked for term in contents.defined[at]):
            score += DEFINITION
        base.append(score)
    found: list[Ranked] = []
    for at, score in enumerate(base):
        around = (base[at - 1] if at else 0.0) + (base[at + 1] if at + 1 < len(base) else 0.0)
        found.append(Ranked(ordinal=at, score=score + NEIGHBOUR * around, words=max(words[at], headings[at])))
    found.sort(key=lambda r: (-round(r.score, 6), r.ordinal))
    return found


def _bm25(passages: Sequence[Counter[str]], stems: Sequence[str]) -> list[float]:
    """BM25 with the frequencies of this one document."""
    total = len(passages)
    lengths = [sum(passage.values()) for passage in passages]
    average = sum(lengths) / total if total else 0.0
    scores = [0.0] * total
    for stem in dict.fromkeys(stems):
        having = [at for at, passage in enumerate(passages) if stem in passage]
        rarity = math.log(1 + (total - len(having) + 0.5) / (len(having) + 0.5))
        for at in having:
            times = passages[at][stem]
            length = lengths[at] / average if average else 1.0
            scores[at] += rarity * times * (_K1 + 1) / (times + _K1 * (1 - _B + _B * length))
    return scores


def _share(scores: Sequence[float]) -> list[float]:
    best = max(scores, default=0.0)
    return [score / best for score in scores] if best > 0 else list(scores)
