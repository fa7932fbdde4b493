"""The checks of what the engine runs in: Docker, NVIDIA's toolkit, CDI and image, or its own environment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.requirement_lines import pin_of
from ...core.versions import as_version
from ...host.env_recipe import PINNED
from ...host.nvidia_smi import listed, read_smi
from .conditions import in_docker, manages_host
from .finding import Finding, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import ContainerFacts, DoctorFacts, LogConfig, LogFacts
    from drafthouse.profiles.resolved_types import Run


_MIB = 1024 * 1024
_ROTATING = ("json-file", "local")
_BOUNDED = ("journald", "none", "syslog")  # somebody else keeps and bounds what they are given
_HOST_DO = "run site.yml --tags host, or make with the profile's name"
_SERVE_DO = "make with the profile's name"


# --- Docker -----------------------------------------------------------------------------------------


def docker_or_to_come(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether Docker is there, or can be installed: where the host is managed, as root."""
    if manages_host(resolved, facts["box"]) or facts["box"]["has_docker"]:
        return None
    why = "" if resolved["site"]["manage_host"] else " (drafthouse_manage_host: false)"
    return fail(
        f"no Docker, and it cannot be installed here{why}",
        "a container engine for drafthouse_runtime: docker",
        "set drafthouse_runtime: process, or connect as root to a box with apt",
    )


