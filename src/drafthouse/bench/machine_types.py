"""Types of the machine's part of a result: its state, its activity during a group of requests, disturbances."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired


class CpuFacts(TypedDict):
    """The CPU; clocks are over its cores, ``load_1m`` is the load average of the last minute. None: not readable."""

    model: str | None
    cores: int | None
    cores_usable: int
    clock_mean_mhz: float | None
    clock_min_mhz: float | None
    clock_max_mhz: float | None
    temperature_c: float | None
    load_1m: float | None


class MemoryFacts(TypedDict):
    """The machine's memory in bytes."""

    total_bytes: int | None
    available_bytes: int | None
    swap_used_bytes: int | None


class GpuReading(TypedDict):
    """The state of a GPU at one moment; None for unreadable values, ``error`` if the driver has lost the GPU.

    ``clock_reasons`` are the driver's reasons for the current clocks, by the names of `nvml.py`.
    """

    temperature_c: float | None
    power_w: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    utilization_percent: float | None
    clock_reasons: NotRequired[list[str] | None]
    error: NotRequired[str]


class GpuFacts(GpuReading):
    """A GPU's description and its state at one moment; None for values that cannot be read."""

    index: int  # the driver's, as in nvidia-smi
    name: str
    uuid: str
    driver_version: str | None
    performance_state: str | None  # P0 (fastest) to P15
    power_limit_w: float | None
    sm_clock_max_mhz: float | None
    throttled_by: NotRequired[list[str] | None]  # the clock reasons that are faults (`nvml.THROTTLE_REASONS`)


class GpuMeasured(TypedDict):
    """The summary of a GPU over the samples taken during the turns of one arm (one of the servers compared).

    Fractions are of the samples in which the driver told its clock reasons; None if it never did.
    """

    index: int
    uuid: str
    name: str
    samples: int  # number of all samples
    sm_clock_median_mhz: float | None
    sm_clock_min_mhz: float | None
    memory_clock_median_mhz: float | None
    temperature_max_c: float | None
    power_median_w: float | None
    utilization_median_percent: float | None
    memory_used_max_bytes: float | None
    throttled_share: float | None  # the fraction in which heat or lack of power lowered the clocks
    reasons: dict[str, float]  # the fraction of each clock reason, also of the power cap, which is no fault
    error: str | None  # the driver's error when it lost the GPU


class GpuProcess(TypedDict):
    """A process that computes on a GPU."""

    gpu_uuid: str
    pid: int
    name: str
    memory_used_bytes: float | None


class MachineFacts(TypedDict, total=False):
    """The state of the machine at one moment (`machine_state.read_machine`)."""

    time: str
    host: str
    kernel: str
    cpu: CpuFacts
    memory: MemoryFacts
    gpus: list[GpuFacts]
    gpu_processes: list[GpuProcess]


class BusyProcess(TypedDict):
    """A process that does not belong to the measurement; ``cpu_percent`` is of one core."""

    pid: int
    name: str
    cpu_percent: float


class Between(TypedDict):
    """The machine's activity between two states (`machine_state.between`); None: not readable."""

    seconds: float
    cpu_busy_percent: float | None  # of all cores, as the next one
    cpu_steal_percent: float | None  # taken by other virtual machines
    own_cpu_s: float  # CPU time of the measurement's processes
    other_cpu_percent: float | None  # of all cores, by everything else
    cpu_package_power_w: float | None
    busy_processes: list[BusyProcess]


class Waited(TypedDict):
    """The wait for other processes to end (`foreign_load.wait_for_quiet`)."""

    seconds: float
    quiet: bool  # False if the wait ran out
    other_cpu_percent: float | None  # at the end of the wait
    busy: list[str]  # names of the busiest processes then


class Disturbance(TypedDict):
    """A disturbance of a measurement."""

    polluted: bool  # True if the times are invalid
    said: str | None  # a sentence for people
    miscounted: NotRequired[bool]  # True if the server's usage is wrong


class Foreign(Disturbance):
    """A server's work for other clients; None where it has no counter (`foreign_traffic.foreign_work`)."""

    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    running_before: int | None
    running_after: int | None


class ClockJump(Disturbance):
    """The seconds by which the wall clock was set, and for which the machine was suspended."""

    jump_s: float
    suspended_s: float


class GroupMachine(TypedDict):
    """The machine before and after a group, its activity in between, and a jump of its clock."""

    round: int
    group: str
    before: MachineFacts
    after: MachineFacts
    between: Between
    clock: Disturbance | None


class StepMachine(TypedDict):
    """The machine before and after a step, and around each of its groups."""

    before: MachineFacts
    after: MachineFacts
    groups: list[GroupMachine]
