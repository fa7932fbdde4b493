"""Read and edit the entries of a lock file (requirements with exact versions, and hashes of the files to install).

An entry is one line as pip and uv read it: ``name==1.2.3 ; marker --hash=sha256:...``. Standard library only, Python
3.10: boxes read locks too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_HASH = "--hash="
_BEFORE_HASH = re.compile(r"\s+--hash=")


def read_lock(text: str) -> list[str]:
    """The entries of a lock file, with continued lines joined and comments left out."""
    entries = []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            entries.append(" ".join(words))
    return entries


def without_hashes(entry: str) -> str:
    """The entry without its hashes."""
    requirement, *_ = _BEFORE_HASH.split(entry)
    return requirement.rstrip()


def hashes_of(entry: str) -> list[str]:
    """The hashes of an entry: ``sha256:`` and 64 hex digits each."""
    return _BEFORE_HASH.split(entry)[1:]


def pin_of(entry: str) -> str:
    """The pin ``name==1.2.3`` of an entry with an exact version: the name normalised (PEP 503) and without extras."""
    name, _, version = without_hashes(entry).partition(";")[0].strip().partition("==")
    return f"{re.sub(r'[-_.]+', '-', name.partition('[')[0]).lower()}=={version}"


def hashes_by_pin(entries: Iterable[str]) -> dict[str, list[str]]:
    """Pin to hashes. Two entries of one pin, with different markers, have their hashes joined."""
    by_pin: dict[str, list[str]] = {}
    for entry in entries:
        hashes = by_pin.setdefault(pin_of(entry), [])
        hashes += [digest for digest in hashes_of(entry) if digest not in hashes]
    return by_pin


def with_hashes(entries: Iterable[str], by_pin: Mapping[str, Sequence[str]]) -> list[str]:
    """The entries with their hashes from ``by_pin`` added, if it has any; an entry that has hashes stays as it is."""
    completed = []
    for entry in entries:
        words = [entry]
        if _HASH not in entry:
            words += [f"{_HASH}{digest}" for digest in by_pin.get(pin_of(entry), ())]
        completed.append(" ".join(words))
    return completed


def all_have_hashes(entries: Sequence[str]) -> bool:
    """True if there are entries and each has a hash, so that pip's option --require-hashes can be used."""
    return bool(entries) and all(_HASH in entry for entry in entries)
