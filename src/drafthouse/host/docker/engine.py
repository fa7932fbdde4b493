"""What container engine a box has, and whether ours can be installed beside or instead of it.

`look` reads the box and changes nothing; `decide` is pure: what was seen and what is wished in, what to
install or all the reasons against it out. Standard library only, Python 3.10.
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

# The oldest that Debian 12 ships; older ones know neither our API version nor cgroup v2.
OLDEST = (20, 10)
# Older ones let a container out (CVE-2024-0132), and 1.14.0 to 1.14.4 write `experimental: true` for `--cdi.enabled`
# (NVIDIA/nvidia-container-toolkit#339).
OLDEST_TOOLKIT = "1.16.2"
_DOCKER_PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-compose-plugin")
# What a distribution calls the parts; those it does not have are left out. Recommends are not installed
# (git among them), so the client is named: Debian 13 splits it off.
_DISTRIBUTION_PACKAGES = ("docker.io", "docker-cli", "docker-compose-v2", "docker-compose")
_WATCHED = (
    *_DOCKER_PACKAGES,
    *_DISTRIBUTION_PACKAGES,
    "podman-docker",
    "nvidia-container-toolkit",
    "containerd",
    "runc",
)


@dataclass(frozen=True)
class Seen:
    """What there is on a box."""

    systemd: bool = True
    os_id: str = ""
    os_like: str = ""
    version: str = ""
    codename: str = ""
    architecture: str = ""
    answer: EngineVersion = field(default_factory=EngineVersion)  # of /version on the engine's socket
    rootless_answer: bool = False  # what answers there runs without root
    command: str = ""  # where `docker` really lies
    command_is_podman: bool = False
    snap: bool = False
    rootless_users: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    candidates: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False  # dpkg was interrupted
    apparmor_missing: bool = False
    has_apt: bool = True
    toolkit: str = ""  # NVIDIA's, by its own command: the version
    gpus: int = 0
    gpu_devices: int = 0
    missing_users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decision:
    """What follows from what was seen. ``why`` are lines for a person."""

    engine: str  # "left alone", "installed" or "to install"
    install: tuple[str, ...] = ()
    repository: bool = False
    nvidia: bool = False
    nvidia_install: bool = False
    gpu_visible: bool = False
    complete: bool = True  # False: apt knows none of the packages yet; only a real run can tell
    why: tuple[str, ...] = ()


def decide(seen: Seen, source: str, nvidia: str) -> Decision:
    """What to install; DrafthouseError holds every reason why that cannot be.

    ``source`` is `docker` or `distribution`, ``nvidia`` `auto`, `always` or `never`.
    """
    engine, why_engine = _engine_state(seen)
    problems = [*_unfit(seen), *_other_engines(seen)]
    if seen.answer and not problems:
        problems += _too_old(str(seen.answer.get("Version", "")))
    if seen.missing_users:
        problems.append(_no_such_users(seen.missing_users))
    wants_nvidia = nvidia == "always" or (nvidia == "auto" and bool(seen.gpus or seen.gpu_devices))
    toolkit = seen.toolkit or seen.packages.get("nvidia-container-toolkit", "")
    if wants_nvidia:
        problems += _toolkit_unfit(seen, toolkit)
    install: tuple[str, ...] = ()
    if engine == "to install":
        problems += _unknown_release(seen, source)
        install = _engine_packages(seen, source)
    if problems:
        raise DrafthouseError(problems)
    why = []
    if seen.rootless_users:
        why.append(f"the rootless engine of {', '.join(seen.rootless_users)} is left alone: it belongs to that user")
    if why_engine:
        why.append(why_engine)
    return Decision(
        engine=engine,
        install=install,
        repository=bool(install) and source == "docker",
        nvidia=wants_nvidia,
        nvidia_install=wants_nvidia and not toolkit,
        gpu_visible=bool(seen.gpus),
        complete=all(map(seen.candidates.get, install)),
        why=tuple(why),
    )


def _engine_state(seen: Seen) -> tuple[str, str]:
    """The word for `Decision.engine`, and a sentence for people ('' where an engine is to be installed)."""
    if seen.answer:
        return "left alone", f"Docker {seen.answer.get('Version', '')} answers and is left alone"
    if not seen.unfinished:
        for name in ("docker-ce", "docker.io"):
            if name in seen.packages:
                return "installed", f"{name} {seen.packages[name]} is installed; it is started"
    return "to install", ""


def _engine_packages(seen: Seen, source: str) -> tuple[str, ...]:
    """The packages of an engine, from Docker's repository or from the distribution's."""
    packages = [*_DOCKER_PACKAGES] if source == "docker" else _of_distribution(seen)
    if seen.apparmor_missing:
        packages.append("apparmor")
    return tuple(packages)


def leaving(seen: Seen, containers: Sequence[ListedContainer]) -> tuple[str, ...]:
    """The packages to remove; DrafthouseError where that would end what is not ours.

    ``containers`` are those that run, as Docker's API lists them; ours carry the label ``drafthouse.arm``.
    """
    names = []
    for container in containers:
        if LABEL not in (container.get("Labels") or {}):
            names.append(str((container.get("Names") or ["?"])[0]).lstrip("/"))
    if names:
        raise one_problem(
            "containers-running",
            f"containers that are not ours are running: {', '.join(sorted(names))}",
            "none, because they would stop with the engine",
            "stop them, then run again; or leave out container_engine=true to keep Docker",
            "container_engine",
        )
    ours = (*_DOCKER_PACKAGES, *_DISTRIBUTION_PACKAGES, "nvidia-container-toolkit")
    return tuple(name for name in ours if name in seen.packages)


def running_containers() -> list[ListedContainer]:
    """The containers that run, as Docker's API lists them; none where no engine answers."""
    if not _runs("docker.service"):
        return []
    try:
        return list(DockerApi(timeout_s=20.0).call("GET", "/containers/json") or [])
    except (OSError, EngineError):
        return []


