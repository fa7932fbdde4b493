"""site.yml on a rented container: sshd and nothing else. The engine runs under our supervisor, which brings it back."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import Ended, Host, Lab
from tests.support.canaries import LETTERS, Canaries, Watched, canary, environment, left_behind, on_the_box
from tests.support.tales import TALES
from tests.support.verdicts import consistent
from tests.support.waiting import until

# Every day a rented box goes this way in tests/vast.
pytestmark = pytest.mark.soak

PROFILE = "cpu-smollm2-ngram"
HOME = "/workspace/drafthouse"
# What a workstation's roles call, and a rental does not have. On this one each is there and writes down who calls it.
NOT_HERE = (
    *("systemctl", "service", "docker", "dockerd", "nvidia-ctk", "apt", "apt-get", "modprobe", "sysctl"),
    *("iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore", "nft"),
)
CALLS = "/root/calls"
SPY = f"""#!/bin/sh
printf '%s %s (of %s)\\n' "${{0##*/}}" "$*" "$(tr '\\0' ' ' </proc/$PPID/cmdline | cut -c-200)" >>{CALLS}
exit 1
"""
# Asks the server on the box's own loopback, as a tunnel's end would.
ASK = f"""
import json, urllib.request
key = open("{HOME}/secrets/api_key").read().strip()
body = {{"model": "smollm2-135m", "max_tokens": 8, "messages": [{{"role": "user", "content": "Say yes."}}]}}
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/chat/completions", json.dumps(body).encode(),
    {{"Authorization": f"Bearer {{key}}", "Content-Type": "application/json"}},
)
print(json.load(urllib.request.urlopen(request, timeout=60))["usage"]["completion_tokens"])
"""
MEASURING = r"AnsiballZ_benchmark\.py$"  # the step itself, without what Ansible wraps around it
AWAY_S, START_S, MEASURING_S, BACK_S = 5, 120, 1800, 480
STARTED_S = 5  # supervisord's startsecs

Play = Callable[..., Ended]


@pytest.fixture(scope="module")
def box(lab: Lab) -> Iterator[Host]:
    """A rental whose PATH begins with spies."""
    host = lab.start("rental")
    for name in NOT_HERE:
        host.put(f"/usr/local/sbin/{name}", SPY, mode="0755")
    host.run("iptables", "-L", check=False)
    assert host.run("cat", CALLS).stdout.startswith("iptables -L (of ")  # the spies see what comes over SSH
    host.run("rm", CALLS)
    yield host
    host.remove()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def secret() -> Iterator[Canaries]:
    """What the person's environment holds, each a value that nothing else has; and runs as loud as Ansible can be."""
    canaries = Canaries({"HF_TOKEN": canary("hf_", LETTERS, 34), "DRAFTHOUSE_API_KEY": canary("", LETTERS, 40)})
    with environment(canaries, ANSIBLE_VERBOSITY="3", ANSIBLE_DIFF_ALWAYS="1"):
        yield canaries


@pytest.fixture(scope="module")
def watched(secret: Canaries) -> Watched:
    return Watched(secret)


@pytest.fixture(scope="module")
def site(lab: Lab, box: Host, reports: Path, secret: Canaries) -> Play:
    """Run a playbook with the inventory of a rented box."""
    words: dict[str, Any] = {"profile": PROFILE, "overrides": {"experiment": TALES}, "report_folder": str(reports)}
    return partial(lab.play, inventory=lab.inventory([box], like="vastai"), **words)


def processes(box: Host, pattern: str) -> dict[int, str]:
    """The processes whose command line matches, looked at past sshd."""
    lines = box.exec("pgrep", "-af", pattern, check=False).stdout.splitlines()
    return {int(line.split()[0]): line for line in lines}


def engines(box: Host) -> dict[int, str]:
    return processes(box, "bin/llama-server --model")


