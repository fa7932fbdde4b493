"""Read the state of the machine before and after a measurement: other work, clocks, temperatures, memory.

The sources are `/proc`, `/sys` and, if the run has GPUs, their driver (`nvml.py`). Unreadable values are None. Names
end in the unit. "Own" processes are the engines and the client of the measurement; all others are "other" or foreign.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.files import text_in
from ..core.procfs import listeners

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import Between, BusyProcess, MachineFacts
    from drafthouse.bench.nvml import Nvml

#: A process that uses at least this percentage of one core counts as busy.
BUSY_PERCENT = 5.0
#: More CPU use by other processes than this percentage of all cores is reported with the verdict.
OTHER_CPU_PERCENT = 10.0


@dataclass(frozen=True)
class Process:
    """A process of this machine."""

    name: str
    parent: int  # pid
    cpu_s: float  # CPU seconds since its start
    start: int  # ticks since boot; with the pid it identifies the process, because pids are used again


@dataclass(frozen=True)
class MachineState:
    """The machine at one moment."""

    monotonic_s: float  # of `time.monotonic`
    facts: MachineFacts  # the part that is stored in the result; {} from `read_cpu`
    cpu_ticks: dict[str, int] = field(default_factory=dict)  # from `_cpu_ticks`
    processes: dict[int, Process] = field(default_factory=dict)  # by pid
    energy_j: float | None = None  # the energy counter of the CPU packages; None: not readable, or not read


def read_machine(root: Path = Path("/"), nvml: Nvml | None = None) -> MachineState:
    """The machine's state now, with the GPUs of ``nvml``. Never raises.

    ``root`` is the folder that contains `/proc` and `/sys`.
    """
    load = text_in(root / "proc/loadavg").split()
    memory = _meminfo_bytes(root / "proc/meminfo")
    clocks_mhz = _core_clocks_mhz(root)
    clock_mean = clock_min = clock_max = swap_used = None
    if clocks_mhz:
        clock_mean = round(sum(clocks_mhz) / len(clocks_mhz), 1)
        clock_min = min(clocks_mhz)
        clock_max = max(clocks_mhz)
    if "SwapTotal" in memory and "SwapFree" in memory:
        swap_used = memory["SwapTotal"] - memory["SwapFree"]
    facts: MachineFacts = {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu": {
            "model": _cpu_model(root),
            "cores": os.cpu_count(),
            "cores_usable": len(os.sched_getaffinity(0)),
            "clock_mean_mhz": clock_mean,
            "clock_min_mhz": clock_min,
            "clock_max_mhz": clock_max,
            "temperature_c": _cpu_temperature_c(root),
            "load_1m": float(load[0]) if load else None,
        },
        "memory": {
            "total_bytes": memory.get("MemTotal"),
            "available_bytes": memory.get("MemAvailable"),
            "swap_used_bytes": swap_used,
        },
        "gpus": [],
        "gpu_processes": [],
    }
    if nvml:
        facts["gpus"] = nvml.facts()
        facts["gpu_processes"] = nvml.processes()
    return MachineState(time.monotonic(), facts, _cpu_ticks(root), _processes(root), energy_j=_package_energy_j(root))


def read_cpu(root: Path = Path("/")) -> MachineState:
    """The state of CPU and processes only, without ``facts``: fast enough for polling. Never raises."""
    return MachineState(time.monotonic(), {}, _cpu_ticks(root), _processes(root))


def between(before: MachineState, after: MachineState, own_pids: Collection[int] = ()) -> Between:
    """The machine's activity between two states.

    ``own_pids`` are the pids of the measurement itself (engines, client). Percentages of processes are of one core,
    those of the CPU are of all cores. ``other_cpu_percent`` is the CPU use of everything else on the machine, including
    processes that are invisible from inside a container. Figures are None if the counters are unreadable.
    """
    seconds = after.monotonic_s - before.monotonic_s
    busy_percent, steal_percent = _cpu_percent(before.cpu_ticks, after.cpu_ticks)
    busy: list[BusyProcess] = []
    own_s = 0.0
    for pid, process in after.processes.items():
        earlier = before.processes.get(pid)
        used_s = process.cpu_s  # all of it counts if the process started in between
        if earlier and earlier.start == process.start:
            used_s -= earlier.cpu_s
        if pid in own_pids:
            own_s += used_s
        elif seconds > 0 and 100 * used_s / seconds >= BUSY_PERCENT:
            busy.append({"pid": pid, "name": process.name, "cpu_percent": round(100 * used_s / seconds, 1)})
    busy.sort(key=lambda process: -process["cpu_percent"])
    other_percent = None
    if busy_percent is not None and seconds > 0:
        # The totals and the processes are not read at the same instant, so the difference may be slightly below 0.
        other_percent = max(0.0, busy_percent - 100 * own_s / (seconds * (os.cpu_count() or 1)))
    return {
        "seconds": round(seconds, 3),
        "cpu_busy_percent": _rounded(busy_percent),
        "cpu_steal_percent": _rounded(steal_percent),
        "own_cpu_s": round(own_s, 2),
        "other_cpu_percent": _rounded(other_percent),
        "cpu_package_power_w": _rounded(_package_power_w(before, after)),
        "busy_processes": busy,
    }


def _cpu_percent(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[float | None, float | None]:
    """The busy and the stolen percentage of all cores' ticks; (None, None) if no tick was counted."""
    ticks = {name: after[name] - count for name, count in before.items() if name in after}
    ticks_all = sum(ticks.values())
    if ticks_all <= 0:
        return None, None
    return 100 - 100 * ticks["idle"] / ticks_all, 100 * ticks.get("steal", 0) / ticks_all


