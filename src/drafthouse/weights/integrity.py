"""Weights as they lie on the disk: their hashes, and the note beside them of what was verified.

The note (``<path>.drafthouse.json``) holds size, mtime and inode of every verified file, so that the next look costs a
stat a file. A file that was changed, copied or restored since has another stamp, and is read again.
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
_PIECE = 4 << 20  # bytes read at once; hashlib lets other threads work meanwhile


class EndedError(Exception):
    """Reading was ended from outside."""


@dataclass(frozen=True)
class Verified:
    """A file as it was when its bytes were verified: ``size`` in bytes, ``mtime_ns``, ``inode``, and its hash."""

    size: int
    mtime_ns: int
    inode: int
    sha256: str | None
    git_sha1: str | None

    @property
    def key(self) -> str:
        """The hash that it was verified by."""
        return self.sha256 or self.git_sha1 or ""


class Checked(TypedDict, total=False):
    """What was looked at beyond the bytes: the headers, the head inside, and the pair that a draft is one half of."""

    files: bool
    head: BuiltinHead
    pair: Sequence[object]


@dataclass
class Note:
    """What is known of the weights at a path. ``files`` holds verified ones only, by path below the folder.

    ``complete``: they are all that was wanted of ``commit``. ``left_over`` are those of an earlier commit that this one
    does not have, to be removed at the end. ``identity`` is what the weights are, ``checked`` what was looked at beyond
    the bytes (by whoever did).
    """

    identity: str = ""
    repo: str | None = None
    asked: str | None = None
    commit: str | None = None
    complete: bool = False
    files: dict[str, Verified] = field(default_factory=dict)
    left_over: dict[str, Verified] = field(default_factory=dict)
    checked: Checked = field(default_factory=Checked)


def note_file(path: Path) -> Path:
    """Where the note of the weights at ``path`` lies: beside them."""
    return path.with_name(f"{path.name}{NOTE_SUFFIX}")


def read_note(path: Path) -> Note:
    """The note of the weights at ``path``; an empty one where there is none, or one that cannot be read.

    Notes of earlier versions knew no hashes: of them only the identity is taken, and the files are read again.
    """
    try:
        data = json_of(note_file(path).read_text("utf-8"))
        known = {key: data[key] for key in Note.__dataclass_fields__ if key in data}
        known["files"], known["left_over"] = _entries(data.get("files", {})), _entries(data.get("left_over", {}))
        return Note(**known)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Note()


def _entries(data: Mapping[str, Any]) -> dict[str, Verified]:
    entries = {}
    for name, entry in data.items():
        if isinstance(entry, dict):
            stamped = (entry["size"], entry["mtime_ns"], entry["inode"])
            entries[name] = Verified(*stamped, entry["sha256"], entry["git_sha1"])
    return entries


def write_note(path: Path, note: Note, by_way_of: Path | None = None) -> None:
    """Write the note of the weights at ``path``, all of it or nothing. ``by_way_of``: a folder of the same disk."""
    target = note_file(path)
    for folder in filter(None, (by_way_of, target.parent)):
        try:
            replace_file(target, json.dumps(asdict(note), indent=1), None, folder)
            return
        except OSError as error:
            # Where the weights' folder is a mount of its own, the note cannot come from there.
            if error.errno != errno.EXDEV or folder == target.parent:
                raise


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Size, mtime (ns) and inode of a plain file, otherwise None; a symbolic link is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def is_as_verified(path: Path, known: Verified | None) -> bool:
    """Whether the file at ``path`` still has the stamp that it was verified with."""
    return known is not None and stamp(path) == (known.size, known.mtime_ns, known.inode)


def as_verified(note: Note, folder: Path) -> bool:
    """Whether everything that the note says is there as it says: one stat a file, nothing is read."""
    return note.complete and bool(note.files) and all(
        is_as_verified(folder / name, known) for name, known in note.files.items()
    )  # fmt: skip


def verified(path: Path, sha256: str | None, git_sha1: str | None) -> Verified:
    """The entry of a file whose bytes have just been verified. Raises FileNotFoundError."""
    found = stamp(path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no plain file", str(path))
    return Verified(*found, sha256, git_sha1)


# --- reading every byte -----------------------------------------------------------------------------------


def digest(
    path: Path,
    *,
    git: bool = False,
    tell: Callable[[int], None] | None = None,
    stop: threading.Event | None = None,
) -> str:
    """The sha256 of a file, or with ``git`` git's blob id: the sha1 of "blob <size>", a zero byte and the file.

    ``tell`` gets the bytes of every piece that was read. Raises OSError, and EndedError when ``stop`` is set.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        with contextlib.suppress(OSError):  # advice alone
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
    """A hash of the names and hashes of the verified files at ``path``, '' where nothing lies there.

    Of weights that somebody else put there no hash is known: their names and sizes count.
    """
    known = {name: entry.key for name, entry in read_note(path).files.items()}
    if not known:
        files = path.rglob("*") if path.is_dir() else [path]
        known = {str(file.relative_to(path)): str(file.stat().st_size) for file in files if file.is_file()}
    if not known:
        return ""
    text = "".join(f"{name}\0{value}\n" for name, value in sorted(known.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