def tokens(box: Host) -> int:
    """Ask the served model something; return the number of tokens that it answered, 0 where nobody answers."""
    done = box.run("python3", "-", stdin=ASK, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def drop_ssh(box: Host) -> None:
    """End sshd and every connection it holds, and keep it away for a while; the box's start script brings it back."""
    box.exec("chmod", "a-x", "/usr/sbin/sshd")
    try:
        box.exec("pkill", "-KILL", "^sshd")
        time.sleep(AWAY_S)
    finally:
        box.exec("chmod", "a+x", "/usr/sbin/sshd")


@pytest.fixture(scope="module")
def measured(box: Host, site: Play, watched: Watched, figure: Callable[[str], None]) -> Ended:
    """From nothing to a report; while it measures, sshd goes away under it."""
    with watched, ThreadPoolExecutor(1) as background:
        running = background.submit(site, "site.yml")
        until(lambda: running.done() or processes(box, MEASURING), "measurement that runs", MEASURING_S, 0.2)
        before, job = engines(box), processes(box, MEASURING)
        drop_ssh(box)
        until(lambda: processes(box, "^sshd: /usr/sbin/sshd"), "sshd", START_S, 0.2)
        # Neither hung from the connection.
        assert job, running.result()
        assert engines(box) == before
        assert processes(box, MEASURING) == job
        ended: Ended = running.result()
    figure(f"rental, first run with sshd lost under it: {ended.seconds:.0f} s")
    return ended


def test_the_whole_way_survives_a_lost_sshd(measured: Ended, reports: Path) -> None:
    assert measured.status == 0, measured.output[-3000:]
    assert "connection lost; the work continues on the box" in measured.output
    (folder,) = (reports / PROFILE).iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert consistent(report)
    assert json.loads((folder / "speculative.json").read_text())["spec_decode_accepted_tokens"] > 0


def test_no_secret_is_left_on_the_way(
    measured: Ended, box: Host, secret: Canaries, watched: Watched, reports: Path
) -> None:
    """On the box, on the controller, in process lists of either, and in what `-vvv --diff` prints."""
    assert on_the_box(box, secret) == {
        "HF_TOKEN": {}, "DRAFTHOUSE_API_KEY": {f"{HOME}/secrets/api_key": "0o600"},
    }  # fmt: skip
    assert left_behind(secret, ROOT) == []
    assert list(secret.below(reports)) == []
    assert secret.within(measured.output.encode()) == set()
    assert watched.looks > 100
    assert watched.found == set()


def test_nothing_of_a_workstation_is_done_and_the_run_says_so(measured: Ended, box: Host) -> None:
    assert "drafthouse_manage_host: false" in measured.output
    for role in ("nvidia_driver", "container_engine", "firewall"):
        assert f"TASK [{role} :" not in measured.output
    calls = box.run("cat", CALLS, check=False).stdout
    assert calls == ""


def test_it_is_served_by_our_supervisor_on_loopback_alone(measured: Ended, box: Host) -> None:
    seen = box.backend()
    (engine,) = engines(box)
    (supervisor,) = processes(box, f"supervisord -c {HOME}/supervisor/supervisord.conf")
    status = seen.file(f"/proc/{engine}/status").content_string
    assert f"PPid:\t{supervisor}\n" in status
    assert tokens(box) > 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((box.ip4, 8000), timeout=10)


def test_a_killed_engine_is_back_by_itself(measured: Ended, box: Host, figure: Callable[[str], None]) -> None:
    (before,) = engines(box)
    # One that dies in its first seconds is an error to show; it counts as started after them.
    until(lambda: int(box.exec("ps", "-o", "etimes=", "-p", str(before)).stdout) > STARTED_S, "engine", START_S, 0.2)
    box.exec("kill", "-KILL", str(before))
    until(lambda: before not in engines(box), "end of the engine", START_S, 0.2)
    seconds = until(lambda: tokens(box), "answer after kill -9 of the engine", BACK_S, 0.2)
    assert list(engines(box)) != [before]
    figure(f"rental, kill -9 of the engine to the next answer: {seconds:.1f} s")


def test_a_second_run_changes_nothing(
    measured: Ended, box: Host, site: Play, reports: Path, figure: Callable[[str], None]
) -> None:
    assert measured.status == 0
    before = sorted(reports.rglob("*"))
    served = engines(box)
    again = site("site.yml")
    assert again.status == 0
    assert again.changed == 0
    assert sorted(reports.rglob("*")) == before
    assert engines(box) == served
    assert not box.run("cat", CALLS, check=False).stdout
    figure(f"rental, converged run: {again.seconds:.1f} s")


def test_the_engine_brings_its_own_openmp(measured: Ended, box: Host) -> None:
    """The image has no libgomp, and only root could install it: the environment's own copy is what serves."""
    assert measured.status == 0
    assert "libgomp" not in box.exec("ldconfig", "-p").stdout
    assert box.exec("sh", "-c", f"ls {HOME}/engines/*/lib/openmp/libgomp.so.1").stdout.strip()
