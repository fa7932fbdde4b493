"""Bring the last good server back when the run that works on this box is heard of no more: killed, or its machine gone.

A run that replaces a server has its machine touch a file here every few seconds (`drafthouse.core.guarded`). What the
run wrote to keep a box of a fleet out of traffic ends with it. Standard library only, Python 3.10: it runs on the box,
out of the archive of its programs (`core/box_archive.py`).
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from pathlib import Path

from ..core.errors import DrafthouseError
from ..core.locks import held, only_one
from .out_of_traffic import forget_run
from .restore import drift, put_back_current, shown

BEAT_EVERY_S = 3.0
# Half of what an old server may take beyond its own start. A connection that is lost for longer ends the change, too.
SILENT_S = 15.0
# A run's own job takes the lock so long after the run's last beat at most; whoever takes it later is not of that run.
_OWN_S = 5.0
_LOOK_S = 1.0


def beat_file(home: str | Path) -> Path:
    """The file whose time says when the run was last heard of."""
    return Path(home) / "run" / "guard.beat"


def beat_command(home: str | Path) -> str:
    """The shell's words for one sign of life."""
    return f"touch {shlex.quote(str(beat_file(home)))}"


def start_command(home: str | Path, archive: str) -> str:
    """The shell's words that start the guard, which outlives the connection; its status is not 0 without one."""
    words = shlex.join([f"{home}/venv/bin/python", archive, "guard", str(home)])
    log = shlex.quote(f"{home}/logs/guard.log")
    known = f"[ -e {shlex.quote(archive)} ]"
    return f"trap '' HUP; {known} && {beat_command(home)} && {{ setsid {words} >>{log} 2>&1 </dev/null & }}"


class _Quiet:
    """For how long a file was not touched, in seconds.

    The wall clock has a part only in what was before the first look. Behind it our own looks count: a clock that is set
    touches nothing, and who stood still himself (a laptop's lid, SIGSTOP) has heard nothing in that time either.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._seen = file, _changed(file)
        self.for_s = max(0.0, time.time() - self._seen)

    def look(self, passed_s: float) -> float:
        """Take a look, ``passed_s`` after the one before; return for how long it is quiet."""
        seen = _changed(self._file)
        # Whoever ends a run on purpose says so by the oldest of times (interrupt.py).
        if not seen:
            self.for_s = time.time()
        elif seen == self._seen:
            self.for_s += passed_s
        else:
            self.for_s = 0.0
        self._seen = seen
        return self.for_s


def guard(home: str | Path, silent_s: float = SILENT_S) -> int:
    """Wait until no run is heard of, then see that what should serve serves; return the exit status."""
    home = Path(home)
    # The guard of a later run waits here, so that none is missed between the last look of one and its end.
    with held(home / "run" / "guard.lock"):
        run, job = _Quiet(beat_file(home)), _Quiet(home / "benchmark.lock")
        before_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            passed_s, before_s = min(now_s - before_s, 2 * _LOOK_S), now_s
            silence, held_s = run.look(passed_s), job.look(passed_s)
            if silence >= silent_s:
                why = drift(home)
                if not why:
                    forget_run(home)
                    return 0
                newer = held_s < silence - _OWN_S
                # Otherwise a newer run, or the watchdog, works: what becomes of that is seen at the next look.
                with contextlib.suppress(DrafthouseError), only_one(home / "benchmark.lock", end_others=not newer):
                    status = _put_back(home, f"no sign of life from its run for {silence:.0f} s: {why}")
                    forget_run(home)
                    return status
            time.sleep(_LOOK_S)


def _put_back(home: Path, why: str) -> int:
    back = None
    try:
        if drift(home):
            back = put_back_current(home, why=why)
    except DrafthouseError as error:
        print(error, file=sys.stderr)
        return 1
    if back:
        print(f"{why}; {shown(back[0])} answers after {back[1]:.1f} s")
    return 0


def _changed(path: Path) -> float:
    """Unix seconds at which a file was last written; 0 without a file."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
