"""What a measurement used of power: energy while an arm answered, with and without what the idle machine takes.

The meter counts joules; a span is what was counted between two readings. Spans of an arm are added up, so
an arm that has its turn between those of another one is charged for its own turns alone. `idle` is the power
with the engines loaded and nobody asking: the part that is there whether speculation is on or off.

What stands behind the numbers: a GPU's counter covers the card (chip, memory, board), not the host's CPU,
fans and power supply; a meter at the plug reads more. What others do on the same GPUs is in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .nvml import Nvml, Unreadable
from .power_sources import NvmlCounter, NvmlPower, Rapl, Source

if TYPE_CHECKING:
    import aiohttp

    from drafthouse.bench.client import Endpoint
    from drafthouse.bench.result_types import EnergySpan, Power, PowerMeter, Request
    from drafthouse.bench.sweep.ladder_types import Beside

#: How long the idle power is looked at before an arm is asked anything, in seconds.
IDLE_S = 3.0


@dataclass(frozen=True)
class Reading:
    """The counters at one moment: seconds of ``time.monotonic``, joules of each device."""

    at_s: float
    joules: tuple[float, ...]


class Meter:
    """Reads the energy of this machine's devices; never raises. Without a source every reading is None."""

    def __init__(self, source: Source | None, why: str | None = None) -> None:
        self._source = source
        self.why = why
        self.idle_w: float | None = None

    @property
    def source(self) -> str | None:
        """What is read, in words; None where nothing can be."""
        return self._source.name if self._source else None

    def read(self) -> Reading | None:
        """The counters now. Takes well under a millisecond, so it may stand beside a request."""
        if self._source is None:
            return None
        try:
            joules = self._source.joules()
        except Unreadable as error:
            self._give_up(str(error))
            return None
        return Reading(time.monotonic(), joules)

    def measure_idle(self, seconds: float = IDLE_S) -> None:
        """Note the power of the machine as it stands. Sleeps ``seconds``, or not at all without a source.

        A counter that stands still for that long is none: no card that is on takes no power.
        """
        before = self.read()
        if before is None:
            return
        time.sleep(seconds)
        after = self.read()
        if after is None:
            return
        used = math.fsum(after.joules) - math.fsum(before.joules)
        if used <= 0:
            self._give_up(f"{self.source} does not move")
            return
        self.idle_w = used / (after.at_s - before.at_s)

    def facts(self) -> PowerMeter:
        """What a result says of the meter."""
        devices: list[str] = []
        if self._source:
            devices += self._source.devices
        return {"source": self.source, "why": self.why, "devices": devices, "idle_w": self.idle_w}

    def close(self) -> None:
        """Let go of the source; the meter then reads nothing."""
        if self._source:
            self._source.close()
            self._source, self.why = None, self.why or "the meter was closed"

    def _give_up(self, why: str) -> None:
        if self._source:
            self._source.close()
        self._source, self.why, self.idle_w = None, why, None


def open_meter(nvml: Nvml, root: Path = Path("/")) -> Meter:
    """A meter on the best source that is there: the counters of a run's GPUs, their power, the CPU's counter."""
    choices: list[Callable[[], Source]] = [lambda: Rapl(root)]
    reasons = [nvml.why] if nvml.why else []
    if nvml.gpus:
        choices = [lambda: NvmlCounter(nvml), lambda: NvmlPower(nvml), *choices]
    for choose in choices:
        try:
            return Meter(choose())
        except Unreadable as error:
            reasons.append(str(error))
    return Meter(None, "; ".join(reasons))


def spent(meter: Meter, before: Reading | None, after: Reading | None) -> EnergySpan | None:
    """What was used between two readings: seconds, energy_j, and idle_j (None: idle is not known)."""
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    seconds = after.at_s - before.at_s
    used = math.fsum(after.joules) - math.fsum(before.joules)
    if used < 0:
        return None  # the driver was loaded anew: the counters began again
    return {
        "seconds": round(seconds, 6),
        "energy_j": used,
        "idle_j": meter.idle_w * seconds if meter.idle_w is not None else None,
    }


