"""How far an experiment is on this machine, as `drafthouse.core.kept_rounds` asks a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafthouse.core.files import text_in
from drafthouse.experiment.kept_rounds import how_far, kept_files, note_file, note_of

if TYPE_CHECKING:
    from drafthouse.experiment.kept_rounds import Kept
    from drafthouse.profiles.resolved_types import Run


def look(resolved: Run) -> Kept:
    return how_far(resolved, kept_files(resolved), note_of(text_in(note_file(resolved))))
