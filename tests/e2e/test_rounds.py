"""Further rounds with the real engine: bought while the evidence is in doubt, kept when a run is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.e2e.conftest import BIN, Play
from tests.support.tales import TALES

pytestmark = pytest.mark.soak  # the daily e2e judges its rounds too, and buys none

PROFILE = "cpu-smollm2-ngram"
SHORT = {**TALES, "most_rounds": 3, "budget": "10m"}
# Milliseconds per token by arm and round: a baseline that differs from itself by more than from the other arm.
IN_DOUBT = {"baseline": {1: 10.0, 2: 20.0}, "speculative": {1: 10.0, 2: 10.0}}


def words(**experiment: Any) -> dict[str, Any]:
    return {"profile": PROFILE, "overrides": {"experiment": {**SHORT, **experiment}}, "benchmark_wait_s": 5}


@pytest.fixture(scope="module")
def results(run: Play, home: Path) -> Path:
    """The folder of two measured rounds, whose times then leave it in doubt whether speculation pays."""
    for playbook in ("site.yml --tags host", "site.yml --tags weights"):
        assert run(playbook, **words(budget=0)).status == 0
    measured = run("site.yml --tags experiment", **words(budget=0))
    assert measured.status == 0, measured.output[-3000:]
    (file,) = (home / "home" / "results" / PROFILE).glob("*/rounds.json")
    assert json.loads(file.read_text())["next"] is None
    steps = sorted(file.parent.glob("steps/*.json"))
    assert [path.name for path in steps] == ["01.json", "02.json"]
    for path in steps:
        step = json.loads(path.read_text())
        for arm, part in step["arms"].items():
            for request in part["requests"]:
                request["tpot_ms"] = IN_DOUBT[arm][request["round"]]
        path.write_text(json.dumps(step))
    return file.parent


def decided(results: Path) -> dict[str, Any]:
    note: dict[str, Any] = json.loads((results / "rounds.json").read_text())
    return note


def rounds_in(results: Path) -> dict[str, set[int]]:
    return {
        arm: {request["round"] for request in json.loads((results / f"{arm}.json").read_text())["requests"]}
        for arm in ("baseline", "speculative")
    }


@pytest.fixture(scope="module")
def stopped(run: Play, results: Path, home: Path, port: int) -> Iterator[str]:
    """What a run says that is stopped with Ctrl-C in the round after its interim verdict."""
    variables = {
        "drafthouse_home": str(home / "home"), "drafthouse_models_dir": str(home / "models"),
        "drafthouse_port": port, "report_folder": str(home / "rounds-reports"), **words(),
    }  # fmt: skip
    command = [str(BIN / "ansible-playbook"), "site.yml", "--tags", "experiment", "-i", "inventory/local"]
    process = subprocess.Popen(
        [*command, "-e", json.dumps(variables)],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    said = []
    try:
        assert process.stdout
        for line in process.stdout:
            said.append(line)
            if "step 3, in round 3 of 3 at most" in line:
                os.killpg(process.pid, signal.SIGINT)
                break
        said.append(process.stdout.read())
        process.wait(120)
        print("".join(said))
        yield "".join(said)
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def test_the_interim_verdict_says_what_is_bought_and_what_ctrl_c_does(stopped: str, results: Path) -> None:
    assert "localhost: interim verdict after 2 rounds: " in stopped
    assert "next: round 3 of at most 3: " in stopped
    assert "the budget for further rounds has about 10 min left" in stopped
    assert "Ctrl-C keeps this verdict" in stopped
    assert decided(results)["next"] == 3


def test_a_stopped_run_has_whole_results_and_its_report_can_be_made(
    stopped: str, run: Play, results: Path, home: Path
) -> None:
    assert rounds_in(results) == {"baseline": {1, 2}, "speculative": {1, 2}}
    done = run("site.yml --tags report", **words(), report_folder=str(home / "rounds-reports"))
    assert done.status == 0, done.output[-3000:]
    (file,) = (home / "rounds-reports").rglob("report.json")
    report = json.loads(file.read_text())
    assert report["verdict"]["scope"]["rounds"] == 2
    # What the stopped run left measuring is over, and what serves now is left alone by it.
    time.sleep(2)
    assert not (results / "steps" / "03.json").exists()


def test_the_next_run_goes_on_with_the_missing_round(stopped: str, run: Play, results: Path, home: Path) -> None:
    again = run("site.yml --tags experiment", **words())
    assert again.status == 0, again.output[-3000:]
    assert rounds_in(results) == {"baseline": {1, 2, 3}, "speculative": {1, 2, 3}}
    note = decided(results)
    assert (note["done"], note["next"]) == (3, None)
    assert "step 1 of 2" not in again.output
    # And then there is nothing more to do.
    for more in ((), ("--check",)):
        over = run("site.yml --tags experiment", *more, **words())
        assert (over.status, over.changed) == (0, 0), over.output[-3000:]
