"""site.yml on a bare workstation: it becomes a GPU server without a GPU, served by the real engine in a container."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT, resolved_profile, site_from
from tests.hosts.hosts import Ended, Host, Lab
from tests.support.catalogue import table
from tests.support.tales import TALES
from tests.support.verdicts import consistent
from tests.support.waiting import until

PROFILE = "cpu-smollm2-ngram"
# The demo's own weights, which are made on the box. One thread: engines of other tests are beside it.
OVERRIDES: dict[str, Any] = {"runtimes": ["docker"], "serve": {"threads": 1}, "experiment": TALES}
HOME, MODELS, PORT = "/opt/drafthouse", "/models/original", 8000
SERVED = "drafthouse-speculative"
BACK_S, HEALTHY_S, REFUSED_S, ANSWER_S = 480, 480, 5, 480
# Of this machine's processors: how long it takes hangs on what else runs beside it. 15 where nothing does, half as
# much again on cores that the lane's other tests share; a slower machine's own measure is its first run.
CONVERGED_CPU_S = 30
# What lies on a box: packages, files with their hashes, rules, units. Not what any login or any minute changes, and
# not the name server that Docker gives to the container which the box is.
LOOK = r"""
echo '# packages'; dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
echo '# holds'; apt-mark showhold
echo '# files'
lie() {
  find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /root/.ansible \
    -o -path /var/log -o -path /var/lib/docker -o -path /var/lib/containerd -o -path /var/lib/systemd \
    -o -path /var/lib/apt/lists \
    -o -path /var/tmp -o -name __pycache__ -o -name "*.lock" -o -path "*/run/lease.json" \) -prune -o "$@"
}
lie -type l -printf '%p -> %l\n' -o -type f -printf '%m %u %p\n' -o -type d -printf '%m %u %p/\n' | sort
lie -type f -print0 | sort -z | xargs -0 md5sum
echo '# rules'
for tool in iptables ip6tables; do $tool-save | sed 's/ *\[[0-9:]*\]$//; /^#/d'; done
echo '# units'; systemctl list-unit-files --no-legend --no-pager | awk '{print $1, $2}'
echo '# listeners'; ss -Htln | awk '{print $4}' | grep -v '^127[.]0[.]0[.]11:' | sort
"""
ASK = {"model": "smollm2-135m", "max_tokens": 8, "messages": [{"role": "user", "content": "Say yes."}]}

Play = Callable[..., Ended]


@pytest.fixture(scope="module")
def box(workstation: Host) -> Host:
    """A freshly installed machine."""
    return workstation


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> Iterator[Host]:
    host = lab.start("peer")
    yield host
    host.remove()


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def variables(image: str, peer: Host) -> dict[str, Any]:
    """What the operator of this machine writes into the inventory."""
    return {
        "profile": PROFILE,
        "drafthouse_allow_cidrs": [f"{peer.ip4}/32", f"{peer.ip6}/128"],
        "drafthouse_engine_image": image,
        "container_engine_source": "distribution",
        "container_engine_settings": {"insecure-registries": [image.partition("/")[0]]},
    }


@pytest.fixture(scope="module")
def site(lab: Lab, box: Host, variables: dict[str, Any], reports: Path) -> Play:
    """Run a playbook with the workstation's inventory."""
    inventory = lab.inventory([box], group_vars=variables, like="workstation")

    def start(playbook: str, *words: str, timeout: float = 2700, **more: Any) -> Ended:
        # Which arm is the better one depends on what else this machine does.
        given = {"overrides": OVERRIDES, "report_folder": str(reports), "serve_arm": "speculative", **more}
        return lab.play(playbook, inventory, *words, timeout=timeout, **given)

    return start


def state(box: Host) -> list[str]:
    """What lies on the box, line by line."""
    return box.run("bash", "-s", stdin=LOOK, timeout=900).stdout.splitlines()


def different(before: list[str], after: list[str]) -> list[str]:
    """The lines that only one of the two has."""
    one, other = set(before), set(after)
    return [f"- {line}" for line in before if line not in other] + [f"+ {line}" for line in after if line not in one]


