"""What the GPUs do while requests are answered: read twice a second beside them, and told for each group and arm.

A look before and after a group shows a GPU that cools down again already. The thread waits in the driver's calls, which
let others go on, and reads less often where a driver is slow.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal

from .nvml import SLOWED_BY, Gpu, Nvml

if TYPE_CHECKING:
    import aiohttp

    from drafthouse.bench.client import Endpoint
    from drafthouse.bench.machine_types import GpuMeasured, GpuReading
    from drafthouse.bench.result_types import Request
    from drafthouse.bench.sweep.ladder_types import Beside

#: How often the GPUs are read, in seconds.
SAMPLE_S = 0.5
#: No more than this share of the time goes by in reading them.
_MOST_SHARE = 0.05

Number = Literal[
    "temperature_c", "power_w", "sm_clock_mhz", "memory_clock_mhz", "memory_used_bytes", "utilization_percent"
]
Turn = tuple[float, float]
"""From when to when an arm answered, in seconds of `time.monotonic`."""


class GpuSampler:
    """Reads the GPUs of a run in a thread of its own, from now until it is closed; without GPUs it does nothing."""

    def __init__(self, nvml: Nvml, every_s: float = SAMPLE_S) -> None:
        self._nvml, self._every_s = nvml, every_s
        self._gpus = nvml.gpus
        self._samples: list[tuple[float, list[GpuReading]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        if self._gpus:
            self._thread.start()

    def forget(self) -> None:
        """Begin anew: what was read so far is of an earlier group."""
        self._samples = []

    def measured(self, turns: Sequence[Turn]) -> list[GpuMeasured]:
        """What each GPU did in these turns."""
        readings = []
        for at_s, of_gpus in self._samples:
            if any(began <= at_s <= ended for began, ended in turns):
                readings.append(of_gpus)
        return [measured(gpu, [of_gpus[place] for of_gpus in readings]) for place, gpu in enumerate(self._gpus)]

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._gpus:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            began_s = time.monotonic()
            readings = self._nvml.readings()
            took_s = time.monotonic() - began_s
            self._samples.append((began_s + took_s / 2, readings))
            wait_s = max(self._every_s - took_s, took_s / _MOST_SHARE)


class GpusBeside:
    """Tells of one step of the ladder what the GPUs did in it."""

    def __init__(self, sampler: GpuSampler) -> None:
        self._sampler = sampler
        self._began_s = self._ended_s = 0.0

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Note when the step begins."""
        self._sampler.forget()
        self._began_s = time.monotonic()

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Note when its last answer has ended."""
        self._ended_s = time.monotonic()

    def report(self, requests: Sequence[Request], unfinished: int) -> Beside:
        """`gpus` of the step; nothing where there are none."""
        found = self._sampler.measured([(self._began_s, self._ended_s)])
        return {"gpus": found} if found else {}


def measured(gpu: Gpu, readings: Sequence[GpuReading]) -> GpuMeasured:
    """What a GPU did, from its readings; a number is None where none of them has it."""

    def known(name: Number) -> list[float]:
        return [value for reading in readings if (value := reading[name]) is not None]

    def middle(name: Number) -> float | None:
        values = known(name)
        return median(values) if values else None

    error = throttled_share = None
    reasons: list[list[str]] = []
    for reading in readings:
        if reading.get("clock_reasons") is not None:
            reasons.append(reading["clock_reasons"] or [])
        error = error or reading.get("error")
    if reasons:
        throttled_share = _share(reasons, SLOWED_BY)
    names = dict.fromkeys(itertools.chain.from_iterable(reasons))
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "samples": len(readings),
        "sm_clock_median_mhz": middle("sm_clock_mhz"),
        "sm_clock_min_mhz": min(known("sm_clock_mhz"), default=None),
        "memory_clock_median_mhz": middle("memory_clock_mhz"),
        "temperature_max_c": max(known("temperature_c"), default=None),
        "power_median_w": middle("power_w"),
        "utilization_median_percent": middle("utilization_percent"),
        "memory_used_max_bytes": max(known("memory_used_bytes"), default=None),
        "throttled_share": throttled_share,
        "reasons": {name: _share(reasons, [name]) for name in names},
        "error": error or None,
    }


def _share(reasons: Sequence[Sequence[str]], names: Collection[str]) -> float:
    """The share of the readings that have one of these names among their reasons."""
    return round(sum(not set(names).isdisjoint(of_reading) for of_reading in reasons) / len(reasons), 4)
