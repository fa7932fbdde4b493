"""When steps were measured, by a clock that nobody sets: seconds since the machine's start, and which start that was.

The wall clock is for people. A time server or a person may set it back between two steps, and their order, what lies
between them and what a round has cost must not change with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from .procfs import boot_id

if TYPE_CHECKING:
    from typing import NotRequired


class StepClock(TypedDict):
    """A moment: which start of the machine, and seconds since then, those included in which it was suspended."""

    boot: str
    boot_s: float


class Begun(TypedDict):
    """What tells when a step began: the machine's own clock, where it has one, and the wall clock."""

    started_unix_s: float
    clock: NotRequired[StepClock | None]


def read_step_clock(ago_s: float = 0.0) -> StepClock | None:
    """The moment ``ago_s`` seconds ago; None where the system has no such clock."""
    try:
        return {"boot": boot_id(), "boot_s": round(time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s, 3)}
    except (OSError, AttributeError):
        return None


def seconds_apart(before: StepClock | None, after: StepClock | None) -> float | None:
    """How many seconds lie between two moments of one start of the machine, otherwise None."""
    if not before or not after or before.get("boot") != after.get("boot"):
        return None
    return float(after["boot_s"]) - float(before["boot_s"])


def begun_s(steps: Sequence[Begun]) -> Callable[[Begun], float]:
    """What tells when one of ``steps`` began, in seconds; only differences and their order mean something.

    By the machine's own clock where all were measured in one start of it, otherwise by the wall clock: also steps that
    an earlier version kept.
    """
    clocks = [step.get("clock") for step in steps]
    if clocks and all(seconds_apart(clocks[0], clock) is not None for clock in clocks):
        return lambda step: seconds_apart(clocks[0], step.get("clock")) or 0.0
    return lambda step: float(step["started_unix_s"])
