"""Sample the GPUs twice a second in a thread while requests are answered, and summarise each group and arm.

Readings before and after a group would show an idle GPU that already cools down. The driver's calls release Python's
lock (GIL), so the thread does not delay the client. If the calls are slow, the thread samples less often.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal

from .nvml import THROTTLE_REASONS, Gpu, Nvml

if TYPE_CHECKING:
    import aiohttp

    from drafthouse.bench.client import Endpoint
    from drafthouse.bench.machine_types import GpuMeasured, GpuReading
    from drafthouse.bench.result_types import Request
    from drafthouse.bench.sweep.ladder_types import StepReadings

#: Sampling interval, in seconds.
SAMPLE_S = 0.5
#: The largest share of the time that may be spent in the driver's calls.
_MOST_SHARE = 0.05

#: The figures of a reading that are numbers.
Number = Literal[
    "temperature_c", "power_w", "sm_clock_mhz", "memory_clock_mhz", "memory_used_bytes", "utilization_percent"
]
Turn = tuple[float, float]
"""Begin and end of a time in which an arm answered requests, in seconds of `time.monotonic`."""


class GpuSampler:
    """Samples the GPUs of a run in a thread, from its creation until `close`; without GPUs it does nothing."""

    def __init__(self, nvml: Nvml, every_s: float = SAMPLE_S) -> None:
        self._nvml = nvml
        self._every_s = every_s
        self._gpus = nvml.gpus
        # Each sample: its time in seconds of `time.monotonic`, and the reading of each GPU.
        self._samples: list[tuple[float, list[GpuReading]]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        if self._gpus:
            self._thread.start()

    def forget(self) -> None:
        """Drop all samples, which belong to an earlier group."""
        self._samples = []

    def summaries(self, turns: Sequence[Turn]) -> list[GpuMeasured]:
        """The summary of each GPU over the samples within these turns; figures are None if there is no sample."""
        samples = []
        for sampled_s, sample in self._samples:
            if any(began <= sampled_s <= ended for began, ended in turns):
                samples.append(sample)
        return [summary_of(gpu, [sample[index] for sample in samples]) for index, gpu in enumerate(self._gpus)]

    def close(self) -> None:
        """Stop the thread."""
        self._ended.set()
        if self._gpus:
            self._thread.join(timeout=2)

    def _run(self) -> None:
        """Sample until `close`; a sample's time is the middle of the driver's call."""
        wait_s = 0.0
        while not self._ended.wait(wait_s):
            began_s = time.monotonic()
            readings = self._nvml.readings()
            took_s = time.monotonic() - began_s
            self._samples.append((began_s + took_s / 2, readings))
            # After a call that took 0.1 s wait at least 2 s, so that the calls take at most _MOST_SHARE of the time.
            wait_s = max(self._every_s - took_s, took_s / _MOST_SHARE)


class GpuStepReader:
    """Summarises the GPUs over one step of a load sweep (`run.StepReader`)."""

    def __init__(self, sampler: GpuSampler) -> None:
        self._sampler = sampler
        self._began_s = self._ended_s = 0.0

    async def begin(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Record the time at which the step begins, and drop the samples of the one before."""
        self._sampler.forget()
        self._began_s = time.monotonic()

    async def end(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        """Record the time at which the last answer has ended."""
        self._ended_s = time.monotonic()

    def report(self, requests: Sequence[Request], unfinished: int) -> StepReadings:
        """The step's key `gpus`; {} without GPUs."""
        gpus = self._sampler.summaries([(self._began_s, self._ended_s)])
        return {"gpus": gpus} if gpus else {}


def summary_of(gpu: Gpu, readings: Sequence[GpuReading]) -> GpuMeasured:
    """The summary of a GPU's readings; a figure that none of them has is None.

    ``error`` is the driver's first error. ``throttled_share`` and ``reasons`` are fractions of those readings that have
    clock reasons.
    """

    def values_of(name: Number) -> list[float]:
        return [value for reading in readings if (value := reading[name]) is not None]

    def median_of(name: Number) -> float | None:
        values = values_of(name)
        return median(values) if values else None

    error = throttled_share = None
    reasons: list[list[str]] = []  # of each reading that has clock reasons; an empty list if nothing limits the clocks
    for reading in readings:
        if reading.get("clock_reasons") is not None:
            reasons.append(reading["clock_reasons"] or [])
        error = error or reading.get("error")
    if reasons:
        throttled_share = _share(reasons, THROTTLE_REASONS)
    names = dict.fromkeys(itertools.chain.from_iterable(reasons))
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "samples": len(readings),
        "sm_clock_median_mhz": median_of("sm_clock_mhz"),
        "sm_clock_min_mhz": min(values_of("sm_clock_mhz"), default=None),
        "memory_clock_median_mhz": median_of("memory_clock_mhz"),
        "temperature_max_c": max(values_of("temperature_c"), default=None),
        "power_median_w": median_of("power_w"),
        "utilization_median_percent": median_of("utilization_percent"),
        "memory_used_max_bytes": max(values_of("memory_used_bytes"), default=None),
        "throttled_share": throttled_share,
        "reasons": {name: _share(reasons, [name]) for name in names},
        "error": error or None,  # None, not "", is the absence of an error in a result
    }


def _share(reasons: Sequence[Sequence[str]], names: Collection[str]) -> float:
    """The fraction of the readings whose clock reasons include one of these names."""
    return round(sum(not set(names).isdisjoint(reading_reasons) for reading_reasons in reasons) / len(reasons), 4)
