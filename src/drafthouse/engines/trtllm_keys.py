"""What a schema of TensorRT-LLM's YAML is made of: keys, each with its shape and the versions that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.schema import Anything, List, Shape, Table, Value

# Version boundaries. ".99" stands for the last of a line, and is not shown to people.
SCHEDULE = "1.2.0rc3"
STABLE = "1.2.0"
NEXT = "1.3.0rc1"
LAST_12 = "1.2.99"
# Read in the reference of 1.4.0rc1 and not in that of 1.3.0rc27; which candidate in between brought it is not known.
NEXT_14 = "1.3.0rc28"
LAST_13 = "1.3.99"


@dataclass(frozen=True)
class Words:
    """Text that must be one of some words, each with the versions that have it (``since``, ``until``)."""

    spans: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Keys:
    """A mapping of known keys."""

    keys: Mapping[str, Key]


@dataclass(frozen=True)
class Key:
    """One key: its shape, whether it may be null, the versions that have it, and what others write instead."""

    shape: Shape | Words | Keys
    null: bool = False
    since: str | None = None
    until: str | None = None
    instead: str = ""

    @property
    def span(self) -> dict[str, str | None]:
        """The versions that have this key, as `versions.known` reads them."""
        return {"since": self.since, "until": self.until}


FLAG, WHOLE, TEXT = Key(Value(bool)), Key(Value(int)), Key(Value(str))
COUNT, POSITIVE = Key(Value(int, low=0)), Key(Value(int, low=1))
MAYBE_FLAG, MAYBE_WHOLE = Key(Value(bool), null=True), Key(Value(int), null=True)
MAYBE_COUNT, MAYBE_POSITIVE = Key(Value(int, low=0), null=True), Key(Value(int, low=1), null=True)
MAYBE_TEXT, MAYBE_NUMBER = Key(Value(str), null=True), Key(Value(float), null=True)
SHARE = Value(float, low=0, high=1)
WHOLES, POSITIVES = List(Value(int)), List(Value(int, low=1))
# Blocks that no profile of ours sets: that they are mappings is all that is looked at.
BLOCK = Key(Table(Anything()), null=True)


def words(*always: str, **spans: Mapping[str, str]) -> Words:
    """Words that every version has (``always``), and those of some versions."""
    return Words({**{word: {} for word in always}, **spans})


def new(key: Key, since: str | None = NEXT, until: str | None = None) -> Key:
    """A key as only some versions have it."""
    return Key(key.shape, key.null, since, until, key.instead)


# AUTO came with PR 11074 (opened 2026-01-28); the reference of 1.3.0rc27 has no WIDEEP any more.
MOE_BACKENDS = words(
    "CUTLASS",
    "CUTEDSL",
    "TRTLLM",
    "DEEPGEMM",
    "VANILLA",
    "TRITON",
    WIDEEP={"until": LAST_13},
    AUTO={"since": NEXT},
    DENSEGEMM={"since": NEXT},
    MARLIN={"since": NEXT},
    MEGAMOE_DEEPGEMM={"since": NEXT},
    MEGAMOE_CUTEDSL={"since": NEXT},
    CUTEDSL_FC12={"since": NEXT_14},
)
