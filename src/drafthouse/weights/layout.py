"""Layout of a revision's files on disk, in a plain folder or in a Hugging Face cache, and checks of the disk space.

The cache has the format of huggingface_hub: its ``blobs`` are the files, named by their hashes; a folder for each
commit has links from file names to blobs. A part is an unfinished file. No file is written through a symbolic link:
someone could plant a link that leads anywhere on the machine.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.files import replace_file
from ..core.format import shown_bytes
from ..core.locks import take_lock
from .download import disk_trouble
from .hub_client import folders_above

PARTS = ".drafthouse-parts"
FETCHED = "fetch-"  # prefix of temporary folders in which a Python package is unpacked
# Below ``.cache``: where huggingface_hub, the hub's own client, keeps its unfinished files, and their suffix.
_CLIENT_FOLDERS = ("huggingface", "huggingface/download")
_INCOMPLETE = ".incomplete"
_LOCK_TRIES = 100  # another run may create and remove the same folder at the same time
_ABANDONED_S = 3600.0  # seconds without a change after which an unfinished file in a shared cache counts as abandoned


@dataclass(frozen=True)
class Layout:
    """Places of a revision's files, of its unfinished files and of its note."""

    folder: Path  # of the files by name; in a Hugging Face cache, of symbolic links to the blobs
    path: Path  # the note is stored beside it
    parts: Path  # folder of the unfinished files
    blobs: Path | None = None  # in a Hugging Face cache, the folder of the files by hash

    def final(self, name: str, key: str) -> Path:
        """Path of a verified file; ``key`` is its hash."""
        return self.blobs / key if self.blobs else self.folder / name

    def part(self, key: str) -> Path:
        """Path of a file while it is unfinished; ``key`` is its hash."""
        return self.parts / f"{key}.part"

    def linked(self, name: str, key: str) -> bool:
        """True if the name leads to the file with hash ``key``; always true for a plain folder."""
        return self.blobs is None or os.path.realpath(self.folder / name) == os.path.realpath(self.blobs / key)

    def link(self, name: str, key: str) -> None:
        """Link the name to the file with hash ``key`` in the cache; do nothing in a plain folder."""
        if self.blobs is None or self.linked(name, key):
            return
        link = self.folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        new_link = self.parts / f"{key}.link"
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(os.path.relpath(self.blobs / key, link.parent))
        new_link.replace(link)

    def check(self, names: Iterable[str]) -> None:
        """Raise DrafthouseError if a folder on the path to the files, or a file itself, is a link or another type.

        In a cache the names are links by design, and only folders are checked. What does not exist yet is right.
        """
        # A dictionary without values: each folder once, in a fixed order.
        folders: dict[Path, None] = {self.folder: None, self.parts.parent: None, self.parts: None}
        for name in names:
            for folder in folders_above(name):
                folders[self.folder / folder] = None
        if self.blobs:
            folders[self.blobs] = None
        for path in folders:
            _check_type(path, stat.S_ISDIR, "a folder")
        if not self.blobs:
            for name in names:
                _check_type(self.folder / name, stat.S_ISREG, "a file")


def folder_layout(path: Path, one_file: bool = False) -> Layout:
    """Layout of weights at ``path``: a folder, or one file in a folder that holds other weights too.

    Such a file has a folder of parts to itself, because each folder of parts is locked by one run.
    """
    if one_file:
        return Layout(folder=path.parent, path=path, parts=path.parent / PARTS / path.name)
    return Layout(folder=path, path=path, parts=path / PARTS)


def cache_layout(cache: Path, repo: str, commit: str) -> Layout:
    """Layout of a commit in a Hugging Face cache (``models--org--name`` with blobs, snapshots and refs)."""
    base = cache / f"models--{repo.replace('/', '--')}"
    return Layout(folder=base / "snapshots" / commit, path=base / commit, parts=base / PARTS, blobs=base / "blobs")


def write_ref(layout: Layout, branch: str, commit: str) -> None:
    """Record in a Hugging Face cache which commit a branch points to, as huggingface_hub does.

    Nothing is written in a plain folder, or for a branch whose name is not safe as a path.
    """
    if layout.blobs is None or not re.fullmatch(r"[\w./-]+", branch) or ".." in branch.split("/"):
        return
    replace_file(layout.blobs.parent / "refs" / branch, commit, None, layout.parts)


def _check_type(path: Path, is_type: Callable[[int], bool], type_name: str) -> None:
    """Raise DrafthouseError if ``path`` exists and is a symbolic link or of another type."""
    with disk_trouble(path):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
    if stat.S_ISLNK(mode) or not is_type(mode):
        found = "a symbolic link" if stat.S_ISLNK(mode) else "something else"
        raise one_problem(
            "folder-not-ours",
            f"{found} where {type_name} is to be written",
            f"{type_name}, or nothing: Drafthouse does not write through links",
            "check what it is, remove it, then run again",
            str(path),
        )


# --- the folder of unfinished files -----------------------------------------------------------------------


