"""The firewall from outside: who reaches what, over both IP families, and that nobody is locked out.

A published port of the box's own Docker and the port of a process on the box are asked from an allowed host, from
another host and from a container on the box: 12 probes, in every situation that a box gets into.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.hosts import Ended, Host, Lab
from tests.support.tables import others

PUBLISHED, PROCESS = 8000, 8001
ALLOWED, OTHER, CONTAINER = "allowed", "other", "container"
TRIAL_S = 10  # the shortest there is; the soak takes the role's own 60
# An image of a few links: its programs are the box's own, mounted.
TINY = "tiny"
_LINKS = ("bin", "sbin", "lib", "lib64")
_MOUNTED = ("--volume", "/usr:/usr:ro")
_PROCESS_UNIT = f"""\
[Service]
ExecStart=/usr/bin/python3 -m http.server {PROCESS} --bind :: --directory /var/empty
Restart=always
[Install]
WantedBy=multi-user.target
"""
DAEMON_JSON = "/etc/docker/daemon.json"
LOOKS_LIKE_OURS = "MINE -j DRAFTHOUSE-INPUT"
# The two lines of the articles, rules for and against our ports, a chain, and comments that look like ours.
OWN_RULES = f"""
set -eu
for tool in iptables ip6tables; do
  $tool -F MINE 2>/dev/null || $tool -N MINE
  while $tool -D INPUT -j MINE 2>/dev/null; do :; done
  $tool -A MINE -p tcp --dport 9 -m comment --comment "{LOOKS_LIKE_OURS}" -j DROP
  $tool -A MINE -p tcp --dport {PROCESS} -j ACCEPT
  $tool -I INPUT 1 -j MINE
done
first() {{
  while iptables -D "$@" 2>/dev/null; do :; done
  iptables -I "$@"
}}
first INPUT -i docker0 -p tcp --dport {PUBLISHED} -m comment --comment MINE -j ACCEPT
first DOCKER-USER -i docker0 -m comment --comment MINE -j ACCEPT
first DOCKER-USER -s 198.51.100.0/24 -j DROP
"""
KNOCKING = """
import socket, sys, threading, time
until, got_in = time.monotonic() + float(sys.argv[1]), []
def knock(address, port):
    while time.monotonic() < until:
        try:
            socket.create_connection((address, port), timeout=0.3).close()
            got_in.append(port)
        except OSError:
            pass
        time.sleep(0.03)
