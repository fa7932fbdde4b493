"""The role container_engine on real hosts: installed, merged, taken back, killed, refused.

NVIDIA's packages here are made by the test: real names and versions, a small program that edits the file as the
real nvidia-ctk does (pkg/config/engine/docker of NVIDIA/nvidia-container-toolkit), and no GPU behind them.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.debs import Signer
from tests.hosts.hosts import Ended, Host, Lab

FILE = "/etc/docker/daemon.json"
RECORD = f"{FILE}.drafthouse"
PLAYBOOK = """\
- name: The container engine
  hosts: all
  gather_facts: false
  tasks:
    - name: Make it ready
      ansible.builtin.include_role:
        name: container_engine
"""
USERS_OWN = """\
{
    "zone": null,
    "log-opts": {
        "max-size": "7m"
    },
    "labels": ["rack=3"],
    "default-address-pools": [{"base": "172.30.0.0/16", "size": 24}]
}
""".replace('    "zone": null,\n', "")  # an unknown key keeps the engine from starting
Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Apply the role to a host with the distribution's packages: Docker's own are not in reach everywhere."""

    def start(host: Host, *words: str, **variables: Any) -> Ended:
        playbook = lab.folder / "container_engine.yml"
        playbook.write_text(PLAYBOOK)
        given = {"container_engine_source": "distribution", **variables}
        return lab.play(str(playbook), lab.inventory([host]), *words, **given)

    return start


@pytest.fixture
def box(workstation_docker: Host) -> Host:
    """A workstation whose engine runs as its owner has installed it: no file of settings, no containers."""
    host = workstation_docker
    host.run("sh", "-c", "docker ps -aq | xargs -r docker rm -f; docker image ls -q | xargs -r docker rmi -f")
    host.run(
        "sh", "-c", "rm -rf /etc/docker /data; systemctl reset-failed docker docker.socket; systemctl restart docker"
    )
    return host


def write(host: Host, text: str) -> str:
    """Give the box a file of its owner's, with which the engine runs; return its hash."""
    host.put(FILE, text)
    host.run("systemctl", "restart", "docker")
    return hash_of(host)


def hash_of(host: Host) -> str:
    return host.run("sha256sum", FILE).stdout.split()[0]


def settings(host: Host) -> dict[str, Any]:
    return dict(json.loads(host.run("cat", FILE).stdout))


def info(host: Host) -> dict[str, Any]:
    return dict(json.loads(host.run("docker", "info", "-f", "{{json .}}").stdout))


def engine_process(host: Host) -> str:
    return host.run("systemctl", "show", "-p", "MainPID", "--value", "docker").stdout.strip()


def state(host: Host) -> str:
    """Everything that the role could change: settings, packages, users, units."""
    look = "find /etc /usr/local /opt /srv -xdev -type f | sort | xargs sha256sum; dpkg -l; getent group"
    return hashlib.sha256(host.run("sh", "-c", look, check=False).stdout.encode()).hexdigest()


def sleeper(host: Host) -> None:
    """Start a container that is somebody's: an image of the box's own `sleep`, for want of a registry."""
    pack = 'tar -ch /bin/sleep $(ldd /bin/sleep | grep -o "/[^ ]*") 2>/dev/null | docker import - made >/dev/null'
    host.run("sh", "-c", f"{pack} && docker run -d --name somebodys made /bin/sleep 3600")