@pytest.fixture(scope="module")
def bare(box: Host) -> list[str]:
    return state(box)


@pytest.fixture(scope="module")
def checked(bare: list[str], site: Play) -> Ended:
    """What would be done, before anything is."""
    return site("site.yml", "--check", "--diff")


@pytest.fixture(scope="module")
def untouched(checked: Ended, box: Host) -> list[str]:
    return state(box)


@pytest.fixture(scope="module")
def measured(untouched: list[str], site: Play, figure: Callable[[str], None]) -> Ended:
    """From a bare machine to a report."""
    ended = site("site.yml", timeout=5400)
    figure(f"workstation, bare: {ended.seconds:.0f} s, {ended.tasks} tasks, {ended.cpu_seconds:.1f} CPU s here")
    return ended


@pytest.fixture
def serving(measured: Ended, box: Host, site: Play) -> Ended:
    """The same as left serving, also where an earlier test has stopped it."""
    assert measured.status == 0, measured.output[-3000:]
    if not box.run("sh", "-c", "docker ps -q --filter label=drafthouse.arm", check=False).stdout:
        assert site("site.yml").status == 0
    return measured


def api_key(box: Host) -> str:
    return box.run("cat", f"{HOME}/secrets/api_key").stdout.strip()


def asked(peer: Host, address: str, key: str, limit_s: float = ANSWER_S) -> tuple[int, dict[str, Any], float]:
    """Ask the server for a few words from another machine: curl's exit status, the answer, and the seconds."""
    url = f"http://{address}:{PORT}/v1/chat/completions"
    words = ["curl", "-sS", "-g", "--fail", "--max-time", f"{limit_s:.0f}", "-K", "-", "-w", "\n%{time_total}", url]
    # The key comes over standard input, as it should for a person too.
    settings = f'header = "Authorization: Bearer {key}"\nheader = "Content-Type: application/json"\n'
    settings += f"data = {json.dumps(json.dumps(ASK))}\n"
    done = peer.run(*words, check=False, timeout=limit_s + 30, stdin=settings)
    body, _, seconds = done.stdout.rpartition("\n")
    return done.returncode, json.loads(body) if done.returncode == 0 else {}, float(seconds or 0)


def answers(peer: Host, address: str, key: str) -> bool:
    return asked(peer, address, key, 120)[0] == 0


def addresses(box: Host) -> dict[str, str]:
    return {"IPv4": box.ip4, "IPv6": f"[{box.ip6}]"}


def inspected(box: Host, name: str = SERVED) -> dict[str, Any]:
    data: list[dict[str, Any]] = json.loads(box.run("docker", "inspect", name).stdout)
    return data[0]


def running(box: Host) -> list[str]:
    """The names of our containers that run."""
    words = ["docker", "ps", "--filter", "label=drafthouse.arm", "--format", "{{.Names}}"]
    return box.run(*words).stdout.split()


def test_check_mode_on_a_bare_machine_says_what_it_would_do(checked: Ended, figure: Callable[[str], None]) -> None:
    assert checked.status == 0, checked.output[-3000:]
    assert checked.changed >= 5
    # The differences, not only the words.
    for shown in ('+  "log-opts": {', "+++ after: firewall rules, IPv6", "+++ after: /etc/systemd/system/drafthouse-"):
        assert shown in checked.output
    figure(f"workstation, --check --diff on a bare one: {checked.seconds:.0f} s, {checked.tasks} tasks")


def test_check_mode_on_a_bare_machine_changes_nothing(bare: list[str], untouched: list[str]) -> None:
    assert different(bare, untouched) == []


def test_the_whole_way_ends_with_a_verdict(measured: Ended, reports: Path, box: Host) -> None:
    assert measured.status == 0, measured.output[-3000:]
    (folder,) = (reports / PROFILE).iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "baseline.json", "speculative.json", "report.json", "report.md", "report.html",
    }  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    # Whether it pays depends on what else this machine does; that it was measured does not.
    assert consistent(report)
    speculative = json.loads((folder / "speculative.json").read_text())
    baseline = json.loads((folder / "baseline.json").read_text())
    assert speculative["spec_decode_accepted_tokens"] > 0
    assert baseline["spec_decode_draft_tokens"] == 0
    assert baseline["failed"] == speculative["failed"] == 0


