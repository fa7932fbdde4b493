"""Ctrl-C in the middle of the demo: said at once, over within seconds, nothing left, and the next run converges."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.releases import current_server
from drafthouse.serving.restore import drift
from tests.e2e.conftest import BIN, play, quick, what_runs
from tests.support.ports import free_port

PROFILE = "cpu-smollm2-ngram"
# As few prompts as a verdict needs.
SHORT = {"experiment": {"prompts_per_kind": {"declared": 6, "others": 1}}}
BEGINS_S = 1200.0  # until the moment is there: an environment and weights come before it
FIRST_LINE_S, OVER_S = 1.0, 10.0
LATE_S = 0.3  # a look is none of a machine that runs when it comes so late
# Ansible's own watch over a job looks every five seconds whether the job has ended.
WATCH_S = 60.0
COMES_BACK_S = 180.0


@dataclass
class Box:
    """A home of the test's own, as the box's: what runs there carries the folder's name in its command."""

    folder: Path
    port: int

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def variables(self) -> dict[str, Any]:
        return {
            "profile": PROFILE,
            "drafthouse_home": str(self.home),
            "drafthouse_models_dir": str(self.folder / "models"),
            "drafthouse_port": self.port,
            "report_folder": str(self.folder / "reports"),
            "overrides": SHORT,
        }

    def left(self) -> list[str]:
        """What still runs of this home, and Ansible's jobs, whose command names a folder that the test chose."""
        return what_runs(self.folder)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    made = Box(tmp_path, free_port(2))
    yield made
    if made.left():
        play("playbooks/stop.yml", **made.variables)


def _made(box: Box) -> bool:
    """Whether the engine's environment is being made."""
    return any(marker.stat().st_size for marker in box.home.glob("engines/.*.making"))


def _fetched(box: Box) -> bool:
    """Whether the weights are being put in place."""
    try:
        with (box.home / "weights.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


class Demo:
    """`drafthouse stoppable` around site.yml, in a terminal of its own, as `make demo` plays it."""

    def __init__(self, box: Box, *words: str, again: bool = False) -> None:
        command = [str(BIN / "python"), "scripts/drafthouse", "stoppable", *words, "--", str(BIN / "ansible-playbook")]
        command += ["site.yml", "-i", "inventory/local", "-e", json.dumps({**box.variables, "remeasure": again})]
        tmp = box.folder / "ansible"  # the jobs' folder: what is left of them is found by it
        environment = {
            **os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1", "PYTHONUNBUFFERED": "1", "ANSIBLE_REMOTE_TMP": str(tmp),
        }  # fmt: skip
        self._terminal, theirs = pty.openpty()
        # Asked by its controlling terminal, as a shell's job is: Ctrl-C reaches the whole of the foreground group.
        take = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", take, *command],
            cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def read(self, seconds: float) -> None:
        """Take what is printed within so many seconds."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if ready:
            try:
                self.text += os.read(self._terminal, 65536).decode("utf-8", "replace").replace("\r\n", "\n")
            except OSError:  # the terminal of a program that has ended
                time.sleep(seconds)

    def until(self, true: Callable[[], bool], seconds: float) -> float:
        """Wait for something; return the seconds it took. Fails where it does not come.

        A moment in which the machine stood still is seen here too, by our own look that comes late, and not counted.
        """
        begun = look = time.monotonic()
        stood_s = 0.0
        while not true():
            assert time.monotonic() - begun < seconds, self.text[-3000:]
            self.read(0.02)
            before, look = look, time.monotonic()
            stood_s += max(0.0, look - before - LATE_S)
        return time.monotonic() - begun - stood_s

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def ended(self) -> bool:
        return self.process.poll() is not None


def comes_back(box: Box) -> None:
    """Interrupt a run that measures again: the server of the run before is brought back by the box itself."""
    demo = Demo(box, again=True)
    demo.until(lambda: demo.ended() or "step 1 of" in demo.text, BEGINS_S)
    before = len(demo.text)
    demo.press_ctrl_c()
    demo.until(demo.ended, 180.0)
    demo.read(0.1)
    assert demo.process.returncode == 130
    assert "the box itself restores the previous server" in demo.text[before:]
    assert current_server(box.home)
    demo.until(lambda: not drift(box.home), COMES_BACK_S)


@pytest.mark.parametrize(
    ("moment", "is_there"),
    [
        pytest.param("installing", lambda box, demo: _made(box), marks=pytest.mark.soak),
        ("fetching", lambda box, demo: _fetched(box)),
        pytest.param("measuring", lambda box, demo: "step 1 of" in demo.text, marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_is_heard_and_leaves_nothing(
    box: Box, moment: str, is_there: Callable[[Box, Demo], bool], figure: Callable[[str], None]
) -> None:
    demo = Demo(box, "--stop-after")
    demo.until(lambda: demo.ended() or is_there(box, demo), BEGINS_S)
    assert not demo.ended(), demo.text[-3000:]
    before = len(demo.text)
    demo.press_ctrl_c()
    heard_s = demo.until(lambda: "Stopping: " in demo.text[before:], 60.0)
    over_s = heard_s + demo.until(demo.ended, 180.0)
    demo.read(0.1)
    print(demo.text[before:])
    assert demo.process.returncode == 130
    assert "Stopping: the servers of this run" in demo.text[before:]
    assert re.search(r"^stopped, after \d+\.\d s$", demo.text[before:], re.MULTILINE)
    figure(f"Ctrl-C while {moment}: said after {heard_s:.2f} s, over after {over_s:.1f} s")
    assert quick(heard_s, FIRST_LINE_S, times=1)
    assert quick(over_s, OVER_S)
    if moment == "measuring":
        assert "ended: benchmark" in demo.text[before:]
        assert "stopped: baseline, speculative" in demo.text[before:]
    assert not [line for line in box.left() if "async_wrapper" not in line]
    demo.until(lambda: not box.left(), WATCH_S)
    if moment == "measuring":
        again = play("site.yml", **box.variables)
        assert again.status == 0, again.output[-3000:]
        comes_back(box)


@pytest.mark.soak
def test_a_second_ctrl_c_leaves_the_servers(box: Box) -> None:
    demo = Demo(box, "--stop-after")
    demo.until(lambda: demo.ended() or "step 1 of" in demo.text, BEGINS_S)
    before = len(demo.text)
    demo.press_ctrl_c()
    demo.until(lambda: "Stopping: " in demo.text[before:], 60.0)
    demo.press_ctrl_c()
    demo.until(demo.ended, 180.0)
    demo.read(0.1)
    assert demo.process.returncode == 130
    assert "left as it is" in demo.text[before:]
    assert any("supervisord" in line for line in box.left())
