"""Since-and-until arithmetic for what an engine's version knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from packaging.version import Version


def known(version: str, entry: Mapping[str, Any]) -> bool:
    """Tell whether ``version`` has what ``entry`` describes (keys ``since`` and ``until``, both inclusive)."""
    since, until = entry.get("since"), entry.get("until")
    return not (
        (since is not None and Version(version) < Version(str(since)))
        or (until is not None and Version(version) > Version(str(until)))
    )


def having(versions: Iterable[str], entry: Mapping[str, Any]) -> list[str]:
    """Return those of ``versions`` that have what ``entry`` describes, oldest first."""
    return sorted((version for version in versions if known(version, entry)), key=Version)
