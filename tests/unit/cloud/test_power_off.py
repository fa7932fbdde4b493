"""A box that cannot destroy itself: it stops itself, else it ends what serves on it, and it never gives up asking."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest

from drafthouse.cloud import power_off
from drafthouse.cloud.vast.client import VastClient
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.fakes.vast_server import ALWAYS, Fault, Running, vast_server
from tests.support.deadline_box import Box, loaded, written
from tests.support.docker_socket import docker_socket

pytestmark = pytest.mark.processes

PATIENCE_S = 120.0
# What a request to end the box may be answered with for ever.
FAILING: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "503": {"status": 503},
    "429": {"status": 429},
    "no JSON": {"body": b"<html>Just a moment...</html>"},
    "an HTML 502": {"status": 502, "body": b"<html>bad gateway</html>"},
    "hangs up": {"cut": True},
    "half": {"half": True},
    "null": {"body": b"null"},
    "a text": {"body": b'"ok"'},
    "a list": {"body": b"[]"},
    "401": {"status": 401},
    "success without effect": {"body": b'{"success": true}'},
}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return loaded(written(tmp_path_factory.mktemp("program")))


class Late(Box):
    """A box past its deadline, whose instance stands in an account; no second of it is waited for."""

    def __init__(self, code: ModuleType, folder: Path, vast: Running) -> None:
        super().__init__(code, folder)
        body = {"client_id": "me", "image": "x", "disk": 10, "runtype": "ssh_direc ssh_proxy", "label": "ours"}
        self.vast, self.number = vast, VastClient(vast.key, vast.url).create(8200002, body)
        key = vast.market.instances[self.number].container_key
        self.environ = {"CONTAINER_ID": str(self.number), "CONTAINER_API_KEY": key}
        self.order(left_s=0)
        self.since = 0.0

    def once(self) -> float:
        def ask(verb: str, body: Any) -> int:
            self.asked.append(verb)
            return int(self.code.ask(verb, body, self.vast.url, self.environ))

        wait: float = self.watch.once(dict(self.now), ask, lambda: None)
        self.passes(wait)
        self.since += wait
        return wait

    @property
    def stopped(self) -> bool:
        return bool(self.vast.instances[self.number]["intended_status"] == "stopped")


@pytest.fixture
def late(code: ModuleType, tmp_path: Path) -> Iterator[Late]:
    with vast_server() as vast:
        yield Late(code, tmp_path, vast)


def servers(box: Box) -> Path:
    """Put down what ends servers, as a playbook does; return the file in which it says that it was called."""
    said = box.folder / "ended"
    (box.folder / "power_off.py").write_text(f"open({str(said)!r}, 'a').write('x')\nprint('ended what served')\n")
    return said


@pytest.mark.parametrize("name", FAILING)
def test_a_box_that_cannot_destroy_itself_stops_itself(late: Late, name: str) -> None:
    late.vast.faults.append(Fault("destroy", times=ALWAYS, **FAILING[name]))
    ended = servers(late)
    while not late.stopped:
        late.once()
        assert late.since < 300, late.journal
    assert late.journal[-1] == "stopped; its disk is still billed: make destroy"
    assert not ended.exists(), "the platform has ended it"
    assert late.number not in late.vast.market.serving()
    # Stopped, and started again by somebody: it goes on asking to be destroyed.
    late.vast.faults.clear()
    late.watch = late.code.Watch(str(late.folder))
    late.once()
    assert late.number not in late.vast.instances


@pytest.mark.parametrize("name", [name for name in FAILING if name != "success without effect"])
def test_one_that_cannot_be_stopped_either_ends_what_serves_and_goes_on_asking(late: Late, name: str) -> None:
    for route in ("destroy", "state"):
        late.vast.faults.append(Fault(route, times=ALWAYS, **FAILING[name]))
    ended = servers(late)
    while not ended.exists():
        late.once()
        assert late.since < 900, late.journal
    assert late.journal[-1] == "ended what served"
    assert late.asked.count("PUT") >= 3
    waits = [late.once() for _ in range(8)]
    assert waits == [240, 480, 600, 600, 600, 600, 600, 600], "ever more rarely"
    assert ended.read_text() == "x" * 9, "what has been started since is ended, too"
    late.vast.faults.clear()
    late.once()
    assert late.number not in late.vast.instances, "and it never gives up"


def test_a_box_to_which_no_playbook_came_has_nothing_to_end(late: Late) -> None:
    for route in ("destroy", "state"):
        late.vast.faults.append(Fault(route, times=ALWAYS, status=500))
    assert [late.once() for _ in range(12)][3:] == [60] * 9


def test_what_ends_the_servers_may_fail(late: Late) -> None:
    for route in ("destroy", "state"):
        late.vast.faults.append(Fault(route, times=ALWAYS, status=500))
    (late.folder / "power_off.py").write_text("raise SystemExit('no /proc here')\n")
    for _ in range(10):
        late.once()
    assert late.journal[-1] == "no /proc here"
    late.vast.faults.clear()
    late.once()
    assert late.number not in late.vast.instances


def test_a_deadline_that_is_put_off_starts_anew(late: Late) -> None:
    late.vast.faults.append(Fault("destroy", times=ALWAYS, status=500))
    for _ in range(4):
        late.once()
    late.order(left_s=100, deadline=7)
    late.once()
    late.passes(100)
    late.asked.clear()
    assert [late.once() for _ in range(4)] == [10, 20, 40, 60]
    assert late.asked == ["DELETE"] * 4


# --- what ends the servers --------------------------------------------------------------------------------

ENGINE = """#!{python}
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A box's folder with a supervisor that holds an engine, whose worker is in a session of its own."""
    parent = Path(tempfile.mkdtemp(prefix="dh-off-"))  # pytest's own folders are too deep for a socket's path
    folder = parent / "home"
    (folder / "serve").mkdir(parents=True)
    script = folder / "serve" / "serve.sh"
    script.write_text(ENGINE.format(python=sys.executable))
    script.chmod(0o700)
    supervisor = Supervisor(folder / "supervisor")
    programs = [Program("speculative", [str(script)], str(folder / "engine.log"))]
    supervisor.converge(configuration(supervisor.home, programs), ["speculative"], fresh=False)
    yield folder
    supervisor.shut_down(1.0)
    shutil.rmtree(parent)


