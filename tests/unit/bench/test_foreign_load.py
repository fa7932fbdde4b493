"""Other work on the machine is waited for, for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.foreign_load import wait_for_quiet, waited_in_vain
from drafthouse.bench.machine_state import MachineState, Process, read_cpu

CORES = os.cpu_count() or 1
OWN = 7


def states(loads: Sequence[float]) -> list[MachineState]:
    """Two states for each look, one second apart: ``loads`` is what another process takes of the machine."""
    made, used_s, idle = [], 0.0, 0
    for number, load in enumerate(loads):
        for late in (0, 1):
            if late:
                used_s += load * CORES
                idle += round(100 * CORES * (1 - load))
            ticks = {"busy": round(100 * used_s), "idle": idle, "steal": 0}
            processes = {9: Process("make", 1, used_s, 5), OWN: Process("engine", 1, 0.0, 5)}
            made.append(MachineState(100.0 + number + late, {}, ticks, processes))
    return made


def waited(loads: Sequence[float], most_s: float) -> tuple[Any, list[Any]]:
    told: list[Any] = []
    left = states(loads)
    found = wait_for_quiet(lambda state: {OWN}, told.append, most_s, lambda: left.pop(0), lambda seconds: None)
    return found, told


def test_a_quiet_machine_is_not_waited_for() -> None:
    found, told = waited([0.05], 60)
    assert (found["seconds"], found["quiet"], told) == (0.0, True, [])


def test_a_neighbour_is_waited_for_and_named() -> None:
    found, told = waited([0.8, 0.5, 0.02], 60)
    assert (found["seconds"], found["quiet"]) == (2.0, True)
    assert told[0] == {
        "text": "other processes use 80 % of the CPU (make): waiting for them to end",
        "eta_s": 59.0,
    }


def test_the_wait_has_an_end() -> None:
    found, told = waited([0.8] * 5, 3)
    assert (found["seconds"], found["quiet"], len(told)) == (3.0, False, 3)
    assert found["busy"] == ["make"]
    steps: list[Any] = [{}, {"waited": found}]
    assert waited_in_vain(steps)
    steps = [{}, {"waited": waited([0.8, 0.0], 3)[0]}]
    assert not waited_in_vain(steps)


def test_without_a_wait_it_is_looked_at_once() -> None:
    found, told = waited([0.8], 0)
    assert (found["seconds"], found["quiet"], told) == (0.0, False, [])


def test_a_machine_that_tells_nothing_is_quiet() -> None:
    state = MachineState(1.0, {})
    assert wait_for_quiet(lambda _: (), print, 60, lambda: state, lambda seconds: None)["quiet"]


def ticks(pid: int) -> int:
    """Time of a process in user mode, in ticks of 10 ms: field 14 of its line (proc(5))."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.processes
def test_a_real_neighbour_is_seen_and_our_own_is_not() -> None:
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(CORES)]
    try:
        end = time.monotonic() + 120
        while any(ticks(one.pid) < 10 for one in burning):
            assert time.monotonic() < end
            time.sleep(0.05)
        found: Any = wait_for_quiet(lambda state: (), lambda event: None, 0)
        assert not found["quiet"]
        before = read_cpu()
        mine: Any = wait_for_quiet(lambda state: {one.pid for one in burning}, lambda event: None, 0)
        assert mine["other_cpu_percent"] < found["other_cpu_percent"]
        assert {one.pid for one in burning} <= before.processes.keys()
    finally:
        for one in burning:
            one.kill()
            one.wait()
