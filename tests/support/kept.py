"""How far an experiment is on this machine, as `drafthouse.core.kept_rounds` asks a box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drafthouse.core.files import text_in
from drafthouse.experiment.kept_rounds import kept_files, note_file, note_of, progress_of

if TYPE_CHECKING:
    from drafthouse.experiment.kept_rounds import Progress
    from drafthouse.profiles.resolved_types import Run


def look(resolved: Run) -> Progress:
    return progress_of(resolved, kept_files(resolved), note_of(text_in(note_file(resolved))))