# --- a bare box -------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["trixie", pytest.param("bookworm", marks=pytest.mark.soak)])
def test_a_bare_box_gets_an_engine_that_runs_containers(
    lab: Lab, run: Run, figure: Callable[[str], None], release: str
) -> None:
    host = lab.start("workstation", release=release)
    try:
        before = state(host)
        asked = run(host, "--check", "--diff")
        assert asked.status == 0
        assert '"max-size": "50m"' in asked.output
        assert state(host) == before
        first = run(host, container_engine_users=["nobody"])
        assert first.status == 0
        second = run(host, container_engine_users=["nobody"])
        assert (second.status, second.changed) == (0, 0)
        outside = host.backend()
        assert outside.service("docker").is_running
        assert outside.service("docker").is_enabled
        assert "docker" in outside.user("nobody").groups
        assert outside.check_output("docker compose version" if release == "trixie" else "docker version")
        assert outside.check_output("docker image ls -q") == outside.check_output("docker ps -aq") == ""
        assert settings(host) == {"log-opts": {"max-size": "50m", "max-file": "3"}}
        listed = outside.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
        assert "^containerd" in listed
        host.restart()
        assert host.run("timeout", "120", "sh", "-c", "until docker version; do sleep 0.3; done").returncode == 0
        figure(
            f"container_engine on bare {release}: check {asked.seconds:.0f} s, first run {first.seconds:.0f} s "
            f"({first.changed} changed), second {second.seconds:.0f} s (0 changed)"
        )
    finally:
        host.remove()


@pytest.mark.soak
def test_nobody_is_let_in_unasked_and_nobody_is_made(box: Host, run: Run) -> None:
    assert run(box).status == 0
    assert box.run("getent", "group", "docker").stdout.strip().endswith(":")
    ended = run(box, container_engine_users=["root", "no-such-user"])
    assert ended.status != 0
    assert "no user no-such-user" in ended.lines("found")[0]
    assert box.run("id", "no-such-user", check=False).returncode != 0


# --- daemon.json ------------------------------------------------------------------------------------


@pytest.mark.soak
def test_the_users_own_keys_survive(box: Host, run: Run) -> None:
    write(box, USERS_OWN)
    box.run("chmod", "0640", FILE)
    wishes = {"container_engine_data_root": "/data/docker", "container_engine_settings": {"live-restore": True}}
    assert run(box, "--check", **wishes).status == 0
    assert settings(box) == json.loads(USERS_OWN)
    ended = run(box, "--diff", **wishes)
    assert ended.status == 0
    assert '+    "data-root": "/data/docker"' in ended.output
    mine = json.loads(USERS_OWN)
    assert settings(box) == {**mine, "live-restore": True, "data-root": "/data/docker"}
    assert list(settings(box))[: len(mine)] == list(mine)
    assert box.run("stat", "-c", "%a", FILE).stdout.strip() == "640"
    assert box.run("sh", "-c", f"cat {FILE}.*~").stdout == USERS_OWN
    now = info(box)
    assert (now["DockerRootDir"], now["LiveRestoreEnabled"], now["Labels"]) == ("/data/docker", True, ["rack=3"])
    assert run(box, **wishes).changed == 0
    # Wishes that are taken back go, and the user's file is as it was, byte for byte but for its list on one line.
    assert run(box).status == 0
    assert settings(box) == mine
    assert info(box)["DockerRootDir"] == "/var/lib/docker"


def test_a_contradiction_is_refused_and_all_are_named(box: Host, run: Run) -> None:
    before = write(box, '{"data-root": "/data/mine", "live-restore": false}')
    engine = engine_process(box)
    ended = run(box, container_engine_data_root="/data/ours", container_engine_settings={"live-restore": True})
    assert ended.status != 0
    assert ended.lines("found") == ["found: your own 'live-restore'", "found: your own 'data-root'"]
    assert (hash_of(box), engine_process(box)) == (before, engine)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{\n  "labels": ["a"]\n  "debug": true\n}\n', "line 3, column 3"),
        ('{\n  "a": "\xe4"\n'.encode("latin-1"), "line 2, column 9"),
    ],
)
def test_a_file_that_is_not_json_is_not_touched(box: Host, run: Run, text: str | bytes, place: str) -> None:
    box.put(FILE, text)
    before, engine = hash_of(box), engine_process(box)
    ended = run(box)
    assert ended.status != 0
    assert f"where: {FILE}: {place}" in ended.output
    assert (hash_of(box), engine_process(box)) == (before, engine)
    assert box.run("ls", "/etc/docker").stdout.split() == ["daemon.json"]


