"""Numbers of tokens as people write them: 8192, 32k, and words that leave the number to the engine. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import Option

#: A small letter counts in tens, a capital in twos, of which there are no fractions (vllm/utils/argparse_utils.py).
_FORM = re.compile(r"(\d{1,15})([KMG]?)|(\d{1,15}(?:\.\d{1,15})?)([kmg])")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def counted(text: object) -> int | None:
    """The number that a text such as ``8192`` or ``32k`` stands for; None where it is none.

    As vLLM reads it, to which a profile's word is given: another reading would plan another context than is served.
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        return None
    return int(found[1]) * _UNITS[found[2]] if found[1] else int(float(found[3]) * _UNITS[found[4]])


def meaning(value: object, option: Option) -> int | Literal["fit", "model"] | None:
    """A number of tokens, or what a word in its place is; None for what is neither."""
    word = option.get("means", {}).get(str(value))
    return word["is"] if word else counted(value)
