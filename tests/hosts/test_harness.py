"""The test hosts are what the other tests take them for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.workspace import ROOT
from tests.hosts import hosts
from tests.hosts.hosts import CGROUPS, LABEL, CommandFailed, Host, Lab, engine, remove_abandoned, stop_engine
from tests.hosts.images import Images
from tests.hosts.reach import apt_settings, environment, machine_files

# The lane's other tests stand on these hosts each day.
pytestmark = pytest.mark.soak

KINDS = ("workstation", "workstation_docker", "rental", "peer")
CAP_NET_ADMIN, CAP_SYS_MODULE, CAP_SYS_ADMIN = 12, 16, 21  # linux/capability.h
PORT = 8000


@pytest.fixture
def box(request: pytest.FixtureRequest) -> Host:
    """The host that the test's parameter names."""
    host: Host = request.getfixturevalue(request.param)
    return host


def rules(host: Host) -> list[str]:
    """Return the rules of both families."""
    lines = host.run("iptables-save").stdout + host.run("ip6tables-save").stdout
    return [line for line in lines.splitlines() if line.startswith("-A")]


def status(peer: Host, address: str, port: int = PORT, patience: int = 20) -> str:
    """Return the HTTP status that an address shows to the peer, or curl's error; ``patience`` in seconds."""
    words = ["-sS", "-g", "--max-time", "5", "--retry", str(patience), "--retry-delay", "1", "--retry-connrefused"]
    done = peer.run("curl", *words, "-o", "/dev/null", "-w", "%{http_code}", f"http://{address}:{port}/", check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def boots(host: Host) -> str:
    """Return when PID 1 began, in clock ticks: another number after each boot."""
    return host.run("cat", "/proc/1/stat").stdout.rpartition(")")[2].split()[19]


@pytest.mark.parametrize("box", KINDS, indirect=True)
@pytest.mark.parametrize("way", ["ssh", "paramiko"])
def test_testinfra_sees_a_host_through_both_of_its_ways(box: Host, way: str) -> None:
    seen = box.backend(way)
    assert seen.system_info.distribution == "debian"
    assert seen.system_info.codename == "trixie"
    assert seen.check_output("hostname") == box.name
    assert seen.user().name == "root"


@pytest.mark.parametrize("box", KINDS, indirect=True)
def test_a_command_comes_through_as_it_was_written(box: Host) -> None:
    words = ["a b", "$HOME", "it's", "", "*"]
    assert box.run("printf", "%s\\n", *words).stdout.split("\n")[:-1] == words
    assert box.run("cat", stdin="over the wire").stdout == "over the wire"
    box.put("/etc/drafthouse-test/file", "content\n", mode="0600")
    assert box.run("stat", "-c", "%a %U", "/etc/drafthouse-test/file").stdout == "600 root\n"
    with pytest.raises(CommandFailed, match="exit status 3"):
        box.run("sh", "-c", "exit 3")
    assert box.run("sh", "-c", "exit 3", check=False).returncode == 3
    assert box.exec("sh", "-c", "exit 3", check=False).returncode == 3
    with pytest.raises(subprocess.TimeoutExpired):
        box.run("sleep", "30", timeout=0.5)
    ports = [box.run("sh", "-c", "echo $SSH_CONNECTION", fresh=fresh).stdout for fresh in (False, False, True)]
    assert ports[0] == ports[1] != ports[2]


def test_a_bare_workstation_is_bare(workstation: Host) -> None:
    seen = workstation.backend()
    assert seen.process.get(pid=1).comm == "systemd"
    assert seen.service("ssh").is_running
    assert workstation.run("systemctl", "--failed", "--plain", "--no-legend").stdout == ""
    assert not seen.exists("docker")
    assert not seen.exists("nvidia-smi")
    for tool in ("sudo", "curl", "ip", "iptables", "python3"):
        assert seen.exists(tool), tool
    assert rules(workstation) == []


def test_a_workstation_leaves_this_machines_groups_alone(lab: Lab) -> None:
    def state() -> tuple[list[str], list[Path]]:
        lines = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
        return [line for line in lines if str(CGROUPS) in line], sorted(CGROUPS.iterdir())

    before = state()
    host = lab.start("workstation")
    assert host.run("cat", "/proc/1/comm").stdout == "systemd\n"
    host.remove()
    assert state() == before


def test_the_reboot_is_one(workstation: Host, figure: Callable[[str], None]) -> None:
    before = boots(workstation)
    workstation.run("touch", "/run/of-this-boot", "/var/lib/of-all-boots")
    seconds = workstation.restart()
    figure(f"hosts: a workstation is back {seconds:.1f} s after docker restart")
    assert boots(workstation) != before
    seen = workstation.backend()
    assert not seen.file("/run/of-this-boot").exists
    assert seen.file("/var/lib/of-all-boots").exists
    assert rules(workstation) == []


def test_a_reboot_that_the_host_asks_for_comes_back_too(workstation: Host) -> None:
    before = boots(workstation)
    workstation.run("systemctl", "reboot", check=False)
    workstation.disconnect()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        done = workstation.run("cat", "/proc/1/stat", check=False, timeout=180)
        if done.returncode == 0 and done.stdout.rpartition(")")[2].split()[19] != before:
            return
        time.sleep(0.2)
    raise AssertionError("the workstation did not come back")


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


def test_a_rental_whose_sshd_is_killed_answers_again(rental: Host) -> None:
    before = boots(rental)
    rental.exec("pkill", "-9", "-o", "-x", "sshd")
    rental.disconnect()
    rental.wait(120)
    assert boots(rental) == before


def test_a_peer_reaches_a_process_of_a_workstation_over_both_families(workstation: Host, peer: Host) -> None:
    workstation.run(
        *("systemd-run", "--unit=probe", "--collect"), *("python3", "-m", "http.server", str(PORT), "--bind", "::")
    )
    assert status(peer, workstation.ip4) == "200"
    assert status(peer, f"[{workstation.ip6}]") == "200"
    assert "Failed to connect" in status(peer, workstation.ip4, PORT + 1, patience=0)
    workstation.run("systemctl", "stop", "probe")


def test_a_workstations_own_engine_runs_and_publishes_a_container(
    lab: Lab, workstation_docker: Host, peer: Host, figure: Callable[[str], None]
) -> None:
    box = workstation_docker
    began = time.monotonic()
    image = lab.load_engine(box)
    figure(f"hosts: the engine's image is inside a workstation after {time.monotonic() - began:.1f} s")
    assert lab.load_engine(box) == image
    assert "version" in box.run("docker", "run", "--rm", image, "--version").stderr
    box.run(
        *("docker", "run", "-d", "--init", "--name", "probe", "-p", f"{PORT}:80", "--entrypoint", "python3", image),
        *("-m", "http.server", "80"),
    )
    assert status(peer, box.ip4) == "200"
    assert status(peer, f"[{box.ip6}]") == "200"
    assert box.backend().docker("probe").is_running
    # Its name servers are not Docker's loopback one of the host, which a container inside cannot ask.
    assert "127.0.0.11" not in box.run("docker", "exec", "probe", "cat", "/etc/resolv.conf").stdout
    box.run("docker", "rm", "-f", "probe")


def test_the_engine_inside_is_back_after_a_reboot(workstation_docker: Host) -> None:
    workstation_docker.restart()
    assert workstation_docker.backend("paramiko").service("docker").is_running
    assert workstation_docker.run("docker", "ps", "--quiet").returncode == 0


def test_a_host_reaches_packages_as_this_machine_does(rental: Host) -> None:
    rental.run("apt-get", "update", "--quiet=2", timeout=120)
    rental.run("python3", "-m", "venv", "/tmp/env")
    rental.run("/tmp/env/bin/pip", "install", "--quiet", "uv", timeout=180)
    rental.run("/tmp/env/bin/uv", "pip", "install", "--python", "/tmp/env/bin/python", "six", timeout=120)


def test_ansible_reaches_the_hosts_of_an_inventory(lab: Lab, workstation: Host, rental: Host, tmp_path: Path) -> None:
    playbook = tmp_path / "look.yml"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - name: Who is there\n      ansible.builtin.command: hostname\n      changed_when: true\n"
        "    - name: The site\n      ansible.builtin.debug:\n"
        "        msg: 'managed: {{ drafthouse_manage_host }} {{ extra }}'\n",
        "utf-8",
    )
    inventory = lab.inventory({"boxes": [workstation, rental]}, {"drafthouse_manage_host": False}, like="workstation")
    ended = lab.play(str(playbook), inventory, extra="word")
    assert ended.status == 0, ended.output
    assert ended.changed == 2
    assert ended.output.count("managed: False word") == 2


