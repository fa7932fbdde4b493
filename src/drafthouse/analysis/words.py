"""The words of a verdict, the speed-up that `pays` must exceed, and the number of the rule (docs/verdict.md).

A speed-up is a ratio: the baseline's time per token over the speculative arm's, above 1 if speculation is faster.
"""

from __future__ import annotations

from typing import Final

from ..core.closed_word import ClosedWord

#: The speed-up above which the lower bound must lie for `pays`. Smaller gains prove nothing: a restart, a warmer room
#: or another process can cause a difference of 3 %.
THRESHOLD = 1.03
#: The number of the current rule; words of different rules are not compared with each other.
RULE = 2
#: Shown beside the word of a report whose rule number is not `RULE`; the oldest reports have no number.
EARLIER = "by an earlier rule"


class Word(ClosedWord):
    """The word of a verdict. The whole rule is in docs/verdict.md, the table that applies it in `decision.py`."""

    PAYS = "pays"  # speculation is surely faster, and no output is wrong
    DOES_NOT_PAY = "does not pay"  # surely no gain that is worth it, or wrong output
    CANNOT_SAY = "cannot say"  # the measurement supports neither of the two; the sentence names the cause
    INVALID = "invalid"  # the results of the arms are not comparable


# The same words as plain strings. Reports hold these, and other rooms compare a report's word with them; the decision
# itself uses the members of `Word`.
PAYS: Final = Word.PAYS.value
DOES_NOT_PAY: Final = Word.DOES_NOT_PAY.value
CANNOT_SAY: Final = Word.CANNOT_SAY.value
INVALID: Final = Word.INVALID.value
