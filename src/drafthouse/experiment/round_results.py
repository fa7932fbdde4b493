"""The measured rounds put together on the box, and what was decided after them kept there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kept_rounds import kept_files, missing_steps, note_file
from .loop import assemble_results, read_steps, write_json
from .more_rounds import SCHEMA, costs_by_round

if TYPE_CHECKING:
    from drafthouse.experiment.kept_rounds import Missing
    from drafthouse.experiment.more_rounds import Note
    from drafthouse.profiles.resolved_types import Run


def put_together(resolved: Run, last: int) -> dict[int, float]:
    """Write the arms' results over the rounds up to ``last``; return what each of these took, in seconds.

    Until the decision over them is kept they count as not judged: a run that is killed meanwhile judges again.
    """
    note: Note = {"schema": SCHEMA, "done": last, "next": None, "judged": False}
    write_json(note_file(resolved), note)
    assemble_results(resolved, last)
    return costs_by_round(read_steps(resolved, last))


def keep_decision(resolved: Run, note: Note) -> Missing:
    """Keep what was decided; return what is to be measured now."""
    write_json(note_file(resolved), note)
    if note["next"] is None:
        return {"last": note["done"], "steps": []}
    return {"last": note["next"], "steps": missing_steps(resolved, note["next"], kept_files(resolved))}
