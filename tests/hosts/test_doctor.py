"""The doctor on real hosts: each planted fault is found under its name, and nothing on a box that is well.

Two boxes: a workstation that serves the real engine in a container, with a firewall and two machines beside it; and
one whose GPU is made, as far as the doctor looks at it (nvidia-smi, procfs, packages, nvidia-ctk, a CDI specification).
What is planted is the fault itself wherever it can be: a stopped unit, a changed file, an emptied chain, a frozen
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts.hosts import Host, Lab
from tests.hosts.test_firewall import tiny_image
from tests.support.tales import SHORTEST
from tests.support.waiting import until

PROFILE, GPU_PROFILE = "cpu-smollm2-ngram", "rtx6000-qwen-eagle3"
OVERRIDES: dict[str, Any] = {"runtimes": ["docker"], **SHORTEST}
HOME, MODELS, PORT = "/opt/drafthouse", "/models/original", 8000
NAME, ARM = "drafthouse-speculative", "speculative"
# systemd refuses the fourth start within a minute.
RESTART = "systemctl reset-failed docker.service docker.socket; systemctl restart docker"
SERVE = f"{HOME}/serve/{PROFILE}/{ARM}/serve.sh"
KEY = f"{HOME}/secrets/api_key"
READY_S, ANSWER_S = 480, 900
ASK = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8000/health", timeout=60).status)
"""
# Moves every clock that is asked for the time of day; what waits is asked for another clock.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(which, now);
  if (which == CLOCK_REALTIME) now->tv_sec += 1000;
  return status;
}
"""


@dataclass(frozen=True)
class Fault:
    """What is done to the box, how it is undone, and what the doctor must say of it.

    ``also`` are checks that the same fault makes fail. ``knocks`` is who knocks from outside; ``served`` says that the
    server was away meanwhile, and must be waited for.
    """

    id: str
    plant: str
    heal: str
    check: str
    found: str
    also: tuple[str, ...] = ()
    status: str = "fail"
    knocks: str = ""
    parts: tuple[str, ...] = ()
    served: bool = False
    away: bool = False  # the server cannot be waited for before the doctor comes


def restarted(edit: str) -> str:
    return f"{edit} && docker restart {NAME}"


AS_SERVED = "as it was served"
RULES_BACK = "/usr/local/sbin/drafthouse-firewall apply"
SERVER, BOX, OUTSIDE = ("server",), ("box",), ("outside",)
FAULTS = [
    Fault("container stopped", f"docker stop {NAME}", f"docker start {NAME}", "served", "does not run", (AS_SERVED,),
          parts=SERVER, served=True, away=True),
    Fault("container paused", f"docker pause {NAME}", f"docker unpause {NAME}", "served", "paused", (AS_SERVED,),
          parts=SERVER, served=True, away=True),
    Fault("engine frozen", f"kill -STOP $(docker inspect -f '{{{{.State.Pid}}}}' {NAME})",
          f"kill -CONT $(docker inspect -f '{{{{.State.Pid}}}}' {NAME})", "engine answers", "timed out",
          parts=SERVER, served=True, away=True),
    Fault("no key asked for", restarted(f"sed -i.with-key '/--api-key-file/d' {SERVE}"),
          restarted(f"mv {SERVE}.with-key {SERVE}"), "key required", "without the key", (AS_SERVED, "open paths"),
          parts=SERVER, served=True),
    Fault("speculation off", restarted(f"sed -i.kept '/--spec-/d' {SERVE}"), restarted(f"mv {SERVE}.kept {SERVE}"),
          "speculation", "runs without", (AS_SERVED,), parts=SERVER, served=True),
    Fault("key readable by all", f"chmod 644 {KEY}", f"chmod 600 {KEY}", "API key", "mode 0644", parts=SERVER),
    Fault("key gone", f"mv {KEY} {KEY}.kept", f"mv {KEY}.kept {KEY}", "API key", "No such file", parts=SERVER),
    Fault("another key", f"cp -p {KEY} {KEY}.kept && echo another-key-0123456789-0123456789 >{KEY}",
          f"cat {KEY}.kept >{KEY} && rm {KEY}.kept", "engine answers", "401 with the key", parts=SERVER),
    Fault("weights changed", "touch $(ls -d @WEIGHTS@)", "touch -d @$(cat /root/mtime) @WEIGHTS@", "weights",
          "missing or changed since", parts=("weights",)),
    Fault("weights gone", "mv @WEIGHTS@ /root/weights", "mv /root/weights @WEIGHTS@", "weights", "nothing at",
          parts=("weights",)),
    Fault("our chain emptied", "iptables -F DRAFTHOUSE-INPUT", RULES_BACK, "firewall", "IPv4:", parts=BOX),
    Fault("a rule before ours", f"iptables -I INPUT 1 -p tcp --dport {PORT} -j ACCEPT",
          f"iptables -D INPUT -p tcp --dport {PORT} -j ACCEPT", "firewall", "not first", parts=BOX),
    Fault("IPv6 left open", "ip6tables -D INPUT -j DRAFTHOUSE-INPUT", RULES_BACK, "firewall", "IPv6:", parts=BOX),
    Fault("rules lost at the next boot", "systemctl disable drafthouse-firewall.service",
          "systemctl --no-reload enable drafthouse-firewall.service", "firewall", "not enabled", parts=BOX),
    Fault("open to a stranger",
          "iptables -I DRAFTHOUSE-INPUT 1 -j ACCEPT && iptables -I DRAFTHOUSE-DOCKER 1 -j RETURN", RULES_BACK,
          "ports from outside", "is open, not closed", knocks="stranger", parts=OUTSIDE),
    Fault("closed to the allowed", f"iptables -I DOCKER-USER 1 -p tcp -m conntrack --ctorigdstport {PORT} -j DROP",
          f"iptables -D DOCKER-USER -p tcp -m conntrack --ctorigdstport {PORT} -j DROP", "ports from outside",
          "is closed, not open", knocks="allowed", parts=OUTSIDE),
    Fault("port taken",
          f"docker stop {NAME} && (setsid python3 -m http.server {PORT} --bind 127.0.0.1 >/dev/null 2>&1 &)",
          f"pkill -f '[h]ttp.server {PORT}'; docker start {NAME}", "ports from inside", "http.server", parts=BOX,
          served=True, away=True),
    Fault("Docker stopped", "systemctl stop docker.socket docker.service",
          f"systemctl start docker; docker start {NAME}", "Docker", "does not answer", parts=("runtime",),
          served=True, away=True),
    Fault("image gone", "docker tag @IMAGE@ kept:1 && docker rmi -f @IMAGE@",
          "docker tag kept:1 @IMAGE@ && docker rmi kept:1", "image", "is not on the box", parts=("runtime",)),
    Fault("another image under the name",
          f"docker tag @IMAGE@ kept:1 && docker commit {NAME} other:1 && docker tag other:1 @IMAGE@",
          "docker tag kept:1 @IMAGE@ && docker rmi kept:1 other:1", "image", f"{NAME} runs", status="warn",
          parts=("runtime",)),
    Fault("logs without end",
          # Made alone: Docker refuses such a bound at the start, and gives its own where there is none.
          "docker create --name endless --label drafthouse.arm=other --log-driver json-file --log-opt max-size=-1"
          " --entrypoint sleep @IMAGE@ 600", "docker rm -f endless", "log rotation", "endless logs to json-file",
          parts=("runtime",)),
    Fault("disk full", f"mkdir -p {HOME}/logs && mount -t tmpfs -o size=16m tmpfs {HOME}/logs",
          f"umount {HOME}/logs && rmdir --ignore-fail-on-non-empty {HOME}/logs", "disk", f"0.0 GB free at {HOME}/logs",
          parts=BOX),
    Fault("clock wrong", "echo /opt/clock.so >/etc/ld.so.preload", "rm /etc/ld.so.preload", "clock",
          "ahead of this machine", parts=BOX),
]  # fmt: skip


@dataclass
class Doctor:
    """The doctor of a box: ``ask`` returns the exit status and the checks by name."""

    inventory: Path
    box: Host
    variables: dict[str, Any]
    profile: str

    def ask(self, *parts: str, knocks: str = "", **more: Any) -> tuple[int, dict[str, dict[str, str]]]:
        words = ["--inventory", str(self.inventory), "--profile", self.profile, "--json"]
        words += ["--from", knocks] if knocks else []
        given = {**self.variables, "doctor_parts": list(parts), "doctor_outside": bool(knocks), **more}
        command = [sys.executable, str(ROOT / "scripts/drafthouse"), "doctor", *words, "--", "--limit", self.box.name]
        done = subprocess.run(
            [*command, "-e", json.dumps(given)], cwd=ROOT, env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.stderr == "", done.stderr
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        return done.returncode, checks


def ills(checks: dict[str, dict[str, str]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] in ("warn", "fail")}


def named(checks: dict[str, dict[str, str]], name: str) -> dict[str, str]:
    """The check of that name, or the worst of several that begin with it (one for each of the weights)."""
    found = [checks[name]] if name in checks else [check for key, check in checks.items() if key.startswith(f"{name} ")]
    assert found, (name, list(checks))
    return max(found, key=lambda check: ["not here", "ok", "warn", "fail"].index(check["status"]))


# --- a workstation that serves ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hosts(lab: Lab) -> Iterator[dict[str, Host]]:
    made = {"box": lab.start("workstation-docker"), "allowed": lab.start("peer"), "stranger": lab.start("peer")}
    yield made
    for host in made.values():
        host.remove()


@pytest.fixture(scope="module")
def doctor(lab: Lab, hosts: dict[str, Host], image: str, tmp_path_factory: pytest.TempPathFactory) -> Doctor:
    """A box that site.yml has made, its speculative arm serving; the other two may knock."""
    box, allowed = hosts["box"], hosts["allowed"]
    variables = {
        "profile": PROFILE,
        "drafthouse_allow_cidrs": [f"{allowed.ip4}/32", f"{allowed.ip6}/128"],
        "drafthouse_engine_image": image,
        "container_engine_source": "distribution",
        "container_engine_settings": {"insecure-registries": [image.partition("/")[0]]},
    }
    given = {
        "overrides": OVERRIDES, "report_folder": str(tmp_path_factory.mktemp("reports")), "serve_arm": ARM,
    }  # fmt: skip
    ended = lab.play("site.yml", lab.inventory([box], variables, "workstation"), timeout=5400, **given)
    assert ended.status == 0, ended.output[-4000:]
    # A run ends with the doctor's own lines.
    assert re.search(rf"^{box.name}: \d+ ok(, \d+ skipped)?$", ended.output.split("PLAY RECAP")[1], re.MULTILINE)
    groups = {"boxes": [box], "peers": [hosts["allowed"], hosts["stranger"]]}
    return Doctor(lab.inventory(groups, variables, "workstation"), box, {"overrides": OVERRIDES}, PROFILE)


@pytest.fixture(scope="module")
def words(doctor: Doctor, image: str) -> dict[str, str]:
    """What stands for what in a fault's commands."""
    listed = doctor.box.run("sh", "-c", f"find {MODELS} -name '*.drafthouse.json'").stdout.split()
    weights = sorted(path.removesuffix(".drafthouse.json") for path in listed)[0]
    mtime = doctor.box.run("stat", "-c", "%.9Y", weights).stdout.strip()
    doctor.box.put("/root/mtime", mtime)
    return {"@WEIGHTS@": weights, "@IMAGE@": image}


