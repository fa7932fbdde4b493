"""Enums of closed words, such as the words of a verdict: `enum.StrEnum` for Python 3.10, which boxes may run."""

from __future__ import annotations

from enum import Enum


class ClosedWord(str, Enum):
    """A word of a closed list; it is its own text in messages and in JSON."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return str.__format__(self.value, form)
