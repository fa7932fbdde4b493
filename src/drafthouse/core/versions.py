"""Compare engine versions: which versions have a feature (since, until), and how each one spells an option."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

# A nightly build counts as newer than every release.
NIGHTLY = "nightly"
_NEWEST = Version("99999")


def as_version(version: str) -> Version:
    """``version`` as a comparable object. Raises InvalidVersion."""
    return _NEWEST if version == NIGHTLY else Version(version)


def is_version(text: str) -> bool:
    """True if ``text`` is a valid version (PEP 440) or `NIGHTLY`."""
    try:
        as_version(text)
    except InvalidVersion:
        return False
    return True


def supports(version: str, entry: Mapping[str, Any]) -> bool:
    """True if ``version`` has the feature that the catalogue's ``entry`` describes.

    ``since`` and ``until`` are its inclusive bounds; ``except`` holds the bounds of versions between that lack it.
    """
    gap = entry.get("except")
    return _within(version, entry) and not (gap is not None and _within(version, gap))


def _within(version: str, bounds: Mapping[str, Any]) -> bool:
    """True if ``version`` is between ``since`` and ``until``, both inclusive; a missing or null bound is no limit."""
    since = bounds.get("since")
    until = bounds.get("until")
    if since is not None and as_version(version) < as_version(str(since)):
        return False
    return until is None or as_version(version) <= as_version(str(until))


def having(versions: Iterable[str], entry: Mapping[str, Any]) -> list[str]:
    """The ``versions`` that have the feature ``entry``, oldest first."""
    return sorted((version for version in versions if supports(version, entry)), key=as_version)


def spelled(version: str, word: str, spellings: Sequence[Mapping[str, Any]] = ()) -> str:
    """``word`` as ``version`` spells it: by the first of ``spellings`` that fits, else as it is.

    Each of them has the spelling (``as``), and may have the bounds of `supports`.
    """
    return next((str(entry["as"]) for entry in spellings if supports(version, entry)), word)


def releases(engine: Mapping[str, Any]) -> list[str]:
    """Every version of a catalogue engine that a profile may name, oldest first.

    For an engine with a plugin these are the versions that the plugin patches.
    """
    if plugin := engine.get("plugin"):
        return sorted(plugin["versions"], key=as_version)
    return sorted({*engine.get("releases", ()), *engine["versions"]}, key=as_version)


def ranges(versions: Sequence[str], all_versions: Sequence[str]) -> str:
    """Versions as text, consecutive ones (in ``all_versions``) as a range: ``0.8.5 to 0.9.2, 0.32.0``."""
    positions = sorted(map(all_versions.index, versions))
    runs: list[list[int]] = []
    for position in positions:
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    names = []
    for run in runs:
        name = all_versions[run[0]]
        if len(run) > 1:
            name += f" to {all_versions[run[-1]]}"
        names.append(name)
    return ", ".join(names)
