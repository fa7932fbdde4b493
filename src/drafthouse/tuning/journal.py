"""The tuner's journal: one JSON object a line, written as things happen, so that a killed search goes on.

The first line says what is searched. Then come `begun` and `done` for each trial, and `resumed` where a later run
went on, and `dropped` where it asks again what had ended the search. While a trial runs the file's time is touched:
what a killed run had used of the budget is read from it.
A last line that a kill cut in the middle is dropped.
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
from ..core.locks import take
from ..core.schema import Anything, Findings, Map, Table, Value, check
from .types import FINAL, OK, TOO_LATE, Outcome, Task, Trial

SCHEMA = "drafthouse.tune/1"

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
# What the reader takes from a line of each event.
_LINES = {
    "done": Map({**_OF_TASK, "outcome": replace(_OUTCOME, required=True)}, others=True),
    "dropped": Map(_OF_TASK, others=True),
    "resumed": Map({**_LINE.fields, "lost_s": Value(float, required=True, low=0)}, others=True),
}


class Line(TypedDict, total=False):
    """A line: the head has ``schema`` and ``search``, all others an ``event`` and what it is about."""

    at: float
    schema: str
    search: str
    event: str
    task: str
    outcome: Outcome
    lost_s: float


class Journal:
    """The journal of one search in a file. One process holds it at a time."""

    def __init__(self, path: Path, search: str, clock: Callable[[], float] = time.time, early_s: float = 0.0) -> None:
        """Open the journal of the search that ``search`` names (a hash of all that it depends on).

        A journal of another search is put aside as `<name>.old`. ``clock`` gives epoch seconds, for tests; ``early_s``
        is what this run has used of the budget already. Raises DrafthouseError when another process holds the journal.
        """
        self.path, self._clock = path, clock
        self.outcomes: dict[str, Outcome] = {}
        self.lost_s = 0.0
        """Seconds of the budget that no outcome holds: of killed runs, of dropped outcomes, before the first trial."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _held(path)
        touched_s = path.stat().st_mtime
        lines = _lines(path)
        ours = bool(lines) and (lines[0].get("schema"), lines[0].get("search")) == (SCHEMA, search)
        if not ours and path.stat().st_size:
            self._put_aside()
            lines = []
        if lines:
            self._read(lines, touched_s)
        else:
            self._write({"schema": SCHEMA, "search": search})
        self.resumed = bool(self.outcomes) or self.lost_s > 0
        """Whether an earlier run left something to go on with."""
        if lines or early_s:
            self.lost_s += early_s
            self._write({"event": "resumed", "lost_s": self.lost_s})

    @property
    def spent_s(self) -> float:
        """What earlier runs took of the budget, in seconds."""
        return sum(outcome.elapsed_s for outcome in self.outcomes.values()) + self.lost_s

    def begin(self, task: Task) -> None:
        """Note that a trial begins."""
        self._write({"event": "begun", "task": task.key})

    def touch(self) -> None:
        """Note that the trial still runs."""
        now = self._clock()
        os.utime(self.path, (now, now))

    def done(self, task: Task, outcome: Outcome) -> None:
        """Keep a trial's outcome."""
        self.outcomes[task.key] = outcome
        self.lost_s = 0.0  # the outcome's elapsed time holds it now, see `Recorded`
        self._write({"event": "done", "task": task.key, "outcome": outcome})

    def drop(self, task: Task) -> None:
        """Forget a task's outcome, so that it is done anew; what it took stays spent."""
        self.lost_s += self.outcomes.pop(task.key).elapsed_s
        self._write({"event": "dropped", "task": task.key})

    def close(self) -> None:
        """Let another process have the journal."""
        self._file.close()

    def _read(self, lines: list[Line], touched_s: float) -> None:
        """Take over what earlier runs left, and note how much of the budget the last of them lost."""
        last_s = touched_s
        for line in lines:
            last_s = float(line.get("at", last_s))
            if line.get("event") == "done":
                self.outcomes[line["task"]] = line["outcome"]
                self.lost_s = 0.0
            elif line.get("event") == "dropped":
                # A line that could not be read may have been its outcome's.
                if dropped := self.outcomes.pop(line["task"], None):
                    self.lost_s += dropped.elapsed_s
            elif line.get("event") == "resumed":
                self.lost_s = float(line["lost_s"])
        running = lines[-1].get("event") in ("begun", "dropped", "resumed")
        if running:
            self.lost_s += max(0.0, touched_s - last_s)
        # A journal that ends inside a line would swallow the next one.
        if not self.path.read_bytes().endswith(b"\n"):
            self._file.write("\n")

    def _put_aside(self) -> None:
        self.path.with_suffix(".old").write_bytes(self.path.read_bytes())
        self._file.truncate(0)

    def _write(self, line: Line) -> None:
        """Write a line that survives a kill, and a loss of power."""
        self._file.write(json.dumps({**line, "at": self._clock()}, default=asdict) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.touch()


class Recorded:
    """A `Trial` that asks the journal first, and another trial for what it does not hold."""

    def __init__(self, trial: Trial, journal: Journal) -> None:
        self._trial, self._journal = trial, journal
        self.replayed = 0
        self._asked = 0

    def __call__(self, task: Task) -> Outcome:
        """The outcome of a task, from the journal or by doing it now.

        A failure that ended the search is no answer to keep: what was wrong then may be mended by now.
        """
        first, self._asked = self._asked == 0, self._asked + 1
        kept = self._journal.outcomes.get(task.key)
        if kept is not None and not self._ended(task, kept, first):
            self.replayed += 1
            return kept
        if kept is not None:
            self._journal.drop(task)
        lost_s = self._journal.lost_s
        self._journal.begin(task)
        outcome = self._trial(task)
        if lost_s:
            # What the killed run had used for this belongs to the budget too, and to nothing that is planned with.
            elapsed_s, prepared_s = outcome.elapsed_s + lost_s, outcome.prepared_s + lost_s
            outcome = replace(outcome, elapsed_s=elapsed_s, prepared_s=prepared_s)
        self._journal.done(task, outcome)
        return outcome

    def _ended(self, task: Task, outcome: Outcome, first: bool) -> bool:
        """Tell whether a kept outcome ended the search: the profile's own first one, or one of the last step, failed.

        One whose time was up had all that was left of the budget: there is none to ask it again in.
        """
        last = next(reversed(self._journal.outcomes)) == task.key
        ends = first or (task.part == FINAL and task.turn == 1)
        bad = outcome.status != OK or len(outcome.tpot_ms) < task.count
        return last and ends and bad and outcome.status != TOO_LATE


def _held(path: Path) -> IO[str]:
    """Open the file and hold it alone."""
    # It stays open as long as the journal is used: the lock is the file's.
    file = path.open("a+", encoding="utf-8")
    if not take(file, 0):
        file.close()
        raise one_problem(
            "already-running",
            "another tuner is working on the same profile",
            "one at a time",
            "wait for it, or stop it",
            str(path),
        )
    return file


def _lines(path: Path) -> list[Line]:
    """The journal's whole lines; what cannot be read is left out (a kill in the middle of a write, damage)."""
    found: list[Line] = []
    try:
        whole = bytes_of(path).decode("utf-8", "replace")
    except BadDocument as error:
        needed, do = "the journal of a search", "remove it, or start again: --again"
        raise DrafthouseError(error.problem(str(path), needed, do)) from error
    for text in whole.splitlines():
        try:
            line = json_of(text)
        except BadDocument:
            continue
        if isinstance(line, dict) and check(line, _LINES.get(str(line.get("event")), _LINE), Findings("")):
            if line.get("event") == "done":
                line["outcome"] = Outcome(**line["outcome"])
            found.append(cast("Line", line))
    return found
