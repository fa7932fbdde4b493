"""Everything that the doctor reads on a box, part by part, without changing anything.

Standard library only, Python 3.10: it runs with whatever Python the box has, also where our own environment is gone.
Programs that only a workstation has (Docker's, iptables, systemctl) are asked on no rental.
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
from ...addons.watchdog.switch import is_held, is_measured
from ...core.docker_api import DockerApi, EngineError
from ...core.errors import DrafthouseError, Problem
from ...host.box_facts import read_box
from ...host.docker.gpu_check import prove
from ...host.driver.facts import read_driver, said
from ...host.env_stamp import STAMP
from ...host.firewall import apply as firewall_box
from ...operate.support_facts import kernel_log, redactor_of
from ...profiles.container import LABEL
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
        Asked,
        ClockFacts,
        ContainerFacts,
        DockerFacts,
        DoctorFacts,
        EnvironmentFacts,
        FamilyFacts,
        FirewallFacts,
        Given,
        ImageFacts,
        MonitoringFacts,
        ServedFacts,
        Space,
        WantedMonitoring,
        WatchdogFacts,
    )


_UNITS = ("drafthouse-firewall-early.service", "drafthouse-firewall.service")
_DOCKER_S = 20.0
_LOOK_AGAIN_S = 30.0  # two of Prometheus's looks: of an engine just started it may know only the one before
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_LIBCUDA = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)")
_PROGRAM = re.compile(r"^\[program:(?P<name>[^\]]+)\]\n(?P<body>(?:(?!\[).*\n)*)", re.MULTILINE)
_SCRIPT = re.compile(r"/serve/(?P<profile>[^/]+)/(?P<arm>[^/]+)/serve\.sh\"?(?: --port (?P<port>\d+))?")
_DIST = re.compile(r"^(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info$")
# What a box that is ill may answer with. Anything else is a fault of ours, and shall be seen as one.
_ILL = (OSError, ValueError, LookupError, TypeError, EngineError, subprocess.SubprocessError)


def read(asked: Asked, given: Given) -> DoctorFacts:
    """The facts for ``asked``; a part of which something could not be read is among the ``unread``."""
    facts: DoctorFacts = {"unread": {}, "clock": _clock(), "outside": {"doors": [], "why": "not probed from outside"}}
    for part, look in _PARTS.items():
        if given["parts"] and part not in given["parts"]:
            continue
        try:
            facts |= look(asked, given, facts)
        except DrafthouseError as error:
            facts["unread"][part] = error.problems[0].as_dict()
        except _ILL as error:
            facts["unread"][part] = _unread(error).as_dict()
    return facts


def _unread(error: BaseException) -> Problem:
    return Problem(
        "fact-unreadable",
        f"{type(error).__name__}: {error}",
        "readable data",
        "connect as root (ansible_user, ansible_become); check the disk and the container engine",
    )


# --- GPU --------------------------------------------------------------------------------------------


def _gpu(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    return {
        **_box(asked, facts),
        **_driver(asked, given, facts),
        "environment": _environment(asked),
        "unattended_upgrades": shutil.which("unattended-upgrade") is not None,
        "kernel_log": kernel_log(["NVRM"]) if asked["gpu"] else None,
    }


def _driver(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    if not asked["gpu"] or "driver" in facts:
        return {}
    return {"driver": read_driver(given["sys"], given["proc"])}


def _box(asked: Asked, facts: DoctorFacts) -> DoctorFacts:
    if "box" in facts:
        return {}
    site = asked["site"]
    pidfile = f"{site['home']}/supervisor/supervisord.pid"
    folders, redact = [site["home"], site["models_dir"]], redactor_of(Path(site["home"]))
    return {"box": read_box(folders, asked["ports"], pidfile, redact, site.get("gpus", ()))}


# --- the runtime ------------------------------------------------------------------------------------


def _runtime(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    found = _driver(asked, given, facts)
    if asked["site"]["runtime"] == "docker":
        found |= _box(asked, facts)
        choice = (facts | found)["box"].get("gpu_choice")
        return {**found, "docker": _docker(asked, given["prove_container"], choice["ids"] if choice else ())}
    logs = Path(asked["site"]["home"]) / "logs"
    return {
        **found,
        "environment": _environment(asked),
        "logs": {
            "bounds": {name: _setting(body, "stdout_logfile_maxbytes") for name, body in _programs(asked).items()},
            "bytes": sum(path.stat().st_size for path in logs.glob("*") if path.is_file()),
        },
    }


def _environment(asked: Asked) -> EnvironmentFacts:
    """What is known of the engine's environment of the process runtime; nothing where it runs in an image."""
    found: EnvironmentFacts = {"made": False, "python": False, "error": "", "image": "", "versions": {}}
    home = Path(asked["engine"]["home"])
    if asked["site"]["runtime"] != "process" or not (home / STAMP).is_file():
        return found
    found |= {"made": True, "image": str(json.loads((home / STAMP).read_text("utf-8")).get("image", ""))}
    try:
        done = subprocess.run([str(home / "bin/python"), "-V"], capture_output=True, text=True, timeout=30, check=False)
        found |= {"python": done.returncode == 0, "error": done.stderr.strip()[:200]}
    except (OSError, subprocess.TimeoutExpired) as error:
        found["error"] = str(error)
    for folder in home.glob("lib/python3*/site-packages/*.dist-info"):
        match = _DIST.match(folder.name)
        if match:
            found["versions"][re.sub(r"[-_.]+", "-", match["name"]).lower()] = match["version"]
    return found


