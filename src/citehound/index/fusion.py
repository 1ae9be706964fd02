"""Brings the ranks of words and of vectors together; it searches nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """How the two legs of a search count; chosen on dev data (docs/decisions/0021-dense.md)."""

    dense: float = 0.4
    """Of the cosine, beside the score by words as a share of the best one (so between 0 and 1). With 0 vectors bring
    passages only where words bring too few."""
    floor: float = 0.5
    """A passage that has none of the query's words is a hit only with at least this cosine."""
    keep: int = 6
    """The first so many hits by words stay the first, in their order."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A passage that one of the legs, or both, brought."""

    key: int
    score: float
    """What it is ranked by."""
    words: float | None
    """Score by words; None when that leg did not bring it."""
    words_rank: int | None
    """From 1."""
    cosine: float | None
    dense_rank: int | None
    """From 1; None when it is not among the nearest."""
    below_floor: bool = False
    """Not to be shown: near nothing, and without a word of the query."""


def fuse(
    words: Sequence[tuple[int, float]],
    dense: Sequence[tuple[int, float]],
    *,
    cosines: Mapping[int, float],
    weights: Weights,
    document: Callable[[int], int] = lambda key: key,
    words_only: bool = False,
    kept: Collection[int] = (),
) -> list[Candidate]:
    """Both legs' passages, best first, equal ones by key.

    `words` and `dense` are (key, score), best first; `cosines` has those of every passage that words brought. What has
    words counts with the cosine of its document's nearest passage: one passage may have the words, and another one say
    what is meant. With `words_only` vectors change the order, and bring nothing of their own. Passages that are `kept`
    count as if their cosine were 1, so that none gets past one that has fewer words.
    """
    best = max((score for _, score in words), default=0.0) or 1.0
    ranks = {key: at for at, (key, _) in enumerate(dense, start=1)}
    nearest: dict[int, float] = {}
    """By document."""
    for key, cosine in (*cosines.items(), *dense):
        nearest[document(key)] = max(cosine, nearest.get(document(key), cosine))
    found: list[Candidate] = []
    for at, (key, score) in enumerate(words, start=1):
        cosine = cosines[key]
        found.append(
            Candidate(
                key=key,
                score=score / best + weights.dense * (1.0 if key in kept else nearest[document(key)]),
                words=score,
                words_rank=at,
                cosine=cosine,
                dense_rank=ranks.get(key),
            )
        )
    known = {key for key, _ in words}
    for at, (key, cosine) in enumerate(dense, start=1):
        if key not in known:
            found.append(
                Candidate(
                    key=key,
                    score=weights.dense * cosine,
                    words=None,
                    words_rank=None,
                    cosine=cosine,
                    dense_rank=at,
                    below_floor=words_only or cosine < weights.floor,
                )
            )
    found.sort(key=lambda c: (-round(c.score, 6), c.key))
    return found


def shared_out(
    found: Sequence[T], k: int, *, source: Callable[[T], str], open_sources: Collection[str] = ()
) -> list[T]:
    """The first `k` that are found in several sources, in their order, so that none crowds the others out.

    A source has at most half of them as long as another one has any to take the place. One that many people can write
    has at most as many as all others together, when these have any.
    """
    present = Counter(source(one) for one in found)
    if len(present) < 2:
        return list(found[:k])
    half = max(1, k // 2)
    count: Counter[str] = Counter()
    taken: list[int] = []
    spare: list[int] = []
    for at, one in enumerate(found):
        if len(taken) < k and count[source(one)] < half:
            count[source(one)] += 1
            taken.append(at)
        else:
            spare.append(at)
    for at in spare:
        name = source(found[at])
        if len(taken) < k and not (name in open_sources and count[name] >= len(taken) - count[name]):
            count[name] += 1
            taken.append(at)
    for name in open_sources:
        while count[name] > len(taken) - count[name] > 0:
            last = max(at for at in taken if source(found[at]) == name)
            taken.remove(last)
            count[name] -= 1
    return [found[at] for at in sorted(taken)]
