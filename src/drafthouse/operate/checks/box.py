"""The checks of the box itself: system, Python, memory, disk, clock, and a rented one's deadline. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...core.format import count
from ...profiles.memory_fit import GB, MIB
from ...profiles.rental_spec import ROOM_FOR_THE_REST
from .conditions import manages_host
from .finding import Finding, fail, not_here, ok, warn

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

_OLDEST_PYTHON = (3, 10)
# Free space: an engine writes logs, caches and results all the time. Below the first it fails soon.
_DISK_FAILS, _DISK_WARNS = 1 * GB, 5 * GB
# Of the room for the rest, what is still wanted once the engine's folder is there (one that is half-made is removed
# first): compiled parts, logs, results. A rented disk is as large as the plan: a second run finds no more than that.
_ROOM_BESIDE_THE_ENGINE = {"cpu": _DISK_FAILS, "gpu": _DISK_WARNS}
_DISK_DO = {
    True: "free some space, or set drafthouse_models_dir to a larger disk",
    False: "free some space, set drafthouse_models_dir to a larger volume, or rent again with more disk: that of a"
    " container is fixed when it is rented (make rent computes it from the plan)",
}
# Beyond the first logs do not fit together; beyond the second certificates and tokens are refused.
_CLOCK_WARNS_S, _CLOCK_FAILS_S = 5.0, 300.0


def system(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether engines are built for such a machine."""
    box, machine = facts["box"], resolved["hardware"].get("machine", "x86_64")
    if (box["system"], box["machine"]) == ("Linux", machine):
        return None
    found, needed = f"{box['system']} on {box['machine']}", f"Linux on {machine}: the profile's hardware is one"
    return fail(found, needed, "use such a box, or a profile for this one (make profiles)")


