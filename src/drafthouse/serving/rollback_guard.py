"""Restore the last good server when the run that works on this box has died or lost its connection.

A run that replaces a server touches a file on the box every few seconds, the heartbeat (`drafthouse.core.guarded`).
When it stops, the guard also puts the box back into its fleet's traffic, from which the run took it. Standard library
only, Python 3.10: it runs on the box, from the archive of the box's programs (`core/box_archive.py`).
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from pathlib import Path

from ..core.errors import DrafthouseError
from ..core.locks import locked_file, only_one
from .out_of_traffic import forget_run
from .restore import drift, put_back_current, shown_server

BEAT_EVERY_S = 3.0  # seconds between two heartbeats
# Seconds without a heartbeat after which the guard acts. A connection that is lost for longer ends the change, too.
SILENT_S = 15.0
# Seconds after the last heartbeat within which a job of the run takes the measurement lock. A later job is another
# run's.
_OWN_JOB_S = 5.0
_LOOK_S = 1.0  # seconds between two looks


def beat_file(home: str | Path) -> Path:
    """The heartbeat file: its modification time is that of the run's last heartbeat."""
    return Path(home) / "run" / "guard.beat"


def beat_command(home: str | Path) -> str:
    """The shell command for one heartbeat."""
    return f"touch {shlex.quote(str(beat_file(home)))}"


def start_command(home: str | Path, archive: str) -> str:
    """The shell command that starts the guard detached from the connection; it fails if ``archive`` is missing.

    A heartbeat comes first, so that the guard does not act at once on the heartbeat of an earlier run.
    """
    words = shlex.join([f"{home}/venv/bin/python", archive, "guard", str(home)])
    log = shlex.quote(f"{home}/logs/guard.log")
    exists = f"[ -e {shlex.quote(archive)} ]"
    return f"trap '' HUP; {exists} && {beat_command(home)} && {{ setsid {words} >>{log} 2>&1 </dev/null & }}"


class _Untouched:
    """The seconds (``for_s``) since a file was last touched.

    Only the first value uses the wall clock; then the seconds between two looks are added. So neither a clock that is
    set nor a pause of the guard itself (SIGSTOP, a suspended machine) counts as a missing heartbeat.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._touched = _modified(file)
        self.for_s = max(0.0, time.time() - self._touched)

    def look(self, passed_s: float) -> float:
        """Read the file's time, ``passed_s`` seconds after the look before; return the new ``for_s``."""
        touched = _modified(self._file)
        # interrupt.py sets the time to 0 to end a run at once; a missing file has 0 too.
        if not touched:
            self.for_s = time.time()
        elif touched == self._touched:
            self.for_s += passed_s
        else:
            self.for_s = 0.0
        self._touched = touched
        return self.for_s


def guard(home: str | Path, silent_s: float = SILENT_S) -> int:
    """Wait until no heartbeat came for ``silent_s`` seconds, restore the server if needed; return the exit status.

    0: nothing had to be restored, or the server answers; 1: it could not be restored.
    """
    home = Path(home)
    # The guard of a later run waits here, so that no run is unguarded between the end of a guard and the next start.
    with locked_file(home / "run" / "guard.lock"):
        heartbeat = _Untouched(beat_file(home))
        job_lock = _Untouched(home / "benchmark.lock")
        before_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            passed_s = min(now_s - before_s, 2 * _LOOK_S)  # a pause of this process counts as two looks at most
            before_s = now_s
            silence_s = heartbeat.look(passed_s)
            locked_s = job_lock.look(passed_s)
            if silence_s >= silent_s:
                why = drift(home)
                if not why:
                    forget_run(home)
                    return 0
                # The lock was taken after the silence began, so not by a job of the silent run.
                is_newer = locked_s < silence_s - _OWN_JOB_S
                # A newer run or the watchdog keeps the lock: `only_one` raises then, and the next look decides.
                with contextlib.suppress(DrafthouseError), only_one(home / "benchmark.lock", end_others=not is_newer):
                    status = _restore_and_report(home, f"no sign of life from its run for {silence_s:.0f} s: {why}")
                    forget_run(home)
                    return status
            time.sleep(_LOOK_S)


def _restore_and_report(home: Path, why: str) -> int:
    """Restore the server and print the outcome; return the exit status. ``why``: the reason, for the history."""
    restored = None
    try:
        if drift(home):  # once more, now that no other program changes servers
            restored = put_back_current(home, why=why)
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        return 1
    if restored:
        facts, seconds = restored
        print(f"{why}; {shown_server(facts)} answers after {seconds:.1f} s")
    return 0


def _modified(path: Path) -> float:
    """The modification time of a file, in unix seconds; 0 without a file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
