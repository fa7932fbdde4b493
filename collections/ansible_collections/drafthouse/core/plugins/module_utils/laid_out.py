"""Folders and files of ours on a box: all in one go, where a task for each would cost a round trip or two."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .problems import HouseError, Problem


@dataclass
class LaidOut:
    """What was changed, or in check mode would be. ``diff`` is what Ansible shows for ``--diff``."""

    changed: list[str] = field(default_factory=list)
    diff: list[dict[str, str]] = field(default_factory=list)


def lay_out(entries: Iterable[Mapping[str, Any]], check: bool = False) -> LaidOut:
    """Make every entry be there: {path, mode, content?}; without ``content`` it is a folder.

    ``mode``: octal digits as text. Folders above are made too. A file is replaced as a whole, so that whoever reads
    it finds the old or the new one. Raises HouseError where something else is in the way, or may not be written.
    """
    done = LaidOut()
    for entry in entries:
        path, mode = Path(entry["path"]), int(str(entry["mode"]), 8)
        try:
            before = _seen(path)
            content = entry.get("content")
            wanted = (mode, None if content is None else str(content).encode())
            if before == wanted:
                continue
            done.changed.append(str(path))
            done.diff.append(_difference(path, before, wanted))
            if not check:
                _make(path, mode, wanted[1], before)
        except OSError as error:
            raise HouseError(
                Problem(
                    where=str(path),
                    found=error.strerror or str(error),
                    needed="a folder of ours" if entry.get("content") is None else "a file of ours",
                    do="remove what is in the way, or connect as root",
                )
            ) from error
    return done


def _seen(path: Path) -> tuple[int, bytes | None] | None:
    """Return mode and content (None for a folder) of what is there; None where nothing is."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(mode), None if stat.S_ISDIR(mode) else path.read_bytes()


def _make(path: Path, mode: int, content: bytes | None, before: tuple[int, bytes | None] | None) -> None:
    if content is None:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if before is not None and before[1] == content:
        path.chmod(mode)
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _difference(
    path: Path, before: tuple[int, bytes | None] | None, wanted: tuple[int, bytes | None]
) -> dict[str, str]:
    same = before is not None and before[1] == wanted[1]
    return {
        "before_header": str(path),
        "after_header": str(path),
        "before": _shown(before, same),
        "after": _shown(wanted, same),
    }


def _shown(state: tuple[int, bytes | None] | None, modes_only: bool) -> str:
    if state is None:
        return ""
    mode, content = state
    if content is None:
        return f"folder, mode {mode:04o}\n"
    return f"mode {mode:04o}\n" if modes_only else content.decode("utf-8", "replace")
