"""Which of an engine's versions knows what: since-and-until arithmetic, and words that changed on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packaging.version import InvalidVersion, Version

# A nightly build is no release: it stands behind all of them.
NIGHTLY = "nightly"
_BEHIND_ALL = Version("99999")


def number(version: str) -> Version:
    """``version`` as something to compare; raises InvalidVersion for what is none."""
    return _BEHIND_ALL if version == NIGHTLY else Version(version)


def is_version(text: str) -> bool:
    """Tell whether ``text`` is a version at all."""
    try:
        number(text)
    except InvalidVersion:
        return False
    return True


def known(version: str, entry: Mapping[str, Any]) -> bool:
    """Tell whether ``version`` has what ``entry`` describes.

    Keys ``since`` and ``until``, both inclusive; ``except`` is a range of the same kind in between that lacks it.
    """
    gap = entry.get("except")
    return _within(version, entry) and not (gap is not None and _within(version, gap))


def _within(version: str, bounds: Mapping[str, Any]) -> bool:
    since, until = bounds.get("since"), bounds.get("until")
    return not (
        (since is not None and number(version) < number(str(since)))
        or (until is not None and number(version) > number(str(until)))
    )


def having(versions: Iterable[str], entry: Mapping[str, Any]) -> list[str]:
    """The ``versions`` that have what ``entry`` describes, oldest first."""
    return sorted((version for version in versions if known(version, entry)), key=number)


def spelled(version: str, word: str, spellings: Sequence[Mapping[str, Any]] = ()) -> str:
    """``word`` as ``version`` spells it; ``spellings`` are ``{as, since?, until?}``."""
    return next((str(entry["as"]) for entry in spellings if known(version, entry)), word)


def releases(engine: Mapping[str, Any]) -> list[str]:
    """Every version of an engine of the catalogue that may be asked for, oldest first.

    An engine with a plugin has those that the plugin patches.
    """
    if plugin := engine.get("plugin"):
        return sorted(plugin["versions"], key=number)
    return sorted({*engine.get("releases", ()), *engine["versions"]}, key=number)


def ranges(versions: Sequence[str], all_versions: Sequence[str]) -> str:
    """Versions for a person, neighbours drawn together: ``0.8.5 to 0.9.2, 0.32.0``."""
    places = sorted(map(all_versions.index, versions))
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    names = []
    for run in runs:
        name = all_versions[run[0]]
        if len(run) > 1:
            name += f" to {all_versions[run[-1]]}"
        names.append(name)
    return ", ".join(names)
