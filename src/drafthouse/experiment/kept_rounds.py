"""Read the progress of an experiment from its result folder: missing steps, the next round, and whether it is over.

A round starts each server (arm) anew and measures it once; a step is one of these starts with its requests.
``<result_dir>/rounds.json`` has the decision after the last judged round (`more_rounds.py`). Results without it are
complete results of an earlier version. Standard library only: this also runs on machines that lack numpy.
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
    from drafthouse.experiment.more_rounds import RoundsNote
    from drafthouse.profiles.planned_types import PlannedStep
    from drafthouse.profiles.resolved_types import Run

#: The file of the last decision, in the result folder.
FILE = "rounds.json"
_ENDS_S = 15  # the longest wait for a measuring process to exit, in seconds


class Missing(TypedDict):
    """The steps to measure: those that are missing up to the round ``last``."""

    last: int  # the number of a round
    steps: list[PlannedStep]  # in the order of measurement; empty if nothing is missing


class Progress(Missing):
    """The progress of an experiment."""

    over: bool  # True: no further round is needed or allowed


def note_file(resolved: Run) -> Path:
    """The path of the last decision (`RoundsNote`)."""
    return Path(resolved["result_dir"], FILE)


def note_of(text: str) -> RoundsNote | None:
    """The decision in a file's text; None if it contains none of the current schema."""
    note = object_of(text)
    return None if note.get("schema") != SCHEMA else cast("RoundsNote", note)


def kept_note(resolved: Run) -> RoundsNote | None:
    """The decision stored on this machine; None if there is none."""
    file = note_file(resolved)
    return note_of(file.read_text("utf-8")) if file.exists() else None


def fresh_of(note: RoundsNote | None) -> list[int]:
    """The numbers of fresh prompts (sent in one round only) by round, as decided; [] without a decision."""
    return [] if note is None else note.get("fresh", [])


def end_measuring(resolved: Run) -> str:
    """A shell command that ends the measurement of a further round which a stopped run left running.

    A report of the earlier rounds restarts a server, which that measurement would take for an engine that died. The
    command does nothing if no further round was decided. Any other process that takes the lock ends the measurement
    too (`core/locks.py`).
    """
    note = shlex.quote(str(note_file(resolved)))
    lock = shlex.quote(f"{resolved['site']['home']}/benchmark.lock")
    # The lock's file has the process id of its holder; `flock -n` fails while the holder lives.
    return (
        f"if grep -qs '\"next\": [0-9]' {note} && [ -s {lock} ] && ! flock -n {lock} true; then"
        f' kill "$(cat {lock})"; flock -w {_ENDS_S} {lock} true; fi'
    )


def steps_until(resolved: Run, last: int, fresh: Sequence[int] = ()) -> list[PlannedStep]:
    """The steps of the rounds up to ``last`` in order; ``fresh`` has the decided numbers of fresh prompts by round."""
    steps: list[PlannedStep] = []
    for round_number in range(1, last + 1):
        steps += steps_of_round(resolved["experiment"], round_number, fresh)
    return steps


def kept_files(resolved: Run) -> set[str]:
    """The JSON files stored on this machine, as paths relative to the result folder."""
    folder = Path(resolved["result_dir"])
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.json")}


def missing_steps(resolved: Run, last: int, files: Container[str], note: RoundsNote | None) -> list[PlannedStep]:
    """The steps up to round ``last`` whose file is not among ``files``.

    ``note`` has the numbers of fresh prompts of further rounds.
    """
    return [step for step in steps_until(resolved, last, fresh_of(note)) if step["file"] not in files]


def progress_of(resolved: Run, files: Container[str], note: RoundsNote | None) -> Progress:
    """The progress of the experiment, from the stored files and the last decision.

    - No decision (None): results of all arms mean that an earlier version finished; else the planned first rounds are
      to be measured.
    - A decision that is missing after the last round, or was made under other settings (a change of the budget): what
      is missing of the measured rounds is to be measured, and they are judged again.
    - A current decision for a further round: the rounds up to that one are to be measured.
    - A current decision against one: over, if the results of all arms are stored.
    """
    has_results = all(f"{arm}.json" in files for arm in resolved["arms"])
    last = resolved["experiment"]["rounds"]
    over = has_results and note is None
    if note is not None:
        is_current = note.get("judged") and note.get("settings") == settings_of(resolved["experiment"])
        over = bool(has_results and is_current and note["next"] is None)
        last = note["done"]
        if is_current and note["next"]:
            last = note["next"]
    if over:
        return {"over": True, "last": last, "steps": []}
    return {"over": False, "last": last, "steps": missing_steps(resolved, last, files, note)}
