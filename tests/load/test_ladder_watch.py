"""An arm under a real supervisord that is killed: the ladder's watch sees it, and has it back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import Endpoint
from drafthouse.bench.sweep.recovery import RuntimeWatch
from drafthouse.core.errors import DrafthouseError
from drafthouse.serving.runtimes import ContainerRuntime, ProcessRuntime, State
from drafthouse.serving.supervisor import Supervisor, configuration
from tests.support.ports import free_port
from tests.support.refusals import refuses
from tests.unit.serving.test_supervisor import SERVER, program, wait

ENGINE: Any = {"health": "/health", "ready_timeout_s": 30}
# Dies at once the second time it is started.
ONCE = (
    "import pathlib, sys\n"
    "mark = pathlib.Path(sys.argv[0] + '.was-here')\n"
    "if mark.exists(): print('no second time', flush=True); sys.exit(3)\n"
    "mark.touch()\n"
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    one = Supervisor(tmp_path / "s")
    yield one
    one.shut_down()


def watched(supervisor: Supervisor, folder: Path, text: str) -> tuple[RuntimeWatch, ProcessRuntime, int]:
    """Start the program as the arm, and return what watches it."""
    port = free_port()
    one = program(folder, text, "--port", str(port), "m")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    wait(supervisor, one, port)
    runtime = ProcessRuntime(supervisor, folder)
    return RuntimeWatch(runtime, ENGINE, [Endpoint("arm", f"http://127.0.0.1:{port}", "m", "key")]), runtime, port


def kill(supervisor: Supervisor) -> int:
    pid = int(supervisor.programs()["arm"]["pid"])
    os.kill(pid, signal.SIGKILL)
    return pid


def dead_soon(watch: RuntimeWatch) -> bool:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if asyncio.run(watch.died("arm")):
            return True
        time.sleep(0.05)
    return False


def test_an_arm_that_is_killed_is_back_and_no_longer_dead(tmp_path: Path, supervisor: Supervisor) -> None:
    watch, _, port = watched(supervisor, tmp_path, SERVER)
    assert not asyncio.run(watch.died("arm"))
    # Before it has lived for five seconds supervisord does not bring it back by itself.
    pid = kill(supervisor)
    assert dead_soon(watch)
    said = asyncio.run(watch.bring_back("arm"))
    assert said.startswith("the engine was restarted and was ready after ")
    assert supervisor.programs()["arm"]["pid"] not in (0, pid)
    assert not asyncio.run(watch.died("arm"))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == 0


def test_one_that_the_supervisor_brought_back_counts_as_dead_all_the_same(
    tmp_path: Path, supervisor: Supervisor
) -> None:
    watch, runtime, _ = watched(supervisor, tmp_path, SERVER)
    first = runtime.state("arm").started
    assert first is not None
    until = time.monotonic() + 120
    while supervisor.programs()["arm"]["statename"] != "RUNNING" or time.time() - first < 6:
        assert time.monotonic() < until
        time.sleep(0.1)
    kill(supervisor)
    while runtime.state("arm").started == first or not runtime.state("arm").running:
        assert time.monotonic() < until + 10
        time.sleep(0.1)
    assert asyncio.run(watch.died("arm"))
    asyncio.run(watch.bring_back("arm"))
    assert not asyncio.run(watch.died("arm"))


def test_one_that_does_not_start_again_says_why(tmp_path: Path, supervisor: Supervisor) -> None:
    watch, _, _ = watched(supervisor, tmp_path, ONCE + SERVER)
    kill(supervisor)
    assert dead_soon(watch)
    with pytest.raises(DrafthouseError) as caught:
        asyncio.run(watch.bring_back("arm"))
    assert "no second time" in caught.value.problems[0].found


def test_without_a_supervisor_there_is_no_start(tmp_path: Path) -> None:
    with refuses("supervisor-failed"):
        Supervisor(tmp_path / "nobody").start("arm")


def test_a_container_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, str]] = []
    runtime = ContainerRuntime()
    monkeypatch.setattr(runtime, "_call", lambda method, path: called.append((method, path)))
    with pytest.raises(DrafthouseError, match="the container drafthouse-baseline does not start: no such"):
        runtime.start("baseline")
    assert called[0] == ("POST", "/containers/drafthouse-baseline/start")


def test_an_arm_that_lives_is_started_anew(tmp_path: Path, supervisor: Supervisor) -> None:
    watch, runtime, _ = watched(supervisor, tmp_path, SERVER)
    pid = supervisor.programs()["arm"]["pid"]
    runtime.stop("arm")
    assert not runtime.state("arm").running
    runtime.stop("arm")  # nothing is left to do
    asyncio.run(watch.bring_back("arm"))
    assert supervisor.programs()["arm"]["pid"] not in (0, pid)


def test_a_container_that_does_not_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ContainerRuntime()
    monkeypatch.setattr(runtime, "_call", lambda method, path: None)
    monkeypatch.setattr(runtime, "state", lambda arm: State(True, 1.0))
    with pytest.raises(DrafthouseError, match="the container drafthouse-baseline does not stop"):
        runtime.stop("baseline")
