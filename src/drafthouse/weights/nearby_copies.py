"""Copy weights from a nearby folder, such as a mounted disk of the box, instead of the Hugging Face hub.

The folder has the layout of ``models_dir``. Files are found by name and size, and each one is verified by its hash, so
a damaged or incomplete folder costs only time. If Drafthouse filled the folder, JSON files beside the weights, called
notes (`integrity.Note`), list the files of a revision, and the hub is not needed at all: this serves a box without a
network. Lines for the user are called remarks. A part is a partial file.
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

# Receives the number of bytes copied or verified, negative when they are discarded.
OnBytes = Callable[[int], None]
_NOTE_LIMIT = 64 << 20  # bytes; larger notes are ignored
_PIECE = 4 << 20  # bytes of one read
_FICLONE = 0x40049409  # ioctl of linux/fs.h: a reflink, two files that share their blocks until one is written


def nearby_folder_of(settings: Mapping[str, Any] | None) -> NearbyFolder | None:
    """Nearby folder for the settings {models_dir, folder}; None without settings."""
    if not settings:
        return None
    return NearbyFolder(Path(settings["folder"]), Path(settings["models_dir"]))


class NearbyFolder:
    """A folder of the box that may hold weights already.

    Files are reflinked or hard-linked if ``may_link`` allows it, else copied. ``remarks`` gets a line for each file
    that cannot be used.
    """

    def __init__(self, folder: Path, models_dir: Path, may_link: Callable[[Path], bool] = lambda path: True) -> None:
        self._folder = folder
        self._models_dir = models_dir
        self._may_link = may_link
        self.remarks: list[str] = []

    def relative_path_of(self, path: Path) -> str:
        """Path relative to ``models_dir``, such as ``Qwen-Qwen3-32B``: the same as inside the nearby folder."""
        return path.relative_to(self._models_dir).as_posix()

    def listing(
        self, weights_path: str, repo: str, revision: str, identity_of: Callable[[str], str]
    ) -> Snapshot | None:
        """Files of the revision, from the note beside the weights; None without a note that matches.

        ``weights_path``: the path of the weights in the folder. A note matches if

        - it is complete and for ``repo``;
        - its commit is ``revision``, or it was made for the same branch (or ``unresolved``) as ``revision`` names;
        - its identity, which covers commit and file patterns, is ``identity_of(commit)``.

        A note that matches but has a malformed file entry gives None and a remark.
        """
        note = self._read_note(weights_path)
        commit = note.get("commit")
        if note.get("complete") is not True or note.get("repo") != repo or not is_commit(str(commit)):
            return None
        commit = str(commit)
        same_revision = commit == revision or (not is_commit(revision) and note.get("asked") == revision)
        if not same_revision or note.get("identity") != identity_of(commit):
            return None
        try:
            files = tuple(_remote_file(path, entry) for path, entry in sorted(note["files"].items()))
        except (KeyError, TypeError, ValueError, AttributeError):
            self.remarks.append(f"{self._folder}: the note of {weights_path} can't be read; using the hub")
            return None
        return Snapshot(repo, revision, commit, files)

    def fill_from_remote_file(self, file: RemoteFile, part: Path, on_bytes: OnBytes) -> bool:
        """Fill ``part`` as `fill_part` does. ``file.path`` has to be relative to the nearby folder."""
        return self.fill_part(
            file.path, part, size=file.size, sha256=file.sha256, git_sha1=file.git_sha1, on_bytes=on_bytes
        )

    def fill_part(
        self,
        file_path: str,
        part: Path,
        *,
        size: int | None,
        sha256: str | None,
        git_sha1: str | None,
        on_bytes: OnBytes,
    ) -> bool:
        """Fill ``part`` with the nearby file; True once ``part`` is the complete, verified file.

        ``size``: in bytes, None if it is not known. ``part`` may have the first bytes already; it is removed if the
        hash turns out wrong. False, so that the caller downloads the file, if

        - no hash is known, or there is no nearby file;
        - its size or its hash is wrong, or it cannot be read: these add a remark.

        Raises DrafthouseError if the disk is full or read-only.
        """
        expected_hash = sha256 or git_sha1
        if not expected_hash:
            return False
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            return self._link_or_copy(file_path, part, size, expected_hash, on_bytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                found = f"{error.strerror} at {part.parent}"
                do = "free some space, then run again: it resumes"
                raise one_problem("disk-full", found, "room for the weights", do) from error
            self.remarks.append(f"{self._folder}: {file_path}: {error.strerror or error}; using the hub")
            return False

    def _link_or_copy(
        self, file_path: str, part: Path, size: int | None, expected_hash: str, on_bytes: OnBytes
    ) -> bool:
        """Link the file, else copy what the part lacks, else copy the whole file; True if the hash matches."""
        source_path = self._folder / file_path
        if not source_path.is_file():
            return False
        source_size = source_path.stat().st_size
        if size is not None and source_size != size:
            self.remarks.append(f"{self._folder}: {file_path} has {source_size} bytes instead of {size}; using the hub")
            return False
        part_size = _file_size(part)
        if not part_size and self._may_link(source_path) and _link_verified(source_path, part, expected_hash, on_bytes):
            return True
        if _copy(source_path, part, expected_hash, on_bytes):
            return True
        # The wrong bytes may be those that an earlier run left in the part: copy the whole file.
        if part_size and _copy(source_path, part, expected_hash, on_bytes):
            return True
        self.remarks.append(f"{self._folder}: {file_path} has wrong bytes; using the hub")
        return False

    def _read_note(self, weights_path: str) -> dict[str, Any]:
        """Note beside the weights at ``weights_path``; {} if it is missing, too large or malformed."""
        path = self._folder / f"{weights_path}{NOTE_SUFFIX}"
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= _NOTE_LIMIT:
                data = json.loads(path.read_bytes())
                if isinstance(data, dict):
                    return data
        return {}


def _remote_file(path: str, entry: Mapping[str, Any]) -> RemoteFile:
    """File for an entry of a note. Raises ValueError without a hash, or for a path that leads out of the folder."""
    sha256 = entry.get("sha256")
    git_sha1 = entry.get("git_sha1")
    if (sha256 is None and git_sha1 is None) or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(path)
    # Large files have the hub's sha256, small ones git's blob id; one hash is enough.
    return RemoteFile(path, int(entry["size"]), sha256, None if sha256 else git_sha1)


def _new_hash(expected_hash: str, size: int) -> hashlib._Hash:
    """Hash object of the kind of ``expected_hash``: sha256 (64 digits), else git's blob id of ``size`` bytes."""
    if len(expected_hash) == 64:
        return hashlib.sha256()
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def _file_size(path: Path) -> int:
    """Size in bytes; 0 for a file that does not exist or cannot be examined."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _copy(source_path: Path, part: Path, expected_hash: str, on_bytes: OnBytes) -> bool:
    """Copy the bytes that ``part`` lacks; True if the result has the hash, else ``part`` is removed. Raises OSError."""
    size = source_path.stat().st_size
    digest = _new_hash(expected_hash, size)
    # O_NOFOLLOW: never write through a planted symbolic link.
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b", buffering=0) as part_stream, source_path.open("rb") as source:
        while piece := part_stream.read(_PIECE):
            digest.update(piece)
        source.seek(part_stream.tell())
        while piece := source.read(_PIECE):
            digest.update(piece)
            unwritten = memoryview(piece)
            while unwritten:  # an unbuffered write may take fewer bytes
                unwritten = unwritten[part_stream.write(unwritten) :]
            on_bytes(len(piece))
        part_size = part_stream.tell()
    if part_size == size and digest.hexdigest() == expected_hash:
        return True
    part.unlink(missing_ok=True)
    on_bytes(-part_size)
    return False


def _link_verified(source_path: Path, part: Path, expected_hash: str, on_bytes: OnBytes) -> bool:
    """Make ``part`` a reflink of the source, or else a hard link, and verify it; True if that worked.

    Both need one file system. A hard link is made only after the hash was checked, so that ``part`` never points at a
    file that was not verified. A part that was made and is wrong is removed. ``on_bytes`` counts the bytes as they are
    hashed, and takes them back on failure.
    """
    status = source_path.stat()
    if status.st_dev != part.parent.stat().st_dev:
        return False
    part.unlink(missing_ok=True)
    is_reflinked = _reflink(source_path, part)
    digest = _new_hash(expected_hash, status.st_size)
    with (part if is_reflinked else source_path).open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            on_bytes(len(piece))
    is_done = digest.hexdigest() == expected_hash
    if is_done and not is_reflinked:
        try:
            os.link(source_path.resolve(), part)
        except OSError:  # forbidden (fs.protected_hardlinks), or not supported by the file system
            is_done = False
    if not is_done:
        on_bytes(-status.st_size)
        part.unlink(missing_ok=True)
    return is_done


def _reflink(source_path: Path, part: Path) -> bool:
    """Create ``part`` as a reflink; False, and no part, if the file system cannot share blocks."""
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with source_path.open("rb") as source:
            fcntl.ioctl(descriptor, _FICLONE, source.fileno())
    except OSError:
        part.unlink()
        return False
    finally:
        os.close(descriptor)
    return True
