"""Medians, pairs and intervals against values worked out elsewhere and against simulated data."""

from __future__ import annotations

import numpy as np
import pytest

from drafthouse.bench.stats import (
    bootstrap_median,
    estimate,
    median,
    paired_ratios,
    reachable_confidence,
    values_needed,
)


def test_median_of_odd_and_even_counts() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_values_needed_is_six_for_95_percent() -> None:
    # 1 - 2^(1-5) = 0.9375 is short of it, 1 - 2^(1-6) = 0.96875 is not.
    assert values_needed(0.95) == 6
    assert reachable_confidence(5) == 0.9375
    assert reachable_confidence(6) == 0.96875
    assert reachable_confidence(1) == 0.0


def test_the_interval_says_how_far_it_reaches() -> None:
    assert bootstrap_median([1.0, 2.0, 3.0]).reach == 0.75
    assert bootstrap_median([float(n) for n in range(20)]).reach == 0.95
    alone = bootstrap_median([2.0])
    assert (alone.low, alone.median, alone.high, alone.n, alone.reach) == (2.0, 2.0, 2.0, 1, 0.0)
    assert estimate([]) is None


def test_known_interval_of_nine_values() -> None:
    # The median of 9 draws is at most the k-th value when 5 or more draws are: binomial(9, k/9), which is
    # 0.0014 for the first value and 0.030 for the second: the 2.5 % quantile is the second.
    found = bootstrap_median([float(n) for n in range(1, 10)], resamples=200_000)
    assert (found.low, found.median, found.high) == (2.0, 5.0, 8.0)


def test_the_same_seed_gives_the_same_interval_and_another_does_not() -> None:
    values = list(np.random.default_rng(3).normal(5.0, 1.0, 12))
    assert bootstrap_median(values, seed=1) == bootstrap_median(values, seed=1)
    few = {bootstrap_median(values, seed=seed, resamples=50).low for seed in range(10)}
    assert len(few) > 1


@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_interval_covers_the_true_median(n: int) -> None:
    chance = np.random.default_rng(11)
    covered = above = 0
    runs = 600
    for _ in range(runs):
        found = bootstrap_median(list(np.exp(chance.normal(0.0, 0.3, n))), resamples=600)
        covered += found.low <= 1.0 <= found.high
        above += found.low > 1.0
    # Three standard errors of 600 runs are 0.027; 0.92 to 0.95 is what the method gives at these sizes.
    assert 0.89 <= covered / runs <= 0.98
    # What a false "pays" would come from: the lower bound above the truth.
    assert above / runs <= 0.065


def test_a_wider_scatter_gives_a_wider_interval() -> None:
    chance = np.random.default_rng(5)
    noise = chance.normal(0.0, 1.0, 15)
    near, far = bootstrap_median(list(10 + 0.1 * noise)), bootstrap_median(list(10 + noise))
    assert far.high - far.low > 5 * (near.high - near.low)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_the_bootstrap_refuses_what_has_no_median(values: list[float]) -> None:
    with pytest.raises(ValueError, match="bootstrap of"):
        bootstrap_median(values)


def test_paired_ratios_reduce_rounds_to_their_median_first() -> None:
    ratios = paired_ratios({"a": [30.0, 10.0, 20.0], "b": [8.0]}, {"a": [10.0, 4.0, 5.0], "b": [4.0, 4.0]})
    assert ratios == {"a": 4.0, "b": 2.0}


def test_paired_ratios_leave_out_what_has_no_partner_or_no_time() -> None:
    assert paired_ratios({"a": [1.0], "b": [1.0], "c": []}, {"b": [0.0], "c": [1.0], "d": [1.0]}) == {}
