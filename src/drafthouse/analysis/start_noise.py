"""The speed-up with what server starts add to it: every start of an engine has a speed of its own.

A start is measured as one step of a round: where its pages came to lie, what the box did meanwhile, how warm it was.
All prompts of a step share that, so more prompts do not average it away; only more starts do. The interval has
therefore two parts: the prompts', from the order statistics of their ratios once the starts' own speeds are taken out,
and the starts', Student's t over the steps' levels. Both are independent, so their half-widths add as squares.

With two rounds the levels have two degrees of freedom, of which t makes ten times the spread. But it is known
beforehand what starts differ by: the variance is pooled with a prior one, as in G. K. Smyth, Linear models and
empirical Bayes methods (Statistical Applications in Genetics and Molecular Biology 3, 2004, article 3). One step that
is off by any amount moves the mean by a share and the spread by as much, so t alone keeps it from passing for a gain
(with one outlier t tends to 1; here to 1.7 at two rounds); a drift over the run likewise. From three rounds on an odd
step can be told from the others, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bench.stats import CONFIDENCE, Estimate, geometric_means, median_interval, reachable_confidence, t_quantile
from .rounds import FIRST_LOOK, tail_of
from .verdict_types import Starts

Prompt = tuple[Any, Any]
Times = Mapping[Prompt, Mapping[Any, float]]
Array = npt.NDArray[np.float64]

#: What the speeds of two starts of one engine on one box differ by, as a standard deviation of logarithms, before any
#: was measured; and how many degrees of freedom that is worth: as many as three rounds of both arms.
PRIOR_SD = 0.025
PRIOR_FREEDOM = 4
#: A single start may be off by that much, and with one start of each arm nobody could tell.
UNSEEN = math.log(1.25)
#: How seldom a step that is as the others may be called odd.
ODD_TAIL = 0.0005
#: The fewest rounds in which an odd step can be told from the others.
ODD_ROUNDS = 3


@dataclass(frozen=True)
class Looks:
    """Which look at the results this is: rounds ``done`` of at most ``most``; whether the arms ran side by side."""

    done: int
    most: int
    together: bool

    @property
    def tail(self) -> float:
        """The error rate of either end of an interval."""
        return tail_of(self.done, self.most)


@dataclass(frozen=True)
class Speedup:
    """The speed-up with its interval, and what is known of the starts.

    ``quiet_low`` is the lower end as it would be had the starts differed as expected and no more, ``may_pay_low`` the
    lower end to hope for after all rounds. ``spread`` is the standard deviation of a start's speed as measured (a
    share), ``odd`` the steps left out, ``apart`` how far the furthest two starts of an arm that count lie apart (a
    ratio), and ``shift`` how far one of these alone can have moved the speed-up (a factor).
    """

    estimate: Estimate
    quiet_low: float
    may_pay_low: float
    spread: float | None
    levels: dict[str, dict[Any, float]]
    odd: list[tuple[str, Any, float]]
    apart: float
    apart_arm: str
    shift: float

    def as_dict(self, threshold: float) -> Starts:
        """Return what a report keeps of the starts; levels are the time per token over the arm's mean."""
        return {
            "spread": self.spread,
            "levels": [
                {"arm": arm, "round": number, "level": level}
                for arm, levels in self.levels.items()
                for number, level in levels.items()
            ],
            "odd": [{"arm": arm, "round": number, "level": level} for arm, number, level in self.odd],
            "apart": self.apart,
            "quiet_low": self.quiet_low,
            "may_pay_yet": self.may_pay_low > threshold,
        }


