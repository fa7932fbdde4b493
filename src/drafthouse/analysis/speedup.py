"""The speed-up of one arm over another with its interval: the estimator of every comparison.

An arm is one of the two servers (baseline, speculative). Each round starts both anew: a start is
an arm's server in one round. Names are those of docs/verdict.md. All values are natural logarithms
until `as_dict` makes ratios of them. For an arm a, a prompt p and a round r of R rounds:

    log_tpot[a, p, r]     natural logarithm of the time per token; the mean of its values where a prompt was asked at
                          several temperatures in the round
    anchors               the A prompts that both arms answered in every round; all others are fresh prompts
    start_effects[a, r]   mean of log_tpot[a, p, r] over the anchors, minus its mean over the rounds: the speed that
                          all answers of one server start share
    noise                 variance of one answer, from the anchors' residuals with 2 (R - 1) (A - 1) degrees of freedom
    start                 variance of one start: that of start_effects minus noise / A, pooled with PRIOR_SD^2 at
                          PRIOR_FREEDOM degrees of freedom, and never below the prior's share of the pool
    prompt_gains[p]       mean over the prompt's rounds of log_tpot[baseline] - log_tpot[speculative]; for a fresh
                          prompt minus share * (start_effects[baseline, r] - start_effects[speculative, r]), with
                          share = start / (start + noise / A)
    log_gain              mean of prompt_gains within each kind, averaged over the kinds
    from_prompts          sum over the K kinds of variance(prompt_gains of the kind) / n of the kind / K^2
    from_starts           2 start (1 / R + (1 - share)^2 uneven) + 2 noise / A share^2 uneven, where uneven is the sum
                          over the rounds of (weight of the round in the estimate - 1 / R)^2
    interval              log_gain -/+ t * sqrt(from_prompts + from_starts), t with Satterthwaite's degrees of freedom:
                          an error rate of LOW_TAIL below and of HIGH_TAIL above

Kinds are declared, not drawn, so their differences are not noise. No value is left out as an outlier.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..bench.stats import Gain, t_quantile

# One-sided error rates of the bounds, at every interim analysis.
LOW_TAIL = 0.01  # the lower bound has 99 % confidence
HIGH_TAIL = 0.025  # the upper bound has 97.5 % confidence
#: Prior of the spread between starts of one server: a standard deviation of logarithms, about 2 %.
PRIOR_SD = 0.02
#: The degrees of freedom that the prior counts for (pooling as in Smyth 2004, see docs/verdict.md).
PRIOR_FREEDOM = 4
#: If any kind has fewer prompts, one variance is estimated over all prompts instead of one per kind.
KIND_PROMPTS = 4
#: With fewer prompts the interval is shown but supports no claim.
FEWEST_PROMPTS = 6
#: The confidence of the interval between both bounds: 96.5 %.
CONFIDENCE = 1.0 - LOW_TAIL - HIGH_TAIL

BASELINE, SPECULATIVE = "baseline", "speculative"
PromptKey = TypeVar("PromptKey", bound=Hashable)
Array = npt.NDArray[np.float64]
#: log_tpot of one arm, by prompt, then by round.
LogTimes = Mapping[PromptKey, Mapping[int, float]]


@dataclass(frozen=True)
class StartEffects:
    """The effects of server starts on log_tpot, and their variance."""

    variance: float  # the variance of one start's effect (start in the module's formulas)
    freedom: int  # degrees of freedom of that variance
    anchor_noise: float  # noise / A, the variance of a mean over the anchors
    #: start_effects by arm, then by round; half of the difference between the arms if they ran side by side.
    effects: dict[str, dict[int, float]]
    together: bool = False  # the arms ran side by side

    @property
    def share(self) -> float:
        """The fraction of a start effect's variance that is due to the start, not to the noise of its anchors."""
        return self.variance / (self.variance + self.anchor_noise)

    @property
    def apart(self) -> tuple[float, str]:
        """The largest ratio between two starts of one arm, at least 1, and that arm."""
        largest_range = 0.0
        arm = BASELINE
        for arm_name, effects in self.effects.items():
            if effects and max(effects.values()) - min(effects.values()) > largest_range:
                largest_range = max(effects.values()) - min(effects.values())
                arm = arm_name
        if self.together:
            # Half of the difference of two starts has 1 / sqrt(2) of the standard deviation of one start.
            largest_range *= math.sqrt(2.0)
        return math.exp(largest_range), arm


