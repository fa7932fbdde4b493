"""First contact with a box: a real sshd, whose key ssh then demands, and what is no SSH server."""

from __future__ import annotations

import socket
import stat
import subprocess
from pathlib import Path

import pytest
from aiohttp import web

from drafthouse.cloud.vast import first_contact
from drafthouse.cloud.vast.first_contact import ssh_answers
from tests.fakes.in_thread import in_thread
from tests.support.ports import free_port
from tests.support.sshd import running_sshd

pytestmark = pytest.mark.processes


def let_in(known_hosts: Path, port: int, user: str, key: Path) -> str:
    """What ssh says where it accepts no key but a kept one."""
    options = [f"UserKnownHostsFile={known_hosts}", "HostKeyAlias=vast-7", "StrictHostKeyChecking=yes", "BatchMode=yes"]
    words = ["ssh", "-v", "-F", "none", "-i", str(key), "-p", str(port), *(f"-o{one}" for one in options)]
    done = subprocess.run(
        [*words, f"{user}@127.0.0.1", "true"], capture_output=True, text=True, timeout=60, check=False
    )
    return done.stderr


def test_ssh_demands_the_key_of_the_first_contact(tmp_path: Path) -> None:
    kept = tmp_path / "known_hosts"
    with running_sshd() as one:
        assert ssh_answers(kept, 7, "127.0.0.1", one.port)
        assert ssh_answers(kept, 7, "127.0.0.1", one.port)
        assert "Authenticated to" in let_in(kept, one.port, one.user, one.key)
    assert len(kept.read_text().splitlines()) == 1
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with running_sshd() as another:
        assert ssh_answers(kept, 7, "127.0.0.1", another.port)
        assert "Host key verification failed" in let_in(kept, another.port, another.user, another.key)
        assert ssh_answers(kept, 8, "127.0.0.1", another.port)
    assert [line.split()[0] for line in kept.read_text().splitlines()] == ["vast-7", "vast-8"]


def test_no_server_no_banner_no_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_contact, "ANSWER_S", 0.5)
    kept = tmp_path / "known_hosts"
    assert not ssh_answers(kept, 7, "127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not ssh_answers(kept, 7, "127.0.0.1", silent.getsockname()[1])
    with in_thread(web.Application()) as http:
        assert not ssh_answers(kept, 7, "127.0.0.1", int(http.rpartition(":")[2]))
    assert not ssh_answers(kept, 7, "no-such-host.invalid", 22)
    assert not kept.exists()
    assert capfd.readouterr() == ("", "")