def test_what_dockerd_itself_refuses_is_not_written(box: Host, run: Run) -> None:
    before = write(box, USERS_OWN)
    engine = engine_process(box)
    ended = run(box, container_engine_settings={"no-such-key": 1})
    assert ended.status != 0
    assert "no-such-key" in ended.lines("found")[0]
    # A key that is also a flag of the unit: the engine would not start.
    flag = run(box, container_engine_settings={"hosts": ["unix:///var/run/docker.sock"]})
    assert "hosts" in flag.lines("found")[0]
    assert (hash_of(box), engine_process(box)) == (before, engine)


def test_an_engine_that_does_not_come_back_gets_its_file_back(
    box: Host, run: Run, figure: Callable[[str], None]
) -> None:
    before = write(box, USERS_OWN)
    ended = run(box, container_engine_settings={"storage-driver": "zfs"})
    assert ended.status != 0
    assert "does not restart" in ended.lines("found")[0]
    assert "zfs" in ended.lines("found")[0]
    assert "the old file is back and the engine runs" in ended.lines("do")[0]
    assert hash_of(box) == before
    assert info(box)["Driver"] != "zfs"
    assert "before" not in box.run("cat", RECORD, check=False).stdout
    figure(
        f"container_engine: an engine that does not start: old file back and engine running after {ended.seconds:.0f} s"
    )
    # Nothing is left behind that would keep the next run from its work.
    assert run(box, container_engine_settings={"live-restore": True}).status == 0
    assert info(box)["LiveRestoreEnabled"]


def test_where_there_was_no_file_there_is_none_after_it(box: Host, run: Run) -> None:
    ended = run(box, container_engine_settings={"storage-driver": "zfs"})
    assert "the engine runs" in ended.lines("do")[0]
    assert box.run("test", "-e", FILE, check=False).returncode != 0
    assert info(box)["Driver"]


# --- an engine that is in use -------------------------------------------------------------------------


@pytest.mark.soak
def test_a_running_container_is_not_stopped_unasked(box: Host, run: Run) -> None:
    sleeper(box)
    engine = engine_process(box)
    # Log rotation alone is no reason to stop somebody's container, nor to fail.
    liked = run(box)
    assert (liked.status, box.run("test", "-e", FILE, check=False).returncode) == (0, 1)
    wish = {"container_engine_settings": {"debug": True}}
    refused = run(box, **wish)
    assert refused.status != 0
    assert "1 running containers" in refused.lines("found")[0]
    assert engine_process(box) == engine
    assert box.run("docker", "ps", "-q").stdout
    moved = run(box, container_engine_data_root="/data/docker")
    assert any("1 containers and 1 images in /var/lib/docker" in line for line in moved.lines("found"))
    assert run(box, container_engine_restart=True, **wish).status == 0
    assert settings(box)["debug"] is True


@pytest.mark.soak
def test_a_container_that_outlives_a_restart_is_no_hindrance(box: Host, run: Run) -> None:
    write(box, '{"live-restore": true}')
    sleeper(box)
    look = ("docker", "inspect", "-f", "{{.State.Running}} {{.State.StartedAt}}", "somebodys")
    before, engine = box.run(*look).stdout, engine_process(box)
    ended = run(box, container_engine_settings={"debug": True})
    assert (ended.status, settings(box)["log-opts"]["max-file"]) == (0, "3")
    assert engine_process(box) != engine
    assert box.run(*look).stdout == before
    assert before.startswith("true")


@pytest.mark.soak
def test_data_that_would_not_be_seen_any_more_is_not_left_behind(box: Host, run: Run) -> None:
    assert run(box, container_engine_data_root="/data/docker").status == 0
    sleeper(box)
    box.run("docker", "rm", "-f", "somebodys")
    # The wish is taken back, and with it the engine would look into its old folder, which is empty.
    ended = run(box)
    assert ended.status != 0
    assert "0 containers and 1 images in /data/docker" in ended.lines("found")[0]
    assert "/var/lib/docker" in ended.lines("needed")[0]
    assert box.run("docker", "image", "ls", "-q").stdout


