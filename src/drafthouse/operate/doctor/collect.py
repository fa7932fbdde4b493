"""Reads the doctor's facts on a box, part by part, and changes nothing there.

Each function of `_PARTS` reads one part of `checks.registry.PARTS`. Its last argument holds the facts of the parts
before it, so that facts which several parts need are read once.

Standard library only, Python 3.10: it runs with the Python of the box, even if Drafthouse's environment is damaged.
Docker, iptables and systemctl are called on workstations only, as rented containers have none of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...addons.monitoring_ready import wait_for_monitoring
from ...addons.watchdog.journal import FOLDER as WATCHDOG
from ...addons.watchdog.journal import STATE
from ...addons.watchdog.switch import is_box_locked
from ...core.docker_api import DockerApi, EngineError
from ...core.errors import DrafthouseError, Problem
from ...core.locks import is_held
from ...host.box_facts import read_box
from ...host.docker.gpu_check import prove
from ...host.driver.facts import output_of, read_driver
from ...host.env_stamp import STAMP
from ...host.firewall import apply as firewall_box
from ...operate.support_facts import kernel_log, redactor_of
from ...profiles.container import LABEL, PLACE
from ...serving.restore import drift
from ...serving.runtimes import runtime_of
from ...serving.supervisor import Supervisor
from .addresses import addresses, listening
from .deadline import read_watch
from .log_signs import log_signs
from .probe import ask, ask_gateway, read_served_key
from .weights import read_weights

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import (
        ClockFacts,
        ContainerFacts,
        DockerFacts,
        DoctorFacts,
        DoctorOrder,
        EnvironmentFacts,
        FamilyFacts,
        FirewallFacts,
        ImageFacts,
        LogFacts,
        MonitoringFacts,
        Options,
        ServedFacts,
        Space,
        WantedMonitoring,
        WatchdogFacts,
    )


_UNITS = ("drafthouse-firewall-early.service", "drafthouse-firewall.service")
_DOCKER_S = 20.0  # for one answer of Docker
_MONITORING_S = 30.0  # two scrape intervals: the first scrape may be older than the engine's start
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_LIBCUDA = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)")  # its name in a CDI file ends with the driver's version
# A section of supervisord.conf, up to the next one.
_PROGRAM = re.compile(r"^\[program:(?P<name>[^\]]+)\]\n(?P<body>(?:(?!\[).*\n)*)", re.MULTILINE)
# The start script of an arm, in the path of a mounted folder or in a command line: its profile, arm and port.
_SERVE_SCRIPT = re.compile(r"/serve/(?P<profile>[^/]+)/(?P<arm>[^/]+)/serve\.sh\"?(?: --port (?P<port>\d+))?")
_DIST_INFO = re.compile(r"^(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info$")
# Errors that a faulty box causes. Any other exception is a bug of Drafthouse and is not caught.
_BOX_ERRORS = (OSError, ValueError, LookupError, TypeError, EngineError, subprocess.SubprocessError)


def read(order: DoctorOrder, options: Options) -> DoctorFacts:
    """The facts of all requested parts; ``unread`` has the problem of each part that could not be read."""
    facts: DoctorFacts = {"unread": {}, "clock": _clock(), "outside": {"doors": [], "why": "not probed from outside"}}
    for part, read_part in _PARTS.items():
        if options["parts"] and part not in options["parts"]:
            continue
        try:
            facts |= read_part(order, options, facts)
        except DrafthouseError as error:
            facts["unread"][part] = error.problems[0].as_dict()
        except _BOX_ERRORS as error:
            facts["unread"][part] = _unread(error).as_dict()
    return facts


def _unread(error: BaseException) -> Problem:
    """The problem of a part that raised ``error``; mostly the user may not read something."""
    found = f"{type(error).__name__}: {error}"
    needed = "readable data"
    do = "connect as root (ansible_user, ansible_become); check the disk and the container engine"
    return Problem("fact-unreadable", found, needed, do)


# --- GPU --------------------------------------------------------------------------------------------


def _gpu(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The facts of the part `gpu`; the kernel's log only for a profile with a GPU."""
    return {
        **_box(order, facts),
        **_driver(order, options, facts),
        "environment": _environment(order),
        "unattended_upgrades": shutil.which("unattended-upgrade") is not None,
        "kernel_log": kernel_log(["NVRM"]) if order["gpu"] else None,
    }


