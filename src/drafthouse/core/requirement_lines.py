"""The lines of a lock: one exact version each, and the hashes of the files that it may be installed from.

An entry is one line as pip and uv read it: ``name==1.2.3 ; marker --hash=sha256:...``. Standard library only, Python
3.10: locks are read on the box too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_HASH = "--hash="
_SPLIT = re.compile(r"\s+--hash=")


def read_lock(text: str) -> list[str]:
    """The entries of a lock, each in one line, without its comments."""
    entries = []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            entries.append(" ".join(words))
    return entries


def without_hashes(entry: str) -> str:
    """An entry as it is without its hashes."""
    return _SPLIT.split(entry)[0].rstrip()


def hashes_of(entry: str) -> list[str]:
    """The hashes of an entry: ``sha256:`` and 64 hex digits each."""
    return _SPLIT.split(entry)[1:]


def pin_of(entry: str) -> str:
    """``name==1.2.3`` of an entry, the name as an index writes it (small letters, hyphens), without extras."""
    name, _, version = without_hashes(entry).partition(";")[0].strip().partition("==")
    return f"{re.sub(r'[-_.]+', '-', name.partition('[')[0]).lower()}=={version}"


def hashes_by_pin(entries: Iterable[str]) -> dict[str, list[str]]:
    """What is known of each version; the same one under two markers has the hashes of both."""
    known: dict[str, list[str]] = {}
    for entry in entries:
        mine = known.setdefault(pin_of(entry), [])
        mine += [digest for digest in hashes_of(entry) if digest not in mine]
    return known


def with_hashes(entries: Iterable[str], known: Mapping[str, Sequence[str]]) -> list[str]:
    """Entries with the hashes that are known of them; those that carry some already stay as they are."""
    found = []
    for entry in entries:
        words = [entry]
        if _HASH not in entry:
            words += [f"{_HASH}{digest}" for digest in known.get(pin_of(entry), ())]
        found.append(" ".join(words))
    return found


def all_have_hashes(entries: Sequence[str]) -> bool:
    """Tell whether each entry has a hash, so that an installer can be told to take nothing without one."""
    return bool(entries) and all(_HASH in entry for entry in entries)