doors = [(address, int(port)) for address in sys.argv[2].split(",") for port in sys.argv[3].split(",")]
threads = [threading.Thread(target=knock, args=door) for door in doors]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(got_in))
"""
Probe = tuple[str, int, int]  # who asks, over which IP family, which port
EXPECTED: dict[Probe, bool] = {
    (who, family, port): who != OTHER
    for who in (ALLOWED, OTHER, CONTAINER)
    for family in (4, 6)
    for port in (PUBLISHED, PROCESS)
}
EVERYBODY = dict.fromkeys(EXPECTED, True)


class Scene:
    """A box with a published port and a process, and all who ask them."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.box = lab.start("workstation-docker")
        self.allowed, self.other = lab.start("peer"), lab.start("peer")
        self.inventory = lab.inventory([self.box])
        self.playbook = playbook(folder)

    def furnish(self) -> None:
        """Start what is asked; it all comes back when the box restarts."""
        self.box.put(DAEMON_JSON, json.dumps({"ipv6": True, "fixed-cidr-v6": "fd00:8:9::/64"}))
        self.box.put("/etc/systemd/system/process.service", _PROCESS_UNIT)
        self.box.exec("mkdir", "-p", "/var/empty")
        self.box.exec("systemctl", "enable", "--now", "process.service")
        self.box.exec("systemctl", "restart", "docker.service")
        self.box.put("/root/tiny.tar", tiny_image())
        self.box.exec("docker", "import", "/root/tiny.tar", TINY)
        self._container(
            "published", "--publish", f"{PUBLISHED}:80", "python3", "-m", "http.server", "80", "--bind", "::"
        )
        self._container(CONTAINER, "sleep", "infinity")

    def _container(self, name: str, *words: str) -> None:
        options = [word for word in words[:2] if words[0] == "--publish"]
        kept = [
            "--detach",
            "--name",
            name,
            "--restart",
            "always",
            "--stop-signal",
            "KILL",
            "--workdir",
            "/srv",
            *_MOUNTED,
            *options,
        ]
        self.box.exec("docker", "run", *kept, TINY, *words[len(options) :])

    def run(self, *words: str, **variables: Any) -> Ended:
        """Run the role as a person would."""
        given = {
            "firewall_port": PUBLISHED,
            "firewall_more_ports": [PROCESS],
            "firewall_allow_cidrs": [self.allowed.ip4, self.allowed.ip6],
            **variables,
        }
        return self.lab.play(str(self.playbook), self.inventory, *words, **given)

    def probes(self) -> dict[Probe, bool]:
        """Ask everything from everywhere; True is an HTTP answer."""
        found: dict[Probe, bool] = {}
        for who, ask in (
            (ALLOWED, self.allowed.exec),
            (OTHER, self.other.exec),
            (CONTAINER, lambda *argv, check: self.box.exec("docker", "exec", CONTAINER, *argv, check=check)),
        ):
            said = ask(*asking(self.box), check=False).stdout
            found |= {(who, family, port): f"{family} {port} 200" in said for _, family, port in EXPECTED}
        return found

    def settled(self, wanted: Mapping[Probe, bool] = EXPECTED) -> dict[Probe, bool]:
        """The probes as soon as they are as wanted, or what they are after a while."""
        end = time.monotonic() + 120
        while (found := self.probes()) != wanted and time.monotonic() < end:
            time.sleep(0.5)
        return found

    def lay_own_rules(self) -> None:
        """Write rules as an owner has them: the articles' two, some of theirs, and some against us, all first."""
        self.box.exec("sh", "-c", OWN_RULES)

    def own_rules(self) -> list[str]:
        """The owner's rules in the order in which they stand."""
        return [line for line in self.saved().splitlines() if "MINE" in line or "198.51.100." in line]

    def knocked_while_it_restarts(self) -> int:
        """Restart the box; return how often the host that is not allowed got in meanwhile, on any way."""
        addresses = f"{self.box.ip4},{self.box.ip6}"
        with ThreadPoolExecutor(1) as beside:
            knocking = beside.submit(
                self.other.exec, "python3", "-c", KNOCKING, "30", addresses, f"{PUBLISHED},{PROCESS}", timeout=120
            )
            time.sleep(1)
            self.box.restart()
            return int(knocking.result().stdout)

    def saved(self) -> str:
        """All rules of the box, both families."""
        return self.box.exec("sh", "-c", "iptables-save; ip6tables-save").stdout


def counted(saved: str) -> str:
    """`iptables-save` without what changes by itself: counters and the time."""
    return re.sub(r"^#.*\n|\[\d+:\d+\]", "", saved, flags=re.MULTILINE)


def asking(box: Host) -> list[str]:
    """Return the words that ask the box over both families at both ports, at once, and print who answered."""
    words = ["curl", "--silent", "--parallel", "--noproxy", "*"]
    for number, (family, address) in enumerate(((4, box.ip4), (6, f"[{box.ip6}]"))):
        for port in (PUBLISHED, PROCESS):
            more = ["--next"] if number or port == PROCESS else []
            words += [*more, "--max-time", "3", "--output", "/dev/null"]
            words += ["--write-out", f"{family} {port} %{{http_code}}\\n", f"http://{address}:{port}/"]
    return words


def playbook(folder: Path) -> Path:
    """Write a play of this role alone."""
    file = folder / "firewall.yml"
    role = {"name": "Guard", "ansible.builtin.include_role": {"name": "firewall"}}
    file.write_text(json.dumps([{"name": "Firewall", "hosts": "all", "gather_facts": False, "tasks": [role]}]), "utf-8")
    return file