def test_allowed_ones_are_served_over_both_families(
    serving: Ended, box: Host, peer: Host, figure: Callable[[str], None]
) -> None:
    key = api_key(box)
    for family, address in addresses(box).items():
        status, answer, seconds = asked(peer, address, key)
        assert status == 0, family
        tokens = answer["usage"]["completion_tokens"]
        assert tokens > 0
        figure(f"workstation, asked from an allowed host over {family}: {tokens} tokens in {seconds:.2f} s")


def test_allowed_ones_need_the_key(serving: Ended, box: Host, peer: Host) -> None:
    for address in addresses(box).values():
        assert asked(peer, address, "wrong")[0] == 22  # curl: an HTTP error


def test_others_get_no_answer(serving: Ended, box: Host, stranger: Host) -> None:
    key = api_key(box)
    for address in addresses(box).values():
        assert asked(stranger, address, key, REFUSED_S)[0] == 28  # curl: no connection in time


def test_a_second_run_changes_nothing(
    serving: Ended, box: Host, site: Play, reports: Path, figure: Callable[[str], None]
) -> None:
    before = state(box), sorted(reports.rglob("*")), inspected(box)["State"]["StartedAt"]
    again = site("site.yml")
    figure(f"workstation, converged: {again.seconds:.1f} s, {again.tasks} tasks, {again.cpu_seconds:.1f} CPU s here")
    assert again.status == 0, again.output[-3000:]
    assert again.changed == 0
    after = state(box), sorted(reports.rglob("*")), inspected(box)["State"]["StartedAt"]
    assert different(before[0], after[0]) == []
    assert before[1:] == after[1:]
    assert again.cpu_seconds < max(CONVERGED_CPU_S, serving.cpu_seconds)


def test_check_mode_after_a_run_changes_nothing(serving: Ended, site: Play) -> None:
    checked = site("site.yml", "--check", "--diff")
    assert checked.status == 0, checked.output[-3000:]
    assert checked.changed == 0


def test_the_key_is_nowhere_but_in_its_file(serving: Ended, box: Host, reports: Path) -> None:
    key_file = f"{HOME}/secrets/api_key"
    key = api_key(box)
    assert len(key) == 40
    assert box.run("stat", "-c", "%a %U", key_file).stdout.split() == ["600", "root"]
    # The pattern comes from the file itself: a search must not put the key where it looks.
    look = f"grep -raslF -f {key_file} {HOME} /etc /var/log /var/lib/docker/containers /root /home /srv /tmp || true"
    assert box.run("sh", "-c", look, timeout=120).stdout.split() == [key_file]
    look = f"grep -aslF -f {key_file} /proc/[0-9]*/cmdline /proc/[0-9]*/environ || true"
    assert box.run("sh", "-c", look).stdout.split() == []
    look = (
        f"(docker inspect {SERVED}; docker logs {SERVED} 2>&1; journalctl --no-pager) | grep -acF -f {key_file} || true"
    )
    assert box.run("sh", "-c", look).stdout.split() == ["0"]
    assert key not in serving.output
    assert not any(key.encode() in path.read_bytes() for path in reports.rglob("*") if path.is_file())


def test_what_runs_is_what_render_shows(serving: Ended, box: Host, variables: dict[str, Any]) -> None:
    inventory = yaml.safe_load((ROOT / "inventory/workstation/group_vars/all.yml").read_text())
    resolved = resolved_profile(PROFILE, site_from({**inventory, **variables}), OVERRIDES)
    for arm, data in resolved["arms"].items():
        for file in data["files"]:
            assert box.run("cat", f"{HOME}/serve/{PROFILE}/{arm}/{file['path']}").stdout == file["content"]


