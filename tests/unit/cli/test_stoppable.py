"""What ends on Ctrl-C: the command that stops is made of the run's own words, and jobs are told from other holders."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.drafthouse.core.plugins.action import interrupted

from drafthouse.cli import stoppable
from drafthouse.cli.say import say
from drafthouse.cli.stoppable import playbook_of
from drafthouse.core.places import CLOSING_FILE
from drafthouse.core.procfs import is_gone
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.interrupt import end_jobs, interrupt

pytestmark = pytest.mark.processes

# What Ansible runs a job with, in small: the watch, the wrapper in a group of its own, the module, and its child.
WRAPPER = """
import os, subprocess, sys, time
os.setsid()
if os.fork() == 0:
    os.setpgid(0, 0)
    subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[2]])
    os._exit(0)
time.sleep(60)
"""
MODULE = """
import fcntl, os, subprocess, sys, time
child = subprocess.Popen(["sleep", "61"])
lock = open(sys.argv[1], "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(f"{os.getpid()}")
lock.flush()
open(sys.argv[1] + ".child", "w").write(str(child.pid))
time.sleep(60)
"""


def test_the_same_boxes_and_variables() -> None:
    command = [
        "ansible-playbook",
        "site.yml",
        "--tags",
        "weights,doctor",
        "-i",
        "own/hosts.yml",
        "-e",
        "profile=x",
    ]
    assert playbook_of(command, "interrupted.yml", "-e", "a=b") == [
        "ansible-playbook", str(ROOT / "playbooks" / "interrupted.yml"), "--tags", "weights,doctor",
        "-i", "own/hosts.yml", "-e", "profile=x", "-e", "a=b",
    ]  # fmt: skip


def test_a_job_ends_with_all_that_it_started(tmp_path: Path) -> None:
    lock = tmp_path / "weights.lock"
    wrapper = tmp_path / "async_wrapper.py"
    wrapper.write_text(WRAPPER)
    watch = subprocess.Popen([sys.executable, str(wrapper), MODULE, str(lock)])
    end = time.monotonic() + 120
    while not (tmp_path / "weights.lock.child").exists() or not lock.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    child = int((tmp_path / "weights.lock.child").read_text())
    module = int(lock.read_text())
    assert end_jobs(tmp_path) == ["weights"]
    assert watch.wait(120) < 0
    end = time.monotonic() + 120
    while not (is_gone(module) and is_gone(child)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert end_jobs(tmp_path) == []


def test_a_lock_of_something_else_is_left_alone(tmp_path: Path) -> None:
    with (tmp_path / "benchmark.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        assert end_jobs(tmp_path) == []


def test_nothing_to_stop(tmp_path: Path) -> None:
    assert interrupt(tmp_path, "of_run") == ["this run had no running server"]
    assert interrupt(tmp_path, "none") == []


def test_nothing_is_ended_before_the_run_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that still ends could start one more job, or a server."""
    running = subprocess.Popen(["sleep", "1"])
    action = interrupted.ActionModule.__new__(interrupted.ActionModule)
    action._task = SimpleNamespace(args={"servers": "all", "pid": str(running.pid)})
    action._templar = SimpleNamespace(template=lambda value: value)
    asked: list[tuple[bool, object]] = []

    def execute(module_name: str, module_args: dict[str, object], task_vars: object) -> dict[str, object]:
        asked.append((is_gone(running.pid), module_args))
        return {}

    monkeypatch.setattr(action, "_execute_module", execute)
    action.answer({"drafthouse_home": str(tmp_path)})
    assert running.wait() == 0
    assert asked == [(True, {"servers": "all", "home": str(tmp_path)})]


def test_a_second_ctrl_c_ends_what_would_stop_the_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes while the run still ends: what has been started beside it is ended before it does anything."""
    waits = subprocess.Popen(["sleep", "60"], start_new_session=True)
    twice = "import os, signal, time\nfor _ in 1, 2: os.kill(os.getppid(), signal.SIGINT); time.sleep(0.5)\n"
    monkeypatch.setattr(stoppable, "_start_playbook", lambda command: waits)
    assert stoppable.main(["--", sys.executable, "-c", twice]) == 130
    assert waits.returncode == -signal.SIGTERM
    assert capsys.readouterr().out.endswith("left as it is; make stop stops it\n")


def test_what_ctrl_c_waits_for_starts_without_what_it_does_not_need() -> None:
    """A quarter of its start was our own imports, for a verdict that is never said there."""
    plugins = "ansible_collections.drafthouse.core.plugins"
    code = (
        f"import sys, {plugins}.callback.house, {plugins}.callback.terminal, {plugins}.action.interrupted\n"
        "print({'numpy', 'aiohttp', 'jsonschema'} & set(sys.modules))"
    )
    where = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    said = subprocess.run([sys.executable, "-c", code], env=where, capture_output=True, text=True, check=True)
    assert said.stdout == "set()\n"


def test_the_closing_lines_come_behind_what_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = f"import os; open(os.environ['{CLOSING_FILE}'], 'w').write('verdict: pays\\nreport: file:///r\\n')"
    monkeypatch.delenv(CLOSING_FILE, raising=False)

    def stop(command: list[str]) -> int:
        say(f"  stopped by {Path(command[1]).name}")
        return 0

    monkeypatch.setattr(stoppable, "_run_playbook", stop)
    assert stoppable.main(["--stop-after", "--", sys.executable, "-c", played]) == 0
    assert capsys.readouterr().out == (
        "stopping what was started\n  stopped by stop.yml\nverdict: pays\nreport: file:///r\n"
    )
    assert stoppable.main(["--", sys.executable, "-c", f"import os; assert '{CLOSING_FILE}' not in os.environ"]) == 0
