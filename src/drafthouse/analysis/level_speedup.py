"""One level of a load sweep (ladder): its speed-up by the verdict's estimator, its word, its claimed gain.

A step is one arm at one load level in one round. A claimed gain is one that the ladder's sentence may quote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

from ..bench.stats import Gain, median
from ..bench.sweep.ladder_types import Control, LadderStep, LevelVerdict
from .decision import SUM_TAIL
from .measured import control_ratio
from .speedup import (
    BASELINE,
    CONFIDENCE,
    FEWEST_PROMPTS,
    SPECULATIVE,
    Speedup,
    SumRatio,
    estimate_speedup,
    rounds_in,
    sum_ratio,
)
from .words import PAYS, THRESHOLD

# The words of a level beside `PAYS`.
COSTS = "costs"  # surely slower than the baseline by more than the threshold
UNCLEAR = "unclear"
Steps = Mapping[tuple[str, int], LadderStep]  # by arm and round


@dataclass(frozen=True)
class MeasuredLevel:
    """The figures of a level."""

    speedup: Speedup
    claim_low: float  # the lower bound (logarithm) that a claimed gain rests on; stricter than the interval
    total: SumRatio  # the ratio of the arms' summed times per token
    by_round: list[float]  # the speed-up of each single round (logarithm)
    control: Control | None  # the A/A control: the baseline's first good round over its second; None for one round


def measure_level(good: Steps, low_tail: float) -> MeasuredLevel | None:
    """The figures of a level from its good steps; None without two prompts that both arms answered in one round.

    ``low_tail`` is the one-sided error rate of the bound that a claimed gain rests on, see `crossover.py`.
    """
    base = _log_tpot(good, BASELINE)
    spec = _log_tpot(good, SPECULATIVE)
    shared_rounds = rounds_in(base, spec)
    speedup = estimate_speedup(base, spec, dict.fromkeys(shared_rounds, ""))  # all prompts are of one kind
    total = sum_ratio(_mean_tpot_ms(base, shared_rounds), _mean_tpot_ms(spec, shared_rounds))
    if speedup is None or total is None:
        return None
    round_gains: dict[int, list[float]] = {}  # by round, the gain of each prompt
    for prompt, rounds in shared_rounds.items():
        for r in rounds:
            round_gains.setdefault(r, []).append(base[prompt][r] - spec[prompt][r])
    control = control_ratio(base, sorted(r for arm, r in good if arm == BASELINE)[:2])
    return MeasuredLevel(
        speedup=speedup,
        claim_low=speedup.lower_bound(low_tail),
        total=total,
        by_round=list(map(fmean, round_gains.values())),
        control=cast("Control | None", control),
    )


def _log_tpot(good: Steps, arm: str) -> dict[str, dict[int, float]]:
    """The mean logarithm of an arm's times per output token (ms), by prompt, then by round.

    A step may send a prompt more than once; such a prompt still has one value per round.
    """
    log_tpot: dict[str, dict[int, float]] = {}
    for (step_arm, r), step in good.items():
        for prompt, tpots_ms in (step.get("tpot_by_prompt") or {}).items():
            positive = [float(ms) for ms in tpots_ms if ms is not None and math.isfinite(ms) and ms > 0]
            if step_arm == arm and positive:
                log_tpot.setdefault(str(prompt), {})[r] = fmean(map(math.log, positive))
    return log_tpot


def _mean_tpot_ms(logs: Mapping[str, Mapping[int, float]], shared: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """By prompt, its mean time per token over its ``shared`` rounds, in ms; ``logs`` are those of one arm."""
    return {prompt: fmean(math.exp(logs[prompt][r]) for r in rounds) for prompt, rounds in shared.items()}


def is_claimed(level: LevelVerdict, measured: MeasuredLevel) -> bool:
    """True if the gain is claimed: its bound, its sum of times, its rounds and the A/A control all support it."""
    speedup = measured.speedup
    if len(speedup.prompt_gains) < FEWEST_PROMPTS or measured.claim_low <= math.log(THRESHOLD):
        return False
    if measured.total.log_ratio - measured.total.half_width(SUM_TAIL, speedup) <= 0:
        return False
    if max(measured.by_round) - min(measured.by_round) >= speedup.log_gain:  # rounds differ by the gain or more
        return False
    control = level["control"]
    # A drift of the baseline as large as the gain could be the gain; without a second round it is unknown.
    return control is None or max(control["high"], 1 / control["low"]) < level["speedup"]["gain"]


def word_of(speedup: Gain) -> str:
    """The word of a level by its speed-up: pays, costs, or unclear between the two or with too few prompts."""
    if speedup["reach"] >= speedup["confidence"]:
        if speedup["low"] > THRESHOLD:
            return PAYS
        if speedup["high"] < 1 / THRESHOLD:
            return COSTS
    return UNCLEAR


def level_verdict(level: float, good: Steps, rounds: Sequence[int], measured: MeasuredLevel) -> LevelVerdict:
    """The entry of a level in a report; ``rounds`` are those in which both arms have a good step."""
    speedup = _gain_of_level(measured.speedup)
    return {
        "level": level,
        "rounds": len(rounds),
        # Tokens of all users together: throughput can gain at a level where the TPOT of a user does not.
        "throughput_ratio": _throughput_ratio(good, rounds),
        "control": measured.control,
        "speedup": speedup,
        "corrected": {**speedup, "low": math.exp(measured.claim_low)},  # with the bound that a claim rests on
        "word": word_of(speedup),
    }


def _gain_of_level(speedup: Speedup) -> Gain:
    """A level's speed-up as plain data. One round supports a claim, because the prior covers the spread of starts."""
    reach = 0.0
    if len(speedup.prompt_gains) >= FEWEST_PROMPTS:
        reach = CONFIDENCE
    return {**speedup.as_dict(), "reach": reach}


def _throughput_ratio(good: Steps, rounds: Sequence[int]) -> float | None:
    """The output tokens/s of the speculative arm over the baseline's, medians over rounds; None if unknown."""
    medians = []
    for arm in (SPECULATIVE, BASELINE):
        throughputs = []
        for r in rounds:
            if throughput := good[arm, r].get("output_throughput"):
                throughputs.append(float(throughput))
        if not throughputs:
            return None
        medians.append(median(throughputs))
    return medians[0] / medians[1]