def answers(box: Host) -> bool:
    return box.exec("python3", "-c", ASK, check=False).stdout.strip() == "200"


def told(command: str, words: Mapping[str, str]) -> str:
    for word, meant in words.items():
        command = command.replace(word, meant)
    return command


@contextlib.contextmanager
def planted(box: Host, fault: Fault, words: Mapping[str, str]) -> Iterator[None]:
    """The box with the fault, well again behind it."""
    box.exec("sh", "-c", told(fault.plant, words), timeout=120)
    try:
        if fault.served and not fault.away:
            until(lambda: answers(box), "server with the fault", READY_S, 0.5)
        yield
    finally:
        box.exec("sh", "-c", told(fault.heal, words), timeout=120)
        if fault.served:
            until(lambda: answers(box), "server behind the fault", ANSWER_S, 0.5)


def test_nothing_is_found_on_a_well_workstation(
    doctor: Doctor, hosts: dict[str, Host], figure: Callable[[str], None]
) -> None:
    began = time.monotonic()
    status, checks = doctor.ask(knocks=hosts["stranger"].name)
    seconds = time.monotonic() - began
    assert ills(checks) == set(), [checks[name] for name in ills(checks)]
    assert status == 0
    well = [name for name, check in checks.items() if check["status"] == "ok"]
    for name in (
        "Docker", "image", "log rotation", "disk", "clock", "firewall", "ports from inside", "served", "API key",
        "key required", "engine answers", "speculation", "ports from outside",
    ):  # fmt: skip
        assert name in well, checks[name]
    figure(f"doctor on a workstation: {len(well)} checks are well, {seconds:.1f} s")
    assert ills(doctor.ask("outside", knocks=hosts["allowed"].name)[1]) == set()


