"""Checks of the box (the machine that serves): system, Python, memory, disk, clock, a rental's deadline.

The functions are pure. A check of preflight returns None, or [], where the requirement is met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...core.format import count
from ...profiles.memory_fit import GB, MIB
from ...profiles.rental_spec import ROOM_FOR_THE_REST
from .conditions import can_install_packages
from .finding import Finding, fail, not_here, ok, warn

if TYPE_CHECKING:
    from drafthouse.host.box_types import BoxFacts
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

_OLDEST_PYTHON = (3, 10)
# Free disk space in bytes below which the doctor fails or warns: an engine writes logs, caches and results all the
# time, and fails on a full disk.
_DISK_FAILS, _DISK_WARNS = 1 * GB, 5 * GB
# Bytes for compiled kernels, logs and results once the engine is installed; ROOM_FOR_THE_REST also counts the engine.
# A rental's disk is sized for the first run, so a second run must ask for no more than is left then.
_ROOM_BESIDE_THE_ENGINE = {"cpu": _DISK_FAILS, "gpu": _DISK_WARNS}
_DISK_DO = {  # by drafthouse_manage_host
    True: "free some space, or set drafthouse_models_dir to a larger disk",
    False: "free some space, set drafthouse_models_dir to a larger volume, or rent again with more disk: that of a"
    " container is fixed when it is rented (make rent computes it from the plan)",
}
# The box's clock warns or fails at more than so many seconds off the controller's: 5 s make logs hard to compare, and
# at 300 s certificates and tokens are refused.
_CLOCK_WARNS_S, _CLOCK_FAILS_S = 5.0, 300.0


def system(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the box runs Linux on the CPU architecture of the profile's hardware."""
    box = facts["box"]
    machine = resolved["hardware"].get("machine", "x86_64")
    if (box["system"], box["machine"]) == ("Linux", machine):
        return None
    needed = f"Linux on {machine}: the profile's hardware is one"
    do = "use such a box, or a profile for this one (make profiles)"
    return fail(f"{box['system']} on {box['machine']}", needed, do)


