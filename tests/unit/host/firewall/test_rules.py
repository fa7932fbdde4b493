"""The firewall's rules, and the program that puts them in place, with the real iptables in a network of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.host.firewall import rules as firewall
from drafthouse.host.firewall.means import FirewallMeans, docker_backend, refusals
from drafthouse.profiles.workspace import ROOT
from tests.support.tables import others

pytestmark = pytest.mark.processes

PROGRAM = ROOT / "roles/firewall/files/drafthouse-firewall"
WISHED = firewall.wishes([8000], ["192.0.2.7", "2001:db8:1::/48"], ["docker0"], [22])
# What a box has before we come: ufw's, Docker's and its owner's own rules, with words that look like ours.
OTHERS = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER-USER - [0:0]
:ufw-before-input - [0:0]
-A INPUT -p tcp -m tcp --dport 8000 -m comment --comment "mine -j DRAFTHOUSE-INPUT" -j ACCEPT
-A INPUT -j ufw-before-input
-A FORWARD -j DOCKER-USER
-A DOCKER-USER -i eth9 -j DROP
-A DOCKER-USER -j RETURN
-A ufw-before-input -i lo -j ACCEPT
COMMIT
*nat
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
COMMIT
"""


def problems(error: pytest.ExceptionInfo[DrafthouseError]) -> list[str]:
    return [f"{problem.where}: {problem.found} / {problem.do}" for problem in error.value.problems]


# --- wishes -------------------------------------------------------------------------------------


def test_the_rules_of_both_families() -> None:
    assert firewall.rules(WISHED, 4) == [
        "-A DRAFTHOUSE-DOCKER -s 192.0.2.7/32 -p tcp -m conntrack"
        " --ctstate DNAT --ctorigdstport 8000 --ctdir ORIGINAL -j ACCEPT",
        "-A DRAFTHOUSE-DOCKER -i docker0 -p tcp -m conntrack"
        " --ctstate DNAT --ctorigdstport 8000 --ctdir ORIGINAL -j ACCEPT",
        "-A DRAFTHOUSE-DOCKER -p tcp -m conntrack --ctstate DNAT --ctorigdstport 8000 --ctdir ORIGINAL -j DROP",
        "-A DRAFTHOUSE-DOCKER ! -i docker0 -o docker0 -p tcp -m conntrack"
        " --ctorigdstport 8000 --ctdir ORIGINAL -j DROP",
        "-A DRAFTHOUSE-INPUT -i lo -p tcp -m tcp --dport 8000 -j ACCEPT",
        "-A DRAFTHOUSE-INPUT -i docker0 -p tcp -m tcp --dport 8000 -j ACCEPT",
        "-A DRAFTHOUSE-INPUT -s 192.0.2.7/32 -p tcp -m tcp --dport 8000 -j ACCEPT",
        "-A DRAFTHOUSE-INPUT -p tcp -m tcp --dport 8000 -j DROP",
    ]
    sixth = "\n".join(firewall.rules(WISHED, 6))
    assert "2001:db8:1::/48" in sixth
    assert "192.0.2.7" not in sixth


def test_no_cidr_closes_both_families() -> None:
    closed = firewall.wishes([8000], [], [], [22])
    for family in firewall.FAMILIES:
        accepted = [rule for rule in firewall.rules(closed, family) if rule.endswith("ACCEPT")]
        assert accepted == ["-A DRAFTHOUSE-INPUT -i lo -p tcp -m tcp --dport 8000 -j ACCEPT"]


def test_a_new_order_is_no_change() -> None:
    one = firewall.wishes([8001, 8000], ["10.0.0.0/8", "192.0.2.7", "192.0.2.7/32"], ["br-a", "docker0"], [22])
    assert one == firewall.wishes([8000, 8001], ["192.0.2.7", "10.0.0.0/8"], ["docker0", "br-a"], [22])


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(DrafthouseError) as error:
        firewall.wishes(
            [0, 22], ["10.0.0.1/8", "office.example"], ["eth0; reboot", "a-name-that-is-too-long"], [22, 2222]
        )
    said = "\n".join(problems(error))
    assert len(error.value.problems) == 6
    assert "firewall_port: port 0" in said
    assert "firewall_port: port 22 for the API, on which SSH listens" in said
    assert "write 10.0.0.0/8 for the whole network" in said
    assert "a name is not an address" in said


