"""Read and remove options in the command line of dockerd, Docker's daemon. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence


def option(words: Sequence[str], name: str) -> str:
    """The value of the option ``name`` (--with-dashes), from `NAME VALUE` or `NAME=VALUE`; "" if it is not there.

    The last one counts, as for dockerd.
    """
    value = ""
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            value = words[index + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value


def without(words: Sequence[str], name: str) -> list[str]:
    """The command line ``words`` without the option ``name`` and its value."""
    kept = []
    is_value = False  # of the option, which the word before was
    for word in words:
        if is_value:
            is_value = False
        elif word == name:
            is_value = True
        elif not word.startswith(f"{name}="):
            kept.append(word)
    return kept
