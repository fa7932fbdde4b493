"""Numbers of tokens as people write them: 8192, 32k, or a word that leaves the number to the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Option

#: k is 1000 and K is 1024; only numbers before small letters may have a fraction (vllm/utils/argparse_utils.py).
_FORM = re.compile(r"(\d{1,15})([KMG]?)|(\d{1,15}(?:\.\d{1,15})?)([kmg])")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def tokens_in(text: object) -> int | None:
    """The number that ``text`` stands for, such as ``8192`` or ``32k``; None if it is not a number.

    The rules are vLLM's, so that the plan computes with the context that vLLM would serve for the same text.
    """
    match = _FORM.fullmatch(str(text).strip())
    if match is None:
        return None
    return int(match[1]) * _UNITS[match[2]] if match[1] else int(float(match[3]) * _UNITS[match[4]])


def tokens_or_word(value: object, option: Option) -> int | Literal["fit", "model"] | None:
    """A number of tokens, or the meaning of a word for one: "fit" or "model" (`Meaning`); None for other values."""
    word = option.get("means", {}).get(str(value))
    return word["is"] if word else tokens_in(value)
