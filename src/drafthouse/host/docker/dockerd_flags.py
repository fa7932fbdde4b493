"""dockerd's own command line: an option's value, and the words without it. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def option(words: Sequence[str], name: str) -> str:
    """The value of ``--name VALUE`` or ``--name=VALUE``, the last one; "" where there is none."""
    value = ""
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            value = words[index + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value


def without(words: Sequence[str], name: str) -> list[str]:
    """``words`` without an option and its value."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == name:
            skip = True
        elif not word.startswith(f"{name}="):
            kept.append(word)
    return kept