@dataclass(frozen=True)
class Speedup:
    """A speed-up with its interval, in natural logarithms: above 0 the second (speculative) arm is faster."""

    log_gain: float  # the estimate
    low: float  # its lower bound
    high: float  # its upper bound
    freedom: float  # degrees of freedom of the interval
    from_prompts: float  # the interval's variance from the prompts
    from_starts: float  # the interval's variance from the server starts
    prompt_gains: Mapping[Any, float]  # by prompt
    by_kind: dict[str, float]  # the mean gain of each kind; under one key if a kind has too few prompts
    rounds: int  # the number of rounds
    starts: StartEffects = field(repr=False)

    def lower_bound(self, tail: float) -> float:
        """The lower bound at the one-sided error rate ``tail`` (logarithm)."""
        return self.log_gain - t_quantile(tail, self.freedom) * math.sqrt(self.from_prompts + self.from_starts)

    @property
    def enough_for_claim(self) -> bool:
        """True if there are at least `FEWEST_PROMPTS` prompts and two rounds."""
        return len(self.prompt_gains) >= FEWEST_PROMPTS and self.rounds > 1

    def as_dict(self) -> Gain:
        """The speed-up as plain data: ratios, above 1 where the second (speculative) arm is faster."""
        return ratio_of(self.log_gain, self.low, self.high, len(self.prompt_gains), enough=self.enough_for_claim)


def ratio_of(log: float, low: float, high: float, prompts: int, *, enough: bool) -> Gain:
    """A ratio over ``prompts`` prompts as plain data, from logarithms; ``enough``: the prompts support a claim."""
    return {
        "gain": math.exp(log),
        "low": math.exp(low),
        "high": math.exp(high),
        "n": prompts,
        "confidence": CONFIDENCE,
        "reach": CONFIDENCE if enough else 0.0,
    }


def rounds_in(baseline: LogTimes[PromptKey], speculative: LogTimes[PromptKey]) -> dict[PromptKey, list[int]]:
    """By prompt, the rounds in which both arms answered it, in order; without prompts that have no such round."""
    shared_rounds: dict[PromptKey, list[int]] = {}
    for prompt, rounds in baseline.items():
        both = rounds.keys() & speculative.get(prompt, {}).keys()
        if both:
            shared_rounds[prompt] = sorted(both)
    return shared_rounds


def estimate_speedup(
    baseline: LogTimes[PromptKey],
    speculative: LogTimes[PromptKey],
    kinds: Mapping[PromptKey, str],
    *,
    together: bool = False,
) -> Speedup | None:
    """The speed-up over the prompts that both arms answered in one round; None for fewer than two such prompts.

    ``kinds`` maps each prompt to its kind. ``together``: both arms ran side by side, so an effect
    that they share in a round is not an effect of either start.
    """
    shared_rounds = rounds_in(baseline, speculative)
    if len(shared_rounds) < 2:
        return None
    rounds = sorted(set[int]().union(*shared_rounds.values()))
    anchors: list[PromptKey] = []
    if len(rounds) > 1:
        anchors = [prompt for prompt, prompt_rounds in shared_rounds.items() if len(prompt_rounds) == len(rounds)]
    starts = start_effects(baseline, speculative, anchors, rounds, together=together)
    gains = prompt_gains(baseline, speculative, shared_rounds, anchors=set(anchors), starts=starts)
    by_kind = _prompts_by_kind(gains, kinds)
    kind_count = len(by_kind)
    means: dict[str, float] = {}
    # The variance that each kind adds to the estimate, and its degrees of freedom.
    variances: list[tuple[float, int]] = []
    from_prompts = 0.0
    for kind, prompts in by_kind.items():
        kind_gains = [gains[prompt] for prompt in prompts]
        n = len(kind_gains)
        kind_freedom = n - 1
        means[kind] = sum(kind_gains) / n
        variance = sum((gain - means[kind]) ** 2 for gain in kind_gains) / kind_freedom
        added_variance = variance / n / kind_count**2
        variances.append((added_variance, kind_freedom))
        from_prompts += added_variance
    from_starts = _from_starts(by_kind, shared_rounds, rounds, starts)
    freedom = _satterthwaite([*variances, (from_starts, starts.freedom)])
    log_gain = sum(means.values()) / kind_count
    standard_error = math.sqrt(from_prompts + from_starts)
    return Speedup(
        log_gain=log_gain,
        low=log_gain - t_quantile(LOW_TAIL, freedom) * standard_error,
        high=log_gain + t_quantile(HIGH_TAIL, freedom) * standard_error,
        freedom=freedom,
        from_prompts=from_prompts,
        from_starts=from_starts,
        prompt_gains=gains,
        by_kind=means,
        rounds=len(rounds),
        starts=starts,
    )


