"""Measure the energy that the machine uses while an arm answers requests, with and without the idle power.

An arm is one of the compared servers, baseline or speculative. The meter counts joules, and a span is the
difference of two readings. The arms take turns, so only the spans of an arm's own turns are added up for it. The
idle power is that of loaded engines without requests, which both arms need.

A GPU's counter covers the card (chip, memory, board), not the host's CPU, fans and power supply; a meter at the
plug shows more. Other work on the same GPUs is included.
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
    from drafthouse.bench.sweep.ladder_types import StepReadings

#: Duration of the measurement of the idle power, before the first request, in seconds.
IDLE_S = 3.0


@dataclass(frozen=True)
class Reading:
    """The energy counters at one moment: ``at_s`` of ``time.monotonic``, and the joules of each device."""

    at_s: float
    joules: tuple[float, ...]


class Meter:
    """Reads a source's energy counters. Never raises; without a source readings are None, and ``why`` is the reason."""

    def __init__(self, source: Source | None, why: str | None = None) -> None:
        self._source = source
        self.why = why
        self.idle_w: float | None = None

    @property
    def source(self) -> str | None:
        """The source's name for people; None without a source."""
        return self._source.name if self._source else None

    def read(self) -> Reading | None:
        """The counters now. Takes well under a millisecond, so it may be called next to a timed request."""
        if self._source is None:
            return None
        try:
            joules = self._source.joules()
        except Unreadable as error:
            self._give_up(str(error))
            return None
        return Reading(time.monotonic(), joules)

    def measure_idle(self, seconds: float = IDLE_S) -> None:
        """Measure the idle power (W) by sleeping ``seconds``; returns at once without a source.

        A counter that does not move in that time is broken, because a device that is on uses power: it is dropped.
        """
        before = self.read()
        if before is None:
            return
        time.sleep(seconds)
        after = self.read()
        if after is None:
            return
        used_j = math.fsum(after.joules) - math.fsum(before.joules)
        if used_j <= 0:
            self._give_up(f"{self.source} does not move")
            return
        self.idle_w = used_j / (after.at_s - before.at_s)

    def facts(self) -> PowerMeter:
        """The meter's description for the result."""
        devices: list[str] = []
        if self._source:
            devices += self._source.devices
        return {"source": self.source, "why": self.why, "devices": devices, "idle_w": self.idle_w}

    def close(self) -> None:
        """Close the source; all later readings are None."""
        if self._source:
            self._source.close()
            self._source = None
            self.why = self.why or "the meter was closed"

    def _give_up(self, why: str) -> None:
        """Close the source for the reason ``why``; the idle power is then unknown."""
        if self._source:
            self._source.close()
        self._source = None
        self.why = why
        self.idle_w = None


def open_meter(nvml: Nvml, root: Path = Path("/")) -> Meter:
    """A meter on the best available source, or without one, with the reasons.

    The order is: the GPUs' energy counters, the GPUs' power, the CPU's energy counter.
    """
    openers: list[Callable[[], Source]] = [lambda: Rapl(root)]
    reasons = [nvml.why] if nvml.why else []
    if nvml.gpus:
        openers = [lambda: NvmlCounter(nvml), lambda: NvmlPower(nvml), *openers]
    for open_source in openers:
        try:
            return Meter(open_source())
        except Unreadable as error:
            reasons.append(str(error))
    return Meter(source=None, why="; ".join(reasons))


def spent(meter: Meter, before: Reading | None, after: Reading | None) -> EnergySpan | None:
    """The energy used between two readings.

    The result is None if a reading is missing, if no time has passed, or if the counters went back. ``idle_j`` is None
    without a measured idle power.
    """
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    seconds = after.at_s - before.at_s
    used_j = math.fsum(after.joules) - math.fsum(before.joules)
    if used_j < 0:
        return None  # the counters went back: the driver was reloaded
    return {
        "seconds": round(seconds, 6),
        "energy_j": used_j,
        "idle_j": meter.idle_w * seconds if meter.idle_w is not None else None,
    }


