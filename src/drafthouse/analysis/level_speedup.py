"""One level of a ladder: its speed-up by the verdict's estimator, its word, and whether a gain is claimed. Pure."""

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

COSTS, UNCLEAR = "costs", "unclear"
Steps = Mapping[tuple[str, int], LadderStep]


@dataclass(frozen=True)
class MeasuredLevel:
    """One level: its speed-up, and the sum of its times per token."""

    speedup: Speedup
    claim_low: float
    """The lower bound by which a gain is claimed (logarithm)."""
    total: SumRatio
    by_round: list[float]
    """The speed-up of each round by itself (logarithm)."""
    control: Control | None
    """The baseline's first good round over its second, prompt by prompt: what the box does by itself."""


def measure_level(good: Steps, low_tail: float) -> MeasuredLevel | None:
    """What was measured of a level; None without two prompts that both arms answered in a round."""
    one, two = _log_tpot(good, BASELINE), _log_tpot(good, SPECULATIVE)
    asked = rounds_in(one, two)
    speedup = estimate_speedup(one, two, dict.fromkeys(asked, ""))
    total = sum_ratio(_mean_times(one, asked), _mean_times(two, asked))
    if speedup is None or total is None:
        return None
    by_round: dict[int, list[float]] = {}
    for prompt, rounds in asked.items():
        for number in rounds:
            by_round.setdefault(number, []).append(one[prompt][number] - two[prompt][number])
    control = control_ratio(one, sorted(number for arm, number in good if arm == BASELINE)[:2])
    return MeasuredLevel(
        speedup=speedup,
        claim_low=speedup.lower_bound(low_tail),
        total=total,
        by_round=list(map(fmean, by_round.values())),
        control=cast("Control | None", control),
    )


def _log_tpot(good: Steps, arm: str) -> dict[str, dict[int, float]]:
    """The mean logarithm of an arm's times per output token in ms, by prompt and round.

    A step may send a prompt more than once; a round counts once.
    """
    found: dict[str, dict[int, float]] = {}
    for (own, number), step in good.items():
        for prompt, values in (step.get("tpot_by_prompt") or {}).items():
            usable = [float(value) for value in values if value is not None and math.isfinite(value) and value > 0]
            if own == arm and usable:
                found.setdefault(str(prompt), {})[number] = fmean(map(math.log, usable))
    return found


def _mean_times(logs: Mapping[str, Mapping[int, float]], asked: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """The mean time per token of each prompt over its rounds, in ms."""
    return {prompt: fmean(math.exp(logs[prompt][number]) for number in rounds) for prompt, rounds in asked.items()}


def is_claimed(level: LevelVerdict, measured: MeasuredLevel) -> bool:
    """Whether the gain of a level is claimed."""
    speedup = measured.speedup
    if len(speedup.prompt_gains) < FEWEST_PROMPTS or measured.claim_low <= math.log(THRESHOLD):
        return False
    if measured.total.ratio - measured.total.bound(SUM_TAIL, speedup) <= 0:
        return False
    if max(measured.by_round) - min(measured.by_round) >= speedup.speedup:
        return False
    control = level["control"]
    return control is None or max(control["high"], 1 / control["low"]) < level["speedup"]["gain"]


def word_of(speedup: Gain) -> str:
    """The word of one level for its speed-up (an `Estimate` as plain data)."""
    if speedup["reach"] >= speedup["confidence"]:
        if speedup["low"] > THRESHOLD:
            return PAYS
        if speedup["high"] < 1 / THRESHOLD:
            return COSTS
    return UNCLEAR


def level_verdict(level: float, good: Steps, rounds: Sequence[int], measured: MeasuredLevel) -> LevelVerdict:
    """What a report shows of a level."""
    speedup = _shown(measured.speedup)
    return {
        "level": level,
        "rounds": len(rounds),
        # All the tokens that the server gives, not one user's: it can still gain where TPOT loses nothing more.
        "throughput_ratio": _throughput_ratio(good, rounds),
        "control": measured.control,
        "speedup": speedup,
        "corrected": {**speedup, "low": math.exp(measured.claim_low)},
        "word": word_of(speedup),
    }


def _shown(speedup: Speedup) -> Gain:
    """A level's speed-up as plain data; one round is enough for it, with what is known of starts beforehand."""
    reach = 0.0
    if len(speedup.prompt_gains) >= FEWEST_PROMPTS:
        reach = CONFIDENCE
    return {**speedup.as_dict(), "reach": reach}


def _throughput_ratio(good: Steps, rounds: Sequence[int]) -> float | None:
    """The output tokens a second of the speculative arm over the baseline's; None where one is unknown."""
    middles = []
    for arm in (SPECULATIVE, BASELINE):
        known = []
        for number in rounds:
            if throughput := good[arm, number].get("output_throughput"):
                known.append(float(throughput))
        if not known:
            return None
        middles.append(median(known))
    return middles[0] / middles[1]
