"""Where the files of a revision lie: as plain files, or in the layout of the hub's cache; and the room there.

Nothing is written through a symbolic link: one that was planted in the folder would lead it anywhere.
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
from ..core.locks import take
from .download import disk_trouble
from .hub_client import folders_above

PARTS = ".drafthouse-parts"
FETCHED = "fetch-"  # how folders are called in which a package is unpacked
_CLIENTS, _UNDONE = ("huggingface", "huggingface/download"), ".incomplete"  # huggingface_hub, _local_folder.py
_HOLD_TRIES = 100  # another run makes and removes the same folder meanwhile
_ABANDONED_S = 3600.0  # in a cache that others use too, an unfinished file is an orphan after this long


@dataclass(frozen=True)
class Layout:
    """``folder`` holds the files by their names; ``place`` is what the note is for, ``parts`` holds unfinished files.

    With ``blobs`` (the hub's cache) the files lie there, by their hashes, and ``folder`` has links to them.
    """

    folder: Path
    place: Path
    parts: Path
    blobs: Path | None = None

    def final(self, name: str, key: str) -> Path:
        """Where a verified file lies."""
        return self.blobs / key if self.blobs else self.folder / name

    def part(self, key: str) -> Path:
        """Where a file lies while it is unfinished."""
        return self.parts / f"{key}.part"

    def linked(self, name: str, key: str) -> bool:
        """Whether the file is found under its name; a plain file is."""
        return self.blobs is None or os.path.realpath(self.folder / name) == os.path.realpath(self.blobs / key)

    def link(self, name: str, key: str) -> None:
        """Let a file of the cache be found under its name."""
        if self.blobs is None or self.linked(name, key):
            return
        link = self.folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.parts / f"{key}.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(self.blobs / key, link.parent))
        fresh.replace(link)

    def check(self, names: Iterable[str]) -> None:
        """Refuse symbolic links on the path to the files, and folders in their place. Raises DrafthouseError."""
        paths: dict[Path, None] = {self.folder: None, self.parts.parent: None, self.parts: None}
        for name in names:
            for folder in folders_above(name):
                paths[self.folder / folder] = None
        if self.blobs:
            paths[self.blobs] = None
        for path in paths:
            _be(path, stat.S_ISDIR, "a folder")
        if not self.blobs:
            for name in names:
                _be(self.folder / name, stat.S_ISREG, "a file")


def plain(path: Path, one_file: bool = False) -> Layout:
    """The layout of weights at ``path``: a folder, or one file in a folder that has others."""
    if one_file:
        return Layout(path.parent, path, path.parent / PARTS / path.name)
    return Layout(path, path, path / PARTS)


def cached(cache: Path, repo: str, commit: str) -> Layout:
    """The layout of the hub's own cache (``models--org--name`` with blobs, snapshots and refs)."""
    base = cache / f"models--{repo.replace('/', '--')}"
    return Layout(base / "snapshots" / commit, base / commit, base / PARTS, base / "blobs")


def write_ref(layout: Layout, asked: str, commit: str) -> None:
    """Record in the hub's cache which commit a branch is, as its own client does."""
    if layout.blobs is None or not re.fullmatch(r"[\w./-]+", asked) or ".." in asked.split("/"):
        return
    replace_file(layout.blobs.parent / "refs" / asked, commit, None, layout.parts)


def _be(path: Path, kind: Callable[[int], bool], word: str) -> None:
    with disk_trouble(path):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
    if stat.S_ISLNK(mode) or not kind(mode):
        found = "a symbolic link" if stat.S_ISLNK(mode) else "something else"
        raise one_problem(
            "folder-not-ours",
            f"{found} where {word} is to be written",
            f"{word}, or nothing: Drafthouse does not write through links",
            "check what it is, remove it, then run again",
            str(path),
        )


# --- the folder of unfinished files -----------------------------------------------------------------------


@contextmanager
def held(layout: Layout) -> Iterator[None]:
    """Make the folder of unfinished files, hold it alone, and remove it when nothing is left in it."""
    with disk_trouble(layout.parts):
        handle = _hold(layout.parts)
    try:
        yield
    finally:
        # While it is held: whoever does not hold it must not take it away. Each of them, where nothing is left in it:
        # also a folder that was made for weights that could not be had.
        for folder in (layout.parts, layout.parts.parent):
            with suppress(OSError):
                folder.rmdir()
        os.close(handle)


def _hold(folder: Path) -> int:
    """A descriptor of the folder, locked. Raises DrafthouseError when another run holds it, OSError."""
    for _ in range(_HOLD_TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # the run that had it took it away between the two calls
        free = True
        # A file system may have no locks on folders (NFS); the lock of the whole step still holds.
        with suppress(OSError):
            free = take(handle, 0)
        if not free:
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
        os.close(handle)  # the run that held it took it away before it let go: this lock holds nothing
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(folder))


def sweep(layout: Layout, keys: Iterable[str]) -> int:
    """Remove what earlier tools and other revisions left unfinished; return its bytes."""
    wanted = {f"{key}.part" for key in keys}
    orphans = [path for path in _entries(layout.parts) if path.name not in wanted]  # folders are of other items
    if layout.blobs is None:
        orphans += _unfinished_of_client(layout.folder / ".cache")
    else:
        old = time.time() - _ABANDONED_S
        for path in _entries(layout.blobs):
            if path.name.endswith(_UNDONE) and path.lstat().st_mtime < old:
                orphans.append(path)
    swept = 0
    for path in orphans:
        if path.name.startswith(FETCHED) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            continue
        with suppress(OSError):
            size = path.lstat().st_size
            path.unlink()
            swept += size
    return swept


def _unfinished_of_client(cache: Path) -> list[Path]:
    """What the hub's own client left unfinished beside the files of a folder."""
    folders = [cache, *map(cache.joinpath, _CLIENTS)]
    # os.walk follows no link below its top: none of the ways to it may be one either.
    if any(folder.is_symlink() for folder in folders):
        return []
    found: list[Path] = []
    for folder, _, names in os.walk(folders[-1]):
        found += [Path(folder, name) for name in names if name.endswith(_UNDONE)]
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


# --- room ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """What is still to come below ``folder``: ``bytes`` and ``files``, for ``what``."""

    folder: Path
    bytes: int
    files: int
    what: str


def check_room(needs: Sequence[Need], margin: int) -> None:
    """Refuse what its file systems have no room for, each of them counted once. ``margin``: bytes to stay free.

    Raises DrafthouseError.
    """
    by_disk: dict[int, list[Need]] = {}
    for need in needs:
        if need.files:
            by_disk.setdefault(_existing(need.folder).stat().st_dev, []).append(need)
    problems = []
    for wanted in by_disk.values():
        where = _existing(wanted[0].folder)
        disk = os.statvfs(where)
        free, missing = disk.f_bavail * disk.f_frsize, sum(need.bytes for need in wanted)
        what = " and ".join(need.what for need in wanted)
        if missing and missing + margin > free:
            problems.append(
                Problem(
                    "disk-full",
                    f"{shown_bytes(free)} free at {where}",
                    f"{shown_bytes(missing)} for {what}, and {shown_bytes(margin)} to keep free",
                    "free some space, or set drafthouse_models_dir to a larger disk",
                    str(wanted[0].folder),
                )
            )
        files = sum(need.files for need in wanted) + 8  # and folders, and notes
        if disk.f_files and files > disk.f_favail:
            problems.append(
                Problem(
                    "disk-full",
                    f"{disk.f_favail} free inodes at {where}",
                    f"{files} for {what}: each file takes one",
                    "remove small files there (df -i), or set drafthouse_models_dir to another disk",
                    str(wanted[0].folder),
                )
            )
    if problems:
        raise DrafthouseError(problems)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
