"""Sources of energy readings: the GPUs' energy counters, the GPUs' power summed over time, or the CPU's counter.

Each source has counters of joules, one per device, that only increase. The energy used in a time is the difference of
two readings.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from ..core.files import text_in
from .nvml import Nvml, Unreadable

#: Sampling interval of the power, for GPUs without an energy counter, in seconds.
SAMPLE_S = 0.1


class Source(Protocol):
    """The interface of a source. A constructor raises Unreadable if the machine does not have the source."""

    @property
    def name(self) -> str:
        """The name of the source for people."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that are measured."""

    def joules(self) -> tuple[float, ...]:
        """Each device's energy since a fixed moment in the past, in J. Raises Unreadable."""

    def close(self) -> None:
        """End what the source began, such as a thread; it is not read afterwards."""


class NvmlCounter:
    """The GPUs' energy counters: exact over times that are longer than their resolution of 0.1 s."""

    name = "NVML's energy counter"

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._nvml.energy_j()  # raises Unreadable if a GPU has no counter
        self.devices = tuple(gpu.name for gpu in nvml.gpus)

    def joules(self) -> tuple[float, ...]:
        """The counters."""
        return self._nvml.energy_j()

    def close(self) -> None:
        """Do nothing: the NVML session belongs to the caller."""


class NvmlPower:
    """The GPUs' power times time, summed by a thread, for GPUs without an energy counter."""

    name = "NVML's power, added up"

    def __init__(self, nvml: Nvml) -> None:
        """Read the power once, which raises Unreadable if a GPU does not tell it, and start the thread."""
        self.devices = tuple(gpu.name for gpu in nvml.gpus)
        self._read = nvml.power_w
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._watts = self._read()
        self._at_s = time.monotonic()
        self._joules = [0.0] * len(self.devices)
        self._error: Unreadable | None = None
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)
        self._thread.start()

    def joules(self) -> tuple[float, ...]:
        """The energy since this source was opened, up to now. Raises Unreadable if a sample failed."""
        self._add()
        if self._error:
            raise self._error
        return tuple(self._joules)

    def close(self) -> None:
        """Stop the thread."""
        self._ended.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        """Add a sample every `SAMPLE_S` until `close` or until one fails."""
        while not self._ended.wait(SAMPLE_S) and self._error is None:
            self._add()

    def _add(self) -> None:
        """Add the energy since the last sample: the mean of both powers times the seconds between (trapezoid rule)."""
        with self._lock:
            try:
                watts = self._read()
            except Unreadable as error:
                self._error = error
                return
            now = time.monotonic()
            seconds = now - self._at_s
            for device, (before, after) in enumerate(zip(self._watts, watts, strict=True)):
                self._joules[device] += seconds * (before + after) / 2
            self._watts = watts
            self._at_s = now


class Rapl:
    """The energy counters of the CPU packages (RAPL, on Intel and AMD). On Linux only root may read them."""

    name = "the CPU packages' energy counter (RAPL)"

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
        if not self._files:
            raise Unreadable("no energy counter of the CPU (/sys/class/powercap)")
        self.devices = tuple(text_in(path.with_name("name")).strip() or path.parent.name for path in self._files)
        # By package: the count (in microjoules) after which it begins at 0 again, and how often it has done so.
        self._ranges = [int(text_in(path.with_name("max_energy_range_uj")) or 0) for path in self._files]
        self._wraps = [0] * len(self._files)
        self._last_counts = self._counts()

    def joules(self) -> tuple[float, ...]:
        """The counters, corrected for their wrap-around, which happens every few minutes at full power."""
        counts = self._counts()
        joules = []
        for index, (before, after) in enumerate(zip(self._last_counts, counts, strict=True)):
            self._wraps[index] += after < before
            joules.append((after + self._wraps[index] * self._ranges[index]) / 1e6)
        self._last_counts = counts
        return tuple(joules)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _counts(self) -> list[int]:
        """Each package's counter now, in microjoules. Raises Unreadable."""
        try:
            return [int(path.read_text("ascii")) for path in self._files]
        except (OSError, ValueError) as error:
            raise Unreadable("only root may read the CPU's energy counter") from error
