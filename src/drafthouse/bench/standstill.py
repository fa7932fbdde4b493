"""Detect standstills during a measurement: a stopped engine, a stopped client process, or a suspended machine.

A stopped engine (SIGSTOP, a debugger, the freezer of cgroup v1) answers correctly when it continues, only later. The
same is true if the client or the machine stood still. Such times are not noise: the step is invalid and repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import DrafthouseError, Problem
from ..core.procfs import command_of, state_of

#: Polling interval, in seconds.
LOOK_S = 0.5
#: A poll that comes more than this many seconds late, although this process did not work, means a standstill.
LATE_S = 3.0
# States of a stopped process in /proc/PID/stat (proc(5)).
_STOPPED = {"T": "stopped by a signal", "t": "stopped by a debugger"}


class StoodStill(DrafthouseError):
    """The engine, the client or the machine stood still during a measurement, which is therefore invalid."""


@dataclass(frozen=True)
class _Moment:
    """Seconds of three clocks at one moment."""

    ran_s: float  # monotonic; stops while the machine is suspended
    boot_s: float  # also runs while the machine is suspended
    worked_s: float  # this thread's time on a CPU or in the queue for one: a busy CPU is no standstill


def _now() -> _Moment:
    """The clocks now; without a clock that runs while the machine is suspended, ``boot_s`` equals ``ran_s``."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    ran_s = time.monotonic()
    return _Moment(ran_s, ran_s if boot is None else time.clock_gettime(boot), _worked_s())


def _worked_s() -> float:
    """Seconds of this thread on a CPU or in the queue for one (Linux: Documentation/scheduler/sched-stats.rst)."""
    try:
        on_cpu, queued, _ = Path("/proc/thread-self/schedstat").read_text("ascii").split()
    except (OSError, ValueError):  # the kernel has no schedstat
        return time.process_time()
    return (int(on_cpu) + int(queued)) / 1e9


async def wait_for_standstill(
    engines: Callable[[], Collection[int]], look_s: float = LOOK_S, late_s: float = LATE_S
) -> str:
    """Poll until an engine, this process or the machine stood still; return a phrase that says which, and how long.

    ``engines`` returns the pids of the engines on this machine; it is called once, at the beginning.
    """
    pids = await asyncio.to_thread(engines)
    before = _now()
    while True:
        for pid in pids:
            if (why := _STOPPED.get(state_of(pid) or "")) is not None:
                command = " ".join(command_of(pid))[:80]
                return f"the engine was {why} (pid {pid}: {command})"
        await asyncio.sleep(look_s)
        now = _now()
        elapsed_s = now.ran_s - before.ran_s
        slept_s = now.boot_s - before.boot_s - elapsed_s  # while the machine was suspended
        stood_s = elapsed_s - look_s - (now.worked_s - before.worked_s)  # this process neither waited nor worked
        if slept_s > late_s:
            return f"the machine was suspended for {slept_s:,.0f} s"
        if stood_s > late_s:
            return f"the measuring process stood still for {stood_s:,.0f} s (stopped or frozen)"
        before = now


def standstill_error(why: str, under_way: str) -> StoodStill:
    """The error of a measurement that stood still; ``under_way`` names the requests that waited for an answer."""
    return StoodStill(
        Problem(
            "measurement-stalled",
            f"{why}, while {under_way}",
            "engines, client and machine that keep running during the step",
            "continue it (kill -CONT), keep the machine awake, then run again: finished steps are kept",
        )
    )
