"""`make tunnel` with the system's ssh and a real sshd: it stands, it ends, and it says what is wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cloud.vast.instances import ssh_address
from drafthouse.core.errors import DrafthouseError
from drafthouse.operate.tunnel import Way, check_port, command, hosts_of, tunnel, way_to
from drafthouse.profiles.workspace import ROOT
from tests.fakes.stepping_server import MODEL, Stepping, stepping_server
from tests.fakes.vast_server import KEY as VAST_KEY
from tests.fakes.vast_server import vast_server
from tests.support.ports import free_port
from tests.support.programs import needs
from tests.support.refusals import refuses
from tests.support.sshd import Sshd, children, real_sshd, running_sshd, start

pytestmark = [pytest.mark.processes, needs("ssh", "ssh-keygen")]


@pytest.fixture(scope="module")
def engine() -> Iterator[Stepping]:
    with stepping_server() as running:
        yield running


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    with running_sshd() as running:
        yield running


def way(sshd: Sshd, engine: Stepping | None = None, **changed: Any) -> Way:
    api_port = engine.port if engine else free_port()
    own = Way("box", "127.0.0.1", "box", sshd.port, sshd.user, str(sshd.key), ("-F", "none"), api_port)
    return replace(own, **changed)


def models(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def said_by(given: Way, port: int, known_hosts: Path) -> DrafthouseError:
    with pytest.raises(DrafthouseError) as caught, tunnel(given, port, known_hosts):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)
    return caught.value


# --- a tunnel that stands ---------------------------------------------------------------------------


def test_it_stands_and_ends(sshd: Sshd, engine: Stepping, tmp_path: Path) -> None:
    port = free_port()
    with tunnel(way(sshd, engine), port, tmp_path / "known hosts %h") as opened:
        assert models(port) == MODEL
        # On loopback alone: nobody beside this machine gets in through it.
        assert "127.0.0.1:" in " ".join(map(str, opened.process.args))  # type: ignore[arg-type]
        pid = opened.process.pid
    assert not Path(f"/proc/{pid}").exists()
    check_port(port)
    assert "box ssh-ed25519 " in (tmp_path / "known hosts %h").read_text()


def test_the_command_asks_nothing_and_goes_where_it_shall(tmp_path: Path) -> None:
    own = Way("b", "203.0.113.7", "label-1", 40022, "root", "/k", ("-o", "ProxyJump=j"), 8001)
    words = command(own, 9000, tmp_path / "known")
    for option in (
        "BatchMode=yes",
        "ExitOnForwardFailure=yes",
        "StrictHostKeyChecking=accept-new",
        "HostKeyAlias=label-1",
    ):
        assert option in words
    assert words[words.index("-L") + 1] == "127.0.0.1:9000:127.0.0.1:8001"
    assert words[-4:] == ["-o", "ProxyJump=j", "--", "root@203.0.113.7"]
    # By hand it is the same way.
    assert own.ssh() == ["ssh", "-p", "40022", "-i", "/k", "-o", "ProxyJump=j", "root@203.0.113.7"]


# --- the script -------------------------------------------------------------------------------------


@pytest.fixture
def script(sshd: Sshd, engine: Stepping, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run `drafthouse tunnel` for an inventory with the box in it."""
    host = {
        "ansible_host": "127.0.0.1",
        "ansible_port": sshd.port,
        "ansible_user": sshd.user,
        "ansible_ssh_private_key_file": str(sshd.key),
        "ansible_ssh_common_args": "-F none",
        "drafthouse_port": engine.port,
        "drafthouse_home": "/workspace/drafthouse",
    }
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"my-box": host}}}))
    started: list[subprocess.Popen[str]] = []

    def run(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "scripts/drafthouse"), "tunnel"]
        command += ["--inventory", str(tmp_path / "hosts.yml"), *words]
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        environment |= {"DRAFTHOUSE_STATE": str(tmp_path / "state"), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=120)


