"""The hosts of one model reach each other at every port, and nobody else does: with the real iptables, from outside."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host.firewall import rules as firewall
from drafthouse.profiles.workspace import ROOT
from tests.fleet.namespaces import Host, hosts

pytestmark = pytest.mark.processes

PROGRAM = ROOT / "roles/firewall/files/drafthouse-firewall"
GROUP, RANGES = ["10.77.0.2"], ["29500:29502", "32768:60999"]
# What an engine over several hosts has: meeting points, and any port that the kernel gives; and an API, and SSH's.
ENGINE, API, OTHER = [29500, 29501, 32768, 45000, 60999], 8000, 2222
LISTENS = """
import socket, sys, time
kept = [socket.create_server(("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True) for port in sys.argv[1:]]
print("ready", flush=True)
time.sleep(1000)
"""
KNOCKS = """
import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 1.0).close()
        print(port)
    except OSError:
        pass
"""


def wished(**more: object) -> firewall.Wishes:
    given: dict[str, object] = {"group": GROUP, "group_ports": RANGES, **more}
    return firewall.wishes([API], [], ["docker0"], [OTHER], **given)  # type: ignore[arg-type]


def reached(host: Host, address: str) -> list[int]:
    """Which of the ports a host reaches at an address."""
    ports = [str(port) for port in (*ENGINE, API, OTHER)]
    return [int(port) for port in host.run(sys.executable, "-c", KNOCKS, address, *ports).stdout.split()]


def test_the_group_reaches_everything_and_nobody_else_anything(tmp_path: Path) -> None:
    if not shutil.which("ip6tables-restore", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        pytest.skip("iptables is not installed here")
    for family in firewall.FAMILIES:
        (tmp_path / f"rules.v{family}").write_text(firewall.restore_text(firewall.rules(wished(), family)))
    with hosts(3) as (head, follower, stranger):
        ports = [str(port) for port in (*ENGINE, API, OTHER)]
        log = tmp_path / "listens"
        server = head.start(sys.executable, "-c", LISTENS, *ports, log=log)
        while "ready" not in log.read_text():
            assert server.poll() is None, log.read_text()
        everything = [*ENGINE, API, OTHER]
        assert reached(stranger, head.address) == everything
        environment = f"DRAFTHOUSE_FIREWALL_KEPT={tmp_path}", f"DRAFTHOUSE_FIREWALL_RUN={tmp_path}/run"
        head.run("env", *environment, str(PROGRAM), "apply")
        for family, program in ((4, "iptables-save"), (6, "ip6tables-save")):
            saved = head.run(program, "-t", "filter").stdout
            assert firewall.in_place(firewall.ours(saved), firewall.rules(wished(), family))
        # SSH's is nobody's of ours to close, and the API's is the site's.
        assert reached(stranger, head.address) == [OTHER]
        assert reached(follower, head.address) == everything
        assert reached(head, head.address) == everything
        # What the host begins itself comes from such a port, and its answers come in.
        other = follower.start(sys.executable, "-c", LISTENS, "9000", log=tmp_path / "other")
        while "ready" not in (tmp_path / "other").read_text():
            assert other.poll() is None
        asked = head.run(sys.executable, "-c", KNOCKS, follower.address, "9000")
        assert asked.stdout.split() == ["9000"]
        for process in (server, other):
            process.kill()
            process.wait(60)


def test_without_a_group_no_range_is_closed() -> None:
    plain = firewall.wishes([API], [], ["docker0"], [OTHER])
    assert firewall.wishes([API], [], ["docker0"], [OTHER], group=[], group_ports=RANGES) == plain


@pytest.mark.parametrize(
    ("more", "code", "where"),
    [
        ({"group": ["node2"]}, "invalid-setting", "firewall_group"),
        ({"group_ports": ["60999:32768"]}, "invalid-setting", "firewall_group_ports"),
        ({"group_ports": ["29500"]}, "invalid-setting", "firewall_group_ports"),
        ({"group_ports": ["1:70000"]}, "invalid-setting", "firewall_group_ports"),
        ({"group_ports": ["2000:3000"]}, "firewall-would-lock-out", "firewall_group_ports"),
    ],
)
def test_what_is_refused(more: dict[str, object], code: str, where: str) -> None:
    with pytest.raises(DrafthouseError) as error:
        wished(**more)
    assert (code, where) in [(problem.code, problem.where) for problem in error.value.problems]
