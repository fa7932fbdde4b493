"""The monitoring on hosts, with the real engine: what Prometheus reads and records, and every alert under a made cause.

By systemd on a workstation, whose engine is a container; by a supervisor on a rental, behind whose gateway it is.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.hosts.hosts import Ended, Host, Lab
from tests.hosts.test_kills import SETTINGS
from tests.support.prometheus import awaited
from tests.support.tales import SHORTEST

PROFILE = "cpu-smollm2-ngram"
PORT = 9490
PROMETHEUS = f"http://127.0.0.1:{PORT}"
# Ten minutes are twenty seconds here.
PACE = {"interval_s": 2, "window_s": 20, "hold_s": 20}
SOON_S, LONG_S = 360, 900
ENGINE = "bin/llama-server.* --model"
GET = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode())"
LISTEN = """
import socket, struct
for name, family, size in (("tcp", socket.AF_INET, 4), ("tcp6", socket.AF_INET6, 16)):
    for line in open(f"/proc/net/{name}").read().splitlines()[1:]:
        address, port = line.split()[1].split(":")
        if line.split()[3] == "0A":
            words = bytes.fromhex(address)
            turned = b"".join(words[at : at + 4][::-1] for at in range(0, size, 4))
            print(socket.inet_ntop(family, turned), int(port, 16))
"""
KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"
# Asks the engine again and again: what, SECONDS, requests at once, tokens each, seconds between two more. "copy" drafts
# well. An answer to "digits" is dice: what stood behind the same three digits before is drafted, and is wrong.
ASK = """
import json, random, sys, threading, time, urllib.request
home, what, seconds, most, tokens, every = *sys.argv[1:3], *map(float, sys.argv[3:])
key = open(f"{home}/secrets/api_key").read().strip()
if what == "copy":
    text = "The river ran under the old bridge, past the mill and the meadow. " * 6
    text, more = f"Copy this text exactly: {text}", {"temperature": 0}
else:
    text = "".join(random.choices("0123456789", k=600))
    more = {"temperature": 5, "top_k": 10, "top_p": 1, "min_p": 0, "logit_bias": [[str(n), 100] for n in range(10)]}
body = {"model": "smollm2-135m", "max_tokens": int(tokens), "messages": [{"role": "user", "content": text}], **more}
end = time.monotonic() + seconds
def again():
    while time.monotonic() < end:
        request = urllib.request.Request("http://127.0.0.1:8000/v1/chat/completions", json.dumps(body).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=300).read()
        except OSError:
            time.sleep(0.2)
for _ in range(int(most)):
    threading.Thread(target=again, daemon=True).start()
    time.sleep(every)
