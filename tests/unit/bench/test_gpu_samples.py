"""The GPUs while requests are answered: by the real sampler, on a library that follows a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import Endpoint
from drafthouse.bench.gpu_samples import GpuSampler, GpuStepReader
from drafthouse.bench.gpu_text import gpu_lines, gpu_warnings, over_groups
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.kept_shapes import checked_result
from drafthouse.bench.nvml import Nvml, open_nvml
from drafthouse.bench.results import assemble, summary_lines
from drafthouse.bench.step import measure_step
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT
from tests.fakes.clock_server import clock_server

pytestmark = pytest.mark.processes

HOT = "hardware thermal slowdown"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: None) -> Path:
    """What the GPUs do; written anew, they do it from then on."""
    path = tmp_path / "script"
    path.write_text("")
    monkeypatch.setenv("FAKE_NVML_SCRIPT", str(path))
    return path


def suite(prompts: int) -> Any:
    texts = [{"id": f"p{n}", "messages": [{"role": "user", "content": f"Say {n}"}]} for n in range(prompts)]
    return {"name": "s", "description": "s", "kinds": {"k": {"output_tokens": 30, "prompts": texts}}}


# --- the sampler ----------------------------------------------------------------------------------------


def until(sampler: GpuSampler, samples: int) -> None:
    """Wait until so many more samples were taken."""
    began = time.monotonic()
    while sampler.summaries([(began, time.monotonic())])[0]["samples"] < samples:
        assert time.monotonic() - began < 120
        time.sleep(0.01)


def test_clocks_that_drop_are_seen_in_the_turn_in_which_they_do(script: Path) -> None:
    with closing(open_nvml(["0"])) as nvml, closing(GpuSampler(nvml, 0.02)) as sampler:
        turns = []
        for doing in ("0 0 1980 4 0\n", "0 0 1200 0x44 0\n", "0 0 1980 0 0\n"):
            replaced = script.with_name("next")
            replaced.write_text(doing)
            replaced.replace(script)
            until(sampler, 2)  # one may have been under way
            began = time.monotonic()
            until(sampler, 4)
            turns.append((began, time.monotonic()))
        fast, slow, cool = (sampler.summaries([turn])[0] for turn in turns)
        both = sampler.summaries(turns[:2])[0]
        assert (fast["sm_clock_median_mhz"], fast["sm_clock_min_mhz"], fast["throttled_share"]) == (1980, 1980, 0.0)
        assert fast["reasons"] == {"power cap": 1.0}
        assert (slow["sm_clock_median_mhz"], slow["throttled_share"]) == (1200, 1.0)
        assert slow["reasons"] == {HOT: 1.0, "power cap": 1.0}
        assert (cool["throttled_share"], cool["reasons"]) == (0.0, {})
        assert both["samples"] == fast["samples"] + slow["samples"]
        assert both["reasons"][HOT] == pytest.approx(slow["samples"] / both["samples"], abs=1e-4)
        assert (both["sm_clock_min_mhz"], both["temperature_max_c"], both["power_median_w"]) == (1200, 61, 100.0)
        sampler.forget()
        assert sampler.summaries(turns)[0]["samples"] == 0


def test_a_gpu_that_is_lost_in_the_middle_keeps_what_it_told_before(script: Path) -> None:
    with closing(open_nvml()) as nvml, closing(GpuSampler(nvml, 0.02)) as sampler:
        began = time.monotonic()
        until(sampler, 3)
        replaced = script.with_name("next")
        replaced.write_text("0 1 1980 4 15\n")
        replaced.replace(script)
        until(sampler, 3)
        well, lost = sampler.summaries([(began, time.monotonic())])
    assert (well["error"], well["sm_clock_median_mhz"]) == (None, 1980)
    assert (lost["error"], lost["sm_clock_median_mhz"]) == ("GPU is lost", 1980)
    assert lost["samples"] == well["samples"]


class SlowDriver(Nvml):
    """A driver whose every answer takes its time."""

    asked = 0

    def readings(self) -> Any:
        self.asked += 1
        time.sleep(0.02)
        return super().readings()


@pytest.mark.usefixtures("driver")
def test_a_slow_driver_is_asked_less_often() -> None:
    with closing(open_nvml()) as quick:
        slow = SlowDriver(quick.gpus, library=quick._library)
        with closing(GpuSampler(slow, 0.01)):
            time.sleep(1)
    assert 1 <= slow.asked <= 3  # each 20 ms of reading are followed by 400 ms without


def test_without_a_gpu_no_thread_is_started() -> None:
    sampler = GpuSampler(Nvml(why="no GPU here"))
    assert sampler.summaries([(0.0, time.monotonic())]) == []
    sampler.close()


# --- while a step is measured ------------------------------------------------------------------------------


async def test_each_arm_has_the_gpus_of_its_own_turns(script: Path) -> None:
    requests = 8

    def cook(event: Any) -> None:
        if event["phase"] == "measure" and event["done"] == requests:
            script.write_text("0 0 1980 4 0\n0 1 900 0x40 0\n")  # the first arm has ended

    with clock_server(ttft_ms=20, interval_ms=60) as one, clock_server(ttft_ms=20, interval_ms=60) as two:
        endpoints = [Endpoint("baseline", one.base_url, "clock"), Endpoint("speculative", two.base_url, "clock")]
        options = StepOptions(concurrency=4, warmups=1)
        step = await measure_step(endpoints, [suite(requests)], options, cook, gpus=["1"])
    cool, hot = (assemble([step], arm) for arm in ("baseline", "speculative"))
    (first,), (second,) = (over_groups(result["gpus"]) for result in (cool, hot))
    assert (first["index"], first["throttled_share"], first["sm_clock_min_mhz"]) == (1, 0.0, 1980)
    assert (second["index"], second["throttled_share"], second["sm_clock_median_mhz"]) == (1, 1.0, 900)
    assert min(first["samples"], second["samples"]) >= 1
    assert [(span["round"], span["group"]) for span in cool["gpus"]] == [(1, "k")]
    assert cool["power"]["devices"] == ["NVIDIA Fake 2"]
    assert cool["groups"]["k"]["power"]["j_per_output_token"] == pytest.approx(
        cool["power"]["energy_j"] / (30 * requests)  # type: ignore[operator]
    )
    assert [gpu["index"] for gpu in step["machine"]["before"]["gpus"]] == [1]
    assert gpu_lines(cool)[0].startswith("GPU 1: SM clock 1,980 MHz (median; lowest 1,980) in ")
    assert gpu_warnings({"baseline": cool, "speculative": hot}) == [
        "speculative: GPU 1 (NVIDIA Fake 2) was throttled 100.0 % of the time (hardware thermal slowdown), and its "
        "SM clock fell to 900 MHz: check its cooling and its power supply"
    ]
    # A file of it is read again; one that was damaged is refused by its place.
    kept = json.loads(json.dumps(hot))
    assert checked_result(kept, "hot.json")["gpus"] == hot["gpus"]
    kept["gpus"][0]["gpus"][0]["throttled_share"] = "much"
    with pytest.raises(DrafthouseError, match="throttled_share"):
        checked_result(kept, "hot.json")


async def test_beside_a_step_of_the_ladder(script: Path) -> None:
    nobody: Any = None
    with closing(open_nvml(["0"])) as nvml, closing(GpuSampler(nvml, 0.02)) as sampler:
        beside = GpuStepReader(sampler)
        await beside.begin(nobody, nobody)
        until(sampler, 3)
        await beside.end(nobody, nobody)
        (gpu,) = beside.report([], 0)["gpus"]
    assert gpu["samples"] >= 3
    assert gpu["sm_clock_median_mhz"] == 1980
    assert GpuStepReader(GpuSampler(Nvml(why="no GPU here"))).report([], 0) == {}


def bench(address: str, kept: Path, **environment: str) -> Any:
    """Run the command in a process of its own, as on a box, and return its result."""
    argv = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench", "--base-url", address, "--model", "clock"]
    argv += [
        "--kind",
        "chat",
        "--num-prompts",
        "2",
        "--output-tokens",
        "30",
        "--num-warmups",
        "1",
        "--result",
        str(kept),
    ]
    done = subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(kept.read_text("utf-8")), done.stdout


def test_the_command_finds_the_drivers_library_by_its_name(nvml_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("0 0 1980 4 0\n0 1 1100 0x20 0\n")
    with clock_server(ttft_ms=20, interval_ms=100, tokens=30) as server:
        result, said = bench(
            server.base_url,
            tmp_path / "result.json",
            LD_LIBRARY_PATH=str(nvml_folder),
            CUDA_VISIBLE_DEVICES="GPU-2",
            FAKE_NVML_SCRIPT=str(tmp_path / "script"),
        )
    (gpu,) = over_groups(result["gpus"])
    assert gpu["samples"] >= 1
    assert (gpu["index"], gpu["sm_clock_min_mhz"], gpu["throttled_share"]) == (1, 1100, 1.0)
    assert result["power"]["source"] == "NVML's energy counter"
    assert result["power"]["mean_w"] == pytest.approx(200, rel=0.02)
    assert "GPU 1: SM clock " in said
    assert "Throttled: single: GPU 1 (NVIDIA Fake 2) was throttled " in said


def test_the_command_measures_where_there_is_no_gpu_to_read(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not installed')\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), *sys.path])
    with clock_server(ttft_ms=5, interval_ms=2, tokens=30) as server:
        result, said = bench(server.base_url, tmp_path / "result.json", PYTHONPATH=paths)
    assert (result["gpus"], result["completed"]) == ([], 2)
    assert "no package nvidia-ml-py to read GPUs with" in result["power"]["why"]
    assert "GPU" not in said
    # A result of an earlier version has nothing of it, and is shown all the same.
    del result["gpus"]
    assert not [line for line in summary_lines(checked_result(result, "old.json")) if "GPU" in line]
