"""Remove the programs of earlier releases that nothing on a box refers to any more. Python 3.10, it runs on the box."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..core.procfs import commands

#: How the archives are called (`core/box_archive.py`).
_ARCHIVES = "drafthouse-*.pyz"
#: Before there were archives each program lay as a tree of its sources. What stands where one is started:
_TREES = {"served/program": "/served/program/", "watchdog/program": " drafthouse_watchdog."}
#: What starts a program by its path: with the box, or under whoever holds it running.
_STARTERS = ("served/start.sh", "watchdog/serve.sh")


def programs(home: Path) -> list[str]:
    """The names of what lies there of this release and of earlier ones."""
    files = [*home.glob(_ARCHIVES), *map(home.joinpath, _TREES)]
    return sorted(file.name for file in files if file.exists())


def remove_old(home: Path, keep: str, check: bool = False) -> list[str]:
    """Remove all programs but the archive ``keep`` that no script of ours and no process names; return their paths.

    With ``check`` none is removed. Raises OSError.
    """
    # Without the home, which a script may have to quote: rather one of another home's stays than one too many goes.
    known_by = {file: file.name for file in home.glob(_ARCHIVES) if file.name != keep}
    known_by |= {home / tree: name for tree, name in _TREES.items() if (home / tree).is_dir()}
    if not known_by:
        return []
    named = "\n".join([*_starters(home), *(" ".join(words) for _, words in commands())])
    old = sorted(path for path, name in known_by.items() if name not in named)
    if not check:
        for path in old:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return [str(path) for path in old]


def _starters(home: Path) -> Iterator[str]:
    for name in _STARTERS:
        with contextlib.suppress(FileNotFoundError):
            yield (home / name).read_text("utf-8", "replace")
