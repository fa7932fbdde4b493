"""Wait, for a limited time, until other processes leave the CPU idle, before a step is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..core.format import listing
from .machine_state import OTHER_CPU_PERCENT, MachineState, between, read_cpu

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import Between, Waited
    from drafthouse.bench.result_types import StepResult
    from drafthouse.core.progress import Tell

#: The longest wait before a step, in seconds.
WAIT_S = 60.0
# Seconds over which the CPU use is averaged. The counters of /proc advance in ticks of 10 ms, so shorter is inexact.
_SAMPLE_S = 1.0


def wait_for_quiet(
    own_pids: Callable[[MachineState], Collection[int]],
    progress: Tell,
    max_wait_s: float = WAIT_S,
    read: Callable[[], MachineState] = read_cpu,
    sleep: Callable[[float], None] = time.sleep,
) -> Waited:
    """Wait at most ``max_wait_s`` until foreign processes use at most OTHER_CPU_PERCENT of all cores.

    ``own_pids`` lists the processes that belong to the measurement; all others are foreign. In the result, ``seconds``
    is the time waited, and ``quiet`` is False if the wait ran out. Unreadable CPU counters count as quiet, because no
    wait would make them readable.
    """
    waited_s = 0.0
    while True:
        before = read()
        sleep(_SAMPLE_S)
        after = read()
        # The pids at both ends: an engine's process may start or end during the sample.
        activity = between(before, after, set(own_pids(before)) | set(own_pids(after)))
        percent = activity["other_cpu_percent"]
        quiet = percent is None or percent <= OTHER_CPU_PERCENT
        if quiet or waited_s >= max_wait_s:
            return {"seconds": waited_s, "quiet": quiet, "other_cpu_percent": percent, "busy": _busiest_names(activity)}
        waited_s += after.monotonic_s - before.monotonic_s
        names = listing(_busiest_names(activity)) or "others"
        sentence = f"other processes use {percent:.0f} % of the CPU ({names}): waiting for them to end"
        progress({"text": sentence, "eta_s": max(0.0, round(max_wait_s - waited_s, 1))})


def waited_in_vain(steps: Collection[StepResult]) -> bool:
    """True if the wait before an earlier step ran out; later steps of the experiment then do not wait."""
    return any(step["waited"]["quiet"] is False for step in steps if step.get("waited"))


def _busiest_names(activity: Between) -> list[str]:
    """The names of at most three of the busiest foreign processes, each once, for a message."""
    return list(dict.fromkeys(str(process["name"]) for process in activity["busy_processes"]))[:3]