def test_debian_12_is_there_for_who_asks(lab: Lab) -> None:
    host = lab.start("workstation", release="bookworm")
    try:
        assert host.backend().system_info.codename == "bookworm"
        assert host.backend().process.get(pid=1).comm == "systemd"
        assert rules(host) == []
    finally:
        host.remove()


def test_a_folder_on_a_disk_of_its_own(lab: Lab) -> None:
    host = lab.start("rental", volumes=["/srv/big"])
    assert host.backend().mount_point("/srv/big").exists
    (volume,) = [mount["Name"] for mount in host.container.attrs["Mounts"]]
    host.remove()
    assert volume not in [each.name for each in lab.client.volumes.list()]


def test_images_that_are_there_are_not_built_again(lab: Lab, figure: Callable[[str], None]) -> None:
    said: list[str] = []
    for kind in ("workstation-docker", "rental", "peer"):
        lab.images.image(kind)
    began = time.monotonic()
    again = Images(lab.client, said.append)
    assert {again.image(kind) for kind in ("workstation-docker", "rental", "peer")}
    seconds = time.monotonic() - began
    figure(f"hosts: three images found again in {seconds:.1f} s")
    assert said == []
    assert seconds < 10


def test_an_unknown_kind_is_refused_with_the_known_ones(lab: Lab) -> None:
    with pytest.raises(DrafthouseError, match="workstation-docker"):
        lab.start("wrokstation")
    with pytest.raises(DrafthouseError, match="bookworm"):
        lab.start("rental", release="sarge")


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


def test_a_host_that_does_not_answer_is_named_with_its_last_words(lab: Lab) -> None:
    host = lab.start("rental")
    host.exec("sh", "-c", "echo nonsense >>/etc/ssh/sshd_config")
    with pytest.raises(DrafthouseError, match="no SSH") as told:
        host.restart(timeout=3)
    host.remove()
    assert "nonsense" in told.value.problems[0].do


def test_a_build_that_fails_says_why(lab: Lab) -> None:
    recipe = f"FROM {lab.images.image('base')}\nRUN echo the reason; exit 3\n".encode()
    with pytest.raises(DrafthouseError, match="the reason"):
        lab.images._build("drafthouse-test/broken:now", {"Dockerfile": recipe}, {})


def test_without_an_engine_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DrafthouseError, match=r"apt-get install docker\.io"):
        engine()


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
