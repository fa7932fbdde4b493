"""Experiments on real servers of known truth: the real client, loop, files, judgement and decision on the next round.

Only the runtime is not a box's: the servers are there before it, and a fresh start is what a test makes of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from drafthouse.analysis.verdict import judge
from drafthouse.experiment import loop
from drafthouse.experiment.loop import keep_decision, measure_one_step, put_together, result_file
from drafthouse.experiment.more_rounds import RoundDecision, decide
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from drafthouse.prompts.suite_file import suites_file, suites_text
from drafthouse.report.data.build import lasting
from drafthouse.serving.runtimes import State
from tests.fakes.clock_server import Running
from tests.support.kept import look

ARMS = ("baseline", "speculative")
Data = Any


class Arms:
    """The arms of an experiment as a runtime that keeps no log."""

    def __init__(self, running: Mapping[str, Running]) -> None:
        self.running = running

    def state(self, arm: str) -> State:
        return State(True, 1.0)

    def stop(self, arm: str) -> None:
        raise AssertionError(f"{arm} was to be measured again")

    def mark(self, arm: str) -> str:
        return ""

    def printed(self, arm: str, since: str = "") -> str:
        return ""

    def log_name(self, arm: str) -> str:
        return arm


def profile_for(profile: str, folder: Path, arms: Arms, **experiment: Data) -> Data:
    """The profile resolved for a box whose arms are these servers; ``experiment`` changes its settings."""
    folder.mkdir(exist_ok=True)
    resolved = copy.deepcopy(_resolved(profile))
    resolved["site"]["home"] = str(folder)
    resolved["target"]["served_name"] = "clock"
    resolved["experiment"] |= experiment
    ports = {arm: int(server.base_url.rpartition(":")[2]) for arm, server in arms.running.items()}
    for turn in [*resolved["experiment"]["turns"], *(step["arms"] for step in resolved["experiment"]["steps"])]:
        turn.update({arm: ports[arm] for arm in turn})
    (folder / "key").write_text("key\n")
    path = Path(suites_file(str(folder), resolved["suites"]))
    path.parent.mkdir()
    path.write_text(suites_text(resolved["suites"]), "utf-8")
    more = {"result_dir": str(folder), "key_file": str(folder / "key"), "suites_file": str(path)}
    return {**resolved, **more, "key": measured_key(resolved)}


@cache
def _resolved(profile: str) -> Data:
    return resolved_profile(profile, site_of_inventory("local"))


def decided(
    resolved: Data, arms: Arms, monkeypatch: Data, fresh_start: Callable[[int], None] = lambda step: None
) -> RoundDecision:
    """Measure an experiment to its end; ``fresh_start`` is called before each step, by its number."""
    monkeypatch.setattr(loop, "runtime_of", lambda name, home: arms)
    # What else works on this machine is not the question here.
    quiet: Data = {"seconds": 0.0, "quiet": True, "other_cpu_percent": None, "busy": []}
    monkeypatch.setattr(loop, "wait_for_quiet", lambda *of: quiet)
    monkeypatch.setattr(loop, "disturbance_of", lambda step: None)
    missing: Data = look(resolved)
    while True:
        for step in missing["steps"]:
            fresh_start(int(step["number"]))
            measure_one_step(resolved, step, 60.0, lambda event, important=False: None)
        costs = put_together(resolved, missing["last"])
        results: Data = {arm: json.loads(result_file(resolved, arm).read_text("utf-8")) for arm in ARMS}
        judgement = judge(results["baseline"], results["speculative"], lasting(resolved))
        note = decide(resolved["experiment"], costs, judgement)
        missing = keep_decision(resolved, note)
        if not missing["steps"]:
            return note
