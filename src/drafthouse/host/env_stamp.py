"""The file in an environment that says what it was made of: written last, so what it names is whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict, cast

from ..core.files import object_in

STAMP = ".drafthouse-env.json"


class Stamp(TypedDict, total=False):
    """``sha256`` of the recipe, ``python`` as major.minor; ``image_...``: it stands for what the box's image has."""

    sha256: str
    python: str
    tool: str
    made: int
    image: str
    image_python: str


def read_stamp(home: Path) -> Stamp:
    """Return the stamp's content, empty where there is none that can be read."""
    return cast("Stamp", object_in(home / STAMP))


def is_made(home: Path, wanted: str) -> bool:
    """Tell whether the environment is there, whole, and of the recipe with this hash."""
    return read_stamp(home).get("sha256") == wanted and starts(home)


def starts(home: Path) -> bool:
    """Tell whether the environment's interpreter is there to be started."""
    return os.access(home / "bin" / "python", os.X_OK)