def opened(process: subprocess.Popen[str]) -> str:
    """What it says once it stands."""
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(4))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_cleanly(
    script: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    port = free_port()
    process = script("--port", str(port))
    said = opened(process)
    assert said.startswith(f"http://127.0.0.1:{port}/v1 is my-box (")
    assert "cat /workspace/drafthouse/secrets/api_key" in said
    assert "--noproxy '*'" in said
    assert models(port) == MODEL
    below = children(process.pid)
    assert below
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert out.endswith("\nthe tunnel is closed\n")
    assert not any(Path(f"/proc/{pid}").exists() for pid in below)
    check_port(port)
    assert (tmp_path / "state/known_hosts").stat().st_mode & 0o077 == 0
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_kill_9_leaves_no_ssh_behind(script: Callable[..., subprocess.Popen[str]]) -> None:
    port = free_port()
    process = script("--port", str(port))
    opened(process)
    assert models(port) == MODEL
    process.kill()
    process.wait(120)
    # Not by /proc: where nobody reaps orphans, an ended one stays there.
    until = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            break
        assert time.monotonic() < until, "ssh still holds the port"
        time.sleep(0.05)


def test_a_box_that_goes_away_is_said(script: Callable[..., subprocess.Popen[str]], sshd: Sshd) -> None:
    process = script("--port", str(free_port()))
    opened(process)
    sshd.end()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "code: tunnel-failed" in err


def test_a_port_that_is_taken(script: Callable[..., subprocess.Popen[str]]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = int(other.getsockname()[1])
        _, err = script("--port", str(port)).communicate(timeout=120)
    assert f"found: port {port} of this machine: Address already in use" in err
    assert "do: make tunnel PORT=" in err


# --- what is wrong ----------------------------------------------------------------------------------


def test_a_key_that_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    given = way(sshd, identity=str(sshd.folder / "stranger"), more=("-F", "none", "-o", "IdentitiesOnly=yes"))
    error = said_by(given, free_port(), tmp_path / "known")
    assert "Permission denied" in error.problems[0].found
    assert "ssh-add" in error.problems[0].do


def test_a_box_that_is_away(sshd: Sshd, tmp_path: Path) -> None:
    error = said_by(way(sshd, ssh_port=free_port()), free_port(), tmp_path / "known")
    assert "Connection refused" in error.problems[0].found
    assert "check that the box runs" in error.problems[0].do
    error = said_by(way(sshd, address="no-such-box.invalid"), free_port(), tmp_path / "known")
    assert "no-such-box.invalid" in error.problems[0].found


def test_another_host_key_is_refused_with_the_command_that_forgets_it(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "known"
    with tunnel(way(sshd), free_port(), known):
        pass
    sshd.end()
    _, sshd.process = start(real_sshd(), sshd.folder, sshd.user, sshd.port, "other_host")
    error = said_by(way(sshd), free_port(), known)
    assert error.problems[0].code == "ssh-host-key-changed"
    # Another name is another box, at the same address: as rented ones are.
    with tunnel(way(sshd, alias="drafthouse-other"), free_port(), known):
        pass
    forget = error.problems[0].do.rpartition("reinstalled: ")[2]
    subprocess.run(["bash", "-c", forget], capture_output=True, check=True)
    with tunnel(way(sshd), free_port(), known):
        pass


@pytest.mark.parametrize("port", [-1, 0, 0x10000])
def test_a_port_that_is_none(port: int) -> None:
    with refuses("port-taken"):
        check_port(port)


# --- which box --------------------------------------------------------------------------------------

BOX: Any = {
    "ansible_host": "203.0.113.7",
    "ansible_port": 40022,
    "ansible_user": "root",
    "drafthouse_home": "/workspace/d",
}


def test_the_only_box_needs_no_name() -> None:
    found = way_to({"one": BOX | {"drafthouse_port": "8100"}}, "", "vastai")
    assert found.ssh() == ["ssh", "-p", "40022", "root@203.0.113.7"]
    assert (found.alias, found.api_port, found.key_file) == ("one", 8100, "/workspace/d/secrets/api_key")
    assert way_to({"bare": {}}, "", "i").ssh() == ["ssh", "bare"]
    assert not found.sudo
    assert way_to({"vm": BOX | {"ansible_user": "ubuntu", "ansible_become": True}}, "", "i").sudo


@pytest.mark.parametrize(
    ("hosts", "name", "said"),
    [
        ({}, "", "no host"),
        ({"a": BOX, "b": BOX}, "", "2 hosts: a, b"),
        ({"alpha": BOX}, "alpah", "write 'alpha'"),
        ({"a": {"ansible_connection": "local"}}, "", "is this machine"),
        ({"a": {"ansible_host": "-oProxyCommand=x"}}, "", "a plain word"),
        ({"a": {**BOX, "ansible_user": "{{ who }}"}}, "", "a plain word"),
        ({"a": {**BOX, "ansible_port": "ssh"}}, "", "ansible_port: ssh"),
        ({"a": {**BOX, "drafthouse_port": 0}}, "", "drafthouse_port: 0"),
        ({"a": {**BOX, "ansible_ssh_private_key_file": "{{ home }}/id"}}, "", "no template"),
        ({"a": {**BOX, "ansible_ssh_common_args": "-o 'ProxyJump=j"}}, "", "close the quote"),
    ],
    ids=str,
)
def test_no_way(hosts: Any, name: str, said: str) -> None:
    with pytest.raises(DrafthouseError) as caught:
        way_to(hosts, name, "vastai")
    assert said in str(caught.value)


def test_hosts_as_ansible_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    file = tmp_path / "hosts.yml"
    file.write_text(json.dumps({"all": {"hosts": {"one": BOX, "two": {}}}}))
    found = hosts_of(file)
    assert found["one"]["ansible_port"] == 40022
    assert set(found) == {"one", "two"}


def test_a_rented_box_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plugin says of it Ansible marks as no template: an address is in an object of its own then."""
    file = tmp_path / "own.vastai.yml"
    file.write_text("plugin: drafthouse.core.vastai\n")
    with vast_server() as vast:
        given = {"VAST_URL": vast.url, "VAST_API_KEY": VAST_KEY, "DRAFTHOUSE_STATE": str(tmp_path / "state")}
        given |= {"HOME": str(tmp_path), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
        given |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        name = f"vast-{vast.others[0]}"
        found = way_to(hosts_of(file), name, "vastai")
        monkeypatch.setenv("VAST_API_KEY", "vk-wrong")
        with pytest.raises(DrafthouseError, match=r"no host: vast\.ai is not asked: .*HTTP 401"):
            hosts_of(file)
    reached = ssh_address(vast.instances[vast.others[0]])
    assert reached is not None
    assert (found.ssh()[-1], found.ssh_port) == (f"root@{reached[0]}", reached[1])
    assert f"HostKeyAlias={name}" in found.ssh()


def test_without_ansible_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with refuses("program-missing"):
        hosts_of(tmp_path)
