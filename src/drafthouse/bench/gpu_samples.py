"""What the GPUs do while requests are answered: read twice a second beside them, and told for each group and arm.

A look before and after a group shows a GPU that cools down again already. The thread waits in the driver's calls, which
let others go on, and reads less often where a driver is slow.
"""

from __future__ import annotations

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
        readings = [one for at_s, one in self._samples if any(began <= at_s <= ended for began, ended in turns)]
        return [measured(gpu, [one[place] for one in readings]) for place, gpu in enumerate(self._gpus)]

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

    def told(name: Number) -> list[float]:
        return [value for one in readings if (value := one[name]) is not None]

    def middle(name: Number) -> float | None:
        return median(values) if (values := told(name)) else None

    known = [reasons for one in readings if (reasons := one.get("clock_reasons")) is not None]
    names = dict.fromkeys(name for reasons in known for name in reasons)
    errors = [error for reading in readings if (error := reading.get("error"))]
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "samples": len(readings),
        "sm_clock_median_mhz": middle("sm_clock_mhz"),
        "sm_clock_min_mhz": min(told("sm_clock_mhz"), default=None),
        "memory_clock_median_mhz": middle("memory_clock_mhz"),
        "temperature_max_c": max(told("temperature_c"), default=None),
        "power_median_w": middle("power_w"),
        "utilization_median_percent": middle("utilization_percent"),
        "memory_used_max_bytes": max(told("memory_used_bytes"), default=None),
        "throttled_share": _share(known, SLOWED_BY) if known else None,
        "reasons": {name: _share(known, [name]) for name in names},
        "error": errors[0] if errors else None,
    }


def _share(known: Sequence[Sequence[str]], names: Collection[str]) -> float:
    return round(sum(any(name in names for name in reasons) for reasons in known) / len(known), 4)
