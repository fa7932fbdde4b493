"""The flags of each version of an engine: `profiles/catalog/flags/<engine>.yml`, by scripts/engine_flags.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.schema import List, Map, Table, Value
from ..core.versions import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..engines.read_flags import FlagList

FOLDER = "profiles/catalog/flags"
_NAMES = List(Value(str), required=True)
FLAG_LISTS = Map(
    {
        "versions": Table(
            Map(
                {
                    "source": Value(str, required=True),
                    "none": _NAMES,
                    "one": _NAMES,
                    "several": _NAMES,
                    "maybe": _NAMES,
                    "short": Table(Value(str), required=True),
                }
            ),
            required=True,
        )
    }
)


def newest(lists: Mapping[str, FlagList]) -> str:
    """Return the newest version of which a list is known, '' where there is none."""
    return max(lists, key=number, default="")
