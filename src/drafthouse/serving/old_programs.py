"""Remove the programs of earlier Drafthouse versions that nothing on a box starts. Python 3.10: it runs on the box."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..core.procfs import commands

#: The archives of the box's programs (`core/box_archive.py`).
_ARCHIVES = "drafthouse-*.pyz"
#: Folders of programs, from before there were archives -> a text in each command that starts a program there.
_TREES = {"served/program": "/served/program/", "watchdog/program": " drafthouse_watchdog."}
#: The scripts that start a program by its path: at boot, and for the watchdog.
_STARTERS = ("served/start.sh", "watchdog/serve.sh")


def programs(home: Path) -> list[str]:
    """The names of all archives and program folders in ``home``, of this version and of earlier ones."""
    paths = [*home.glob(_ARCHIVES), *map(home.joinpath, _TREES)]
    return sorted(path.name for path in paths if path.exists())


def remove_old(home: Path, keep: str, check: bool = False) -> list[str]:
    """Remove the programs that no start script and no running process names, except ``keep``; return their paths.

    ``keep`` is the name of the present archive. With ``check`` nothing is removed. Raises OSError.
    """
    # For each program, a text in each command that starts it. The text leaves out the path of the home, which a script
    # may write with quotes. So a text may fit too often, and the worst result is that too many programs are kept.
    text_by_path = {file: file.name for file in home.glob(_ARCHIVES) if file.name != keep}
    text_by_path |= {home / tree: text for tree, text in _TREES.items() if (home / tree).is_dir()}
    if not text_by_path:
        return []
    in_use = "\n".join([*_start_scripts(home), *(" ".join(words) for _, words in commands())])
    old = sorted(path for path, text in text_by_path.items() if text not in in_use)
    if not check:
        for path in old:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    return [str(path) for path in old]


def _start_scripts(home: Path) -> Iterator[str]:
    """Yield the texts of the start scripts that exist."""
    for name in _STARTERS:
        with contextlib.suppress(FileNotFoundError):
            yield (home / name).read_text("utf-8", "replace")
