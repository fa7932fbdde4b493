"""A hung step costs its own share of the time; what failed is noted, and evidence is there after every step."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError, one_problem
from drafthouse.report.evidence import NO_PROFILE, EvidenceFacts, read
from tests.gpu import level1_steps
from tests.gpu.clock import Clock
from tests.gpu.keep import Keeper
from tests.gpu.level1 import Place
from tests.gpu.models import SMALL

FACTS: EvidenceFacts = {
    "schema": "drafthouse.evidence/1", "day": "2026-01-02", "gpu": "NVIDIA L4", "driver": "580.95.05",
    "profile": NO_PROFILE, "profile_sha256": None, "engine": None, "engine_version": None,
    "verdict": None, "levels": [0], "drafthouse": "1", "files": {},
}  # fmt: skip


@pytest.mark.processes
def test_a_hung_program_is_ended_with_what_it_started(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    began = time.monotonic()
    with pytest.raises(DrafthouseError) as caught:
        Clock().run([sys.executable, "-c", child], 2, log=log)
    assert time.monotonic() - began < 30
    assert caught.value.problems[0].code == "program-failed"
    started = int(log.read_text().split()[0])
    for _ in range(100):
        stat = Path(f"/proc/{started}/stat")
        if not stat.exists() or ") Z " in stat.read_text():
            return
        time.sleep(0.1)
    os.kill(started, 9)
    raise AssertionError("it runs on")


@pytest.mark.processes
def test_a_program_has_no_more_time_than_is_left() -> None:
    began = time.monotonic()
    with pytest.raises(DrafthouseError):
        Clock(1).run(["sleep", "60"], 600)
    assert time.monotonic() - began < 30
    assert Clock().run(["false"], 60) == 1


def test_evidence_grows_and_a_failed_step_is_noted(tmp_path: Path) -> None:
    folder = tmp_path / "2026-01-02-nvidia-l4-gpu-lane"
    keeper = Keeper(folder, FACTS)
    keeper.keep({"level0.json": {"why": ["a GPU"]}})
    assert read(folder).facts["files"].keys() == {"level0.json"}

    def fails() -> None:
        raise one_problem("program-failed", "/home/ann/x.cu: error", "nvcc that ends well", "read it")

    assert keeper.step("the load", fails) is None
    assert keeper.step("another", lambda: 7) == 7
    keeper.keep({"level1.json": {"runs": []}})
    text = (read(folder).folder / "level0.json").read_text()
    assert "the load: program-failed, needed: nvcc that ends well" in text
    assert "a GPU" in text
    assert "/home/ann" not in text


def test_an_earlier_run_of_the_day_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "2026-01-02-nvidia-l4-gpu-lane"
    Keeper(folder, FACTS).keep({"level1.json": {"runs": []}})
    Keeper(folder, FACTS).keep({})
    assert read(folder).facts["files"].keys() == {"level0.json"}


def test_a_failed_step_is_followed_by_the_next_and_no_step_begins_without_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def one(step: level1_steps.Step, *_: Any) -> None:
        done.append(step.name)
        if len(done) == 1:
            raise one_problem("program-failed", "status 2", "a run", "read it")

    monkeypatch.setattr(level1_steps, "_one", one)
    kept: list[int] = []
    place = Place((), tmp_path, tmp_path)
    found = level1_steps.measure("h100", place, SMALL, Clock(), lambda now: kept.append(len(now["wrong"])))
    assert done == [step.name for step in level1_steps.STEPS]
    assert found["wrong"] == ["gpu-lane-f16-k2-draft: program-failed, needed: a run"]
    assert len(kept) == len(done) + 1
    late = level1_steps.measure("h100", place, SMALL, Clock(30), lambda now: None)
    assert late["left_out"] == done
    assert late["runs"] == []