def _docker(asked: Asked, prove_it: bool = False, devices: Sequence[str] = ()) -> DockerFacts:
    """What is known of Docker; ``devices``: the GPUs that a container is given to prove it, none means all."""
    api = DockerApi(timeout_s=_DOCKER_S)
    try:
        info = api.info()
    except DrafthouseError as error:
        return {"error": error.problems[0].found, "root": ""}
    listed = api.call("GET", "/containers/json", all="1", filters=json.dumps({"label": [LABEL]})) or []
    containers = [_container(api, entry["Id"]) for entry in listed]
    found: DockerFacts = {
        "error": "",
        "version": str(info.get("ServerVersion", "")),
        "runtimes": sorted(info.get("Runtimes") or {}),
        "root": str(info.get("DockerRootDir", "")),
        "image": _image(api, str(asked["engine"]["image"])),
        "containers": containers,
        "toolkit": "",
        "cdi": {},
        "inside": {},
    }
    if not asked["gpu"]:
        return found
    found["toolkit"] = _toolkit()
    found["cdi"] = _cdi(info.get("CDISpecDirs") or _CDI_FOLDERS)
    running = [container["name"] for container in containers if container["running"]]
    if running:
        output = _inside(api, running[0], "nvidia-smi", "-L")
        found["inside"] = {"container": running[0], "output": output[:2000]}
    if prove_it:
        try:
            found["proof"] = {"gpus": prove(gpu=True, devices=devices).gpus}
        except DrafthouseError as error:
            found["proof"] = {"problem": error.problems[0].as_dict()}
    return found


def _inside(api: DockerApi, name: str, *command: str) -> str:
    try:
        return api.execute(name, command)
    except (OSError, EngineError) as error:
        return str(error)


def _container(api: DockerApi, number: str) -> ContainerFacts:
    container = api.call("GET", f"/containers/{number}/json")
    labels, profile = container["Config"]["Labels"], ""
    for mount in container["Mounts"]:
        script = _SCRIPT.search(f"{mount.get('Source', '')}/serve.sh")
        if script:
            profile = script["profile"]
            break
    return {
        "name": container["Name"].lstrip("/"),
        "arm": labels[LABEL],
        "profile": profile,
        "port": _number(str(labels.get("drafthouse_at", "")).rpartition(" ")[2]),
        "running": container["State"]["Status"] == "running",
        "status": container["State"]["Status"],
        "image": container["Config"]["Image"],
        "image_id": container["Image"],
        "log": container["HostConfig"]["LogConfig"],
    }


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _image(api: DockerApi, name: str) -> ImageFacts | None:
    try:
        return {"id": api.call("GET", f"/images/{name}/json")["Id"]}
    except EngineError as error:
        if error.status == 404:
            return None
        raise


def _toolkit() -> str:
    found = re.search(r"version (\S+)", said("nvidia-ctk", "--version"))
    return found[1] if found else ""


def _cdi(folders: Sequence[str]) -> dict[str, str]:
    """The specifications of NVIDIA's GPUs, by file, with the driver that each was made of."""
    found = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*")):
            if path.suffix not in (".yaml", ".yml", ".json"):
                continue
            text = path.read_text("utf-8", errors="replace")
            version = _LIBCUDA.search(text)
            if "nvidia.com/gpu" in text and version:
                found[str(path)] = version[1]
    return found


