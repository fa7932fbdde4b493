"""What happens to the real engine while it is measured: the out-of-memory killer, a stranger at its port, SIGSTOP.

Steps are measured on the box's own level: the real supervisord, the real llama.cpp, no playbook.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.loop import step_file
from tests.support.llama_box import LlamaBox, llama_box

pytestmark = pytest.mark.alone

MIB = 1024**2


@dataclass
class Group:
    """A memory control group of the test's own, of cgroup v1 or v2."""

    folder: Path
    limit_file: Path

    def limit(self, mib: int) -> None:
        self.limit_file.write_text(str(mib * MIB))

    def pids(self) -> list[int]:
        return [int(word) for word in (self.folder / "cgroup.procs").read_text().split()]


@pytest.fixture
def group() -> Iterator[Group]:
    top = Path("/sys/fs/cgroup")
    two = (top / "cgroup.controllers").exists()
    folder = (top if two else top / "memory") / f"drafthouse-test-{os.getpid()}"
    limit = folder / ("memory.max" if two else "memory.limit_in_bytes")
    try:
        folder.mkdir()
        assert limit.exists()
    except (OSError, AssertionError):
        pytest.skip("no memory control group can be made here (root, cgroup v1 or v2)")
    yield Group(folder, limit)
    for _ in range(100):
        for pid in Group(folder, limit).pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.05)


# Takes memory inside the group until the kernel has ended the engine, which asked to be the first.
HOG = """
import pathlib, sys, time
folder, pid, stays = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "stays"
(folder / "cgroup.procs").write_text(str(__import__("os").getpid()))
held = []
while pathlib.Path("/proc", pid).exists() and len(held) < 200:
    held.append(bytearray(b"x" * 4_000_000))
    time.sleep(0.005)
if stays:
    time.sleep(120)
"""


def eaten(box: LlamaBox, group: Group, stays: bool) -> threading.Thread:
    """Once the engine has answered a few requests, have something else eat the group's memory."""

    def eat() -> None:
        pid = box.runtime.state("baseline").pid
        log = box.home / "logs" / "baseline.log"
        end = time.monotonic() + 120
        before = log.stat().st_size
        while log.stat().st_size < before + 2000 and time.monotonic() < end:
            time.sleep(0.02)
        words = [sys.executable, "-c", HOG, str(group.folder), str(pid), "stays" if stays else "goes"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(words, timeout=180, check=False)

    thread = threading.Thread(target=eat, daemon=True)
    thread.start()
    return thread


def waited_for(box: LlamaBox, arms: Mapping[str, int]) -> int:
    """Wait for the arms of a step, and return the baseline's process."""
    box.wait(arms)
    pid = box.runtime.state("baseline").pid
    assert pid
    return pid


def confined(group: Group) -> str:
    return f"echo $$ > {group.folder}/cgroup.procs; echo 1000 > /proc/self/oom_score_adj"


def test_the_out_of_memory_killer_is_named_and_the_step_measured_again(
    group: Group, figure: Callable[[str], None]
) -> None:
    group.limit(700)
    with llama_box(before=confined(group), chat=20) as box:
        step = box.resolved()["experiment"]["steps"][0]
        box.serve(step["arms"])
        box.wait(step["arms"])
        eater = eaten(box, group, stays=False)
        kept = box.measured()
        eater.join(120)
    # What eats the memory may take so much of a processor that the step is measured once more for that.
    (note,) = [note for note in kept["notes"] if " died " in note]
    figure(note)
    assert note.startswith(
        "round 1: baseline died (killed by signal 9 (SIGKILL), by the kernel's out-of-memory killer ("
    )
    # By 2 where the engine's memory is not back yet, and the kernel takes the eater, too; its log names each of them.
    rose = re.search(r"oom_kill of its group rose by ([12]) ", note)
    assert rose, note
    assert note.count("killed: ") in (0, int(rose[1])), note
    assert "its group's limit is 700 MiB" in note
    assert note.endswith("; the step was measured again")
    assert [one["status"] for one in kept["arms"]["baseline"]["requests"]] == ["ok"] * 20


@pytest.mark.soak
def test_an_engine_that_is_killed_otherwise_is_not_blamed_on_memory() -> None:
    with llama_box(chat=12) as box:
        step = box.resolved()["experiment"]["steps"][0]
        box.serve(step["arms"])
        pid = waited_for(box, step["arms"])
        threading.Timer(0.7, os.kill, (pid, signal.SIGKILL)).start()
        kept = box.measured()
    (note,) = kept["notes"]
    assert "baseline died (killed by signal 9 (SIGKILL); the kernel's out-of-memory killer has not struck" in note


@pytest.mark.soak
def test_an_engine_that_has_no_memory_leaves_no_step_and_a_rerun_with_memory_converges(
    group: Group, figure: Callable[[str], None]
) -> None:
    group.limit(700)
    with llama_box(before=confined(group), chat=20) as box:
        first = box.measure(0)
        assert first["notes"] == []
        group.limit(700)
        step = box.resolved()["experiment"]["steps"][0]
        step_file(box.resolved(), step).rename(box.home / "kept.json")
        box.serve(step["arms"])
        box.wait(step["arms"])
        eaten(box, group, stays=True)
        with pytest.raises(DrafthouseError) as caught:
            box.measured()
        (problem,) = caught.value.problems
        figure(problem.found)
        assert "out-of-memory killer" in problem.found
        assert not step_file(box.resolved(), step).exists()
        group.limit(4000)
        assert box.measure(0)["notes"] == []


LISTENER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "smol"}]}')
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.soak
def test_a_stranger_at_the_port_between_two_arms_is_named(figure: Callable[[str], None]) -> None:
    """It even answers as our model does: its answers are not measured."""
    with llama_box(chat=3) as box:
        first = box.measure(0)
        assert first["arms"]["baseline"]["requests"]
        box.supervisor.stop("baseline")
        with subprocess.Popen([sys.executable, "-c", LISTENER, str(box.port)]) as stranger:
            try:
                began = time.monotonic()
                with pytest.raises(DrafthouseError) as caught:
                    box.measure(1)
                seconds = time.monotonic() - began
            finally:
                stranger.kill()
        (problem,) = caught.value.problems
        assert problem.found.startswith(f"port {box.port} is taken (pid {stranger.pid}: ")
        assert problem.do == "stop that program, or choose another port: -e drafthouse_port=8100"
        figure(f"{problem.found[:60]}..., after {seconds:.1f} s")
        # What was measured stays, and with the port free again the next run goes on with the second arm.
        assert step_file(box.resolved(), box.resolved()["experiment"]["steps"][0]).exists()
        assert box.measure(1)["arms"]["speculative"]["requests"]


