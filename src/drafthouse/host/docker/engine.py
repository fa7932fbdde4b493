"""Decide whether Docker must be installed on a machine, from the container engine (the Docker daemon) that it has.

`read_machine` reads the machine and changes nothing. `decide` is pure: it turns these facts and the settings into the
packages to install, or raises all reasons against it. Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.docker_api import SOCKET, DockerApi, EngineError, EngineVersion
from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.files import text_in
from ...profiles.container import LABEL
from ..box_facts import listed_gpus
from ..driver.facts import is_gpu, pci_devices, release_values
from .daemon_plan import run

if TYPE_CHECKING:
    from drafthouse.serving.containers import ListedContainer

# Debian 12's version. Older engines support neither the API version that Drafthouse uses nor cgroup v2.
OLDEST = (20, 10)
# Older toolkits let a container reach the host (CVE-2024-0132), and 1.14.0 to 1.14.4 write `experimental: true` for
# `--cdi.enabled` (NVIDIA/nvidia-container-toolkit#339).
OLDEST_TOOLKIT = "1.16.2"
_DOCKER_PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-compose-plugin")
# The distributions' package names; names that apt does not know are left out. The client is a separate package in
# Debian 13. It must be named, because recommended packages (git among them) are not installed.
_DISTRIBUTION_PACKAGES = ("docker.io", "docker-cli", "docker-compose-v2", "docker-compose")
#: Packages whose versions are read: those to install, and those that bring a rival engine or part of one.
_WATCHED = (
    *_DOCKER_PACKAGES,
    *_DISTRIBUTION_PACKAGES,
    "podman-docker",
    "nvidia-container-toolkit",
    "containerd",
    "runc",
)


@dataclass(frozen=True)
class MachineFacts:
    """The facts of a machine that `decide` needs. Empty text or 0 means absent or unknown."""

    systemd: bool = True
    os_id: str = ""  # ID in os-release
    os_like: str = ""  # ID_LIKE there: the systems that it is built on
    version: str = ""  # VERSION_ID there
    codename: str = ""  # of the release; that of Ubuntu for a system built on it
    architecture: str = ""  # as dpkg names it (amd64)
    answer: EngineVersion = field(default_factory=EngineVersion)  # /version on the engine's socket; {}: no answer
    rootless_answer: bool = False  # that engine runs without root
    command: str = ""  # path of `docker`, links resolved, except a snap's
    command_is_podman: bool = False
    snap: bool = False  # Docker is installed from a snap
    rootless_users: tuple[str, ...] = ()  # who run a rootless dockerd
    packages: Mapping[str, str] = field(default_factory=dict)  # versions of the installed ones of `_WATCHED`, by name
    candidates: Mapping[str, str] = field(default_factory=dict)  # versions that apt would install of them, by name
    unfinished: bool = False  # dpkg was interrupted
    apparmor_missing: bool = False  # the kernel enforces AppArmor, but its loader is not installed
    has_apt: bool = True
    toolkit: str = ""  # version that `nvidia-ctk` reports
    gpus: int = 0  # that the NVIDIA driver lists
    gpu_devices: int = 0  # on the PCI bus, with or without a driver
    missing_users: tuple[str, ...] = ()  # in the settings, but not on the machine


@dataclass(frozen=True)
class Decision:
    """The packages and settings to install, with sentences for the user (``why``)."""

    engine: str  # "left alone", "installed" or "to install"
    install: tuple[str, ...] = ()
    repository: bool = False  # add Docker's apt repository
    nvidia: bool = False  # configure the engine for NVIDIA's toolkit
    nvidia_install: bool = False  # install the toolkit
    gpu_visible: bool = False  # the driver lists a GPU, so a container can be tested with it
    complete: bool = True  # False: apt's index lacks a package of ``install``, so check mode cannot tell
    why: tuple[str, ...] = ()


def decide(machine: MachineFacts, source: str, nvidia: str) -> Decision:
    """The packages and settings to install. Raises DrafthouseError with every reason against it.

    ``source`` is `docker` or `distribution`; ``nvidia`` (NVIDIA's toolkit) is `auto`, `always` or `never`.
    """
    engine, why_engine = _engine_state(machine)
    problems = [*_systemd_problems(machine), *_unsuitable_engines(machine)]
    if machine.answer and not problems:
        problems += _version_problems(str(machine.answer.get("Version", "")))
    if machine.missing_users:
        problems.append(_no_such_users(machine.missing_users))
    wants_nvidia = nvidia == "always" or (nvidia == "auto" and bool(machine.gpus or machine.gpu_devices))
    toolkit = machine.toolkit or machine.packages.get("nvidia-container-toolkit", "")
    if wants_nvidia:
        problems += _toolkit_problems(machine, toolkit)
    install: tuple[str, ...] = ()
    if engine == "to install":
        problems += _release_problems(machine, source)
        install = _engine_packages(machine, source)
    if problems:
        raise DrafthouseError(problems)
    why = []
    if machine.rootless_users:
        why.append(f"the rootless engine of {', '.join(machine.rootless_users)} is left alone: it belongs to that user")
    if why_engine:
        why.append(why_engine)
    return Decision(
        engine=engine,
        install=install,
        repository=bool(install) and source == "docker",
        nvidia=wants_nvidia,
        nvidia_install=wants_nvidia and not toolkit,
        gpu_visible=bool(machine.gpus),
        complete=all(map(machine.candidates.get, install)),
        why=tuple(why),
    )


def _engine_state(machine: MachineFacts) -> tuple[str, str]:
    """The value of `Decision.engine`, and a sentence for the user ('' if an engine must be installed).

    An engine that answers is left alone; an installed package is only started, unless dpkg was interrupted.
    """
    if machine.answer:
        return "left alone", f"Docker {machine.answer.get('Version', '')} answers and is left alone"
    if not machine.unfinished:
        for name in ("docker-ce", "docker.io"):
            if name in machine.packages:
                return "installed", f"{name} {machine.packages[name]} is installed; it is started"
    return "to install", ""


def _engine_packages(machine: MachineFacts, source: str) -> tuple[str, ...]:
    """The names of the engine's packages in Docker's repository or in the distribution's."""
    packages = [*_DOCKER_PACKAGES] if source == "docker" else _distribution_packages(machine)
    if machine.apparmor_missing:
        packages.append("apparmor")
    return tuple(packages)


def leaving(machine: MachineFacts, containers: Sequence[ListedContainer]) -> tuple[str, ...]:
    """The packages to remove. Raises DrafthouseError if that would stop containers that are not Drafthouse's.

    ``containers`` are the running ones, as Docker's API lists them; ours have the label ``drafthouse.arm``.
    """
    foreign_containers = []
    for container in containers:
        if LABEL not in (container.get("Labels") or {}):
            foreign_containers.append(str((container.get("Names") or ["?"])[0]).lstrip("/"))
    if foreign_containers:
        found = f"containers that are not ours are running: {', '.join(sorted(foreign_containers))}"
        needed = "none, because they would stop with the engine"
        do = "stop them, then run again; or leave out container_engine=true to keep Docker"
        raise one_problem("containers-running", found, needed, do, "container_engine")
    ours = (*_DOCKER_PACKAGES, *_DISTRIBUTION_PACKAGES, "nvidia-container-toolkit")
    return tuple(name for name in ours if name in machine.packages)


def running_containers() -> list[ListedContainer]:
    """The running containers, as Docker's API lists them; [] if no engine answers."""
    if not _is_active("docker.service"):
        return []
    try:
        return list(DockerApi(timeout_s=20.0).call("GET", "/containers/json") or [])
    except (OSError, EngineError):
        return []


def read_machine(users: Sequence[str] = ()) -> MachineFacts:
    """Read the facts of this machine. ``users`` are checked for existence."""
    release = release_values(text_in("/etc/os-release"))
    answer, rootless = _engine_version()
    command = _docker_command()
    names = [*_WATCHED, "apparmor"]
    return MachineFacts(
        systemd=Path("/run/systemd/system").is_dir(),
        os_id=release.get("ID", ""),
        os_like=release.get("ID_LIKE", ""),
        version=release.get("VERSION_ID", ""),
        codename=release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME", ""),
        architecture=_stdout("dpkg", "--print-architecture").strip() or platform.machine(),
        answer=answer,
        rootless_answer=rootless,
        command=command,
        command_is_podman=_is_podman(command),
        snap=_is_snap(command),
        rootless_users=_rootless_users(),
        packages=_installed(names),
        candidates=_candidates(names),
        unfinished=any(Path("/var/lib/dpkg/updates").glob("[0-9]*")) or bool(_stdout("dpkg", "--audit").strip()),
        apparmor_missing=_apparmor_missing(),
        has_apt=shutil.which("apt-get") is not None,
        toolkit="".join(re.findall(r"version (\d[\d.]*)", _stdout("nvidia-ctk", "--version"))[:1]),
        gpus=len(listed_gpus()),
        gpu_devices=sum(map(is_gpu, pci_devices())),
        missing_users=tuple(user for user in users if not _stdout("getent", "passwd", user)),
    )


# --- reasons against --------------------------------------------------------------------------------


def _systemd_problems(machine: MachineFacts) -> list[Problem]:
    """The problem of a machine without systemd, else []."""
    if machine.systemd:
        return []
    found = "a box without systemd, such as a rented container"
    needed = "systemd, which starts and restarts Docker"
    do = "use the process runtime here (drafthouse_manage_host: false, drafthouse_runtime: process)"
    return [Problem("no-systemd", found, needed, do, "container_engine")]


def _unsuitable_engines(machine: MachineFacts) -> list[Problem]:
    """The first of these problems, else []: Podman answers, a snap, a rootless engine answers, Podman's command."""
    if any(component.get("Name") == "Podman Engine" for component in machine.answer.get("Components") or []):
        return [_podman_problem(f"Podman behind {SOCKET}")]
    if machine.snap:
        found = f"Docker from a snap ({machine.command or '/snap/docker'})"
        needed = "an engine with access to the whole file system and the NVIDIA toolkit; a snap is confined"
        do = "back up its data, then `snap remove docker` and run again; or use the process runtime"
        return [Problem("docker-unsuitable", found, needed, do, "container_engine")]
    if machine.rootless_answer:
        found = f"a rootless engine behind {SOCKET}"
        needed = "an engine that runs as root: only that one filters ports and assigns GPUs as the profile expects"
        do = f"make the rootless engine listen on its own socket again (unlink {SOCKET}), then run again"
        return [Problem("docker-unsuitable", found, needed, do, "container_engine")]
    if machine.command_is_podman and not machine.answer:  # an engine that answers is Docker, whatever the command
        return [_podman_problem(f"a 'docker' command that is Podman's ({machine.command})")]
    return []


def _podman_problem(found: str) -> Problem:
    """The problem that Podman stands in for Docker."""
    needed = (
        "Docker itself: Podman answers under its name, and neither daemon.json nor the firewall's rules apply to it"
    )
    do = "`apt-get remove podman-docker` (Podman itself may stay), then run again; or use the process runtime"
    return Problem("docker-unsuitable", found, needed, do, "container_engine")


def _version_problems(version: str) -> list[Problem]:
    """The problem of an engine that is too old, else []."""
    if _version_numbers(version) >= OLDEST:
        return []
    found = f"Docker {version}"
    needed = f"{'.'.join(map(str, OLDEST))} or newer"
    do = "upgrade it when its containers may stop; Drafthouse never replaces a working engine"
    return [Problem("docker-unsuitable", found, needed, do, "container_engine")]


def _toolkit_problems(machine: MachineFacts, toolkit: str) -> list[Problem]:
    """The problem of a toolkit (its version) that is too old, or of a missing one ('') where apt is missing too."""
    if toolkit and _version_numbers(toolkit, 3) < _version_numbers(OLDEST_TOOLKIT, 3):
        upgrade = "apt-get install --only-upgrade" if machine.has_apt else "upgrade, by this system's packages,"
        found = f"NVIDIA Container Toolkit {toolkit}"
        needed = f"{OLDEST_TOOLKIT} or newer: from an older one a container can reach the host (CVE-2024-0132)"
        do = f"{upgrade} nvidia-container-toolkit, then run again; Drafthouse never replaces a working one"
        return [Problem("docker-unsuitable", found, needed, do, "container_engine")]
    if not toolkit and not machine.has_apt:
        found = f"no NVIDIA Container Toolkit, on {machine.os_id or 'a system'} {machine.version} without apt"
        needed = f"NVIDIA Container Toolkit {OLDEST_TOOLKIT} or newer"
        do = (
            "install nvidia-container-toolkit the way this system does, then run again: a working one is left"
            " alone; or use the process runtime (drafthouse_runtime: process)"
        )
        return [Problem("unsupported-system", found, needed, do, "container_engine")]
    return []


def _no_such_users(users: Sequence[str]) -> Problem:
    """The problem that the settings name users who are not on the machine."""
    found = f"no user {', '.join(users)} on the box"
    needed = "existing users: none is created here"
    do = "create them first, or remove them from container_engine_users"
    return Problem("no-such-user", found, needed, do, "container_engine_users")


def _release_problems(machine: MachineFacts, source: str) -> list[Problem]:
    """The problem of a system for which Docker's own repository has no packages, if that is the ``source``; else []."""
    if source != "docker" or docker_distribution(machine):
        return []
    found = f"{machine.os_id or 'an unknown system'} {machine.version}"
    needed = "Debian, Ubuntu, or one built on Ubuntu: Docker's repository has packages for these"
    do = "set container_engine_source=distribution, or install an engine yourself: a working one is left alone"
    return [Problem("unsupported-system", found, needed, do, "container_engine_source")]


def docker_distribution(machine: MachineFacts) -> str:
    """The folder of Docker's repository for this system, `debian` or `ubuntu`; "" if it has none.

    A system built on Ubuntu gets Ubuntu's; without a codename no release in the folder can be named.
    """
    if not machine.codename:
        return ""
    if machine.os_id in ("debian", "ubuntu"):
        return machine.os_id
    return "ubuntu" if "ubuntu" in machine.os_like.split() else ""


def _distribution_packages(machine: MachineFacts) -> list[str]:
    """The distribution's packages for engine, client and compose plugin; the last two only if apt knows them."""
    engine, client, *compose = _DISTRIBUTION_PACKAGES
    packages = [engine]
    if machine.candidates.get(client):
        packages.append(client)
    # docker-compose is the plugin from version 2 on; version 1 is a Python program.
    for plugin in compose:
        if _version_numbers(machine.candidates.get(plugin, "")) >= (2, 0):
            return [*packages, plugin]
    return packages


# --- reading the machine ----------------------------------------------------------------------------


def _stdout(*command: str) -> str:
    """Standard output of a program, whatever its exit status; '' if it is missing or takes over a minute."""
    try:
        return run(command).stdout
    except subprocess.TimeoutExpired:
        return ""


def _engine_version() -> tuple[EngineVersion, bool]:
    """The version answer of the engine ({} if none answers), and True if the engine runs without root."""
    # systemd would start a stopped engine at a connection to its socket, but reading must not change anything.
    if not _is_active("docker.service") and _is_active("docker.socket"):
        return {}, False
    api = DockerApi(timeout_s=20.0)
    try:
        version = api.version()
        options = api.info().get("SecurityOptions") or []
    except DrafthouseError:
        return {}, False
    return version, any("rootless" in str(option) for option in options)


def _is_active(unit: str) -> bool:
    """True if systemd's unit runs, or is just being started."""
    return _stdout("systemctl", "is-active", unit).strip() in ("active", "reloading", "activating")


def _docker_command() -> str:
    """The path of the program `docker`, with links resolved; '' if there is none."""
    path = shutil.which("docker", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin:/snap/bin")
    if not path:
        return ""
    # A snap's command links to /usr/bin/snap, so the unresolved path says more.
    return path if path.startswith("/snap/") else os.path.realpath(path)


def _is_podman(command: str) -> bool:
    """True if the program is Podman, or a script that calls it, as the package podman-docker installs."""
    if not command:
        return False
    if "podman" in Path(command).name:
        return True
    try:
        with Path(command).open("rb") as file:
            head = file.read(2048)
    except OSError:
        return False
    return head.startswith(b"#!") and b"podman" in head


def _is_snap(command: str) -> bool:
    """True if Docker is installed from a snap, even if the first `docker` in the path is another one."""
    return command.startswith(("/snap/", "/var/lib/snapd/")) or Path("/snap/docker/current").exists()


def _rootless_users() -> tuple[str, ...]:
    """Users other than root who run a dockerd process, by name, or by uid if they have no name."""
    users = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() != "dockerd":
                continue
            owner = folder.stat().st_uid
        except OSError:
            continue  # the process has ended meanwhile
        if owner != 0:
            users.add(_stdout("getent", "passwd", str(owner)).partition(":")[0] or str(owner))
    return tuple(sorted(users))


def _installed(names: Sequence[str]) -> dict[str, str]:
    """Versions by name of the packages in ``names`` that are completely installed."""
    versions = {}
    for line in _stdout("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev} ${Version}\n", *names).splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] == "ii":
            versions[fields[0]] = fields[2]
    return versions


def _candidates(names: Sequence[str]) -> dict[str, str]:
    """By name, the version that apt would install of the packages ``names``; unknown packages are left out."""
    versions = {}
    name = ""  # of the package that the lines are about
    for line in _stdout("apt-cache", "policy", *names).splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif (match := re.match(r"\s+Candidate: (\S+)", line)) and match[1] != "(none)":
            versions[name] = match[1]
    return versions


def _apparmor_missing() -> bool:
    """True if the kernel enforces AppArmor but its loader is missing, so that no container would start."""
    enabled = text_in("/sys/module/apparmor/parameters/enabled").strip() == "Y"
    return enabled and not shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")


def _version_numbers(version: str, most: int = 2) -> tuple[int, ...]:
    """The first ``most`` numbers of a version, for comparison: without Debian's epoch, and without its revision."""
    plain = version.partition(":")[2] or version
    upstream = plain.partition("+")[0].partition("-")[0]
    return tuple(map(int, re.findall(r"\d+", upstream)[:most]))
