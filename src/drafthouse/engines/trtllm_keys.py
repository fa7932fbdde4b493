"""Building blocks for the schema of TensorRT-LLM's YAML: keys, each with its shape and the versions that have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core.schema import Anything, List, Shape, Table, Value

# Version boundaries. ".99" stands for the last version of a line; messages leave it out.
SCHEDULE = "1.2.0rc3"
STABLE = "1.2.0"
NEXT = "1.3.0rc1"
LAST_12 = "1.2.99"
# For keys in the reference of 1.4.0rc1 and not in that of 1.3.0rc27: accepted from the first version after the latter.
NEXT_14 = "1.3.0rc28"
LAST_13 = "1.3.99"


@dataclass(frozen=True)
class Words:
    """A text value that is one of several words."""

    spans: Mapping[str, Mapping[str, str]]  # word -> versions that accept it: the optional keys ``since``, ``until``


@dataclass(frozen=True)
class Keys:
    """A mapping with exactly these keys, by name."""

    keys: Mapping[str, Key]


@dataclass(frozen=True)
class Key:
    """A key of the YAML."""

    shape: Shape | Words | Keys
    null: bool = False  # True if it may be null
    since: str | None = None  # the first version that has it; None: all up to ``until``
    until: str | None = None  # the last version that has it; None: all later ones
    instead: str = ""  # the advice for other versions

    @property
    def span(self) -> dict[str, str | None]:
        """The versions that have this key, as `versions.supports` takes them."""
        return {"since": self.since, "until": self.until}


# Keys that most versions have; those with MAYBE may be null.
FLAG = Key(Value(bool))
WHOLE = Key(Value(int))
TEXT = Key(Value(str))
COUNT = Key(Value(int, low=0))
POSITIVE = Key(Value(int, low=1))
MAYBE_FLAG = Key(Value(bool), null=True)
MAYBE_WHOLE = Key(Value(int), null=True)
MAYBE_COUNT = Key(Value(int, low=0), null=True)
MAYBE_POSITIVE = Key(Value(int, low=1), null=True)
MAYBE_TEXT = Key(Value(str), null=True)
MAYBE_NUMBER = Key(Value(float), null=True)
# Shapes of values.
SHARE = Value(float, low=0, high=1)
WHOLES = List(Value(int))
POSITIVES = List(Value(int, low=1))
# A block that no shipped profile sets: only checked to be a mapping.
BLOCK = Key(Table(Anything()), null=True)


def words(*always: str, **spans: Mapping[str, str]) -> Words:
    """A value that is one of these words: ``always`` in all versions, ``spans`` with the versions of each word."""
    return Words({**{word: {} for word in always}, **spans})


def new(key: Key, since: str | None = NEXT, until: str | None = None) -> Key:
    """A copy of ``key`` for the versions ``since`` (None: from the first) to ``until`` (None: to the last) alone."""
    return replace(key, since=since, until=until)


# PR 11074 (opened 2026-01-28) added AUTO; the reference of 1.3.0rc27 no longer has WIDEEP.
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
