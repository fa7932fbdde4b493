"""The state of the machine around a measurement: what else could explain a number.

Reads `/proc`, `/sys` and, where a run has GPUs, their driver (`nvml.py`). What a machine does not tell is None. Units
stand in the names.
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

#: A process above this share of one core counts as busy.
BUSY_PERCENT = 5.0


@dataclass(frozen=True)
class Process:
    """A running process: CPU seconds used since its start, and what tells it from a reused number."""

    name: str
    parent: int
    cpu_s: float
    start: int


@dataclass(frozen=True)
class MachineState:
    """The machine at one moment."""

    monotonic_s: float
    facts: MachineFacts
    """Plain data for the result."""
    cpu_ticks: dict[str, int] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    energy_j: float | None = None
    """The CPU package's energy counter, where it is readable."""


def read_machine(root: Path = Path("/"), nvml: Nvml | None = None) -> MachineState:
    """The machine's state now, with the GPUs of ``nvml``. Never raises.

    ``root`` is where `/proc` and `/sys` are found.
    """
    load = text_in(root / "proc/loadavg").split()
    memory = _key_values(root / "proc/meminfo")
    mhz = _mhz(root)
    clock_mean = clock_min = clock_max = swap_used = None
    if mhz:
        clock_mean, clock_min, clock_max = round(sum(mhz) / len(mhz), 1), min(mhz), max(mhz)
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
        facts["gpus"], facts["gpu_processes"] = nvml.facts(), nvml.processes()
    return MachineState(time.monotonic(), facts, _cpu_ticks(root), _processes(root), energy_j=_package_energy_j(root))


def read_cpu(root: Path = Path("/")) -> MachineState:
    """Only what the CPU and the processes do now: quick, for who looks often. Never raises."""
    return MachineState(time.monotonic(), {}, _cpu_ticks(root), _processes(root))


def between(before: MachineState, after: MachineState, own: Collection[int] = ()) -> Between:
    """What the machine did between two states.

    ``own`` are the processes that were meant to be busy (the engines, the client). Percentages of
    processes are of one core, those of the CPU of all cores. ``other_cpu_percent`` is what all the rest of
    the machine took, also processes that cannot be seen from inside a container.
    """
    seconds = after.monotonic_s - before.monotonic_s
    busy_percent, steal_percent = _cpu_percent(before.cpu_ticks, after.cpu_ticks)
    busy: list[BusyProcess] = []
    own_s = 0.0
    for number, process in after.processes.items():
        earlier = before.processes.get(number)
        used_s = process.cpu_s
        if earlier and earlier.start == process.start:
            used_s -= earlier.cpu_s
        if number in own:
            own_s += used_s
        elif seconds > 0 and 100 * used_s / seconds >= BUSY_PERCENT:
            busy.append({"pid": number, "name": process.name, "cpu_percent": round(100 * used_s / seconds, 1)})
    busy.sort(key=lambda process: -process["cpu_percent"])
    other_percent = None
    if busy_percent is not None and seconds > 0:
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
    """Busy and stolen time as percentages of all cores' ticks; None where nothing was counted."""
    ticks = {name: after[name] - count for name, count in before.items() if name in after}
    ticks_all = sum(ticks.values())
    if ticks_all <= 0:
        return None, None
    return 100 - 100 * ticks["idle"] / ticks_all, 100 * ticks.get("steal", 0) / ticks_all


def _package_power_w(before: MachineState, after: MachineState) -> float | None:
    seconds = after.monotonic_s - before.monotonic_s
    if before.energy_j is None or after.energy_j is None or seconds <= 0:
        return None
    used_j = after.energy_j - before.energy_j
    # The counter begins anew at its range.
    return used_j / seconds if used_j >= 0 else None


def engine_pids(ports: Iterable[int], processes: Mapping[int, Process], root: Path = Path("/")) -> set[int]:
    """The processes that listen on these TCP ports, and all their descendants.

    Only those whose files this user may see; an engine of another user stays unknown, and then stands
    among the busy processes by its name.
    """
    wanted = set(ports)
    sockets = {socket for _, port, socket in listeners(root / "proc") if port in wanted}
    found = {number for number in processes if _has_socket(root / f"proc/{number}/fd", sockets)}
    grown = True
    while grown:
        children = {number for number, process in processes.items() if process.parent in found} - found
        found |= children
        grown = bool(children)
    return found


def _key_values(path: Path) -> dict[str, int]:
    """`/proc/meminfo` in bytes."""
    found: dict[str, int] = {}
    for line in text_in(path).splitlines():
        key, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[key] = int(words[0])
            if words[1:] == ["kB"]:
                found[key] *= 1024
    return found


def _cpu_model(root: Path) -> str | None:
    for line in text_in(root / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _mhz(root: Path) -> list[float]:
    """Each core's clock: what the kernel set (cpufreq), else what the CPU says it runs at."""
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
    """The hottest reading of the CPU's own sensors."""
    files: list[Path] = []
    for folder in (root / "sys/class/hwmon").glob("hwmon*"):
        if text_in(folder / "name").strip() in {"coretemp", "k10temp", "zenpower", "cpu_thermal"}:
            files += folder.glob("temp*_input")
    for folder in (root / "sys/class/thermal").glob("thermal_zone*"):
        if text_in(folder / "type").strip() in {"x86_pkg_temp", "cpu-thermal", "cpu_thermal"}:
            files.append(folder / "temp")
    return max((number / 1000 for number in _whole_numbers(files)), default=None)


def _package_energy_j(root: Path) -> float | None:
    """The energy that all CPU packages have used, in joules (RAPL; readable by root only)."""
    counts = _whole_numbers((root / "sys/class/powercap").glob("intel-rapl:[0-9]/energy_uj"))
    return sum(counts) / 1e6 if counts else None


def _whole_numbers(files: Iterable[Path]) -> list[int]:
    """The numbers in files of `/sys`, each of which holds one; a file that holds none is left out."""
    texts = [text_in(path).strip() for path in files]
    return [int(text) for text in texts if text.isdigit()]


def _cpu_ticks(root: Path) -> dict[str, int]:
    """What all cores did since the start, in ticks: idle, steal (taken by other guests), busy."""
    words = text_in(root / "proc/stat").partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu":
        return {}
    user, nice, system, idle, wait, irq, soft, steal = map(int, words[1:9])
    return {"busy": user + nice + system + irq + soft, "idle": idle + wait, "steal": steal}


def _processes(root: Path) -> dict[int, Process]:
    found: dict[int, Process] = {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    for folder in (root / "proc").glob("[0-9]*"):
        # The name stands in brackets and may itself hold spaces and brackets (proc(5)).
        head, _, tail = text_in(folder / "stat").rpartition(")")
        words = tail.split()
        if len(words) > 19:
            cpu_s = (int(words[11]) + int(words[12])) * tick_s
            found[int(folder.name)] = Process(head.partition("(")[2], int(words[1]), cpu_s, int(words[19]))
    return found


def _has_socket(folder: Path, sockets: Collection[str]) -> bool:
    if not sockets:
        return False
    try:
        return any(str(path.readlink()) in sockets for path in folder.iterdir())
    except OSError:
        return False


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


# Other work than this, as a share of the whole machine's CPU, is told beside the verdict.
OTHER_CPU_PERCENT = 10.0
