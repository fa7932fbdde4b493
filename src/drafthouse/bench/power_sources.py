"""Where the energy that a machine uses can be read: NVIDIA's library, nvidia-smi, or the CPU's own counter.

A source counts joules up for each device, so that what was used between two moments is a difference.
Standard library only: NVML is spoken to through ctypes, as its package for Python is one more thing to
install on a box that has the library anyway (it comes with the driver, also inside containers).
"""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

LIBRARY = "libnvidia-ml.so.1"
#: How often power is read where there is no counter of energy, in seconds.
SAMPLE_S = 0.1
#: How long nvidia-smi may take to its first line.
FIRST_LINE_S = 10.0

_NVML_OK = 0
_NAME_BYTES = 96


class Unreadable(Exception):
    """A source that this machine has not, with the reason as its text."""


class Source(Protocol):
    """Something that counts energy."""

    @property
    def name(self) -> str:
        """What is read, in words."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Whose energy it is."""

    def joules(self) -> tuple[float, ...]:
        """Return what each device has used since some moment in the past; raises Unreadable."""

    def close(self) -> None:
        """Let go of library, thread or process."""


class Nvml:
    """NVIDIA's management library: the energy counter of each GPU, and its power."""

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise Unreadable(f"no NVIDIA driver's library ({library})") from error
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._handles: list[ctypes.c_void_p] = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            self._handles.append(handle)
        if not self._handles:
            raise Unreadable("the NVIDIA driver shows no GPU")
        self.devices = tuple(self._name(handle) for handle in self._handles)

    def energy_j(self) -> tuple[float, ...]:
        """Return each GPU's energy since the driver was loaded (millijoules in NVML); Volta and newer."""
        found = []
        for handle in self._handles:
            value = ctypes.c_ulonglong()
            self._call("nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(value))
            found.append(value.value / 1000)
        return tuple(found)

    def power_w(self) -> tuple[float, ...]:
        """Return each GPU's power (milliwatts in NVML; averaged over a second by Ampere and newer)."""
        found = []
        for handle in self._handles:
            value = ctypes.c_uint()
            self._call("nvmlDeviceGetPowerUsage", handle, ctypes.byref(value))
            found.append(value.value / 1000)
        return tuple(found)

    def close(self) -> None:
        """End the session with the driver."""
        with suppress(Unreadable):
            self._call("nvmlShutdown")

    def _name(self, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        self._call("nvmlDeviceGetName", handle, text, ctypes.c_uint(_NAME_BYTES))
        return text.value.decode("utf-8", "replace")

    def _call(self, name: str, *arguments: object) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError as error:
            raise Unreadable(f"the driver's library has no {name}") from error
        if code != _NVML_OK:
            raise Unreadable(f"{name} failed with NVML's code {code}")


class NvmlCounter:
    """The GPUs' own counters of energy: exact over any span that is longer than their 0.1 s of resolution."""

    name = "NVML's energy counter"

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._nvml.energy_j()  # a GPU without the counter says so here
        self.devices = nvml.devices

    def joules(self) -> tuple[float, ...]:
        """Return the counters."""
        return self._nvml.energy_j()

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.close()


class Integrated:
    """Energy from power that is read again and again: a thread adds up watts times seconds."""

    def __init__(
        self, name: str, devices: Sequence[str], read: Callable[[], tuple[float, ...]], let_go: Callable[[], None]
    ) -> None:
        self.name, self.devices = name, tuple(devices)
        self._read, self._let_go = read, let_go
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._watts = read()
        self._at_s = time.monotonic()
        self._joules = [0.0] * len(self.devices)
        self._error: Unreadable | None = None
        self._thread = threading.Thread(target=self._run, name="power", daemon=True)
        self._thread.start()

    def joules(self) -> tuple[float, ...]:
        """Return the energy since this source was opened, up to this moment."""
        self._add()
        if self._error:
            raise self._error
        return tuple(self._joules)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join(timeout=2)
        self._let_go()

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


def nvml_power(nvml: Nvml) -> Integrated:
    """Return a source for GPUs without a counter of energy."""
    return Integrated("NVML's power, added up", nvml.devices, nvml.power_w, nvml.close)


class _Smi:
    """A running nvidia-smi that prints the GPUs' power, a line a GPU, several times a second."""

    def __init__(self, program: str) -> None:
        words = [program, "--query-gpu=index,name,power.draw", "--format=csv,noheader,nounits", "-lms"]
        try:
            self._process = subprocess.Popen(
                [*words, str(int(SAMPLE_S * 1000))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise Unreadable("no nvidia-smi") from error
        self.names: dict[int, str] = {}
        self._watts: dict[int, float] = {}
        self._first = threading.Event()
        threading.Thread(target=self._follow, name="nvidia-smi", daemon=True).start()
        if not self._first.wait(FIRST_LINE_S) or not self._watts:
            self.close()
            raise Unreadable("nvidia-smi tells no power")

    def power_w(self) -> tuple[float, ...]:
        """Return the last reading of each GPU."""
        if self._process.poll() is not None:
            raise Unreadable("nvidia-smi ended")
        return tuple(self._watts[index] for index in sorted(self._watts))

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)

    def _follow(self) -> None:
        assert self._process.stdout is not None
        heard: set[str] = set()
        for line in self._process.stdout:
            index, _, rest = (part.strip() for part in line.partition(","))
            name, _, watts = (part.strip() for part in rest.rpartition(","))
            # A GPU that is heard again says that all of them were.
            if index in heard:
                self._first.set()
            heard.add(index)
            try:
                number, value = int(index), float(watts)
            except ValueError:
                continue  # `[N/A]`: this GPU tells no power
            self.names[number] = name
            self._watts[number] = value
        self._first.set()


def smi_power(program: str = "nvidia-smi") -> Integrated:
    """Return a source where the library cannot be loaded and the program can be run."""
    smi = _Smi(program)
    names = [smi.names[index] for index in sorted(smi.names)]
    return Integrated("nvidia-smi's power, added up", names, smi.power_w, smi.close)


class Rapl:
    """The CPU packages' counter of energy (Intel's RAPL, AMD speaks it too). Linux lets root alone read it."""

    name = "the CPU packages' energy counter (RAPL)"

    def __init__(self, root: Path = Path("/")) -> None:
        self._files = sorted((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
        if not self._files:
            raise Unreadable("no energy counter of the CPU (/sys/class/powercap)")
        self.devices = tuple(_text(path.with_name("name")) or path.parent.name for path in self._files)
        self._range = [int(_text(path.with_name("max_energy_range_uj")) or 0) for path in self._files]
        self._last = self._counts()
        self._turns = [0] * len(self._files)

    def joules(self) -> tuple[float, ...]:
        """Return the counters, which begin anew at their range (some minutes at full power) counted on."""
        counts = self._counts()
        for place, (before, after) in enumerate(zip(self._last, counts, strict=True)):
            self._turns[place] += after < before
        self._last = counts
        return tuple(
            (count + turns * span) / 1e6 for count, turns, span in zip(counts, self._turns, self._range, strict=True)
        )

    def close(self) -> None:
        """Nothing is held."""

    def _counts(self) -> list[int]:
        try:
            return [int(path.read_text("ascii")) for path in self._files]
        except (OSError, ValueError) as error:
            raise Unreadable("the CPU's energy counter may be read by root alone") from error


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