def _package_power_w(before: MachineState, after: MachineState) -> float | None:
    """The CPU packages' mean power in W between two states; None where it is unknown."""
    seconds = after.monotonic_s - before.monotonic_s
    if before.energy_j is None or after.energy_j is None or seconds <= 0:
        return None
    used_j = after.energy_j - before.energy_j
    # The counter wraps around at its range; the energy is unknown then.
    return used_j / seconds if used_j >= 0 else None


def engine_pids(ports: Iterable[int], processes: Mapping[int, Process], root: Path = Path("/")) -> set[int]:
    """The pids of the processes that listen on these TCP ports, and of all their descendants.

    Only processes whose open files this user may read are found. An engine of another user is not, and counts as a
    busy process that does not belong to the measurement.
    """
    wanted_ports = set(ports)
    sockets = {socket for _, port, socket in listeners(root / "proc") if port in wanted_ports}
    pids = {pid for pid in processes if _has_socket(root / f"proc/{pid}/fd", sockets)}
    found_more = True
    while found_more:  # one generation of descendants each time
        children = {pid for pid, process in processes.items() if process.parent in pids} - pids
        pids |= children
        found_more = bool(children)
    return pids


def _meminfo_bytes(path: Path) -> dict[str, int]:
    """The values of `/proc/meminfo` by name, in bytes."""
    values: dict[str, int] = {}
    for line in text_in(path).splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[key] = int(words[0])
            if words[1:] == ["kB"]:
                values[key] *= 1024
    return values


def _cpu_model(root: Path) -> str | None:
    for line in text_in(root / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _core_clocks_mhz(root: Path) -> list[float]:
    """Each core's clock in MHz: the one that the kernel set (cpufreq), else the one in `/proc/cpuinfo`."""
    clocks = []
    for path in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")):
        khz = text_in(path)
        if khz.strip().isdigit():
            clocks.append(float(khz) / 1000)
    if clocks:
        return clocks
    lines = text_in(root / "proc/cpuinfo").splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]


def _cpu_temperature_c(root: Path) -> float | None:
    """The highest temperature that the CPU's sensors report, in degrees Celsius."""
    files: list[Path] = []
    for folder in (root / "sys/class/hwmon").glob("hwmon*"):
        if text_in(folder / "name").strip() in {"coretemp", "k10temp", "zenpower", "cpu_thermal"}:
            files += folder.glob("temp*_input")
    for folder in (root / "sys/class/thermal").glob("thermal_zone*"):
        if text_in(folder / "type").strip() in {"x86_pkg_temp", "cpu-thermal", "cpu_thermal"}:
            files.append(folder / "temp")
    return max((number / 1000 for number in _whole_numbers(files)), default=None)


def _package_energy_j(root: Path) -> float | None:
    """The sum of the CPU packages' energy counters, in joules (RAPL; readable by root only)."""
    counts = _whole_numbers((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
    return sum(counts) / 1e6 if counts else None


def _whole_numbers(files: Iterable[Path]) -> list[int]:
    """The whole numbers in files of `/sys`, one per file; a file without a number is skipped."""
    texts = [text_in(path).strip() for path in files]
    return [int(text) for text in texts if text.isdigit()]


def _cpu_ticks(root: Path) -> dict[str, int]:
    """The ticks of all cores since boot: busy, idle, and steal (taken by other virtual machines); {} if unreadable.

    Waiting for I/O counts as idle: the core is free for other work meanwhile (proc(5), iowait).
    """
    fields = text_in(root / "proc/stat").partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu":
        return {}
    user, nice, system, idle, wait, irq, soft, steal = map(int, fields[1:9])
    return {"busy": user + nice + system + irq + soft, "idle": idle + wait, "steal": steal}


def _processes(root: Path) -> dict[int, Process]:
    """The processes by pid; one that ends while it is read is left out."""
    processes: dict[int, Process] = {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for folder in (root / "proc").glob("[0-9]*"):
        # The name is in brackets, and may itself contain spaces and brackets (proc(5)).
        beginning, _, tail = text_in(folder / "stat").rpartition(")")
        fields = tail.split()
        if len(fields) > 19:
            # fields[0] is field 3 of proc(5). Hence 1 is the parent, 11 and 12 user and system ticks, 19 the start.
            cpu_s = (int(fields[11]) + int(fields[12])) * tick_s
            processes[int(folder.name)] = Process(beginning.partition("(")[2], int(fields[1]), cpu_s, int(fields[19]))
    return processes


def _has_socket(folder: Path, sockets: Collection[str]) -> bool:
    """True if a process has one of the sockets open; ``folder`` is its `/proc/PID/fd`. False if it is not readable."""
    if not sockets:
        return False
    try:
        return any(str(path.readlink()) in sockets for path in folder.iterdir())
    except OSError:
        return False


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
