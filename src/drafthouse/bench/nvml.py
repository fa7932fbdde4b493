"""The NVIDIA GPUs of a run, as the driver's own library (NVML) tells of them through its package pynvml.

The library comes with the driver, also inside containers. pynvml is imported here alone, and only when it is asked:
without it, without the library or without a GPU there is nothing to read, and all the rest is measured as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..host.gpu_choice import choose_gpus

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import GpuFacts, GpuProcess, GpuReading

# Bits of nvmlClocksEventReasons (nvml.h): what keeps the clocks down for heat or for want of power, and what else holds
# them. Most GPUs run at their power limit while they work, which is no fault.
_SLOWING = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_REASONS = _SLOWING | {0x02: "clocks set by the user", 0x04: "power cap", 0x10: "sync boost", 0x100: "display clocks"}
#: A GPU whose clocks have one of these reasons is throttled.
SLOWED_BY = frozenset(_SLOWING.values())
_NO_STATE = 32  # NVML_PSTATE_UNKNOWN


class Unreadable(Exception):
    """A reading that this machine has not, with the reason as its text."""


@dataclass(frozen=True)
class Gpu:
    """A GPU by the driver's index, which nvidia-smi shows too."""

    index: int
    uuid: str
    name: str
    handle: object


class Nvml:
    """A session with the driver, and the GPUs of a run. Where there are none, ``why`` says the reason."""

    def __init__(self, gpus: Sequence[Gpu] = (), why: str | None = None, library: Any = None) -> None:
        self.gpus = tuple(gpus)
        self.why = why
        self._library = library
        self._lost: dict[int, str] = {}

    def energy_j(self) -> tuple[float, ...]:
        """Each GPU's energy since the driver was loaded; Volta and newer. Raises Unreadable."""
        return tuple(self._number(gpu, "nvmlDeviceGetTotalEnergyConsumption") / 1000 for gpu in self.gpus)

    def power_w(self) -> tuple[float, ...]:
        """Each GPU's power (averaged over a second by Ampere and newer). Raises Unreadable."""
        return tuple(self._number(gpu, "nvmlDeviceGetPowerUsage") / 1000 for gpu in self.gpus)

    def readings(self) -> list[GpuReading]:
        """What each GPU does at this moment; None for what it does not tell, ``error`` where it is lost."""
        return [self._reading(gpu) for gpu in self.gpus]

    def facts(self) -> list[GpuFacts]:
        """What each GPU is, and what it does at this moment. Never raises."""
        found: list[GpuFacts] = []
        for gpu, reading in zip(self.gpus, self.readings(), strict=True):
            reasons, state = reading["clock_reasons"], self._ask(gpu, "nvmlDeviceGetPerformanceState")
            slowed_by = None if reasons is None else [reason for reason in reasons if reason in SLOWED_BY]
            found.append(
                {
                    "index": gpu.index,
                    "name": gpu.name,
                    "uuid": gpu.uuid,
                    "driver_version": self._driver_version(),
                    "performance_state": None if state in (None, _NO_STATE) else f"P{state}",
                    "power_limit_w": self._ask_watts(gpu, "nvmlDeviceGetPowerManagementLimit"),
                    "sm_clock_max_mhz": self._ask(gpu, "nvmlDeviceGetMaxClockInfo", self._library.NVML_CLOCK_SM),
                    "throttled_by": slowed_by,
                    **reading,
                }
            )
        return found

    def processes(self) -> list[GpuProcess]:
        """The processes that compute on these GPUs, as far as the driver shows them here."""
        found: list[GpuProcess] = []
        for gpu in self.gpus:
            for process in self._ask(gpu, "nvmlDeviceGetComputeRunningProcesses") or []:
                found.append(
                    {
                        "gpu_uuid": gpu.uuid,
                        "pid": process.pid,
                        "name": self._process_name(process.pid),
                        "memory_used_bytes": process.usedGpuMemory,
                    }
                )
        return found

    def close(self) -> None:
        """End the session; there are no GPUs any more."""
        if self._library and self.gpus:
            with suppress(self._library.NVMLError):
                self._library.nvmlShutdown()
        self.gpus = ()

    def _reading(self, gpu: Gpu) -> GpuReading:
        library = self._library
        busy = self._ask(gpu, "nvmlDeviceGetUtilizationRates")
        # The second version leaves out what the driver keeps for itself, as nvidia-smi does.
        memory = self._ask(gpu, "nvmlDeviceGetMemoryInfo", library.nvmlMemory_v2)
        bits = self._ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # its name before branch 535
            bits = self._ask(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons")
        clock_reasons = None if bits is None else [name for bit, name in _REASONS.items() if bits & bit]
        reading: GpuReading = {
            "temperature_c": self._ask(gpu, "nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
            "power_w": self._ask_watts(gpu, "nvmlDeviceGetPowerUsage"),
            "sm_clock_mhz": self._ask(gpu, "nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM),
            "memory_clock_mhz": self._ask(gpu, "nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM),
            "memory_used_bytes": memory and memory.used,
            "memory_total_bytes": memory and memory.total,
            "utilization_percent": busy and busy.gpu,
            "clock_reasons": clock_reasons,
        }
        if gpu.index in self._lost:
            reading["error"] = self._lost[gpu.index]
        return reading

    def _ask(self, gpu: Gpu, name: str, *more: object) -> Any:
        """What a call of NVML returns, or None where it fails. A GPU that is lost is asked no more."""
        if gpu.index in self._lost:
            return None
        try:
            return getattr(self._library, name)(gpu.handle, *more)
        except self._library.NVMLError as error:
            if error.value in (self._library.NVML_ERROR_GPU_IS_LOST, self._library.NVML_ERROR_RESET_REQUIRED):
                self._lost[gpu.index] = str(error)
            return None

    def _ask_watts(self, gpu: Gpu, name: str) -> float | None:
        """What a call of NVML returns in milliwatts, in watts; None where it fails."""
        milliwatts = self._ask(gpu, name)
        return None if milliwatts is None else milliwatts / 1000

    def _number(self, gpu: Gpu, name: str) -> int:
        try:
            return int(getattr(self._library, name)(gpu.handle))
        except self._library.NVMLError as error:
            raise Unreadable(f"{name} of GPU {gpu.index}: {error}") from error

    def _driver_version(self) -> str | None:
        try:
            return str(self._library.nvmlSystemGetDriverVersion())
        except self._library.NVMLError:
            return None

    def _process_name(self, pid: int) -> str:
        try:
            return str(self._library.nvmlSystemGetProcessName(pid))
        except self._library.NVMLError:
            return ""


def open_nvml(asked: Sequence[str] = (), pids: Collection[int] = ()) -> Nvml:
    """A session with the GPUs that a run uses. Never raises: without any, its ``why`` says the reason.

    ``asked`` chooses, as words of `drafthouse_gpus`, or else CUDA_VISIBLE_DEVICES. Without a choice it is the GPUs on
    which the processes ``pids`` compute; where the driver shows none of these (from inside a container), all that it
    shows.
    """
    try:
        import pynvml  # noqa: PLC0415 (a machine without it has no GPU to be read)
    except ImportError:
        return Nvml(why="no package nvidia-ml-py to read GPUs with")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Nvml(why=f"NVML: {error}")
    nvml = Nvml(library=pynvml)
    with suppress(pynvml.NVMLError):
        found = dict(_listed(pynvml))
        ours, choice = choose_gpus({index: gpu.uuid for index, gpu in found.items()}, asked)
        # Half of the GPUs is half of the energy, which is no number.
        if not (choice and choice["wrong"]):
            nvml.gpus = tuple(found[index] for index in ours)
        if choice is None:
            used = {process["gpu_uuid"] for process in nvml.processes() if process["pid"] in pids}
            nvml.gpus = tuple(gpu for gpu in nvml.gpus if gpu.uuid in used) or nvml.gpus
    if not nvml.gpus:
        nvml.why = "the NVIDIA driver does not show the GPUs of this run"
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return nvml


def _listed(library: Any) -> Iterator[tuple[int, Gpu]]:
    """The driver's GPUs by their indices, but for those that are lost."""
    for index in range(library.nvmlDeviceGetCount()):
        with suppress(library.NVMLError):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            yield index, Gpu(index, library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle), handle)
