"""At which levels of a ladder a gain is claimed: the interval of one level, and the error rate over all of them. Pure.

- **One level.** The median over the prompts of the paired ratio, with the interval of its order statistics,
  interpolated to the confidence that is asked for (Hettmansperger and Sheather, Statistics & Probability Letters 4,
  1986, 75-79). It assumes nothing of how prompts differ.
- **Starts.** Each start of a server has a speed of its own, which all its prompts and all levels of its round share:
  no number of prompts tells it from a gain. What the rounds differ by is put together with what is known of starts
  beforehand (`START_SD`), as a moderated variance (Smyth, Statistical Applications in Genetics and Molecular Biology
  3, 2004, article 3): ``PRIOR`` degrees of freedom of that, one more for each further round. One round is left with
  what is known beforehand. The two parts of a bound are added by their squares, on a scale of logarithms and each
  side by itself (MOVER: Zou and Donner, Statistics in Medicine 27, 2008, 1693-1702).
- **All levels.** The fallback procedure (Wiens, Pharmaceutical Statistics 2, 2003, 211-215; Wiens and Dmitrienko,
  Journal of Biopharmaceutical Statistics 15, 2005, 929-942): every level has a share of what may go wrong, they are
  asked from the lowest upward, and one that pays hands its whole share on to the next. The chance that any gain is
  claimed falsely is 5 % at most, whatever the levels have in common. Half of it is the lowest level's, where
  speculation has most to gain: that is asked as the A/B is (a lower 95 % bound is passed by chance in 2.5 %). The
  others share the other half, and no level is asked less than the A/B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from ..bench.stats import CONFIDENCE, Estimate, median_interval, t_quantile, values_needed

#: The standard deviation of a server's speed from start to start, as a share, where nothing else is known.
START_SD = 0.02
#: The degrees of freedom that this knowledge counts as.
PRIOR = 4


@dataclass(frozen=True)
class Starts:
    """What server starts alone do to the ratio of one round: variance of its logarithm, and what that rests on."""

    variance: float
    freedom: int
    rounds: int
    """The rounds it was seen in; 1 where it is only assumed."""

    @property
    def sd(self) -> float:
        """The standard deviation of one round's ratio, as a share."""
        return math.sqrt(self.variance)

    def sd_over(self, rounds: int) -> float:
        """Return the standard deviation of the median over so many rounds, as a share."""
        # A median of three and more normal values varies by at most pi / 2 times as much as their mean.
        return math.sqrt(self.variance * (1.0 if rounds <= 2 else math.pi / 2) / max(1, rounds))


def starts_of(shifts: Sequence[Sequence[float]]) -> Starts:
    """Return what starts do, from the logarithm of each round's ratio at each level (levels, then rounds).

    The levels of a round share its starts, so that they tell the same thing again: their variances are averaged, and
    the degrees of freedom are those of the rounds of one.
    """
    known = 2 * START_SD**2
    several = [own for own in shifts if len(own) > 1]
    if not several:
        return Starts(known, PRIOR, 1)
    rounds = min(map(len, several))
    seen = fmean(variance(own) for own in several)
    return Starts((PRIOR * known + (rounds - 1) * seen) / (PRIOR + rounds - 1), PRIOR + rounds - 1, rounds)


def widened(estimate: Estimate, sd: float, freedom: int) -> Estimate:
    """Return the interval of a ratio with its starts' part: ``sd`` is theirs, as a share."""
    reach = t_quantile((1.0 - estimate.confidence) / 2, freedom) * sd
    below, above = math.log(estimate.median / estimate.low), math.log(estimate.high / estimate.median)
    return replace(
        estimate,
        low=estimate.median * math.exp(-math.hypot(below, reach)),
        high=estimate.median * math.exp(math.hypot(above, reach)),
    )


def shares(levels: int) -> list[float]:
    """Return what each of so many levels begins with: 1 less the confidence of its interval."""
    most = 1.0 - CONFIDENCE
    return [most] + [most / (levels - 1)] * (levels - 1) if levels > 1 else [most]


def prompts_needed(levels: int) -> int:
    """Return the fewest prompts of a kind that can show a gain at the lowest of so many levels (6)."""
    return values_needed(1.0 - shares(levels)[0])


def prompts_needed_above(levels: int) -> int:
    """Return the fewest that can show a gain which begins at a higher level (6 of 2, 8 of 5, 9 of 8)."""
    return values_needed(1.0 - shares(levels)[-1])


def claimed(
    planned: Sequence[float],
    ratios: Mapping[float, Sequence[float]],
    starts: Mapping[float, tuple[float, int]],
    threshold: float,
    settled: Mapping[float, bool] | None = None,
) -> tuple[dict[float, Estimate], list[float]]:
    """Return the interval of each level at the confidence it is asked at, and the levels whose gain is claimed.

    ``ratios`` are those of the prompts at the levels that were measured, ``starts`` the standard deviation and the
    degrees of freedom of their starts' part. A level that was planned and not measured hands its share on: nothing
    was asked there. ``settled`` levels are not asked either: something else has said whether they pay.
    """
    found: dict[float, Estimate] = {}
    paying: list[float] = []
    handed = 0.0
    for level, own in zip(planned, shares(len(planned)), strict=True):
        share = own + handed
        if level not in ratios:
            handed = share
            continue
        confidence = max(CONFIDENCE, 1.0 - share)
        estimate = widened(median_interval(ratios[level], confidence=confidence), *starts[level])
        found[level] = estimate
        pays = estimate.reach >= estimate.confidence and estimate.low > threshold
        pays = (settled or {}).get(level, pays)
        handed = share if pays else 0.0
        if pays:
            paying.append(level)
    return found, paying
