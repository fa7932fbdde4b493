"""Who works on a home: by a process of this machine, or by the signs of life of another machine's run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action import one_run
from ansible_collections.drafthouse.core.plugins.module_utils.core import run_lease
from ansible_collections.drafthouse.core.plugins.module_utils.core.run_lease import (
    Lease,
    beat_command,
    lease_file,
    lease_of,
    look_command,
    parsed_look,
    read_lease,
    refused,
    take_command,
)
from ansible_collections.drafthouse.core.plugins.plugin_utils import beats

pytestmark = pytest.mark.processes


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "a home"
    made.mkdir()
    yield made


class Action(one_run.ActionModule):
    """The action with a shell of this machine in the place of a connection."""

    def __init__(self, home: Path, check_mode: bool = False, **more: Any) -> None:
        resolved = {"site": {"home": str(home)}, "profile": "mine"}
        self._task = SimpleNamespace(args={"resolved": resolved, "phase": "measuring", **more}, check_mode=check_mode)
        self.beats: list[Lease] = []

    def _low_level_execute_command(self, command: str, **_: Any) -> dict[str, Any]:
        done = shell(command)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    def _start_heartbeats(self, home: str, mine: Lease) -> None:
        self.beats.append(mine)

    def took(self) -> dict[str, Any]:
        return self.run()


@pytest.fixture(autouse=True)
def no_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})


def held(home: Path, lease: Lease) -> None:
    (home / "run").mkdir(exist_ok=True)
    Path(lease_file(str(home))).write_text(lease.text() + "\n")


def elsewhere(**more: Any) -> Lease:
    given = {"pid": 7, "start": "70", "machine": "another", "host": "laptop", "what": "p", "phase": "measuring"}
    return Lease(**{**given, "began_unix_s": time.time(), **more})


def test_a_home_that_is_not_there_is_not_made_unless_asked(tmp_path: Path) -> None:
    assert Action(tmp_path / "none").took() == {"changed": False}
    assert list(tmp_path.iterdir()) == []
    made = Action(tmp_path / "none", make=True)
    assert made.took() == {"changed": False}
    lease = read_lease(Path(lease_file(str(tmp_path / "none"))).read_text())
    assert lease and lease.pid == os.getppid() and lease.lives()
    assert made.beats == [lease]


def test_the_same_run_says_only_what_it_is_at_now(home: Path) -> None:
    Action(home).took()
    again = Action(home, phase="judging")
    assert again.took() == {"changed": False}
    assert again.beats == []
    lease = read_lease(Path(lease_file(str(home))).read_text())
    assert lease and lease.phase == "judging"


def test_a_living_run_of_this_machine_refuses_at_once_and_a_dead_one_does_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lease = lease_of(other.pid, "theirs", "fetching weights")
        held(home, lease)
        monkeypatch.setattr(one_run, "SILENT_S", 120.0)
        began = time.monotonic()
        ended = Action(home).took()
        assert time.monotonic() - began < 60  # nobody's silence was waited for
        assert ended["failed"]
        assert f"theirs, at: fetching weights (pid {other.pid} on this machine" in ended["problems"][0]["found"]
        assert read_lease(Path(lease_file(str(home))).read_text()) == lease
        other.kill()
    assert Action(home).took() == {"changed": False}


def test_a_pid_that_was_given_away_again_is_another_run(home: Path) -> None:
    held(home, Lease(**{**lease_of(os.getpid(), "theirs", "x").__dict__, "start": "1"}))
    assert Action(home).took() == {"changed": False}


def test_check_mode_looks_and_writes_nothing(home: Path) -> None:
    assert Action(home, check_mode=True).took() == {"changed": False}
    assert list(home.iterdir()) == []


def test_another_machines_run_lives_while_it_is_heard_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_run, "SILENT_S", 60.0)
    lease = elsewhere()
    held(home, lease)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(1.1):
            shell(beat_command(str(home), lease))

    thread = threading.Thread(target=beat)
    thread.start()
    ended = Action(home).took()
    over.set()
    thread.join()
    assert ended["failed"]
    assert "(pid 7 on laptop, since " in ended["problems"][0]["found"]
    # Heard of no more: watched for a while, then gone. Its beat, should it wake, touches nothing of ours.
    monkeypatch.setattr(one_run, "SILENT_S", 2.0)
    assert Action(home).took() == {"changed": False}
    assert shell(beat_command(str(home), lease)).returncode != 0


@pytest.mark.parametrize("age_s", [3600, -3600])
def test_a_silent_one_is_gone_whatever_the_clock_says(home: Path, monkeypatch: pytest.MonkeyPatch, age_s: int) -> None:
    monkeypatch.setattr(one_run, "SILENT_S", 2.0)
    held(home, elsewhere())
    os.utime(lease_file(str(home)), (time.time() - age_s, time.time() - age_s))
    assert Action(home).took() == {"changed": False}


def test_of_two_that_start_together_one_gets_it(home: Path) -> None:
    one, two = elsewhere(pid=1), elsewhere(pid=2)
    words = [take_command(str(home), lease, "") for lease in (one, two)]
    for _ in range(10):
        Path(lease_file(str(home))).unlink(missing_ok=True)
        started = [subprocess.Popen(word, shell=True) for word in words]
        assert sorted(process.wait(120) for process in started) == [0, 3]


@pytest.mark.parametrize("text", ["", "no JSON\nat all", "[]", '{"pid": 1}'])
def test_a_file_that_is_not_ours_holds_nobody(home: Path, text: str) -> None:
    (home / "run").mkdir()
    Path(lease_file(str(home))).write_text(text)
    assert read_lease(text) is None
    assert Action(home).took() == {"changed": False}
    lease = read_lease(Path(lease_file(str(home))).read_text())
    assert lease and lease.lives()


def test_what_is_looked_at(home: Path) -> None:
    assert parsed_look(shell(f"{{ {look_command(str(home / 'none'))}; }} 2>/dev/null").stdout)[0] is False
    before = time.time()
    there, touched, now, text = parsed_look(shell(f"{{ {look_command(str(home))}; }} 2>/dev/null").stdout)
    assert (there, touched, text) == (True, 0, "")
    assert before - 1 <= now <= time.time()


def test_words_for_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lease, "this_machine", lambda: "mine")
    assert "or stop it (Ctrl-C there), then run again; nothing was changed" in refused(elsewhere(), "/h").do


def test_the_beat_ends_with_the_run() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.6)"]) as process:
        lease = lease_of(process.pid, "x", "y")
        assert not one_run._ended(lease, 0.1)
        began = time.monotonic()
        assert one_run._ended(lease, 120.0)
        assert time.monotonic() - began < 60


def test_a_beat_that_hangs_is_not_the_last(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_run, "BEAT_EVERY_S", 0.1)
    monkeypatch.setattr(beats, "HANGS_S", 1)
    monkeypatch.setattr(os, "setsid", lambda: None)
    moments: list[float] = []

    class Hanging(Action):
        _connection = SimpleNamespace(transport="ssh")

        def _low_level_execute_command(self, command: str, **_: Any) -> dict[str, Any]:
            moments.append(time.monotonic())
            if len(moments) == 1:
                time.sleep(120)  # a network that is gone
            run.kill()
            return {"rc": 0}

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"]) as run:
            began = time.monotonic()
            Hanging(home)._beat(str(home), lease_of(run.pid, "x", "y"))
            assert time.monotonic() - began < 60
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert len(moments) > 1


def test_a_pid_of_another_container_says_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers of one machine have its boot's name, and pids of their own."""
    lease = lease_of(os.getpid(), "theirs", "measuring")
    apart = home / "pids"
    apart.symlink_to("pid:[1]")
    monkeypatch.setattr(run_lease, "_PIDS", apart)
    assert run_lease.this_machine() != lease.machine