@pytest.mark.soak
def test_a_disk_that_fills_up_while_it_is_measured_costs_nothing(tmp_path: Path) -> None:
    """The room for a step is put aside before it; a disk that is full before it is said before it."""
    room = tmp_path / "room"
    room.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "drafthouse-test", str(room)], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount (root)")
    filler = room / "filler"

    def fill() -> None:
        while not (room / "steps" / ".01.json.room").exists():
            time.sleep(0.01)
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))

    try:
        with llama_box(chat=8) as box:
            (box.home / "results").symlink_to(room)
            filling = threading.Thread(target=fill)
            filling.start()
            kept = box.measure(0)
            filling.join(120)
            assert filler.stat().st_size > 10 * MIB
            assert [one["status"] for one in kept["arms"]["baseline"]["requests"]] == ["ok"] * 8
            with pytest.raises(DrafthouseError) as caught:
                box.measure(1)
            (problem,) = caught.value.problems
            assert problem.found.startswith("No space left on device: ")
            assert (problem.needed, problem.where) == ("room for 16.0 MiB", f"{box.home}/results/steps/02.json")
            assert "free some space there, then run again" in problem.do
            assert sorted(path.name for path in (room / "steps").iterdir()) == ["01.json"]
            filler.unlink()
            assert box.measure(1)["arms"]["speculative"]["requests"]
            assert sorted(path.name for path in (room / "steps").iterdir()) == ["01.json", "02.json"]
    finally:
        subprocess.run(["umount", "--lazy", str(room)], check=True)


@pytest.mark.soak
def test_a_stopped_llama_server_is_started_anew(figure: Callable[[str], None]) -> None:
    """SIGSTOP for longer than the time for a request; SIGCONT comes when it is over."""
    with llama_box(chat=12) as box:
        step = box.resolved()["experiment"]["steps"][0]
        box.serve(step["arms"])
        pid = waited_for(box, step["arms"])
        threading.Timer(0.7, os.kill, (pid, signal.SIGSTOP)).start()
        kept = box.measured(timeout_s=2.0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    (note,) = kept["notes"]
    figure(note)
    assert note.startswith(f"round 1: the engine was stopped by a signal (pid {pid}: ")
    assert [one["status"] for one in kept["arms"]["baseline"]["requests"]] == ["ok"] * 12
