"""Watch that what a measurement needs goes on while it runs: its engines, this process, and the machine itself.

An engine that was stopped (SIGSTOP, a debugger, the freezer of cgroup v1) answers late and no worse; so does one whose
client stood still, or whose machine was suspended. Such times are no noise: the step is void, and is measured again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import DrafthouseError, Problem
from ..core.procfs import command_of, state_of

#: How often it is looked, in seconds.
LOOK_S = 0.5
#: A look that comes so much later than it was due (seconds), without our own work as a reason, means a standstill.
LATE_S = 3.0
# proc(5): stopped by a signal, stopped by a debugger.
_STOPPED = {"T": "stopped by a signal", "t": "stopped by a debugger"}


class StoodStill(DrafthouseError):
    """What is measured stood still meanwhile, so the measurement says nothing."""


@dataclass(frozen=True)
class _Moment:
    """Seconds of three clocks: monotonic, the one that runs on while the machine is suspended, and our own work.

    Work is the time on a CPU and in the queue for one: who only waits for its turn on a busy machine does not stand.
    """

    ran_s: float
    boot_s: float
    worked_s: float


def _now() -> _Moment:
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    ran_s = time.monotonic()
    return _Moment(ran_s, ran_s if boot is None else time.clock_gettime(boot), _worked_s())


def _worked_s() -> float:
    """Seconds of the current thread on a CPU and in the queue for one (Documentation/scheduler/sched-stats.rst)."""
    try:
        on_cpu, queued, _ = Path("/proc/thread-self/schedstat").read_text("ascii").split()
    except (OSError, ValueError):  # a kernel without it
        return time.process_time()
    return (int(on_cpu) + int(queued)) / 1e9


async def until_something_stands(
    engines: Callable[[], Collection[int]], look_s: float = LOOK_S, late_s: float = LATE_S
) -> str:
    """Look until an engine, this process or the machine stood still; return which, and for how long where it is over.

    ``engines`` gives the pids of the engines on this machine; it is asked once, now.
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
        ran_s = now.ran_s - before.ran_s
        slept_s = now.boot_s - before.boot_s - ran_s
        stood_s = ran_s - look_s - (now.worked_s - before.worked_s)
        if slept_s > late_s:
            return f"the machine was suspended for {slept_s:,.0f} s"
        if stood_s > late_s:
            return f"the measuring process stood still for {stood_s:,.0f} s (stopped or frozen)"
        before = now


def stood_still(why: str, under_way: str) -> StoodStill:
    """The error for a measurement that was given up; ``under_way`` says which requests waited."""
    return StoodStill(
        Problem(
            "measurement-stalled",
            f"{why}, while {under_way}",
            "engines, client and machine that keep running during the step",
            "continue it (kill -CONT), keep the machine awake, then run again: finished steps are kept",
        )
    )
