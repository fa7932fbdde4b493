"""What else than speculation can explain an effect.

A step that was disturbed is measured again, by cause and not by value (`disturbance_of`). Where something can explain
the effect although the steps were repeated, nobody can say (`disturbances_of`). Two things are looked at: what other
work (or the host, by steal) took of the CPU while one arm was measured and not the other, and how long a GPU was
throttled for heat or power. Each is turned into the factor by which it can have moved the speed-up.
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

#: Other work that can have moved the speed-up by less is not held against it.
LOADED = 1.10
#: An engine that answers takes at least this share of a core; where less was seen, it is another user's, and it is
#: itself among the others.
ENGINE_SEEN = 0.2
#: A GPU that was throttled for a larger share of the time disturbs a step.
THROTTLED_SHARE = 0.05
#: What a GPU's clock may fall to while it is throttled, as a share.
THROTTLED_CLOCK = 0.5


@dataclass(frozen=True)
class Disturbance:
    """What disturbed the measurement, and what to do about it."""

    what: str
    do: str


def disturbances_of(
    speedup: Speedup | None, results: Mapping[str, ArmResult], declared: Sequence[str]
) -> list[Disturbance]:
    """What can explain the speed-up beside speculation, the plainest first; nothing where the word stands."""
    if speedup is None:
        return []
    ahead = speedup.low > math.log(THRESHOLD)
    if not ahead and speedup.high <= math.log(THRESHOLD):
        return []
    # The arm that has to be the slower one for the word to stand comes first.
    arms = ("baseline", "speculative")
    if not ahead:
        arms = ("speculative", "baseline")
    slowed, other = results[arms[0]], results[arms[1]]
    found = []
    taken = share_taken(_between(slowed, declared), "other_cpu_percent")
    beside = share_taken(_between(other, declared), "other_cpu_percent")
    if factor := _explains(math.exp(speedup.speedup), ahead, taken, beside):
        busy: list[str] = []
        for result in results.values():
            busy += busy_processes(result.get("machine"))
        names = list(dict.fromkeys(busy))
        who, do = "other work took", f"stop {listing(names[:3])}, or allow more rounds, and measure again"
        if share_taken(_between(slowed, declared), "cpu_steal_percent") > taken / 2:
            who, do = "the host took (steal)", "measure again at another time, or on another machine"
        elif not names:
            do = "let nothing else run on the box, or allow more rounds, and measure again"
        what = (
            f"{who} {100 * taken:.0f} % of the CPU during {arms[0]} and {100 * beside:.0f} % during {arms[1]}, which "
            f"can have shifted the speed-up by {times(factor)}"
        )
        found.append(Disturbance(what, do))
    throttled, beside = _throttled(slowed, declared), _throttled(other, declared)
    lost = (1 - THROTTLED_CLOCK) * throttled, (1 - THROTTLED_CLOCK) * beside
    if factor := _explains(math.exp(speedup.speedup), ahead, *lost):
        what = (
            f"a GPU was throttled for heat or power for {100 * throttled:.0f} % of the time in {arms[0]}, which can "
            f"have shifted the speed-up by {times(factor)}"
        )
        found.append(Disturbance(what, "check its cooling and its power limit, then measure again"))
    return found


def _explains(speedup: float, ahead: bool, lost: float, beside: float) -> float | None:
    """The factor by which the shares of speed that the arms lost can have moved the speed-up; None: it stands."""
    factor = (1 - beside) / (1 - lost)
    if factor < LOADED:
        return None
    if ahead and factor < speedup:
        return None
    if not ahead and not speedup <= THRESHOLD < speedup * factor:
        return None
    return factor


def groups_of(result: ArmResult) -> list[GroupMachine]:
    """What the machine did around each group of an arm."""
    return _groups_in(result.get("machine"))


def _groups_in(machine: StepMachine | None) -> list[GroupMachine]:
    if not machine:
        return []
    return machine.get("groups") or []


def busy_processes(machine: StepMachine | None) -> list[str]:
    """The names of the processes, not ours, that were busy while an arm was measured."""
    names = []
    for during in _during(_groups_in(machine)):
        for process in during.get("busy_processes") or []:
            names.append(str(process.get("name")))
    return list(dict.fromkeys(names))


def _between(result: ArmResult, declared: Sequence[str]) -> list[Between]:
    """What the machine did while the declared groups of an arm were measured."""
    return _during(group for group in groups_of(result) if group.get("group") in declared)


def _during(groups: Iterable[GroupMachine]) -> list[Between]:
    """What the machine did while some groups were measured, where it was read."""
    found = []
    for group in groups:
        if between := group.get("between"):
            found.append(between)
    return found


Share = Literal["other_cpu_percent", "cpu_steal_percent"]


def share_taken(between: Sequence[Between], name: Share) -> float:
    """A share of the CPU that others took while an arm was measured: the median over its groups."""
    shares = []
    for one in between:
        seconds, own_s, share = one.get("seconds"), one.get("own_cpu_s"), one.get(name)
        hidden = seconds and own_s is not None and own_s < ENGINE_SEEN * seconds
        if isinstance(share, int | float) and not hidden:
            shares.append(min(share / 100, 0.95))
    return median(shares) if shares else 0.0


def _throttled(result: ArmResult, declared: Sequence[str]) -> float:
    """In which share of the time of an arm's declared groups a GPU was throttled: the mean over the groups.

    Of a group with no sample (it was too short, or measured by an earlier version) it counts how it was at its end.
    """
    sampled = {(span["round"], span["group"]): span["gpus"] for span in result.get("gpus") or []}
    shares: list[float] = []
    for group in groups_of(result):
        if group.get("group") not in declared:
            continue
        of_gpus: list[float] = []
        for gpu in sampled.get((group.get("round"), group.get("group"))) or []:
            if gpu["throttled_share"] is not None:
                of_gpus.append(gpu["throttled_share"])
        after = group.get("after")
        if after and not of_gpus:
            of_gpus = [float(bool(gpu.get("throttled_by"))) for gpu in after.get("gpus") or []]
        if of_gpus:
            shares.append(max(of_gpus))
    return fmean(shares) if shares else 0.0


# --- one step ---------------------------------------------------------------------------------------


def disturbance_of(measured: StepResult) -> str | None:
    """What disturbed a step, in words: another job on the CPU, or a throttled GPU; None where nothing did."""
    taken = share_taken(_during(measured["machine"]["groups"]), "other_cpu_percent")
    if 100 * taken > OTHER_CPU_PERCENT:
        names = listing(busy_processes(measured["machine"])[:3]) or "other work"
        return f"{names} took {100 * taken:.0f} % of the CPU"
    for arm, part in measured["arms"].items():
        for span in part.get("gpus") or []:
            for gpu in span["gpus"]:
                share = gpu["throttled_share"]
                if share is not None and share > THROTTLED_SHARE:
                    return f"a GPU of {arm} was throttled for {100 * share:.0f} % of the time"
    return None


def repeated_in_vain(steps: Iterable[StepResult]) -> bool:
    """Whether an earlier step was disturbed when it was measured again, too: then the next one is not repeated."""
    return any(step.get("disturbed") for step in steps)
