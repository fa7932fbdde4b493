"""The role watchdog on hosts: by systemd on a workstation, by a supervisor on a rental; it comes back with the box."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.box_archive import archive_file
from tests.hosts.hosts import Ended, Host, Lab
from tests.hosts.test_kills import SETTINGS
from tests.support.tales import TALES
from tests.support.waiting import until

PROFILE = "cpu-smollm2-ngram"
WATCHDOG = {"mode": "restart", "every_s": 1}
PATIENCE_S = 360
# Every day it works on this machine: tests/health/test_watchdog.py.
pytestmark = pytest.mark.soak


def pids(box: Host) -> list[str]:
    return box.exec("pgrep", "-f", "drafthouse-[0-9a-f]+[.]pyz watchdog ", check=False).stdout.split()


def journal(box: Host, home: str) -> list[dict[str, Any]]:
    text = box.exec("cat", f"{home}/watchdog/journal.jsonl").stdout
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module", params=sorted(SETTINGS))
def box(request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A box on which site.yml has served, with the watchdog asked for."""
    setting = SETTINGS[request.param]
    host = lab.start(request.param)
    given: dict[str, Any] = {
        "profile": PROFILE, "serve_arm": "speculative", "report_folder": str(tmp_path_factory.mktemp("reports")),
    }  # fmt: skip
    overrides: dict[str, Any] = {"experiment": TALES}
    if host.kind.engine:
        given["drafthouse_engine_image"] = lab.load_engine(host)
        overrides["runtimes"] = ["docker"]
    site = {**setting.site, "drafthouse_watchdog": WATCHDOG}
    inventory = lab.inventory([host], like=setting.like, group_vars=site)

    def play(playbook: str, **more: Any) -> Ended:
        return lab.play(playbook, inventory, **{**given, "overrides": overrides, **more})

    done = play("site.yml")
    assert done.status == 0, done.output[-3000:]
    yield host, setting.home, play
    host.remove()


def test_one_of_them_watches(box: Any) -> None:
    host, home, _ = box
    until(lambda: len(pids(host)) == 1, "watchdog", PATIENCE_S, 0.5)
    assert journal(host, home)[0]["code"] == "watching"
    order = json.loads(host.exec("cat", f"{home}/watchdog/order.json").stdout)
    assert order["points"]
    kept = ("test", "-s", f"{home}/watchdog/state.json")
    until(lambda: host.exec(*kept, check=False).returncode == 0, "state", PATIENCE_S, 0.5)


def test_a_second_run_changes_nothing(box: Any) -> None:
    host, _, play = box
    before = pids(host)
    done = play("site.yml --tags watchdog")
    assert (done.status, done.changed) == (0, 0), done.output[-3000:]
    assert pids(host) == before


def test_a_killed_one_comes_back(box: Any) -> None:
    host, _, _ = box
    before = pids(host)
    host.exec("kill", "-9", *before)
    until(lambda: pids(host) and pids(host) != before, "new watchdog", PATIENCE_S, 0.5)


def test_it_comes_back_with_a_workstation(box: Any) -> None:
    host, home, _ = box
    if not host.kind.systemd:
        pytest.skip("a rental has no systemd: what ran comes back with the next run")
    assert host.exec("systemctl", "is-enabled", "drafthouse-watchdog").stdout.strip() == "enabled"
    before = len(journal(host, home))
    host.restart()
    until(lambda: len(pids(host)) == 1, "watchdog after the restart", PATIENCE_S, 0.5)
    until(lambda: len(journal(host, home)) > before, "line of the journal", PATIENCE_S, 0.5)


def test_it_changes_the_arm_and_back_in_the_boxs_own_runtime(box: Any, tmp_path: Path) -> None:
    """What `carry_out` calls, on the box and with what lies there."""
    host, home, _ = box
    program = (
        "import sys; from pathlib import Path; from drafthouse.addons.watchdog.switch import switch_to_phase; "
        "serve(Path(sys.argv[1]), sys.argv[2], 'test')"
    )
    for phase, arm in (("off", "baseline"), ("trial", "speculative")):
        host.exec(
            "env", f"PYTHONPATH={archive_file(home)}", f"{home}/venv/bin/python", "-c", program, home, phase,
            timeout=300,
        )  # fmt: skip
        last = json.loads(host.exec("tail", "-n1", f"{home}/served/history.jsonl").stdout)
        assert (last["event"], last["arm"]) == ("switched", arm)
        assert len(host.exec("pgrep", "-f", "bin/llama-server.* --model").stdout.split()) == 1
    # It was changed behind its back: it sees that, and leaves the server alone.
    until(lambda: any(line["code"] == "restarted" for line in journal(host, home)), "word of it", PATIENCE_S, 0.5)


def test_absent_leaves_nothing(box: Any) -> None:
    host, home, play = box
    done = play("site.yml --tags watchdog", drafthouse_watchdog=None)
    assert done.status == 0, done.output[-3000:]
    assert pids(host) == []
    for path in (f"{home}/watchdog", "/etc/systemd/system/drafthouse-watchdog.service"):
        assert host.exec("test", "-e", path, check=False).returncode == 1
