"""The words of a verdict, and the gain from which one can say `pays`: for those that need nothing else of it."""

from __future__ import annotations

from typing import Final

from ..core.closed_word import ClosedWord

#: Below 3 % a restart, a warmer room or another process explains as much: such a gain is not worth a draft.
THRESHOLD = 1.03
#: The number of the rule that gives the words; those of different rules are not compared.
RULE = 2
#: What stands beside the word of a report without that number.
EARLIER = "by an earlier rule"


class Word(ClosedWord):
    """What a verdict can say."""

    PAYS = "pays"
    DOES_NOT_PAY = "does not pay"
    CANNOT_SAY = "cannot say"
    INVALID = "invalid"


PAYS: Final = Word.PAYS.value
DOES_NOT_PAY: Final = Word.DOES_NOT_PAY.value
CANNOT_SAY: Final = Word.CANNOT_SAY.value
INVALID: Final = Word.INVALID.value