class Tally:
    """Adds up the spans of one arm in one group of requests."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before: Reading | None = None
        self._began_s = 0.0
        self.spans: list[EnergySpan] = []
        self.turns: list[tuple[float, float]] = []
        """From when to when the arm answered, in seconds of `time.monotonic`."""
        self.lost = False

    def __enter__(self) -> Tally:
        """Begin a span."""
        self._before = self._meter.read()
        self._began_s = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.turns.append((self._began_s, time.monotonic()))
        span = spent(self._meter, self._before, self._meter.read())
        if span:
            self.spans.append(span)
        else:
            self.lost = True

    def total(self) -> EnergySpan | None:
        """All spans as one; None where one of them could not be read: half a sum is no sum."""
        if not self.spans or self.lost:
            return None
        summed = _summed(self.spans)
        return {**summed, "seconds": round(summed["seconds"], 6)}


def _summed(spans: Sequence[EnergySpan]) -> EnergySpan:
    """Spans as one: seconds and joules; ``idle_j`` is None where one of them does not know its own."""
    seconds = math.fsum(span["seconds"] for span in spans)
    energy = math.fsum(span["energy_j"] for span in spans)
    idle = [span["idle_j"] for span in spans if span["idle_j"] is not None]
    idle_j = math.fsum(idle) if len(idle) == len(spans) else None
    return {"seconds": seconds, "energy_j": energy, "idle_j": idle_j}


def power_of(spans: Sequence[EnergySpan | None], facts: PowerMeter | None, output_tokens: int | None = None) -> Power:
    """A result's `power` from spans and the meter's facts: watts, joules, seconds.

    mean_w = energy_j / seconds; energy_above_idle_j = energy_j - idle_w * seconds, the idle power being the
    one that was noted before each span; j_per_output_token is of all the energy. All numbers are None, and `why`
    says it, where a span is missing.
    """
    facts = facts or {"source": None, "why": "nothing was read", "devices": [], "idle_w": None}
    known = [span for span in spans if span]
    why, idle_w = facts["why"], facts["idle_w"]
    seconds = energy = mean_w = above_idle_j = j_per_output_token = None
    if known and len(known) == len(spans):
        summed = _summed(known)
        seconds, energy, idle_j = summed["seconds"], summed["energy_j"], summed["idle_j"]
        if seconds:
            mean_w = energy / seconds
        if idle_j is not None:
            above_idle_j = energy - idle_j
            idle_w = idle_j / seconds if seconds else idle_w
        if output_tokens:
            j_per_output_token = energy / output_tokens
    elif not why:
        why = "some readings are missing" if spans else "nothing was read"
    return {
        "source": facts["source"],
        "why": why,
        "devices": list(facts["devices"]),
        "gpus": len(facts["devices"]),
        "seconds": seconds,
        "energy_j": energy,
        "mean_w": mean_w,
        "idle_w": idle_w,
        "energy_above_idle_j": above_idle_j,
        "j_per_output_token": j_per_output_token,
    }


class PowerBeside:
    """Reads the meter before and after one step of the ladder; what it returns is laid over the step."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before: Reading | None = None
        self._after: Reading | None = None

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Note where the counters stand."""
        self._before = self._meter.read()

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Note where the counters stand when the last answer has ended."""
        self._after = self._meter.read()

    def report(self, requests: Sequence[Request], unfinished: int) -> Beside:
        """`power` of the step, with the output tokens of the same time; None where not all were counted."""
        power = power_of([spent(self._meter, self._before, self._after)], self._meter.facts())
        tokens, counted = 0, not unfinished
        for request in requests:
            tokens += request["output_tokens"] or 0
            # An answer that was broken off took energy for tokens that nobody counted.
            if request["output_tokens"] is None and request["chunks"]:
                counted = False
        return {"power": power | {"output_tokens": tokens if counted else None}}
