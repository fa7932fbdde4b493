"""Rounds on the box: what is kept of them, what is missing, and how a run that was stopped goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis import verdict
from drafthouse.experiment.kept_rounds import end_measuring, note_file
from drafthouse.experiment.loop import keep_decision, put_together
from drafthouse.experiment.more_rounds import decide
from drafthouse.profiles.budget import parse_budget
from drafthouse.profiles.experiment_plan import steps_of_round
from drafthouse.profiles.workspace import ROOT
from tests.support.builders import machine_state, make_request, make_resolved
from tests.support.kept import look

PROMPTS = 8
# A job that measures, as far as its lock tells.
HOLDS = """
import sys, time
from pathlib import Path
sys.path.insert(0, "src")
from drafthouse.core.locks import only_one
with only_one(Path(sys.argv[1])):
    print("holds", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def resolved(tmp_path: Path) -> Any:
    made = make_resolved()
    made["result_dir"] = str(tmp_path)
    made["engine"]["home"] = "/nowhere"
    made["experiment"] |= {
        "schedule": "alternated",
        "once": [],
        "turns": [{"baseline": 8000}, {"speculative": 8000}],
        "budget": parse_budget("3x").as_dict(),
        "most_rounds": 8,
    }
    return made


def measure(resolved: Any, steps: Sequence[Any], speedup: float = 1.0, unsteady: float = 1.0) -> None:
    """Keep steps as the measuring leaves them, of prompts that differ in their gain by 12 %.

    ``unsteady`` is how much slower the baseline is in each even round.
    """
    for step in steps:
        (arm,) = step["arms"]
        requests = []
        for n in range(PROMPTS):
            slow = 1.0 if step["round"] % 2 else unsteady
            tpot_ms = 10.0 * slow if arm == "baseline" else 10.0 / (speedup * (1 + 0.03 * (n % 5 - 2)))
            drafted = 100 if arm == "speculative" else 0
            request = make_request(f"p{n}", "copy-edit", step["round"], tpot_ms, draft_tokens=drafted)
            requests.append({**request, "cached_tokens": 0})
        measured = {
            "model_id": "smollm2", "requests": requests, "counters": [], "log": "", "engine": {}, "power": [],
            "spans": [{"round": step["round"], "group": "copy-edit", "duration_s": 9.0}],
            "warmup": {"sent": 1, "failed": 0, "error": None},
        }  # fmt: skip
        settings = {
            "concurrency": 1,
            "first_round": step["round"],
            "temperatures": [0.0],
            "seed": 0,
            "ignore_eos": False,
        }
        data = {
            "schema": "drafthouse.step/1", "started": "2026-11-23T04:00:00+00:00", "duration_s": 20.0, "cost_s": 30.0,
            "started_unix_s": 1000.0 + step["number"], "settings": settings, "suites": ["mixed"], "notes": [],
            "arms": {arm: measured}, "power_meter": None,
            "machine": {"before": machine_state(0.1), "after": machine_state(0.1), "groups": []},
        }  # fmt: skip
        path = Path(resolved["result_dir"], step["file"])
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(data))


def result_of(resolved: Any, arm: str) -> Any:
    found: Any = json.loads(Path(resolved["result_dir"], f"{arm}.json").read_text())
    return found


def judged(resolved: Any, last: int, left_s: float | None = None) -> Any:
    """What was decided, as the action comes to it, and is kept."""
    costs = put_together(resolved, last)
    judgement = verdict.judge(result_of(resolved, "baseline"), result_of(resolved, "speculative"), resolved)
    note = decide(resolved["experiment"], costs, judgement, left_s)
    return {**note, **keep_decision(resolved, note)}


def files(steps: Sequence[Any]) -> list[str]:
    return [step["file"][6:8] for step in steps]


def doubt(monkeypatch: pytest.MonkeyPatch, until: int) -> None:
    def judge(baseline: Any, speculative: Any, resolved: Any) -> Any:
        judgement = real(baseline, speculative, resolved)
        more = {"why": "in doubt", "fresh": "few"} if judgement["scope"]["rounds"] < until else None
        return judgement | {"next_round": more}

    real = verdict.judge
    monkeypatch.setattr(verdict, "judge", judge)


def test_at_first_the_rounds_to_begin_with_are_missing(resolved: Any) -> None:
    found = look(resolved)
    assert (found["over"], found["last"], files(found["steps"])) == (False, 2, ["01", "02", "04", "03"])


def test_a_killed_run_goes_on_with_the_first_missing_step(resolved: Any) -> None:
    measure(resolved, look(resolved)["steps"][:3])
    assert files(look(resolved)["steps"]) == ["03"]


