"""Compute medians, paired ratios, confidence intervals and quantiles of Student's t.

numpy is used because 10,000 resamples for each of some hundred medians take seconds in a Python loop and milliseconds
as one array.
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

#: The confidence of all intervals in a report.
CONFIDENCE = 0.95
# More resamples change the bounds by less than the third digit, the last that a report prints.
RESAMPLES = 10_000
# A fixed seed makes the report of the same results identical, byte by byte.
SEED = 20261121
# Added to the confidence of an interpolated interval, so that its coverage is reached on skewed distributions too.
EXTRA = 0.008


class Bounds(TypedDict):
    """The lower and upper bound of an interval computed from ``n`` values, in their unit."""

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

    The median and the bounds have the unit of the values.
    """

    median: float
    low: float
    high: float
    n: int  # number of values
    confidence: float  # that was asked for
    reach: float  # that the interval really has; lower if there are too few values (`reachable_confidence`)

    def as_dict(self) -> Estimated:
        """The estimate as plain data, for JSON."""
        return cast("Estimated", asdict(self))


def median(values: Sequence[float]) -> float:
    """The median; for an even number of values the mean of the middle two.

    Raises ValueError if ``values`` is empty.
    """
    if not values:
        raise ValueError("the median of no values")
    return float(np.median(np.asarray(values, dtype=np.float64)))


def reachable_confidence(n: int) -> float:
    """The highest confidence of an interval for the median of ``n`` values: that between their extremes.

    The population's median is outside only if all values are on one side of it, with the probability 2 / 2^n
    (David and Nagaraja, Order Statistics, 3rd edition 2003, section 7.1). Resampling cannot exceed that.
    """
    return 0.0 if n < 1 else 1.0 - 2.0 ** (1 - n)


def values_needed(confidence: float = CONFIDENCE) -> int:
    """The fewest values for which an interval of the median can reach ``confidence`` (6 for 95 %)."""
    return max(1, math.ceil(1.0 - math.log2(1.0 - confidence)))


def median_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Estimate:
    """The median of ``values`` with an interval between order statistics, both ends inclusive.

    The population's median is between the k-th smallest and the k-th largest of n values with the probability
    1 - 2 P(Binomial(n, 1/2) < k), for any distribution (David and Nagaraja, section 7.1). ``confidence`` is usually
    between the values of two neighbouring k, so the ends are interpolated (Hettmansperger and Sheather, Confidence
    intervals based on interpolated order statistics, Statistics and Probability Letters 4, 1986, 75-79). They are
    interpolated at a confidence that is `EXTRA` higher, because on skewed distributions the coverage is that much too
    low for some n. Fewer values than :func:`values_needed` give their extremes and a lower ``reach``.
    Raises ValueError if ``values`` is empty or has a value that is not finite.
    """
    sample = np.sort(_finite(values, "interval"))
    low, high = interval_ends(sample, confidence)
    return _estimate(sample, float(low), float(high), confidence)


def _finite(values: Sequence[float], statistic: str) -> Floats:
    """The values as an array. Raises ValueError for an empty sequence or a value that is not finite."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError(f"the {statistic} of no values")
    if not np.isfinite(sample).all():
        raise ValueError(f"the {statistic} of values that are not finite")
    return sample


def _estimate(sample: Floats, low: float, high: float, confidence: float) -> Estimate:
    """The estimate with these bounds, and the ``reach`` that its number of values allows."""
    n = int(sample.size)
    reach = min(confidence, reachable_confidence(n))
    return Estimate(float(np.median(sample)), low, high, n, confidence, reach)


def interval_ends(ordered: Floats, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Both ends of :func:`median_interval` for arrays whose last axis is in ascending order."""
    n = ordered.shape[-1]
    # Half-way to 1 at most, so that the confidence stays below 1.
    index, share = _order_statistics(n, min(confidence + EXTRA, (1.0 + confidence) / 2.0))
    next_index = min(index + 1, n - 1)
    low = np.asarray((1.0 - share) * ordered[..., index] + share * ordered[..., next_index])
    high = np.asarray((1.0 - share) * ordered[..., n - 1 - index] + share * ordered[..., n - 1 - next_index])
    return low, high


@cache
def _order_statistics(n: int, confidence: float) -> tuple[int, float]:
    """The index of the interval's lower end among n ordered values, and the fraction of the way to the next value.

    Let g(k) be the confidence of the interval between the k-th values from both ends, g(k) >= confidence > g(k+1), and
    i = (g(k) - confidence) / (g(k) - g(k+1)). The fraction is (n - k) i / (k + (n - 2k) i).
    """
    tails = np.cumsum([math.comb(n, k) for k in range(n // 2 + 1)]) / 2.0**n
    # claimed[k - 1]: between the k-th value from below and the k-th from above.
    claimed = [1.0 - 2.0 * float(tail) for tail in tails]
    k = sum(value >= confidence for value in claimed[: (n + 1) // 2])
    if k == 0:
        return 0, 0.0
    excess = (claimed[k - 1] - confidence) / (claimed[k - 1] - claimed[k])
    return k - 1, (n - k) * excess / (k + (n - 2 * k) * excess)


def t_quantile(tail: float, freedom: float) -> float:
    """The value that Student's t with ``freedom`` degrees of freedom exceeds with the probability ``tail``.

    Newton's method starts at the normal quantile, which is lower. The tail is convex there, so no step overshoots the
    solution. Raises ValueError if the tail is outside (0, 0.5] or ``freedom`` is not positive.
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
    """The probability that Student's t exceeds ``value``, which must be at least 0.

    It is half of the regularised incomplete beta function (Abramowitz and Stegun, 26.7.1 and 26.5.1).
    """
    return incomplete_beta(freedom / (freedom + value * value), freedom / 2.0, 0.5) / 2.0


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), as a continued fraction (26.5.8) by Lentz's method."""
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

    Each resample draws n values with replacement and takes their median (Efron and Tibshirani, An Introduction
    to the Bootstrap, 1993, chapter 13). The ends are the (1 - confidence)/2 tail quantiles of these medians,
    rounded outwards to a median that was drawn. On log-normal samples of 6 to 30 values the 95 % interval
    covers the true median in 92 to 95 % of the runs (tests/unit/bench/test_stats.py). Below 6 values it covers
    far fewer, which ``reach`` shows. Raises ValueError if ``values`` is empty or has a value that is not finite.
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
    """The ratio of the medians of numerator and denominator for each key that both have.

    The values of a key (a prompt's rounds) are reduced to their median first, so that a prompt counts once
    however often it was sent. Keys without values or with a denominator of 0 or less are left out; the caller
    reports them as missing. The order is that of ``numerator``.
    """
    ratios: dict[Key, float] = {}
    for key, values in numerator.items():
        denominators = denominator.get(key)
        if not values or not denominators:
            continue
        divisor = median(denominators)
        if divisor > 0:
            ratios[key] = median(values) / divisor
    return ratios


def estimate(values: Sequence[float]) -> Estimate | None:
    """The median with its 95 % interval; None, which a table shows as an empty cell, if there are no values."""
    return median_interval(values) if values else None
