"""Causes other than speculation that can explain a speed-up: other work on the CPU, CPU steal, and GPU throttling.

A step is one arm in one round. A disturbed step is measured once more, chosen by its cause and never by its
value (`disturbance_of`). If a cause can still explain the speed-up after the repeat, the verdict is `cannot
say` (`disturbances_of`). Each cause is converted to the factor by which it can have shifted the speed-up.
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
    """A cause other than speculation: ``what`` it did and what to ``do``, as parts of a sentence."""

    what: str
    do: str


def disturbances_of(
    speedup: Speedup | None, results: Mapping[str, ArmResult], declared: Sequence[str]
) -> list[Disturbance]:
    """The causes that can explain the speed-up; empty if there is no speed-up or the word stands without them."""
    if speedup is None:
        return []
    is_gain = speedup.low > math.log(THRESHOLD)
    if not is_gain and speedup.high <= math.log(THRESHOLD):
        return []  # surely no gain
    # The arm that seems slower comes first: a disturbance of it can explain the difference.
    arms = ("baseline", "speculative")
    if not is_gain:
        arms = ("speculative", "baseline")
    slower, other_arm = results[arms[0]], results[arms[1]]
    disturbances = []
    slower_taken = cpu_share_taken(_declared_activity(slower, declared), "other_cpu_percent")
    other_taken = cpu_share_taken(_declared_activity(other_arm, declared), "other_cpu_percent")
    if factor := _shift_factor(math.exp(speedup.log_gain), is_gain, slower_taken, other_taken):
        busy: list[str] = []
        for result in results.values():
            busy += busy_processes(result.get("machine"))
        names = list(dict.fromkeys(busy))
        who, remedy = "other work took", f"stop {listing(names[:3])}, or allow more rounds, and measure again"
        # Steal counts as other work; where it is the larger part, nothing on this machine can be stopped.
        if cpu_share_taken(_declared_activity(slower, declared), "cpu_steal_percent") > slower_taken / 2:
            who, remedy = "the host took (steal)", "measure again at another time, or on another machine"
        elif not names:
            remedy = "let nothing else run on the box, or allow more rounds, and measure again"
        what = (
            f"{who} {100 * slower_taken:.0f} % of the CPU during {arms[0]} and {100 * other_taken:.0f} % "
            f"during {arms[1]}, which can have shifted the speed-up by {times(factor)}"
        )
        disturbances.append(Disturbance(what, remedy))
    slower_throttled, other_throttled = _throttled_share(slower, declared), _throttled_share(other_arm, declared)
    losses = (1 - THROTTLED_CLOCK) * slower_throttled, (1 - THROTTLED_CLOCK) * other_throttled
    if factor := _shift_factor(math.exp(speedup.log_gain), is_gain, *losses):
        what = (
            f"a GPU was throttled for heat or power for {100 * slower_throttled:.0f} % of the time in {arms[0]}, "
            f"which can have shifted the speed-up by {times(factor)}"
        )
        disturbances.append(Disturbance(what, "check its cooling and its power limit, then measure again"))
    return disturbances


def _shift_factor(speedup: float, is_gain: bool, lost_by_slower: float, lost_by_other: float) -> float | None:
    """The factor by which lost speed (fractions) can have shifted a speed-up; None if the word stands."""
    factor = (1 - lost_by_other) / (1 - lost_by_slower)
    if factor < SMALLEST_SHIFT:
        return None
    if is_gain and factor < speedup:
        return None  # a part of the gain remains
    if not is_gain and not speedup <= THRESHOLD < speedup * factor:
        return None  # it did not push the speed-up below the threshold
    return factor


def groups_of(result: ArmResult) -> list[GroupMachine]:
    """The machine's activity and state around each group (kind@temperature) of an arm."""
    return _groups_of_machine(result.get("machine"))


def _groups_of_machine(machine: StepMachine | None) -> list[GroupMachine]:
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
    """The median over the readings of ``key``, as a fraction of the CPU, at most 0.95; 0 without a reading."""
    shares = []
    for activity in activities:
        seconds, engine_s, share = activity.get("seconds"), activity.get("own_cpu_s"), activity.get(key)
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
