"""The speed-up of one arm over another, with its interval: the one estimator of every comparison. Pure.

The names are those of docs/verdict.md, and all numbers are natural logarithms until `as_dict` makes ratios of them.
`SumRatio` compares the seconds of all answers, where long answers weigh more. For an arm a, a prompt p, a round r, with
R rounds:

    log_tpot[a, p, r]     natural logarithm of the time per token; of a prompt that was asked at several temperatures in
                          a round the mean of theirs
    anchors               the prompts that both arms answered in every round, A of them; the others are fresh prompts
    start_effects[a, r]   the mean of log_tpot over the anchors, less the arm's mean over its rounds: every start of a
                          server has a speed of its own, which all answers of that step share
    noise                 the variance of one answer: the anchors' residuals, with 2 (R - 1) (A - 1) degrees of freedom
    start                 the variance of one start: that of start_effects less noise / A, pooled with PRIOR_SD at
                          PRIOR_FREEDOM degrees, and not below the prior's share
    prompt_gains[p]       the mean over the prompt's rounds of log_tpot[baseline] - log_tpot[speculative]; of a fresh
                          prompt less share * (start_effects[baseline, r] - start_effects[speculative, r]), with
                          share = start / (start + noise / A)
    speedup               the mean of prompt_gains within each kind, averaged over the kinds (a logarithm)
    from_prompts          sum over K kinds of variance(prompt_gains of the kind) / n of the kind / K^2
    from_starts           2 start (1 / R + (1 - share)^2 uneven) + 2 noise / A share^2 uneven, where uneven is the sum
                          over the rounds of (weight of the round in the estimate - 1 / R)^2
    interval              speedup -/+ t * sqrt(from_prompts + from_starts), with Satterthwaite's degrees of freedom:
                          a LOW_TAIL bound below and a HIGH_TAIL bound above

Kinds are declared and not drawn, so what they differ by is no noise. Nothing is left out by its value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..bench.stats import Gain, t_quantile

#: Error rates of the interval's ends, at every interim analysis: 99 % below, 97.5 % above.
LOW_TAIL, HIGH_TAIL = 0.01, 0.025
#: What the speeds of two starts of one server differ by where nothing was measured (standard deviation of logarithms),
#: and the degrees of freedom that this is worth.
PRIOR_SD, PRIOR_FREEDOM = 0.02, 4
#: A kind of fewer prompts has no spread of its own: then all prompts have one.
KIND_PROMPTS = 4
#: With fewer prompts the interval is shown, and nothing is claimed by it.
FEWEST_PROMPTS = 6
CONFIDENCE = 1.0 - LOW_TAIL - HIGH_TAIL

BASELINE, SPECULATIVE = "baseline", "speculative"
PromptKey = TypeVar("PromptKey", bound=Hashable)
Array = npt.NDArray[np.float64]
#: log_tpot of one arm: by prompt, by round.
LogTimes = Mapping[PromptKey, Mapping[int, float]]


@dataclass(frozen=True)
class StartEffects:
    """What server starts do: variances are of natural logarithms.

    ``variance`` is that of one start with its degrees of ``freedom``, ``anchor_noise`` what the noise of single answers
    adds to the mean of the anchors. ``effects`` has the level of each step by arm and round (logarithm); of arms that
    ran side by side (``together``) half of their difference.
    """

    variance: float
    freedom: int
    anchor_noise: float
    effects: dict[str, dict[int, float]]
    together: bool = False

    @property
    def share(self) -> float:
        """The share of a step's level that is the start's own and not the noise of its anchors."""
        return self.variance / (self.variance + self.anchor_noise)

    @property
    def apart(self) -> tuple[float, str]:
        """The furthest that two starts of one arm lie apart, as a ratio, and the arm."""
        widest, arm = 0.0, BASELINE
        for name, levels in self.effects.items():
            if levels and max(levels.values()) - min(levels.values()) > widest:
                widest, arm = max(levels.values()) - min(levels.values()), name
        if self.together:
            # Half a difference of two starts varies by 1 / sqrt(2) of what one start does.
            widest *= math.sqrt(2.0)
        return math.exp(widest), arm


@dataclass(frozen=True)
class Speedup:
    """A speed-up with its interval, all natural logarithms.

    ``from_prompts`` and ``from_starts`` are the two variances of the interval, ``prompt_gains`` stand by prompt,
    ``by_kind`` is the mean gain of each kind, ``rounds`` the number of rounds.
    """

    speedup: float
    low: float
    high: float
    freedom: float
    from_prompts: float
    from_starts: float
    prompt_gains: Mapping[Any, float]
    by_kind: dict[str, float]
    rounds: int
    starts: StartEffects = field(repr=False)

    def lower_bound(self, tail: float) -> float:
        """The lower bound at an error rate (logarithm)."""
        return self.speedup - t_quantile(tail, self.freedom) * math.sqrt(self.from_prompts + self.from_starts)

    @property
    def enough_for_claim(self) -> bool:
        """Whether there are prompts and starts enough for a claim."""
        return len(self.prompt_gains) >= FEWEST_PROMPTS and self.rounds > 1

    def as_dict(self) -> Gain:
        """The speed-up as plain data: ratios, above 1 where the second arm is faster."""
        return ratio_of(self.speedup, self.low, self.high, len(self.prompt_gains), enough=self.enough_for_claim)


def ratio_of(log: float, low: float, high: float, prompts: int, *, enough: bool) -> Gain:
    """A ratio as plain data, from logarithms over so many prompts; ``enough``: they are enough for a claim."""
    return {
        "gain": math.exp(log),
        "low": math.exp(low),
        "high": math.exp(high),
        "n": prompts,
        "confidence": CONFIDENCE,
        "reach": CONFIDENCE if enough else 0.0,
    }


def rounds_in(baseline: LogTimes[PromptKey], speculative: LogTimes[PromptKey]) -> dict[PromptKey, list[int]]:
    """The rounds in which both arms answered a prompt, by prompt, in order; without those that have none."""
    found: dict[PromptKey, list[int]] = {}
    for prompt, rounds in baseline.items():
        shared = rounds.keys() & speculative.get(prompt, {}).keys()
        if shared:
            found[prompt] = sorted(shared)
    return found


def estimate_speedup(
    baseline: LogTimes[PromptKey],
    speculative: LogTimes[PromptKey],
    kinds: Mapping[PromptKey, str],
    *,
    together: bool = False,
) -> Speedup | None:
    """The speed-up over the prompts that both arms answered in a round; None for fewer than two.

    ``kinds`` has the kind of every prompt. ``together``: the arms ran side by side, so that what both share in a
    round is no start's own.
    """
    asked = rounds_in(baseline, speculative)
    if len(asked) < 2:
        return None
    rounds = sorted(set[int]().union(*asked.values()))
    anchors: list[PromptKey] = []
    if len(rounds) > 1:
        anchors = [prompt for prompt, own in asked.items() if len(own) == len(rounds)]
    starts = start_effects(baseline, speculative, anchors, rounds, together=together)
    gains = prompt_gains(baseline, speculative, asked, set(anchors), starts)
    by_kind = _grouped(gains, kinds)
    number = len(by_kind)
    means: dict[str, float] = {}
    # The variance that each kind adds to the estimate, with its degrees of freedom.
    parts: list[tuple[float, int]] = []
    from_prompts = 0.0
    for kind, prompts in by_kind.items():
        own_gains = [gains[prompt] for prompt in prompts]
        size, freedom_of_kind = len(own_gains), len(own_gains) - 1
        means[kind] = sum(own_gains) / size
        variance = sum((gain - means[kind]) ** 2 for gain in own_gains) / freedom_of_kind
        parts.append((variance / size / number**2, freedom_of_kind))
        from_prompts += parts[-1][0]
    from_starts = _from_starts(by_kind, asked, rounds, starts)
    freedom = _satterthwaite([*parts, (from_starts, starts.freedom)])
    speedup = sum(means.values()) / number
    width = math.sqrt(from_prompts + from_starts)
    return Speedup(
        speedup=speedup,
        low=speedup - t_quantile(LOW_TAIL, freedom) * width,
        high=speedup + t_quantile(HIGH_TAIL, freedom) * width,
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
    """What server starts do, as the anchors show it; without two rounds or an anchor what is known beforehand.

    ``together``: both arms run at once in a round, so that what a round does to both cancels. Then half of their
    difference stands for either arm.
    """
    if len(rounds) < 2 or not anchors:
        return StartEffects(PRIOR_SD**2, PRIOR_FREEDOM, 0.0, {BASELINE: {}, SPECULATIVE: {}})
    levels = []
    for arm in (baseline, speculative):
        levels.append(np.array([[arm[prompt][number] for prompt in anchors] for number in rounds]))
    freedom = 2 * (len(rounds) - 1)
    if together:
        # Half of the difference in either arm: its variance over both is that of one start, from one degree a round.
        half = (levels[0] - levels[1]) / 2
        levels, freedom = [half, -half], len(rounds) - 1
    by_arm: dict[str, dict[int, float]] = {}
    residual_squares = effect_squares = 0.0
    for arm_name, level in zip((BASELINE, SPECULATIVE), levels, strict=True):
        effects = level.mean(axis=1) - level.mean()
        residuals = level - level.mean(axis=0) - level.mean(axis=1)[:, None] + level.mean()
        effect_squares += float((effects**2).sum())
        residual_squares += float((residuals**2).sum())
        by_arm[arm_name] = dict(zip(rounds, effects.tolist(), strict=True))
    noise = 0.0
    if len(anchors) > 1:
        # One anchor shows no noise of its own: all that its steps differ by counts as the starts'.
        noise = residual_squares / (freedom * (len(anchors) - 1))
    anchor_noise = noise / len(anchors)
    pooled = effect_squares + PRIOR_FREEDOM * (PRIOR_SD**2 + anchor_noise)
    all_freedom = freedom + PRIOR_FREEDOM
    # Never below the prior's own share of it.
    variance = max(pooled / all_freedom - anchor_noise, PRIOR_FREEDOM * PRIOR_SD**2 / all_freedom)

    return StartEffects(variance, all_freedom, anchor_noise, by_arm, together)


def prompt_gains(
    baseline: LogTimes[PromptKey],
    speculative: LogTimes[PromptKey],
    asked: Mapping[PromptKey, Sequence[int]],
    anchors: set[PromptKey],
    starts: StartEffects,
) -> dict[PromptKey, float]:
    """The logarithm of each prompt's gain, averaged over its rounds; that of a fresh one freed of its starts."""
    gains: dict[PromptKey, float] = {}
    for prompt, rounds in asked.items():
        total = 0.0
        for number in rounds:
            total += baseline[prompt][number] - speculative[prompt][number]
            if prompt not in anchors:
                moved = starts.effects[BASELINE].get(number, 0.0) - starts.effects[SPECULATIVE].get(number, 0.0)
                total -= starts.share * moved
        gains[prompt] = total / len(rounds)
    return gains