def start_effects(
    baseline: LogTimes[PromptKey],
    speculative: LogTimes[PromptKey],
    anchors: Sequence[PromptKey],
    rounds: Sequence[int],
    *,
    together: bool = False,
) -> StartEffects:
    """The effects of server starts, estimated from the anchors; the prior alone without two rounds and an anchor.

    ``together``: both arms ran side by side in each round, so effects of the round on both arms
    cancel in their difference. Half of that difference then stands for each arm.
    """
    if len(rounds) < 2 or not anchors:
        return StartEffects(
            variance=PRIOR_SD**2, freedom=PRIOR_FREEDOM, anchor_noise=0.0, effects={BASELINE: {}, SPECULATIVE: {}}
        )
    log_tpot = []  # by arm, an array with a row per round and a column per anchor
    for arm in (baseline, speculative):
        log_tpot.append(np.array([[arm[prompt][r] for prompt in anchors] for r in rounds]))
    freedom = 2 * (len(rounds) - 1)
    if together:
        # Half of the difference, in both arms: summed over both its variance is that of one start, with R - 1 degrees.
        half_difference = (log_tpot[0] - log_tpot[1]) / 2
        log_tpot = [half_difference, -half_difference]
        freedom = len(rounds) - 1
    effects_by_arm: dict[str, dict[int, float]] = {}
    residual_squares = effect_squares = 0.0
    for arm_name, arm_log_tpot in zip((BASELINE, SPECULATIVE), log_tpot, strict=True):
        effects = arm_log_tpot.mean(axis=1) - arm_log_tpot.mean()
        # What is left of an answer's log_tpot without its prompt's mean and its start's effect.
        residuals = arm_log_tpot - arm_log_tpot.mean(axis=0) - arm_log_tpot.mean(axis=1)[:, None] + arm_log_tpot.mean()
        effect_squares += float((effects**2).sum())
        residual_squares += float((residuals**2).sum())
        effects_by_arm[arm_name] = dict(zip(rounds, effects.tolist(), strict=True))
    noise = 0.0
    if len(anchors) > 1:
        # A single anchor has no residuals: all of its variation counts as variation of the starts.
        noise = residual_squares / (freedom * (len(anchors) - 1))
    anchor_noise = noise / len(anchors)
    pooled_squares = effect_squares + PRIOR_FREEDOM * (PRIOR_SD**2 + anchor_noise)
    pooled_freedom = freedom + PRIOR_FREEDOM
    # Never below the prior's share of the pool.
    variance = max(pooled_squares / pooled_freedom - anchor_noise, PRIOR_FREEDOM * PRIOR_SD**2 / pooled_freedom)
    return StartEffects(
        variance=variance, freedom=pooled_freedom, anchor_noise=anchor_noise, effects=effects_by_arm, together=together
    )


def prompt_gains(
    baseline: LogTimes[PromptKey],
    speculative: LogTimes[PromptKey],
    shared_rounds: Mapping[PromptKey, Sequence[int]],
    anchors: set[PromptKey],
    starts: StartEffects,
) -> dict[PromptKey, float]:
    """By prompt, the logarithm of its gain, averaged over its rounds; for a fresh prompt adjusted for its starts."""
    gains: dict[PromptKey, float] = {}
    for prompt, rounds in shared_rounds.items():
        total = 0.0
        for r in rounds:
            total += baseline[prompt][r] - speculative[prompt][r]
            if prompt not in anchors:
                start_difference = starts.effects[BASELINE].get(r, 0.0) - starts.effects[SPECULATIVE].get(r, 0.0)
                total -= starts.share * start_difference
        gains[prompt] = total / len(rounds)
    return gains


