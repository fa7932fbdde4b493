"""Who is told of as a stranger at an engine's port: a program that stays, not Docker's own that is on its way out."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drafthouse.host import port_holder
from tests.support.ports import free_port

pytestmark = pytest.mark.processes

# Listens on a port for so many seconds.
LISTENER = """
import socket, sys, time
held = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
time.sleep(float(sys.argv[2]))
"""
Listen = Callable[[str, float], int]


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    """Have a program of a name listen for so many seconds on a port that no container publishes; gives the port."""
    monkeypatch.setattr(port_holder, "published_ports", set)
    started: list[subprocess.Popen[str]] = []

    def start(name: str, seconds: float) -> int:
        port = free_port()
        program = tmp_path / name
        program.symlink_to(Path(sys.executable).resolve())
        process = subprocess.Popen(
            [program, "-c", LISTENER, str(port), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout and process.stdout.readline() == "listening\n"
        return port

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_dockers_program_of_a_container_that_just_ended_is_no_stranger(listen: Listen, tmp_path: Path) -> None:
    assert port_holder.foreign_listener(listen("docker-proxy", 1.0), "127.0.0.1", tmp_path) is None


def test_dockers_program_that_stays_is_one(listen: Listen, tmp_path: Path) -> None:
    port = listen("docker-proxy", 30.0)
    found = port_holder.foreign_listener(port, "127.0.0.1", tmp_path, proxy_s=1.0)
    assert found is not None and f"port {port} is taken" in found.found and "docker-proxy" in found.found


def test_another_program_is_one_at_once(listen: Listen, tmp_path: Path) -> None:
    found = port_holder.foreign_listener(listen("a-server", 1.0), "127.0.0.1", tmp_path)
    assert found is not None and "a-server" in found.found


def test_nobody_is_none(tmp_path: Path) -> None:
    assert port_holder.foreign_listener(free_port(), "127.0.0.1", tmp_path) is None