@contextmanager
def locked_parts(layout: Layout) -> Iterator[None]:
    """Create and lock the folder of unfinished files; at the end remove it if it is empty, and unlock it.

    Raises DrafthouseError if another run has the lock.
    """
    with disk_trouble(layout.parts):
        handle = _open_and_lock(layout.parts)
    try:
        yield
    finally:
        # Remove the empty folders while the lock is held: no process may remove a folder that another has locked.
        for folder in (layout.parts, layout.parts.parent):
            with suppress(OSError):
                folder.rmdir()
        os.close(handle)


def _open_and_lock(folder: Path) -> int:
    """Descriptor of the folder, which is created and locked. Raises DrafthouseError if another run has the lock.

    On a file system without locks for folders the folder stays unlocked. Raises OSError for a folder that cannot be
    opened, or that other runs remove again and again.
    """
    for _ in range(_LOCK_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # another run removed the folder between the two calls
        is_locked = True
        # A file system may not support locks on folders (NFS); the lock of the whole weights step still protects it.
        with suppress(OSError):
            is_locked = take_lock(handle, 0)
        if not is_locked:
            os.close(handle)
            raise one_problem(
                "already-running",
                "another run is downloading into the same folder",
                "one at a time",
                "wait for it to end, or stop it, then run again",
                str(folder),
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), folder.stat()):
                return handle
        os.close(handle)  # another run removed the folder before it unlocked it: the locked folder has no name
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))


def remove_stale_parts(layout: Layout, keys: Iterable[str]) -> int:
    """Remove unfinished files that no run will continue; the number of bytes removed.

    These are parts whose hash is not in ``keys``, folders of unpacked packages, and what huggingface_hub left
    unfinished: in a plain folder all of it, in a Hugging Face cache, which other programs share, only old files. The
    bytes in folders are not counted.
    """
    kept_names = {f"{key}.part" for key in keys}
    orphans = [path for path in _folder_entries(layout.parts) if path.name not in kept_names]
    if layout.blobs is None:
        orphans += _unfinished_of_client(layout.folder / ".cache")
    else:
        oldest = time.time() - _ABANDONED_S
        for path in _folder_entries(layout.blobs):
            if path.name.endswith(_INCOMPLETE) and path.lstat().st_mtime < oldest:
                orphans.append(path)
    removed_bytes = 0
    for path in orphans:
        if path.name.startswith(FETCHED) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            continue
        with suppress(OSError):  # a folder of another item cannot be unlinked and stays
            size = path.lstat().st_size
            path.unlink()
            removed_bytes += size
    return removed_bytes


def _unfinished_of_client(cache: Path) -> list[Path]:
    """Unfinished downloads of huggingface_hub in the ``.cache`` folder beside the weights."""
    folders = [cache, *map(cache.joinpath, _CLIENT_FOLDERS)]
    # os.walk follows no links below its start; the folders above the start must not be links either.
    if any(folder.is_symlink() for folder in folders):
        return []
    unfinished: list[Path] = []
    for folder, _, names in os.walk(folders[-1]):
        unfinished += [Path(folder, name) for name in names if name.endswith(_INCOMPLETE)]
    return unfinished


def _folder_entries(folder: Path) -> list[Path]:
    """Entries of a folder, sorted; [] if it does not exist or cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


# --- disk space ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """Space that downloads into ``folder`` need."""

    folder: Path  # may not exist yet
    bytes: int
    files: int  # new files, each of which takes an inode
    what: str  # the repository, for messages


def check_room(needs: Sequence[Need], margin: int) -> None:
    """Raise DrafthouseError if a file system lacks bytes or inodes for all ``needs`` on it together.

    ``margin`` is the number of bytes that must stay free on each file system. A need of no new files counts nothing. A
    file system that names no number of inodes is not checked for them.
    """
    by_disk: dict[int, list[Need]] = {}  # by device number
    for need in needs:
        if need.files:
            by_disk.setdefault(_nearest_existing(need.folder).stat().st_dev, []).append(need)
    problems = []
    for disk_needs in by_disk.values():
        where = _nearest_existing(disk_needs[0].folder)
        disk = os.statvfs(where)
        free = disk.f_bavail * disk.f_frsize
        needed = sum(need.bytes for need in disk_needs)
        what = " and ".join(need.what for need in disk_needs)
        if needed and needed + margin > free:
            problems.append(
                Problem(
                    "disk-full",
                    f"{shown_bytes(free)} free at {where}",
                    f"{shown_bytes(needed)} for {what}, and {shown_bytes(margin)} to keep free",
                    "free some space, or set drafthouse_models_dir to a larger disk",
                    str(disk_needs[0].folder),
                )
            )
        files = sum(need.files for need in disk_needs) + 8  # inodes for folders and notes
        if disk.f_files and files > disk.f_favail:
            problems.append(
                Problem(
                    "disk-full",
                    f"{disk.f_favail} free inodes at {where}",
                    f"{files} for {what}: each file takes one",
                    "remove small files there (df -i), or set drafthouse_models_dir to another disk",
                    str(disk_needs[0].folder),
                )
            )
    if problems:
        raise DrafthouseError(problems)


def _nearest_existing(path: Path) -> Path:
    """The path itself, or the first folder above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
