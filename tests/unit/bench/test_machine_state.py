"""The machine's state: of this machine for real, of others from what their files and tools say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.machine_state import (
    MachineState,
    Process,
    between,
    engine_pids,
    read_machine,
)

pytestmark = pytest.mark.processes

SPIN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


def test_this_machine() -> None:
    facts: Any = read_machine().facts
    assert facts["cpu"]["cores_usable"] >= 1
    assert facts["cpu"]["load_1m"] >= 0
    assert 0 < facts["memory"]["available_bytes"] <= facts["memory"]["total_bytes"]
    assert facts["memory"]["swap_used_bytes"] >= 0


def test_a_busy_neighbour_is_named_and_our_own_work_is_not() -> None:
    before, began = read_machine(), time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", SPIN.format(0.3) + "print(1, flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as neighbour:
        assert neighbour.stdout is not None
        neighbour.stdout.readline()
        after, took = read_machine(), time.monotonic() - began
        busy = {process["pid"]: process for process in between(before, after)["busy_processes"]}
        own = between(before, after, {neighbour.pid})
        neighbour.communicate("\n")
    # Nearly all of its 0.3 s; on a machine that stood still meanwhile that is too little to be named.
    assert took > 6 or busy[neighbour.pid]["cpu_percent"] > 0.8 * 30 / took
    assert neighbour.pid not in {process["pid"] for process in own["busy_processes"]}
    assert own["own_cpu_s"] >= 0.25


def state(
    seconds: float, ticks: tuple[int, int, int] = (0, 0, 0), energy_j: float | None = None, **used_s: float
) -> MachineState:
    names = dict(zip(("busy", "idle", "steal"), ticks, strict=True))
    processes = {number: Process(name, 1, cpu_s, number) for number, (name, cpu_s) in enumerate(used_s.items(), 10)}
    return MachineState(seconds, {}, names, processes, energy_j)


def test_what_happened_between_two_states() -> None:
    got = between(
        state(0, (100, 100, 0), 50.0, engine=1, video=2),
        state(10, (400, 700, 100), 1050.0, engine=9, video=4),
        {10},
    )
    assert got["cpu_busy_percent"] == 40.0
    assert got["cpu_steal_percent"] == 10.0
    assert got["cpu_package_power_w"] == 100.0
    assert got["own_cpu_s"] == 8.0
    assert got["other_cpu_percent"] == pytest.approx(max(40 - 80 / (os.cpu_count() or 1), 0), abs=0.1)
    assert got["busy_processes"] == [{"pid": 11, "name": "video", "cpu_percent": 20.0}]


def test_a_reused_process_number_is_not_the_old_process() -> None:
    before, after = state(0, old=100), state(10, new=3)
    after.processes[10] = Process("new", 1, 3, 99)
    assert between(before, after)["busy_processes"] == [{"pid": 10, "name": "new", "cpu_percent": 30.0}]


def test_nothing_known_is_none_and_no_error(tmp_path: Path) -> None:
    got = read_machine(tmp_path)
    assert got.facts["memory"] == {"total_bytes": None, "available_bytes": None, "swap_used_bytes": None}
    assert (
        got.facts["cpu"]["clock_mean_mhz"] is got.facts["cpu"]["temperature_c"] is got.facts["cpu"]["load_1m"] is None
    )
    assert between(got, got)["cpu_busy_percent"] is None


def test_sensors(tmp_path: Path) -> None:
    for path, text in {
        "proc/loadavg": "1.50 0.9 0.5 2/99 4711\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\nA: 0\n",
        "proc/cpuinfo": "model name\t: A CPU\ncpu MHz\t\t: 1000.5\n",
        "proc/stat": "cpu  10 0 10 70 5 1 1 3 0 0\n",
        "proc/77/stat": "77 (odd) name)) S 1 77 77 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 4242 0 0\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000\n",
        "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000\n",
        "sys/class/hwmon/hwmon0/name": "k10temp\n",
        "sys/class/hwmon/hwmon0/temp1_input": "61500\n",
        "sys/class/hwmon/hwmon1/name": "nvme\n",
        "sys/class/hwmon/hwmon1/temp1_input": "90000\n",
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone0/temp": "60000\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "5000000\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    got = read_machine(tmp_path)
    assert got.facts["cpu"]["model"] == "A CPU"
    assert (got.facts["cpu"]["clock_min_mhz"], got.facts["cpu"]["clock_max_mhz"]) == (2000, 3000)
    assert got.facts["cpu"]["temperature_c"] == 61.5
    assert got.facts["memory"] == {
        "total_bytes": 1024000,
        "available_bytes": 409600,
        "swap_used_bytes": 30720,
    }
    assert got.cpu_ticks == {"busy": 22, "idle": 75, "steal": 3}
    assert got.processes == {77: Process("odd) name)", 1, 300 / os.sysconf("SC_CLK_TCK"), 4242)}
    assert got.energy_j == 5.0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_process_behind_a_port_and_its_children(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    program = (
        "import socket, subprocess, sys\n"
        f"s = socket.socket({int(family)}); s.bind(({address!r}, 0)); s.listen()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(s.getsockname()[1], child.pid, flush=True)\n"
        "input()\nchild.communicate(b'\\n')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as engine:
        assert engine.stdout is not None
        port, child = map(int, engine.stdout.readline().split())
        found = engine_pids([port], read_machine().processes)
        nobody = engine_pids([], read_machine().processes)
        engine.communicate("\n")
    assert found == {engine.pid, child}
    assert nobody == set()