class Tally:
    """Adds up the energy of one arm over its turns in one group of requests; each ``with`` block is one turn."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before: Reading | None = None
        self._began_s = 0.0
        self.spans: list[EnergySpan] = []
        self.turns: list[tuple[float, float]] = []
        """Begin and end of each turn, in seconds of `time.monotonic`."""
        self.lost = False  # True once a turn's energy could not be read

    def __enter__(self) -> Tally:
        """Begin a turn."""
        self._before = self._meter.read()
        self._began_s = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        """End the turn; if its energy cannot be read, the whole total is lost."""
        self.turns.append((self._began_s, time.monotonic()))
        span = spent(self._meter, self._before, self._meter.read())
        if span:
            self.spans.append(span)
        else:
            self.lost = True

    def total(self) -> EnergySpan | None:
        """The sum of all spans; None if one of them could not be read, because a partial sum is too low."""
        if not self.spans or self.lost:
            return None
        summed = _summed(self.spans)
        return {**summed, "seconds": round(summed["seconds"], 6)}


def _summed(spans: Sequence[EnergySpan]) -> EnergySpan:
    """The sum of the spans; ``idle_j`` is None if one of them has none."""
    seconds = math.fsum(span["seconds"] for span in spans)
    energy = math.fsum(span["energy_j"] for span in spans)
    idle = [span["idle_j"] for span in spans if span["idle_j"] is not None]
    idle_j = math.fsum(idle) if len(idle) == len(spans) else None
    return {"seconds": seconds, "energy_j": energy, "idle_j": idle_j}


def power_of(spans: Sequence[EnergySpan | None], facts: PowerMeter | None, output_tokens: int | None = None) -> Power:
    """A result's `power` (W, J, s) from the spans and the meter's facts.

    mean_w = energy_j / seconds; energy_above_idle_j = energy_j - idle_w * seconds, with the idle power measured before
    the span; j_per_output_token = energy_j / output_tokens.

    If there is no span or one of them is None, all numbers except ``idle_w`` are None, and ``why`` is set. ``facts``
    None: the step had no meter. ``output_tokens`` None or 0: no energy per token.
    """
    facts = facts or {"source": None, "why": "nothing was read", "devices": [], "idle_w": None}
    measured = list(filter(None, spans))
    why = facts["why"]
    idle_w = facts["idle_w"]
    seconds = energy = mean_w = above_idle_j = j_per_output_token = None
    if measured and len(measured) == len(spans):
        summed = _summed(measured)
        seconds = summed["seconds"]
        energy = summed["energy_j"]
        idle_j = summed["idle_j"]
        if seconds:
            mean_w = energy / seconds
        if idle_j is not None:
            above_idle_j = energy - idle_j
            idle_w = idle_j / seconds if seconds else idle_w  # the mean over all spans, not that of the last step
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


class PowerStepReader:
    """Measures the energy of one step of a load sweep (`sweep/run.StepReader`)."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before: Reading | None = None
        self._after: Reading | None = None

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Read the counters before the first request."""
        self._before = self._meter.read()

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Read the counters after the last answer."""
        self._after = self._meter.read()

    def report(self, requests: Sequence[Request], unfinished: int) -> StepReadings:
        """The step's key `power`, with its output tokens; they are None if some were not counted.

        ``unfinished`` is the number of cancelled requests, whose tokens nobody counts.
        """
        power = power_of([spent(self._meter, self._before, self._after)], self._meter.facts())
        tokens = 0
        counted = not unfinished
        for request in requests:
            tokens += request["output_tokens"] or 0
            # A broken-off answer used energy for tokens that no usage counts.
            if request["output_tokens"] is None and request["chunks"]:
                counted = False
        return {"power": power | {"output_tokens": tokens if counted else None}}