def test_rounds_go_on_while_the_evidence_is_in_doubt(resolved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    doubt(monkeypatch, until=4)
    found: Any = look(resolved)
    rounds = 0
    while found["steps"]:
        measure(resolved, found["steps"])
        found, rounds = judged(resolved, found["last"]), rounds + 1
        assert result_of(resolved, "baseline")["rounds"] == found["done"]
    assert rounds == 3  # two at once, then one after the other
    assert {request["round"] for request in result_of(resolved, "speculative")["requests"]} == {1, 2, 3, 4}
    assert found["why"] == "the evidence needs no further round"
    assert found["word"] == "does not pay", found["sentence"]
    # It ended by evidence after four of at most eight: nothing is missing.
    assert look(resolved) == {"over": True, "last": 4, "steps": []}


def test_a_run_stopped_after_the_interim_verdict_has_whole_results_and_goes_on(
    resolved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt(monkeypatch, until=3)
    measure(resolved, look(resolved)["steps"])
    steps = judged(resolved, 2)["steps"]
    assert [step["round"] for step in steps] == [3, 3]
    measure(resolved, steps[:1])
    # What it had before is as it was: a report is made of two whole rounds.
    for arm in ("baseline", "speculative"):
        assert {request["round"] for request in result_of(resolved, arm)["requests"]} == {1, 2}
    found = look(resolved)
    assert (found["over"], found["last"], files(found["steps"])) == (False, 3, [steps[1]["file"][6:8]])


def test_a_run_killed_before_its_decision_is_kept_judges_again(resolved: Any) -> None:
    measure(resolved, look(resolved)["steps"])
    put_together(resolved, 2)
    assert look(resolved) == {"over": False, "last": 2, "steps": []}


def test_what_an_earlier_version_measured_is_whole(resolved: Any) -> None:
    # In turns B,S,B,S, without a note, and without the cost of a start.
    measure(resolved, [step for number in (1, 2) for step in steps_of_round(resolved["experiment"], number)], 2.0)
    judged(resolved, 2)
    note_file(resolved).unlink()
    assert look(resolved)["over"]


def test_another_budget_asks_again(resolved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    doubt(monkeypatch, until=9)
    resolved["experiment"] |= {"budget": parse_budget(0).as_dict(), "most_rounds": 2}
    measure(resolved, look(resolved)["steps"])
    assert judged(resolved, 2)["next"] is None
    assert look(resolved)["over"]
    resolved["experiment"] |= {"budget": parse_budget("3x").as_dict(), "most_rounds": 8}
    assert look(resolved) == {"over": False, "last": 2, "steps": []}
    assert judged(resolved, 2)["next"] == 3
    # And back: the two rounds that were judged are kept, nothing more is measured.
    resolved["experiment"] |= {"budget": parse_budget(0).as_dict(), "most_rounds": 2}
    assert look(resolved)["steps"] == []
    assert judged(resolved, 2)["next"] is None


def test_the_real_judgement_decides(resolved: Any) -> None:
    # The baseline is twice as slow in its second round, and on the whole half as slow again as the speculative arm.
    measure(resolved, look(resolved)["steps"], unsteady=2.0)
    note = judged(resolved, 2)
    assert note["next"] == 3, note
    measure(resolved, look(resolved)["steps"])
    # A clear effect needs no more than it began with.
    for path in Path(resolved["result_dir"]).glob("**/*.json"):
        path.unlink()
    measure(resolved, look(resolved)["steps"], speedup=3.0)
    assert judged(resolved, 2)["next"] is None
    assert result_of(resolved, "speculative")["completed"] == 2 * PROMPTS


def test_a_box_that_ends_soon_gets_no_round_that_would_not_end(resolved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    doubt(monkeypatch, until=9)
    measure(resolved, look(resolved)["steps"])
    assert judged(resolved, 2, left_s=10.0)["next"] is None
    assert judged(resolved, 2, left_s=1000.0)["next"] == 3


@pytest.mark.processes
def test_a_report_of_an_interim_verdict_ends_what_is_still_measured(
    resolved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "the home"
    home.mkdir()
    resolved["site"]["home"] = str(home)
    job = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(home / "benchmark.lock")], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert job.stdout
        assert job.stdout.readline() == "holds\n"

        def report() -> int:
            return subprocess.run(["sh", "-c", end_measuring(resolved)], timeout=180, check=False).returncode

        # No rounds yet, or the last decision was the end: whatever works there is another run's.
        assert report() == 0
        doubt(monkeypatch, until=2)
        measure(resolved, look(resolved)["steps"])
        judged(resolved, 2)
        assert report() == 0
        assert job.poll() is None
        doubt(monkeypatch, until=3)
        judged(resolved, 2)
        assert report() == 0
        assert job.wait(120) == -signal.SIGTERM
        assert report() == 0
    finally:
        job.kill()
        job.wait()
        if job.stdout:
            job.stdout.close()
