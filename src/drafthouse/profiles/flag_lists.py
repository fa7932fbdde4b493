"""The flags of each engine version: `profiles/catalog/flags/<engine>.yml`, written by scripts/engine_flags.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.schema import Map, Table
from ..core.typed_shape import shape_of
from ..core.versions import as_version
from ..engines.read_flags import FlagList

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "profiles/catalog/flags"
#: The shape of one file: an engine's flag lists by version.
FLAG_LISTS = Map({"versions": Table(shape_of(FlagList), required=True)})


def newest_version(lists: Mapping[str, FlagList]) -> str:
    """The newest version that has a flag list; '' if none has. ``lists``: by version."""
    return max(lists, key=as_version, default="")
