"""How many rounds are enough: what each look at the results may claim, and whether another round is worth its cost.

Two rounds are measured in any case. After each further one the judgement is looked at again, and who looks often
enough sees chance win once: so the error rate is spent over the looks.
"""

from __future__ import annotations

import math

from ..bench.stats import CONFIDENCE
from ..core.format import times, times_span
from .verdict_text import CANNOT_SAY, DOES_NOT_PAY, THRESHOLD
from .verdict_types import Judgement

#: The rounds after which the results are looked at for the first time.
FIRST_LOOK = 2


def tail_of(done: int, most: int) -> float:
    """Return the error rate of either end of the interval at the look after ``done`` rounds of at most ``most``.

    Up to the share t of the rounds alpha * ln(1 + (e - 1) t) of the rate may be spent (Lan and DeMets, Discrete
    sequential boundaries for clinical trials, Biometrika 70, 1983, 659-663: their function of Pocock's kind); a look
    gets what was not spent before it. The rates of the looks are simply added up (Bonferroni), so nothing has to be
    known of how they depend on each other, and ending early for another reason costs nothing.
    """
    alpha = (1.0 - CONFIDENCE) / 2.0
    most = max(most, done)
    if most <= FIRST_LOOK or done < FIRST_LOOK:
        return alpha

    def spent(rounds: int) -> float:
        return alpha * math.log1p((math.e - 1.0) * rounds / most)

    return spent(done) - (spent(done - 1) if done > FIRST_LOOK else 0.0)


def wants_more(judgement: Judgement, done: int, most: int) -> str | None:
    """Return why another round is worth buying, or None when the verdict is sure enough or ``most`` is reached.

    ``judgement`` is what `verdict.judge` said of the ``done`` rounds. It is sure when it pays, when an interval's upper
    end is not above the threshold, and when even the rounds that are left could not carry the lower end above it.
    """
    if done >= most:
        return None
    word, speedup = judgement["word"], judgement.get("speedup")
    if word == CANNOT_SAY:
        return str(judgement["said"]).partition("; do:")[0]
    if word != DOES_NOT_PAY or judgement.get("wrong_output") or not speedup:
        return None
    if done < FIRST_LOOK:
        return "one start of each arm does not show how much starts differ"
    starts = judgement.get("starts")
    # With the lower end above it, it is the wait for the answer that does not pay, and no more starts change that.
    if speedup["low"] > THRESHOLD or speedup["high"] <= THRESHOLD or not (starts and starts.get("may_pay_yet")):
        return None
    return f"{times(THRESHOLD)} lies within {times_span(speedup)}, and more rounds may carry the lower end above it"
