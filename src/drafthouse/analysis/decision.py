"""The decision table of docs/verdict.md: from a measured speed-up to a word, and to what the next round asks.

Surely means by a bound of an interval; the seconds in sum are those of all answers at equal lengths, by arm. Each round
starts the server of each arm anew: a start is one of these. An anchor is a prompt that every round asks, a fresh prompt
one that no other round asks.

| word | when |
|---|---|
| `invalid` | the results are not comparable (`evidence.py`) |
| `does not pay` | a gate failed, or the seconds in sum are surely larger, or the upper bound is below 1.10 |
| `pays` | the lower bound is above 1.03, the upper bound not below 1.10, and the seconds in sum are less |
| `cannot say` | otherwise |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..bench.stats import Gain
from ..core.closed_word import ClosedWord
from .speedup import LOW_TAIL, Speedup, SumRatio
from .words import THRESHOLD, WORTH, Word

#: One-sided error rate of the bound on the sum of seconds that `pays` requires.
SUM_TAIL = 0.10
#: Rounds before the first interim analysis.
FIRST_LOOK = 2
#: A gain below the ratio LARGE needs LEAST_ROUNDS rounds; a larger one needs only `FIRST_LOOK`.
LARGE = 1.60
LEAST_ROUNDS = 3
#: If two starts of one arm differ by the ratio APART, any gain needs APART_ROUNDS rounds.
APART = 1.10
APART_ROUNDS = 4


class Fresh(ClosedWord):
    """How many fresh prompts the next round asks; `prompt_plan.FRESH_LATER` has the numbers."""

    MANY = "many"  # prompts are the larger part of the variance, or there is too little for a claim
    FEW = "few"  # the round is needed for its starts and anchors


class Cause(ClosedWord):
    """The cause of `cannot say`."""

    TOO_FEW_PROMPTS = "too few prompts"
    TOO_NOISY = "too noisy"  # single answers vary, or a disturbance (`noise.py`) can explain the speed-up
    STARTS_DIFFER = "starts differ"  # of one arm's server
    TOO_FEW_ROUNDS = "too few rounds"


@dataclass(frozen=True)
class Measured:
    """The speed-up and the ratios of summed seconds, which the decision rests on."""

    speedup: Speedup | None  # None for fewer than two prompts
    total: SumRatio | None  # over all answers; None without a prompt in both arms
    by_temperature: Mapping[float, SumRatio]

    @property
    def gain(self) -> Gain | None:
        """The speed-up as plain data (ratios); None for fewer than two prompts."""
        return None if self.speedup is None else self.speedup.as_dict()


@dataclass(frozen=True)
class Decision:
    """The word of the verdict, and what the next round asks."""

    word: Word
    cause: Cause | None = None  # the cause of `cannot say`; None for all other words
    fresh: Fresh | None = None  # how many fresh prompts the next round asks; None: no round is needed


def decide(measured: Measured) -> Decision:
    """The word by speed alone, before validity, gates and disturbances. The first case that applies decides.

    - Too little for a claim: `cannot say`. Too few rounds are the cause before `FIRST_LOOK`, else too few prompts.
    - Surely slower in sum: `does not pay`.
    - A gain that is surely small, or surely a gain, in fewer rounds than `rounds_needed`: `cannot say`.
    - Surely small: `does not pay`; surely a gain: `pays`.
    - Undecided: `cannot say`, by the largest part of the variance.
    """
    speedup = measured.speedup
    total = measured.total
    if speedup is None or total is None or not speedup.enough_for_claim:
        if speedup is not None and speedup.rounds < FIRST_LOOK:
            return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_ROUNDS, Fresh.MANY)
        return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_PROMPTS, Fresh.MANY)
    if slower_in_sum(speedup, total):
        return Decision(Word.DOES_NOT_PAY)
    surely_small = speedup.high < math.log(WORTH)
    surely_gains = speedup.low > math.log(THRESHOLD) and faster_in_sum(measured)
    if (surely_small or surely_gains) and speedup.rounds < rounds_needed(speedup):
        # With so many rounds, or so large a gain, only starts that are `APART` demand another round.
        if speedup.rounds >= LEAST_ROUNDS or speedup.log_gain >= math.log(LARGE):
            return Decision(Word.CANNOT_SAY, Cause.STARTS_DIFFER, Fresh.FEW)
        return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_ROUNDS, Fresh.FEW)
    if surely_small:
        return Decision(Word.DOES_NOT_PAY)
    if surely_gains:
        return Decision(Word.PAYS)
    if speedup.from_prompts > speedup.from_starts:
        return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_PROMPTS, Fresh.MANY)
    if speedup.starts.anchor_noise > speedup.starts.variance:
        return Decision(Word.CANNOT_SAY, Cause.TOO_NOISY, Fresh.FEW)
    return Decision(Word.CANNOT_SAY, Cause.STARTS_DIFFER, Fresh.FEW)


def rounds_needed(speedup: Speedup) -> int:
    """The rounds that claiming or denying this gain takes; two deny a gain that is surely below the threshold."""
    if speedup.high < math.log(THRESHOLD):
        return FIRST_LOOK
    largest_ratio, _arm = speedup.starts.apart
    if largest_ratio >= APART:
        return APART_ROUNDS
    return LEAST_ROUNDS if speedup.log_gain < math.log(LARGE) else FIRST_LOOK


def faster_in_sum(measured: Measured) -> bool:
    """True if the seconds in sum are surely less over all answers, and measured as less at each temperature."""
    speedup = measured.speedup
    total = measured.total
    if speedup is None or total is None:
        return False
    if total.log_ratio - total.half_width(SUM_TAIL, speedup) <= 0:
        return False
    return all(ratio.log_ratio > 0 for ratio in measured.by_temperature.values())


def slower_in_sum(speedup: Speedup, total: SumRatio) -> bool:
    """True if the seconds in sum over all answers are surely more (99 %)."""
    return total.log_ratio + total.half_width(LOW_TAIL, speedup) < 0