def speedup_of(baseline: Times, speculative: Times, owners: Mapping[Prompt, Prompt], looks: Looks) -> Speedup | None:
    """Return the speed-up from the TPOT in ms of each prompt by round, in either arm; None without a shared prompt.

    A prompt counts with the rounds that both arms have. ``owners`` says which prompts are one at several temperatures.
    """
    prompts = [one for one in baseline if baseline[one].keys() & speculative.get(one, {}).keys()]
    if not prompts:
        return None
    rounds = sorted({r for one in prompts for r in baseline[one]}, key=lambda value: (value is None, value))
    logs = [np.log([[arm[one].get(r, np.nan) for r in rounds] for one in prompts]) for arm in (baseline, speculative)]
    both = np.isfinite(logs[0]) & np.isfinite(logs[1])
    used: npt.NDArray[np.bool_] = np.asarray(both.any(axis=0))
    rounds = [r for r, kept in zip(rounds, used.tolist(), strict=True) if kept]
    logs = [np.where(both, one, np.nan)[:, used] for one in logs]
    levels = np.array([_levels(one) for one in logs])
    kept = np.ones_like(levels, dtype=bool)
    if len(rounds) >= ODD_ROUNDS:
        kept = _without_odd(levels, looks.together)
    names = ("baseline", "speculative")
    means = [float(row[keep].mean()) for row, keep in zip(levels, kept, strict=True)]
    odd = [
        (names[a], rounds[r], math.exp(levels[a, r] - means[a]))
        for a, r in zip(*np.nonzero(~kept), strict=True)
        if not looks.together or a == _further(levels[:, r], means)
    ]
    ratios = _ratios(logs, levels, kept, means)
    found = median_interval([math.log(one) for one in _by_owner(prompts, ratios, owners).values()])
    width = _Width.of(levels, kept, looks)
    low, high = _joined(found, width.half(looks.tail))
    spans = [float(np.ptp(row[keep])) for row, keep in zip(levels, kept, strict=True)]
    widest = int(np.argmax(spans))
    return Speedup(
        Estimate(
            math.exp(found.median),
            math.exp(low),
            math.exp(high),
            found.n,
            CONFIDENCE,
            min(CONFIDENCE, reachable_confidence(found.n)),
        ),
        quiet_low=math.exp(_joined(found, width.quiet(looks.tail))[0]),
        may_pay_low=math.exp(_joined(found, width.at_last(looks))[0] + width.error),
        spread=width.spread,
        levels={
            name: {r: math.exp(level - mean) for r, level in zip(rounds, row, strict=True)}
            for name, row, mean in zip(names, levels, means, strict=True)
        },
        odd=odd,
        apart=math.exp(spans[widest]),
        apart_arm=names[widest],
        shift=math.exp(spans[widest] / kept[widest].sum()),
    )


def _levels(logs: Array) -> Array:
    """Return the level of each round: the median over the prompts of what it lies above the prompt's mean."""
    return np.array(np.nanmedian(logs - np.nanmean(logs, axis=1, keepdims=True), axis=0))


def _further(levels: Array, means: Sequence[float]) -> int:
    """Return which arm's level lies further from its mean."""
    return int(np.argmax(np.abs(levels - np.array(means))))


def _ratios(logs: Sequence[Array], levels: Array, kept: npt.NDArray[np.bool_], means: Sequence[float]) -> Array:
    """Return each prompt's ratio, its rounds reduced to their median once the steps' own levels are taken out."""
    reduced = []
    for values, row, keep, mean in zip(logs, levels, kept, means, strict=True):
        plain = values[:, keep] - (row[keep] - mean)
        # A prompt that only an odd step answered keeps that answer.
        lost = ~np.isfinite(plain).any(axis=1)
        chosen = np.where(np.isfinite(plain), plain, np.nan)
        chosen[lost] = np.nanmedian(values[lost] - (row - mean), axis=1)[:, None] if lost.any() else chosen[lost]
        reduced.append(np.nanmedian(chosen, axis=1))
    return np.array(np.exp(reduced[0] - reduced[1]))


def _by_owner(prompts: Sequence[Prompt], ratios: Array, owners: Mapping[Prompt, Prompt]) -> dict[Prompt, float]:
    return geometric_means(dict(zip(prompts, ratios.tolist(), strict=True)), owners)