@pytest.mark.parametrize("seconds", [9, 601])
def test_a_trial_too_short_or_too_long(seconds: int) -> None:
    assert firewall.trial_problems(seconds)[0].where == "firewall_confirm_seconds"
    assert not firewall.trial_problems(60)


def test_the_running_connection_is_let_through_in_its_own_family() -> None:
    running = firewall.session("192.0.2.1 50000 192.0.2.9 22")
    assert firewall.own_connection(running, 6) == []
    assert firewall.own_connection(None, 4) == []
    assert firewall.own_connection(running, 4) == [
        "-A DRAFTHOUSE-INPUT -s 192.0.2.1/32 -p tcp -m tcp --sport 50000 --dport 22 -j ACCEPT"
    ]
    local = firewall.session("fe80::1%eth0 50000 fe80::2%eth0 22")
    assert local is not None
    assert "-s fe80::1/128" in firewall.own_connection(local, 6)[0]


@pytest.mark.parametrize("text", [None, "", "192.0.2.1 50000", "a b c d", "UNKNOWN 65535 UNKNOWN 65535"])
def test_no_ssh_connection(text: str | None) -> None:
    assert firewall.session(text) is None


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("daemon_json", "arguments", "backend"),
    [
        ("", [], "iptables"),
        ('{"firewall-backend": "nftables"}', [], "nftables"),
        ('{"firewall-backend": "iptables"}', ["dockerd", "--firewall-backend=nftables"], "nftables"),
        ("", ["dockerd", "--firewall-backend", "nftables", "-H", "fd://"], "nftables"),
        ("{not json", [], "iptables"),
        ("[]", [], "iptables"),
    ],
)
def test_the_backend_of_docker(daemon_json: str, arguments: list[str], backend: str) -> None:
    assert docker_backend(daemon_json, arguments) == backend


def test_what_cannot_be_guarded_is_refused_with_the_reason() -> None:
    assert refusals(FirewallMeans()) == []
    nft = FirewallMeans(docker_backend="nftables", docker_backend_from="/etc/docker/daemon.json")
    assert refusals(nft)[0].where == "/etc/docker/daemon.json"
    pure = FirewallMeans(missing=("iptables", "ip6tables"), own_nftables=("inet filter",))
    assert "nftables rules of its own: inet filter" in refusals(pure)[0].found
    assert refusals(FirewallMeans(missing=("iptables",)))[0].do == "apt-get install iptables"
    assert "Permission denied" in refusals(FirewallMeans(failing="Permission denied"))[0].found
    assert len(refusals(FirewallMeans(root=False, docker_backend="nftables", missing=("iptables",)))) == 3


# --- with the real iptables ---------------------------------------------------------------------