ASK = """
import importlib.machinery, importlib.util, json
loader = importlib.machinery.SourceFileLoader("unattended", "/usr/bin/unattended-upgrade")
unattended = importlib.util.module_from_spec(importlib.util.spec_from_loader("unattended", loader))
loader.exec_module(unattended)
held = unattended.apt_pkg.config.value_list("Unattended-Upgrade::Package-Blacklist")
names = ["docker.io", "docker-ce", "containerd", "containerd.io", "runc", "nvidia-container-toolkit", "openssh-server"]
print(json.dumps([name for name in names if not unattended.is_pkgname_in_blacklist(name, held)]))
"""
NEEDRESTART = """
do "/etc/needrestart/needrestart.conf"; die $@ if $@;
for my $unit (qw(docker.service containerd.service ssh.service)) {
  my @said = map { $nrconf{override_rc}{$_} } grep { $unit =~ /$_/ } keys %{$nrconf{override_rc}};
  print "$unit: @said\\n";
}
"""


def test_upgrades_do_not_restart_the_engine_behind_a_server(box: Host, run: Run) -> None:
    assert run(box).status == 0
    packages = "apt-get install -y --no-install-recommends unattended-upgrades needrestart"
    box.run("sh", "-c", f"apt-get update && DEBIAN_FRONTEND=noninteractive {packages}", timeout=300)
    # Their own code, with their own configuration: only the package that is nothing to us may be upgraded.
    assert json.loads(box.run("python3", "-", stdin=ASK).stdout) == ["openssh-server"]
    said = box.run("perl", "-", stdin=NEEDRESTART).stdout.splitlines()
    assert set(said[0].split()[1:]) == set(said[1].split()[1:]) == {"0"}
    assert said[2] == "ssh.service: "


# --- killed -----------------------------------------------------------------------------------------

KILL = f"""
import glob, os, signal, sys, time
end = time.monotonic() + 120
while time.monotonic() < end:
    try:
        if '"before"' in open({RECORD!r}).read():
            break
    except OSError:
        pass
    time.sleep(0.005)
else:
    sys.exit("no change began")
for link in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        held = os.readlink(link)
    except OSError:
        continue
    if held == "/run/lock/drafthouse-docker.lock":
        os.kill(int(link.split("/")[2]), signal.SIGKILL)
        print("killed")
        break
"""


@pytest.mark.parametrize(
    "wish",
    [{"live-restore": True}, pytest.param({"storage-driver": "zfs"}, marks=pytest.mark.soak)],
    ids=["good", "bad"],
)
def test_a_run_killed_between_file_and_restart_is_brought_to_its_end(box: Host, run: Run, wish: dict[str, Any]) -> None:
    before = write(box, USERS_OWN)
    killed: list[str] = []
    killer = threading.Thread(target=lambda: killed.append(box.exec("python3", "-", stdin=KILL, timeout=180).stdout))
    killer.start()
    ended = run(box, container_engine_settings=wish)
    killer.join()
    assert killed == ["killed\n"]
    assert ended.status != 0
    assert '"before"' in box.run("cat", RECORD).stdout
    again = run(box, container_engine_settings=wish)
    assert '"before"' not in box.run("cat", RECORD).stdout
    if "live-restore" in wish:
        assert (again.status, info(box)["LiveRestoreEnabled"]) == (0, True)
        assert run(box, container_engine_settings=wish).changed == 0
    else:
        assert again.status != 0
        assert "zfs" in again.lines("found")[0]
        assert hash_of(box) == before
        assert info(box)["Driver"] != "zfs"


