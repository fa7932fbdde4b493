"""Locks on files: at most one of our jobs at a time, also where a run has lost its controller and works on.

A lock is the open file's: it ends when all that inherited the file have closed it or died, so none is ever left over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import DrafthouseError, Problem, one_problem

_PATIENCE_S = 15.0
_LOOK_S = 0.2
_ENDED = Problem(
    "run-superseded",
    "this step was stopped, because a newer run started on the same box",
    "one run at a time on a box, with a live connection to it",
    "let the other run finish, then run again: it continues from there",
)


def take(
    file: IO[Any] | int,
    wait_s: float = math.inf,
    waiting: Callable[[], None] | None = None,
    shared: bool = False,
) -> bool:
    """Lock an open file or folder; return False where somebody else has held it for ``wait_s`` seconds.

    ``waiting`` is called once where it has to wait. ``shared``: beside others that only look. Raises OSError where the
    file system has no locks (folders on NFS).
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
        if waiting:
            waiting()
            waiting = None
        if math.isinf(wait_s):
            fcntl.flock(file, kind)
            return True
        time.sleep(_LOOK_S)


@contextmanager
def held(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[IO[str]]:
    """Hold a file, made where it is missing, as long as it takes; yield it, open for appending. Raises OSError."""
    with path.open("a") as file:
        take(file, waiting=waiting)
        yield file


@contextmanager
def only_one(lock: Path, end_others: bool = True) -> Iterator[None]:
    """Hold ``lock`` (a file with our pid). Whoever holds it is an orphan of an earlier run, and is ended first.

    Without ``end_others`` it is a run that works now, and DrafthouseError says so. A job runs apart from its
    controller, so Ctrl-C or a lost connection leaves it running. Raises DrafthouseError when the other one does not
    end.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        end = time.monotonic() + _PATIENCE_S
        while not take(file, 0):
            file.seek(0)
            holder = file.read().strip()
            if time.monotonic() > end or not holder.isdigit() or not end_others:
                raise one_problem(
                    "box-in-use",
                    f"another run (pid {holder or 'unknown'}) is still working on this box",
                    "one at a time",
                    "stop it, then run again",
                    str(lock),
                )
            _end(int(holder))
            time.sleep(_LOOK_S)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        before = signal.signal(signal.SIGTERM, _say_and_end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _say_and_end(number: int, _frame: object) -> None:
    """Leave a module's result that says why, then end as the signal would have: at once, wherever the work stands."""
    # Whoever reads this must not take the box back: it is the newer run's.
    result = {"failed": True, "changed": False, "superseded": True, **DrafthouseError(_ENDED).result}
    with contextlib.suppress(OSError):
        os.write(1, f"\n{json.dumps(result)}\n".encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