@dataclass
class Net:
    """A network namespace with iptables of its own, and our program's folders."""

    enter: list[str]
    folder: Path

    def run(self, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "DRAFTHOUSE_FIREWALL_KEPT": str(self.folder / "kept"),
            "DRAFTHOUSE_FIREWALL_RUN": str(self.folder / "run"),
            "DRAFTHOUSE_FIREWALL_SYSTEMD": "/nowhere",
        }
        return subprocess.run(
            [*self.enter, *argv], input=given, env=environment, capture_output=True, text=True, timeout=180, check=False
        )

    def program(self, *argv: str) -> int:
        done = self.run(str(PROGRAM), *argv)
        print(done.stdout, done.stderr)
        return done.returncode

    def restore(self, text: str, family: int = 4) -> None:
        done = self.run("iptables-restore" if family == 4 else "ip6tables-restore", given=text)
        assert done.returncode == 0, done.stderr

    def saved(self, family: int = 4) -> str:
        return self.run("iptables-save" if family == 4 else "ip6tables-save").stdout

    def holds(self, wished: firewall.Wishes = WISHED) -> bool:
        """Tell whether both families are exactly as wished."""
        return all(
            firewall.in_place(firewall.ours(self.saved(family)), firewall.rules(wished, family))
            for family in firewall.FAMILIES
        )

    def lay(self, where: str, wished: firewall.Wishes = WISHED, more: Sequence[str] = ()) -> None:
        folder = self.folder / where
        folder.mkdir(parents=True, exist_ok=True)
        for family in firewall.FAMILIES:
            lines = [*more, *firewall.rules(wished, family)]
            (folder / f"rules.v{family}").write_text(firewall.restore_text(lines), "utf-8")

    def lay_trial(self, wished: firewall.Wishes = WISHED) -> None:
        self.lay("run/trial", wished, ["-A DRAFTHOUSE-INPUT -p tcp -m tcp --dport 22 -j ACCEPT"])
        self.lay("run/next", wished)


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if not shutil.which("ip6tables-restore", path=path):
        pytest.skip("iptables is not installed here")
    root = os.geteuid() == 0
    words = ["unshare", "--net", *([] if root else ["--map-root-user"]), "sh", "-c", "echo ready; read end"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            pytest.skip("no network namespace can be made here")
        enter = ["nsenter", "-t", str(holder.pid), "--net", *([] if root else ["--user", "--preserve-credentials"])]
        yield Net(enter, tmp_path)
        holder.communicate("\n")


def test_the_rules_are_written_as_iptables_prints_them(net: Net) -> None:
    net.lay("kept", firewall.wishes([8000, 8001], ["192.0.2.7", "0.0.0.0/0", "::/0", "fd00::/8"], ["br-+"], [22]))
    assert net.program("apply") == 0
    assert net.holds(firewall.wishes([8000, 8001], ["192.0.2.7", "0.0.0.0/0", "::/0", "fd00::/8"], ["br-+"], [22]))
    assert not net.holds()


LIMITED = firewall.wishes([8000], ["10.9.0.0/24", "fd09::/64"], ["docker0"], [22], [8001], connections=3, rate=2)
# What a client gets of each of ten connections that it keeps: y, or why not.
KNOCKS = """
import socket, sys
held, said = [], ""
for _ in range(int(sys.argv[2])):
    try:
        held.append(socket.create_connection((sys.argv[1], 8000), 0.4))
        said += "y"
    except ConnectionRefusedError:
        said += "r"
    except TimeoutError:
        said += "t"
print(said)
"""
LISTENS = """
import socket, threading
def serve(one):
    with one:
        one.recv(1)
server = socket.create_server(("::", 8000), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture
def client(net: Net) -> Iterator[Callable[[str, int], str]]:
    """Another machine beside the box: what it gets of so many connections to an address of the box."""
    with contextlib.ExitStack() as stack:
        words = [*net.enter, "unshare", "--net", "sh", "-c", "echo ready; read end"]
        far = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert far.stdout is not None and far.stdout.readline() == "ready\n"
        stack.callback(far.communicate, "\n")
        inside = [*net.enter, "nsenter", "-t", str(far.pid), "--net"]
        lines = f"ip link add near type veth peer name far netns {far.pid}; ip addr add 10.9.0.1/24 dev near"
        net.run("sh", "-ec", f"{lines}; ip addr add fd09::1/64 dev near nodad; ip link set near up; ip link set lo up")
        lines = "ip addr add 10.9.0.2/24 dev far; ip addr add fd09::2/64 dev far nodad; ip link set far up"
        if subprocess.run([*inside, "sh", "-ec", lines], check=False).returncode:
            pytest.skip("no pair of interfaces can be made here")
        serving = [*net.enter, sys.executable, "-c", LISTENS]
        server = stack.enter_context(subprocess.Popen(serving, stdout=subprocess.PIPE, text=True))
        stack.callback(server.kill)
        assert server.stdout is not None and server.stdout.readline() == "ready\n"

        def knock(address: str, times: int) -> str:
            asked = [*inside, sys.executable, "-c", KNOCKS, address, str(times)]
            return subprocess.run(asked, capture_output=True, text=True, timeout=180, check=True).stdout.strip()

        yield knock


def test_one_client_has_so_many_connections_and_no_more(net: Net, client: Callable[[str, int], str]) -> None:
    net.lay("kept", LIMITED)
    assert net.program("apply") == 0
    assert net.holds(LIMITED)
    for address in ("10.9.0.1", "fd09::1"):
        assert client(address, 5) == "yyyrr"
    # Those that have ended count no more, and nobody who is quick is refused for ever.
    for _ in range(5):
        time.sleep(1)
        if (said := client("10.9.0.1", 2)) == "yy":
            break
    assert said == "yy"


def test_one_client_opens_so_many_a_second(net: Net, client: Callable[[str, int], str]) -> None:
    quick = replace(LIMITED, connections=0)
    net.lay("kept", quick)
    assert net.program("apply") == 0
    assert net.holds(quick)
    for address in ("10.9.0.1", "fd09::1"):
        said = client(address, 12)
        assert said.startswith("yyyyyyyy"), said  # four times the rate at once
        assert "t" in said
        assert "r" not in said
    # A higher rate holds at once: the kernel keeps a table's settings for as long as one has its name.
    higher = replace(quick, rate=100)
    net.lay("kept", higher)
    assert net.program("apply") == 0
    assert client("10.9.0.1", 12) == "y" * 12


def test_nobody_is_limited_at_a_port_that_is_closed_to_all() -> None:
    for family in firewall.FAMILIES:
        limits = [rule for rule in firewall.rules(LIMITED, family) if "limit" in rule]
        assert len(limits) == 2
        assert all("--dport 8000" in rule for rule in limits)
        near = [rule for rule in firewall.rules(LIMITED, family) if " -i lo " in rule or " -i docker0 " in rule]
        assert firewall.rules(LIMITED, family).index(limits[0]) > firewall.rules(LIMITED, family).index(near[0])
    assert firewall.wishes([8000], [], [], [22], connections=4096, rate=50).connections == 4096
    for connections, rate in ((-1, 0), (0, 10**6), (10**6, 0)):
        with pytest.raises(DrafthouseError, match="firewall_client_"):
            firewall.wishes([8000], [], [], [22], connections=connections, rate=rate)


def test_all_others_stay_byte_for_byte(net: Net) -> None:
    net.restore(OTHERS)
    before = [others(net.saved(family)) for family in firewall.FAMILIES]
    assert before[0].count("\n") > 12
    assert 'comment "mine -j DRAFTHOUSE-INPUT"' in before[0]
    net.lay("kept")
    for _ in range(3):
        assert net.program("apply") == 0
        assert net.holds()
        assert [others(net.saved(family)) for family in firewall.FAMILIES] == before
    assert net.program("remove") == 0
    assert "DRAFTHOUSE" not in net.saved(4).replace("mine -j DRAFTHOUSE-INPUT", "") + net.saved(6)
    assert [others(net.saved(family)) for family in firewall.FAMILIES] == before


@pytest.mark.parametrize(
    "breakage",
    [
        ("-I", "INPUT", "1", "-p", "tcp", "--dport", "8000", "-j", "ACCEPT"),
        ("-A", "INPUT", "-j", "DRAFTHOUSE-INPUT"),
        ("-D", "INPUT", "-j", "DRAFTHOUSE-INPUT"),
        ("-D", "DOCKER-USER", "-j", "DRAFTHOUSE-DOCKER"),
        ("-I", "DRAFTHOUSE-INPUT", "1", "-j", "ACCEPT"),
        ("-F", "DRAFTHOUSE-DOCKER"),
    ],
    ids=" ".join,
)
def test_a_meddled_table_is_noticed_and_mended(net: Net, breakage: tuple[str, ...]) -> None:
    net.restore(OTHERS)
    net.lay("kept")
    assert net.program("apply") == 0
    assert net.run("iptables", *breakage).returncode == 0
    assert not net.holds()
    assert net.program("apply") == 0
    assert net.holds()


def test_a_flushed_table_is_filled_again(net: Net) -> None:
    net.lay("kept")
    assert net.program("apply") == 0
    net.restore(OTHERS)
    assert not net.holds()
    assert net.program("apply") == 0
    assert net.holds()


def test_a_chain_of_docker_that_comes_later_is_jumped_from(net: Net) -> None:
    net.lay("kept")
    assert net.program("apply") == 0
    assert net.holds()
    net.run("ip6tables", "-N", "DOCKER-USER")
    assert not net.holds()
    assert net.program("apply") == 0
    assert net.holds()
    assert (net.folder / "kept/docker-user.v6").exists()
    assert not (net.folder / "kept/docker-user.v4").exists()


def test_an_unconfirmed_trial_is_taken_back(net: Net) -> None:
    net.restore(OTHERS)
    net.lay("kept", firewall.wishes([9000], [], [], [22]))
    assert net.program("apply") == 0
    before = net.saved()
    net.lay_trial()
    assert net.program("try", "word", "1") == 0
    assert "--dport 22" in net.saved()
    assert _within(120, lambda: net.holds(firewall.wishes([9000], [], [], [22])))
    assert firewall.ours(net.saved()) == firewall.ours(before)
    assert net.program("confirm", "word") == 4


def test_a_first_trial_leaves_nothing_behind(net: Net) -> None:
    net.restore(OTHERS)
    before = net.saved()
    net.lay_trial()
    assert net.program("try", "word", "600") == 0
    assert net.saved() != before
    assert net.program("rollback", "another word") == 0
    assert "--dport 22" in net.saved()
    assert net.program("rollback", "word") == 0
    assert others(net.saved()) == others(before)
    assert firewall.ours(net.saved()) == firewall.ours(before)
    assert not (net.folder / "kept").exists()


def test_a_confirmed_trial_stays(net: Net) -> None:
    net.lay_trial()
    assert net.program("try", "word", "600") == 0
    assert net.program("confirm", "another word") == 4
    assert net.program("confirm", "word") == 0
    assert net.holds()
    assert net.program("rollback", "word") == 0  # what is called when the time is over
    assert net.holds()
    for family in firewall.FAMILIES:
        file = net.folder / f"kept/rules.v{family}"
        assert file.read_text("utf-8") == firewall.restore_text(firewall.rules(WISHED, family))
        assert file.stat().st_mode & 0o777 == 0o600


def test_rules_that_one_family_refuses_touch_neither(net: Net) -> None:
    net.lay("kept", firewall.wishes([9000], [], [], [22]))
    assert net.program("apply") == 0
    net.lay_trial()
    (net.folder / "run/trial/rules.v6").write_text(
        ":DRAFTHOUSE-INPUT - [0:0]\n-A DRAFTHOUSE-INPUT -s 192.0.2.1 -j DROP\n"
    )
    assert net.program("try", "word", "600") == 1
    assert net.holds(firewall.wishes([9000], [], [], [22]))
    assert net.program("confirm", "word") == 4


def test_before_docker_starts_its_chain_waits_for_it(net: Net) -> None:
    if not shutil.which("dockerd", path="/usr/sbin:/usr/bin:/sbin:/bin"):
        pytest.skip("no dockerd here")
    net.lay("kept")
    (net.folder / "kept/docker-user.v4").touch()
    assert net.program("apply") == 0
    assert ":DOCKER-USER " in net.saved(4)
    assert ":DOCKER-USER " not in net.saved(6)
    assert net.holds()
    net.run("iptables", "-A", "DOCKER-USER", "-s", "192.0.2.99", "-j", "DROP")
    assert net.program("apply") == 0
    assert "192.0.2.99" in net.saved(4)


def test_an_unknown_word_is_answered_with_the_known_ones(net: Net) -> None:
    done = net.run(str(PROGRAM), "aply")
    assert done.returncode == 2
    assert done.stderr.startswith("apply  ")


def _within(seconds: float, true: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
