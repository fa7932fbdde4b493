"""End on the box what an interrupted run has left there: its jobs, which live apart from it, and its servers.

Quickly, because a person waits: who does not heed the signal within seconds is killed. Standard library only, Python
3.10: our own environment may be just what was being made.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from ..core.locks import take
from ..core.procfs import command_of, is_gone, parent_of
from .containers import remove_of
from .promote import end
from .releases import current
from .restore import drift, shown
from .rollback_guard import beat_file
from .supervisor import Supervisor

# Which servers are ended: those that stand where nothing should serve, every one, or none.
SERVERS = ("of_run", "all", "none")
_JOB_S, _ENGINE_S = 2.0, 4
# Measuring and weights (core/locks.py), environments (host/venv.py). Each holds the pid as its last word.
_LOCKS = ("*.lock", ".*.making", "engines/.*.making")
_WRAPPER = "async_wrapper"  # how Ansible calls what runs a job


def interrupt(home: Path, servers: str) -> list[str]:
    """End the jobs of ``home``, and its servers as ``servers`` says; return what was done, a line each.

    A server that an earlier run has proven is not this run's: with ``of_run`` it goes on, or comes back. Raises
    DrafthouseError where something does not end.
    """
    lines: list[str] = []
    jobs = end_jobs(home)
    if jobs:
        lines.append(f"ended: {', '.join(jobs)}")
    serves = current(home)
    if servers == "of_run" and serves:
        lines.append(_back(home, shown(serves)))
        return lines
    if servers == "none":
        return lines
    if serves:
        end(home, "the run was interrupted")
    stopped = [*Supervisor(home / "supervisor").shut_down(_ENGINE_S), *remove_of(home, _ENGINE_S)]
    lines.append(f"stopped: {', '.join(stopped)}" if stopped else "this run had no running server")
    return lines


def _back(home: Path, name: str) -> str:
    """Have the guard act now instead of when it has waited; return what becomes of the server that served before."""
    if not drift(home):
        return f"the previous server keeps running: {name}"
    beat = beat_file(home)
    if not beat.exists():
        return f"the previous server is not running: {name}; the next run or make rollback restores it"
    os.utime(beat, (0, 0))
    return f"the box itself restores the previous server: {name}"


def end_jobs(home: Path) -> list[str]:
    """End the jobs that hold a lock of this home, with all that they have started; return the locks' names.

    A lock of the watchdog's or the guard's is no job of a run, and is left alone.
    """
    jobs: dict[str, int] = {}
    for pattern in _LOCKS:
        for lock in home.glob(pattern):
            pid = _job(lock)
            if pid:
                jobs[lock.name.strip(".").rpartition(".")[0]] = pid
    watching = set(filter(None, map(_watcher, jobs.values())))
    groups = {os.getpgid(pid) for pid in jobs.values() if not is_gone(pid)}
    _signal(groups, signal.SIGTERM)
    until = time.monotonic() + _JOB_S
    while time.monotonic() < until and not all(map(is_gone, jobs.values())):
        time.sleep(0.05)
    # Also of those that ended: what they have started may not have.
    _signal(groups, signal.SIGKILL)
    for pid in watching:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return sorted(jobs)


def _job(lock: Path) -> int | None:
    """The pid of the job that holds a lock, None where nobody holds it or it is no job of Ansible's."""
    try:
        with lock.open() as file:
            if take(file, 0, shared=True):
                return None
            holder = file.read().split()[-1:]
    except OSError:
        return None
    if not holder or not holder[0].isdigit():
        return None
    pid = int(holder[0])
    if not pid or not _is_of_ansible(parent_of(pid)):
        return None
    return pid


def _watcher(job: int) -> int | None:
    """The process that watches over a job: the parent of its wrapper."""
    wrapper = parent_of(job)
    if not wrapper:
        return None
    watcher = parent_of(wrapper)
    if not _is_of_ansible(watcher):
        return None
    return watcher


def _is_of_ansible(pid: int | None) -> bool:
    return pid is not None and any(_WRAPPER in word for word in command_of(pid))


def _signal(groups: Collection[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
