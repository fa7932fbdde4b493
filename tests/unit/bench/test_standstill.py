"""What stands still while it is measured is no noise: the step is given up, measured again once, and says so."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench import standstill
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.own_processes import local_engine_pids
from drafthouse.bench.standstill import StoodStill, wait_for_standstill
from drafthouse.bench.step import run_step
from drafthouse.core.exit_codes import FAILED
from drafthouse.core.procfs import state_of
from drafthouse.experiment.loop import step_file
from drafthouse.profiles.workspace import ROOT
from tests.fakes.clock_server import Running, clock_server
from tests.unit.bench.test_step import suite
from tests.unit.experiment.test_loop import Arms, arms, measured, on_the_box

__all__ = ["arms"]
pytestmark = pytest.mark.processes

SLOW = {"ttft_ms": 20, "interval_ms": 10, "tokens": 12}


@contextlib.contextmanager
def stopped_once(server: Running, after: int, seconds: float) -> Iterator[None]:
    """Have a server stop itself when it has been asked so often, and SIGCONT it later."""
    over = threading.Event()
    server.change(stops_at=after)

    def go_on() -> None:
        while state_of(server.pid) not in ("T", None) and not over.wait(0.01):
            pass
        over.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_an_engine_that_is_stopped_ends_the_step_and_names_who_waited() -> None:
    began = time.monotonic()
    kept: list[Any] = []
    with clock_server(**SLOW) as server, stopped_once(server, 4, 300.0), pytest.raises(StoodStill) as caught:
        run_step(
            [Endpoint("a", server.base_url, "clock")], [suite("s", chat=30)], StepOptions(timeout_s=120.0),
            on_stopped=kept.append,
        )  # fmt: skip
    (problem,) = caught.value.problems
    assert problem.found.startswith(f"the engine was stopped by a signal (pid {server.pid}: ")
    assert "while chat was asked in round 1 (waiting or next: a: " in problem.found
    # Long before the time was up for one request, and there were thirty.
    assert time.monotonic() - began < 60
    # What had ended well is not lost, and is marked.
    assert kept[0]["incomplete"]
    assert {one["status"] for one in kept[0]["arms"]["a"]["requests"]} == {"ok"}


def test_bench_shows_and_keeps_what_had_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from drafthouse.cli import bench

    result = tmp_path / "out.json"
    words = ["--model", "clock", "--kind", "chat", "--num-prompts", "30", "--result", str(result)]
    with clock_server(**SLOW) as server, stopped_once(server, 4, 300.0):
        assert bench.main(["--base-url", server.base_url, *words]) == FAILED
    kept = json.loads(result.read_text())
    assert kept["incomplete"]
    assert kept["completed"] > 0
    assert kept["notes"][-1].startswith("the engine was stopped by a signal (pid ")
    assert "Note: the engine was stopped by a signal" in capsys.readouterr().out


def test_a_stopped_engine_has_its_step_measured_again_on_fresh_arms(tmp_path: Path, arms: Arms) -> None:
    """Longer than the time for a request, as somebody's debugger does it; it goes on later."""
    resolved = on_the_box(tmp_path, arms)
    server = Running(f"http://127.0.0.1:{arms.ports['speculative']}", arms.processes["speculative"].pid)
    with stopped_once(server, 3, 300.0):
        step = measured(resolved)
    assert arms.starts == {"baseline": 2, "speculative": 2}
    (note,) = step["notes"]
    assert note.startswith("round 1: the engine was stopped by a signal (pid ")
    assert note.endswith("; the step was measured again")
    for arm in ("baseline", "speculative"):
        assert [one["status"] for one in step["arms"][arm]["requests"]] == ["ok"] * 8


