"""Keep what was parsed out of files that stay as they are, so that a process parses each of them once.

Callers get a copy each: what one changes, no other sees. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

_Parsed = TypeVar("_Parsed")
#: Inode, bytes, and when content and inode last changed (ns).
_Stamp: TypeAlias = "tuple[int, int, int, int]"

#: Bytes of the files behind one entry, at most: prompts of other people may be hundreds of MB, and are read once.
MOST_BYTES = 4 * 1024 * 1024
#: A file that changed less than this ago may change again within one tick of its file system's clock, which is
#: 10 ms on a kernel of 100 Hz and 2 s on FAT: it is parsed, and not kept.
SETTLED_NS = 2_000_000_000

_kept: dict[Hashable, tuple[tuple[_Stamp, ...], object]] = {}


def parsed_once(what: Hashable, files: Iterable[Path], parse: Callable[[], _Parsed]) -> _Parsed:
    """What ``parse`` makes of ``files``, as it was made before unless one of them changed since.

    ``what`` names the result: all that it depends on beside the files' content. What is returned is the caller's own;
    it is made of dicts, lists, tuples and values that nobody can change. An exception is not kept.
    """
    stamps = _stamps(files)
    if stamps is None:
        return parse()
    kept = _kept.get(what)
    if kept and kept[0] == stamps:
        return cast("_Parsed", plain_copy(kept[1]))
    made = parse()
    _kept[what] = stamps, plain_copy(made)
    return made


def plain_copy(data: Any) -> Any:
    """A copy of dicts, lists and tuples inside each other, whose values nobody can change."""
    if isinstance(data, dict):
        return {key: plain_copy(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)([plain_copy(value) for value in data])
    return data


def _stamps(files: Iterable[Path]) -> tuple[_Stamp, ...] | None:
    """What tells that files are as they were; None where one is missing, too large or too young to tell."""
    try:
        found = [path.stat() for path in files]
    except (OSError, ValueError):
        return None
    newest = size = 0
    stamps = []
    for file in found:
        newest = max(newest, file.st_mtime_ns, file.st_ctime_ns)
        size += file.st_size
        stamps.append((file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns))
    if newest > time.time_ns() - SETTLED_NS or size > MOST_BYTES:
        return None
    return tuple(stamps)
