"""The four possible verdicts, the rule's two thresholds of the speed-up, and its version (docs/verdict.md).

A speed-up is a ratio: the baseline's time per token over the speculative arm's, above 1 if speculation is faster.
"""

from __future__ import annotations

from typing import Final

from ..core.closed_word import ClosedWord

#: `pays` needs a lower bound above this, among other things (see the table in `decision.py`). Smaller gains prove
#: nothing: a restart, a warmer room or another process can cause a difference of 3 %.
THRESHOLD = 1.03
#: An upper bound below this gives `does not pay`: a smaller gain is not worth a draft model's memory and upkeep. Wrong
#: output gives it too, and so do answers that surely take longer in sum.
WORTH = 1.10
#: The version of the rule. Verdicts by different versions are not comparable.
RULE_VERSION = 2
#: Shown beside the word of a report whose version of the rule is another; the oldest reports have none.
EARLIER = "by an earlier rule"


class Word(ClosedWord):
    """A verdict. The whole rule is in docs/verdict.md; `decision.py` applies it."""

    PAYS = "pays"  # speculation is surely faster, and no output is wrong
    DOES_NOT_PAY = "does not pay"  # surely no gain that is worth it, more seconds in sum, or wrong output
    CANNOT_SAY = "cannot say"  # the measurement supports neither of the two; the sentence names the cause
    INVALID = "invalid"  # the results of the arms are not comparable


# The same words as plain strings: reports hold these, and other packages compare them. The decision uses `Word`.
PAYS: Final = Word.PAYS.value
DOES_NOT_PAY: Final = Word.DOES_NOT_PAY.value
CANNOT_SAY: Final = Word.CANNOT_SAY.value
INVALID: Final = Word.INVALID.value
