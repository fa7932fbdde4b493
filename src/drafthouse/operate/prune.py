"""Lists the weights below models_dir that no profile and no kept release uses, with their sizes, and removes them.

Drafthouse owns a path that has a verification note beside it (`<path>.drafthouse.json`, see `weights/integrity.py`); in
a folder it owns only the files that the note lists. Files of anybody else are never removed. Standard library only.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.documents import json_of, short
from ..core.errors import DrafthouseError, one_problem
from ..profiles.model_names import find_model
from ..serving.releases import damaged_releases, weights_kept
from ..weights.integrity import NOTE_SUFFIX, note_file

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Profile

PARTS = ".drafthouse-parts"  # the folder of unfinished downloads
WRONG = ".wrong"  # suffix of a file whose bytes did not match the revision's hash
#: The states of an entry. Only unused and unfinished ones are removed.
USED, UNUSED, UNFINISHED, FOREIGN = "used", "unused", "unfinished", "not ours"


@dataclass(frozen=True)
class Entry:
    """Weights or other files below models_dir.

    The file system records the access time: to about a day with the mount option relatime (the default), and only
    the last change with noatime.
    """

    path: Path  # of the weights, or of the folder that holds the other files
    state: str  # USED, UNUSED, UNFINISHED or FOREIGN
    size: int  # bytes
    last_used: float  # the last access to any of the files, in unix seconds
    files: tuple[Path, ...]  # that `remove` would remove

    @property
    def removable(self) -> bool:
        """True if Drafthouse owns the entry and nothing uses it."""
        return self.state in (UNUSED, UNFINISHED)


def used_by_profiles(profiles: Mapping[str, Profile], models: Mapping[str, ModelEntry]) -> set[str]:
    """The paths below models_dir that any profile uses, and those that such weights are derived from.

    Names that the catalogue ``models`` does not have are left out.
    """
    names: list[object] = []
    for profile in profiles.values():
        names.append(profile.get("target"))
        speculation = profile.get("speculation")
        if isinstance(speculation, Mapping):
            names.append(speculation.get("draft"))
    used: set[str] = set()
    while names:
        name = names.pop()
        key = find_model(str(name), models) if name else None
        if key is None:
            continue
        model = models[key]
        used.add("/".join(filter(None, (model["folder"], model.get("file")))))
        if derived := model["source"].get("derived"):
            names.append(derived["from"])
        if head := model.get("speculators"):  # a draft head as target means the model that it names
            names.append(head["target"])
    return used


def used_by_releases(home: str | Path, models_dir: Path) -> set[str]:
    """The paths below ``models_dir`` that the releases kept in a box's ``home`` need for a rollback.

    Raises DrafthouseError if a release cannot be read, as its weights are then unknown.
    """
    damaged = damaged_releases(home)
    if damaged:
        raise DrafthouseError(damaged)
    # The release may name the folder by another path than ``models_dir``: absolute, or through a link.
    folders = (models_dir.absolute(), models_dir.resolve())
    used = set()
    for weights in map(Path, weights_kept(home)):
        for candidate, folder in itertools.product((weights, weights.parent.resolve() / weights.name), folders):
            if candidate.is_relative_to(folder):
                used.add(candidate.relative_to(folder).as_posix())
    return used


def look(models_dir: Path, used: Iterable[str]) -> list[Entry]:
    """The entries of ``models_dir``; ``used`` are the paths relative to it that must stay.

    Raises DrafthouseError if the folder does not exist.
    """
    try:
        is_folder = models_dir.is_dir()
    except OSError as error:  # such as a name that is too long
        raise one_problem(
            "file-unreadable", str(error.strerror), "the models' folder", "correct its path", short(str(models_dir))
        ) from error
    if not is_folder:
        raise one_problem(
            "no-such-file", "no such folder", "the models' folder", "name another inventory", str(models_dir)
        )
    used_paths = set(used)
    entries: list[Entry] = []
    for path in sorted(models_dir.iterdir()):
        if not path.name.endswith(NOTE_SUFFIX):
            entries += _entries_at(path, models_dir, used_paths)
    return entries


def remove(entries: Iterable[Entry]) -> list[Path]:
    """Remove the removable entries and their notes; return the folders that stay because they hold foreign files."""
    kept_folders = []
    for entry in entries:
        if not entry.removable:
            continue
        for file in entry.files:
            file.unlink(missing_ok=True)
        for unfinished in (entry.path / PARTS, entry.path.parent / PARTS / entry.path.name):
            if not unfinished.is_symlink():
                shutil.rmtree(unfinished, ignore_errors=True)
        # The note goes last: after an interruption it still marks the remaining files as Drafthouse's.
        note_file(entry.path).unlink(missing_ok=True)
        is_folder = entry.path.is_dir() and not entry.path.is_symlink()
        _remove_empty(entry.path if is_folder else entry.path.parent)
        if is_folder and entry.path.is_dir():
            kept_folders.append(entry.path)
    return kept_folders


def _remove_empty(folder: Path) -> None:
    """Remove the empty folders below ``folder``, and ``folder`` if it is empty."""
    subfolders = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for path in [*sorted(subfolders, reverse=True), folder]:
        with contextlib.suppress(OSError):
            path.rmdir()


def _entries_at(path: Path, models_dir: Path, used: set[str]) -> Iterator[Entry]:
    """Yield the entries at ``path``, which is directly below models_dir.

    1. Weights with a note: one entry.
    2. Any other file, or a link: one foreign entry.
    3. A folder without a note: an entry for each of the weights in it, one for the parts of unfinished downloads unless
       something in the folder is used, and one for all foreign files.
    """
    if note_file(path).is_file():
        yield _owned_entry(path, models_dir, used)
        return
    if path.is_symlink() or not path.is_dir():
        yield _entry(path, FOREIGN, [path])
        return
    models = [file for file in sorted(path.iterdir()) if note_file(file).is_file()]
    for file in models:
        yield _owned_entry(file, models_dir, used)
    owned = {*models, *map(note_file, models)}
    unfinished = []
    foreign = []
    for file in _files(path):
        if PARTS in file.relative_to(path).parts:
            unfinished.append(file)
        elif file not in owned:
            foreign.append(file)
    if unfinished and not _is_used(path, models_dir, used):
        yield _entry(path, UNFINISHED, unfinished)
    if foreign:
        yield _entry(path, FOREIGN, foreign)


def _owned_entry(path: Path, models_dir: Path, used: set[str]) -> Entry:
    """The entry of weights with a note. Its files are those in the note, and in a folder also files with wrong bytes.

    A note that cannot be read names no file.
    """
    folder = path.parent if path.is_file() else path
    try:
        names = list(json_of(note_file(path).read_text("utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        names = []
    if path.is_symlink():
        files = [path]  # only the link: the Hub's cache behind it is shared with other tools
    else:
        files = list(filter(None, (_path_in_note(folder, str(name)) for name in names)))
        if path.is_dir():
            files += [file for file in _files(folder) if file.name.endswith(WRONG)]
    return _entry(path, USED if _is_used(path, models_dir, used) else UNUSED, files)


def _path_in_note(folder: Path, name: str) -> Path | None:
    """The path of a file that a note names; None if the name leads out of ``folder`` or through a link."""
    path = folder / name
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts:
        return None
    if any((folder.joinpath(*parts[:count])).is_symlink() for count in range(1, len(parts))):
        return None
    return path


def _is_used(path: Path, models_dir: Path, used: set[str]) -> bool:
    """True if ``path`` or something below it is used."""
    relative = path.relative_to(models_dir).as_posix()
    return relative in used or any(name.startswith(f"{relative}/") for name in used)


def _files(folder: Path) -> list[Path]:
    """All files and links below a folder; a link to a folder counts as a file, and is not followed."""
    return [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _entry(path: Path, state: str, files: Iterable[Path]) -> Entry:
    """The entry of those ``files`` that exist."""
    present = []
    size = 0
    last_used = 0.0
    for file in files:
        with contextlib.suppress(OSError):
            status = file.lstat()
            size += status.st_size
            last_used = max(last_used, status.st_atime, status.st_mtime)
            present.append(file)
    return Entry(path, state, size, last_used, tuple(present))
