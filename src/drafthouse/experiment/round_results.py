"""The measured rounds put together on the box, and what was decided after them kept there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kept_rounds import missing_steps, note_file
from .loop import assemble_results, read_steps, write_json
from .more_rounds import SCHEMA, costs_by_round


def put_together(resolved: Mapping[str, Any], last: int) -> dict[int, float]:
    """Write the arms' results over the rounds up to ``last``; return what each of these took, in seconds.

    Until the decision over them is kept they count as not judged: a run that is killed meanwhile judges again.
    """
    write_json(note_file(resolved), {"schema": SCHEMA, "done": last, "next": None, "judged": False})
    assemble_results(resolved, last)
    return costs_by_round(read_steps(resolved, last))


def keep_decision(resolved: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what was decided; return the ``last`` round to measure now, and the ``steps`` that are missing of it."""
    write_json(note_file(resolved), note)
    if note["next"] is None:
        return {"last": note["done"], "steps": []}
    return {"last": note["next"], "steps": missing_steps(resolved, note["next"])}
