"""What of an experiment is kept on the box: which steps are missing, which round comes next, and whether it is over.

``<result_dir>/rounds.json`` holds what was decided after the last judged round (`more_rounds.py`). Without it results
that are there are an earlier version's, and whole. Standard library only: a box is looked at before it has numpy.
"""

from __future__ import annotations

import shlex
from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

from ..core.files import object_of
from ..profiles.experiment_plan import steps_of_round
from .more_rounds import SCHEMA, settings_of

if TYPE_CHECKING:
    from drafthouse.experiment.more_rounds import Note
    from drafthouse.profiles.planned_types import PlannedStep
    from drafthouse.profiles.resolved_types import Run

#: The file of the last decision, in the folder of the results.
FILE = "rounds.json"
_ENDS_S = 15  # how long a job may take to end


class Missing(TypedDict):
    """What is to be measured: the steps that are missing up to the round ``last``."""

    last: int
    steps: list[PlannedStep]


class Kept(Missing):
    """How far an experiment is, and whether it is over."""

    over: bool


def note_file(resolved: Run) -> Path:
    """Where the last decision is kept."""
    return Path(resolved["result_dir"], FILE)


def note_of(text: str) -> Note | None:
    """The decision that a file's text holds, None where it is none."""
    note = object_of(text)
    return None if note.get("schema") != SCHEMA else cast("Note", note)


def kept_note(resolved: Run) -> Note | None:
    """The decision that is kept on this box, None where there is none."""
    file = note_file(resolved)
    return note_of(file.read_text("utf-8")) if file.exists() else None


def fresh_of(note: Note | None) -> list[int]:
    """The fresh prompts that further rounds were decided to ask."""
    return [] if note is None else note.get("fresh", [])


def end_measuring(resolved: Run) -> str:
    """The shell's words that end the measuring of a further round, where a run was stopped and left it working.

    A report of the rounds before it serves an arm, which the measuring would see as an engine that died. Where the last
    decision was to measure no more nothing is looked for. Whoever takes the lock ends such a job, too
    (`core/locks.py`).
    """
    note, lock = shlex.quote(str(note_file(resolved))), shlex.quote(f"{resolved['site']['home']}/benchmark.lock")
    return (
        f"if grep -qs '\"next\": [0-9]' {note} && [ -s {lock} ] && ! flock -n {lock} true; then"
        f' kill "$(cat {lock})"; flock -w {_ENDS_S} {lock} true; fi'
    )


def steps_until(resolved: Run, last: int, fresh: Sequence[int] = ()) -> list[PlannedStep]:
    """The steps of the rounds up to ``last``, in the order they are measured; ``fresh``: the prompts decided on."""
    steps: list[PlannedStep] = []
    for number in range(1, last + 1):
        steps += steps_of_round(resolved["experiment"], number, fresh)
    return steps


def kept_files(resolved: Run) -> set[str]:
    """What is kept on this box, by its path in the folder of the results."""
    folder = Path(resolved["result_dir"])
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}


def missing_steps(resolved: Run, last: int, files: Container[str], note: Note | None) -> list[PlannedStep]:
    """The steps up to round ``last`` that were not measured yet; ``files`` are those that are kept.

    ``note`` has the fresh prompts that further rounds were decided to ask.
    """
    return [step for step in steps_until(resolved, last, fresh_of(note)) if step["file"] not in files]


def how_far(resolved: Run, files: Container[str], note: Note | None) -> Kept:
    """How far the experiment is, by the files that are kept and the last decision.

    Over is what was judged to need no further round, under the settings that the profile has now: with a larger
    budget it is judged again, and goes on where that allows it.
    """
    there = all(f"{arm}.json" in files for arm in resolved["arms"])
    last = resolved["experiment"]["rounds"]
    over = there and note is None
    if note is not None:
        same = note.get("judged") and note.get("settings") == settings_of(resolved["experiment"])
        over = bool(there and same and note["next"] is None)
        last = note["done"]
        if same and note["next"]:
            last = note["next"]
    if over:
        return {"over": True, "last": last, "steps": []}
    return {"over": False, "last": last, "steps": missing_steps(resolved, last, files, note)}