def docker_answers(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether Docker answers; where it does not, nothing else is known of it."""
    needed, docker = "a container engine that responds", facts["docker"]
    if docker["error"]:
        return fail(docker["error"], needed, "check `systemctl status docker` and `journalctl -u docker -n 50`")
    return ok(f"{docker['version']} answers", needed)


def nvidia_toolkit(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether containers can be given a GPU."""
    docker = facts["docker"]
    if docker["error"]:
        return None
    needed = "the NVIDIA container toolkit, and its runtime known to Docker"
    found = f"nvidia-ctk {docker['toolkit']}" if docker["toolkit"] else "no nvidia-ctk"
    if docker["toolkit"] and "nvidia" in docker["runtimes"]:
        return ok(f"{found}, runtime nvidia", needed)
    return fail(f"{found}; Docker's runtimes: {', '.join(docker['runtimes']) or 'none'}", needed, _HOST_DO)


def cdi(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether each specification of the GPUs was made of the driver that runs."""
    if facts["docker"]["error"]:
        return None
    needed, files = "a CDI specification of the running driver", facts["docker"]["cdi"]
    running = read_smi(facts["driver"]["smi"]).version or facts["driver"]["loaded"].get("version", "")
    if not files:
        return not_here("no specification of nvidia.com/gpu: containers get the GPU from NVIDIA's own runtime")
    stale = []
    for path, version in files.items():
        if running and version != running:
            stale.append(f"{path} names driver {version}")
    if stale:
        do = "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml, and remove an older file in /etc/cdi"
        return fail(f"{'; '.join(stale)}, {running} runs", needed, do)
    return ok(", ".join(f"{path} (driver {version})" for path, version in files.items()), needed)


def container_gpu(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the container that runs sees the GPUs: all of the box, or those that were chosen."""
    docker = facts["docker"]
    if docker["error"]:
        return None
    if not docker["inside"]:
        return not_here("no container of ours runs")
    name, output = docker["inside"]["container"], docker["inside"]["output"]
    seen, ours = listed(output), [gpu["uuid"] for gpu in facts["box"]["gpus"]]
    needed = f"`nvidia-smi -L` in the running container shows {'it' if len(ours) < 2 else f'all {len(ours)}'}"
    # NVIDIA/nvidia-container-toolkit#48: `systemctl daemon-reload` can take the GPUs from containers that run.
    do = f"docker restart {name}; if a daemon-reload removed them before, run site.yml --tags host again"
    if not seen:
        return fail(f"{name}: {output.strip()[:200] or 'no output from nvidia-smi'}", needed, do)
    if missing := [uuid for uuid in ours if uuid not in seen]:
        return fail(f"{name} sees {', '.join(seen)}, but not {', '.join(missing)}", needed, do)
    return ok(f"{name} sees {len(seen)}", needed)


def new_container(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """What a container that was run for the purpose has shown, where that was asked for."""
    proof = facts["docker"].get("proof")
    if not proof:
        return None
    if "problem" in proof:
        return of_problem(proof["problem"])
    return ok(f"sees {proof['gpus']} GPU")


def image(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the engine's image is there, and what runs is made of it."""
    docker, wanted = facts["docker"], str(resolved["engine"]["image"])
    if docker["error"]:
        return None
    if not docker["image"]:
        do = f"{_SERVE_DO}, which downloads it; without a network: docker image load"
        return fail(f"{wanted} is not on the box", wanted, do)
    known = f"{wanted} ({_short(docker['image']['id'])})"
    for container in docker["containers"]:
        if container["running"] and container["image_id"] != docker["image"]["id"]:
            found = f"{container['name']} runs {container['image']} ({_short(container['image_id'])})"
            return warn(found, known, f"{_SERVE_DO}, which restarts it")
    return ok(known, wanted)


def _short(image_id: str) -> str:
    return image_id.removeprefix("sha256:")[:12]


# --- logs -------------------------------------------------------------------------------------------


def log_rotation(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether every log of the engine is bounded."""
    if not in_docker(resolved):
        return _supervised_logs(facts["logs"])
    if facts["docker"]["error"]:
        return None
    return _container_logs(facts["docker"]["containers"])


def _container_logs(containers: Sequence[ContainerFacts]) -> Finding:
    needed = "a log driver with a size limit"
    if not containers:
        return not_here("no container of ours")
    endless, bounded = [], set()
    for container in containers:
        log = container["log"]
        if _bounded(log):
            bounded.add(_shown(log))
        else:
            endless.append(f"{container['name']} logs to {log['Type']} without max-size")
    if endless:
        return fail(", ".join(endless), needed, f"{_SERVE_DO}, which recreates the container")
    return ok("; ".join(sorted(bounded)), needed)


def _bounded(log: LogConfig) -> bool:
    size = str((log.get("Config") or {}).get("max-size", ""))
    # `local` rotates at 20 MB by itself; json-file has no bound unless it is told one.
    return log["Type"] in _BOUNDED or (log["Type"] in _ROTATING and (size or log["Type"] == "local") and size != "-1")


def _shown(log: LogConfig) -> str:
    options = log.get("Config") or {}
    return f"{log['Type']}, {options.get('max-size', 'own size')} x {options.get('max-file', '1')}"


def _supervised_logs(logs: LogFacts) -> Finding:
    needed = "a size limit for every log in supervisord"
    if not logs["bounds"]:
        return not_here("nothing is supervised")
    endless = [program for program, size in logs["bounds"].items() if size.strip() in ("", "0")]
    if endless:
        return fail(f"no size limit for {', '.join(endless)}", needed, f"{_SERVE_DO}, which rewrites the configuration")
    sizes = ", ".join(sorted(set(logs["bounds"].values())))
    return ok(f"{sizes} a log and 2 before it; now {logs['bytes'] / _MIB:,.1f} MiB", needed)


# --- the process runtime ----------------------------------------------------------------------------


def glibc(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the engine's wheels can be loaded here: asked before any of them is fetched."""
    install, found = resolved["engine"]["install"], facts["box"]["glibc"]
    needed = install.get("glibc") if install else None
    if not needed or (found and as_version(found) >= as_version(needed)):
        return None
    return fail(
        f"glibc {found}" if found else "a C library that is not glibc (musl, as in Alpine?)",
        f"glibc {needed} or newer, which the wheels of {resolved['engine']['name']} are built for",
        "use a box with a newer distribution, or one with Docker (drafthouse_runtime: docker)",
    )


def engine_program(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the site's own server is there, where it names one."""
    program = resolved["engine"].get("program")
    if not program or program in facts["box"].get("present", ()):
        return None
    return fail(
        f"no {program}", "the program that drafthouse_engine_program names", "build it on the box, or correct the path"
    )


def engine_environment(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether the engine's environment is whole, starts, and holds what is pinned."""
    engine, environment = resolved["engine"], facts["environment"]
    if "program" in engine:
        return ok(engine["program"], "the site's own program")
    needed = f"{engine['name']} {engine['version']} in {engine['home']}"
    if not environment["made"]:
        return fail("none, or an incomplete one", needed, _HOST_DO)
    if not environment["python"]:
        return fail(f"a Python that does not start: {environment['error']}", needed, _HOST_DO)
    if environment["image"]:
        return ok(f"the image's own: {environment['image']}", needed)
    packages = engine["install"]["python_packages"] if engine["install"] else []
    wrong = []
    for package, version in pins(packages).items():
        found = environment["versions"].get(package, "missing")
        if found.partition("+")[0] != version.partition("+")[0]:
            wrong.append(f"{package} {found}")
    if wrong:
        return fail(", ".join(wrong), needed, f"remove {engine['home']}; then {_HOST_DO}")
    return ok(engine["home"], needed)


def pins(packages: Sequence[str]) -> dict[str, str]:
    """{package: version} of requirements with one exact version, names as an index normalises them."""
    versions = {}
    for text in packages:
        if PINNED.match(text):
            package, _, version = pin_of(text).partition("==")
            versions[package] = version
    return versions
