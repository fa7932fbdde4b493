"""An experiment's steps: what an engine says of itself, and one that dies while it is measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment import loop as module
from drafthouse.experiment.loop import assemble_results, measure_one_step, step_file, told_in_log
from drafthouse.profiles.experiment_plan import steps_of_round
from drafthouse.serving.runtimes import State
from tests.fakes.clock_server import Running
from tests.fakes.in_process import started
from tests.support.builders import make_resolved
from tests.support.ports import free_port
from tests.unit.bench.test_step import lay_suites, suite

pytestmark = pytest.mark.processes

# Lines of vLLM 0.32.0 on the CPU, as it printed them.
RUNNER = "WARNING 11-21 13:05:21 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead.\n"
ASYNC = (
    "WARNING 11-21 13:06:22 [vllm.py:1605] Async scheduling not supported with ngram-based speculative decoding"
    " and will be disabled.\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", {}),
        (RUNNER, {"model_runner": "V1"}),
        (ASYNC, {"async_scheduling": "disabled"}),
        ("Asynchronous scheduling is enabled.\n" + ASYNC, {"async_scheduling": "disabled"}),
        ("Using V2 Model Runner\n", {"model_runner": "V2"}),
    ],
)  # fmt: skip
def test_what_an_engine_says_of_itself(text: str, told: dict[str, str]) -> None:
    assert told_in_log(text) == told


# ---- an engine that dies -------------------------------------------------------------------------


class Arms:
    """A runtime whose arms are clock servers; one of them can be killed when it has been asked so often."""

    def __init__(self) -> None:
        self.ports = {"baseline": free_port(), "speculative": free_port()}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.starts = dict.fromkeys(self.ports, 0)
        self.stops = 0
        self.deadly: dict[str, int] = {}
        """How many starts of an arm end in a death."""
        for arm in self.ports:
            self.start(arm)

    def start(self, arm: str) -> None:
        if arm in self.processes and self.processes[arm].poll() is None:
            return
        self.starts[arm] += 1
        clock = {"ttft_ms": 20, "interval_ms": 5, "tokens": 12, "metrics": "vllm"}
        self.processes[arm], _ = started("tests.fakes.clock_server", clock, self.ports[arm])
        self.arm_death(arm)

    def running(self, arm: str) -> Running:
        return Running(f"http://127.0.0.1:{self.ports[arm]}", self.processes[arm].pid)

    def arm_death(self, arm: str) -> None:
        if self.starts[arm] <= self.deadly.get(arm, 0):
            self.running(arm).change(dies_at=4)

    def stop(self, arm: str) -> None:
        self.stops += 1
        self.processes[arm].kill()
        self.processes[arm].wait(120)

    def state(self, arm: str) -> State:
        return State(self.processes[arm].poll() is None, float(self.processes[arm].pid))

    def ending(self, arm: str) -> str:
        return ""

    def log_name(self, arm: str) -> str:
        return f"{arm}.log"

    def mark(self, arm: str) -> str:
        return str(self.starts[arm])

    def printed(self, arm: str, since: str = "") -> str:
        return f"SpecDecoding metrics since {since}\n"

    def tail(self, arm: str, lines: int) -> str:
        return ""


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Iterator[Arms]:
    made = Arms()
    monkeypatch.setattr(module, "runtime_of", lambda name, home: made)
    yield made
    for arm, process in made.processes.items():
        made.stop(arm)
        assert process.stdout is not None
        process.stdout.close()


def on_the_box(folder: Path, arms: Arms) -> Any:
    """Return a resolved profile whose one step measures both arms here."""
    (folder / "key").write_text("key\n")
    resolved = make_resolved(kinds=["chat"], rounds=1, suites=["s"])
    resolved["experiment"] |= {"once": [], "turns": [dict(arms.ports)]}
    resolved["experiment"]["steps"] = steps_of_round(resolved["experiment"], 1)
    resolved["engine"] |= {"health": "/v1/models", "ready_timeout_s": 120}
    resolved["target"]["served_name"] = "clock"
    resolved["site"]["home"] = str(folder)
    return {
        **resolved,
        "result_dir": str(folder),
        "key_file": str(folder / "key"),
        "suites_file": lay_suites(folder, s=suite("s", chat=8)),
    }


def told(event: Any, important: bool = False) -> None:
    """Take a sign of life."""


def measured(resolved: Any) -> Any:
    path = measure_one_step(resolved, resolved["experiment"]["steps"][0], 60.0, told)
    step: Any = json.loads(path.read_text("utf-8"))
    return step


def test_a_step_in_which_nothing_dies(tmp_path: Path, arms: Arms) -> None:
    step = measured(on_the_box(tmp_path, arms))
    assert step["notes"] == []
    assert arms.starts == {"baseline": 1, "speculative": 1}


def test_an_engine_that_dies_is_started_again_and_the_step_measured_again(tmp_path: Path, arms: Arms) -> None:
    resolved = on_the_box(tmp_path, arms)
    arms.deadly = {"speculative": 1}
    arms.arm_death("speculative")
    step = measured(resolved)
    # The other one as well, so that neither remembers what it was asked.
    assert arms.starts == {"baseline": 2, "speculative": 2}
    for arm in ("baseline", "speculative"):
        assert [one["status"] for one in step["arms"][arm]["requests"]] == ["ok"] * 8
        assert step["arms"][arm]["log"] == "SpecDecoding metrics since 2\n"
    assert len(step["notes"]) == 2
    assert step["notes"][1].startswith("round 1: speculative died: the engine was restarted and was ready after ")
    files = assemble_results(resolved, 1)
    results = [json.loads(path.read_text("utf-8")) for path in files]
    assert {tuple(result["notes"]) for result in results} == {tuple(step["notes"])}
    assert set(step["notes"]) <= set(judge(results[0], results[1], resolved)["warnings"])


def test_an_engine_that_dies_again_leaves_no_step(tmp_path: Path, arms: Arms) -> None:
    resolved = on_the_box(tmp_path, arms)
    arms.deadly = {"baseline": 9}
    arms.arm_death("baseline")
    with pytest.raises(DrafthouseError) as caught:
        measured(resolved)
    assert caught.value.problems[0].found == "the engine died again after a restart: baseline"
    assert arms.starts["baseline"] == 2
    assert not step_file(resolved, resolved["experiment"]["steps"][0]).exists()
    # The next run goes on with this step.
    arms.deadly = {}
    arms.start("baseline")
    assert measured(resolved)["notes"] == []


def test_a_step_asks_no_kind_that_its_round_leaves_out(tmp_path: Path, arms: Arms) -> None:
    resolved = on_the_box(tmp_path, arms)
    resolved["suites_file"] = lay_suites(tmp_path, s=suite("s", chat=8, code=3))
    resolved["experiment"] |= {"once": ["code"], "most_rounds": 2}
    first, second = (steps_of_round(resolved["experiment"], number)[0] for number in (1, 2))
    kinds = []
    for step in (first, second):
        resolved["experiment"]["steps"] = [step]
        kinds.append({one["kind"] for one in measured(resolved)["arms"]["baseline"]["requests"]})
    assert kinds == [{"chat", "code"}, {"chat"}]
