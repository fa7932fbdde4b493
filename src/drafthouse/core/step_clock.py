"""The time of a measured step by a clock that nobody can set: the seconds since the machine's boot, and the boot's id.

A time server or a person may set the wall clock between two steps. The order of steps, the time between them and the
duration of a round must not change with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from .procfs import boot_id

if TYPE_CHECKING:
    from typing import NotRequired


class StepClock(TypedDict):
    """A moment by the clock that counts from the machine's boot."""

    boot: str  # id of that boot
    boot_s: float  # seconds since then, time in suspend included


class Begun(TypedDict):
    """The fields of a step with its begin."""

    started_unix_s: float  # by the wall clock
    clock: NotRequired[StepClock | None]  # by the boot clock; None: the system has none; no key: an earlier version's


def read_step_clock(ago_s: float = 0.0) -> StepClock | None:
    """The moment ``ago_s`` seconds ago; None where the system has no boot clock."""
    try:
        return {"boot": boot_id(), "boot_s": round(time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s, 3)}
    except (OSError, AttributeError):
        return None


def seconds_apart(before: StepClock | None, after: StepClock | None) -> float | None:
    """The seconds from ``before`` to ``after``; None where they are not of the same boot."""
    if not before or not after or before.get("boot") != after.get("boot"):
        return None
    return float(after["boot_s"]) - float(before["boot_s"])


def begun_s(steps: Sequence[Begun]) -> Callable[[Begun], float]:
    """A function that returns the begin (s) of one of ``steps``; only differences between two begins have a meaning.

    It uses the boot clock if all steps are of the same boot. Otherwise it uses the wall clock, the only one that steps
    of earlier versions have.
    """
    clocks = [step.get("clock") for step in steps]
    if clocks and all(seconds_apart(clocks[0], clock) is not None for clock in clocks):
        return lambda step: seconds_apart(clocks[0], step.get("clock")) or 0.0
    return lambda step: float(step["started_unix_s"])
