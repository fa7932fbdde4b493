"""Types of the machine's part of a result: its state, its activity during a group of requests, disturbances."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired


class CpuFacts(TypedDict):
    """The CPU; None: not readable."""

    model: str | None
    cores: int | None  # of the machine, as the system counts them (hardware threads)
    cores_usable: int  # that this process may use
    clock_mean_mhz: float | None  # over the cores, as the next two
    clock_min_mhz: float | None
    clock_max_mhz: float | None
    temperature_c: float | None  # the hottest sensor
    load_1m: float | None  # load average of the last minute


class MemoryFacts(TypedDict):
    """The machine's memory in bytes; None: not readable."""

    total_bytes: int | None
    available_bytes: int | None  # for new processes, without swapping
    swap_used_bytes: int | None


class GpuReading(TypedDict):
    """The state of a GPU at one moment; None for unreadable values, ``error`` if the driver has lost the GPU.

    Files of earlier versions lack ``clock_reasons``.
    """

    temperature_c: float | None
    power_w: float | None
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    memory_used_bytes: int | None  # by all processes, without what the driver reserves
    memory_total_bytes: int | None
    utilization_percent: float | None  # share of the time in which the GPU computed anything
    clock_reasons: NotRequired[list[str] | None]  # why the clocks are as they are, by the names of `nvml.py`
    error: NotRequired[str]  # the driver's error when it lost the GPU


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

    index: int  # the driver's, as in nvidia-smi
    uuid: str
    name: str
    samples: int  # number of all samples
    sm_clock_median_mhz: float | None  # this and the figures below: None if no sample has it
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
    """A process that computes on a GPU, as the driver shows it."""

    gpu_uuid: str
    pid: int
    name: str  # "" if the driver does not tell it
    memory_used_bytes: float | None  # on this GPU


class MachineFacts(TypedDict, total=False):
    """The state of the machine at one moment (`machine_state.read_machine`)."""

    time: str  # ISO 8601 in UTC, to the second
    host: str
    kernel: str  # release of the operating system's kernel
    cpu: CpuFacts
    memory: MemoryFacts
    gpus: list[GpuFacts]  # those of the run; [] without
    gpu_processes: list[GpuProcess]  # all that compute on these GPUs


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
    busy_processes: list[BusyProcess]  # those of others, the busiest first


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
    running_before: int | None  # requests that ran or waited before ours were sent
    running_after: int | None  # requests that ran or waited after ours had ended


class ClockJump(Disturbance):
    """A jump of the machine's clocks (`foreign_traffic.clock_jump`)."""

    jump_s: float  # seconds by which the wall clock was set forward; below 0 backward, 0 if it was not set
    suspended_s: float  # seconds for which the machine was suspended


class GroupMachine(TypedDict):
    """The machine before and after a group, and its activity in between."""

    round: int
    group: str  # from `groups.group_key`
    before: MachineFacts
    after: MachineFacts
    between: Between
    clock: Disturbance | None  # a jump of its clocks; None: they agreed


class StepMachine(TypedDict):
    """The machine before and after a step, and around each of its groups."""

    before: MachineFacts
    after: MachineFacts
    groups: list[GroupMachine]