def tiny_image() -> bytes:
    """An image that has nothing but links into a mounted /usr."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in _LINKS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
        for name in ("usr", "srv", "tmp"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return packed.getvalue()


@pytest.fixture(scope="module")
def scene(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(lab, tmp_path_factory.mktemp("firewall"))
    made.furnish()
    yield made
    for host in (made.box, made.allowed, made.other):
        host.remove()


@pytest.fixture(scope="module")
def guarded(scene: Scene) -> Scene:
    """The same box, its owner's own rules on it, with the firewall of this role. Before it, everything is open."""
    scene.lay_own_rules()
    assert scene.settled(EVERYBODY) == EVERYBODY
    before = scene.saved()
    done = scene.run()
    assert done.status == 0
    assert done.changed == 1
    assert others(scene.saved()) == others(before)
    return scene


# --- each time ----------------------------------------------------------------------------------


def test_who_reaches_what(guarded: Scene, figure: Callable[[str], None]) -> None:
    assert guarded.settled() == EXPECTED
    before = guarded.saved()
    again = guarded.run()
    assert again.changed == 0
    assert counted(guarded.saved()) == counted(before)
    assert guarded.settled() == EXPECTED
    figure(
        f"firewall: 12 of 12 probes as expected beside the owner's rules, second run {again.seconds:.1f} s, changed=0"
    )


def test_the_box_seen_from_outside(guarded: Scene) -> None:
    seen = guarded.box.backend()
    for family in (4, 6):
        file = seen.file(f"/etc/drafthouse/firewall/rules.v{family}")
        assert (file.mode, file.user) == (0o600, "root")
    assert seen.service("drafthouse-firewall.service").is_enabled
    assert seen.service("drafthouse-firewall-early.service").is_running
    assert not seen.file("/run/drafthouse-firewall/token").exists
    assert "drafthouse-firewall-rollback" not in seen.run("systemctl list-timers --all").stdout


def test_check_mode_shows_the_rules_and_changes_nothing(guarded: Scene) -> None:
    before = guarded.saved()
    done = guarded.run("--check", "--diff", firewall_allow_cidrs=["203.0.113.0/24"])
    assert done.status == 0
    assert "+-A DRAFTHOUSE-INPUT -s 203.0.113.0/24 -p tcp -m tcp --dport 8000 -j ACCEPT" in done.output
    assert f"--A DRAFTHOUSE-INPUT -s {guarded.allowed.ip4}/32 -p tcp -m tcp --dport 8000 -j ACCEPT" in done.output
    assert counted(guarded.saved()) == counted(before)


def test_docker_with_nftables_is_refused(guarded: Scene) -> None:
    before = guarded.saved()
    kept = guarded.box.exec("cat", DAEMON_JSON).stdout
    guarded.box.put(DAEMON_JSON, json.dumps({"firewall-backend": "nftables"}))
    try:
        done = guarded.run(firewall_allow_cidrs=[])
    finally:
        guarded.box.put(DAEMON_JSON, kept)
    assert done.status != 0
    assert done.lines("where") == [f"where: {DAEMON_JSON}"]
    assert "nftables" in done.lines("found")[0]
    assert counted(guarded.saved()) == counted(before)


def test_a_box_without_iptables_is_refused(lab: Lab, rental: Host, tmp_path: Path) -> None:
    inventory = lab.inventory([rental])
    done = lab.play(str(playbook(tmp_path)), inventory, firewall_port=PUBLISHED)
    assert done.status != 0
    assert done.lines("found") == ["found: no iptables and no ip6tables"]
    assert done.lines("do") == ["do: apt-get install iptables"]
    bare = lab.play(str(playbook(tmp_path)), inventory, "--check", "--diff", firewall_port=PUBLISHED)
    assert bare.status == 0
    assert rental.exec("find", "/", "-xdev", "-name", "*drafthouse*").stdout == ""