def _driver(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The fact ``driver``; {} without a GPU, or if an earlier part has read it."""
    if not order["gpu"] or "driver" in facts:
        return {}
    return {"driver": read_driver(options["sys"], options["proc"])}


def _box(order: DoctorOrder, facts: DoctorFacts) -> DoctorFacts:
    """The fact ``box``; {} if an earlier part has read it."""
    if "box" in facts:
        return {}
    site = order["site"]
    box = read_box(
        paths=[site["home"], site["models_dir"]],
        ports=order["ports"],
        supervisor_pidfile=f"{site['home']}/supervisor/supervisord.pid",
        redact=redactor_of(Path(site["home"])),
        gpus=site.get("gpus", ()),
    )
    return {"box": box}


# --- the runtime ------------------------------------------------------------------------------------


def _runtime(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The facts of the part `runtime`: Docker's, or those of the engine's environment and its logs."""
    common = _driver(order, options, facts)
    if order["site"]["runtime"] == "docker":
        common |= _box(order, facts)
        choice = (facts | common)["box"].get("gpu_choice")
        devices = choice["ids"] if choice else ()
        return {**common, "docker": _docker(order, options["prove_container"], devices)}
    folder = Path(order["site"]["home"]) / "logs"
    logs: LogFacts = {
        "bounds": {name: _setting(body, "stdout_logfile_maxbytes") for name, body in _programs(order).items()},
        "bytes": sum(path.stat().st_size for path in folder.glob("*") if path.is_file()),
    }
    return {**common, "environment": _environment(order), "logs": logs}


def _environment(order: DoctorOrder) -> EnvironmentFacts:
    """The engine's Python environment in the process runtime; empty facts if it runs in Docker or is not installed.

    Package versions are read from the names of the folders with metadata: no program of the environment needs to run.
    """
    environment: EnvironmentFacts = {"made": False, "python": False, "error": "", "image": "", "versions": {}}
    home = Path(order["engine"]["home"])
    if order["site"]["runtime"] != "process" or not (home / STAMP).is_file():
        return environment
    environment |= {"made": True, "image": str(json.loads((home / STAMP).read_text("utf-8")).get("image", ""))}
    try:
        done = subprocess.run([str(home / "bin/python"), "-V"], capture_output=True, text=True, timeout=30, check=False)
        environment |= {"python": done.returncode == 0, "error": done.stderr.strip()[:200]}
    except (OSError, subprocess.TimeoutExpired) as error:
        environment["error"] = str(error)
    for folder in home.glob("lib/python3*/site-packages/*.dist-info"):
        match = _DIST_INFO.match(folder.name)
        if match:
            environment["versions"][re.sub(r"[-_.]+", "-", match["name"]).lower()] = match["version"]
    return environment


def _docker(order: DoctorOrder, prove_it: bool = False, devices: Sequence[str] = ()) -> DockerFacts:
    """Docker's facts; toolkit, CDI files and containers are examined for a profile with a GPU only.

    With ``prove_it`` a test container runs with the GPUs ``devices``, by index or UUID (all if empty).
    """
    api = DockerApi(timeout_s=_DOCKER_S)
    try:
        info = api.info()
    except DrafthouseError as error:
        return {"error": error.problems[0].found, "root": ""}
    entries = api.call("GET", "/containers/json", all="1", filters=json.dumps({"label": [LABEL]})) or []
    containers = [_container(api, entry["Id"]) for entry in entries]
    docker: DockerFacts = {
        "error": "",
        "version": str(info.get("ServerVersion", "")),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "root": str(info.get("DockerRootDir", "")),
        "image": _image(api, str(order["engine"]["image"])),
        "containers": containers,
        "toolkit": "",
        "cdi": {},
        "inside": {},
    }
    if not order["gpu"]:
        return docker
    docker["toolkit"] = _toolkit()
    docker["cdi"] = _cdi(info.get("CDISpecDirs") or _CDI_FOLDERS)
    running = [container["name"] for container in containers if container["running"]]
    if running:  # the first one stands for all
        output = _inside(api, running[0], "nvidia-smi", "-L")
        docker["inside"] = {"container": running[0], "output": output[:2000]}
    if prove_it:
        try:
            docker["proof"] = {"gpus": prove(gpu=True, devices=devices).gpus}
        except DrafthouseError as error:
            docker["proof"] = {"problem": error.problems[0].as_dict()}
    return docker


def _inside(api: DockerApi, name: str, *command: str) -> str:
    """The output of a command in the running container ``name``, or the text of the error."""
    try:
        return api.execute(name, command)
    except (OSError, EngineError) as error:
        return str(error)


def _container(api: DockerApi, container_id: str) -> ContainerFacts:
    """The facts of a container of Drafthouse; its profile is in the path of the folder with its start script."""
    container = api.call("GET", f"/containers/{container_id}/json")
    labels = container["Config"]["Labels"]
    profile = ""
    for mount in container["Mounts"]:
        script = _SERVE_SCRIPT.search(f"{mount.get('Source', '')}/serve.sh")
        if script:
            profile = script["profile"]
            break
    return {
        "name": container["Name"].lstrip("/"),
        "arm": labels[LABEL],
        "profile": profile,
        "port": _integer(str(labels.get(PLACE, "")).rpartition(" ")[2]),  # the label holds "CONTAINER PORT"
        "running": container["State"]["Status"] == "running",
        "status": container["State"]["Status"],
        "image": container["Config"]["Image"],
        "image_id": container["Image"],
        "log": container["HostConfig"]["LogConfig"],
    }


def _integer(text: str) -> int | None:
    """The number in ``text``; None for any other text."""
    return int(text) if text.isdigit() else None


def _image(api: DockerApi, name: str) -> ImageFacts | None:
    """The image ``name``; None if the box has none. Raises EngineError for any other answer."""
    try:
        return {"id": api.call("GET", f"/images/{name}/json")["Id"]}
    except EngineError as error:
        if error.status == 404:
            return None
        raise


def _toolkit() -> str:
    """The version of NVIDIA's container toolkit; '' if it is not installed."""
    version = re.search(r"version (\S+)", output_of("nvidia-ctk", "--version"))
    return version[1] if version else ""


def _cdi(folders: Sequence[str]) -> dict[str, str]:
    """By path of a CDI file (container device interface) for NVIDIA GPUs, the driver version that it names."""
    driver_versions = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*")):
            if path.suffix not in (".yaml", ".yml", ".json"):
                continue
            text = path.read_text("utf-8", errors="replace")
            version = _LIBCUDA.search(text)
            if "nvidia.com/gpu" in text and version:
                driver_versions[str(path)] = version[1]
    return driver_versions


def _weights(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The facts of the part `weights`, by the id of the weights."""
    return {"weights": {name: read_weights(Path(path)) for name, path in order["weights"].items()}}


# --- the box ----------------------------------------------------------------------------------------


def _box_part(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The facts of the part `box`; the disk's at Drafthouse's folders and Docker's, or at / if there are none yet."""
    site = order["site"]
    paths = [site["home"], site["models_dir"], f"{site['home']}/logs", (facts.get("docker") or {}).get("root", "")]
    folders = [path for path in dict.fromkeys(paths) if path and Path(path).is_dir()] or ["/"]
    return {
        **_box(order, facts),
        "disk": {path: _space(path) for path in folders},
        "firewall": _firewall(order, options["firewall"]),
        "deadline": read_watch(),
        "listening": {str(port): listening(port) for port in [*order["ports"], *order["monitoring"]["ports"].values()]},
    }


def _space(path: str) -> Space:
    """Free bytes and inodes at ``path``. A file system that counts no inodes reports 1, as it never runs out."""
    space = os.statvfs(path)
    return {"free": space.f_bavail * space.f_frsize, "inodes": space.f_favail if space.f_files else 1}


def _clock() -> ClockFacts:
    """The box's clock; the controller adds its own readings. ``synchronised`` is None without systemd."""
    synchronised = None
    if firewall_box.has_systemd():
        answer = output_of("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
        synchronised = {"yes": True, "no": False}.get(answer)
    return {"time": time.time(), "synchronised": synchronised, "controller": None}


def _firewall(order: DoctorOrder, wanted: bool) -> FirewallFacts:
    """The firewall's rules, or why they are not read: Drafthouse does not manage it, it is not ``wanted``, no root."""
    if not order["site"]["manage_host"]:
        return {"not_here": "Drafthouse does not manage the firewall here (drafthouse_manage_host: false)"}
    if not wanted:
        return {"not_here": "firewall_state is absent"}
    if os.geteuid() != 0:
        return {"not_here": "only root may read the rules"}
    families: dict[str, FamilyFacts] = {}
    for family in firewall_box.families():
        saved = firewall_box.save_output(family)
        kept = [line for line in firewall_box.confirmed_rules(family).splitlines() if line.startswith("-A ")]
        families[str(family)] = {"saved": saved.out, "error": saved.why if saved.status else "", "kept": kept}
    return {
        "not_here": "",
        "families": families,
        "pending": firewall_box.pending(),
        "enabled": not firewall_box.has_systemd() or firewall_box.enabled(_UNITS),
    }


# --- the server -------------------------------------------------------------------------------------


def _server(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """The facts of the part `server`. During a measurement or change no request is sent that could disturb it."""
    key_facts, key = read_served_key(order)
    if is_box_locked(Path(order["site"]["home"])):
        return {"measured": True, "key": key_facts}
    served = _served(order, facts)
    runtime = runtime_of(order["site"]["runtime"], order["site"]["home"])
    return {
        "measured": False,
        "served": served,
        "log_signs": log_signs(order["signatures"], runtime, [arm["arm"] for arm in served]),
        "drift": drift(order["site"]["home"]),
        "key": key_facts,
        "asked": ask(order, key, options["timeout_s"]),
        "gateway": ask_gateway(order, order["gateway"], key) if order["gateway"] else {},
        "monitoring": _monitoring(order["monitoring"]),
        "watchdog": _watchdog(order),
    }


def _monitoring(expected: WantedMonitoring) -> MonitoringFacts:
    """The monitoring's problem (None: none) and the number of rules that Prometheus evaluated; {} if none is set."""
    if not expected["prometheus"]:
        return {}
    try:
        state = wait_for_monitoring(
            expected["prometheus"],
            expected["jobs"],
            grafana=expected["grafana"],
            log="`make logs ONLY=prometheus`",
            timeout_s=_MONITORING_S,
        )
    except DrafthouseError as error:
        return {"problem": error.problems[0].as_dict(), "rules": 0}
    return {"problem": None, "rules": state.rules}


def _watchdog(order: DoctorOrder) -> WatchdogFacts:
    """Whether the watchdog runs, and when it last saved its state (unix seconds; None: never); {} without one."""
    if "watchdog" not in order["site"]:
        return {}
    folder = Path(order["site"]["home"]) / WATCHDOG
    try:
        written = (folder / STATE).stat().st_mtime
    except OSError:
        written = None
    return {"runs": is_held(folder / "lock"), "written": written}


def _served(order: DoctorOrder, facts: DoctorFacts) -> list[ServedFacts]:
    """All servers on the box, running or not: each is an arm (baseline or speculative) of some profile."""
    runtime = runtime_of(order["site"]["runtime"], order["site"]["home"])
    arms = []  # arm, profile, port and Docker's status of each
    if order["site"]["runtime"] == "docker":
        docker = facts.get("docker") or _docker(order)
        for container in docker.get("containers", []):
            arms.append((container["arm"], container["profile"], container["port"], container["status"]))
    else:
        for name, body in _programs(order).items():
            if script := _SERVE_SCRIPT.search(body):
                arms.append((name, script["profile"], _integer(script["port"] or ""), ""))
    servers: list[ServedFacts] = []
    for arm, profile, port, status in arms:
        state = runtime.state(arm)
        servers.append(
            {
                "arm": arm, "profile": profile, "port": port, "status": status,
                "running": state.running, "since": state.started,
                "why": status if status == "paused" else state.why,
            }
        )  # fmt: skip
    return servers


def _programs(order: DoctorOrder) -> dict[str, str]:
    """By program in Drafthouse's supervisord.conf, the text of its section."""
    text = Supervisor(Path(order["site"]["home"]) / "supervisor").present_configuration()
    return {match["name"]: match["body"] for match in _PROGRAM.finditer(text)}


def _setting(body: str, name: str) -> str:
    """The value of a setting in a section of supervisord.conf; '' if it is not set there."""
    line = re.search(rf"^{name} = (.*)$", body, re.MULTILINE)
    return line[1] if line else ""


def _outside(order: DoctorOrder, options: Options, facts: DoctorFacts) -> DoctorFacts:
    """What another machine needs to try the box's ports. The attempts themselves are not made on the box."""
    session = firewall_box.session()
    return {"addresses": addresses(), "client": session.client if session else ""}


_PARTS: Mapping[str, Callable[[DoctorOrder, Options, DoctorFacts], DoctorFacts]] = {
    "gpu": _gpu,
    "runtime": _runtime,
    "weights": _weights,
    "box": _box_part,
    "server": _server,
    "outside": _outside,
}
