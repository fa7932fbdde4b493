"""The file in an environment that says what it was made of: written last, so what it names is whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import TypedDict, cast

from ..core.files import object_in, text_in

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
    """The stamp's content, empty where there is none that can be read."""
    return cast("Stamp", object_in(home / STAMP))


def is_made(home: Path, wanted: str) -> bool:
    """Tell whether the environment is there, whole, and of the recipe with this hash."""
    return read_stamp(home).get("sha256") == wanted and starts(home)


def starts(home: Path) -> bool:
    """Tell whether the environment's interpreter is there to be started."""
    return os.access(home / "bin" / "python", os.X_OK)


def versions(home: Path, packages: Sequence[str]) -> dict[str, str]:
    """The versions of an environment's Python, and of its packages whose names fit one of these patterns."""
    found: dict[str, str] = {}
    for line in text_in(home / "pyvenv.cfg").splitlines():
        key, _, value = line.partition("=")
        if key.strip() in ("version", "version_info"):
            found["Python"] = value.strip()
    for distribution in metadata.distributions(path=list(map(str, home.glob("lib/python3*/site-packages")))):
        name = str(distribution.metadata["Name"] or "")
        if any(fnmatchcase(name, pattern) for pattern in packages):
            found[name] = distribution.version
    return found