@pytest.mark.soak
def test_an_engine_that_is_stopped_again_leaves_no_step(tmp_path: Path, arms: Arms) -> None:
    resolved = on_the_box(tmp_path, arms)
    over = threading.Event()

    def stop_whatever_starts() -> None:
        while not over.wait(0.05):
            process = arms.processes["baseline"]
            with contextlib.suppress(OSError):  # between two starts
                if len(Running(f"http://127.0.0.1:{arms.ports['baseline']}", process.pid).record()) >= 3:
                    os.kill(process.pid, signal.SIGSTOP)
                    over.wait(0.1)

    thread = threading.Thread(target=stop_whatever_starts)
    thread.start()
    try:
        with pytest.raises(StoodStill, match="the engine was stopped by a signal"):
            measured(resolved)
    finally:
        over.set()
        arms.stop("baseline")
        thread.join()
    assert not step_file(resolved, resolved["experiment"]["steps"][0]).exists()
    # The next run measures it.
    arms.start("baseline")
    assert measured(resolved)["notes"] == []


MEASURES = """
import json, sys
sys.path[:0] = [sys.argv[1] + "/src", sys.argv[1] + "/collections", sys.argv[1]]
from drafthouse.bench.client import Endpoint
from drafthouse.bench.groups import StepOptions
from drafthouse.bench.step import run_step
from drafthouse.bench.standstill import StoodStill
from tests.unit.bench.test_step import suite
try:
    run_step([Endpoint("a", sys.argv[2], "clock")], [suite("s", chat=400)], StepOptions(timeout_s=120.0))
except StoodStill as error:
    print(json.dumps(error.problems[0].found))
"""


def test_a_client_that_was_stopped_says_so(figure: Callable[[str], None]) -> None:
    """A laptop's lid: the whole run stands, and goes on later. The engine had answered, so each answer looks well."""
    with clock_server(**SLOW) as server:
        words = [sys.executable, "-c", MEASURES, str(ROOT), server.base_url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
            while len(server.record()) < 4:
                assert client.poll() is None
                time.sleep(0.01)
            os.kill(client.pid, signal.SIGSTOP)
            time.sleep(standstill.LATE_S + 2)
            assert state_of(client.pid) == "T"
            os.kill(client.pid, signal.SIGCONT)
            said, _ = client.communicate(timeout=120)
    found = json.loads(said)
    assert found.startswith("the measuring process stood still for ")
    figure(found)


async def test_a_suspended_machine_is_told_by_the_clock_that_ran_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lid does to the clocks: the monotonic one stands, the boot clock runs. An hour is injected."""
    real, lid = time.clock_gettime, {"closed_s": 0.0}
    monkeypatch.setattr(
        time, "clock_gettime",
        lambda clock: real(clock) + (lid["closed_s"] if clock == time.CLOCK_BOOTTIME else 0.0),
    )  # fmt: skip
    threading.Timer(0.3, lambda: lid.update(closed_s=3600.0)).start()
    assert await wait_for_standstill(set, look_s=0.1, late_s=60.0) == "the machine was suspended for 3,600 s"


async def test_our_own_work_is_no_standstill() -> None:
    """Reading the answers of hundreds of streams keeps the loop busy for seconds: that is CPU, and no sleep."""
    import asyncio

    for _ in range(4):  # a machine that stood still itself is one all the same, but not every time
        looking = asyncio.create_task(wait_for_standstill(set, look_s=0.05, late_s=0.5))
        await asyncio.sleep(0.2)
        end = time.process_time() + 1.2
        while time.process_time() < end:
            pass
        await asyncio.sleep(0.2)
        if not looking.done():
            looking.cancel()
            return
    pytest.fail(looking.result())


def test_only_servers_of_this_machine_are_looked_at() -> None:
    with clock_server(**SLOW) as server:
        assert server.pid in local_engine_pids([Endpoint("a", server.base_url, "clock")])
        elsewhere = server.base_url.replace("127.0.0.1", "192.0.2.7")
        assert local_engine_pids([Endpoint("a", elsewhere, "clock")]) == set()