def look(users: Sequence[str] = ()) -> Seen:
    """What there is on this box."""
    release = release_values(text_in("/etc/os-release"))
    answer, rootless = _answer()
    command = _real_command()
    names = [*_WATCHED, "apparmor"]
    return Seen(
        systemd=Path("/run/systemd/system").is_dir(),
        os_id=release.get("ID", ""),
        os_like=release.get("ID_LIKE", ""),
        version=release.get("VERSION_ID", ""),
        codename=release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME", ""),
        architecture=_output("dpkg", "--print-architecture").strip() or platform.machine(),
        answer=answer,
        rootless_answer=rootless,
        command=command,
        command_is_podman=_is_podman(command),
        snap=_is_snap(command),
        rootless_users=_rootless_users(),
        packages=_installed(names),
        candidates=_candidates(names),
        unfinished=any(Path("/var/lib/dpkg/updates").glob("[0-9]*")) or bool(_output("dpkg", "--audit").strip()),
        apparmor_missing=_apparmor_missing(),
        has_apt=shutil.which("apt-get") is not None,
        toolkit="".join(re.findall(r"version (\d[\d.]*)", _output("nvidia-ctk", "--version"))[:1]),
        gpus=len(listed_gpus()),
        gpu_devices=sum(map(is_gpu, pci_devices())),
        missing_users=tuple(user for user in users if not _output("getent", "passwd", user)),
    )


# --- reasons against --------------------------------------------------------------------------------


def _unfit(seen: Seen) -> list[Problem]:
    if seen.systemd:
        return []
    do = "use the process runtime here (drafthouse_manage_host: false, drafthouse_runtime: process)"
    found, needed = "a box without systemd, such as a rented container", "systemd, which starts and restarts Docker"
    return [Problem("no-systemd", found, needed, do, "container_engine")]


def _other_engines(seen: Seen) -> list[Problem]:
    if any(part.get("Name") == "Podman Engine" for part in seen.answer.get("Components") or []):
        return [_podman(f"Podman behind {SOCKET}")]
    if seen.snap:
        return [
            Problem(
                "docker-unsuitable",
                f"Docker from a snap ({seen.command or '/snap/docker'})",
                "an engine with access to the whole file system and the NVIDIA toolkit; a snap is confined",
                "back up its data, then `snap remove docker` and run again; or use the process runtime",
                "container_engine",
            )
        ]
    if seen.rootless_answer:
        return [
            Problem(
                "docker-unsuitable",
                f"a rootless engine behind {SOCKET}",
                "an engine that runs as root: only that one filters ports and assigns GPUs as the profile expects",
                f"make the rootless engine listen on its own socket again (unlink {SOCKET}), then run again",
                "container_engine",
            )
        ]
    if seen.command_is_podman and not seen.answer:
        return [_podman(f"a 'docker' command that is Podman's ({seen.command})")]
    return []


def _podman(found: str) -> Problem:
    return Problem(
        "docker-unsuitable",
        found,
        "Docker itself: Podman answers under its name, and neither daemon.json nor the firewall's rules apply to it",
        "`apt-get remove podman-docker` (Podman itself may stay), then run again; or use the process runtime",
        "container_engine",
    )


def _too_old(version: str) -> list[Problem]:
    if _numbers(version) >= OLDEST:
        return []
    return [
        Problem(
            "docker-unsuitable",
            f"Docker {version}",
            f"{'.'.join(map(str, OLDEST))} or newer",
            "upgrade it when its containers may stop; Drafthouse never replaces a working engine",
            "container_engine",
        )
    ]


def _toolkit_unfit(seen: Seen, toolkit: str) -> list[Problem]:
    """What is wrong with NVIDIA's toolkit of version ``toolkit``, or with installing it where that is ''."""
    if toolkit and _numbers(toolkit, 3) < _numbers(OLDEST_TOOLKIT, 3):
        how = "apt-get install --only-upgrade" if seen.has_apt else "upgrade, by this system's packages,"
        return [
            Problem(
                "docker-unsuitable",
                f"NVIDIA Container Toolkit {toolkit}",
                f"{OLDEST_TOOLKIT} or newer: from an older one a container can reach the host (CVE-2024-0132)",
                f"{how} nvidia-container-toolkit, then run again; Drafthouse never replaces a working one",
                "container_engine",
            )
        ]
    if not toolkit and not seen.has_apt:
        return [
            Problem(
                "unsupported-system",
                f"no NVIDIA Container Toolkit, on {seen.os_id or 'a system'} {seen.version} without apt",
                f"NVIDIA Container Toolkit {OLDEST_TOOLKIT} or newer",
                "install nvidia-container-toolkit the way this system does, then run again: a working one is left"
                " alone; or use the process runtime (drafthouse_runtime: process)",
                "container_engine",
            )
        ]
    return []


