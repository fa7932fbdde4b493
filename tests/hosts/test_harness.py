"""The test hosts leave this machine as it was. What else they are, the lane's other tests stand on each day."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.hosts import hosts
from tests.hosts.hosts import CGROUPS, LABEL, Host, Lab, engine, remove_abandoned, stop_engine
from tests.hosts.reach import apt_settings, environment, machine_files

pytestmark = pytest.mark.soak
CAP_NET_ADMIN, CAP_SYS_MODULE, CAP_SYS_ADMIN = 12, 16, 21  # linux/capability.h


def test_a_workstation_leaves_this_machines_groups_alone(lab: Lab) -> None:
    def state() -> tuple[list[str], list[Path]]:
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        return [line for line in lines if str(CGROUPS) in line], sorted(CGROUPS.iterdir())

    before = state()
    host = lab.start("workstation")
    assert host.run("cat", "/proc/1/comm").stdout == "systemd\n"
    host.remove()
    assert state() == before


def test_a_rental_has_no_privileges(rental: Host) -> None:
    seen = rental.backend()
    assert seen.process.get(pid=1).comm != "systemd"
    for tool in ("systemctl", "docker", "iptables", "sudo"):
        assert not seen.exists(tool), tool
    (line,) = [line for line in rental.run("cat", "/proc/1/status").stdout.splitlines() if line.startswith("CapBnd")]
    capabilities = int(line.split()[1], 16)
    for number in (CAP_NET_ADMIN, CAP_SYS_MODULE, CAP_SYS_ADMIN):
        assert not capabilities & (1 << number), number
    assert rental.run("mount", "-t", "tmpfs", "none", "/mnt", check=False).returncode != 0
    assert rental.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward", check=False).returncode != 0


def test_what_a_killed_run_leaves_is_removed_by_the_next(lab: Lab) -> None:
    program = (
        "import os, signal\nfrom tests.hosts.hosts import Lab\n"
        "lab = Lab(prefix='dh-killed', say=lambda line: None).__enter__()\n"
        "lab.start('peer', wait=False)\nprint(lab.name, lab.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{ROOT / 'collections'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    name, folder = done.stdout.split()
    wanted = {"label": f"{LABEL}={name}"}
    assert lab.client.containers.list(all=True, filters=wanted)
    remove_abandoned(lab.client)
    assert not lab.client.containers.list(all=True, filters=wanted)
    assert not lab.client.networks.list(filters=wanted)
    assert lab.client.containers.list(filters={"label": f"{LABEL}={lab.name}"})  # ours are left alone
    for path in sorted(Path(folder).rglob("*"), reverse=True):
        path.unlink()
    Path(folder).rmdir()


def test_a_lab_is_gone_also_after_a_failure() -> None:
    client = engine()
    with pytest.raises(RuntimeError, match="a test failed"), Lab(prefix="dh-failed", say=lambda line: None) as lab:
        lab.start("peer", wait=False)
        name, folder = lab.name, lab.folder
        raise RuntimeError("a test failed")
    wanted = {"label": f"{LABEL}={name}"}
    assert not client.containers.list(all=True, filters=wanted)
    assert not client.networks.list(filters=wanted)
    assert not folder.exists()
    client.close()


def test_an_engine_is_started_where_none_runs_and_stopped_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("d")  # short: a socket's path has 107 characters at most
    real = shutil.which("dockerd")
    if not real or os.geteuid() != 0:
        pytest.skip("no dockerd that this user could start")
    # In a network of its own: an engine that starts with no bridge takes docker0 away from the one that runs.
    (folder / "dockerd").write_text(
        f"#!/bin/sh\nexec unshare --net {real} --host unix://{folder}/s --data-root {folder}/data"
        f" --exec-root {folder}/run --pidfile {folder}/pid --bridge none --iptables=false --ip6tables=false\n"
    )
    (folder / "dockerd").chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/s")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(hosts, "_STARTED", [])  # the session's own engine stays out of stop_engine()'s hands
    said: list[str] = []
    client = engine(said.append)
    assert client.containers.list() == []
    client.close()
    assert said and "started" in said[0]
    number = int((folder / "pid").read_text("utf-8"))
    assert os.getpriority(os.PRIO_PROCESS, number) == 19
    stop_engine()
    assert not Path(f"/proc/{number}").exists()


def test_what_only_this_machine_can_reach_is_not_handed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///srv/wheels https://packages.example.org/simple")
    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    found = environment()
    assert found["PIP_EXTRA_INDEX_URL"] == "https://packages.example.org/simple"
    assert found["https_proxy"] == "http://proxy.example.org:3128"
    assert "PIP_FIND_LINKS" not in found
    assert b"proxy.example.org" in machine_files("trixie")["etc/environment"]
    assert all(line.startswith("Acquire::") and line.endswith(";") for line in apt_settings().splitlines())
