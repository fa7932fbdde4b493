"""Where the energy that a machine uses can be read: its GPUs' counters, their power, or the CPU's own counter.

A source counts joules up for each device, so that what was used between two moments is a difference.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Protocol

from ..core.files import text_in
from .nvml import Nvml, Unreadable

#: How often power is read where there is no counter of energy, in seconds.
SAMPLE_S = 0.1


class Source(Protocol):
    """Something that counts energy."""

    @property
    def name(self) -> str:
        """What is read, in words."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Whose energy it is."""

    def joules(self) -> tuple[float, ...]:
        """What each device has used since some moment in the past; raises Unreadable."""

    def close(self) -> None:
        """Let go of what it holds."""


class NvmlCounter:
    """The GPUs' own counters of energy: exact over any span that is longer than their 0.1 s of resolution."""

    name = "NVML's energy counter"

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._nvml.energy_j()  # a GPU without the counter says so here
        self.devices = tuple(gpu.name for gpu in nvml.gpus)

    def joules(self) -> tuple[float, ...]:
        """The counters."""
        return self._nvml.energy_j()

    def close(self) -> None:
        """Nothing is held."""


class NvmlPower:
    """The GPUs' power, read again and again where they have no counter: a thread adds up watts times seconds."""

    name = "NVML's power, added up"

    def __init__(self, nvml: Nvml) -> None:
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
        """The energy since this source was opened, up to this moment."""
        self._add()
        if self._error:
            raise self._error
        return tuple(self._joules)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S) and self._error is None:
            self._add()

    def _add(self) -> None:
        """Add what was used since the last reading: the mean of both readings times the time between (trapezoid)."""
        with self._lock:
            try:
                watts = self._read()
            except Unreadable as error:
                self._error = error
                return
            now = time.monotonic()
            seconds = now - self._at_s
            for place, (before, after) in enumerate(zip(self._watts, watts, strict=True)):
                self._joules[place] += seconds * (before + after) / 2
            self._watts, self._at_s = watts, now


class Rapl:
    """The CPU packages' counter of energy (Intel's RAPL, AMD speaks it too). Linux lets root alone read it."""

    name = "the CPU packages' energy counter (RAPL)"

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
        if not self._files:
            raise Unreadable("no energy counter of the CPU (/sys/class/powercap)")
        self.devices = tuple(text_in(path.with_name("name")).strip() or path.parent.name for path in self._files)
        self._range = [int(text_in(path.with_name("max_energy_range_uj")) or 0) for path in self._files]
        self._last = self._counts()
        self._turns = [0] * len(self._files)

    def joules(self) -> tuple[float, ...]:
        """The counters, which begin anew at their range (some minutes at full power) counted on."""
        counts = self._counts()
        joules = []
        for place, (before, after) in enumerate(zip(self._last, counts, strict=True)):
            self._turns[place] += after < before
            joules.append((after + self._turns[place] * self._range[place]) / 1e6)
        self._last = counts
        return tuple(joules)

    def close(self) -> None:
        """Nothing is held."""

    def _counts(self) -> list[int]:
        try:
            return [int(path.read_text("ascii")) for path in self._files]
        except (OSError, ValueError) as error:
            raise Unreadable("only root may read the CPU's energy counter") from error
