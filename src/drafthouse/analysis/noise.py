"""Causes other than speculation that can explain a speed-up: other work on the CPU, CPU steal, and GPU throttling.

Steal is CPU time that the host of a virtual machine gave to others. A step is one start of servers and the requests to
them. A disturbed step is measured once more, chosen by its cause and never by its value (`disturbance_of`). If a cause
can still explain the speed-up after the repeat, the verdict is `cannot say` (`disturbances_of`). Each cause is
converted to the factor by which it can have shifted the speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ..bench.machine_state import OTHER_CPU_PERCENT
from ..bench.machine_types import Between, GroupMachine, StepMachine
from ..bench.result_types import ArmResult, StepResult
from ..bench.stats import median
from ..core.format import listing, times
from .speedup import Speedup
from .words import THRESHOLD

#: Causes that can have shifted the speed-up by a smaller factor are ignored.
SMALLEST_SHIFT = 1.10
#: An engine that answers uses at least this fraction of a core. If less was seen, its process belongs to another user
#: and is itself counted as other work, so the reading is dropped.
ENGINE_CPU_SHARE = 0.2
#: A step is disturbed if a GPU was throttled for a larger fraction of the time.
THROTTLED_SHARE = 0.05
#: The clock of a throttled GPU as a fraction of its full clock; assumed, as the worst case.
THROTTLED_CLOCK = 0.5


@dataclass(frozen=True)
class Disturbance:
    """A cause other than speculation that can explain the speed-up, as parts of a sentence."""

    what: str  # what it did, and by how much it can have shifted the speed-up
    do: str  # the remedy


def disturbances_of(
    speedup: Speedup | None, results: Mapping[str, ArmResult], declared: Sequence[str]
) -> list[Disturbance]:
    """The causes that can explain the speed-up: first other work or steal, then throttling.

    Empty if there is no speed-up, if there is surely no gain, or if the word stands without the causes. A cause
    explains a gain if it slowed the baseline, and a missing gain if it slowed the speculative arm.
    """
    if speedup is None:
        return []
    is_gain = speedup.low > math.log(THRESHOLD)
    if not is_gain and speedup.high <= math.log(THRESHOLD):
        return []  # surely no gain
    # The arm whose disturbance can explain the result: the slower one of a gain is the baseline.
    slower_name = "baseline"
    other_name = "speculative"
    if not is_gain:
        slower_name = "speculative"
        other_name = "baseline"
    slower = results[slower_name]
    other_arm = results[other_name]
    ratio = math.exp(speedup.log_gain)
    disturbances = []
    slower_taken = cpu_share_taken(_declared_activity(slower, declared), "other_cpu_percent")
    other_taken = cpu_share_taken(_declared_activity(other_arm, declared), "other_cpu_percent")
    if factor := _shift_factor(ratio, is_gain=is_gain, lost_by_slower=slower_taken, lost_by_other=other_taken):
        steal = cpu_share_taken(_declared_activity(slower, declared), "cpu_steal_percent")
        # Steal counts as other work; where it is the larger part, nothing on this machine can be stopped.
        who, remedy = _cpu_taker(results, mostly_steal=steal > slower_taken / 2)
        what = (
            f"{who} {100 * slower_taken:.0f} % of the CPU during {slower_name} and {100 * other_taken:.0f} % "
            f"during {other_name}, which can have shifted the speed-up by {times(factor)}"
        )
        disturbances.append(Disturbance(what, remedy))
    slower_throttled = _throttled_share(slower, declared)
    other_throttled = _throttled_share(other_arm, declared)
    slower_lost = (1 - THROTTLED_CLOCK) * slower_throttled
    other_lost = (1 - THROTTLED_CLOCK) * other_throttled
    if factor := _shift_factor(ratio, is_gain=is_gain, lost_by_slower=slower_lost, lost_by_other=other_lost):
        what = (
            f"a GPU was throttled for heat or power for {100 * slower_throttled:.0f} % of the time in {slower_name}, "
            f"which can have shifted the speed-up by {times(factor)}"
        )
        disturbances.append(Disturbance(what, "check its cooling and its power limit, then measure again"))
    return disturbances


def _cpu_taker(results: Mapping[str, ArmResult], *, mostly_steal: bool) -> tuple[str, str]:
    """Who took the CPU, as the beginning of a sentence, and the remedy."""
    if mostly_steal:
        return "the host took (steal)", "measure again at another time, or on another machine"
    busy: list[str] = []
    for result in results.values():
        busy += busy_processes(result.get("machine"))
    names = list(dict.fromkeys(busy))
    if not names:
        return "other work took", "let nothing else run on the box, or allow more rounds, and measure again"
    return "other work took", f"stop {listing(names[:3])}, or allow more rounds, and measure again"


def _shift_factor(speedup: float, *, is_gain: bool, lost_by_slower: float, lost_by_other: float) -> float | None:
    """The factor by which lost speed can have shifted a speed-up (a ratio); None if the word stands.

    ``lost_by_slower`` and ``lost_by_other`` are the fractions of their speed that the arms lost. The word stands if the
    factor is below `SMALLEST_SHIFT`, if it is smaller than the gain, or if a missing gain is missing without it, too.
    """
    factor = (1 - lost_by_other) / (1 - lost_by_slower)
    if factor < SMALLEST_SHIFT:
        return None
    if is_gain and factor < speedup:
        return None  # a part of the gain remains
    if not is_gain and not speedup <= THRESHOLD < speedup * factor:
        return None  # the factor did not push the speed-up below the threshold
    return factor


def groups_of(result: ArmResult) -> list[GroupMachine]:
    """The machine's activity and state around each group (kind@temperature) of an arm; empty if it was not read."""
    return _groups_of_machine(result.get("machine"))


