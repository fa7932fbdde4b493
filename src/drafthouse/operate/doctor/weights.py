"""Whether weights still lie as they were verified: what their notes say, one stat a file. Nothing is read or asked.

Standard library only, Python 3.10: it runs with whatever Python the box has.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...weights.integrity import is_as_verified, read_note

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import WeightFacts


def read_weights(path: Path) -> WeightFacts:
    """What lies there."""
    note = read_note(path)
    folder = path.parent if path.is_file() else path
    return {
        "there": path.exists(),
        # Into the hub's own cache, which others may use too: what lies there has a note of its own.
        "link": os.path.realpath(path) if path.is_symlink() else "",
        "files": len(note.files),
        "changed": sorted(name for name, known in note.files.items() if not is_as_verified(folder / name, known)),
        "complete": note.complete,
        "repo": note.repo or "",
        "asked": note.asked or "",
        "commit": note.commit or "",
    }