def test_it_only_reads(doctor: Doctor) -> None:
    look = (
        f"find {HOME} {MODELS} /etc -xdev -type f -not -name '*.pyc' -not -name '*.lock' -printf '%p %s %T@\\n' | sort;"
        " docker ps -a --no-trunc --format '{{.ID}} {{.Names}}'; docker images -q --no-trunc | sort;"
        " for tool in iptables ip6tables; do $tool-save -t filter | sed 's/ *\\[[0-9:]*\\]$//; /^#/d'; done"
    )
    before = doctor.box.run("sh", "-c", look, timeout=120).stdout
    doctor.ask()
    assert doctor.box.run("sh", "-c", look, timeout=120).stdout == before


@pytest.fixture(scope="module")
def clock(doctor: Doctor, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A library on the box that moves the time of day."""
    compiler = shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler (apt-get install gcc libc6-dev): no box whose clock is wrong")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"], cwd=folder, check=True)
    doctor.box.put("/opt/clock.so", (folder / "clock.so").read_bytes(), "0755")


# Every day those are planted together that do not hide each other; soak plants them one by one.
TOGETHER = [
    ("no key asked for", "speculation off", "weights changed", "IPv6 left open", "open to a stranger",
     "another image under the name", "logs without end", "disk full", "clock wrong"),
    ("key readable by all", "weights gone", "a rule before ours", "closed to the allowed", "image gone"),
    ("container stopped", "key gone", "our chain emptied"),
    ("container paused", "rules lost at the next boot"),
    ("another key",), ("engine frozen",), ("port taken",), ("Docker stopped",),
]  # fmt: skip


def found_and_named(
    faults: Sequence[Fault], doctor: Doctor, words: Mapping[str, str], knocks: str = "", parts: Sequence[str] = ()
) -> None:
    """Plant, ask, heal: each is named, and nothing else is called ill."""
    with contextlib.ExitStack() as stack:
        for fault in faults:
            stack.enter_context(planted(doctor.box, fault, words))
        status, checks = doctor.ask(*parts, knocks=knocks)
    ill = set()
    for fault in faults:
        check = named(checks, fault.check)
        assert (check["status"], fault.found in check["found"]) == (fault.status, True), (fault.id, check)
        assert check["do"]
        ill |= {check["name"], *fault.also}
    assert status == (2 if any(fault.status == "fail" for fault in faults) else 1)
    assert ills(checks) - ill == set(), checks


def test_every_fault_is_planted_every_day() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(fault.id for fault in FAULTS)
    assert sorted(name for names in GPU_TOGETHER for name in names) == sorted(fault.id for fault in GPU_FAULTS)
    assert len(FAULTS) + len(GPU_FAULTS) >= 20


@pytest.mark.parametrize("names", TOGETHER, ids=lambda names: names[0])
def test_faults_planted_together_are_each_found_and_named(
    names: tuple[str, ...],
    doctor: Doctor,
    hosts: dict[str, Host],
    words: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    faults = [fault for name in names for fault in FAULTS if fault.id == name]
    if "clock wrong" in names:
        request.getfixturevalue("clock")
    knocks = next((hosts[fault.knocks].name for fault in faults if fault.knocks), "")
    found_and_named(faults, doctor, words, knocks, faults[0].parts if len(faults) == 1 else ())


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.id for fault in FAULTS])
def test_each_planted_fault_is_found_and_named(
    fault: Fault, doctor: Doctor, hosts: dict[str, Host], words: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if fault.check == "clock":
        request.getfixturevalue("clock")
    found_and_named([fault], doctor, words, hosts[fault.knocks].name if fault.knocks else "", fault.parts)
    assert ills(doctor.ask(*fault.parts)[1]) == set()


def test_nothing_is_found_when_all_of_it_is_mended(doctor: Doctor) -> None:
    assert ills(doctor.ask()[1]) == set()


# 90 MB, as if the engine's own process printed it: into the pipe that the container engine reads.
TALK = f"{{ yes {'x' * 1000} | head -n 90000; echo the end; }} >/proc/1/fd/1"


def test_an_engine_that_logs_without_end_fills_no_disk(doctor: Doctor, tmp_path: Path) -> None:
    box = doctor.box
    box.exec("docker", "exec", NAME, "sh", "-c", TALK, timeout=120)
    path = box.run("docker", "inspect", "-f", "{{.LogPath}}", NAME).stdout.strip()
    sizes = [int(size) for size in box.run("sh", "-c", f"stat -c %s {path}*").stdout.split()]
    # Three files of 20 MB; Docker ends each with the line that fills it.
    assert len(sizes) == 3, sizes
    assert max(sizes) < 20.1 * 1000 * 1000
    assert answers(box)
    # `make logs` shows the end, and nothing of what else stands in it.
    words = ["--inventory", str(doctor.inventory), "--host", box.name, "--only", ARM, "--lines", "1"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/drafthouse"), "logs", *words], cwd=ROOT, timeout=180, check=False,
        env={**os.environ, "DRAFTHOUSE_STATE": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"{NAME}: the end\n"), done


def test_a_support_bundle_has_no_key_in_it(lab: Lab, doctor: Doctor, tmp_path: Path) -> None:
    key = doctor.box.run("cat", KEY).stdout.strip()
    leaky = f"HF_TOKEN=hf_abcdefghijklmnop, Bearer {key}"
    doctor.box.exec("sh", "-c", f"mkdir -p {HOME}/logs && echo '{leaky}' >>{HOME}/logs/planted.log")
    given: dict[str, Any] = {
        "overrides": OVERRIDES,
        "support_folder": str(tmp_path / "support"),
        "doctor_outside": False,
    }
    ended = lab.play("playbooks/bundle_report.yml", doctor.inventory, "--limit", doctor.box.name, **given)
    assert ended.status == 0, ended.output[-3000:]
    (path,) = (tmp_path / "support").iterdir()
    assert f"support bundle of {doctor.box.name}: {path}" in ended.output
    listed = subprocess.run(["tar", "-tzf", str(path)], capture_output=True, text=True, check=True).stdout
    names = {line.partition("/")[2] for line in listed.split()}
    assert {"plan.txt", "doctor.json", "box/docker/drafthouse-speculative.log", "box/logs/planted.log"} <= names
    raw = subprocess.run(["tar", "-xzOf", str(path)], capture_output=True, check=True).stdout
    assert key.encode() not in raw
    assert b"hf_abcdefghijklmnop" not in raw
    assert key not in ended.output
    doctor.box.exec("rm", f"{HOME}/logs/planted.log")


# --- a box with a made GPU --------------------------------------------------------------------------

MADE_SYS, MADE_PROC, DRIVER = "/opt/made/sys", "/opt/made/proc", "580.95.05"
GPU_NAME, GPU_IMAGE = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "vllm/vllm-openai:v0.32.0"
GPU_ARM = "drafthouse-baseline"
# Speaks with the real one's words (see test_driver.py).
SMI = """#!/bin/sh
library=$(cat /opt/made/library)
loaded=$(cat /opt/made/loaded)
if [ -e /opt/made/lost ]; then echo "Failed to initialize NVML: Unknown Error"; exit 255; fi
if [ "$loaded" != "$library" ]; then
  echo "Failed to initialize NVML: Driver/library version mismatch"
  echo "NVML library version: ${library%.*}"
  exit 18
fi
case "$*" in
  *memory.total*) echo "$(cat /opt/made/name), 97887, $library, 12.0, GPU-made, [N/A]" ;;
  *name,driver_version*) echo "$(cat /opt/made/name), $library" ;;
  -L) echo "GPU 0: $(cat /opt/made/name) (UUID: GPU-made)" ;;