time.sleep(max(0, end - time.monotonic()))
"""
MEMORY = """
def used():
    lines = dict(line.split(":") for line in open("/proc/meminfo"))
    free, total = (int(lines[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
    return 1 - free / total
"""
# Takes memory until more than a part of all is taken, and keeps it until its standard input ends.
TAKE = f"""{MEMORY}
import sys
kept = []
while used() < float(sys.argv[1]):
    kept.append(bytearray(64 << 20))
    kept[-1][::4096] = b"x" * len(kept[-1][::4096])
print("taken", flush=True)
sys.stdin.read()
"""


@dataclass
class Box:
    """A host on which site.yml has served, with the monitoring asked for."""

    host: Host
    home: str
    play: Callable[..., Ended]
    done: Ended
    memory_limit: float  # of the machine: above it something is told

    @property
    def is_workstation(self) -> bool:
        return self.host.kind.systemd

    def get(self, path: str, **query: str) -> Any:
        url = f"{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(self.host.exec("python3", "-c", GET, url).stdout)["data"]

    def series(self, expr: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def firing(self) -> dict[str, Mapping[str, Any]]:
        """The annotations of what fires, by its name."""
        found = self.get("alerts")["alerts"]
        return {a["labels"]["alertname"]: a["annotations"] for a in found if a["state"] == "firing"}

    def pids(self, pattern: str) -> list[str]:
        # Not in a shell, whose own words have the pattern in them.
        return self.host.exec("pgrep", "-f", pattern, check=False).stdout.split()

    @contextlib.contextmanager
    def traffic(self, what: str = "copy", most: int = 1, tokens: int = 48, every: float = 0.0) -> Iterator[None]:
        """Ask the engine while the block runs."""
        # It ends by itself after ten minutes, should nobody end it.
        words = ["python3", "-u", "-c", ASK, self.home, what, "600", str(most), str(tokens), str(every)]
        command = ["docker", "exec", self.host.container.name, *words]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            # Its clients go with it, and so does what they had asked for.
            self.host.exec("pkill", "-9", "-f", "Copy this text", check=False)
            process.wait(120)

    @contextlib.contextmanager
    def memory_above(self, part: float) -> Iterator[None]:
        """Take so much of the machine's memory that more than a part of all is taken, while the block runs."""
        words = ["python3", "-u", "-c", TAKE, str(part + 0.02)]
        command = ["docker", "exec", "-i", self.host.container.name, *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin and process.stdout
            assert process.stdout.readline().strip() == "taken"
            try:
                yield
            finally:
                process.stdin.close()

    @contextlib.contextmanager
    def stopped(self, pattern: str) -> Iterator[None]:
        """Have processes stand still while the block runs."""
        pids = self.pids(pattern)
        assert pids
        self.host.exec("kill", "-STOP", *pids)
        try:
            yield
        finally:
            self.host.exec("kill", "-CONT", *pids, check=False)

    def fires(self, name: str, seconds: float = SOON_S) -> Mapping[str, Any]:
        told: Mapping[str, Any] = awaited(lambda: self.firing().get(name), seconds, f"alert {name}")
        assert told["summary"] and told["description"] and "<no value>" not in str(told)
        return told

    def ends(self, name: str, seconds: float = SOON_S) -> None:
        awaited(lambda: name not in self.firing(), seconds, f"end of the alert {name}")


# Every day the one whose alerts are the most; what a supervisor does otherwise is in `tests/health/test_monitoring.py`.
@pytest.fixture(scope="module", params=["workstation-docker", pytest.param("rental", marks=pytest.mark.soak)])
def box(request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    setting = SETTINGS[request.param]
    host = lab.start(request.param)
    overrides: dict[str, Any] = {**SHORTEST}
    # A tenth above what is taken now: of the whole machine, whose memory a test can make full without harm.
    taken = float(host.exec("python3", "-c", f"{MEMORY}\nprint(used())").stdout)
    limits = {"memory": round(taken + 0.1, 3)}
    given: dict[str, Any] = {
        "profile": PROFILE, "serve_arm": "speculative", "report_folder": str(tmp_path_factory.mktemp("reports")),
        "monitoring_pace": PACE, "monitoring_limits": limits, "overrides": overrides,
        # No registry is in reach of the host: Grafana's image cannot be had.
        "drafthouse_monitoring": {"enabled": True, "grafana": False},
    }  # fmt: skip
    if host.kind.engine:
        given["drafthouse_engine_image"] = lab.load_engine(host)
        overrides["runtimes"] = ["docker"]
    else:
        given |= {"drafthouse_gateway": True, "gateway_certificate_days": 3}
    inventory = lab.inventory([host], like=setting.like, group_vars=setting.site)

    def play(playbook: str, *words: str, **more: Any) -> Ended:
        return lab.play(playbook, inventory, *words, **{**given, **more})

    done = play("site.yml")
    assert done.status == 0, done.output[-3000:]
    yield Box(host, setting.home, play, done, limits["memory"])
    host.remove()


def needs_gateway(box: Box) -> None:
    if box.is_workstation:
        pytest.skip("no image of Caddy for the host's own container engine: the gateway is tried on the rental")


def test_the_run_says_where_it_is_looked_at(box: Box) -> None:
    assert f"{PROMETHEUS}/api/v1/alerts" in box.done.output


def test_it_reads_the_real_engine_and_what_is_beside_it(box: Box) -> None:
    up = {one["metric"]["job"]: one["value"][1] for one in box.series("up")}
    wanted = {"engine", "health", *(["node"] if box.is_workstation else ["gateway"])}
    assert up == dict.fromkeys(wanted, "1")
    assert box.series('llamacpp:tokens_predicted_total{job="engine"}')


def test_every_rule_and_every_query_of_the_dashboard_has_data(box: Box, figure: Callable[[str], None]) -> None:
    rules = [rule for group in box.get("rules")["groups"] for rule in group["rules"]]
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    board = json.loads(box.host.exec("cat", f"{box.home}/monitoring/grafana/boards/drafthouse.json").stdout)
    asked = {target["expr"] for panel in board["panels"] for target in panel.get("targets", [])}
    assert asked <= recorded
    with box.traffic():
        awaited(lambda: box.series("drafthouse:acceptance_at_position:ratio"), SOON_S, "acceptance")
        empty = awaited(lambda: not [name for name in recorded if not box.series(name)], SOON_S, "data of every rule")
        assert empty
        rate = float(box.series("drafthouse:acceptance_rate:ratio")[0]["value"][1])
        length = float(box.series("drafthouse:acceptance_length:mean")[0]["value"][1])
        # A text that is copied drafts well.
        assert 0 < rate <= 1
        assert length > 1
    figure(f"monitoring, {len(recorded)} series recorded; acceptance {rate:.2f}, mean length {length:.2f}")


def listening(box: Box) -> dict[int, str]:
    """Return at which address each of the monitoring's ports is listened."""
    lines = [line.split() for line in box.host.exec("python3", "-c", LISTEN).stdout.splitlines()]
    return {int(port): address for address, port in lines if PORT <= int(port) < PORT + 5}


def test_nothing_listens_beyond_loopback(box: Box) -> None:
    ours = listening(box)
    assert ours.pop(PORT) == "127.0.0.1"
    assert ours
    assert set(ours.values()) == {"127.0.0.1"}


def test_the_packages_own_units_never_start(box: Box) -> None:
    listened = {int(line.split()[1]) for line in box.host.exec("python3", "-c", LISTEN).stdout.splitlines()}
    assert not {9090, 9100, 9115} & listened
    for package in (
        "prometheus",
        "prometheus-blackbox-exporter",
        *(["prometheus-node-exporter"] if box.is_workstation else []),
    ):
        unit = f"/etc/systemd/system/{package}.service"
        assert box.host.exec("readlink", unit).stdout.strip() == "/dev/null"
        assert box.host.exec("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package).stdout.strip() == "ii"


@pytest.mark.soak
def test_it_listens_elsewhere_only_behind_our_firewall(box: Box, lab: Lab) -> None:
    if not box.is_workstation:
        pytest.skip("a rental has no firewall of ours: it is refused there (tests/unit/addons/test_monitoring.py)")
    allowed, other = lab.start("peer"), lab.start("peer")
    try:
        elsewhere = {"enabled": True, "grafana": False, "listen": "0.0.0.0"}
        # This playbook alone, as a person would who has changed their mind.
        done = box.play(
            "site.yml --tags monitoring", drafthouse_monitoring=elsewhere, drafthouse_allow_cidrs=[f"{allowed.ip4}/32"]
        )
        assert done.status == 0, done.output[-3000:]
        knock = ("python3", "-c", KNOCK, box.host.ip4, str(PORT))
        assert allowed.exec(*knock, check=False).returncode == 0
        assert other.exec(*knock, check=False).returncode != 0
    finally:
        allowed.remove()
        other.remove()
    done = box.play("site.yml --tags monitoring")
    assert done.status == 0, done.output[-3000:]
    assert set(listening(box).values()) == {"127.0.0.1"}


def test_the_key_is_nowhere_but_in_its_file(box: Box) -> None:
    key_file = f"{box.home}/secrets/api_key"
    places = f"{box.home} /etc /var/log /var/lib /run/systemd/system"
    # The supervisor's copy of a weight would take long to search, and holds no key.
    found = box.host.exec(
        "sh", "-c", f"grep -raslF --exclude-dir=docker --exclude-dir=models -f {key_file} {places} || true", timeout=180
    )
    assert found.stdout.split() == [key_file]
    look = f"grep -aslF -f {key_file} $(pgrep -f prometheus | sed 's|.*|/proc/&/cmdline /proc/&/environ|') || true"
    assert box.host.exec("sh", "-c", look).stdout.split() == []


def test_its_programs_have_no_rights_on_a_workstation(box: Box) -> None:
    if not box.is_workstation:
        pytest.skip("a rental has no systemd: its programs run as the user who connects")
    for name in ("prometheus", "blackbox", "node"):
        unit = f"drafthouse-monitoring-{name}"
        pid = box.host.exec("systemctl", "show", "--value", "-p", "MainPID", unit).stdout.strip()
        status = box.host.exec("cat", f"/proc/{pid}/status").stdout
        lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert lines["Uid"].split()[0] != "0"
        assert int(lines["CapEff"], 16) == 0


@pytest.mark.soak
def test_a_second_run_changes_nothing(box: Box) -> None:
    before = box.pids("config.file=.*prometheus.yml")
    again = box.play("site.yml --tags monitoring")
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
    assert box.pids("config.file=.*prometheus.yml") == before


def test_an_engine_that_stands_still(box: Box) -> None:
    with box.stopped(ENGINE):
        told = box.fires("EngineDown")
        assert PROFILE in told["summary"]
    box.ends("EngineDown")


def test_an_exporter_that_ended(box: Box) -> None:
    with box.stopped("blackbox-exporter" if not box.is_workstation else "node-exporter"):
        told = box.fires("TargetUnreadable")
        assert "nothing can be read from" in told["summary"]
    box.ends("TargetUnreadable")


def back(box: Box, before: list[str]) -> bool:
    """Tell whether another engine is there, and has answered for longer than what a supervisor calls a start."""
    well = 'min_over_time(probe_success{job="health"}[8s]) == 1'
    return box.pids(ENGINE) not in ([], before) and bool(box.series(well))


@pytest.mark.soak
def test_an_engine_that_begins_anew_again_and_again(box: Box) -> None:
    with box.traffic():
        for _ in range(3):
            before = box.pids(ENGINE)
            box.host.exec("kill", "-9", *before)
            awaited(partial(back, box, before), SOON_S, "engine that is back")
        box.fires("EngineRestarts")
    # It is forgotten after six times the hold.
    box.ends("EngineRestarts", LONG_S)


@pytest.mark.soak
def test_a_queue_that_grows(box: Box) -> None:
    # One request is worked at; every second another one comes and stays.
    with box.traffic(most=120, tokens=512, every=1.0):
        box.fires("QueueGrowing")
    box.ends("QueueGrowing")


@pytest.mark.soak
def test_drafts_of_which_hardly_any_is_accepted(box: Box, figure: Callable[[str], None]) -> None:
    with box.traffic("digits", tokens=24):
        told = box.fires("AcceptanceLow")
    figure(f"monitoring, a text of dice: {told['summary']}")
    with box.traffic("copy"):
        box.ends("AcceptanceLow")


def test_a_machine_whose_memory_becomes_full(box: Box) -> None:
    if not box.is_workstation:
        pytest.skip("a rental's memory is that of a machine which others use too: nothing is told of it")
    with box.memory_above(box.memory_limit):
        box.fires("MemoryNearFull")
    box.ends("MemoryNearFull")


def test_a_gateway_that_stands_still(box: Box) -> None:
    needs_gateway(box)
    with box.stopped("caddy run"):
        box.fires("GatewayDown")
    box.ends("GatewayDown")


def test_a_certificate_near_its_end_and_what_to_do_about_it(box: Box) -> None:
    needs_gateway(box)
    told = box.fires("CertificateEnds")
    assert "remove gateway/tls on the box, then ansible-playbook site.yml --tags gateway" in told["description"]
    box.host.exec("rm", "-r", f"{box.home}/gateway/tls")
    done = box.play("site.yml --tags gateway", gateway_certificate_days=3650)
    assert done.status == 0, done.output[-3000:]
    box.ends("CertificateEnds")


@pytest.mark.soak
def test_another_key_is_taken_up(box: Box) -> None:
    key = box.host.exec("cat", f"{box.home}/secrets/api_key").stdout.strip()
    try:
        box.host.put(f"{box.home}/secrets/api_key", "another-key\n", "0600")
        # The engine still has the old one: what is asked with the new one is refused.
        done = box.play("site.yml --tags monitoring", monitoring_ready_timeout_s=10)
        assert done.status == 2
        assert any("nothing can be read from the engine" in line and "401" in line for line in done.lines("found"))
        assert "another-key" not in done.output
    finally:
        box.host.put(f"{box.home}/secrets/api_key", f"{key}\n", "0600")
    done = box.play("site.yml --tags monitoring")
    assert done.status == 0, done.output[-3000:]


@pytest.mark.soak
def test_a_killed_one_comes_back_and_knows_what_was(box: Box) -> None:
    before = box.pids("config.file=.*prometheus.yml")
    box.host.exec("kill", "-9", *before)

    def older() -> bool:
        with contextlib.suppress(Exception):  # nobody answers yet
            return float(box.series('count_over_time(up{job="engine"}[10m])')[0]["value"][1]) > 60
        return False

    awaited(older, SOON_S, "series from before")
    assert box.pids("config.file=.*prometheus.yml") != before


@pytest.mark.soak
def test_it_comes_back_with_a_workstation(box: Box) -> None:
    if not box.is_workstation:
        pytest.skip("a rental has no systemd: what ran comes back with the next run")
    box.host.restart()
    up = 'up{job="engine"} == 1 and on () drafthouse:engine_up:bool == 1'

    def back() -> bool:
        with contextlib.suppress(Exception):
            return bool(box.series(up))
        return False

    awaited(back, LONG_S, "engine that is read after the restart")


@pytest.mark.soak
def test_check_mode_changes_nothing(box: Box) -> None:
    done = box.play("site.yml --tags monitoring", "--check", "--diff")
    assert (done.status, done.changed) == (0, 0), done.output[-3000:]


@pytest.mark.soak
def test_stopped_it_keeps_what_was_recorded_and_absent_leaves_nothing(box: Box) -> None:
    data = "/var/lib/private/drafthouse-monitoring" if box.is_workstation else f"{box.home}/monitoring/data"
    done = box.play("playbooks/stop.yml")
    assert done.status == 0, done.output[-3000:]
    assert box.pids("prometheus") == []
    box.host.exec("test", "-d", f"{data}/wal")
    done = box.play("site.yml --tags monitoring", drafthouse_monitoring={"enabled": False})
    assert done.status == 0, done.output[-3000:]
    for path in (
        data,
        f"{box.home}/monitoring",
        "/etc/systemd/system/drafthouse-monitoring-prometheus.service",
        "/var/lib/drafthouse-monitoring",
    ):
        assert box.host.exec("test", "-e", path, check=False).returncode == 1, path
    again = box.play("site.yml --tags monitoring", drafthouse_monitoring={"enabled": False})
    assert (again.status, again.changed) == (0, 0), again.output[-3000:]
