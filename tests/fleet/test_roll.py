"""`drafthouse fleet-upgrade` on two boxes with a real engine behind one front: a good change, and a worse one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.fleet.replica import DRAINED, mark, set_mark
from drafthouse.cli.fleet_plays import WHY
from drafthouse.profiles.workspace import ROOT
from tests.fleet.lab import Lab, Load, fleet, until
from tests.support.programs import needs
from tests.support.tales import TALES

pytestmark = needs("curl")

PROFILE = "cpu-smollm2-ngram"
# In the inventory, and so part of every release here. One thread each: the box that is measured and the one that serves
# meanwhile share two cores.
SERVE = {"parallel": 2, "threads": 1}
OVERRIDES: dict[str, Any] = {"target": "smollm2-135m-q4", "serve": SERVE, "experiment": TALES}
# Whether a change is well is not asked of the noise of this machine.
ROOMY = ("--regression", "60", "--behind", "60")
# Of long drafts after any single token most is thrown away, and a CPU computes all of them.
WORSE = {"speculation": {"method": "ngram-simple", "num_speculative_tokens": 24, "options": {"ngram_size": 1}}}
WELL = {"serve": {**SERVE, "context": 3072}}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with fleet(PROFILE, OVERRIDES) as running:
        yield running


def upgraded(lab: Lab, change: dict[str, Any], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the verb as a person does, with overrides as a changed profile would have them."""
    sets = [word for key, value in {**OVERRIDES, **change}.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    line = [str(ROOT / "scripts" / "drafthouse"), "fleet-upgrade", PROFILE, "--inventory", str(lab.inventory)]
    line += [*sets, "--reports", str(lab.folder / "reports"), *words]
    # The engine and the weights are there; nothing here has a way to an index.
    line += ["--", "--skip-tags", "host,weights", "-e", "benchmark_wait_s=5"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=2400, check=False)
    print(done.stdout[-6000:], done.stderr[-6000:])
    return done


def serves(lab: Lab, at: int) -> str:
    """Return what a box's engine was started with."""
    return (lab.home(lab.boxes[at]) / "serve" / PROFILE / "speculative" / "serve.sh").read_text()


def test_a_box_that_was_never_measured_is_not_taken_out(lab: Lab) -> None:
    done = upgraded(lab, WELL)
    assert done.returncode == 2
    assert "code: no-such-report" in done.stderr
    assert [lab.ready(box) for box in lab.boxes] == [200, 200]


def test_beside_a_replica_that_somebody_drained_nothing_is_changed(lab: Lab) -> None:
    set_mark(lab.home(lab.boxes[1]), DRAINED, "drained by hand")
    done = upgraded(lab, WELL)
    mark(lab.home(lab.boxes[1]), DRAINED).unlink()
    assert done.returncode == 2
    assert "code: replica-out" in done.stderr
    assert "box2 takes no requests" in done.stderr
    assert [lab.ready(box) for box in lab.boxes] == [200, 200]


@pytest.fixture(scope="module")
def measured(lab: Lab) -> Lab:
    """The same boxes, each with a report of what it serves."""
    words = ("--skip-tags", "host,weights", "--forks", "1")
    done = lab.play("site.yml", *words, report_folder=str(lab.folder / "reports"), benchmark_wait_s=5)
    assert done.status == 0, done.output[-6000:]
    assert len(list((lab.folder / "reports").glob("*/*/report.json"))) == 2
    return lab


@pytest.mark.soak
def test_a_canary_that_is_worse_goes_back_and_stops_the_roll(measured: Lab, figure: Callable[[str], None]) -> None:
    before = [serves(measured, at) for at in (0, 1)]
    with Load(measured, threads=2, tokens=16, pause_s=1) as load:
        done = upgraded(measured, WORSE, "--canary", "box2")
    assert done.returncode == 2, done.stdout
    assert "code: roll-stopped" in done.stderr
    assert "is worse on box2" in done.stderr
    assert "not touched: box1" in done.stderr
    assert "TPOT is" in done.stderr
    assert [serves(measured, at) for at in (0, 1)] == before
    assert [measured.ready(box) for box in measured.boxes] == [200, 200]
    assert load.streams
    assert all(one.whole for one in load.streams), [one for one in load.streams if not one.whole]
    rates = acceptance(measured.folder / "reports", "box2")
    # It really drafts worse.
    assert rates[0] < 0.75 * rates[1], rates
    figure(
        f"roll: a worse canary accepted {rates[0]:.2f} of its drafts instead of {rates[1]:.2f}; {len(load.streams)} ok"
    )
    # Asked again it says so at once, and touches nothing.
    again = upgraded(measured, WORSE, "--canary", "box2")
    assert (again.returncode, "taking it out of traffic" in again.stdout) == (2, False)


def acceptance(reports: Path, box: str) -> list[float]:
    """Return the acceptance rates of a box's reports, the newest first."""
    files = sorted(reports.glob(f"*/*-{box}/report.json"), reverse=True)
    return [json.loads(file.read_text())["acceptance"]["overall"]["rate"] for file in files]


@pytest.mark.soak
def test_a_change_that_is_well_goes_round_under_load_and_loses_nothing(
    measured: Lab, figure: Callable[[str], None]
) -> None:
    # As a roll that was killed between its first drain and the change would have left it.
    set_mark(measured.home(measured.boxes[1]), DRAINED, WHY)
    until(lambda: measured.ready(measured.boxes[1]) == 503)
    with Load(measured, threads=2, tokens=16, pause_s=1) as load:
        done = upgraded(measured, WELL, *ROOMY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all("3072" in serves(measured, at) for at in (0, 1))
    # That one first; and each was put back before the next one was taken out.
    steps = [line for line in done.stdout.splitlines() if line.startswith(("box1: ", "box2: "))]
    order = [line for line in steps if "putting" in line or "taking" in line]
    assert [line.partition(":")[0] for line in order] == ["box2", "box2", "box1", "box1"]
    assert all(one.whole for one in load.streams), [one for one in load.streams if not one.whole]
    figure(f"roll: {len(load.streams)} requests while two boxes were changed one after the other, none lost")
    again = upgraded(measured, WELL, *ROOMY)
    assert (again.returncode, "taking it out of traffic" in again.stdout) == (0, False)
