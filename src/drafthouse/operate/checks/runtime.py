"""Checks of the engine's runtime: Docker with NVIDIA's toolkit and the image, or a Python environment.

The functions are pure. Where Docker does not respond, only `docker_answers` fails; the other checks of Docker then
return None, because their facts were not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.requirement_lines import pin_of
from ...core.versions import as_version
from ...host.env_recipe import PINNED
from ...host.nvidia_smi import gpu_uuids, read_smi
from .conditions import can_install_packages, runs_in_docker
from .finding import Finding, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import ContainerFacts, DoctorFacts, LogConfig, LogFacts
    from drafthouse.profiles.resolved_types import Run


_MIB = 1024 * 1024
_ROTATING = ("json-file", "local")  # Docker's log drivers that can limit the size of their files
# A file's size and the number of files by log driver, where none is set: https://docs.docker.com/engine/logging/drivers/local/
_DEFAULT_LIMITS = {"local": ("20m", "5")}
_EXTERNAL = ("journald", "none", "syslog")  # log drivers whose logs another program stores and limits, or nobody stores
_HOST_DO = "run site.yml --tags host, or make with the profile's name"
_SERVE_DO = "make with the profile's name"


# --- Docker -----------------------------------------------------------------------------------------


def docker_or_to_come(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the box has Docker, or that the host phase can install it."""
    if can_install_packages(resolved, facts["box"]) or facts["box"]["has_docker"]:
        return None
    why = "" if resolved["site"]["manage_host"] else " (drafthouse_manage_host: false)"
    return fail(
        f"no Docker, and it cannot be installed here{why}",
        "a container engine for drafthouse_runtime: docker",
        "set drafthouse_runtime: process, or connect as root to a box with apt",
    )


