"""A cache of parsed files, so that a process parses a file once as long as it does not change.

Every caller gets its own copy of the data and may change it. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

_Parsed = TypeVar("_Parsed")
#: A file's inode, size in bytes, mtime and ctime in ns.
_Stamp: TypeAlias = "tuple[int, int, int, int]"

#: The most bytes of files whose data is cached. Files of prompts may have hundreds of MB, and are read once anyway.
MOST_BYTES = 4 * 1024 * 1024
#: A file that is younger than this is not cached: it could change again without a change of its times, whose resolution
#: is 10 ms with a kernel of 100 Hz, and 2 s on FAT.
SETTLED_NS = 2_000_000_000

_cache: dict[Hashable, tuple[tuple[_Stamp, ...], object]] = {}  # by key, the stamps of the files, and the data


def parsed_once(key: Hashable, files: Iterable[Path], parse: Callable[[], _Parsed]) -> _Parsed:
    """The result of ``parse``, or a copy of its cached result if none of ``files`` has changed since.

    ``key`` must contain everything that the result depends on besides the files' content. The result must consist of
    dicts, lists, tuples and immutable values. An exception is not cached.
    """
    stamps = _stamps(files)
    if stamps is None:
        return parse()
    cached_stamps, cached_data = _cache.get(key, (None, None))
    if cached_stamps == stamps:
        return cast("_Parsed", plain_copy(cached_data))
    parsed = parse()
    _cache[key] = stamps, plain_copy(parsed)
    return parsed


def plain_copy(data: Any) -> Any:
    """A deep copy of nested dicts, lists and tuples; all other values are immutable and shared."""
    if isinstance(data, dict):
        return {key: plain_copy(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)([plain_copy(value) for value in data])
    return data


def _stamps(files: Iterable[Path]) -> tuple[_Stamp, ...] | None:
    """The stamps of the files; None where one is missing or too young, or where they are too large together."""
    try:
        stats = [path.stat() for path in files]
    except (OSError, ValueError):
        return None
    newest = size = 0
    stamps = []
    for stat in stats:
        newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
        size += stat.st_size
        stamps.append((stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    if newest > time.time_ns() - SETTLED_NS or size > MOST_BYTES:
        return None
    return tuple(stamps)