@pytest.mark.soak
def test_a_run_killed_among_the_packages_is_brought_to_its_end(lab: Lab, run: Run) -> None:
    host = lab.start("workstation")
    try:
        # The engine's files are there, and dpkg has configured nothing yet.
        kill = "until [ -e /usr/sbin/dockerd ]; do sleep 0.02; done; "
        kill += "pkill -9 -x apt-get; pkill -9 -x dpkg; echo killed"
        killed: list[str] = []
        killer = threading.Thread(
            target=lambda: killed.append(host.exec("timeout", "240", "sh", "-c", kill, timeout=250).stdout)
        )
        killer.start()
        ended = run(host)
        killer.join()
        assert killed == ["killed\n"]
        assert ended.status != 0
        assert host.run("dpkg", "--audit").stdout.strip()
        again = run(host)
        assert again.status == 0
        assert not host.run("dpkg", "--audit").stdout.strip()
        assert run(host).changed == 0
        assert host.backend().service("docker").is_enabled
    finally:
        host.remove()


# --- other engines ----------------------------------------------------------------------------------


def test_podman_in_docker_s_name_is_refused_before_anything_is_touched(workstation: Host, run: Run) -> None:
    # The text of the package podman-docker's program, made here.
    workstation.put("/usr/local/bin/docker", '#!/bin/sh\nexec /usr/bin/podman "$@"\n', "0755")
    before = state(workstation)
    ended = run(workstation)
    assert ended.status != 0
    assert "Podman" in ended.lines("found")[0]
    assert "podman-docker" in ended.lines("do")[0]
    assert state(workstation) == before
    workstation.run("rm", "/usr/local/bin/docker")


def test_a_rental_is_refused_with_the_way_out(rental: Host, run: Run) -> None:
    ended = run(rental)
    assert ended.status != 0
    assert "systemd" in ended.lines("found")[0]
    assert "process" in ended.lines("do")[0]


# --- NVIDIA's toolkit, made -------------------------------------------------------------------------

CTK = '''\
#!/usr/bin/python3
"""Made for Drafthouse's tests: edits the file as NVIDIA's nvidia-ctk does, and does nothing else."""
import json, sys
options = dict(word.lstrip("-").partition("=")[::2] for word in sys.argv[3:])
assert sys.argv[1:3] == ["runtime", "configure"] and options["runtime"] == "docker", sys.argv
path = options.get("config") or "/etc/docker/daemon.json"
try:
    data = json.load(open(path))
except FileNotFoundError:
    data = {}
data.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
if "cdi.enabled" in options:
    data.setdefault("features", {})["cdi"] = True
open(path, "w").write(json.dumps(data, indent=4, sort_keys=True))
'''
RUNTIME = '#!/bin/sh\n# Made for Drafthouse\'s tests.\nexec runc "$@"\n'


@pytest.fixture(scope="module")
def signers() -> Iterator[tuple[Signer, Signer]]:
    """Two keys: the repository's own, and somebody else's."""
    with tempfile.TemporaryDirectory() as folder:  # short: gpg has sockets there
        made = Signer(Path(folder), "own"), Signer(Path(folder), "other")
        yield made
        for signer in made:
            signer.end()


def package(name: str, version: str, depends: str, files: dict[str, str]) -> bytes:
    """A package: the three members of a .deb in ar's format (deb(5))."""
    control = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Test <test@example.org>\n"
    control += f"Depends: {depends}\nDescription: made for Drafthouse's tests\n"
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": packed({"./control": control}, 0o644),
        "data.tar.gz": packed({f".{path}": text for path, text in files.items()}, 0o755),
    }
    made = b"!<arch>\n"
    for member, content in members.items():
        made += f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        made += b"\n" if len(content) % 2 else b""
    return made


def packed(files: dict[str, str], mode: int) -> bytes:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            for folder in reversed(Path(name).parents[:-1]):
                entry = tarfile.TarInfo(f"./{folder}/")
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), mode
            tar.addfile(entry, BytesIO(text.encode()))
    return buffer.getvalue()


