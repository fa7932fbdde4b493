"""The tuner's journal: one JSON object a line, written as things happen, so that a killed search goes on.

The first line says what is searched. Then come `begun` and `done` for each trial, and `resumed` where a later run
went on. While a trial runs the file's time is touched: what a killed run had used of the budget is read from it.
A last line that a kill cut in the middle is dropped.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from .problems import HouseError, Problem
from .tune_types import Outcome, Task, Trial

SCHEMA = "drafthouse.tune/1"


class Journal:
    """The journal of one search in a file. One process holds it at a time."""

    def __init__(self, path: Path, search: str, clock: Callable[[], float] = time.time) -> None:
        """Open the journal of the search that ``search`` names (a hash of all that it depends on).

        A journal of another search is put aside as `<name>.old`. ``clock`` gives epoch seconds, for tests. Raises
        HouseError when another process holds the journal.
        """
        self.path, self._clock = path, clock
        self.outcomes: dict[str, Outcome] = {}
        self.lost_s = 0.0
        """Seconds that killed runs used and no outcome holds."""
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

    @property
    def resumed(self) -> bool:
        """Whether an earlier run left something to go on with."""
        return bool(self.outcomes) or self.lost_s > 0

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
        self._write({"event": "done", "task": task.key, "outcome": asdict(outcome)})

    def close(self) -> None:
        """Let another process have the journal."""
        self._file.close()

    def _read(self, lines: list[dict[str, Any]], touched_s: float) -> None:
        """Take over what earlier runs left, and note how much of the budget the last of them lost."""
        last_s = touched_s
        for line in lines:
            last_s = float(line.get("at", last_s))
            if line.get("event") == "done":
                self.outcomes[line["task"]] = Outcome(**line["outcome"])
                self.lost_s = 0.0
            elif line.get("event") == "resumed":
                self.lost_s = float(line["lost_s"])
        running = lines[-1].get("event") in ("begun", "resumed")
        if running:
            self.lost_s += max(0.0, touched_s - last_s)
        # A journal that ends inside a line would swallow the next one.
        if not self.path.read_bytes().endswith(b"\n"):
            self._file.write("\n")
        self._write({"event": "resumed", "lost_s": self.lost_s})

    def _put_aside(self) -> None:
        self.path.with_suffix(".old").write_bytes(self.path.read_bytes())
        self._file.truncate(0)

    def _write(self, line: Mapping[str, Any]) -> None:
        """Write a line that survives a kill, and a loss of power."""
        self._file.write(json.dumps({**line, "at": self._clock()}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.touch()


class Recorded:
    """A `Trial` that asks the journal first, and another trial for what it does not hold."""

    def __init__(self, trial: Trial, journal: Journal) -> None:
        self._trial, self._journal = trial, journal
        self.replayed = 0

    def __call__(self, task: Task) -> Outcome:
        """Return the outcome of a task, from the journal or by doing it now."""
        kept = self._journal.outcomes.get(task.key)
        if kept is not None:
            self.replayed += 1
            return kept
        lost_s = self._journal.lost_s
        self._journal.begin(task)
        outcome = self._trial(task)
        if lost_s:
            # What the killed run had used for this belongs to the budget too, and to nothing that is planned with.
            spent = {"elapsed_s": outcome.elapsed_s + lost_s, "prepared_s": outcome.prepared_s + lost_s}
            outcome = Outcome(**{**asdict(outcome), **spent})
        self._journal.done(task, outcome)
        return outcome


def _held(path: Path) -> IO[str]:
    """Open the file and hold it alone."""
    # It stays open as long as the journal is used: the lock is the file's.
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise HouseError(
            Problem("another tuner at work on the same profile", "one at a time", "let it end, or end it", str(path))
        ) from None
    return file


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the journal's whole lines; what cannot be read ends it (a kill in the middle of a write)."""
    found: list[dict[str, Any]] = []
    for text in path.read_text("utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found