def test_an_outsider_finds_what_each_role_left(serving: Ended, box: Host, lab: Lab) -> None:
    where = f"--hosts=paramiko://{box.user}@{box.ip4}:{box.port}"
    ways = [f"--ssh-config={lab.ssh_config}", f"--ssh-identity-file={lab.key}"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/outside", where, *ways]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_the_container_is_limited_and_comes_back(serving: Ended, box: Host, image: str) -> None:
    settings = inspected(box)
    limits = settings["HostConfig"]
    assert settings["Config"]["Image"] == image
    assert limits["RestartPolicy"]["Name"] == "unless-stopped"
    assert limits["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "20m", "max-file": "3"}}
    assert not limits["Privileged"]
    mounts = {mount["Source"]: mount["RW"] for mount in settings["Mounts"]}
    (cache,) = [source for source in mounts if source.startswith(f"{HOME}/cache/")]
    assert mounts.pop(cache)
    assert mounts == {
        f"{HOME}/serve/{PROFILE}/speculative": False, MODELS: False, f"{HOME}/secrets/api_key": False,
    }  # fmt: skip
    assert {entry["HostIp"] for entry in limits["PortBindings"][f"{PORT}/tcp"]} == {"0.0.0.0", "::"}


def test_the_health_check_sees_the_engine(serving: Ended, box: Host, figure: Callable[[str], None]) -> None:
    seconds = until(lambda: inspected(box)["State"]["Health"]["Status"] == "healthy", "healthy one", HEALTHY_S, 0.5)
    figure(f"workstation, container healthy after another {seconds:.0f} s")


def test_the_engine_is_back_by_itself(serving: Ended, box: Host, peer: Host, figure: Callable[[str], None]) -> None:
    before = inspected(box)
    key = api_key(box)
    box.run("kill", "-9", str(before["State"]["Pid"]))
    seconds = until(partial(answers, peer, box.ip4, key), "engine that is back", BACK_S, 0.5)
    after = inspected(box)
    assert after["Id"] == before["Id"]
    assert after["RestartCount"] == before["RestartCount"] + 1
    assert after["State"]["Pid"] != before["State"]["Pid"]
    figure(f"workstation, answers {seconds:.0f} s after kill -9 of the engine")


def test_the_machine_is_back_behind_its_firewall(
    serving: Ended, box: Host, peer: Host, stranger: Host, figure: Callable[[str], None]
) -> None:
    key = api_key(box)
    up = box.restart()
    began = time.monotonic()
    for address in addresses(box).values():
        until(partial(answers, peer, address, key), "engine that is back", BACK_S, 0.5)
    figure(f"workstation, answers {time.monotonic() - began:.0f} s after it is up again, which took {up:.0f} s")
    for address in addresses(box).values():
        assert asked(stranger, address, key, REFUSED_S)[0] == 28


@pytest.fixture
def generous(serving: Ended, variables: dict[str, Any]) -> Any:
    """The served profile with what the catalogue asks for other engines' containers, but for the GPU."""
    inventory = yaml.safe_load((ROOT / "inventory/workstation/group_vars/all.yml").read_text())
    wanted = {**table("engines")["trtllm"]["container"], **table("engines")["vllm"]["container"]}
    resolved: Any = resolved_profile(PROFILE, site_from({**inventory, **variables}), OVERRIDES)
    container = resolved["arms"]["speculative"]["container"]
    # A box in a container may not raise its own limits, only lower them.
    container["ipc"], container["ulimits"] = wanted["ipc"], {**wanted["ulimits"], "memlock": 65536}
    container["cache"] = f"{HOME}/cache/vllm"
    container["mounts"].append(f"{HOME}/cache/vllm:{wanted['cache']}:rw")
    return resolved


@pytest.mark.soak
def test_what_other_engines_ask_of_a_container_is_given(
    generous: dict[str, Any], box: Host, lab: Lab, site: Play, tmp_path: Path
) -> None:
    playbook = tmp_path / "serve.yml"
    role = {"ansible.builtin.include_role": {"name": "serve"}, "name": "Serve"}
    playbook.write_text(yaml.safe_dump([{"name": "Serve", "hosts": "all", "gather_facts": False, "tasks": [role]}]))
    words = {"serve_resolved": generous, "serve_arms": {"speculative": PORT}}
    done = site(str(playbook), **words)
    assert done.status == 0, done.output[-3000:]
    wanted = generous["arms"]["speculative"]["container"]
    settings = inspected(box)
    limits = settings["HostConfig"]
    assert limits["IpcMode"] == wanted["ipc"] == "host"
    assert {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in limits["Ulimits"]} == {
        name: (value, value) for name, value in wanted["ulimits"].items()
    }
    assert {mount["Source"]: mount["RW"] for mount in settings["Mounts"]}[wanted["cache"]] is True
    assert site(str(playbook), **words).changed == 0
    # Back to what the profile says.
    assert site("site.yml").changed > 0
    assert not inspected(box)["HostConfig"]["Ulimits"]


def test_stop_and_stop_again(serving: Ended, box: Host, site: Play) -> None:
    assert running(box) == [SERVED]
    stopped = site("playbooks/stop.yml")
    assert (stopped.status, stopped.changed) == (0, 1), stopped.output[-3000:]
    assert running(box) == []
    assert site("playbooks/stop.yml").changed == 0


def test_teardown_leaves_what_is_not_ours(
    serving: Ended, box: Host, site: Play, image: str, bare: list[str], figure: Callable[[str], None]
) -> None:
    words = ["docker", "run", "-d", "--name", "mine", "--entrypoint", "sleep", image, "infinity"]
    box.run(*words)
    box.put(f"{MODELS}/mine/weights.bin", "mine")
    box.run("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP")
    ended = site("playbooks/teardown.yml")
    assert ended.status == 0, ended.output[-3000:]
    figure(f"workstation, teardown: {ended.seconds:.0f} s")
    for what in ("-e images=true", "-e container_engine=true", "-e weights=true"):
        assert f"{what} removes it" in ended.output
    left = different(bare, state(box))
    # Nothing is gone; packages that stay have changed files of the distribution's, such as /etc/group.
    assert [line for line in left if line.startswith("- ") and not re.match("- [0-9a-f]{32} ", line)] == []
    # Docker stays, and with it what we told it and apt about it; so do the weights, unless they are named.
    kept = ("/etc/docker/", "drafthouse-container-engine", MODELS)
    assert [line for line in left if "drafthouse" in line.lower() and not any(word in line for word in kept)] == []
    assert "+ -A INPUT -p tcp -m tcp --dport 9 -j DROP" in left
    assert box.run("docker", "ps", "-a", "--format", "{{.Names}}").stdout.split() == ["mine"]
    assert any(f"{MODELS}/smollm2-135m/" in line for line in left)  # weights only on request
    # Converges from whatever it finds.
    assert (site("playbooks/teardown.yml").status, site("playbooks/teardown.yml").changed) == (0, 0)


def test_teardown_of_the_weights_on_request(measured: Ended, box: Host, site: Play) -> None:
    box.put(f"{MODELS}/mine/weights.bin", "mine")
    assert site("playbooks/teardown.yml", weights=True).status == 0
    assert box.run("find", MODELS, "-type", "f").stdout.split() == [f"{MODELS}/mine/weights.bin"]


def test_teardown_of_the_container_engine_by_name(measured: Ended, box: Host, site: Play, image: str) -> None:
    box.run("docker", "rm", "-f", "mine", check=False)
    box.run("docker", "run", "-d", "--name", "mine", "--entrypoint", "sleep", image, "infinity")
    refused = site("playbooks/teardown.yml", container_engine=True)
    assert refused.status != 0
    assert refused.lines("found") == ["found: containers that are not ours are running: mine"]
    assert box.run("docker", "ps", "--format", "{{.Names}}").stdout.split() == ["mine"]
    box.run("docker", "rm", "-f", "mine")
    assert site("playbooks/teardown.yml", container_engine=True).status == 0
    assert box.run("sh", "-c", "command -v dockerd docker", check=False).stdout == ""
    places = ("/etc/apt", "/etc/needrestart", "/etc/docker")
    left = box.run("find", *places, "-name", "*drafthouse*", check=False).stdout.split()
    assert left == []
    again = site("playbooks/teardown.yml", container_engine=True)
    assert (again.status, again.changed) == (0, 0), again.output
