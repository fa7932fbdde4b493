"""An enum whose members are strings, as `enum.StrEnum` of Python 3.11; boxes may run Python 3.10."""

from __future__ import annotations

from enum import Enum


class ClosedWord(str, Enum):
    """A word of a fixed list, such as the words of a verdict. Messages and JSON show its value.

    Without these methods str(), and in some versions of Python an f-string, would show CLASS.MEMBER instead.
    """

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return str.__format__(self.value, spec)