def _grouped(gains: Mapping[PromptKey, float], kinds: Mapping[PromptKey, str]) -> dict[str, list[PromptKey]]:
    """The prompts by kind; all of them as one where a kind has too few for a spread of its own."""
    found: dict[str, list[PromptKey]] = {}
    for prompt in gains:
        found.setdefault(kinds[prompt], []).append(prompt)
    if min(map(len, found.values())) < KIND_PROMPTS:
        return {"": list(gains)}
    return found


def _from_starts(
    by_kind: Mapping[str, Sequence[PromptKey]],
    asked: Mapping[PromptKey, Sequence[int]],
    rounds: Sequence[int],
    starts: StartEffects,
) -> float:
    """The variance that server starts add to the estimate."""
    weights = dict.fromkeys(rounds, 0.0)
    for own in by_kind.values():
        for prompt in own:
            for number in asked[prompt]:
                weights[number] += 1.0 / len(asked[prompt]) / len(own) / len(by_kind)
    uneven = sum((weight - 1.0 / len(rounds)) ** 2 for weight in weights.values())
    own_part = 2.0 * starts.variance * (1.0 / len(rounds) + (1.0 - starts.share) ** 2 * uneven)
    return own_part + 2.0 * starts.anchor_noise * starts.share**2 * uneven


