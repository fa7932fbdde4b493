"""The words of a verdict, the threshold for `pays`, and the number of the rule (docs/verdict.md)."""

from __future__ import annotations

from typing import Final

from ..core.closed_word import ClosedWord

#: Smaller gains prove nothing: a restart, a warmer room or another process can cause a difference of 3 %.
THRESHOLD = 1.03
#: The number of the current rule; words of different rules are not compared with each other.
RULE = 2
#: Shown beside the word of a report that has no rule number.
EARLIER = "by an earlier rule"


class Word(ClosedWord):
    """The word of a verdict."""

    PAYS = "pays"
    DOES_NOT_PAY = "does not pay"
    CANNOT_SAY = "cannot say"
    INVALID = "invalid"


PAYS: Final = Word.PAYS.value
DOES_NOT_PAY: Final = Word.DOES_NOT_PAY.value
CANNOT_SAY: Final = Word.CANNOT_SAY.value
INVALID: Final = Word.INVALID.value
