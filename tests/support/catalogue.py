"""The catalogue's tables as their files have them, and written for a clone of a test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.workspace import ROOT

FOLDER = Path("profiles", "catalog")


@functools.cache
def table(name: str) -> Any:
    """``hardware``, ``models`` or ``engines`` by key; an engine that is like another has what it says itself."""
    if name == "engines":
        return {path.stem: _read(path) for path in sorted((ROOT / FOLDER / name).glob("*.yml"))}
    return _read(ROOT / FOLDER / f"{name}.yml")


def write(root: Path, name: str, entries: Mapping[str, Any], written: Callable[[Any], str]) -> None:
    """Write a table into the clone at ``root``, in place of the one there."""
    if name != "engines":
        (root / FOLDER / f"{name}.yml").write_text(written(entries))
        return
    folder = root / FOLDER / name
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.yml"):
        old.unlink()
    for key, entry in entries.items():
        if "/" in key or "\0" in key:
            raise DrafthouseError(
                Problem("wrong-format", repr(key), "the name of a file", "rename it", str(FOLDER / name))
            )
        (folder / f"{key}.yml").write_text(written(entry))


def _read(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