def _weights(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    return {"weights": {name: read_weights(Path(path)) for name, path in asked["weights"].items()}}


# --- the box ----------------------------------------------------------------------------------------


def _of_the_box(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    site = asked["site"]
    paths = [site["home"], site["models_dir"], f"{site['home']}/logs", (facts.get("docker") or {}).get("root", "")]
    there = [path for path in dict.fromkeys(paths) if path and Path(path).is_dir()] or ["/"]
    return {
        **_box(asked, facts),
        "disk": {path: _space(path) for path in there},
        "firewall": _firewall(asked, given["firewall"]),
        "deadline": read_watch(),
        "listening": {str(port): listening(port) for port in [*asked["ports"], *asked["monitoring"]["ports"].values()]},
    }


def _space(path: str) -> Space:
    """Free bytes and inodes; file systems that count no inodes never run out of them."""
    space = os.statvfs(path)
    return {"free": space.f_bavail * space.f_frsize, "inodes": space.f_favail if space.f_files else 1}


def _clock() -> ClockFacts:
    synchronised = None
    if firewall_box.has_systemd():
        answer = said("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
        synchronised = {"yes": True, "no": False}.get(answer)
    return {"time": time.time(), "synchronised": synchronised, "controller": None}


def _firewall(asked: Asked, wanted: bool) -> FirewallFacts:
    if not asked["site"]["manage_host"]:
        return {"not_here": "Drafthouse does not manage the firewall here (drafthouse_manage_host: false)"}
    if not wanted:
        return {"not_here": "firewall_state is absent"}
    if os.geteuid() != 0:
        return {"not_here": "only root may read the rules"}
    families: dict[str, FamilyFacts] = {}
    for family in firewall_box.families():
        saved = firewall_box.saved(family)
        kept = [line for line in firewall_box.kept(family).splitlines() if line.startswith("-A ")]
        families[str(family)] = {"saved": saved.out, "error": saved.why if saved.status else "", "kept": kept}
    systemd = firewall_box.has_systemd()
    return {
        "not_here": "",
        "families": families,
        "pending": firewall_box.pending(),
        "enabled": not systemd or firewall_box.enabled(_UNITS),
    }


# --- the server -------------------------------------------------------------------------------------


def _server(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    trouble, key = read_served_key(asked)
    if is_measured(Path(asked["site"]["home"])):
        return {"measured": True, "key": trouble}
    served, runtime = _served(asked, facts), runtime_of(asked["site"]["runtime"], asked["site"]["home"])
    return {
        "measured": False,
        "served": served,
        "log_signs": log_signs(asked["signatures"], runtime, [arm["arm"] for arm in served]),
        "drift": drift(asked["site"]["home"]),
        "key": trouble,
        "asked": ask(asked, key, given["timeout_s"]),
        "gateway": ask_gateway(asked, asked["gateway"], key) if asked["gateway"] else {},
        "monitoring": _monitoring(asked["monitoring"]),
        "watchdog": _watchdog(asked),
    }


def _monitoring(wished: WantedMonitoring) -> MonitoringFacts:
    """What is wrong with it, as a problem or None, and how many rules it has evaluated."""
    if not wished["prometheus"]:
        return {}
    try:
        seen = wait_for_monitoring(
            wished["prometheus"],
            wished["jobs"],
            grafana=wished["grafana"],
            log="`make logs ONLY=prometheus`",
            timeout_s=_LOOK_AGAIN_S,
        )
    except DrafthouseError as error:
        return {"problem": error.problems[0].as_dict(), "rules": 0}
    return {"problem": None, "rules": seen.rules}


def _watchdog(asked: Asked) -> WatchdogFacts:
    """Whether its program runs, and when it last wrote its state (unix seconds, None: never)."""
    if "watchdog" not in asked["site"]:
        return {}
    folder = Path(asked["site"]["home"]) / WATCHDOG
    try:
        written = (folder / STATE).stat().st_mtime
    except OSError:
        written = None
    return {"runs": is_held(folder / "lock"), "written": written}


def _served(asked: Asked, facts: DoctorFacts) -> list[ServedFacts]:
    """The arms that are there, of any profile."""
    runtime = runtime_of(asked["site"]["runtime"], asked["site"]["home"])
    arms = []
    if asked["site"]["runtime"] == "docker":
        docker = facts.get("docker") or _docker(asked)
        for container in docker.get("containers", []):
            arms.append((container["arm"], container["profile"], container["port"], container["status"]))
    else:
        for name, body in _programs(asked).items():
            if script := _SCRIPT.search(body):
                arms.append((name, script["profile"], _number(script["port"] or ""), ""))
    found: list[ServedFacts] = []
    for arm, profile, port, status in arms:
        state = runtime.state(arm)
        why = status if status == "paused" else state.why
        found.append(
            {
                "arm": arm, "profile": profile, "port": port, "status": status,
                "running": state.running, "since": state.started, "why": why,
            }
        )  # fmt: skip
    return found


def _programs(asked: Asked) -> dict[str, str]:
    """The programs of our supervisord's configuration, each with its settings as they are written."""
    text = Supervisor(Path(asked["site"]["home"]) / "supervisor").present_configuration()
    return {match["name"]: match["body"] for match in _PROGRAM.finditer(text)}


def _setting(body: str, name: str) -> str:
    found = re.search(rf"^{name} = (.*)$", body, re.MULTILINE)
    return found[1] if found else ""


def _outside(asked: Asked, given: Given, facts: DoctorFacts) -> DoctorFacts:
    session = firewall_box.session()
    return {"addresses": addresses(), "client": session.client if session else ""}


_PARTS: Mapping[str, Callable[[Asked, Given, DoctorFacts], DoctorFacts]] = {
    "gpu": _gpu,
    "runtime": _runtime,
    "weights": _weights,
    "box": _of_the_box,
    "server": _server,
    "outside": _outside,
}
