"""Write files atomically, and bring many files of a box into the wanted state in one Ansible task instead of many."""

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
from typing import Any, TypeAlias

from .errors import one_problem

_State: TypeAlias = "tuple[int, bytes | None]"
"""The mode of a path, and the content of a file; None for a folder."""


@dataclass
class LaidOut:
    """Result of `lay_out`."""

    changed: list[str] = field(default_factory=list)  # paths; in check mode those that would change
    diff: list[dict[str, str]] = field(default_factory=list)  # for Ansible's ``--diff``


def lay_out(entries: Iterable[Mapping[str, Any]], check: bool = False) -> LaidOut:
    """Create or change each entry: a file with ``path``, ``mode`` and ``content`` (text or bytes), without it a folder.

    ``mode`` is octal digits as text. Parent folders are created. A file is replaced atomically. With ``check`` nothing
    is changed. Raises DrafthouseError where a path cannot be written, for example because a file is where a folder
    should be; the entries before it are in place then.
    """
    result = LaidOut()
    for entry in entries:
        path = Path(entry["path"])
        mode = int(str(entry["mode"]), 8)
        try:
            before = _state_of(path)
            content = entry.get("content")
            wanted = (mode, content.encode() if isinstance(content, str) else content)
            if before == wanted:
                continue
            result.changed.append(str(path))
            result.diff.append(_difference(path, before, wanted))
            if not check:
                _write(path, mode, wanted[1], before)
        except OSError as error:
            found = error.strerror or str(error)
            needed = "a folder of ours" if entry.get("content") is None else "a file of ours"
            do = "remove what is in the way, or connect as root"
            raise one_problem("file-unwritable", found, needed, do, str(path)) from error
    return result


def digest_of(mode: int, content: bytes) -> str:
    """A file's digest: its mode in octal digits, and the sha256 of its content."""
    return f"{mode:04o} {hashlib.sha256(content).hexdigest()}"


def digests(paths: Iterable[str]) -> dict[str, str]:
    """Path to digest, of the files that exist and can be read."""
    by_path = {}
    for path in paths:
        with contextlib.suppress(OSError):
            mode, content = _state_of(Path(path)) or (0, None)
            if content is not None:
                by_path[path] = digest_of(mode, content)
    return by_path


def text_in(path: str | Path) -> str:
    """The text of a file; '' where it does not exist or cannot be read."""
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where the file cannot be read or holds no JSON object."""
    try:
        return object_of(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def object_of(text: str) -> dict[str, Any]:
    """The JSON object ``text``; {} for any other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _state_of(path: Path) -> _State | None:
    """The state of a path; None where it does not exist."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        return stat.S_IMODE(mode), None
    return stat.S_IMODE(mode), path.read_bytes()


def _write(path: Path, mode: int, content: bytes | None, before: _State | None) -> None:
    """Create or change a folder (``content`` None) or a file, whose state was ``before`` (None: it did not exist)."""
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        return
    if before is not None and before[1] == content:  # only the mode differs
        path.chmod(mode)
        return
    replace_file(path, content, mode)


def _difference(path: Path, before: _State | None, wanted: _State) -> dict[str, str]:
    """The difference of two states as Ansible shows it; of the same content only the modes are shown."""
    same = before is not None and before[1] == wanted[1]
    return {
        "before_header": str(path),
        "after_header": str(path),
        "before": _state_text(before, same),
        "after": _state_text(wanted, same),
    }


def _state_text(state: _State | None, modes_only: bool) -> str:
    """The state as text; '' where the path does not exist (None)."""
    if state is None:
        return ""
    mode, content = state
    if content is None:
        return f"folder, mode {mode:04o}\n"
    if modes_only:
        return f"mode {mode:04o}\n"
    return content.decode("utf-8", "replace")


def replace_file(path: Path, content: str | bytes, mode: int | None = 0o600, by_way_of: Path | None = None) -> None:
    """Write a file atomically: readers, also after a power cut, find either the old or the new content.

    ``mode`` None: as the umask allows. Parent folders are created. The content is written to a temporary file, beside
    ``path`` or in ``by_way_of``, a folder of the same file system, which keeps the target folder clean after a kill.
    Raises OSError; the temporary file is removed then.
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
            error.filename = str(path)  # a full disk names no file, and users do not know the temporary one
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot flush a folder
            raise
    finally:
        os.close(handle)