def docker_answers(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that Docker responds."""
    needed = "a container engine that responds"
    docker = facts["docker"]
    if docker["error"]:
        return fail(docker["error"], needed, "check `systemctl status docker` and `journalctl -u docker -n 50`")
    return ok(f"{docker['version']} answers", needed)


def nvidia_toolkit(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that NVIDIA's container toolkit is installed and registered with Docker."""
    docker = facts["docker"]
    if docker["error"]:
        return None
    needed = "the NVIDIA container toolkit, and its runtime known to Docker"
    found = f"nvidia-ctk {docker['toolkit']}" if docker["toolkit"] else "no nvidia-ctk"
    if docker["toolkit"] and "nvidia" in docker["runtimes"]:
        return ok(f"{found}, runtime nvidia", needed)
    return fail(f"{found}; Docker's runtimes: {', '.join(docker['runtimes']) or 'none'}", needed, _HOST_DO)


def cdi(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that each CDI file (container device interface) was generated for the running driver version.

    If no driver runs, any version counts as right: the checks of the driver report that.
    """
    if facts["docker"]["error"]:
        return None
    needed = "a CDI specification of the running driver"
    files = facts["docker"]["cdi"]
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
    """Check that the running container sees all GPUs of the box, or all that the site selects."""
    docker = facts["docker"]
    if docker["error"]:
        return None
    if not docker["inside"]:
        return not_here("no container of ours runs")
    name = docker["inside"]["container"]
    output = docker["inside"]["output"]
    visible = gpu_uuids(output)
    expected = [gpu["uuid"] for gpu in facts["box"]["gpus"]]
    needed = f"`nvidia-smi -L` in the running container shows {'it' if len(expected) < 2 else f'all {len(expected)}'}"
    # NVIDIA/nvidia-container-toolkit#48: `systemctl daemon-reload` can remove the GPUs from running containers.
    do = f"docker restart {name}; if a daemon-reload removed them before, run site.yml --tags host again"
    if not visible:
        return fail(f"{name}: {output.strip()[:200] or 'no output from nvidia-smi'}", needed, do)
    if missing := [uuid for uuid in expected if uuid not in visible]:
        return fail(f"{name} sees {', '.join(visible)}, but not {', '.join(missing)}", needed, do)
    return ok(f"{name} sees {len(visible)}", needed)


def new_container(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that a new test container sees GPUs; None where no such test was requested."""
    proof = facts["docker"].get("proof")
    if not proof:
        return None
    if "problem" in proof:
        return of_problem(proof["problem"])
    return ok(f"sees {proof['gpus']} GPU")


def image(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the engine's image is on the box and that the running containers use it."""
    docker = facts["docker"]
    wanted = str(resolved["engine"]["image"])
    if docker["error"]:
        return None
    if not docker["image"]:
        do = f"{_SERVE_DO}, which downloads it; without a network: docker image load"
        return fail(f"{wanted} is not on the box", wanted, do)
    description = f"{wanted} ({_short(docker['image']['id'])})"
    for container in docker["containers"]:
        if container["running"] and container["image_id"] != docker["image"]["id"]:
            found = f"{container['name']} runs {container['image']} ({_short(container['image_id'])})"
            return warn(found, description, f"{_SERVE_DO}, which restarts it")
    return ok(description, wanted)


def _short(image_id: str) -> str:
    """The first 12 digits of an image's id, as `docker images` shows it."""
    return image_id.removeprefix("sha256:")[:12]


# --- logs -------------------------------------------------------------------------------------------


def log_rotation(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that every log of the engine has a size limit."""
    if not runs_in_docker(resolved):
        return _supervised_logs(facts["logs"])
    if facts["docker"]["error"]:
        return None
    return _container_logs(facts["docker"]["containers"])


def _container_logs(containers: Sequence[ContainerFacts]) -> Finding:
    """The finding about the logs of Drafthouse's containers: failed if one has no size limit."""
    needed = "a log driver with a size limit"
    if not containers:
        return not_here("no container of ours")
    unlimited = []
    limits = set()
    for container in containers:
        log = container["log"]
        if _has_limit(log):
            limits.add(_limit_text(log))
        else:
            unlimited.append(f"{container['name']} logs to {log['Type']} without max-size")
    if unlimited:
        return fail(", ".join(unlimited), needed, f"{_SERVE_DO}, which recreates the container")
    return ok("; ".join(sorted(limits)), needed)


def _has_limit(log: LogConfig) -> bool:
    """True if a container's log cannot grow without bounds. A ``max-size`` of -1 means no limit."""
    options = log.get("Config") or {}
    size = str(options.get("max-size", ""))
    if log["Type"] in _EXTERNAL:
        return True
    # `local` rotates at 20 MB by default; json-file has no limit unless max-size is set.
    return log["Type"] in _ROTATING and bool(size or log["Type"] == "local") and size != "-1"


def _limit_text(log: LogConfig) -> str:
    """A log's driver with the size and number of its files: ``json-file, 20m x 3``."""
    options = log.get("Config") or {}
    size, files = _DEFAULT_LIMITS.get(log["Type"], ("own size", "1"))
    return f"{log['Type']}, {options.get('max-size', size)} x {options.get('max-file', files)}"


def _supervised_logs(logs: LogFacts) -> Finding:
    """The finding about the logs of the programs that supervisord starts; a size of 0 means no limit there."""
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
    """Check that the box's glibc can load the engine's wheels, before any wheel is downloaded."""
    install = resolved["engine"]["install"]
    found = facts["box"]["glibc"]  # '' with another C library
    needed = install.get("glibc") if install else None
    if not needed or (found and as_version(found) >= as_version(needed)):
        return None
    return fail(
        f"glibc {found}" if found else "a C library that is not glibc (musl, as in Alpine?)",
        f"glibc {needed} or newer, which the wheels of {resolved['engine']['name']} are built for",
        "use a box with a newer distribution, or one with Docker (drafthouse_runtime: docker)",
    )


def engine_program(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the server program that the site names exists on the box; None if it names no program."""
    program = resolved["engine"].get("program")
    if not program or program in facts["box"].get("present", ()):
        return None
    return fail(
        f"no {program}", "the program that drafthouse_engine_program names", "build it on the box, or correct the path"
    )


def engine_environment(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the engine's Python environment is complete, starts, and has the pinned package versions.

    The site's own program, or an image's own environment, is ok without a look at its packages.
    """
    engine = resolved["engine"]
    environment = facts["environment"]
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
        # Behind + is the build, such as cu129: torch's build is chosen for the driver.
        if found.partition("+")[0] != version.partition("+")[0]:
            wrong.append(f"{package} {found}")
    if wrong:
        return fail(", ".join(wrong), needed, f"remove {engine['home']}; then {_HOST_DO}")
    return ok(engine["home"], needed)


def pins(packages: Sequence[str]) -> dict[str, str]:
    """Exact version by package; requirements without one are left out. Package names are normalised (PEP 503)."""
    versions = {}
    for text in packages:
        if PINNED.match(text):
            package, _, version = pin_of(text).partition("==")
            versions[package] = version
    return versions
