"""Wait for other work on the machine to end before a step is measured: for a while, and saying so."""

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

#: How long a step waits at most, in seconds.
WAIT_S = 60.0
# Over which the CPU is looked at; the clock ticks of /proc are 10 ms.
_LOOK_S = 1.0


def wait_for_quiet(
    own: Callable[[MachineState], Collection[int]],
    progress: Tell,
    most_s: float = WAIT_S,
    read: Callable[[], MachineState] = read_cpu,
    sleep: Callable[[float], None] = time.sleep,
) -> Waited:
    """Wait until other processes than ``own`` leave the CPU alone, ``most_s`` at most; return what was seen.

    ``quiet`` tells whether they do: use less than OTHER_CPU_PERCENT of the whole machine. ``seconds`` is 0.0 where
    nothing had to be waited for. A machine that does not tell what its CPU does counts as quiet.
    """
    waited_s = 0.0
    while True:
        before = read()
        sleep(_LOOK_S)
        after = read()
        seen = between(before, after, set(own(before)) | set(own(after)))
        percent = seen["other_cpu_percent"]
        quiet = percent is None or percent <= OTHER_CPU_PERCENT
        if quiet or waited_s >= most_s:
            return {"seconds": waited_s, "quiet": quiet, "other_cpu_percent": percent, "busy": _names(seen)}
        waited_s += after.monotonic_s - before.monotonic_s
        names = listing(_names(seen)) or "others"
        sentence = f"other processes use {percent:.0f} % of the CPU ({names}): waiting for them to end"
        progress({"text": sentence, "eta_s": max(0.0, round(most_s - waited_s, 1))})


def waited_in_vain(steps: Collection[StepResult]) -> bool:
    """Whether an earlier step of the experiment waited to the end: the next one then does not."""
    return any(step["waited"]["quiet"] is False for step in steps if step.get("waited"))


def _names(seen: Between) -> list[str]:
    return list(dict.fromkeys(str(process["name"]) for process in seen["busy_processes"]))[:3]
