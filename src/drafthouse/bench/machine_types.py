"""The machine around a measurement as types: its state, what it did meanwhile, and what came in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing import NotRequired


class CpuFacts(TypedDict):
    """The CPU: clocks in MHz of its cores, and the load of the last minute."""

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
    """What a GPU does at a moment; None for what it does not tell. ``error``: the driver has lost it.

    ``clock_reasons`` are what keeps its clocks where they are, by the names of `nvml.py`.
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
    """A GPU and what it does at a moment, as its driver tells; None where it does not."""

    index: int
    name: str
    uuid: str
    driver_version: str | None
    performance_state: str | None
    power_limit_w: float | None
    sm_clock_max_mhz: float | None
    throttled_by: NotRequired[list[str] | None]


class GpuMeasured(TypedDict):
    """What a GPU did while an arm answered: of so many ``samples``, those of the turns of other arms left out.

    ``throttled_share`` is the share of them in which heat or want of power kept the clocks down; ``reasons`` has the
    share of each reason for a clock, its power limit (which is no fault) among them. ``error``: it was lost meanwhile.
    """

    index: int
    uuid: str
    name: str
    samples: int
    sm_clock_median_mhz: float | None
    sm_clock_min_mhz: float | None
    memory_clock_median_mhz: float | None
    temperature_max_c: float | None
    power_median_w: float | None
    utilization_median_percent: float | None
    memory_used_max_bytes: float | None
    throttled_share: float | None
    reasons: dict[str, float]
    error: str | None


class GpuProcess(TypedDict):
    """A process on a GPU."""

    gpu_uuid: str
    pid: int
    name: str
    memory_used_bytes: float | None


class MachineFacts(TypedDict, total=False):
    """The machine at a moment (`machine_state.read_machine`)."""

    time: str
    host: str
    kernel: str
    cpu: CpuFacts
    memory: MemoryFacts
    gpus: list[GpuFacts]
    gpu_processes: list[GpuProcess]


class BusyProcess(TypedDict):
    """Somebody else's process, and its share of one core."""

    pid: int
    name: str
    cpu_percent: float


class Between(TypedDict):
    """What the machine did between two states (`machine_state.between`)."""

    seconds: float
    cpu_busy_percent: float | None
    cpu_steal_percent: float | None
    own_cpu_s: float
    other_cpu_percent: float | None
    cpu_package_power_w: float | None
    busy_processes: list[BusyProcess]


class Waited(TypedDict):
    """How long other work was waited for, and whether it ended (`foreign_load.wait_for_quiet`)."""

    seconds: float
    quiet: bool
    other_cpu_percent: float | None
    busy: list[str]


class Disturbance(TypedDict):
    """Whether something that is not ours came in between, and the sentence that says so."""

    polluted: bool
    said: str | None
    miscounted: NotRequired[bool]


class Foreign(Disturbance):
    """What a server did beside our requests; None where it does not count that (`foreign_traffic.foreign`)."""

    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    running_before: int | None
    running_after: int | None


class ClockJump(Disturbance):
    """How far the wall clock was set, and how long the machine stood still, in seconds."""

    jump_s: float
    suspended_s: float


class GroupMachine(TypedDict):
    """The machine around a group, and what was busy meanwhile."""

    round: int
    group: str
    before: MachineFacts
    after: MachineFacts
    between: Between
    clock: Disturbance | None


class StepMachine(TypedDict):
    """The machine around a step and its groups."""

    before: MachineFacts
    after: MachineFacts
    groups: list[GroupMachine]
