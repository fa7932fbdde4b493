"""The stamp of a Python environment: a file in its folder with the hash of its recipe (`env_recipe`).

It is written last, so it proves that the environment is complete.
"""

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
    """The content of a stamp; the last two keys only if the image's engine is used (`image_python`)."""

    sha256: str  # of the recipe
    python: str  # its version, major.minor
    tool: str  # uv, pip or image
    made: int  # unix time in seconds
    image: str  # the image's engine as text
    image_python: str  # path of its interpreter


def read_stamp(home: Path) -> Stamp:
    """The stamp of the environment at ``home``; {} if it is missing or unreadable."""
    return cast("Stamp", object_in(home / STAMP))


def is_made(home: Path, wanted_sha256: str) -> bool:
    """True if a complete environment of the recipe with the hash ``wanted_sha256`` is at ``home``."""
    return read_stamp(home).get("sha256") == wanted_sha256 and has_python(home)


def has_python(home: Path) -> bool:
    """True if the environment has an executable interpreter."""
    return os.access(home / "bin" / "python", os.X_OK)


def versions(home: Path, packages: Sequence[str]) -> dict[str, str]:
    """By name, the versions of an environment's Python and of the packages that match a pattern of ``packages``."""
    version_by_name: dict[str, str] = {}
    for line in text_in(home / "pyvenv.cfg").splitlines():
        key, _, value = line.partition("=")
        if key.strip() in ("version", "version_info"):  # as venv writes it, and as uv does
            version_by_name["Python"] = value.strip()
    for distribution in metadata.distributions(path=list(map(str, home.glob("lib/python3*/site-packages")))):
        name = str(distribution.metadata["Name"] or "")
        if any(fnmatchcase(name, pattern) for pattern in packages):
            version_by_name[name] = distribution.version
    return version_by_name