def test_wishes_that_would_lock_out_are_refused(lab: Lab, workstation: Host, tmp_path: Path) -> None:
    done = lab.play(
        str(playbook(tmp_path)), lab.inventory([workstation]), firewall_port=22, firewall_allow_cidrs=["10.0.0.1/8"]
    )
    assert done.status != 0
    assert done.lines("where") == ["where: firewall_port", "where: firewall_allow_cidrs"]
    assert done.lines("found")[0] == "found: port 22 for the API, on which SSH listens"
    assert "DRAFTHOUSE" not in workstation.exec("iptables-save").stdout


def test_rules_that_cut_ssh_are_taken_back(
    lab: Lab, workstation: Host, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    figure(cut(lab, workstation, tmp_path, TRIAL_S))


# --- the long series ----------------------------------------------------------------------------

INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
SITUATIONS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "Docker restarted": (["systemctl restart docker"], []),
    "Docker stopped and started": (["systemctl stop docker.socket docker", "systemctl start docker"], []),
    "dockerd killed": (["kill -9 $(pidof dockerd)"], []),
    "ufw active": ([f"{INSTALL} ufw", "ufw allow 22/tcp", "ufw --force enable"], []),
    "ufw reloaded": (["ufw reload", "systemctl restart ufw"], []),
    "ufw switched off and on": (["ufw disable", "ufw --force enable"], ["ufw disable", "apt-get purge -y -qq ufw"]),
    # What others saved before we came, and what they saved with our rules in it.
    "all rules emptied by netfilter-persistent, Docker restarted": (
        [
            f"{INSTALL} iptables-persistent",
            "printf '*filter\\nCOMMIT\\n*nat\\nCOMMIT\\n' >/etc/iptables/rules.v4",
            "printf '*filter\\nCOMMIT\\n' >/etc/iptables/rules.v6",
            "systemctl restart netfilter-persistent",
            "systemctl restart docker",
        ],
        [],
    ),
    "our rules saved and restored by netfilter-persistent": (
        ["netfilter-persistent save", "systemctl restart netfilter-persistent", "netfilter-persistent reload"],
        ["apt-get purge -y -qq iptables-persistent netfilter-persistent", "rm -rf /etc/iptables"],
    ),
}


@pytest.mark.soak
def test_every_situation(guarded: Scene, figure: Callable[[str], None]) -> None:
    """One test, because the situations follow one another: ufw is reloaded where it is active."""
    guarded.box.exec("apt-get", "update", "-qq")
    wrong = {}
    for name, (commands, undo) in SITUATIONS.items():
        guarded.lay_own_rules()
        before = guarded.own_rules()
        assert guarded.run().status == 0
        # systemd starts Docker three times a minute at most.
        for command in ["systemctl reset-failed docker.service docker.socket", *commands]:
            guarded.box.exec("sh", "-c", command, timeout=300)
        found = guarded.settled()
        wrong[name] = {probe: answer for probe, answer in found.items() if answer != EXPECTED[probe]}
        survives = "emptied" in name or guarded.own_rules() == before
        again = guarded.run()
        if again.changed or again.status or not survives:
            wrong[f"{name}: second run changed={again.changed}, the owner's rules survive: {survives}"] = found
        for command in undo:
            guarded.box.exec("sh", "-c", command, timeout=300)
        figure(f"firewall, {name}: {len(found) - len(wrong[name])} of 12 probes as expected, second run changed=0")
    assert {name: probes for name, probes in wrong.items() if probes} == {}


@pytest.mark.soak
def test_no_port_is_open_while_the_box_restarts(guarded: Scene, figure: Callable[[str], None]) -> None:
    assert guarded.run().status == 0
    assert guarded.knocked_while_it_restarts() == 0
    assert guarded.settled() == EXPECTED
    assert guarded.run().changed == 0
    # Without the unit that comes first the same knocking gets in: this is what it is for.
    guarded.box.exec("systemctl", "disable", "drafthouse-firewall-early.service")
    open_then = guarded.knocked_while_it_restarts()
    assert open_then > 0
    assert guarded.settled() == EXPECTED
    assert guarded.run().changed == 1
    assert guarded.run().changed == 0
    figure(f"firewall, box restarted: a stranger got in 0 times, {open_then} times without the early unit")


