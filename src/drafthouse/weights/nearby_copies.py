"""Weights from elsewhere than the hub: a folder or mount of the box, or another box over SSH.

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
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import quote

from ..core.errors import one_problem
from ..core.pins import is_commit
from .hub_client import RemoteFile, Snapshot
from .integrity import NOTE_SUFFIX

# n more bytes lie in the part; negative: they were thrown away.
TellBytes = Callable[[int], None]
_NOTE_LIMIT = 64 << 20
_CUTS = 5  # a connection that ends in the middle of one file as often as this is left alone
_PIECE = 4 << 20
_FICLONE = 0x40049409  # linux/fs.h: the two files share their blocks until one is written to


class _Source(Protocol):
    """How the other place's bytes are had."""

    @property
    def name(self) -> str: ...

    def folder_file(self, relative: str) -> Path | None:
        """Return the file where it can be reached by a path and may be linked, else None."""

    def open(self, relative: str, offset: int) -> contextlib.AbstractContextManager[tuple[int, BinaryIO] | None]:
        """Yield the whole size and the bytes from ``offset``; None where there is no such file."""


def place_of(settings: Mapping[str, Any] | None) -> Place | None:
    """Return the place that ``settings`` name: {models_dir, folder} or {models_dir, ssh: [argv]}; None for none."""
    if not settings:
        return None
    source: _Source = Folder(Path(settings["folder"])) if "folder" in settings else _Box(settings["ssh"])
    return Place(source, Path(settings["models_dir"]))


class Place:
    """Where weights may lie already. ``notes`` are lines for a person: what was there and could not be used."""

    def __init__(self, source: _Source, models_dir: Path) -> None:
        self._source, self._models_dir = source, models_dir
        self.notes: list[str] = []

    def relative(self, path: Path) -> str:
        """Return how the place knows what belongs at ``path``, such as ``Qwen-Qwen3-32B``."""
        return path.relative_to(self._models_dir).as_posix()

    def listing(self, relative: str, repo: str, revision: str, identity_of: Callable[[str], str]) -> Snapshot | None:
        """Return what the note beside the weights says of them, where it is about what is wanted.

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
            self.notes.append(f"{self._source.name}: the note of {relative} can't be read; using the hub")
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
            self.notes.append(f"{self._source.name}: {relative}: {error.strerror or error}; using the hub")
            return False

    def _bring(self, relative: str, part: Path, size: int | None, wanted: str, tell: TellBytes) -> bool:
        there = self._source.folder_file(relative)
        if there is not None and not _size_of(part) and _linked(there, part, size, wanted, tell):
            return True
        cut = 0
        while True:
            had = _size_of(part)
            with self._source.open(relative, had) as opened:
                if opened is None:
                    return False
                if size is not None and opened[0] != size:
                    self.notes.append(f"{self._source.name}: {relative} has {opened[0]} bytes instead of {size}")
                    return False
                digest = _digest(wanted, opened[0])
                arrived = _append(opened[1], part, opened[0] - had, digest, tell) if opened[0] >= had else 0
            if had + arrived == opened[0] and digest.hexdigest() == wanted:
                return True
            if had + arrived < opened[0]:
                cut += 1
                if arrived and cut < _CUTS:
                    continue
                self.notes.append(f"{self._source.name}: {relative} ended at byte {had + arrived}; the hub continues")
                return False  # what arrived is right as far as anybody knows
            part.unlink(missing_ok=True)
            tell(-had - arrived)
            if not had:
                self.notes.append(f"{self._source.name}: {relative} has wrong bytes; using the hub")
                return False
            # What an earlier run left in the part may be what is wrong: once more from the start.

    def _note(self, relative: str) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError), self._source.open(f"{relative}{NOTE_SUFFIX}", 0) as opened:
            if opened is not None and opened[0] <= _NOTE_LIMIT:
                data = json.loads(opened[1].read())
                return data if isinstance(data, dict) else {}
        return {}


def _noted(path: str, entry: Mapping[str, Any]) -> RemoteFile:
    sha256, git_sha1 = entry.get("sha256"), entry.get("git_sha1")
    if (sha256 is None and git_sha1 is None) or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    # A file has one hash that it is known by; the larger files' is the hub's sha256.
    return RemoteFile(path, int(entry["size"]), sha256, None if sha256 else git_sha1)


def _digest(wanted: str, size: int) -> hashlib._Hash:
    """Return the hash that ``wanted`` is one of: sha256 by its length, else git's of a blob of ``size`` bytes."""
    if len(wanted) == 64:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _append(source: BinaryIO, part: Path, missing: int, digest: hashlib._Hash, tell: TellBytes) -> int:
    """Put what ``part`` has and then ``missing`` bytes of ``source`` through ``digest``; return how many were added."""
    # Not through a link that somebody planted.
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    added = 0
    with os.fdopen(descriptor, "r+b", buffering=0) as target:
        while piece := target.read(_PIECE):
            digest.update(piece)
        while added < missing and (piece := source.read(min(_PIECE, missing - added))):
            digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[target.write(view) :]
            added += len(piece)
            tell(len(piece))
    return added


# --- a folder -------------------------------------------------------------------------------------------


class Folder:
    """A folder of the box: a disk, a mount, what a bundle was unpacked to; what ``may_link`` refuses is copied."""

    def __init__(self, folder: Path, may_link: Callable[[Path], bool] = lambda path: True) -> None:
        self.name = str(folder)
        self._folder, self._may_link = folder, may_link

    def folder_file(self, relative: str) -> Path | None:
        """Return the file, where it may be linked."""
        path = self._folder / relative
        return path if path.is_file() and self._may_link(path) else None

    @contextmanager
    def open(self, relative: str, offset: int) -> Iterator[tuple[int, BinaryIO] | None]:
        """Yield the whole size and the bytes from ``offset``; None where there is no such file."""
        path = self._folder / relative
        if not path.is_file():
            yield None
            return
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(min(offset, size))
            yield size, stream


def _linked(there: Path, part: Path, size: int | None, wanted: str, tell: TellBytes) -> bool:
    """Let ``part`` share the blocks, or else be another name, of a file on the same file system; verified first.

    The second name is made last of all: until the bytes are known to be right, nothing of ours leads to a file that
    is not ours. Whatever doesn't work here is left to copying.
    """
    status = there.stat()
    if status.st_dev != part.parent.stat().st_dev or (size is not None and status.st_size != size):
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


# --- another box ----------------------------------------------------------------------------------------


class _Box:
    """Another box, whose sshd answers with one file: the program `hand_on` is all that our key may run there.

    Its answer is a line of JSON, {"size": n} or {"error": why}, and then the bytes.
    """

    def __init__(self, ssh: Sequence[str]) -> None:
        self._ssh = list(ssh)
        self.name = self._ssh[-1]

    def folder_file(self, relative: str) -> Path | None:
        return None

    @contextmanager
    def open(self, relative: str, offset: int) -> Iterator[tuple[int, BinaryIO] | None]:
        command = [*self._ssh, f"{offset} {quote(relative)}"]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                stdout, stderr = cast(BinaryIO, process.stdout), cast(BinaryIO, process.stderr)
                first = stdout.readline()
                answer = json.loads(first) if first else {}
                if "size" in answer:
                    yield int(answer["size"]), stdout
                elif "error" in answer:
                    yield None
                else:
                    said = stderr.read().decode(errors="replace").strip().splitlines()
                    raise OSError(f"no answer over SSH: {said[-1] if said else 'nothing was said'}")
            finally:
                process.kill()