esac
"""
LOADED = f"""
mkdir -p {MADE_PROC}/driver/nvidia {MADE_PROC}/sys/kernel {MADE_SYS}
echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  $1  Release Build  (made)" \\
  >{MADE_PROC}/driver/nvidia/version
echo "nvidia 9732096 1 - Live 0x0" >{MADE_PROC}/modules
uname -r >{MADE_PROC}/sys/kernel/osrelease
for part in loaded library on-disk; do echo "$1" >/opt/made/$part; done
"""
PACKAGE = f"""
set -e
folder=$(mktemp -d)
mkdir $folder/DEBIAN
printf 'Package: %s\\nVersion: %s-1\\nArchitecture: all\\nMaintainer: tests\\nDescription: made\\n' \\
  libnvidia-compute-580 {DRIVER} >$folder/DEBIAN/control
dpkg-deb --build $folder /tmp/made.deb >/dev/null
dpkg -i /tmp/made.deb >/dev/null
apt-mark hold libnvidia-compute-580 >/dev/null
"""
WITH_NVIDIA = {"runtimes": {"nvidia": {"path": "/usr/bin/true", "runtimeArgs": []}}}
GPU_FAULTS = [
    Fault("driver too old", "sh /opt/made/loaded.sh 570.211.01; sed -i s/580.95.05/570.211.01/ /etc/cdi/nvidia.yaml",
          f"sh /opt/made/loaded.sh {DRIVER}; sed -i s/570.211.01/580.95.05/ /etc/cdi/nvidia.yaml", "driver",
          "570.211.01"),
    Fault("library replaced under the driver", "echo 580.126.20 >/opt/made/library",
          f"echo {DRIVER} >/opt/made/library", "driver and library", "library 580.126",
          ("GPU in the container", "driver", "CDI")),
    Fault("another driver at the next boot", "echo 580.126.20 >/opt/made/on-disk", f"echo {DRIVER} >/opt/made/on-disk",
          "driver and library", "580.126.20 is installed", status="warn"),
    Fault("updates not held", "apt-mark unhold libnvidia-compute-580", "apt-mark hold libnvidia-compute-580",
          "updates held", "libnvidia-compute-580", status="warn"),
    Fault("another GPU", "echo 'NVIDIA L4' >/opt/made/name", f"echo '{GPU_NAME}' >/opt/made/name", "GPU", "NVIDIA L4"),
    Fault("no toolkit", "mv /usr/local/bin/nvidia-ctk /root/", "mv /root/nvidia-ctk /usr/local/bin/", "NVIDIA toolkit",
          "no nvidia-ctk"),
    Fault("Docker does not know the runtime", f"mv /etc/docker/daemon.json /root/ && {RESTART}",
          f"mv /root/daemon.json /etc/docker/ && {RESTART}", "NVIDIA toolkit", "Docker's runtimes"),
    Fault("CDI of an older driver", "sed -i s/580.95.05/575.51.03/ /etc/cdi/nvidia.yaml",
          "sed -i s/575.51.03/580.95.05/ /etc/cdi/nvidia.yaml", "CDI", "names driver 575.51.03"),
    Fault("container lost its GPU", f"docker exec {GPU_ARM} touch /lost/yes", f"docker exec {GPU_ARM} rm /lost/yes",
          "GPU in the container", "Unknown Error"),
]  # fmt: skip
GPU_TOGETHER = [
    ("another driver at the next boot", "updates not held", "another GPU", "no toolkit", "CDI of an older driver",
     "container lost its GPU"),
    ("driver too old", "Docker does not know the runtime"),
    ("library replaced under the driver",),
]  # fmt: skip


@pytest.fixture(scope="module")
def made(lab: Lab) -> Iterator[Host]:
    """A workstation with Docker, and a GPU as the doctor sees one. Its container sees it until it loses it."""
    box = lab.start("workstation-docker")
    box.put("/opt/made/name", f"{GPU_NAME}\n")
    box.put("/opt/made/loaded.sh", LOADED, "0755")
    box.exec("sh", "/opt/made/loaded.sh", DRIVER)
    box.put("/usr/local/bin/nvidia-smi", SMI, "0755")
    box.put("/usr/local/bin/modinfo", "#!/bin/sh\ncat /opt/made/on-disk\n", "0755")
    box.put("/usr/local/bin/nvidia-ctk", "#!/bin/sh\necho NVIDIA Container Toolkit CLI version 1.20.0\n", "0755")
    box.put("/etc/cdi/nvidia.yaml", f"kind: nvidia.com/gpu\nhostPath: /usr/lib/libcuda.so.{DRIVER}\n")
    box.put("/root/package.sh", PACKAGE)
    box.exec("sh", "/root/package.sh")
    box.put("/etc/docker/daemon.json", json.dumps(WITH_NVIDIA))
    box.exec("systemctl", "restart", "docker")
    box.put("/root/tiny.tar", tiny_image())
    box.exec("docker", "import", "/root/tiny.tar", GPU_IMAGE)
    # Inside, nvidia-smi is asked of a driver that the container may lose.
    box.put(
        "/opt/made/inside",
        "#!/bin/sh\n[ ! -e /lost/yes ] || { echo Failed to initialize NVML: Unknown Error; exit 255; }\n"
        'exec /usr/local/bin/nvidia-smi "$@"\n',
        "0755",
    )
    mounts = ["-v", "/usr:/usr:ro", "-v", "/opt/made:/opt/made:ro", "-v", "/opt/made/inside:/srv/nvidia-smi:ro"]
    box.exec(
        "docker", "run", "-d", "--name", GPU_ARM, "--label", "drafthouse.arm=baseline", "--log-opt", "max-size=20m",
        "--restart", "always", "--tmpfs", "/lost", "-e", "PATH=/srv:/usr/bin:/bin", *mounts, GPU_IMAGE,
        "sleep", "infinity",
    )  # fmt: skip
    yield box
    box.remove()


@pytest.fixture(scope="module")
def gpu_doctor(lab: Lab, made: Host) -> Doctor:
    variables = {"doctor_sys": MADE_SYS, "doctor_proc": MADE_PROC}
    return Doctor(lab.inventory([made], {}, "workstation"), made, variables, GPU_PROFILE)


def test_nothing_is_found_on_a_well_gpu(gpu_doctor: Doctor) -> None:
    status, checks = gpu_doctor.ask("gpu", "runtime")
    assert ills(checks) == set(), [checks[name] for name in ills(checks)]
    assert status == 0
    for name in (
        "GPU",
        "driver",
        "driver and library",
        "updates held",
        "NVIDIA toolkit",
        "CDI",
        "GPU in the container",
    ):
        assert checks[name]["status"] == "ok", checks[name]


@pytest.mark.parametrize("names", GPU_TOGETHER, ids=lambda names: names[0])
def test_faults_of_a_gpu_box_are_each_found_and_named(names: tuple[str, ...], gpu_doctor: Doctor) -> None:
    faults = [fault for name in names for fault in GPU_FAULTS if fault.id == name]
    found_and_named(faults, gpu_doctor, {}, parts=("gpu", "runtime"))


@pytest.mark.soak
@pytest.mark.parametrize("fault", GPU_FAULTS, ids=[fault.id for fault in GPU_FAULTS])
def test_each_fault_of_a_gpu_box_is_found_and_named(fault: Fault, gpu_doctor: Doctor) -> None:
    found_and_named([fault], gpu_doctor, {}, parts=("gpu", "runtime"))
    assert ills(gpu_doctor.ask("gpu", "runtime")[1]) == set()


def test_nothing_is_found_when_the_gpu_box_is_mended(gpu_doctor: Doctor) -> None:
    assert ills(gpu_doctor.ask("gpu", "runtime")[1]) == set()
