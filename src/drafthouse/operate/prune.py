"""What lies below models_dir and neither profile nor kept release uses: found, sized, and removed when told.

Ours is what has our note beside it (`<path>.drafthouse.json`), and of a folder only the files that the note names: what
somebody put there himself is never touched. Standard library only.
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

PARTS = ".drafthouse-parts"  # downloads that have not ended
WRONG = ".wrong"  # a file that was moved aside because its bytes were not the revision's
USED, UNUSED, UNFINISHED, FOREIGN = "used", "unused", "unfinished", "not ours"


@dataclass(frozen=True)
class Entry:
    """Something below models_dir. ``size`` in bytes; ``last_used`` is when a byte of it was last read or written.

    ``last_used`` is in seconds since 1970, as the file system knows it: to about a day where it is mounted as usual
    (relatime), and no better than the last change with noatime.
    """

    path: Path
    state: str
    size: int
    last_used: float
    files: tuple[Path, ...]

    @property
    def removable(self) -> bool:
        """Tell whether it is ours and nobody's need."""
        return self.state in (UNUSED, UNFINISHED)


def used_by_profiles(profiles: Mapping[str, Profile], models: Mapping[str, ModelEntry]) -> set[str]:
    """The paths below models_dir that any profile uses, also those that others are made from."""
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
        if head := model.get("speculators"):  # as a target such a head stands for the model that it names
            names.append(head["target"])
    return used


def used_by_releases(home: str | Path, models_dir: Path) -> set[str]:
    """The paths below ``models_dir`` that the releases kept in a box's ``home`` need to serve again.

    Raises DrafthouseError where one cannot be read: what it needs is then not known.
    """
    bad = damaged_releases(home)
    if bad:
        raise DrafthouseError(bad)
    # The folder may be named otherwise than the box named it: relative, or by a link.
    folders = (models_dir.absolute(), models_dir.resolve())
    used = set()
    for kept in map(Path, weights_kept(home)):
        for path, folder in itertools.product((kept, kept.parent.resolve() / kept.name), folders):
            if path.is_relative_to(folder):
                used.add(path.relative_to(folder).as_posix())
    return used


def look(models_dir: Path, used: Iterable[str]) -> list[Entry]:
    """What lies below ``models_dir``; ``used`` are paths below it.

    Raises DrafthouseError where there is none.
    """
    try:
        there = models_dir.is_dir()
    except OSError as error:  # a name that is too long for any
        raise one_problem(
            "file-unreadable", str(error.strerror), "the models' folder", "correct its path", short(str(models_dir))
        ) from error
    if not there:
        raise one_problem(
            "no-such-file", "no such folder", "the models' folder", "name another inventory", str(models_dir)
        )
    wanted = set(used)
    entries: list[Entry] = []
    for path in sorted(models_dir.iterdir()):
        if not path.name.endswith(NOTE_SUFFIX):
            entries += _at(path, models_dir, wanted)
    return entries


def remove(entries: Iterable[Entry]) -> list[Path]:
    """Remove those that are removable, with their notes; return folders that stay, because of what is not ours."""
    kept = []
    for entry in entries:
        if not entry.removable:
            continue
        for file in entry.files:
            file.unlink(missing_ok=True)
        for parts in (entry.path / PARTS, entry.path.parent / PARTS / entry.path.name):
            if not parts.is_symlink():
                shutil.rmtree(parts, ignore_errors=True)
        # Last: what was interrupted before is still known to be ours.
        note_file(entry.path).unlink(missing_ok=True)
        _remove_empty(entry.path if entry.path.is_dir() and not entry.path.is_symlink() else entry.path.parent)
        if entry.path.is_dir() and not entry.path.is_symlink():
            kept.append(entry.path)
    return kept


def _remove_empty(folder: Path) -> None:
    """Remove the empty folders below ``folder``, and it itself."""
    below = [path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()]
    for path in [*sorted(below, reverse=True), folder]:
        with contextlib.suppress(OSError):
            path.rmdir()


def _at(path: Path, models_dir: Path, used: set[str]) -> Iterator[Entry]:
    """Yield the entries that one name directly below models_dir stands for."""
    if note_file(path).is_file():
        yield _ours(path, models_dir, used)
        return
    if path.is_symlink() or not path.is_dir():
        yield _entry(path, FOREIGN, [path])
        return
    inside = [file for file in sorted(path.iterdir()) if note_file(file).is_file()]
    for file in inside:
        yield _ours(file, models_dir, used)
    known = {*inside, *map(note_file, inside)}
    begun, rest = [], []
    for file in _files(path):
        if PARTS in file.relative_to(path).parts:
            begun.append(file)
        elif file not in known:
            rest.append(file)
    if begun and not _is_used(path, models_dir, used):
        yield _entry(path, UNFINISHED, begun)
    if rest:
        yield _entry(path, FOREIGN, rest)


def _ours(path: Path, models_dir: Path, used: set[str]) -> Entry:
    folder = path.parent if path.is_file() else path
    try:
        names = list(json_of(note_file(path).read_text("utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        names = []
    if path.is_symlink():
        files = [path]  # into the hub's own cache, which is shared with other tools
    else:
        files = list(filter(None, (_inside(folder, str(name)) for name in names)))
        if path.is_dir():
            files += [file for file in _files(folder) if file.name.endswith(WRONG)]
    return _entry(path, USED if _is_used(path, models_dir, used) else UNUSED, files)


def _inside(folder: Path, name: str) -> Path | None:
    """The file of a note, None where the name leads out of the folder or through a link."""
    path = folder / name
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts:
        return None
    if any((folder.joinpath(*parts[:count])).is_symlink() for count in range(1, len(parts))):
        return None
    return path


def _is_used(path: Path, models_dir: Path, used: set[str]) -> bool:
    relative = path.relative_to(models_dir).as_posix()
    return relative in used or any(name.startswith(f"{relative}/") for name in used)


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _entry(path: Path, state: str, files: Iterable[Path]) -> Entry:
    there = []
    size, last = 0, 0.0
    for file in files:
        with contextlib.suppress(OSError):
            status = file.lstat()
            size, last = size + status.st_size, max(last, status.st_atime, status.st_mtime)
            there.append(file)
    return Entry(path, state, size, last, tuple(there))