def _satterthwaite(parts: Sequence[tuple[float, int]]) -> float:
    """The degrees of freedom of a sum of independent variances, each with its own (Satterthwaite 1946)."""
    total = squares = 0.0
    for variance, freedom in parts:
        total += variance
        squares += variance**2 / freedom
    return total**2 / squares


# --- the sum of seconds -----------------------------------------------------------------------------


@dataclass(frozen=True)
class SumRatio:
    """The answers' seconds at equal lengths, summed: ``ratio`` is the logarithm of baseline over speculative.

    ``variance`` is its sampling variance over the prompts.
    """

    ratio: float
    variance: float

    def bound(self, tail: float, speedup: Speedup) -> float:
        """How far the ratio reaches to either side at an error rate, prompts and starts together (logarithm)."""
        return t_quantile(tail, speedup.freedom) * math.sqrt(self.variance + speedup.from_starts)


def sum_ratio(baseline: Mapping[PromptKey, float], speculative: Mapping[PromptKey, float]) -> SumRatio | None:
    """The ratio of the sums over the prompts that both arms have, from their seconds; None for none."""
    both = [prompt for prompt in baseline if prompt in speculative]
    if not both:
        return None
    baseline_s = np.array([baseline[prompt] for prompt in both])
    speculative_s = np.array([speculative[prompt] for prompt in both])
    ratio = math.log(float(baseline_s.mean()) / float(speculative_s.mean()))
    if len(both) < 2:
        return SumRatio(ratio, 0.0)
    relative = baseline_s / baseline_s.mean() - speculative_s / speculative_s.mean()
    spread = float((relative**2).sum())
    return SumRatio(ratio, spread / (len(both) - 1) / len(both))


# --- a ratio by itself ------------------------------------------------------------------------------


def mean_ratio(logs: Sequence[float], low_tail: float = LOW_TAIL, high_tail: float = HIGH_TAIL) -> Gain | None:
    """The geometric mean of ratios from their logarithms, with Student's interval over them; None for none.

    Server starts have no part in it.
    """
    count = len(logs)
    if not count:
        return None
    middle = sum(logs) / count
    if count == 1:
        return ratio_of(middle, middle, middle, 1, enough=False)
    error = math.sqrt(sum((value - middle) ** 2 for value in logs) / (count - 1) / count)
    low = middle - t_quantile(low_tail, count - 1) * error
    high = middle + t_quantile(high_tail, count - 1) * error
    return ratio_of(middle, low, high, count, enough=count >= FEWEST_PROMPTS)
