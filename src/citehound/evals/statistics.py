"""Means with intervals, paired comparison and pass^k; seeded, so that the same values give the same report."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

_RESAMPLES = 2000
_PERMUTATIONS = 10_000
_EXACT = 12
"""Up to this many differing pairs, all sign changes are counted instead of sampled."""
NOISE = 0.05
"""A difference with a larger p is called noise."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A mean over cases with its 95 % interval. `n`: cases with a value."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two ways on the same cases: mean of `other - base` over the pairs, and how likely chance alone does as much."""

    difference: float
    p: float
    pairs: int

    @property
    def is_noise(self) -> bool:
        return self.p > NOISE


def mean(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a sample; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (len(values) - 1))


def summary(values: Sequence[float], *, seed: int = 0) -> Summary | None:
    """Mean and percentile bootstrap interval (Efron and Tibshirani 1993); None of nothing."""
    middle = mean(values)
    if middle is None:
        return None
    if len(set(values)) == 1:
        return Summary(mean=middle, low=middle, high=middle, n=len(values))
    chance = random.Random(seed)
    means = sorted(math.fsum(chance.choices(values, k=len(values))) / len(values) for _ in range(_RESAMPLES))
    cut = int(0.025 * _RESAMPLES)
    return Summary(mean=middle, low=means[cut], high=means[-1 - cut], n=len(values))


def compare(base: Sequence[float], other: Sequence[float], *, seed: int = 0) -> Comparison | None:
    """A paired two-sided permutation test of the mean difference; None without pairs.

    Under the null hypothesis the sign of each difference is chance (Fisher's randomisation test).
    """
    differences = [o - b for b, o in zip(base, other, strict=True)]
    if not differences:
        return None
    observed = math.fsum(differences)
    moved = [d for d in differences if d]
    result = observed / len(differences)
    if not moved:
        return Comparison(difference=result, p=1.0, pairs=len(differences))
    limit = abs(observed) - 1e-12
    if len(moved) <= _EXACT:
        signs = itertools.product((1, -1), repeat=len(moved))
        sums = [abs(math.fsum(s * d for s, d in zip(row, moved, strict=True))) for row in signs]
        p = sum(total >= limit for total in sums) / len(sums)
    else:
        chance = random.Random(seed)
        hits = sum(
            abs(math.fsum(d if chance.random() < 0.5 else -d for d in moved)) >= limit for _ in range(_PERMUTATIONS)
        )
        p = (hits + 1) / (_PERMUTATIONS + 1)
    return Comparison(difference=result, p=p, pairs=len(differences))


def pass_hat(successes: int, *, of: int, k: int) -> float | None:
    """pass^k: the chance that k tries out of `of`, drawn without replacement, all succeed. None when k > of.

    Unbiased estimator of Yao et al., tau-bench (2024).
    """
    if not 1 <= k <= of:
        return None
    return math.comb(successes, k) / math.comb(of, k)
