"""Weights from elsewhere than the hub: a folder or mount of the box.

Such a place has the layout of `models_dir`. It is asked file by file, by name, size and hash; what it gives is
verified as what the hub gives, so a wrong or half-made place costs time and nothing else. A place that this toolkit
filled has our notes beside the weights, and then the hub is not asked at all: a box without a network can be served.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import one_problem
from ..core.pins import is_commit
from .hub_client import RemoteFile, Snapshot
from .integrity import NOTE_SUFFIX

# n more bytes lie in the part; negative: they were thrown away.
TellBytes = Callable[[int], None]
_NOTE_LIMIT = 64 << 20
_PIECE = 4 << 20
_FICLONE = 0x40049409  # linux/fs.h: the two files share their blocks until one is written to


def place_of(settings: Mapping[str, Any] | None) -> Place | None:
    """The place that ``settings`` name: {models_dir, folder}; None for none."""
    if not settings:
        return None
    return Place(Path(settings["folder"]), Path(settings["models_dir"]))


class Place:
    """A folder of the box in which weights may lie already: a disk, a mount.

    What ``may_link`` refuses is copied. ``notes`` are lines for a person: what was there and could not be used.
    """

    def __init__(self, folder: Path, models_dir: Path, may_link: Callable[[Path], bool] = lambda path: True) -> None:
        self._folder, self._models_dir, self._may_link = folder, models_dir, may_link
        self.notes: list[str] = []

    def relative(self, path: Path) -> str:
        """How the place knows what belongs at ``path``, such as ``Qwen-Qwen3-32B``."""
        return path.relative_to(self._models_dir).as_posix()

    def listing(self, relative: str, repo: str, revision: str, identity_of: Callable[[str], str]) -> Snapshot | None:
        """What the note beside the weights says of them, where it is about what is wanted.

        ``identity_of`` gives, for a commit, the identity of what is wanted: the same patterns included. ``revision``
        is that commit, or the very word (a branch, ``unresolved``) that the place was asked for, too.
        """
        note = self._note(relative)
        commit = note.get("commit")
        if note.get("complete") is not True or note.get("repo") != repo or not is_commit(str(commit)):
            return None
        commit = str(commit)
        meant = commit == revision or (not is_commit(revision) and note.get("asked") == revision)
        if not meant or note.get("identity") != identity_of(commit):
            return None
        try:
            files = tuple(_noted(path, entry) for path, entry in sorted(note["files"].items()))
        except (KeyError, TypeError, ValueError, AttributeError):
            self.notes.append(f"{self._folder}: the note of {relative} can't be read; using the hub")
            return None
        return Snapshot(repo, revision, commit, files)

    def bring(
        self, relative: str, part: Path, size: int | None, sha256: str | None, git_sha1: str | None, tell: TellBytes
    ) -> bool:
        """Make ``part`` hold the file ``relative`` of the place; return whether it now does, verified.

        ``part`` may hold the first bytes already. Nothing of wrong bytes is left in it. False is no error: the file is
        not there, or not the one.
        """
        wanted = sha256 or git_sha1
        if not wanted:
            return False
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            return self._bring(relative, part, size, wanted, tell)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                needed, do = "room for the weights", "free some space, then run again: it resumes"
                raise one_problem("disk-full", f"{error.strerror} at {part.parent}", needed, do) from error
            self.notes.append(f"{self._folder}: {relative}: {error.strerror or error}; using the hub")
            return False

    def _bring(self, relative: str, part: Path, size: int | None, wanted: str, tell: TellBytes) -> bool:
        there = self._folder / relative
        if not there.is_file():
            return False
        found = there.stat().st_size
        if size is not None and found != size:
            self.notes.append(f"{self._folder}: {relative} has {found} bytes instead of {size}")
            return False
        had = _size_of(part)
        if not had and self._may_link(there) and _linked(there, part, wanted, tell):
            return True
        if _copied(there, part, wanted, tell):
            return True
        # What an earlier run left in the part may be what is wrong: once more from the start.
        if had and _copied(there, part, wanted, tell):
            return True
        self.notes.append(f"{self._folder}: {relative} has wrong bytes; using the hub")
        return False

    def _note(self, relative: str) -> dict[str, Any]:
        path = self._folder / f"{relative}{NOTE_SUFFIX}"
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= _NOTE_LIMIT:
                data = json.loads(path.read_bytes())
                if isinstance(data, dict):
                    return data
        return {}


def _noted(path: str, entry: Mapping[str, Any]) -> RemoteFile:
    sha256, git_sha1 = entry.get("sha256"), entry.get("git_sha1")
    if (sha256 is None and git_sha1 is None) or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    # A file has one hash that it is known by; the larger files' is the hub's sha256.
    return RemoteFile(path, int(entry["size"]), sha256, None if sha256 else git_sha1)


def _digest(wanted: str, size: int) -> hashlib._Hash:
    """The hash that ``wanted`` is one of: sha256 by its length, else git's of a blob of ``size`` bytes."""
    if len(wanted) == 64:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _copied(there: Path, part: Path, wanted: str, tell: TellBytes) -> bool:
    """Whether ``part`` has the hash once it has all bytes of ``there``; otherwise it is removed."""
    size = there.stat().st_size
    digest = _digest(wanted, size)
    # Not through a link that somebody planted.
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b", buffering=0) as target, there.open("rb") as source:
        while piece := target.read(_PIECE):
            digest.update(piece)
        source.seek(target.tell())
        while piece := source.read(_PIECE):
            digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[target.write(view) :]
            tell(len(piece))
        lies = target.tell()
    if lies == size and digest.hexdigest() == wanted:
        return True
    part.unlink(missing_ok=True)
    tell(-lies)
    return False


def _linked(there: Path, part: Path, wanted: str, tell: TellBytes) -> bool:
    """Let ``part`` share the blocks, or else be another name, of a file on the same file system; verified first.

    The second name is made last of all: until the bytes are known to be right, nothing of ours leads to a file that
    is not ours. Whatever doesn't work here is left to copying.
    """
    status = there.stat()
    if status.st_dev != part.parent.stat().st_dev:
        return False
    part.unlink(missing_ok=True)
    cloned = _cloned(there, part)
    digest = _digest(wanted, status.st_size)
    with (part if cloned else there).open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            tell(len(piece))
    right = digest.hexdigest() == wanted
    if right and not cloned:
        try:
            os.link(there.resolve(), part)
        except OSError:  # not allowed (fs.protected_hardlinks), or not known here
            right = False
    if not right:
        tell(-status.st_size)
        part.unlink(missing_ok=True)
    return right


def _cloned(there: Path, part: Path) -> bool:
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with there.open("rb") as source:
            fcntl.ioctl(descriptor, _FICLONE, source.fileno())
    except OSError:
        part.unlink()
        return False
    finally:
        os.close(descriptor)
    return True
