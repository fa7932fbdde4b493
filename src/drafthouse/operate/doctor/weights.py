"""Reads on the box whether weights are still as verified: it compares each file's stat with the verification note.

File contents are not read. Standard library only, Python 3.10: it runs with the Python of the box.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...weights.integrity import is_as_verified, read_note

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import WeightFacts


def read_weights(path: Path) -> WeightFacts:
    """The facts of the weights at ``path``, a file or a folder; without a note, ``files`` is 0."""
    note = read_note(path)
    folder = path.parent if path.is_file() else path
    return {
        "there": path.exists(),
        # A link leads into the Hugging Face cache, which other tools share.
        "link": os.path.realpath(path) if path.is_symlink() else "",
        "files": len(note.files),
        "changed": sorted(name for name, recorded in note.files.items() if not is_as_verified(folder / name, recorded)),
        "complete": note.complete,
        "repo": note.repo or "",
        "asked": note.asked or "",
        "commit": note.commit or "",
    }
