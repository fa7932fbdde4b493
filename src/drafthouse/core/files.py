"""Files of ours: replaced as a whole, and on a box all in one go, where a task for each would cost a round trip."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import one_problem


@dataclass
class LaidOut:
    """What was changed, or in check mode would be. ``diff`` is what Ansible shows for ``--diff``."""

    changed: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)


def lay_out(entries: Iterable[Mapping[str, Any]], check: bool = False) -> LaidOut:
    """Make every entry be there: {path, mode, content?}; without ``content`` (text or bytes) it is a folder.

    ``mode``: octal digits as text. Folders above are made too. A file is replaced as a whole, so that whoever reads
    it finds the old or the new one. Raises DrafthouseError where something else is in the way, or may not be written.
    """
    done = LaidOut()
    for entry in entries:
        path, mode = Path(entry["path"]), int(str(entry["mode"]), 8)
        try:
            before = _seen(path)
            content = entry.get("content")
            wanted = (mode, content.encode() if isinstance(content, str) else content)
            if before == wanted:
                continue
            done.changed.append(str(path))
            done.diff.append(_difference(path, before, wanted))
            if not check:
                _make(path, mode, wanted[1], before)
        except OSError as error:
            raise one_problem(
                code="file-unwritable",
                where=str(path),
                found=error.strerror or str(error),
                needed="a folder of ours" if entry.get("content") is None else "a file of ours",
                do="remove what is in the way, or connect as root",
            ) from error
    return done


def digest_of(mode: int, content: bytes) -> str:
    """What tells one file from another: its permissions and a hash of its bytes."""
    return f"{mode:04o} {hashlib.sha256(content).hexdigest()}"


def digests(paths: Iterable[str]) -> dict[str, str]:
    """The digests of those files that are there and can be read."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            mode, content = _seen(Path(path)) or (0, None)
            if content is not None:
                found[path] = digest_of(mode, content)
    return found


def text_in(path: str | Path) -> str:
    """What a text file holds, '' where it is missing or not ours to read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file, {} where there is none that can be read."""
    try:
        return object_of(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def object_of(text: str) -> dict[str, Any]:
    """The JSON object that ``text`` is, {} where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _seen(path: Path) -> tuple[int, bytes | None] | None:
    """Mode and content (None for a folder) of what is there; None where nothing is."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        return stat.S_IMODE(mode), None
    return stat.S_IMODE(mode), path.read_bytes()


def _make(path: Path, mode: int, content: bytes | None, before: tuple[int, bytes | None] | None) -> None:
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        return
    if before is not None and before[1] == content:
        path.chmod(mode)
        return
    replace_file(path, content, mode)


def _difference(
    path: Path, before: tuple[int, bytes | None] | None, wanted: tuple[int, bytes | None]
) -> dict[str, str]:
    same = before is not None and before[1] == wanted[1]
    return {
        "before_header": str(path),
        "after_header": str(path),
        "before": _shown(before, same),
        "after": _shown(wanted, same),
    }


def _shown(state: tuple[int, bytes | None] | None, modes_only: bool) -> str:
    if state is None:
        return ""
    mode, content = state
    if content is None:
        return f"folder, mode {mode:04o}\n"
    if modes_only:
        return f"mode {mode:04o}\n"
    return content.decode("utf-8", "replace")


def replace_file(path: Path, content: str | bytes, mode: int | None = 0o600, by_way_of: Path | None = None) -> None:
    """Write a file so that a reader, and whoever comes after a power cut, finds all of the old or of the new one.

    ``mode`` None leaves it to the mask of the process. Folders above are made. ``by_way_of``: a folder of the same disk
    for the unfinished file, where a kill must leave none beside ``path``. Raises OSError; nothing half-written is left
    then.
    """
    if isinstance(content, str):
        content = content.encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = (by_way_of or path.parent) / f".{path.name}.new"
    try:
        handle = os.open(
            partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666 if mode is None else mode
        )
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            partial.chmod(mode)
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # a full disk names no file, and nobody knows the unfinished one
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's bytes, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it, mostly for folders
            raise
    finally:
        os.close(handle)
