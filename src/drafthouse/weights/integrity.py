"""Hashes of weights on disk, and the note beside them that records which files were verified.

The note (``<path>.drafthouse.json``) holds the stamp (size, mtime and inode) of every verified file, so that the next
run needs one stat call a file. A file that was changed, copied or restored has another stamp and is hashed again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ..core.documents import json_of
from ..core.files import replace_file

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead

NOTE_SUFFIX = ".drafthouse.json"
_PIECE = 4 << 20  # bytes read at once; hashlib releases the GIL while it hashes them


class EndedError(Exception):
    """Hashing was stopped by the caller."""


@dataclass(frozen=True)
class Verified:
    """Stamp and hash of a file at the time it was verified. One of the hashes is None: the file has the other."""

    size: int  # bytes
    mtime_ns: int
    inode: int
    sha256: str | None
    git_sha1: str | None  # its blob id in git, which the hub gives for small files

    @property
    def key(self) -> str:
        """Hash that the file was verified against; '' if an entry has none."""
        return self.sha256 or self.git_sha1 or ""


class Checked(TypedDict, total=False):
    """Checks that the weights passed; a check that is missing was not made, or failed."""

    files: bool  # headers and index
    head: BuiltinHead  # the built-in head that was expected, and is there
    pair: Sequence[object]  # identity of the target, identity of the draft, and the drafting method


@dataclass
class Note:
    """Record of the weights at a path. Its files are keyed by their paths relative to their folder."""

    identity: str = ""  # hash of the source, such as repository, commit and patterns; '' without a note
    repo: str | None = None  # repository of the hub; None, as the next two, for another source
    asked: str | None = None  # the requested branch, commit or ``unresolved``
    commit: str | None = None  # that ``asked`` was resolved to
    complete: bool = False  # True if ``files`` has all wanted files of the commit
    files: dict[str, Verified] = field(default_factory=dict)  # verified files
    left_over: dict[str, Verified] = field(default_factory=dict)  # of an earlier commit, removed at the end of a run
    checked: Checked = field(default_factory=Checked)


def note_file(path: Path) -> Path:
    """Path of the note of the weights at ``path``."""
    return path.with_name(f"{path.name}{NOTE_SUFFIX}")


def read_note(path: Path) -> Note:
    """Note of the weights at ``path``; an empty note if it does not exist, is malformed or cannot be read.

    Notes of earlier versions have no hashes: their files are left out, so they are hashed again. Unknown keys are
    ignored.
    """
    try:
        data = json_of(note_file(path).read_text("utf-8"))
        fields = {key: data[key] for key in Note.__dataclass_fields__ if key in data}
        fields["files"] = _entries(data.get("files", {}))
        fields["left_over"] = _entries(data.get("left_over", {}))
        return Note(**fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Note()


def _entries(data: Mapping[str, Any]) -> dict[str, Verified]:
    """Entries of a note by file name, without those of earlier versions, which are lists. Raises KeyError."""
    entries = {}
    for name, entry in data.items():
        if isinstance(entry, dict):
            file_stamp = (entry["size"], entry["mtime_ns"], entry["inode"])
            entries[name] = Verified(*file_stamp, entry["sha256"], entry["git_sha1"])
    return entries


def write_note(path: Path, note: Note, by_way_of: Path | None = None) -> None:
    """Write the note of the weights at ``path`` atomically. Raises OSError.

    ``by_way_of``: folder for the temporary file; None for the note's own folder.
    """
    destination = note_file(path)
    for folder in filter(None, (by_way_of, destination.parent)):
        try:
            replace_file(destination, json.dumps(asdict(note), indent=1), None, folder)
            return
        except OSError as error:
            # A file cannot be moved between file systems: retry in the note's own folder.
            if error.errno != errno.EXDEV or folder == destination.parent:
                raise


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Size (bytes), mtime (ns) and inode of a regular file; None for a link, another type, or no file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


def is_as_verified(path: Path, entry: Verified | None) -> bool:
    """True if the file at ``path`` still has the stamp of its ``entry`` in the note; False for None, no entry."""
    return entry is not None and stamp_of(path) == (entry.size, entry.mtime_ns, entry.inode)


def all_as_verified(note: Note, folder: Path) -> bool:
    """True if the note is complete and all its files have their recorded stamp. Reads no file."""
    return note.complete and bool(note.files) and all(
        is_as_verified(folder / name, entry) for name, entry in note.files.items()
    )  # fmt: skip


def note_entry(path: Path, sha256: str | None, git_sha1: str | None) -> Verified:
    """Note entry for a file that was just verified by one of the hashes. Raises FileNotFoundError."""
    file_stamp = stamp_of(path)
    if file_stamp is None:
        raise FileNotFoundError(errno.ENOENT, "no plain file", str(path))
    return Verified(*file_stamp, sha256, git_sha1)


# --- hashing ----------------------------------------------------------------------------------------------


def digest(
    path: Path,
    *,
    git: bool = False,
    tell: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> str:
    """Hex sha256 of a file, or with ``git`` its blob id in git: the sha1 of "blob <size>", a zero byte and the content.

    ``tell`` receives the number of bytes of every read. Raises OSError, also for a symbolic link, and EndedError when
    ``stop`` is set; with None for it, the file is always read to its end.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        with contextlib.suppress(OSError):  # only a hint to the kernel
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        hashed = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if git else hashlib.sha256()
        piece = memoryview(bytearray(_PIECE))
        while count := file.readinto(piece):
            hashed.update(piece[:count])
            if tell:
                tell(count)
            if stop is not None and stop.is_set():
                raise EndedError
    return hashed.hexdigest()


def manifest_hash(path: Path) -> str:
    """First 16 hex digits of a sha256 over the names and hashes of the files at ``path``; '' if there are none.

    The hashes are those in the note. Weights without a note, which the user put there, have none: their sizes are used
    instead. No file is read.
    """
    manifest = {name: entry.key for name, entry in read_note(path).files.items()}
    if not manifest:
        files = path.rglob("*") if path.is_dir() else [path]
        manifest = {str(file.relative_to(path)): str(file.stat().st_size) for file in files if file.is_file()}
    if not manifest:
        return ""
    text = "".join(f"{name}\0{value}\n" for name, value in sorted(manifest.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
