"""Medians, paired ratios and intervals: pure functions over plain numbers.

numpy, because ten thousand resamples of each of some hundred medians take seconds in a Python loop
and milliseconds in one array.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import NormalDist
from typing import TypedDict, TypeVar, cast

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)

CONFIDENCE = 0.95
# More resamples move the bounds by less than the third digit that a report prints.
RESAMPLES = 10_000
# One fixed seed: the same results give the same report, to the byte.
SEED = 20261121
# What is added to the confidence of an interpolated interval, so that it covers what it says on skewed laws too.
EXTRA = 0.008


class Bounds(TypedDict):
    """An interval over ``n`` values, in their unit."""

    low: float
    high: float
    n: int


class Interval(Bounds):
    """A median with its interval."""

    median: float


class Estimated(Interval):
    """An `Estimate` as plain data."""

    confidence: float
    reach: float


class Gain(Bounds):
    """How many times as fast one arm is as the other: the geometric mean ``gain`` over prompts, with its interval.

    ``reach`` is the confidence that the interval can claim: ``confidence``, or 0 where there are too few prompts.
    """

    gain: float
    confidence: float
    reach: float


@dataclass(frozen=True)
class Estimate:
    """A median with its interval.

    ``n`` is the number of values, ``reach`` the confidence the interval can claim: ``confidence``, or less
    where there are too few values for it (see :func:`reachable_confidence`). Units are those of the values.
    """

    median: float
    low: float
    high: float
    n: int
    confidence: float
    reach: float

    def as_dict(self) -> Estimated:
        """The estimate as plain data, for JSON."""
        return cast("Estimated", asdict(self))


def median(values: Sequence[float]) -> float:
    """The median; the mean of the middle two where the count is even.

    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("the median of no values")
    return float(np.median(np.asarray(values, dtype=np.float64)))


def reachable_confidence(n: int) -> float:
    """The most that an interval between the extremes of ``n`` values can claim for their median.

    The median of the population lies outside only when all values fell on one side of it: 2 / 2^n
    (David and Nagaraja, Order Statistics, 3rd edition 2003, section 7.1). No resampling gets past that.
    """
    return 0.0 if n < 1 else 1.0 - 2.0 ** (1 - n)


def values_needed(confidence: float = CONFIDENCE) -> int:
    """The fewest values whose median can have an interval of that confidence (6 at 95 %)."""
    return max(1, math.ceil(1.0 - math.log2(1.0 - confidence)))


def median_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The median of ``values`` with an interval between order statistics, both ends inclusive.

    The k-th smallest and the k-th largest of n values hold the population's median with the probability
    1 - 2 P(Binomial(n, 1/2) < k), whatever the law (David and Nagaraja, section 7.1). Between the two k on either
    side of ``confidence`` the ends are interpolated as Hettmansperger and Sheather do (Confidence intervals based on
    interpolated order statistics, Statistics and Probability Letters 4, 1986, 75-79), at a confidence that is
    `EXTRA` higher, because on skewed laws of some n the interpolation comes out that much short. Too few values (see
    :func:`values_needed`) give their extremes: hence ``reach``.
    Raises ValueError for no values or values that are not finite.
    """
    sample = np.sort(_finite(values, "interval"))
    low, high = interval_ends(sample, confidence)
    return _estimate(sample, float(low), float(high), confidence)


def _finite(values: Sequence[float], what: str) -> Floats:
    """The values as an array. Raises ValueError for none of them, or one that is not finite."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError(f"the {what} of no values")
    if not np.isfinite(sample).all():
        raise ValueError(f"the {what} of values that are not finite")
    return sample


def _estimate(sample: Floats, low: float, high: float, confidence: float) -> Estimate:
    n = int(sample.size)
    reach = min(confidence, reachable_confidence(n))
    return Estimate(float(np.median(sample)), low, high, n, confidence, reach)


