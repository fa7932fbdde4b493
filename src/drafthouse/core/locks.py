"""File locks (flock): at most one job at a time on a box, even where an earlier run lost its connection and goes on.

The kernel releases a lock when every process that inherited the open file has closed it or died: none is left behind.
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

_PATIENCE_S = 15.0  # how long the holder of a lock has to end after SIGTERM
_POLL_S = 0.2
# The result of the step that a newer run ended.
_SUPERSEDED = Problem(
    "run-superseded",
    "this step was stopped, because a newer run started on the same box",
    "one run at a time on a box, with a live connection to it",
    "let the other run finish, then run again: it continues from there",
)


def take_lock(
    file: IO[Any] | int, wait_s: float = math.inf, waiting: Callable[[], None] | None = None, shared: bool = False
) -> bool:
    """Lock an open file or folder; return False if another process still holds it after ``wait_s`` seconds.

    ``waiting`` is called once if there is a wait. ``shared`` takes a lock that several readers can hold. Raises OSError
    where the file system has no locks (folders on NFS).
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    # First without waiting, so that ``waiting`` is called only if there is a wait.
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
            waiting = None  # once
        if math.isinf(wait_s):
            fcntl.flock(file, kind)
            return True
        time.sleep(_POLL_S)


@contextmanager
def locked_file(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[IO[str]]:
    """Lock a file for the block, however long the wait; create it if missing and yield it open. Raises OSError."""
    with path.open("a") as file:
        take_lock(file, waiting=waiting)
        yield file


@contextmanager
def only_one(lock: Path, end_others: bool = True) -> Iterator[None]:
    """Hold ``lock``, a file with the holder's pid, for the block; a process that already holds it is ended first.

    Such a holder is a job of an earlier run: jobs survive Ctrl-C and a lost connection. Raises DrafthouseError where it
    does not end within `_PATIENCE_S`, or the file names no pid. Without ``end_others`` the holder may be a running
    measurement: it is left alone, and DrafthouseError is raised at once. In the block SIGTERM, as a newer run sends it,
    ends this process with the result `_SUPERSEDED`.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        until = time.monotonic() + _PATIENCE_S
        while not take_lock(file, 0):
            file.seek(0)
            holder = file.read().strip()
            if time.monotonic() > until or not holder.isdigit() or not end_others:
                found = f"another run (pid {holder or 'unknown'}) is still working on this box"
                needed = "one at a time"
                do = "stop it, then run again"
                raise one_problem("box-in-use", found, needed, do, str(lock))
            _end(int(holder))
            time.sleep(_POLL_S)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        previous_handler = signal.signal(signal.SIGTERM, _end_superseded)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, previous_handler)


def _end_superseded(number: int, _frame: object) -> None:
    """Print the failed result of an Ansible module, then end at once as the signal would have ended it."""
    # ``superseded`` tells the older run not to restore its server: the box now belongs to the newer run.
    result = {"failed": True, "changed": False, "superseded": True, **DrafthouseError(_SUPERSEDED).result}
    with contextlib.suppress(OSError):
        os.write(1, f"\n{json.dumps(result)}\n".encode())
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end(pid: int) -> None:
    """Ask a process to end; it may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def is_held(file: Path, kernel_locks: str | None = None) -> bool:
    """True if a process holds the lock (flock) of a file; False too if the file or the kernel's list cannot be read.

    ``kernel_locks``: the kernel's list of all locks, by default the content of /proc/locks. To test a lock by taking it
    is unsafe: a run that begins in that moment would see the tester as the job of an earlier run, and end it.
    """
    try:
        inode = file.stat().st_ino
        text = Path("/proc/locks").read_text("utf-8") if kernel_locks is None else kernel_locks
    except OSError:
        return False
    # A line: "1: FLOCK  ADVISORY  WRITE 4242 08:01:131099 0 EOF", with the pid and then device and inode of the file.
    # The device is not compared: on an overlay file system, `stat` and this list have different ones.
    return any(line.split()[1:2] == ["FLOCK"] and f":{inode} " in line for line in text.splitlines())
