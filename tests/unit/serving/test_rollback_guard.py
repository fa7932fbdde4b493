"""The guard on the box: a run that is heard of no more leaves it, within seconds, with the server that it had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.action import guarded

from drafthouse.core.box_archive import archive, archive_file
from drafthouse.serving import rollback_guard as guard_module
from drafthouse.serving.out_of_traffic import DRAIN, RUN, out_file, reasons_out
from drafthouse.serving.restore import drift, put_back
from drafthouse.serving.rollback_guard import SILENT_S, beat_command, beat_file, guard, start_command
from tests.support.little_box import Box, little_box
from tests.support.loosely import read_history

pytestmark = pytest.mark.processes

# Holds the lock as a long step of ours does, until it is told to end.
HOLDER = (
    "import sys, time; from pathlib import Path; "
    "from drafthouse.core.locks import only_one\n"
    "with only_one(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
)


GUARD = "import sys; from drafthouse.serving.rollback_guard import guard; sys.exit(guard(sys.argv[1], 6.0))"


@pytest.fixture
def box() -> Iterator[Box]:
    """A box whose server a run has ended, for its first arm, when it was last heard of just now."""
    with little_box() as one:
        one.serve(one.resolved("one"))
        put_back(one.home, "0001", "speculative")
        subprocess.run(beat_command(one.home), shell=True, check=True)
        one.start(one.resolved("two"), "baseline")
        yield one


def heard_of(box: Box, seconds_ago: float) -> None:
    when = time.time() - seconds_ago
    os.utime(beat_file(box.home), (when, when))


def holder(box: Box) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLDER, str(box.home / "benchmark.lock")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_a_run_that_is_heard_of_is_left_alone(box: Box) -> None:
    done: list[int] = []
    one = threading.Thread(target=lambda: done.append(_guarded(box, 5.0)))
    one.start()
    for _ in range(6):
        time.sleep(0.5)
        heard_of(box, 0)
    assert not done
    assert drift(box.home)
    one.join(120)
    assert done == [0]
    assert box.said() == "one-speculative"


def _guarded(box: Box, silent_s: float) -> int:
    """Guard in another thread: the handler of a signal is none of that one's, as `only_one` would have it."""
    code = "import sys; from drafthouse.serving.rollback_guard import guard; "
    words = [sys.executable, "-c", code + "sys.exit(guard(sys.argv[1], float(sys.argv[2])))", str(box.home)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([*words, str(silent_s)], env=environment, timeout=180, check=False).returncode


def test_what_the_run_left_at_work_is_ended_and_the_server_is_back(box: Box) -> None:
    orphan = holder(box)
    heard_of(box, SILENT_S)
    os.utime(box.home / "benchmark.lock", (time.time() - 20, time.time() - 20))
    assert guard(box.home) == 0
    assert orphan.wait(120) == -signal.SIGTERM
    assert box.said() == "one-speculative"
    assert drift(box.home) == ""
    last = read_history(box.home)[-1]
    assert (last["event"], last["release"]) == ("served", "0001")
    assert last["why"].startswith("no sign of life from its run for 15 s: baseline runs instead of the spec")


@pytest.mark.parametrize("served", [True, False], ids=["what served is back", "nothing served before"])
def test_the_run_s_word_ends_with_it_and_a_person_s_stays(box: Box, tmp_path: Path, served: bool) -> None:
    home = box.home if served else tmp_path
    for owner in (DRAIN, RUN):
        out_file(home, owner).parent.mkdir(parents=True, exist_ok=True)
        out_file(home, owner).write_text("a test\n")
    (home / "run").mkdir(exist_ok=True)
    beat_file(home).touch()
    when = time.time() - 60
    os.utime(beat_file(home), (when, when))
    assert guard(home, 2.0) == 0
    assert not drift(home)
    assert reasons_out(home) == ["drain: a test"]


def test_a_newer_run_that_works_is_left_alone(box: Box) -> None:
    heard_of(box, SILENT_S)
    newer = holder(box)
    done: list[int] = []
    one = threading.Thread(target=lambda: done.append(_guarded(box, SILENT_S)))
    one.start()
    time.sleep(3)
    assert newer.poll() is None
    assert not done
    newer.kill()
    newer.wait()
    one.join(120)
    assert done == [0]
    assert box.said() == "one-speculative"


def test_one_that_cannot_come_back_is_said(box: Box, capsys: pytest.CaptureFixture[str]) -> None:
    (box.home / "weights").unlink()
    heard_of(box, SILENT_S)
    assert guard(box.home) == 1
    assert "release 0001 needs missing files" in capsys.readouterr().err


def test_what_was_accepted_meanwhile_stays(box: Box) -> None:
    box.serve(box.resolved("two"), "baseline")
    put_back(box.home, "0002", "baseline")
    heard_of(box, SILENT_S)
    before = len(read_history(box.home))
    assert guard(box.home) == 0
    assert box.said() == "two-baseline"
    assert len(read_history(box.home)) == before


def test_the_guard_of_a_later_run_waits_for_the_one_before(box: Box) -> None:
    done: list[int] = []
    several = [threading.Thread(target=lambda: done.append(_guarded(box, 2.0))) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join(120)
    assert done == [0, 0, 0]
    assert [event["event"] for event in read_history(box.home)] == ["served", "served"]


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_set_is_no_silence_and_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    file = beat_file(tmp_path)
    file.parent.mkdir()
    file.touch()
    untouched = guard_module._Untouched(file)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * hours)
    # Ahead: a run that lives is not taken for one that is gone. Back: one that is gone is found all the same.
    assert untouched.look(1.0) == pytest.approx(1.0, abs=0.5)
    assert sum([untouched.look(1.0) >= 15.0 for _ in range(20)]) in (5, 6, 7)
    os.utime(file, (real() - 7200, real() - 7200))  # a touch by a clock that was set back
    assert untouched.look(1.0) == 0.0


@pytest.mark.soak
def test_a_guard_that_stood_still_itself_gives_the_run_time_to_be_heard(box: Box) -> None:
    """A lid was closed over both: behind it the run is heard of again, and keeps its job."""
    heard_of(box, 0)
    words = [sys.executable, "-c", GUARD, str(box.home)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=environment) as one:
        time.sleep(1.0)
        os.kill(one.pid, signal.SIGSTOP)
        time.sleep(6.0)
        os.kill(one.pid, signal.SIGCONT)
        time.sleep(1.0)
        assert one.poll() is None
        assert drift(box.home)
        one.kill()


def test_it_is_started_where_the_box_has_one(box: Box) -> None:
    command = start_command(box.home, archive_file(box.home))
    assert subprocess.run(command, shell=True, check=False).returncode != 0
    name, data = archive()
    (box.home / name).write_bytes(data)
    heard_of(box, 20)
    before = beat_file(box.home).stat().st_mtime
    assert subprocess.run(command, shell=True, check=False).returncode == 0
    assert beat_file(box.home).stat().st_mtime > before
    heard_of(box, 20)
    for _ in range(2400):
        if "no sign of life from its run" in read_history(box.home)[-1]["why"]:
            break
        time.sleep(0.05)
    assert drift(box.home) == ""
    assert "no sign of life from its run" in read_history(box.home)[-1]["why"]


def test_a_playbook_that_was_killed_lives_no_more() -> None:
    assert guarded._is_running(os.getpid())
    one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert guarded._is_running(one.pid)
    one.kill()
    for _ in range(2400):  # it ends a moment later, and nobody has waited for it then
        if not guarded._is_running(one.pid):
            break
        time.sleep(0.05)
    assert not guarded._is_running(one.pid)
    one.wait()
    assert not guarded._is_running(one.pid)


class Action(guarded.ActionModule):
    """The action with a shell of this machine in the place of a connection."""

    def __init__(self, playbook: subprocess.Popen[bytes]) -> None:
        self.playbook, self.beats = playbook, 0

    def _low_level_execute_command(self, command: str, **_: Any) -> dict[str, Any]:
        self.beats += 1
        if self.beats == 3:
            self.playbook.communicate()
        return {"rc": subprocess.run(command, shell=True, check=False).returncode}


def test_the_beat_ends_with_the_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "BEAT_EVERY_S", 0.1)
    monkeypatch.setattr(os, "setsid", lambda: None)
    (tmp_path / "run").mkdir()
    # It ends while the third beat is under way.
    playbook = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    action, began = Action(playbook), time.time()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        action._beat(playbook.pid, beat_command(tmp_path))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert action.beats == 3
    assert beat_file(tmp_path).stat().st_mtime > began - 1
