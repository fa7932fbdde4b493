"""`make logs` with a real shell, a real sshd and a real supervisord: what is shown, how it ends; and that logs end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.operate.checks.finding import FAIL, OK
from drafthouse.operate.checks.registry import diagnose
from drafthouse.operate.doctor.collect import read
from drafthouse.operate.logs import Wish, script, source
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.support.doctors import CPU_PROFILE, asked, wanted
from tests.support.sshd import Sshd, running_sshd

pytestmark = pytest.mark.processes

MIB = 1024 * 1024
# supervisord's own figures for an arm: 20 MiB, and two files before it; each may be over by what comes in one piece.
MOST_BYTES = 3 * 21 * MIB
TALKATIVE = (
    "import sys\nfor number in range(90):\n    sys.stdout.write(('x' * 1023 + chr(10)) * 1024)\nprint('the end')\n"
)


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below pytest's own folder, which is its owner's alone: sshd's user reads here, too.
    parent = Path(tempfile.mkdtemp(prefix="dh-logs-"))
    parent.chmod(0o755)
    folder = parent / "a home"
    for name, lines in (
        ("logs/speculative.log", 5),
        ("logs/baseline.log", 1),
        ("gateway/supervisor/supervisord.log", 1),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"line {number} of {path.stem}\n" for number in range(lines)))
    yield folder
    shutil.rmtree(parent)


def shown(home: Path, **wish: Any) -> list[str]:
    text = script(str(home), Wish(**wish))
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, timeout=180, check=True)
    return done.stdout.splitlines()


def test_the_last_lines_of_each_log_behind_its_name(home: Path) -> None:
    lines = shown(home, lines=2)
    ours = [line for line in lines if "drafthouse-" not in line]  # containers of this very machine
    assert ours == [
        "baseline: line 0 of baseline", "speculative: line 3 of speculative", "speculative: line 4 of speculative",
        "gateway-supervisord: line 0 of supervisord",
    ]  # fmt: skip
    assert shown(home, only="speculat", lines=1) == ["speculative: line 4 of speculative"]
    assert [line for line in shown(home / "gone") if "drafthouse-" not in line] == []


@pytest.mark.parametrize(("become", "begins"), [(True, "sudo -n /bin/sh -c "), (False, "/bin/sh -c ")])
def test_who_becomes_root_for_ansible_reads_them_as_root(become: bool, begins: str, tmp_path: Path) -> None:
    hosts: Any = {"box": {"ansible_host": "192.0.2.7", "ansible_user": "lab", "ansible_become": become}}
    command = source("box", hosts, "/opt/drafthouse", Wish(), tmp_path / "known_hosts").command
    assert command[-2] == "lab@192.0.2.7"
    assert command[-1].startswith(begins)


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run `drafthouse logs`; what still runs at the end is ended."""
    running: list[subprocess.Popen[str]] = []

    def start(inventory: Path, *words: str, state: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "scripts/drafthouse"), "logs", "--inventory", str(inventory), *words]
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        environment |= {"DRAFTHOUSE_STATE": str(state), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait(120)


def inventory(folder: Path, hosts: dict[str, dict[str, Any]]) -> Path:
    path = folder / "hosts.yml"
    path.write_text(json.dumps({"all": {"hosts": hosts}}))
    return path


def local(home: Path) -> Any:
    return {"ansible_connection": "local", "drafthouse_home": str(home)}


def test_this_machine_and_a_box_over_ssh(home: Path, tmp_path: Path, started: Callable[..., Any]) -> None:
    with running_sshd(shell=True) as sshd:
        hosts = {"here": local(home), "there": over(sshd, home)}
        process = started(inventory(tmp_path, hosts), "--lines", "1", "--only", "speculat", state=tmp_path / "state")
        out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert sorted(out.splitlines()) == [
        f"{name} speculative: line 4 of speculative" for name in ("here", "there")
    ]  # fmt: skip


def over(sshd: Sshd, home: Path) -> Any:
    return {
        "ansible_host": "127.0.0.1", "ansible_port": sshd.port, "ansible_user": sshd.user,
        "ansible_ssh_private_key_file": str(sshd.key), "ansible_ssh_common_args": "-F none",
        "drafthouse_home": str(home),
    }  # fmt: skip


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def followers(home: Path) -> list[str]:
    """What still follows a file of this home: command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if words.startswith("tail ") and str(home) in words:
            found.append(words)
    return found


@pytest.mark.parametrize("remote", [False, True], ids=["this machine", "over ssh"])
def test_follow_shows_what_comes_and_leaves_nothing_behind(
    home: Path, tmp_path: Path, started: Callable[..., Any], remote: bool
) -> None:
    with running_sshd(shell=True) as sshd:
        hosts = {"box": over(sshd, home) if remote else local(home)}
        words = ("--follow", "--lines", "1", "--only", "speculat")
        process = started(inventory(tmp_path, hosts), *words, state=tmp_path / "state")
        assert next_line(process) == "speculative: line 4 of speculative\n"
        with (home / "logs/speculative.log").open("a") as stream:
            # A prompt may hold anything: no control character reaches the terminal.
            stream.write("new \x1b[2J line\n")
        assert next_line(process) == "speculative: new ?[2J line\n"
        assert followers(home)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        end = time.monotonic() + 120
        while followers(home) and time.monotonic() < end:
            time.sleep(0.1)
        assert followers(home) == []


@pytest.mark.parametrize(
    ("words", "hosts", "found"),
    [
        (["--host", "bax"], {"box": {"drafthouse_home": "/x", "ansible_connection": "local"}}, "no host 'bax'"),
        ([], {}, "no host"),
        ([], {"box": {"ansible_connection": "local", "drafthouse_home": "{{ x }}/y"}}, "drafthouse_home: "),
    ],
)
def test_what_is_wrong_is_said_in_lines(
    words: list[str], hosts: Any, found: str, tmp_path: Path, started: Callable[..., Any]
) -> None:
    process = started(inventory(tmp_path, hosts), *words, state=tmp_path / "state")
    _, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert f"found: {found}" in error
    assert "Traceback" not in error


# --- rotation ---------------------------------------------------------------------------------------


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[Supervisor, Path]]:
    """A home whose supervisor runs something that talks without end: 90 MB."""
    home = tmp_path / "h"
    (home / "logs").mkdir(parents=True)
    text = home / "serve/p/speculative/serve.sh"
    text.parent.mkdir(parents=True)
    (home / "talk.py").write_text(f"{TALKATIVE}sys.stdout.flush()\nimport time; time.sleep(600)\n")
    text.write_text(f"#!/bin/sh\nexec {sys.executable} {home}/talk.py\n")
    text.chmod(0o755)
    supervisor = Supervisor(home / "supervisor", Path(sys.executable).parent / "supervisord")
    program = Program("speculative", [str(text)], str(home / "logs/speculative.log"))
    supervisor.converge(configuration(supervisor.home, [program]), ["speculative"], fresh=False)
    yield supervisor, home
    supervisor.shut_down()


def test_an_engine_that_logs_without_end_fills_no_disk(supervised: tuple[Supervisor, Path]) -> None:
    _, home = supervised
    end = time.monotonic() + 120
    while "the end" not in "".join(shown(home, lines=1, only="speculative")):
        assert time.monotonic() < end, sorted((home / "logs").iterdir())
        time.sleep(0.2)
    files = sorted(path.name for path in (home / "logs").iterdir())
    assert files == ["speculative.log", "speculative.log.1", "speculative.log.2"]
    assert sum(path.stat().st_size for path in (home / "logs").iterdir()) < MOST_BYTES


def test_the_doctor_sees_a_log_that_nothing_bounds(supervised: tuple[Supervisor, Path]) -> None:
    supervisor, home = supervised
    given: Any = {
        "parts": ["runtime"],
        "sys": "/sys",
        "proc": "/proc",
        "timeout_s": 60,
        "prove_container": False,
        "firewall": True,
    }
    resolved = wanted(CPU_PROFILE, "local", home=str(home))

    def rotation() -> str:
        checks = {check.name: check for check in diagnose(resolved, read(asked(resolved), given), ["runtime"])}
        return checks["log rotation"].status

    assert rotation() == OK
    text = supervisor.file.read_text().replace("stdout_logfile_maxbytes = 20MB", "stdout_logfile_maxbytes = 0")
    supervisor.file.write_text(text)
    assert rotation() == FAIL
