"""Remove the programs of earlier releases that nothing on a box refers to any more. Python 3.10, it runs on the box."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

#: How the archives are called (`core/box_archive.py`).
_ARCHIVES = "drafthouse-*.pyz"
#: Before there were archives each program lay as a tree of its sources.
_TREES = ("served/program", "watchdog/program")
#: What starts a program by its path: with the box, or under whoever holds it running.
_STARTERS = ("served/start.sh", "watchdog/serve.sh")


def remove_old(home: Path, keep: str, check: bool = False) -> list[str]:
    """Remove all programs but the archive ``keep`` that no script of ours and no process names; return their paths.

    With ``check`` none is removed. Raises OSError.
    """
    others = [*(file for file in home.glob(_ARCHIVES) if file.name != keep), *(home / tree for tree in _TREES)]
    there = sorted(path for path in others if path.exists())
    named = b"\0".join([*_starters(home), *_processes()]) if there else b""
    old = [path for path in there if os.fsencode(path) not in named]
    for path in old if not check else ():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return [str(path) for path in old]


def _starters(home: Path) -> Iterator[bytes]:
    for name in _STARTERS:
        with contextlib.suppress(FileNotFoundError):
            yield (home / name).read_bytes()


def _processes() -> Iterator[bytes]:
    """Yield the words and the environment of each process; a program in a tree is named by its PYTHONPATH alone."""
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                yield (folder / name).read_bytes()
