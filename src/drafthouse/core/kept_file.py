"""Write result files atomically, into disk space that is reserved before the measurement.

A disk that fills up during a measurement must lose neither its result nor an existing file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .errors import DrafthouseError, Problem
from .files import replace_file

MIB = 1024**2
#: The space reserved for the files of one step of a measurement; a round of the longest suite takes a few MiB.
ROOM_BYTES = 16 * MIB
_FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk, an exhausted quota


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file atomically and return its path: a reader finds either the old or the new content.

    The reserved space is freed first, so that the file can use it.

    Raises DrafthouseError where it cannot be written; no partial file is left then.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    free_reserved_space(path)
    try:
        replace_file(path, content, mode=None)
    except OSError as error:
        raise DrafthouseError(_unwritten(path, len(content), error)) from error
    return path


@contextlib.contextmanager
def reserved_space(path: Path, size: int = ROOM_BYTES) -> Iterator[None]:
    """Reserve ``size`` bytes during the block, for the file that `write_whole` will write at ``path``.

    Raises DrafthouseError where the disk is full; a file system that cannot reserve space is not an error.
    """
    room = _reserving_file(path)
    try:
        room.parent.mkdir(parents=True, exist_ok=True)
        with room.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)
    except OSError as error:
        free_reserved_space(path)
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise DrafthouseError(_unwritten(path, size, error)) from error
    try:
        yield
    finally:
        free_reserved_space(path)


def free_reserved_space(path: Path) -> None:
    """Free the space reserved for the file at ``path``."""
    with contextlib.suppress(OSError):
        _reserving_file(path).unlink(missing_ok=True)


def _reserving_file(path: Path) -> Path:
    """The file whose size reserves the space for ``path``."""
    return path.with_name(f".{path.name}.room")


def _unwritten(path: Path, size: int, error: OSError) -> Problem:
    """The problem that ``size`` bytes cannot be written at ``path``: a full disk or quota, or another error."""
    existing = next((folder for folder in path.parents if folder.exists()), Path("/"))
    free = shutil.disk_usage(existing).free
    found = f"{error.strerror or error}: {free / MIB:,.1f} MiB free at {existing}"
    then = "then run again: it continues with what is kept"
    if error.errno in _FULL:
        needed = f"room for {max(size / MIB, 0.1):,.1f} MiB"
        return Problem("disk-full", found, needed, f"free some space there, {then}", str(path))
    return Problem("file-unwritable", found, "a folder that can be written", f"fix that, {then}", str(path))