def awaited(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    return pid in power_off.processes() and power_off.processes()[pid][0] != ("",)


def test_it_ends_the_engine_with_its_workers_and_leaves_the_rest(tmp_path: Path, home: Path) -> None:
    log = home / "engine.log"
    awaited(lambda: log.exists() and log.read_text().strip(), "worker")
    worker = int(log.read_text())
    engine = int(Supervisor(home / "supervisor").programs()["speculative"]["pid"])
    # Somebody who takes results home, and what would bring the server back.
    copying = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{home}/results"])
    (home / "served").mkdir()
    start = home / "served" / "start.sh"
    start.write_text("#!/bin/sh\nsleep 600\n")
    bringing = subprocess.Popen(["/bin/sh", str(start), "--guard"])
    folder = tmp_path / "watch"
    folder.mkdir()
    (folder / "arm.json").write_text(json.dumps({"home": str(home)}))
    answers = {
        "/containers/json": (200, "application/json", b'[{"Id": "c0ffee"}]'),
        "/containers/c0ffee/stop": (204, "", b""),
    }
    try:
        with docker_socket(answers) as (path, asked):
            done = subprocess.run(
                [sys.executable, power_off.__file__, str(folder)], capture_output=True, text=True, check=False,
                env={**os.environ, "DOCKER_HOST": f"unix://{path}"}, timeout=60,
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 containers; this box still bills: make destroy" in done.stdout
        assert [unquote(one) for one in asked] == [
            'GET /containers/json?filters={"name":["^/drafthouse-"]}', "POST /containers/c0ffee/stop",
        ]  # fmt: skip
        assert not any(map(alive, (engine, worker)))
        assert bringing.wait(120) < 0
        assert copying.poll() is None
    finally:
        for process in (copying, bringing):
            process.kill()
            process.wait()


def test_without_a_home_nothing_is_ended(tmp_path: Path, home: Path) -> None:
    (tmp_path / "arm.json").write_text(json.dumps({"deadline": 1, "life_s": 1, "url": "x"}))
    words = [sys.executable, power_off.__file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout == ""
    assert Supervisor(home / "supervisor").running()


def test_what_keeps_a_server() -> None:
    commands = {
        1: (("/bin/bash", "/.launch"), 0),
        20: (("python3", "/var/lib/drafthouse/deadline/onstart.py", "/var/lib/drafthouse/deadline"), 1),
        30: (("/w/venv/bin/python", "/w/venv/bin/supervisord", "-c", "/w/supervisor/supervisord.conf"), 1),
        31: (("VLLM::EngineCore",), 30),
        40: (("/w/venv/bin/python", "/w/venv/bin/supervisord", "-c", "/var/lib/drafthouse/deadline/supervisor/x"), 1),
        41: (("python3", "/var/lib/drafthouse/deadline/deadline.py", "/var/lib/drafthouse/deadline"), 40),
        50: (("/w/venv/bin/python", "/w/venv/bin/supervisord", "-c", "/w/gateway/supervisor/supervisord.conf"), 1),
        60: (("/bin/sh", "/w/served/start.sh"), 1),
        61: (("/w/venv/bin/python", "/w/drafthouse-0123456789ab.pyz", "guard", "/w"), 1),
        62: (("/w/venv/bin/python", "/w/drafthouse-0123456789ab.pyz", "watchdog", "/w"), 1),
        63: (("/w/venv/bin/python", "/w/served/program/start.py", "/w", "--guard"), 1),
        70: (("rsync", "--server", "--sender", ".", "/w/results/"), 1),
        80: (("/workshop/venv/bin/supervisord", "-c", "/workshop/supervisord.conf"), 1),
    }
    table = {pid: power_off.Process(argv, parent) for pid, (argv, parent) in commands.items()}
    assert power_off.server_processes(table, "/w") == power_off.server_processes(table, "/w/") == {30, 50, 60, 61, 63}
    assert power_off.with_descendants(table, {30, 50, 60}) == {30, 31, 50, 60}