def put_repository(host: Host, key: Signer, signer: Signer) -> dict[str, Any]:
    """Put a flat repository on the box, signed by ``signer``, that shows ``key``; return what the role needs for it."""
    base = "nvidia-container-toolkit-base"
    debs = {
        base: package(base, "1.20.0-1", "python3", {"/usr/bin/nvidia-ctk": CTK}),
        "nvidia-container-toolkit": package(
            "nvidia-container-toolkit", "1.20.0-1", base, {"/usr/bin/nvidia-container-runtime": RUNTIME}
        ),
    }
    index = ""
    for name, content in debs.items():
        host.put(f"/srv/toolkit/amd64/{name}.deb", content)
        control = textwrap.dedent(f"""\
            Package: {name}
            Version: 1.20.0-1
            Architecture: amd64
            Maintainer: Test <test@example.org>
            Depends: {"python3" if name == base else base}
            Filename: ./{name}.deb
            Size: {len(content)}
            SHA256: {hashlib.sha256(content).hexdigest()}
            Description: made for Drafthouse's tests
            """)
        index += control + "\n"
    host.put("/srv/toolkit/amd64/Packages", index)
    now = time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime())
    release = f"Origin: made for Drafthouse's tests\nDate: {now}\nSHA256:\n"
    release += f" {hashlib.sha256(index.encode()).hexdigest()} {len(index.encode())} Packages\n"
    host.put("/srv/toolkit/amd64/InRelease", signer.clear(release.encode()))
    host.put("/srv/toolkit/gpgkey", key.public)
    return {
        "container_engine_nvidia": "always",
        "container_engine_nvidia_url": "file:/srv/toolkit",
        "container_engine_nvidia_key": "file:///srv/toolkit/gpgkey",
        "container_engine_nvidia_fingerprint": key.fingerprint,
    }


def test_the_toolkit_comes_from_its_signed_repository(
    box: Host, run: Run, signers: tuple[Signer, Signer], figure: Callable[[str], None]
) -> None:
    own, other = signers
    write(box, USERS_OWN)
    ours = "find /etc/apt -name '*drafthouse-nvidia*'"
    box.run("sh", "-c", f"apt-get purge -y 'nvidia-container-*' >/dev/null; {ours} -delete")
    for key, signer in ((own, other), (other, other)):
        wishes = {**put_repository(box, key, signer), "container_engine_nvidia_fingerprint": own.fingerprint}
        ended = run(box, **wishes)
        assert ended.status != 0
        assert "apt does not accept" in ended.lines("found")[0]
        assert own.fingerprint in ended.lines("needed")[0]
        assert box.run("sh", "-c", ours).stdout == ""
        assert box.run("dpkg", "-s", "nvidia-container-toolkit", check=False).returncode != 0
    assert settings(box) == json.loads(USERS_OWN)
    wishes = put_repository(box, own, own)
    assert run(box, "--check", "--diff", **wishes).status == 0
    assert box.run("dpkg", "-s", "nvidia-container-toolkit", check=False).returncode != 0
    ended = run(box, **wishes)
    assert ended.status == 0
    assert settings(box) == {
        **json.loads(USERS_OWN),
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
        "features": {"cdi": True},
    }
    assert list(settings(box))[:3] == list(json.loads(USERS_OWN))
    now = info(box)
    assert "nvidia" in now["Runtimes"]
    assert now["CgroupDriver"] == "cgroupfs"
    second = run(box, **wishes)
    assert (second.status, second.changed) == (0, 0)
    # A profile for the processor alone comes later: NVIDIA's entries stay.
    assert run(box, container_engine_nvidia="never", container_engine_reload_safe=False).status == 0
    assert settings(box)["features"] == {"cdi": True}
    figure(
        f"container_engine with NVIDIA's toolkit (made packages): {ended.seconds:.0f} s, "
        f"second run {second.seconds:.0f} s (0 changed)"
    )
