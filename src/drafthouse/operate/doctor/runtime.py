"""The doctor's look at what the engine runs in: Docker, NVIDIA's toolkit, CDI and image, or its environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.requirement_lines import pin_of
from ...host.env_recipe import PINNED
from ...host.nvidia_smi import read_smi
from .check import Check, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from .types import ContainerFacts, DockerFacts, DoctorFacts, EnvironmentFacts, LogConfig, LogFacts, Wants


_MIB = 1024 * 1024
_ROTATING = ("json-file", "local")
_BOUNDED = ("journald", "none", "syslog")  # somebody else keeps and bounds what they are given
_HOST_DO = "run playbooks/host.yml, or make with the profile's name"


def runtime_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return the checks of the runtime that the inventory names."""
    if wants["site"]["runtime"] == "process":
        return [_environment(wants, facts["environment"]), _supervised_logs(facts["logs"])]
    docker = facts["docker"]
    if docker["error"]:
        do = "look with `systemctl status docker` and `journalctl -u docker -n 50`"
        return [fail("Docker", docker["error"], "an engine of containers that answers", do)]
    return [
        ok("Docker", f"{docker['version']} answers", "an engine of containers that answers"),
        *(_nvidia(facts) if wants["hardware"]["kind"] == "gpu" else []),
        _image(wants, docker),
        _container_logs(docker["containers"]),
    ]


# --- Docker -----------------------------------------------------------------------------------------


def _nvidia(facts: DoctorFacts) -> list[Check]:
    docker = facts["docker"]
    name, needed = "NVIDIA toolkit", "the NVIDIA container toolkit, and its runtime known to Docker"
    if not docker["toolkit"] or "nvidia" not in docker["runtimes"]:
        known = ", ".join(docker["runtimes"]) or "none"
        found = f"nvidia-ctk {docker['toolkit']}" if docker["toolkit"] else "no nvidia-ctk"
        toolkit = fail(name, f"{found}; Docker's runtimes: {known}", needed, _HOST_DO)
    else:
        toolkit = ok(name, f"nvidia-ctk {docker['toolkit']}, runtime nvidia", needed)
    return [toolkit, _cdi(facts), _inside(docker), *_proof(docker)]


def _cdi(facts: DoctorFacts) -> Check:
    name, needed = "CDI", "a specification of the driver that runs"
    smi, loaded = read_smi(facts["driver"]["smi"]), facts["driver"]["loaded"].get("version", "")
    running = smi.version or loaded
    files = facts["docker"]["cdi"]
    if not files:
        return not_here(name, "no specification of nvidia.com/gpu: containers get the GPU from NVIDIA's own runtime")
    stale = [f"{path} names driver {version}" for path, version in files.items() if running and version != running]
    if stale:
        do = "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, and remove an older file in /etc/cdi"
        return fail(name, f"{'; '.join(stale)}, {running} runs", needed, do)
    return ok(name, ", ".join(f"{path} (driver {version})" for path, version in files.items()), needed)


def _inside(docker: DockerFacts) -> Check:
    name, needed = "GPU in the container", "`nvidia-smi -L` in the running container shows it"
    if not docker["inside"]:
        return not_here(name, "no container of ours runs")
    said = docker["inside"]["output"]
    gpus = re.findall(r"^GPU \d+: .*", said, re.MULTILINE)
    if gpus:
        return ok(name, f"{docker['inside']['container']} sees {len(gpus)}", needed)
    # NVIDIA/nvidia-container-toolkit#48: `systemctl daemon-reload` can take the GPUs from containers that run.
    box = docker["inside"]["container"]
    do = f"docker restart {box}; where a daemon-reload took them before, run playbooks/host.yml once more"
    return fail(name, f"{box}: {said.strip()[:200] or 'nvidia-smi says nothing'}", needed, do)


def _proof(docker: DockerFacts) -> list[Check]:
    """Return what a container that was run for the purpose has shown, where that was asked for."""
    proof = docker.get("proof")
    if not proof:
        return []
    name = "a new container"
    return [of_problem(name, proof["problem"]) if "problem" in proof else ok(name, f"sees {proof['gpus']} GPU")]