def root(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """The lack of root where driver, Docker and firewall are ours to manage: they would be passed over."""
    if facts["box"]["is_root"] or not resolved["site"]["manage_host"]:
        return None
    return fail(
        "a user without root, and drafthouse_manage_host: true",
        "root, to look after driver, Docker and firewall",
        "add -b (ARGS=-b; -K too where sudo asks for a password), connect as root (ansible_user), or set"
        " drafthouse_manage_host: false",
    )


def python_version(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the box's own Python runs our programs."""
    box = facts["box"]
    if tuple(map(int, box["python"].split(".")[:2])) >= _OLDEST_PYTHON:
        return None
    return fail(
        f"Python {box['python']} ({box['python_executable']})",
        "Python 3.10 or newer on the box",
        "set ansible_python_interpreter to a newer one",
    )


def python_venv(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether virtual environments can be made, or what makes them be installed."""
    box = facts["box"]
    if box["can_make_environments"] or manages_host(resolved, box):
        return None
    return fail(
        f"{box['python_executable']} without ensurepip",
        "a Python that can create virtual environments",
        "apt-get install python3-venv on the box",
    )


def memory(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether the arms of a step fit into what is free of the box's own memory."""
    box = facts["box"]
    fits = {name: arm["fit"]["reserved"] for name, arm in resolved["arms"].items()}
    needed = 0
    for step in resolved["experiment"]["steps"]:
        needed = max(needed, sum(fits[arm] for arm in step["arms"]))
    available = box["memory_available"]
    # What our own servers hold at this moment is given back before the next start.
    if any(port and port["ours"] for port in box["ports"].values()):
        available += max(fits.values())
    if available >= needed:
        return None
    return fail(
        f"{box['memory_available'] / MIB:,.0f} MiB of memory available",
        f"{needed / MIB:,.0f} MiB for {' and '.join(fits)} ({resolved['experiment']['schedule']})",
        "stop other programs, or shorten the context (make plan shows what takes the memory)",
    )


def shared_memory(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether /dev/shm is large enough in what somebody else has started; our containers get the box's own."""
    needed, found = resolved.get("shared_memory", 0), facts["box"].get("shared_memory")
    if not needed or (found is not None and found >= needed):
        return None
    return fail(
        "no /dev/shm" if found is None else f"{found / MIB:,.0f} MiB in /dev/shm",
        f"{needed / MIB:,.0f} MiB: the processes of {resolved['engine']['name']}'s GPUs communicate through it",
        "rent a larger share of the machine's GPUs (vast.ai gives /dev/shm by that share), start the container with"
        " --shm-size=1g or --ipc=host if you start it yourself, or choose a profile for one GPU",
    )


def writable(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """The folders of ours that this user cannot write to."""
    needed = "a folder that this user can write to"
    do = "connect as root, or set drafthouse_home and drafthouse_models_dir to folders of this user"
    findings = []
    for path, is_writable in facts["box"]["writable"].items():
        if not is_writable:
            findings.append(fail(f"{path} cannot be written by this user", needed, do))
    return findings


class _Share(NamedTuple):
    """What is to be written to a folder: bytes, what they are, and the variable that names the folder."""

    path: str
    bytes: int
    content: str
    variable: str


def room_for_a_run(resolved: Run, facts: DoctorFacts) -> list[Finding]:
    """The file systems that are too small for what comes to them: weights, environments and results, the image."""
    site, box = resolved["site"], facts["box"]
    present, cached = box.get("present", ()), box.get("cached", {})
    # Of weights in the hub's cache a file can be damaged; then the download itself says that the disk is full.
    missing = 0
    for item in resolved["weights"]:
        if item["path"] not in present:
            missing += max(0, item["bytes"] - cached.get(item["path"], 0))
    kind, image = resolved["hardware"]["kind"], 0
    rest = ROOM_FOR_THE_REST[kind]
    # A box that serves this very profile has its image, too.
    served = box.get("served")
    if resolved["engine"]["home"] in present or (served and served.get("same")):
        rest = _ROOM_BESIDE_THE_ENGINE[kind]
    elif site["runtime"] == "docker":
        rest = _ROOM_BESIDE_THE_ENGINE[kind]
        image = ROOM_FOR_THE_REST[kind] - rest
    by_file_system: dict[int, list[_Share]] = {}
    for share in (
        _Share(site["models_dir"], missing, f"missing weights ({missing / GB:.1f} GB)", "drafthouse_models_dir"),
        _Share(site["home"], rest, "environments, results", "drafthouse_home"),
        _Share(box.get("docker_root", site["home"]), image, "the engine's image", "container_engine_data_root"),
    ):
        if share.bytes:
            by_file_system.setdefault(box.get("file_systems", {}).get(share.path, 0), []).append(share)
    findings = []
    for shares in by_file_system.values():
        findings += _room(shares, box["disk"], site["manage_host"])
    return findings


def _room(shares: Sequence[_Share], disk: Mapping[str, int], managed: bool) -> list[Finding]:
    """The finding about one file system that is too small for all its shares; [] where it is not."""
    needed, free = sum(share.bytes for share in shares), min(disk[share.path] for share in shares)
    if free >= needed:
        return []
    contents, variable = ", ".join(share.content for share in shares), shares[0].variable
    return [
        fail(
            f"{free / GB:.1f} GB free at {shares[0].path}",
            f"{needed / GB:.1f} GB: {contents}",
            _DISK_DO[managed].replace("drafthouse_models_dir", f"drafthouse_{variable.removeprefix('drafthouse_')}"),
        )
    ]


def room_to_go_on(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether there is room for what an engine writes while it serves."""
    needed, places = f"{_DISK_WARNS / GB:.0f} GB free for logs, caches and results", facts["disk"]
    shown = ", ".join(f"{place['free'] / GB:.1f} GB free at {path}" for path, place in sorted(places.items()))
    free = min(place["free"] for place in places.values())
    do = "free some space: make prune lists weights that no profile uses, docker image prune removes unused images"
    if min(place["inodes"] for place in places.values()) <= 0:
        return fail(f"{shown}; no free inodes", needed, do)
    if free < _DISK_FAILS:
        return fail(shown, needed, do)
    if free < _DISK_WARNS:
        return warn(shown, needed, do)
    return ok(shown, needed)


def clock(resolved: Run, facts: DoctorFacts) -> Finding:
    """Whether the box's clock agrees with this machine's, or where they are one, whether it is synchronised."""
    here, needed = facts["clock"], f"within {_CLOCK_WARNS_S:.0f} s of this machine's"
    do = "enable time synchronisation (timedatectl set-ntp true), or correct the clock that is wrong"
    if here["controller"] is None:
        if here["synchronised"] is None:
            return not_here("no second clock to compare with")
        if here["synchronised"]:
            return ok("synchronised")
        return warn("not synchronised according to systemd", "a synchronised clock", do)
    before, after = here["controller"]
    # The box looked at its clock at some moment between the two.
    off = max(0.0, before - here["time"], here["time"] - after)
    if off <= _CLOCK_WARNS_S:
        return ok("as this machine's", needed)
    direction = "behind" if here["time"] < before else "ahead"
    found = f"{off:,.0f} s {direction} of this machine's"
    if off > _CLOCK_FAILS_S:
        return fail(found, needed, do)
    return warn(found, needed, do)


def deadline(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Whether somebody watches over a rented box's deadline; nothing where it has none."""
    found, needed = facts.get("deadline"), "a deadline watch that destroys this box when its time is over"
    if not found:
        return None
    left_s = found["left_s"]
    if left_s is not None and left_s <= 0:
        journal = "; ".join(found["last"]) or "no deadline was recorded"
        late = f"{-left_s / 60:.0f} min past, and this box still exists ({journal})"
        return fail(late, "a destroyed box", "make destroy: it is still billed")
    if not found["watched"]:
        return fail("the deadline watch is not running", needed, "run site.yml --tags host")
    if left_s is None:
        return ok("the deadline watch has not started counting", needed)
    return ok(f"this box destroys itself in {_time(left_s)}", needed)


def _time(seconds: float) -> str:
    if seconds < 5400:
        return count(int(seconds // 60), "minute")
    return f"{seconds / 3600:.1f} h"
