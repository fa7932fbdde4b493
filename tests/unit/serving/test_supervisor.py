"""A real supervisord and real little servers: what is started, kept, changed, and told when it dies."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.procfs import is_gone
from drafthouse.serving.readiness import wait_until_ready
from drafthouse.serving.runtimes import ProcessRuntime
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.support.little_box import kill
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.processes

SERVER = """\
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == "/health" or self.headers.get("Authorization") == "Bearer key"
        body = json.dumps({"data": [{"id": sys.argv[3]}]}).encode()
        self.send_response(200 if ok else 401)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass
print("loading", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    # A unix socket's path may have 107 letters at most: stay near the root of the temporary folder.
    one = Supervisor(tmp_path / "s")
    yield one
    kill(one)


def program(folder: Path, text: str, *words: str, name: str = "arm") -> Program:
    script = folder / f"{name}.sh"
    (folder / f"{name}.py").write_text(text)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/{name}.py "$@"\n')
    script.chmod(0o755)
    return Program(name, [str(script), *words], str(folder / f"{name}.log"))


def wait(supervisor: Supervisor, one: Program, port: int, timeout_s: float = 120, model: str = "m") -> float:
    return wait_until_ready(
        ProcessRuntime(supervisor, Path(one.log).parent), name=one.name, base_url=f"http://127.0.0.1:{port}",
        health="/health", model=model, key="key", timeout_s=timeout_s, progress=lambda event: None,
    )  # fmt: skip


def test_start_keep_change_stop(tmp_path: Path, supervisor: Supervisor, port: int) -> None:
    one = program(tmp_path, SERVER, "--port", str(port), "m")
    wanted = configuration(supervisor.home, [one])
    assert supervisor.converge(wanted, ["arm"], fresh=False) == (["arm"], [])
    assert wait(supervisor, one, port) >= 0
    pid = supervisor.programs()["arm"]["pid"]
    assert supervisor.converge(wanted, ["arm"], fresh=False) == ([], [])
    assert supervisor.programs()["arm"]["pid"] == pid
    # A fresh start, and a changed script, are other processes.
    assert supervisor.converge(wanted, ["arm"], fresh=True) == (["arm"], [])
    wait(supervisor, one, port)
    assert supervisor.programs()["arm"]["pid"] != pid
    Path(one.command[0]).write_text(Path(one.command[0]).read_text() + "# changed\n")
    changed = configuration(supervisor.home, [one])
    assert supervisor.converge(changed, ["arm"], fresh=False) == (["arm"], [])
    wait(supervisor, one, port)
    # Another arm instead of the first.
    other = program(tmp_path, SERVER, "--port", str(port), "m", name="other")
    both = configuration(supervisor.home, [other])
    assert supervisor.converge(both, ["other"], fresh=False) == (["other"], ["arm"])
    wait(supervisor, other, port)
    assert supervisor.running() == ["other"]
    supervisor_pid = int((supervisor.home / "supervisord.pid").read_text())
    assert supervisor.shut_down() == ["other"]
    assert supervisor.shut_down() == []
    assert not Path(f"/proc/{supervisor_pid}/exe").exists()


def test_nobody_else_may_read_the_configuration(tmp_path: Path, supervisor: Supervisor) -> None:
    one = program(tmp_path, "import time; time.sleep(60)")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    assert stat.S_IMODE(supervisor.file.stat().st_mode) == 0o600
    assert stat.S_IMODE((supervisor.home / "supervisor.sock").stat().st_mode) == 0o700


def test_an_engine_that_dies_at_start_shows_its_last_lines(tmp_path: Path, supervisor: Supervisor) -> None:
    one = program(tmp_path, "print('loading'); raise SystemExit('error: no such flag --spec')")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    with pytest.raises(DrafthouseError) as caught:
        wait(supervisor, one, 1)
    (problem,) = caught.value.problems
    assert "the arm arm died" in problem.found
    assert "error: no such flag --spec" in problem.found


def test_the_cause_of_a_death_may_stand_above_the_last_lines(tmp_path: Path, supervisor: Supervisor) -> None:
    """vLLM's front end prints its own traceback after the error of its engine process."""
    error = "ValueError: No available memory for the cache blocks."
    one = program(tmp_path, f"print('{error}'); print('  File x\\n' * 50); raise SystemExit(1)")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    with pytest.raises(DrafthouseError) as caught:
        wait(supervisor, one, 1)
    (problem,) = caught.value.problems
    assert "no memory is left for the KV cache" in problem.do
    assert f"({error})" in problem.do


def test_an_engine_that_never_gets_ready(tmp_path: Path, supervisor: Supervisor) -> None:
    one = program(tmp_path, "import time; print('compiling', flush=True); time.sleep(60)")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    end, log = time.monotonic() + 120, Path(one.log)
    while not (log.exists() and log.read_text()):
        assert time.monotonic() < end
        time.sleep(0.02)
    with pytest.raises(DrafthouseError) as caught:
        wait(supervisor, one, 1, timeout_s=1)
    assert "not ready after 1 s; its last lines:\ncompiling" in caught.value.problems[0].found


def test_another_server_on_the_port(tmp_path: Path, supervisor: Supervisor, port: int) -> None:
    one = program(tmp_path, SERVER, "--port", str(port), "another-model")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    with pytest.raises(DrafthouseError, match=r"a server that serves .'another-model'."):
        wait(supervisor, one, port)


def test_what_an_engine_leaves_behind_when_it_is_killed_is_ended(tmp_path: Path, supervisor: Supervisor) -> None:
    # As vLLM does: its engine core goes on, with the GPU's memory, when its API server is killed.
    children = tmp_path / "children"
    text = f"""import subprocess, time
child = subprocess.Popen(["sleep", "600"])
open({str(children)!r}, "a").write(f"{{child.pid}}\\n")
time.sleep(600)
"""
    one = program(tmp_path, text)
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    assert list(supervisor.programs()) == ["arm"]
    until(lambda: children.exists() and supervisor.programs()["arm"]["statename"] == "RUNNING", "the engine")
    first = int(children.read_text())
    os.kill(supervisor.programs()["arm"]["pid"], signal.SIGKILL)
    until(lambda: is_gone(first), "the end of its child")
    # It was brought back, and its own child lives.
    until(lambda: len(children.read_text().splitlines()) == 2, "its successor")
    second = int(children.read_text().splitlines()[1])
    assert not is_gone(second)
    assert supervisor.shut_down() == ["arm"]
    assert is_gone(second)


def test_a_script_with_blanks_and_percents_in_its_path(tmp_path: Path, port: int) -> None:
    folder = tmp_path / "a b%c"
    folder.mkdir()
    one = program(folder, SERVER, "--port", str(port), "m")
    Path(one.command[0]).write_text(f'#!/bin/sh\nexec {sys.executable} "{folder}/arm.py" "$@"\n')
    supervisor = Supervisor(tmp_path / "s")
    try:
        supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
        wait(supervisor, one, port)
    finally:
        supervisor.shut_down()


def test_what_could_not_start_is_not_blamed_on_an_earlier_end(tmp_path: Path) -> None:
    yesterday = SimpleNamespace(
        programs=lambda: {"arm": {"statename": "FATAL", "spawnerr": "can't find command '/gone'"}},
        ending=lambda arm: "killed by signal 9 (SIGKILL)",
    )
    assert ProcessRuntime(cast(Supervisor, yesterday), tmp_path).state("arm").why == "can't find command '/gone'"
    quick = SimpleNamespace(
        programs=lambda: {"arm": {"statename": "BACKOFF", "spawnerr": "Exited too quickly"}},
        ending=yesterday.ending,
    )
    assert ProcessRuntime(cast(Supervisor, quick), tmp_path).state("arm").why == "killed by signal 9 (SIGKILL)"


def test_what_an_arm_printed_in_parts(tmp_path: Path, supervisor: Supervisor) -> None:
    runtime, log = ProcessRuntime(supervisor, tmp_path), tmp_path / "arm.log"
    assert runtime.tail("arm", 2) == runtime.printed("arm") == ""
    assert not runtime.state("arm").running
    before = runtime.mark("arm")
    log.write_text("\n".join(str(number) for number in range(100)))
    assert runtime.tail("arm", 2) == "98\n99"
    mark = runtime.mark("arm")
    with log.open("a") as stream:
        stream.write("\nmore")
    assert runtime.printed("arm", mark) == "\nmore"
    assert runtime.printed("arm", before) == runtime.printed("arm") == log.read_text()
    # Rotated meanwhile: what is there is new.
    log.write_text("anew")
    assert runtime.printed("arm", mark) == "anew"


def test_the_environment_of_ansible_does_not_reach_the_engine(
    tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_TEST_MARK", "1")
    one = program(tmp_path, "import os; print(sorted(os.environ), flush=True); import time; time.sleep(60)")
    supervisor.converge(configuration(supervisor.home, [one]), ["arm"], fresh=False)
    pid = supervisor.programs()["arm"]["pid"]
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"ANSIBLE_TEST_MARK" not in environment
    assert os.environ["ANSIBLE_TEST_MARK"] == "1"