def _no_such_users(users: Sequence[str]) -> Problem:
    return Problem(
        "no-such-user",
        f"no user {', '.join(users)} on the box",
        "existing users: none is created here",
        "create them first, or remove them from container_engine_users",
        "container_engine_users",
    )


def _unknown_release(seen: Seen, source: str) -> list[Problem]:
    if source != "docker" or docker_distribution(seen):
        return []
    return [
        Problem(
            "unsupported-system",
            f"{seen.os_id or 'an unknown system'} {seen.version}",
            "Debian, Ubuntu, or one built on Ubuntu: Docker's repository has packages for these",
            "set container_engine_source=distribution, or install an engine yourself: a working one is left alone",
            "container_engine_source",
        )
    ]


def docker_distribution(seen: Seen) -> str:
    """The folder of Docker's repository for this box, `debian` or `ubuntu`; "" where there is none."""
    if not seen.codename:
        return ""
    if seen.os_id in ("debian", "ubuntu"):
        return seen.os_id
    return "ubuntu" if "ubuntu" in seen.os_like.split() else ""


def _of_distribution(seen: Seen) -> list[str]:
    """The distribution's names for engine, client and compose. Only the first is needed in any case."""
    engine, client, *compose = _DISTRIBUTION_PACKAGES
    named = [engine]
    if seen.candidates.get(client):
        named.append(client)
    # docker-compose is the plugin from version 2 on; the first one was a program in Python.
    for plugin in compose:
        if _numbers(seen.candidates.get(plugin, "")) >= (2, 0):
            return [*named, plugin]
    return named


# --- looking ----------------------------------------------------------------------------------------


def _output(*command: str) -> str:
    """Standard output of a program, whatever its exit status; '' where it is missing or takes over a minute."""
    try:
        return run(command).stdout
    except subprocess.TimeoutExpired:
        return ""


def _answer() -> tuple[EngineVersion, bool]:
    """What answers on the engine's socket, and whether that runs without root."""
    # A stopped engine is not woken through its socket: it may be broken, and a look changes nothing.
    if not _runs("docker.service") and _runs("docker.socket"):
        return {}, False
    api = DockerApi(timeout_s=20.0)
    try:
        version, options = api.version(), api.info().get("SecurityOptions") or []
    except DrafthouseError:
        return {}, False
    return version, any("rootless" in str(option) for option in options)


def _runs(unit: str) -> bool:
    return _output("systemctl", "is-active", unit).strip() in ("active", "reloading", "activating")


def _real_command() -> str:
    found = shutil.which("docker", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin:/snap/bin")
    if not found:
        return ""
    # A snap's command is a link to /usr/bin/snap, which tells less than where it lies.
    return found if found.startswith("/snap/") else os.path.realpath(found)


def _is_podman(command: str) -> bool:
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
    return command.startswith(("/snap/", "/var/lib/snapd/")) or Path("/snap/docker/current").exists()


def _rootless_users() -> tuple[str, ...]:
    """The users whose own dockerd runs, by name or number."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() != "dockerd":
                continue
            owner = folder.stat().st_uid
        except OSError:
            continue  # ended since it was listed
        if owner != 0:
            found.add(_output("getent", "passwd", str(owner)).partition(":")[0] or str(owner))
    return tuple(sorted(found))


def _installed(names: Sequence[str]) -> dict[str, str]:
    """The versions of those of ``names`` that are wholly installed."""
    found = {}
    for line in _output("dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev} ${Version}\n", *names).splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] == "ii":
            found[fields[0]] = fields[2]
    return found


def _candidates(names: Sequence[str]) -> dict[str, str]:
    """The version that apt would install of each of ``names``, without those it does not know."""
    found, name = {}, ""
    for line in _output("apt-cache", "policy", *names).splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        elif (match := re.match(r"\s+Candidate: (\S+)", line)) and match[1] != "(none)":
            found[name] = match[1]
    return found


def _apparmor_missing() -> bool:
    """Tell whether the kernel enforces AppArmor and its loader is not there: no container would start."""
    enabled = text_in("/sys/module/apparmor/parameters/enabled").strip() == "Y"
    return enabled and not shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin")


def _numbers(version: str, most: int = 2) -> tuple[int, ...]:
    """The leading numbers of a version, without Debian's epoch."""
    plain = version.partition(":")[2] or version
    upstream = plain.partition("+")[0].partition("-")[0]
    return tuple(map(int, re.findall(r"\d+", upstream)[:most]))