def _prompts_by_kind(gains: Mapping[PromptKey, float], kinds: Mapping[PromptKey, str]) -> dict[str, list[PromptKey]]:
    """The prompts by kind; all under one key if a kind has fewer than `KIND_PROMPTS`."""
    by_kind: dict[str, list[PromptKey]] = {}
    for prompt in gains:
        by_kind.setdefault(kinds[prompt], []).append(prompt)
    if min(map(len, by_kind.values())) < KIND_PROMPTS:
        return {"": list(gains)}
    return by_kind


def _from_starts(
    by_kind: Mapping[str, Sequence[PromptKey]],
    shared_rounds: Mapping[PromptKey, Sequence[int]],
    rounds: Sequence[int],
    starts: StartEffects,
) -> float:
    """The variance that server starts add to the estimate (from_starts in the module's formulas)."""
    weights = dict.fromkeys(rounds, 0.0)  # of each round in the estimate; their sum is 1
    for prompts in by_kind.values():
        for prompt in prompts:
            for r in shared_rounds[prompt]:
                weights[r] += 1.0 / len(shared_rounds[prompt]) / len(prompts) / len(by_kind)
    uneven = sum((weight - 1.0 / len(rounds)) ** 2 for weight in weights.values())
    start_part = 2.0 * starts.variance * (1.0 / len(rounds) + (1.0 - starts.share) ** 2 * uneven)
    return start_part + 2.0 * starts.anchor_noise * starts.share**2 * uneven


def _satterthwaite(variances: Sequence[tuple[float, int]]) -> float:
    """Degrees of freedom of a sum of independent (variance, degrees of freedom) pairs (Satterthwaite 1946)."""
    total = squares = 0.0
    for variance, freedom in variances:
        total += variance
        squares += variance**2 / freedom
    return total**2 / squares


# --- the sum of seconds -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SumRatio:
    """The ratio of the arms' seconds, summed over the answers at equal lengths.

    Long answers weigh more here than in `Speedup`.
    """

    log_ratio: float  # ln(baseline / speculative): above 0 the speculative arm took less
    variance: float  # the sampling variance of log_ratio over the prompts; 0 for a single prompt

    def half_width(self, tail: float, speedup: Speedup) -> float:
        """The half-width of the interval at the one-sided error rate ``tail``, from prompts and starts (logarithm)."""
        return t_quantile(tail, speedup.freedom) * math.sqrt(self.variance + speedup.from_starts)


def sum_ratio(baseline: Mapping[PromptKey, float], speculative: Mapping[PromptKey, float]) -> SumRatio | None:
    """The ratio of the seconds, summed over the prompts of both arms; None without any. Variance: delta method."""
    shared_prompts = [prompt for prompt in baseline if prompt in speculative]
    if not shared_prompts:
        return None
    baseline_s = np.array([baseline[prompt] for prompt in shared_prompts])
    speculative_s = np.array([speculative[prompt] for prompt in shared_prompts])
    log_ratio = math.log(float(baseline_s.mean()) / float(speculative_s.mean()))
    if len(shared_prompts) < 2:
        return SumRatio(log_ratio, 0.0)
    relative = baseline_s / baseline_s.mean() - speculative_s / speculative_s.mean()
    squares = float((relative**2).sum())
    return SumRatio(log_ratio, squares / (len(shared_prompts) - 1) / len(shared_prompts))


# --- a ratio by itself ------------------------------------------------------------------------------


def mean_ratio(logs: Sequence[float], low_tail: float = LOW_TAIL, high_tail: float = HIGH_TAIL) -> Gain | None:
    """The geometric mean of ratios, given as logarithms, with Student's t interval.

    None for no values. For a single one the bounds are the value itself, and it supports no claim. Variation between
    server starts is not part of this interval.
    """
    n = len(logs)
    if not n:
        return None
    mean = sum(logs) / n
    if n == 1:
        return ratio_of(mean, low=mean, high=mean, prompts=1, enough=False)
    standard_error = math.sqrt(sum((log - mean) ** 2 for log in logs) / (n - 1) / n)
    low = mean - t_quantile(low_tail, n - 1) * standard_error
    high = mean + t_quantile(high_tail, n - 1) * standard_error
    return ratio_of(mean, low, high, n, enough=n >= FEWEST_PROMPTS)
