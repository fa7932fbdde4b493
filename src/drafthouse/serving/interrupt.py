"""End what an interrupted run left on the box: its jobs, which run detached from it, and its servers.

A person waits for it, so a process that ignores SIGTERM is killed after a few seconds. Standard library only, Python
3.10: the run may have been interrupted while it created the box's environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

from ..core.locks import take_lock
from ..core.procfs import command_of, is_gone, parent_of
from .containers import remove_containers_of
from .promote import record_end
from .releases import current_server
from .restore import drift, shown_server
from .rollback_guard import beat_file
from .supervisor import Supervisor

# The servers to end: those that the run started for itself (no earlier run has recorded them), all, or none.
SERVERS = ("of_run", "all", "none")
# Seconds from SIGTERM to SIGKILL.
_JOB_S = 2.0
_ENGINE_S = 4  # of a server
# Locks of measurements and weights (core/locks.py) and of environments (host/venv.py). The last word in a lock file is
# the pid of the process that holds the lock.
_LOCKS = ("*.lock", ".*.making", "engines/.*.making")
_WRAPPER = "async_wrapper"  # Ansible's program that runs a detached job


def interrupt(home: Path, servers: str) -> list[str]:
    """End the jobs of ``home`` and the ``servers`` (one of `SERVERS`); return a line for each thing that was done.

    - ``of_run``: if an earlier run has recorded a server, that one keeps running, or comes back in place of this run's;
      else as ``all``;
    - ``none``: only jobs end;
    - ``all``: all servers end, and the history says so.

    Raises DrafthouseError if a process does not end.
    """
    lines: list[str] = []
    jobs = end_jobs(home)
    if jobs:
        lines.append(f"ended: {', '.join(jobs)}")
    recorded = current_server(home)
    if servers == "of_run" and recorded:
        lines.append(_restore_soon(home, shown_server(recorded)))
        return lines
    if servers == "none":
        return lines
    if recorded:
        record_end(home, "the run was interrupted")
    stopped = [*Supervisor(home / "supervisor").shut_down(_ENGINE_S), *remove_containers_of(home, _ENGINE_S)]
    lines.append(f"stopped: {', '.join(stopped)}" if stopped else "this run had no running server")
    return lines


def _restore_soon(home: Path, name: str) -> str:
    """Restore the recorded server ``name`` unless it runs; return a line about what happens.

    The rollback guard does it, at once instead of after its wait. Without a guard (no heartbeat file) nothing happens.
    """
    if not drift(home):
        return f"the previous server keeps running: {name}"
    beat = beat_file(home)
    if not beat.exists():
        return f"the previous server is not running: {name}; the next run or make rollback restores it"
    os.utime(beat, (0, 0))
    return f"the box itself restores the previous server: {name}"


def end_jobs(home: Path) -> list[str]:
    """End the jobs that hold a lock of this home, and their child processes; return the names of the locks.

    The watchdog and the rollback guard hold such locks too; they are not jobs of a run, and are left alone.
    """
    jobs: dict[str, int] = {}  # name of a lock -> pid of its job
    for pattern in _LOCKS:
        for lock in home.glob(pattern):
            pid = _job_pid(lock)
            if pid:
                jobs[lock.name.strip(".").rpartition(".")[0]] = pid
    # Before any job ends, because a watcher is found as the parent of a job's parent.
    watchers = set(filter(None, map(_watcher_pid, jobs.values())))
    groups = {os.getpgid(pid) for pid in jobs.values() if not is_gone(pid)}
    _signal(groups, signal.SIGTERM)
    until = time.monotonic() + _JOB_S
    while time.monotonic() < until and not all(map(is_gone, jobs.values())):
        time.sleep(0.05)
    # The groups of jobs that ended too: their child processes may still run.
    _signal(groups, signal.SIGKILL)
    for pid in watchers:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return sorted(jobs)


def _job_pid(lock: Path) -> int | None:
    """The pid of the Ansible job that holds a lock; None if no process or another one holds it."""
    try:
        with lock.open() as file:
            if take_lock(file, 0, shared=True):
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


def _watcher_pid(job: int) -> int | None:
    """The pid of the Ansible process that limits the time of a job: the parent of the job's wrapper."""
    wrapper = parent_of(job)
    if not wrapper:
        return None
    watcher = parent_of(wrapper)
    if not _is_of_ansible(watcher):
        return None
    return watcher


def _is_of_ansible(pid: int | None) -> bool:
    """True if the process is Ansible's program for detached jobs."""
    return pid is not None and any(_WRAPPER in word for word in command_of(pid))


def _signal(groups: Collection[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
