"""Read the NVIDIA GPUs of a run through NVML, the library of the driver, and its Python package pynvml.

The library comes with the driver, also inside containers. Only this module imports pynvml, and only when GPUs are read.
If the package, the library or a GPU is missing, the GPU readings are absent, and everything else is measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..host.gpu_choice import choose_gpus

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GpuFacts, GpuProcess, GpuReading

# Bits of nvmlClocksEventReasons (nvml.h): why the clocks are as they are. Those of _THROTTLING are faults: too much
# heat or too little power. The power cap is no fault, because most GPUs run at their power limit under load.
_THROTTLING = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_HARMLESS = {0x02: "clocks set by the user", 0x04: "power cap", 0x10: "sync boost", 0x100: "display clocks"}
_REASONS = _THROTTLING | _HARMLESS
#: The clock reasons that count as throttling; everywhere in Drafthouse, a throttled GPU is one with such a reason.
THROTTLE_REASONS = frozenset(_THROTTLING.values())
_NO_STATE = 32  # NVML_PSTATE_UNKNOWN


class Unreadable(Exception):
    """A value that cannot be read on this machine; the text says why."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver shows."""

    index: int  # the driver's, as in nvidia-smi
    uuid: str
    name: str
    handle: object  # NVML's device handle


class Nvml:
    """An NVML session and the GPUs of a run. If ``gpus`` is empty, ``why`` is the reason."""

    def __init__(self, gpus: Sequence[Gpu] = (), why: str | None = None, library: Any = None) -> None:
        """``library`` is the module pynvml, initialised; it may be None only if there are no GPUs."""
        self.gpus = tuple(gpus)
        self.why = why
        self._library = library
        self._lost: dict[int, str] = {}  # by GPU index, the error with which the driver lost the GPU

    def energy_j(self) -> tuple[float, ...]:
        """Each GPU's energy in J since the driver was loaded; Volta and newer. Raises Unreadable."""
        return tuple(self._required(gpu, "nvmlDeviceGetTotalEnergyConsumption") / 1000 for gpu in self.gpus)

    def power_w(self) -> tuple[float, ...]:
        """Each GPU's power in W (on Ampere and newer the mean of the last second). Raises Unreadable."""
        return tuple(self._required(gpu, "nvmlDeviceGetPowerUsage") / 1000 for gpu in self.gpus)

    def readings(self) -> list[GpuReading]:
        """The current reading of each GPU: None for unreadable values, ``error`` if the driver has lost the GPU."""
        return [self._reading(gpu) for gpu in self.gpus]

    def facts(self) -> list[GpuFacts]:
        """The description and the current reading of each GPU. Never raises."""
        gpus: list[GpuFacts] = []
        for gpu, reading in zip(self.gpus, self.readings(), strict=True):
            p_state = self._call(gpu, "nvmlDeviceGetPerformanceState")
            # None: this driver does not tell the reasons. An empty list: it tells that nothing limits the clocks.
            reasons = reading["clock_reasons"]
            throttled_by = None if reasons is None else [reason for reason in reasons if reason in THROTTLE_REASONS]
            gpus.append(
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "uuid": gpu.uuid,
                    "driver_version": self._driver_version(),
                    "performance_state": None if p_state in (None, _NO_STATE) else f"P{p_state}",
                    "power_limit_w": self._call_watts(gpu, "nvmlDeviceGetPowerManagementLimit"),
                    "sm_clock_max_mhz": self._call(gpu, "nvmlDeviceGetMaxClockInfo", self._library.NVML_CLOCK_SM),
                    "throttled_by": throttled_by,
                    **reading,
                }
            )
        return gpus

    def processes(self) -> list[GpuProcess]:
        """The processes that compute on these GPUs; inside a container the driver may show none."""
        processes: list[GpuProcess] = []
        for gpu in self.gpus:
            for process in self._call(gpu, "nvmlDeviceGetComputeRunningProcesses") or []:
                processes.append(
                    {
                        "gpu_uuid": gpu.uuid,
                        "pid": process.pid,
                        "name": self._process_name(process.pid),
                        "memory_used_bytes": process.usedGpuMemory,
                    }
                )
        return processes

    def close(self) -> None:
        """End the session; ``gpus`` is empty afterwards. Without GPUs, `open_nvml` has already ended it."""
        if self._library and self.gpus:
            with suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
        self.gpus = ()

    def _reading(self, gpu: Gpu) -> GpuReading:
        """The current reading of a GPU, from `readings`."""
        library = self._library
        utilization = self._call(gpu, "nvmlDeviceGetUtilizationRates")
        # Version 2 of the call excludes memory reserved by the driver from `used`, as nvidia-smi does.
        memory = self._call(gpu, "nvmlDeviceGetMemoryInfo", library.nvmlMemory_v2)
        bits = self._call(gpu, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # the name of the call before driver branch 535
            bits = self._call(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons")
        clock_reasons = None if bits is None else [name for bit, name in _REASONS.items() if bits & bit]
        reading: GpuReading = {
            "temperature_c": self._call(gpu, "nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
            "power_w": self._call_watts(gpu, "nvmlDeviceGetPowerUsage"),
            "sm_clock_mhz": self._call(gpu, "nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM),
            "memory_clock_mhz": self._call(gpu, "nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM),
            "memory_used_bytes": memory and memory.used,
            "memory_total_bytes": memory and memory.total,
            "utilization_percent": utilization and utilization.gpu,
            "clock_reasons": clock_reasons,
        }
        if gpu.index in self._lost:
            reading["error"] = self._lost[gpu.index]
        return reading

    def _call(self, gpu: Gpu, name: str, *arguments: object) -> Any:
        """The result of an NVML call, or None if it fails. A GPU that the driver has lost is not read again."""
        if gpu.index in self._lost:
            return None
        try:
            return getattr(self._library, name)(gpu.handle, *arguments)
        except self._library.NVMLError as error:
            if error.value in (self._library.NVML_ERROR_GPU_IS_LOST, self._library.NVML_ERROR_RESET_REQUIRED):
                self._lost[gpu.index] = str(error)
            return None

    def _call_watts(self, gpu: Gpu, name: str) -> float | None:
        """The result in W of an NVML call that returns mW; None if it fails."""
        milliwatts = self._call(gpu, name)
        return None if milliwatts is None else milliwatts / 1000

    def _required(self, gpu: Gpu, name: str) -> int:
        """The result of an NVML call. Raises Unreadable if it fails."""
        try:
            return int(getattr(self._library, name)(gpu.handle))
        except self._library.NVMLError as error:
            raise Unreadable(f"{name} of GPU {gpu.index}: {error}") from error

    def _driver_version(self) -> str | None:
        """The driver's version; None if it does not tell it."""
        try:
            return str(self._library.nvmlSystemGetDriverVersion())
        except self._library.NVMLError:
            return None

    def _process_name(self, pid: int) -> str:
        try:
            return str(self._library.nvmlSystemGetProcessName(pid))
        except self._library.NVMLError:
            return ""


def open_nvml(selection: Sequence[str] = (), pids: Collection[int] = ()) -> Nvml:
    """A session with the GPUs that a run uses. Never raises; if it has no GPU, its ``why`` is the reason.

    The GPUs are, by the first of these that exists:

    - those that ``selection`` names, in the words of `drafthouse_gpus`
    - those that the environment variable CUDA_VISIBLE_DEVICES names
    - those on which the processes ``pids`` compute
    - all, because the driver hides these processes inside a container
    """
    try:
        import pynvml  # noqa: PLC0415 (optional: a machine without GPUs need not have it)
    except ImportError:
        return Nvml(why="no package nvidia-ml-py to read GPUs with")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Nvml(why=f"NVML: {error}")
    nvml = Nvml(library=pynvml)
    with suppress(pynvml.NVMLError):
        visible = dict(_visible_gpus(pynvml))
        indices, choice = choose_gpus({index: gpu.uuid for index, gpu in visible.items()}, selection)
        # If the choice names a GPU that is missing, none is read: a part of the GPUs gives a wrong energy.
        if not (choice and choice["wrong"]):
            nvml.gpus = tuple(visible[index] for index in indices)
        if choice is None:
            # Nothing names the GPUs: read those on which the engines compute, or all if the driver hides the processes.
            busy_uuids = {process["gpu_uuid"] for process in nvml.processes() if process["pid"] in pids}
            nvml.gpus = tuple(gpu for gpu in nvml.gpus if gpu.uuid in busy_uuids) or nvml.gpus
    if not nvml.gpus:
        nvml.why = "the NVIDIA driver does not show the GPUs of this run"
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return nvml


def _visible_gpus(library: Any) -> Iterator[tuple[int, Gpu]]:
    """Pairs of index and GPU for each GPU of the driver; one that it has lost is left out."""
    for index in range(library.nvmlDeviceGetCount()):
        with suppress(library.NVMLError):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            yield index, Gpu(index, library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle), handle)
