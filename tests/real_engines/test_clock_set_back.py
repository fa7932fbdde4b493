"""The wall clock is set back by two hours in mid-run: no time that is measured, kept or decided by changes with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.support.programs import needs

pytestmark = [pytest.mark.alone, pytest.mark.soak]

BACK_S = 7200
# A round of two arms, one after the other. The clock is set while the first is measured, and back once more while the
# second is waited for.
ROUND = """
import json, pathlib, sys, threading, time
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1] + "/collections", sys.argv[1] + "/scripts", sys.argv[1]]
from drafthouse.experiment.loop import assemble_results, read_steps
from drafthouse.serving.promote import _outlive
from tests.support.llama_box import llama_box

clock = pathlib.Path(sys.argv[2])
set_to = lambda seconds: clock.write_text(str(seconds))
with llama_box(chat=10) as box:
    arms = [step["arms"] for step in box.resolved()["experiment"]["steps"]]
    box.serve(arms[0])
    box.wait(arms[0])
    box.measured(0, on_progress=lambda event: event["phase"] == "measure" and event["done"] == 3 and set_to(-3600))
    box.serve(arms[1])
    set_to(-7200)
    box.wait(arms[1])
    box.measured(1)
    began = time.monotonic()
    resolved = box.resolved()
    _outlive(box.home, {**resolved, "site": {**resolved["site"]}}, "speculative", 8.0, lambda event: None)
    files = assemble_results(resolved, 1)
    print(json.dumps({
        "steps": read_steps(resolved, 1),
        "results": [json.loads(path.read_text()) for path in files],
        "outlived_s": time.monotonic() - began,
        "now": time.time(),
    }))
"""


@needs("cc")
def test_no_step_has_a_negative_time_and_the_order_is_that_of_the_run(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    shim, clock = tmp_path / "wall_clock.so", tmp_path / "clock"
    source = ROOT / "tests" / "fakes" / "wall_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    clock.write_text("0")
    environment = {**os.environ, "LD_PRELOAD": str(shim), "WALL_CLOCK_FILE": str(clock)}
    done = subprocess.run(
        [sys.executable, "-c", ROUND, str(ROOT), str(clock)],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=1200, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    first, second = told["steps"]
    assert [list(step["arms"]) for step in (first, second)] == [["baseline"], ["speculative"]]
    # The wall clock itself did jump, and is told as it was.
    assert second["started_unix_s"] < first["started_unix_s"] - BACK_S + 600
    (jump,) = [group["clock"] for group in first["machine"]["groups"]]
    assert -3610 < jump["jump_s"] < -3590
    assert not jump["polluted"]
    assert "was set back by 3600" in jump["said"]
    for step in (first, second):
        assert 0 < step["duration_s"] < 600
        assert step["duration_s"] <= step["cost_s"] < 900
        for part in step["arms"].values():
            assert 0 < part["engine"]["ready_s"] < 600
    for result in told["results"]:
        assert [one["status"] for one in result["requests"]] == ["ok"] * 10
        assert all(one["started_s"] >= 0 for one in result["requests"])
        assert all(one["ttft_ms"] > 0 and one["e2el_ms"] > 0 for one in result["requests"])
        assert 0 < result["duration"] < 600
    # Nor is a server looked at for two hours longer.
    assert told["outlived_s"] < 600
    figure(f"{jump['said']}; steps of {first['duration_s']:.1f} s and {second['duration_s']:.1f} s")