def _without_odd(levels: Array, together: bool) -> npt.NDArray[np.bool_]:
    """Return which steps count: all, but for one that lies too far from the others to be as they are.

    Each in turn is set against the others of its arm by the t of its deleted residual, the variance pooled over the
    others of both arms and the prior (R. D. Cook and S. Weisberg, Residuals and Influence in Regression, 1982, section
    2.2). Arms that ran side by side share what disturbed a round: there it is the rounds that are compared, and a
    round is left out in both arms.
    """
    kept = np.ones_like(levels, dtype=bool)
    rows = (levels[0] - levels[1])[None, :] if together else levels
    prior = PRIOR_SD**2 * (2 if together else 1)
    count = rows.shape[1]
    worst, place = 0.0, (0, 0)
    freedom = PRIOR_FREEDOM + rows.shape[0] * (count - 1) - 1
    for a in range(rows.shape[0]):
        for r in range(count):
            others = [np.delete(row, r) if b == a else row for b, row in enumerate(rows)]
            squares = sum(float(((one - one.mean()) ** 2).sum()) for one in others)
            variance = (PRIOR_FREEDOM * prior + squares) / freedom
            value = abs(rows[a, r] - others[a].mean()) / math.sqrt(variance * (1 + 1 / (count - 1)))
            if value > worst:
                worst, place = float(value), (a, r)
    if worst > t_quantile(ODD_TAIL, freedom):
        kept[slice(None) if together else place[0], place[1]] = False
    return kept


@dataclass(frozen=True)
class _Width:
    """What the starts add to the interval: the variance of one start, and how many there are to average."""

    variance: float
    freedom: int
    prior: float
    shares: float
    """The sum of 1 / n over the arms' starts (of 1 / n over the rounds where the arms ran side by side)."""
    spread: float | None
    single: bool

    @classmethod
    def of(cls, levels: Array, kept: npt.NDArray[np.bool_], looks: Looks) -> _Width:
        """Return it for the levels of both arms, of which those ``kept`` count."""
        if looks.together:
            rows = [(levels[0] - levels[1])[kept[0]]]
            prior = 2 * PRIOR_SD**2
        else:
            rows = [row[keep] for row, keep in zip(levels, kept, strict=True)]
            prior = PRIOR_SD**2
        own = sum(row.size - 1 for row in rows)
        squares = sum(float(((row - row.mean()) ** 2).sum()) for row in rows)
        freedom = PRIOR_FREEDOM + own
        measured = squares / own / (2 if looks.together else 1) if own else None
        return cls(
            variance=(PRIOR_FREEDOM * prior + squares) / freedom,
            freedom=freedom,
            prior=prior,
            shares=sum(1 / row.size for row in rows),
            spread=math.sqrt(measured) if measured is not None else None,
            single=levels.shape[1] < FIRST_LOOK,
        )

    @property
    def error(self) -> float:
        """The standard error of the arms' difference, as a logarithm."""
        return math.sqrt(self.variance * self.shares)

    def half(self, tail: float) -> float:
        """Return half of the interval's width that is due to the starts, as a logarithm."""
        half = t_quantile(tail, self.freedom) * self.error
        return max(half, UNSEEN) if self.single else half

    def quiet(self, tail: float) -> float:
        """Return the same, had the starts differed as the prior says."""
        half = t_quantile(tail, self.freedom) * math.sqrt(self.prior * self.shares)
        return min(max(half, UNSEEN) if self.single else half, self.half(tail))

    def at_last(self, looks: Looks) -> float:
        """Return what :meth:`half` would be after the last round, were the starts to differ as expected or less."""
        last = max(looks.most, looks.done)
        arms = 1 if looks.together else 2
        freedom = PRIOR_FREEDOM + arms * (last - 1)
        return t_quantile(tail_of(last, last), freedom) * math.sqrt(min(self.variance, self.prior) * arms / last)


def _joined(prompts: Estimate, half: float) -> tuple[float, float]:
    """Return the ends of the interval from its prompts' part and half of its starts' part, all logarithms."""
    return (
        prompts.median - math.hypot(prompts.median - prompts.low, half),
        prompts.median + math.hypot(prompts.high - prompts.median, half),
    )