def root(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that Drafthouse is root where it manages driver, Docker and firewall; it would skip them otherwise."""
    if facts["box"]["is_root"] or not resolved["site"]["manage_host"]:
        return None
    return fail(
        "a user without root, and drafthouse_manage_host: true",
        "root, to look after driver, Docker and firewall",
        "add -b (ARGS=-b; -K too where sudo asks for a password), connect as root (ansible_user), or set"
        " drafthouse_manage_host: false",
    )


def python_version(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the box's Python is new enough for Drafthouse's programs."""
    box = facts["box"]
    if tuple(map(int, box["python"].split(".")[:2])) >= _OLDEST_PYTHON:
        return None
    return fail(
        f"Python {box['python']} ({box['python_executable']})",
        "Python 3.10 or newer on the box",
        "set ansible_python_interpreter to a newer one",
    )


def python_venv(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that Python can create virtual environments, or that the host phase can install what is missing."""
    box = facts["box"]
    if box["can_make_environments"] or can_install_packages(resolved, box):
        return None
    return fail(
        f"{box['python_executable']} without ensurepip",
        "a Python that can create virtual environments",
        "apt-get install python3-venv on the box",
    )


def memory(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the available system memory holds the arms (baseline, speculative) of the largest experiment step."""
    box = facts["box"]
    reserved_bytes = {name: arm["fit"]["reserved"] for name, arm in resolved["arms"].items()}
    needed = 0  # bytes; the arms of a step run at the same time
    for step in resolved["experiment"]["steps"]:
        needed = max(needed, sum(reserved_bytes[arm] for arm in step["arms"]))
    available = box["memory_available"]
    # A running server of Drafthouse frees its memory before the next server starts. Which arm it is, is not known here.
    if any(listener and listener["ours"] for listener in box["ports"].values()):
        available += max(reserved_bytes.values())
    if available >= needed:
        return None
    return fail(
        f"{box['memory_available'] / MIB:,.0f} MiB of memory available",
        f"{needed / MIB:,.0f} MiB for {' and '.join(reserved_bytes)} ({resolved['experiment']['schedule']})",
        "stop other programs, or shorten the context (make plan shows what takes the memory)",
    )


def shared_memory(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check the size of /dev/shm in the provider's container; Drafthouse's containers share the host's /dev/shm."""
    needed = resolved.get("shared_memory", 0)  # bytes; 0: the engine's processes need none
    size = facts["box"].get("shared_memory")  # None: there is no /dev/shm
    if not needed or (size is not None and size >= needed):
        return None
    return fail(
        "no /dev/shm" if size is None else f"{size / MIB:,.0f} MiB in /dev/shm",
        f"{needed / MIB:,.0f} MiB: the processes of {resolved['engine']['name']}'s GPUs communicate through it",
        "rent a larger share of the machine's GPUs (vast.ai gives /dev/shm by that share), start the container with"
        " --shm-size=1g or --ipc=host if you start it yourself, or choose a profile for one GPU",
    )


def writable(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """A failure for each of Drafthouse's folders that the user cannot write to."""
    needed = "a folder that this user can write to"
    do = "connect as root, or set drafthouse_home and drafthouse_models_dir to folders of this user"
    findings = []
    for path, is_writable in facts["box"]["writable"].items():
        if not is_writable:
            findings.append(fail(f"{path} cannot be written by this user", needed, do))
    return findings


class _Share(NamedTuple):
    """Disk space that a run needs in a folder; folders of one file system share its free space."""

    path: str
    bytes: int
    content: str  # of these bytes, for the message
    variable: str  # the Ansible variable that sets the folder


def room_for_a_run(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """A failure for each file system with too little space for missing weights, environments, results and image."""
    box = facts["box"]
    file_systems = box.get("file_systems", {})
    by_file_system: dict[int, list[_Share]] = {}
    for share in _shares(resolved, box):
        if share.bytes:
            # An unknown file system is 0, so that such folders count as one file system.
            by_file_system.setdefault(file_systems.get(share.path, 0), []).append(share)
    findings = []
    for shares in by_file_system.values():
        findings += _space_failure(shares, box["disk"], resolved["site"]["manage_host"])
    return findings


def _shares(resolved: Run, box: BoxFacts) -> tuple[_Share, ...]:
    """The disk space that the run needs for weights, for Drafthouse's folder, and for the engine's image."""
    site = resolved["site"]
    present = box.get("present", ())
    cached = box.get("cached", {})
    # Bytes in the Hub's cache count as present. If such a file is damaged, its download reports a full disk.
    missing = 0
    for item in resolved["weights"]:
        if item["path"] not in present:
            missing += max(0, item["bytes"] - cached.get(item["path"], 0))
    kind = resolved["hardware"]["kind"]
    working_space = ROOM_FOR_THE_REST[kind]
    image_bytes = 0
    served = box.get("served")
    if resolved["engine"]["home"] in present or (served and served.get("same")):
        # The engine is installed, or the box serves this profile and so has its image.
        working_space = _ROOM_BESIDE_THE_ENGINE[kind]
    elif site["runtime"] == "docker":
        # The image goes to Docker's folder, which may be on another file system.
        working_space = _ROOM_BESIDE_THE_ENGINE[kind]
        image_bytes = ROOM_FOR_THE_REST[kind] - working_space
    return (
        _Share(site["models_dir"], missing, f"missing weights ({missing / GB:.1f} GB)", "drafthouse_models_dir"),
        _Share(site["home"], working_space, "environments, results", "drafthouse_home"),
        _Share(box.get("docker_root", site["home"]), image_bytes, "the engine's image", "container_engine_data_root"),
    )


def _space_failure(shares: Sequence[_Share], disk: Mapping[str, int], managed: bool) -> list[Finding]:
    """A one-item list with the failure of a file system that is too small for ``shares``, else [].

    ``disk``: free bytes by path. ``managed``: drafthouse_manage_host, by which the advice differs.
    """
    needed = sum(share.bytes for share in shares)
    free = min(disk[share.path] for share in shares)
    if free >= needed:
        return []
    contents = ", ".join(share.content for share in shares)
    return [
        fail(
            f"{free / GB:.1f} GB free at {shares[0].path}",
            f"{needed / GB:.1f} GB: {contents}",
            _DISK_DO[managed].replace("drafthouse_models_dir", shares[0].variable),
        )
    ]


def room_to_go_on(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check the free space and inodes that a serving engine needs for logs, caches and results."""
    needed = f"{_DISK_WARNS / GB:.0f} GB free for logs, caches and results"
    file_systems = facts["disk"]
    summary = ", ".join(f"{space['free'] / GB:.1f} GB free at {path}" for path, space in sorted(file_systems.items()))
    least_free = min(space["free"] for space in file_systems.values())
    do = "free some space: make prune lists weights that no profile uses, docker image prune removes unused images"
    if min(space["inodes"] for space in file_systems.values()) <= 0:
        return fail(f"{summary}; no free inodes", needed, do)
    if least_free < _DISK_FAILS:
        return fail(summary, needed, do)
    if least_free < _DISK_WARNS:
        return warn(summary, needed, do)
    return ok(summary, needed)


def clock(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check the box's clock against the controller's; for a local box, check that it is synchronised.

    A local box is the controller itself, so there is no second clock: only systemd may know whether it is right.
    """
    readings = facts["clock"]
    needed = f"within {_CLOCK_WARNS_S:.0f} s of this machine's"
    do = "enable time synchronisation (timedatectl set-ntp true), or correct the clock that is wrong"
    if readings["controller"] is None:
        if readings["synchronised"] is None:
            return not_here("no second clock to compare with")
        if readings["synchronised"]:
            return ok("synchronised")
        return warn("not synchronised according to systemd", "a synchronised clock", do)
    before, after = readings["controller"]
    # The box read its clock between the controller's two readings; any time between them is 0 s off.
    offset_s = max(0.0, before - readings["time"], readings["time"] - after)
    if offset_s <= _CLOCK_WARNS_S:
        return ok("as this machine's", needed)
    direction = "behind" if readings["time"] < before else "ahead"
    difference = f"{offset_s:,.0f} s {direction} of this machine's"
    if offset_s > _CLOCK_FAILS_S:
        return fail(difference, needed, do)
    return warn(difference, needed, do)


def deadline(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check the deadline watch, the program that destroys a rented box when its time is over.

    1. A box without a deadline: None.
    2. The deadline is past: failed, as the box should be gone.
    3. The watch does not run: failed.
    4. Else ok; the time left is not known before the watch's first count after a boot.
    """
    watch = facts.get("deadline")
    needed = "a deadline watch that destroys this box when its time is over"
    if not watch:
        return None
    left_s = watch["left_s"]
    if left_s is not None and left_s <= 0:
        journal = "; ".join(watch["last"]) or "no deadline was recorded"
        overdue = f"{-left_s / 60:.0f} min past, and this box still exists ({journal})"
        return fail(overdue, "a destroyed box", "make destroy: it is still billed")
    if not watch["watched"]:
        return fail("the deadline watch is not running", needed, "run site.yml --tags host")
    if left_s is None:
        return ok("the deadline watch has not started counting", needed)
    return ok(f"this box destroys itself in {_duration(left_s)}", needed)


def _duration(seconds: float) -> str:
    """The time in whole minutes, from 1.5 hours on in hours."""
    if seconds < 5400:
        return count(int(seconds // 60), "minute")
    return f"{seconds / 3600:.1f} h"
