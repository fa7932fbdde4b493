"""The GPUs of a run: which they are, and what a driver tells of them, tells not, or no longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from drafthouse.bench.nvml import Nvml, open_nvml

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("driver")]

GIB = 1024**3


def indices(nvml: Nvml) -> list[int]:
    return [gpu.index for gpu in nvml.gpus]


def test_what_a_gpu_is_and_does() -> None:
    first, second = open_nvml().facts()
    assert first == {
        "index": 0,
        "name": "NVIDIA Fake 1",
        "uuid": "GPU-1",
        "driver_version": "580.95.05",
        "performance_state": "P0",
        "temperature_c": 61,
        "power_w": 100.0,
        "power_limit_w": 600.0,
        "sm_clock_mhz": 1980,
        "sm_clock_max_mhz": 2100,
        "memory_clock_mhz": 2619,
        "memory_used_bytes": 20 * GIB,
        "memory_total_bytes": 80 * GIB,
        "utilization_percent": 97,
        "clock_reasons": ["power cap"],
        "throttled_by": [],  # most GPUs run at their power limit while they work
    }
    assert (second["index"], second["power_w"]) == (1, 200.0)


def test_all_reasons_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script").write_text("0 0 900 0x1ff 0\n0 1 900 0x1 0\n")
    monkeypatch.setenv("FAKE_NVML_SCRIPT", str(tmp_path / "script"))
    hot, idle = open_nvml().facts()
    slow = ["hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake"]
    assert hot["throttled_by"] == slow
    assert hot["clock_reasons"] == [*slow, "clocks set by the user", "power cap", "sync boost", "display clocks"]
    assert idle["clock_reasons"] == idle["throttled_by"] == []


def test_the_gpus_of_a_run_are_chosen_by_index_or_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPUS", "4")
    assert indices(open_nvml()) == [0, 1, 2, 3]
    assert indices(open_nvml(["2", "0"])) == [2, 0]
    assert indices(open_nvml(["GPU-4"])) == [3]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert indices(open_nvml()) == [1, 3]
    assert indices(open_nvml(["2"])) == [2]  # the inventory goes before the environment


@pytest.mark.parametrize("visible", ["7", "0,7", "", "-1", "GPU-9"])
def test_half_of_the_chosen_gpus_is_none(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = open_nvml()
    assert (nvml.gpus, nvml.why) == ((), "the NVIDIA driver does not show the GPUs of this run")
    assert (nvml.facts(), nvml.processes(), nvml.readings()) == ([], [], [])


def test_without_a_choice_it_is_the_gpus_on_which_the_engines_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PROCESS", "812 1")
    assert indices(open_nvml(pids={812, 4})) == [1]
    assert indices(open_nvml(pids={4})) == [0, 1]  # a container does not show them
    assert indices(open_nvml(["0"], pids={812})) == [0]
    assert open_nvml().processes() == [
        {"gpu_uuid": "GPU-2", "pid": 812, "name": "/usr/bin/odd, name 812", "memory_used_bytes": 8 * 1024**2}
    ]


def test_a_driver_before_branch_535_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "old")
    told = open_nvml().facts()[0]
    assert told["memory_used_bytes"] is told["memory_total_bytes"] is None
    assert (told["sm_clock_mhz"], told["clock_reasons"]) == (1980, ["power cap"])


def test_a_call_that_fails_leaves_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "unknown")
    told = open_nvml().facts()[0]
    assert told["temperature_c"] is None
    assert told["sm_clock_mhz"] == 1980
    assert "error" not in told


def test_a_lost_gpu_says_so_and_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script"
    script.write_text("")
    monkeypatch.setenv("FAKE_NVML_SCRIPT", str(script))
    nvml = open_nvml()
    script.write_text("0 1 1980 4 15\n")
    well, lost = nvml.facts()
    assert (well["sm_clock_mhz"], "error" in well) == (1980, False)
    assert lost["error"] == "GPU is lost"
    known = {name for name, value in lost.items() if value is not None}
    assert known == {"index", "uuid", "name", "driver_version", "error"}
    assert nvml.processes() == []
    # What a lost GPU would say after a reset is another GPU's: this run has lost it.
    script.write_text("")
    assert nvml.readings()[1]["error"] == "GPU is lost"
    # One that is lost before the run is none of it.
    script.write_text("0 1 1980 4 15\n")
    assert indices(open_nvml()) == [0]
    assert indices(open_nvml(["0", "1"])) == []


def test_without_driver_or_package_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "no-driver")
    assert (open_nvml().gpus, open_nvml().why) == ((), "NVML: Driver Not Loaded")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (open_nvml().gpus, open_nvml().why) == ((), "no package nvidia-ml-py to read GPUs with")