def _groups_of_machine(machine: StepMachine | None) -> list[GroupMachine]:
    """The readings around each group; empty without any."""
    if not machine:
        return []
    return machine.get("groups") or []


def busy_processes(machine: StepMachine | None) -> list[str]:
    """The names of processes outside this program and its engines that were busy in a step, each once."""
    names = []
    for activity in _activities(_groups_of_machine(machine)):
        for process in activity.get("busy_processes") or []:
            names.append(str(process.get("name")))
    return list(dict.fromkeys(names))


def _declared_activity(result: ArmResult, declared: Sequence[str]) -> list[Between]:
    """The machine's activity during the declared groups of an arm, as far as it was read."""
    return _activities(group for group in groups_of(result) if group.get("group") in declared)


def _activities(groups: Iterable[GroupMachine]) -> list[Between]:
    """The machine's activity during the groups, as far as it was read."""
    activities = []
    for group in groups:
        if activity := group.get("between"):
            activities.append(activity)
    return activities


Share = Literal["other_cpu_percent", "cpu_steal_percent"]


def cpu_share_taken(activities: Sequence[Between], key: Share) -> float:
    """The median over the readings of ``key``, as a fraction of the CPU; 0 without a reading.

    A reading counts as at most 0.95, because `_shift_factor` divides by what is left of the speed. Readings that do not
    see the engine are dropped (`ENGINE_CPU_SHARE`).
    """
    shares = []
    for activity in activities:
        seconds = activity.get("seconds")
        engine_s = activity.get("own_cpu_s")
        share = activity.get(key)
        engine_hidden = seconds and engine_s is not None and engine_s < ENGINE_CPU_SHARE * seconds
        if isinstance(share, int | float) and not engine_hidden:
            shares.append(min(share / 100, 0.95))
    return median(shares) if shares else 0.0


def _throttled_share(result: ArmResult, declared: Sequence[str]) -> float:
    """The fraction of the time in which a GPU of an arm was throttled: mean over declared groups, worst GPU of each.

    For a group without samples (too short, or measured by an earlier version) the state at its end counts: 0 or 1.
    """
    sampled = {(span["round"], span["group"]): span["gpus"] for span in result.get("gpus") or []}
    shares: list[float] = []
    for group in groups_of(result):
        if group.get("group") not in declared:
            continue
        gpu_shares: list[float] = []
        for gpu in sampled.get((group.get("round"), group.get("group"))) or []:
            if gpu["throttled_share"] is not None:
                gpu_shares.append(gpu["throttled_share"])
        end_state = group.get("after")
        if end_state and not gpu_shares:
            gpu_shares = [float(bool(gpu.get("throttled_by"))) for gpu in end_state.get("gpus") or []]
        if gpu_shares:
            shares.append(max(gpu_shares))
    return fmean(shares) if shares else 0.0


# --- a single step ----------------------------------------------------------------------------------


def disturbance_of(step: StepResult) -> str | None:
    """What disturbed a step, as a clause: other work on the CPU or a throttled GPU; None if neither did."""
    cpu_share = cpu_share_taken(_activities(step["machine"]["groups"]), "other_cpu_percent")
    if 100 * cpu_share > OTHER_CPU_PERCENT:
        names = listing(busy_processes(step["machine"])[:3]) or "other work"
        return f"{names} took {100 * cpu_share:.0f} % of the CPU"
    for arm, arm_step in step["arms"].items():
        for span in arm_step.get("gpus") or []:
            for gpu in span["gpus"]:
                share = gpu["throttled_share"]
                if share is not None and share > THROTTLED_SHARE:
                    return f"a GPU of {arm} was throttled for {100 * share:.0f} % of the time"
    return None


def repeated_in_vain(steps: Iterable[StepResult]) -> bool:
    """True if a repeated step was disturbed as well: then no further step is repeated."""
    return any(step.get("disturbed") for step in steps)
