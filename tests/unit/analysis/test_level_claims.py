"""The interval of one level, what starts do to it, and the error rate over all levels."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from drafthouse.analysis.level_claims import PRIOR, START_SD, claimed, shares, starts_of, widened
from drafthouse.bench.stats import EXTRA, median_interval, t_quantile, values_needed

BAR = 1.03
NO_STARTS = (0.0, PRIOR)


# ---- one level -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "confidence", "low"),
    [
        # Worked by hand: n = 8 has 99.22 % between its extremes and 92.97 % one further in, so that 96 % lies
        # (7 * 0.515) / (1 + 6 * 0.515) = 0.8813 of the way.
        (8, 0.96 - EXTRA, 1.8813),
        # Exactly what the second of nine covers.
        (9, 1 - 20 / 512 - EXTRA, 2.0),
        # Too few values: their extremes.
        (5, 0.95, 1.0),
        (1, 0.95, 1.0),
    ],
)
def test_the_interval_of_a_median(n: int, confidence: float, low: float) -> None:
    found = median_interval([float(rank) for rank in range(n, 0, -1)], confidence=confidence)
    assert [found.low, found.high] == pytest.approx([low, n + 1 - low], abs=1e-3)
    assert found.median == (n + 1) / 2
    assert (found.reach == confidence) == (n >= values_needed(confidence))


def test_nothing_has_no_interval() -> None:
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


LAWS: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.lognormvariate(0.0, 0.3),
    # Their medians are 1, too.
    "skewed": lambda chance: chance.expovariate(math.log(2)),
    "heavy tails": lambda chance: 1.0 + math.tan(math.pi * (chance.random() - 0.5)),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [6, 8, 10, 13, 23])
def test_it_covers_the_median(law: str, n: int) -> None:
    chance = random.Random(f"{law} {n}")
    runs, hits = 2000, 0
    for _ in range(runs):
        found = median_interval([LAWS[law](chance) for _ in range(n)])
        hits += found.low <= 1.0 <= found.high
    # The interpolation is within half a percent of what it says; 2,000 runs have a standard error of another half.
    assert hits / runs >= 0.935


@pytest.mark.parametrize(
    ("confidence", "freedom", "printed"),
    # Tables of Student's t.
    [(0.95, 4, 2.776), (0.95, 5, 2.571), (0.95, 30, 2.042), (0.99, 5, 4.032), (0.998, 5, 5.893)],
)
def test_students_quantile(confidence: float, freedom: int, printed: float) -> None:
    assert t_quantile((1 - confidence) / 2, freedom) == pytest.approx(printed, rel=5e-4)


# ---- the starts ----------------------------------------------------------------------------------


def test_one_round_has_what_is_known_of_starts() -> None:
    starts = starts_of([[0.3], [0.1]])
    assert (starts.rounds, starts.freedom) == (1, PRIOR)
    assert starts.sd == pytest.approx(math.sqrt(2) * START_SD)
    assert starts.sd_over(1) == starts.sd


def test_rounds_that_differ_say_so_and_those_that_agree_do_not_say_much() -> None:
    agree, differ = starts_of([[0.3, 0.3], [0.1, 0.1]]), starts_of([[0.25, 0.35], [0.05, 0.15]])
    assert agree.variance == pytest.approx(2 * START_SD**2 * PRIOR / (PRIOR + 1))
    # Of two values 0.1 apart the variance is 0.005, at either level.
    assert differ.variance == pytest.approx((PRIOR * 2 * START_SD**2 + 0.005) / (PRIOR + 1))
    assert differ.sd_over(2) == pytest.approx(differ.sd / math.sqrt(2))
    assert differ.sd_over(3) > differ.sd / math.sqrt(3)


def test_a_bound_has_both_parts_by_their_squares() -> None:
    plain = median_interval([1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8])
    wide = widened(plain, 0.02, 5)
    reach = t_quantile(0.025, 5) * 0.02
    assert math.log(wide.median / wide.low) == pytest.approx(math.hypot(math.log(wide.median / plain.low), reach))
    assert math.log(wide.high / wide.median) == pytest.approx(math.hypot(math.log(plain.high / wide.median), reach))
    assert widened(plain, 0.0, 5).low == pytest.approx(plain.low)


# ---- all levels ----------------------------------------------------------------------------------


def asked(gains: dict[float, float], settled: dict[float, bool] | None = None) -> tuple[list[float], list[float]]:
    """Return the confidence at which each of three levels is asked, in percent, and those that pay."""
    values = {level: [gain] * 20 for level, gain in gains.items()}
    found, paying = claimed([1, 2, 4], values, dict.fromkeys(gains, NO_STARTS), BAR, settled)
    return [round(100 * one.confidence, 2) for one in found.values()], paying


def test_the_lowest_level_is_asked_as_the_ab_is_and_the_others_share_as_much() -> None:
    assert shares(1) == [pytest.approx(0.05)]
    assert shares(5) == pytest.approx([0.05, 0.0125, 0.0125, 0.0125, 0.0125])


def test_a_level_that_pays_hands_its_share_on_and_none_is_asked_less_than_the_ab() -> None:
    assert asked({1: 1.5, 2: 1.5, 4: 1.5}) == ([95.0, 95.0, 95.0], [1, 2, 4])
    assert asked({1: 1.5, 2: 1.0, 4: 1.5}) == ([95.0, 95.0, 97.5], [1, 4])
    assert asked({1: 1.0, 2: 1.5, 4: 1.5}) == ([95.0, 97.5, 95.0], [2, 4])
    assert asked({1: 1.0, 2: 1.0, 4: 1.5}) == ([95.0, 97.5, 97.5], [4])


def test_a_level_that_was_not_measured_hands_on_what_it_had() -> None:
    assert asked({2: 1.0, 4: 1.5}) == ([95.0, 97.5], [4])


def test_a_level_that_is_settled_is_not_asked() -> None:
    assert asked({1: 1.0, 2: 1.5}, {1: True}) == ([95.0, 95.0], [1, 2])
    assert asked({1: 1.5, 2: 1.5}, {1: False}) == ([95.0, 97.5], [2])


def test_the_error_rate_is_held_over_the_levels_where_every_gain_is_the_bar_itself() -> None:
    # The worst that may be: each level is as likely above the bar as below it, and knows nothing of the others.
    chance = random.Random(7)
    runs, planned = 3000, [1.0, 2.0, 4.0, 8.0, 16.0]
    false = 0
    for _ in range(runs):
        values = {level: [BAR * chance.lognormvariate(0.0, 0.2) for _ in range(16)] for level in planned}
        false += bool(claimed(planned, values, dict.fromkeys(planned, NO_STARTS), BAR)[1])
    # 5 %, and three standard errors of 3,000 runs are 1.2.
    assert false / runs <= 0.062