@pytest.mark.soak
def test_docker_that_filters_ipv6_itself(guarded: Scene, figure: Callable[[str], None]) -> None:
    """Docker makes DOCKER-USER for IPv6 too: by default from 27.0 on, before that when told to."""
    kept = guarded.box.exec("cat", DAEMON_JSON).stdout
    guarded.box.put(DAEMON_JSON, json.dumps({**json.loads(kept), "ip6tables": True, "experimental": True}))
    try:
        guarded.box.exec("systemctl", "restart", "docker")
        assert guarded.settled() == EXPECTED
        assert "-A DOCKER-USER -j DRAFTHOUSE-DOCKER" in guarded.box.exec("ip6tables-save").stdout
        assert guarded.run().changed == 0
        assert guarded.knocked_while_it_restarts() == 0
        assert guarded.settled() == EXPECTED
        figure("firewall, Docker with ip6tables: 12 of 12 probes as expected, also after the box's restart")
    finally:
        guarded.box.put(DAEMON_JSON, kept)
        guarded.box.restart()


@pytest.mark.soak
def test_taking_away_leaves_nothing_of_ours(guarded: Scene) -> None:
    guarded.lay_own_rules()
    before = guarded.saved()
    assert guarded.run(firewall_state="absent").changed == 1
    assert guarded.settled(EVERYBODY) == EVERYBODY
    assert others(guarded.saved()) == others(before)
    assert "DRAFTHOUSE-" not in guarded.saved().replace(LOOKS_LIKE_OURS, "")
    assert guarded.box.exec("find", "/etc", "/run", "/usr/local", "-name", "*drafthouse*").stdout == ""
    assert guarded.run(firewall_state="absent").changed == 0
    assert guarded.run().changed == 1
    assert guarded.settled() == EXPECTED


@pytest.mark.soak
def test_the_role_s_own_minute(lab: Lab, workstation: Host, tmp_path: Path, figure: Callable[[str], None]) -> None:
    figure(cut(lab, workstation, tmp_path, 60))


def cut(lab: Lab, box: Host, folder: Path, seconds: int) -> str:
    """Cut SSH by the role's own rules, as somebody without root's key; return the figure.

    The port is SSH's, and a wrong firewall_ssh_port hides that: the rules go in, the connection in use lives on,
    and no new one comes through.
    """
    box.exec("sh", "-c", "id someone || useradd --create-home --shell /bin/sh someone")
    box.exec("sh", "-c", "install -D -o someone -m 600 /root/.ssh/authorized_keys ~someone/.ssh/authorized_keys")
    box.exec("chown", "someone:", "/home/someone/.ssh")
    box.put("/etc/sudoers.d/someone", "someone ALL=(ALL) NOPASSWD: ALL\n", "0440")
    before = box.exec("sh", "-c", "iptables-save; ip6tables-save").stdout
    given: dict[str, Any] = {"ansible_user": "someone", "ansible_become": True, "firewall_confirm_seconds": seconds}
    done = lab.play(str(playbook(folder)), lab.inventory([box]), firewall_port=22, firewall_ssh_port=2222, **given)
    assert done.status != 0
    assert f"no new SSH connection came through within {seconds} s" in done.lines("found")[0]
    answered = re.search(r"it answered again (\d+) s", done.lines("found")[0])
    assert answered
    assert int(answered[1]) <= 300
    assert len(done.lines("needed")) == len(done.lines("do")) == 1
    assert box.run("true").returncode == 0
    assert others(box.exec("sh", "-c", "iptables-save; ip6tables-save").stdout) == others(before)
    assert box.exec("sh", "-c", "iptables-save; ip6tables-save").stdout.count("DRAFTHOUSE") == before.count(
        "DRAFTHOUSE"
    )
    # And a wish that lets everybody live is taken after it.
    assert lab.play(str(playbook(folder)), lab.inventory([box]), firewall_port=8000).changed == 1
    assert (
        lab.play(str(playbook(folder)), lab.inventory([box]), firewall_port=8000, firewall_state="absent").changed == 1
    )
    return f"firewall, SSH cut for a trial of {seconds} s: SSH answers again {answered[1]} s after the change"
