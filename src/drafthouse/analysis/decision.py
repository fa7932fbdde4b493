"""The word of the verdict: the table of docs/verdict.md with its numbers, and what another round should ask. Pure.

| word | when |
|---|---|
| `invalid` | the two results are no fair comparison |
| `does not pay` | a gate failed, or the answers' seconds are more in sum, or the interval's upper end is below 1.10 |
| `pays` | the lower end is above 1.03, and the seconds are less in sum |
| `cannot say` | otherwise |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..bench.stats import Gain
from ..core.closed_word import ClosedWord
from .speedup import LOW_TAIL, Speedup, SumRatio
from .words import THRESHOLD, Word

#: A gain that is surely smaller than this is not worth a draft model's memory and another thing to look after.
WORTH = 1.10
#: The one-sided error rate of the sum of seconds where speculation is to pay.
SUM_TAIL = 0.10
#: The rounds after which the results are looked at for the first time.
FIRST_LOOK = 2
#: A gain below LARGE needs so many rounds, and where two starts of one arm differ by APART so many.
LARGE, LEAST_ROUNDS = 1.60, 3
APART, APART_ROUNDS = 1.10, 4


class Fresh(ClosedWord):
    """How many fresh prompts another round should ask: ``MANY`` where prompts are the larger part of the variance."""

    MANY = "many"
    FEW = "few"


class Cause(ClosedWord):
    """Why nothing can be said."""

    TOO_FEW_PROMPTS = "too few prompts"
    TOO_NOISY = "too noisy"
    STARTS_DIFFER = "starts differ"
    MORE_ROUNDS = "too few rounds"


@dataclass(frozen=True)
class Measured:
    """What was measured of two arms: the speed-up, and the sums of seconds over all and at each temperature."""

    speedup: Speedup | None
    total: SumRatio | None
    by_temperature: Mapping[float, SumRatio]

    @property
    def gain(self) -> Gain | None:
        """The speed-up as plain data: ratios; None for fewer than two prompts."""
        return None if self.speedup is None else self.speedup.as_dict()


@dataclass(frozen=True)
class Decision:
    """The word, the cause of `cannot say`, and what another round should ask (None: no round is needed)."""

    word: Word
    cause: Cause | None = None
    fresh: Fresh | None = None


def decide(measured: Measured) -> Decision:
    """The word that the speeds alone give, before anything else is looked at."""
    speedup, total = measured.speedup, measured.total
    if speedup is None or total is None or not speedup.enough_for_claim:
        if speedup is not None and speedup.rounds < FIRST_LOOK:
            return Decision(Word.CANNOT_SAY, Cause.MORE_ROUNDS, Fresh.MANY)
        return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_PROMPTS, Fresh.MANY)
    if slower_in_sum(speedup, total):
        return Decision(Word.DOES_NOT_PAY)
    small = speedup.high < math.log(WORTH)
    gains = speedup.low > math.log(THRESHOLD) and faster_in_sum(measured)
    if (small or gains) and speedup.rounds < rounds_needed(speedup):
        if speedup.rounds >= LEAST_ROUNDS or speedup.speedup >= math.log(LARGE):
            return Decision(Word.CANNOT_SAY, Cause.STARTS_DIFFER, Fresh.FEW)
        return Decision(Word.CANNOT_SAY, Cause.MORE_ROUNDS, Fresh.FEW)
    if small:
        return Decision(Word.DOES_NOT_PAY)
    if gains:
        return Decision(Word.PAYS)
    if speedup.from_prompts > speedup.from_starts:
        return Decision(Word.CANNOT_SAY, Cause.TOO_FEW_PROMPTS, Fresh.MANY)
    if speedup.starts.anchor_noise > speedup.starts.variance:
        return Decision(Word.CANNOT_SAY, Cause.TOO_NOISY, Fresh.FEW)
    return Decision(Word.CANNOT_SAY, Cause.STARTS_DIFFER, Fresh.FEW)


def rounds_needed(speedup: Speedup) -> int:
    """The fewest rounds from which such a gain may be claimed, or denied where it is not surely below the threshold."""
    if speedup.high < math.log(THRESHOLD):
        return FIRST_LOOK
    if speedup.starts.apart[0] >= APART:
        return APART_ROUNDS
    return LEAST_ROUNDS if speedup.speedup < math.log(LARGE) else FIRST_LOOK


def faster_in_sum(measured: Measured) -> bool:
    """Whether all answers together took less: surely over all of them, as measured at each temperature."""
    speedup, total = measured.speedup, measured.total
    if speedup is None or total is None or total.ratio - total.bound(SUM_TAIL, speedup) <= 0:
        return False
    return all(part.ratio > 0 for part in measured.by_temperature.values())


def slower_in_sum(speedup: Speedup, total: SumRatio) -> bool:
    """Whether all answers together surely took longer."""
    return total.ratio + total.bound(LOW_TAIL, speedup) < 0
