"""An experiment's steps: what an engine says of itself, and one that dies while it is measured."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.noise import disturbance_of, repeated_in_vain
from drafthouse.analysis.verdict import judge
from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment import loop as module
from drafthouse.experiment.engine_answers import from_log, server_settings
from drafthouse.experiment.loop import assemble_results, measure_one_step, step_file
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
    assert from_log(text) == told


def test_what_servers_answer_of_themselves_has_one_name_for_all_engines() -> None:
    vllm = 'vllm:cache_config_info{block_size="16",cache_dtype="fp8",enable_prefix_caching="True",engine="0"} 1.0\n'
    assert server_settings({}, {}, f"# HELP\n{vllm}") == {
        "cache_dtype": "fp8", "block_size": "16", "prefix_cache": "True",
    }  # fmt: skip
    props = {"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4}
    assert server_settings(props, {}, "") == {"context": "4096", "max_sequences": "4"}
    sglang = {"context_length": 8192, "kv_cache_dtype": "auto", "disable_radix_cache": False}
    assert server_settings({}, sglang, "") == {"context": "8192", "cache_dtype": "auto", "prefix_cache": "True"}
    assert server_settings({}, {}, "") == {}


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
    # What else works on this machine is not the question here.
    monkeypatch.setattr(module, "disturbance_of", lambda step: None)
    yield made
    for arm, process in made.processes.items():
        made.stop(arm)
        assert process.stdout is not None
        process.stdout.close()


def on_the_box(folder: Path, arms: Arms) -> Any:
    """A resolved profile whose one step measures both arms here."""
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


@pytest.mark.parametrize(("found", "starts", "notes"), [
    (["cc1plus took 60 % of the CPU", None], 2, 1),
    (["cc1plus took 60 % of the CPU"] * 2, 2, 2),
])  # fmt: skip
def test_a_disturbed_step_is_measured_again_on_fresh_arms(
    found: list[str | None], starts: int, notes: int, tmp_path: Path, arms: Arms, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_of = iter(found)
    monkeypatch.setattr(module, "disturbance_of", lambda step: next(told_of))
    step = measured(on_the_box(tmp_path, arms))
    assert arms.starts == {"baseline": starts, "speculative": starts}
    assert len(step["notes"]) == notes
    assert step["notes"][0] == "round 1: cc1plus took 60 % of the CPU; the step was measured again"
    assert step.get("disturbed") == found[1]


def test_a_step_that_was_repeated_in_vain_is_the_last_that_is() -> None:
    quiet: Any = {"arms": {}}
    assert not repeated_in_vain([quiet])
    disturbed: Any = {**quiet, "disturbed": "cc1plus took 60 % of the CPU"}
    assert repeated_in_vain([quiet, disturbed])


def test_what_disturbs_a_step_is_named() -> None:
    between = {
        "seconds": 30.0, "own_cpu_s": 30.0, "other_cpu_percent": 60.0, "cpu_steal_percent": 0.0,
        "busy_processes": [{"name": "cc1plus", "cpu_percent": 100.0}],
    }  # fmt: skip
    step: Any = {"machine": {"groups": [{"between": between}]}, "arms": {"baseline": {}}}
    assert disturbance_of(step) == "cc1plus took 60 % of the CPU"
    between["other_cpu_percent"] = 5.0
    assert disturbance_of(step) is None
    step["arms"]["baseline"]["gpus"] = [{"gpus": [{"throttled_share": 0.4}]}]
    assert disturbance_of(step) == "a GPU of baseline was throttled for 40 % of the time"
