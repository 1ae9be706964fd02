"""Means with intervals, paired comparison and pass^k, against values worked out by hand."""

from __future__ import annotations

import pytest

from citehound.evals.statistics import compare, mean, pass_hat, spread, summary


def test_a_mean_of_nothing_is_unknown() -> None:
    assert mean([]) is None
    assert summary([]) is None
    assert compare([], []) is None


def test_the_interval_holds_the_mean_and_is_the_same_each_time() -> None:
    values = [0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    one, two = summary(values), summary(values)
    assert one == two
    assert one is not None
    assert one.mean == 0.75
    assert 0.3 < one.low < 0.75 < one.high <= 1.0
    assert one.n == 8


def test_equal_values_have_an_interval_without_width() -> None:
    found = summary([0.5, 0.5, 0.5])
    assert found is not None
    assert (found.low, found.high) == (0.5, 0.5)


def test_spread_is_the_standard_deviation_of_a_sample() -> None:
    assert spread([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(2.138, abs=1e-3)
    assert spread([3.0]) == 0.0


def test_all_of_six_pairs_better_is_a_difference() -> None:
    found = compare([0.0] * 6, [1.0] * 6)
    assert found is not None
    assert found.difference == 1.0
    assert found.p == pytest.approx(2 / 64)  # of 64 sign patterns only the two extreme ones do as much
    assert not found.is_noise


def test_one_of_six_pairs_better_is_noise() -> None:
    found = compare([0.0] * 6, [1.0, 0, 0, 0, 0, 0])
    assert found is not None
    assert found.p == 1.0
    assert found.is_noise


def test_as_many_better_as_worse_is_noise() -> None:
    found = compare([0.0, 1.0] * 10, [1.0, 0.0] * 10)
    assert found is not None
    assert found.difference == 0.0
    assert found.is_noise


def test_many_pairs_are_sampled_and_give_the_same_p_each_time() -> None:
    base, other = [0.0] * 40, [1.0] * 30 + [0.0] * 10
    one, two = compare(base, other), compare(base, other)
    assert one == two
    assert one is not None
    assert one.p < 0.001


@pytest.mark.parametrize(
    ("successes", "of", "k", "expected"),
    [(4, 4, 4, 1.0), (0, 4, 1, 0.0), (2, 4, 1, 0.5), (2, 4, 2, 1 / 6), (3, 4, 2, 0.5), (3, 4, 4, 0.0)],
)
def test_pass_hat_is_the_chance_that_k_draws_all_succeed(successes: int, of: int, k: int, expected: float) -> None:
    assert pass_hat(successes, of=of, k=k) == pytest.approx(expected)


def test_pass_hat_is_unknown_for_more_tries_than_were_made() -> None:
    assert pass_hat(3, of=3, k=4) is None