def interval_ends(ordered: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Both ends of :func:`median_interval` of values in ascending order along the last axis."""
    n = ordered.shape[-1]
    place, share = _order_statistics(n, min(confidence + EXTRA, (1.0 + confidence) / 2.0))
    after = min(place + 1, n - 1)
    low = np.asarray((1.0 - share) * ordered[..., place] + share * ordered[..., after])
    high = np.asarray((1.0 - share) * ordered[..., n - 1 - place] + share * ordered[..., n - 1 - after])
    return low, high


@cache
def _order_statistics(n: int, confidence: float) -> tuple[int, float]:
    """The place of the lower end among n ordered values, and the share of the way to the next one.

    With g(k) the confidence of the k-th from either end, g(k) >= confidence > g(k+1) and
    i = (g(k) - confidence) / (g(k) - g(k+1)), the share is (n - k) i / (k + (n - 2k) i).
    """
    below = np.cumsum([math.comb(n, k) for k in range(n // 2 + 1)]) / 2.0**n
    # claimed[k - 1]: between the k-th value from below and the k-th from above.
    claimed = [1.0 - 2.0 * float(tail) for tail in below]
    k = sum(value >= confidence for value in claimed[: (n + 1) // 2])
    if k == 0:
        return 0, 0.0
    short = (claimed[k - 1] - confidence) / (claimed[k - 1] - claimed[k])
    return k - 1, (n - k) * short / (k + (n - 2 * k) * short)


def t_quantile(tail: float, freedom: float) -> float:
    """The value that Student's t with ``freedom`` degrees of freedom exceeds with the probability ``tail``.

    Newton's method from the normal quantile, which lies below it; the tail is convex there, so every step stays below
    the solution. Raises ValueError for a tail outside (0, 0.5] or no degree of freedom.
    """
    if not 0.0 < tail <= 0.5 or freedom <= 0:
        raise ValueError(f"no quantile of t for the tail {tail} and {freedom} degrees of freedom")
    value = NormalDist().inv_cdf(1.0 - tail)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    for _ in range(60):
        density = scale * (1.0 + value * value / freedom) ** (-(freedom + 1) / 2)
        step = (t_tail(value, freedom) - tail) / density
        value += step
        if abs(step) < 1e-10 * max(1.0, value):
            break
    return value


def t_tail(value: float, freedom: float) -> float:
    """The probability that Student's t exceeds ``value``, which is not below 0.

    Half of the regularised incomplete beta function (Abramowitz and Stegun, 26.7.1 and 26.5.1).
    """
    return incomplete_beta(freedom / (freedom + value * value), freedom / 2.0, 0.5) / 2.0


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (26.5.8, Lentz's method)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0) or tiny)
    fraction = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1.0 / (1.0 + even * d or tiny), 1.0 + even / c or tiny
        fraction *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1.0 / (1.0 + odd * d or tiny), 1.0 + odd / c or tiny
        fraction *= d * c
        if abs(d * c - 1.0) < 1e-14:
            break
    return front * fraction / a


def bootstrap_median(
    values: Sequence[float],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Estimate:
    """The median of ``values`` with its percentile bootstrap interval, both ends inclusive.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13: draw as many values with
    replacement, take their median, repeat; the interval lies between the two (1 - confidence)/2 tail
    quantiles of those medians, each rounded outwards to a median that was drawn. On log-normal values
    the 95 % interval covers the true median in 92 to 95 % of the runs for 6 to 30 values
    (tests/unit/bench/test_stats.py), and in far fewer below 6: hence ``reach``.
    Raises ValueError for no values or values that are not finite.
    """
    sample = _finite(values, "bootstrap")
    draws = np.random.default_rng(seed).integers(0, sample.size, size=(resamples, sample.size))
    medians = np.median(sample[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low = float(np.quantile(medians, tail, method="lower"))
    high = float(np.quantile(medians, 1.0 - tail, method="higher"))
    return _estimate(sample, low, high, confidence)


def paired_ratios(
    numerator: Mapping[Key, Sequence[float]], denominator: Mapping[Key, Sequence[float]]
) -> dict[Key, float]:
    """Numerator over denominator for every key that both have; no unit.

    Several values of a key (the rounds of a prompt) are first reduced to their median, so that a prompt
    counts once however often it was sent. Keys without values, or whose denominator is not above 0, are
    left out: the caller says that they are missing. The order is that of ``numerator``.
    """
    ratios: dict[Key, float] = {}
    for key, values in numerator.items():
        others = denominator.get(key)
        if not values or not others:
            continue
        below = median(others)
        if below > 0:
            ratios[key] = median(values) / below
    return ratios


def estimate(values: Sequence[float]) -> Estimate | None:
    """The median with its 95 % interval, or None for no values: for tables, where a gap is a gap."""
    return median_interval(values) if values else None
