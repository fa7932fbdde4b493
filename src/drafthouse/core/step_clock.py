"""When steps were measured, by a clock that nobody sets: seconds since the machine's start, and which start that was.

The wall clock is for people. A time server or a person may set it back between two steps, and their order, what lies
between them and what a round has cost must not change with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .procfs import boot_id


def read_step_clock(ago_s: float = 0.0) -> dict[str, Any] | None:
    """Return the moment ``ago_s`` seconds ago; None where the system has no such clock.

    {boot: which start of the machine, boot_s: seconds since then, those included in which it was suspended}.
    """
    try:
        return {"boot": boot_id(), "boot_s": round(time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s, 3)}
    except (OSError, AttributeError):
        return None


def seconds_apart(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> float | None:
    """Return how many seconds lie between two moments of one start of the machine, otherwise None."""
    if not before or not after or before.get("boot") != after.get("boot"):
        return None
    return float(after["boot_s"]) - float(before["boot_s"])


def begun_s(steps: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any]], float]:
    """Return what tells when one of ``steps`` began, in seconds; only differences and their order mean something.

    By the machine's own clock where all were measured in one start of it, otherwise by the wall clock: also steps that
    an earlier version kept.
    """
    clocks = [step.get("clock") or {} for step in steps]
    if clocks and all(clock.get("boot") and clock["boot"] == clocks[0].get("boot") for clock in clocks):
        return lambda step: float(step["clock"]["boot_s"])
    return lambda step: float(step["started_unix_s"])