def _image(wants: Wants, docker: DockerFacts) -> Check:
    name, wanted = "image", str(wants["engine"]["image"])
    if not docker["image"]:
        do = "make with the profile's name, which fetches it; without a network BUNDLE=file"
        return fail(name, f"{wanted} is not on the box", wanted, do)
    running = [one for one in docker["containers"] if one["running"]]
    other = [one for one in running if one["image_id"] != docker["image"]["id"]]
    short = docker["image"]["id"].removeprefix("sha256:")[:12]
    if other:
        found = f"{other[0]['name']} runs {other[0]['image']} ({other[0]['image_id'].removeprefix('sha256:')[:12]})"
        return warn(name, found, f"{wanted} ({short})", "make with the profile's name, which starts it anew")
    return ok(name, f"{wanted} ({short})", wanted)


def _container_logs(containers: Sequence[ContainerFacts]) -> Check:
    name, needed = "log rotation", "a log driver that bounds its files"
    if not containers:
        return not_here(name, "no container of ours")
    endless = [one for one in containers if not _bounded(one["log"])]
    if endless:
        found = ", ".join(f"{one['name']} logs to {one['log']['Type']} without max-size" for one in endless)
        return fail(name, found, needed, "make with the profile's name, which makes the container anew")
    said = {_shown(one["log"]) for one in containers}
    return ok(name, "; ".join(sorted(said)), needed)


def _bounded(log: LogConfig) -> bool:
    size = str((log.get("Config") or {}).get("max-size", ""))
    # `local` rotates at 20 MB by itself; json-file has no bound unless it is told one.
    return log["Type"] in _BOUNDED or (log["Type"] in _ROTATING and (size or log["Type"] == "local") and size != "-1")


def _shown(log: LogConfig) -> str:
    options = log.get("Config") or {}
    return f"{log['Type']}, {options.get('max-size', 'own size')} x {options.get('max-file', '1')}"


# --- the process runtime ----------------------------------------------------------------------------


def _environment(wants: Wants, environment: EnvironmentFacts) -> Check:
    name = "engine's environment"
    needed = f"{wants['engine']['name']} {wants['engine']['version']} in {wants['engine']['home']}"
    if not environment["made"]:
        return fail(name, "none, or one that was never finished", needed, _HOST_DO)
    if not environment["python"]:
        return fail(name, f"a Python that does not start: {environment['error']}", needed, _HOST_DO)
    if environment["image"]:
        return ok(name, f"the image's own: {environment['image']}", needed)
    wrong = [
        f"{package} {environment['versions'].get(package, 'missing')}"
        for package, version in pins(wants["engine"]["packages"]).items()
        if environment["versions"].get(package, "").partition("+")[0] != version.partition("+")[0]
    ]
    if wrong:
        return fail(name, ", ".join(wrong), needed, f"remove {wants['engine']['home']}; then {_HOST_DO}")
    return ok(name, wants["engine"]["home"], needed)


def pins(packages: Sequence[str]) -> dict[str, str]:
    """Return {package: version} of requirements with one exact version, names as an index normalises them."""
    exact = (pin_of(text).partition("==") for text in packages if PINNED.match(text))
    return {package: version for package, _, version in exact}


def normal(package: str) -> str:
    """Return a package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _supervised_logs(logs: LogFacts) -> Check:
    name, needed = "log rotation", "supervisord bounds every log"
    if not logs["bounds"]:
        return not_here(name, "nothing is supervised")
    endless = [program for program, size in logs["bounds"].items() if size.strip() in ("", "0")]
    if endless:
        found = f"no bound for {', '.join(endless)}"
        return fail(name, found, needed, "make with the profile's name, which writes the configuration anew")
    sizes = ", ".join(sorted(set(logs["bounds"].values())))
    return ok(name, f"{sizes} a log and 2 before it; now {logs['bytes'] / _MIB:,.1f} MiB", needed)
