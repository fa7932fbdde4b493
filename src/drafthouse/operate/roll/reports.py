"""The reports that a roll judges a box by: that of the new release, and the last one before it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...analysis.verdict import INVALID
from ...core.files import object_in
from ...report.archive import Kept, folders, read_kept

#: The folder of the newest valid report, by the box and the key of its results.
Shelf = Mapping[tuple[str, str], Path]


@dataclass(frozen=True)
class Reports:
    """A box's newest reports of a profile, None where there is none; both are of measurements that were valid."""

    new: Path | None = None
    before: Path | None = None


def shelf_of(reports: Path, profile: str) -> Shelf:
    """Return where the reports of a profile are."""
    found: dict[tuple[str, str], Path] = {}
    for folder in folders(reports, profile):
        host, key, word = _head(folder)
        if word != INVALID:
            found.setdefault((host, key), folder)
    return found


def reports_of(shelf: Shelf, host: str, new: str, served: Sequence[str]) -> Reports:
    """Return a box's reports. ``new`` is the key of the new release's results, ``served`` those of what served there.

    Before it means: of what served last, else of nothing. A release that was measured and refused is not that.
    """
    before = next((key for key in served if key != new), "")
    return Reports(shelf.get((host, new)), shelf.get((host, before)))


# What is kept is never changed.
@functools.cache
def read(folder: Path) -> Kept:
    """Return a report that was read before, or read it."""
    return read_kept(folder)


@functools.cache
def _head(folder: Path) -> tuple[str, str, str]:
    report = object_in(folder / "report.json")
    verdict = report.get("verdict")
    word = verdict.get("word") if isinstance(verdict, dict) else INVALID
    return str(report.get("host")), str(report.get("key")), str(word)
