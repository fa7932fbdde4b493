"""The tuner's journal, a JSON Lines file from which a killed search continues.

A trial starts a server once and sends it prompts; its task says what it measures, its outcome what that showed. The
first line identifies the search. Each trial adds the events `begun` and `done`. A later run adds `resumed`, and
`dropped` for an outcome that it measures again. While a trial runs, the file's modification time is updated, which
shows how much of the budget a killed run had used. Lines that cannot be read, such as a cut last one, are skipped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TypedDict, cast

from ..core.documents import BadDocument, bytes_of, json_of
from ..core.errors import DrafthouseError, one_problem
from ..core.locks import take_lock
from ..core.schema import Anything, Findings, Map, Table, Value, check
from .types import FINAL, OK, TOO_LATE, Outcome, Task, Trial

#: The schema in the first line of a journal.
SCHEMA = "drafthouse.tune/1"

# The shapes of a line, to tell a damaged one: any line, the fields of an event of a task, and an `Outcome`.
_SECONDS = Value(float, low=0)
_LINE = Map({"at": Value(float)}, others=True)
_OF_TASK = {**_LINE.fields, "task": Value(str, required=True)}
_OUTCOME = Map(
    {
        "status": Value(str, required=True),
        "tpot_ms": Table(Value(float)),
        **dict.fromkeys(("elapsed_s", "prepared_s", "measured_s"), _SECONDS),
        "why": Value(str),
        "facts": Table(Anything()),
    }
)
# The shape of a line by its event; lines of other events have the shape `_LINE`.
_LINE_OF_EVENT = {
    "done": Map({**_OF_TASK, "outcome": replace(_OUTCOME, required=True)}, others=True),
    "dropped": Map(_OF_TASK, others=True),
    "resumed": Map({**_LINE.fields, "lost_s": Value(float, required=True, low=0)}, others=True),
}


class Line(TypedDict, total=False):
    """A line of the journal: the first one has ``schema`` and ``search``, all others have an ``event``."""

    at: float  # epoch seconds of the write
    schema: str  # `SCHEMA`
    search: str  # a hash of all that the search depends on
    event: str  # "begun", "done", "dropped" or "resumed"
    task: str  # `Task.key`; missing in `resumed`
    outcome: Outcome  # of the event `done`
    lost_s: float  # `Journal.lost_s` at the event `resumed`


class Journal:
    """The journal of a search. A lock on the file keeps other processes out.

    ``outcomes`` has the outcomes of the search by `Task.key`, in the order of their measurement.
    """

    def __init__(self, path: Path, search: str, clock: Callable[[], float] = time.time, early_s: float = 0.0) -> None:
        """Open or create the journal of the search ``search``, a hash of all that the search depends on.

        A journal of another search is saved as `<name>.old`. ``clock`` returns epoch seconds. ``early_s`` is the part
        of the budget that this run has already used. Raises DrafthouseError if another process holds the journal.
        """
        self.path = path
        self._clock = clock
        self.outcomes: dict[str, Outcome] = {}
        #: Seconds of the budget that no outcome accounts for: killed trials, dropped outcomes, preparation.
        self.lost_s = 0.0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open_locked(path)
        touched_s = path.stat().st_mtime
        lines = _read_lines(path)
        same_search = bool(lines) and (lines[0].get("schema"), lines[0].get("search")) == (SCHEMA, search)
        if not same_search and path.stat().st_size:  # also a file without a readable line
            self._put_aside()
            lines = []
        if lines:
            self._read(lines, touched_s)
        else:
            self._write({"schema": SCHEMA, "search": search})
        #: True if an earlier run left outcomes or used time.
        self.resumed = bool(self.outcomes) or self.lost_s > 0
        if lines or early_s:
            self.lost_s += early_s
            self._write({"event": "resumed", "lost_s": self.lost_s})

    @property
    def spent_s(self) -> float:
        """Seconds of the budget used so far."""
        return sum(outcome.elapsed_s for outcome in self.outcomes.values()) + self.lost_s

    def begin(self, task: Task) -> None:
        """Record that a trial begins."""
        self._write({"event": "begun", "task": task.key})

    def touch(self) -> None:
        """Record by the file's modification time that the trial still runs."""
        now = self._clock()
        os.utime(self.path, (now, now))

    def done(self, task: Task, outcome: Outcome) -> None:
        """Record a trial's outcome."""
        self.outcomes[task.key] = outcome
        self.lost_s = 0.0  # `JournaledTrial` has added it to the outcome's elapsed time
        self._write({"event": "done", "task": task.key, "outcome": outcome})

    def drop(self, task: Task) -> None:
        """Discard a task's outcome so that it is measured again; its time still counts as spent."""
        self.lost_s += self.outcomes.pop(task.key).elapsed_s
        self._write({"event": "dropped", "task": task.key})

    def close(self) -> None:
        """Close the file, which releases the lock."""
        self._file.close()

    def _read(self, lines: list[Line], touched_s: float) -> None:
        """Restore the outcomes of earlier runs, and the seconds that the last run lost if it was killed."""
        last_s = touched_s
        for line in lines:
            last_s = float(line.get("at", last_s))
            if line.get("event") == "done":
                self.outcomes[line["task"]] = line["outcome"]
                self.lost_s = 0.0
            elif line.get("event") == "dropped":
                # The line with the outcome may have been unreadable, so that there is none to drop.
                if dropped := self.outcomes.pop(line["task"], None):
                    self.lost_s += dropped.elapsed_s
            elif line.get("event") == "resumed":
                self.lost_s = float(line["lost_s"])
        # After these events the time up to the last touch is in no outcome: a kill ended a trial or its preparation.
        if lines[-1].get("event") in ("begun", "dropped", "resumed"):
            self.lost_s += max(0.0, touched_s - last_s)
        # End a cut last line, or the next event would be appended to it.
        if not self.path.read_bytes().endswith(b"\n"):
            self._file.write("\n")

    def _put_aside(self) -> None:
        """Save the file's content as `<name>.old` and empty the file."""
        self.path.with_suffix(".old").write_bytes(self.path.read_bytes())
        self._file.truncate(0)

    def _write(self, line: Line) -> None:
        """Append a line; fsync makes it survive a kill and a power failure."""
        self._file.write(json.dumps({**line, "at": self._clock()}, default=asdict) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.touch()


class JournaledTrial:
    """A `Trial` that returns outcomes from the journal and runs the given trial for all other tasks."""

    def __init__(self, trial: Trial, journal: Journal) -> None:
        self._trial = trial
        self._journal = journal
        self.replayed = 0  # the number of outcomes that came from the journal
        self._calls = 0

    def __call__(self, task: Task) -> Outcome:
        """The outcome of a task, from the journal or from a new trial.

        A failure that ended the search is measured again, since its cause may be fixed by now. The first new outcome
        also takes over the lost time of the journal.
        """
        is_first = self._calls == 0
        self._calls += 1
        kept = self._journal.outcomes.get(task.key)
        if kept is not None and not self._ended_search(task, kept, is_first):
            self.replayed += 1
            return kept
        if kept is not None:
            self._journal.drop(task)
        lost_s = self._journal.lost_s
        self._journal.begin(task)
        outcome = self._trial(task)
        if lost_s:
            # Count the lost time as preparation: it uses up the budget but does not raise planned costs.
            outcome = replace(outcome, elapsed_s=outcome.elapsed_s + lost_s, prepared_s=outcome.prepared_s + lost_s)
        self._journal.done(task, outcome)
        return outcome

    def _ended_search(self, task: Task, outcome: Outcome, is_first: bool) -> bool:
        """True if a kept outcome is a failure that ended the search.

        It is the journal's last one, and of the first trial or the first round of the final measurement. A trial that
        ran out of time does not count, since it used up the budget.
        """
        is_last = next(reversed(self._journal.outcomes)) == task.key
        can_end = is_first or (task.part == FINAL and task.turn == 1)  # a failed second round leaves the first
        is_bad = outcome.status != OK or len(outcome.tpot_ms) < task.count
        return is_last and can_end and is_bad and outcome.status != TOO_LATE


def _open_locked(path: Path) -> IO[str]:
    """Open the file and lock it; the lock lasts until the file is closed. Raises DrafthouseError if it is taken."""
    file = path.open("a+", encoding="utf-8")
    if not take_lock(file, 0):
        file.close()
        raise one_problem(
            "already-running",
            "another tuner is working on the same profile",
            "one at a time",
            "wait for it, or stop it",
            str(path),
        )
    return file


def _read_lines(path: Path) -> list[Line]:
    """The journal's valid lines, without damaged or cut ones. Raises DrafthouseError if the file cannot be read."""
    lines: list[Line] = []
    try:
        content = bytes_of(path).decode("utf-8", "replace")
    except BadDocument as error:
        problem = error.problem(str(path), "the journal of a search", "remove it, or start again: --again")
        raise DrafthouseError(problem) from error
    for text in content.splitlines():
        try:
            line = json_of(text)
        except BadDocument:
            continue
        if isinstance(line, dict) and check(line, _LINE_OF_EVENT.get(str(line.get("event")), _LINE), Findings("")):
            if line.get("event") == "done":
                line["outcome"] = Outcome(**line["outcome"])
            lines.append(cast("Line", line))
    return lines
