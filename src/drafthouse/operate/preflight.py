"""What a box must have before anything of it is changed: the resolved profile against the box's facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import Problem
from ..core.versions import number
from ..host.port_holder import taken
from ..profiles.exposure import exposure_problems
from ..profiles.gateway_settings import gateway_of
from ..profiles.memory_fit import GB, MIB
from ..profiles.rental_spec import MEMORY_TOLERANCE, ROOM_FOR_THE_REST

if TYPE_CHECKING:
    from ..host.box_types import BoxFacts
    from ..profiles.catalog_types import HardwareEntry
    from ..profiles.resolved_types import Run
    from .doctor.types import WantedHardware

_OLDEST_PYTHON = (3, 10)
# Of the room for the rest, what is still wanted once the engine's folder is there (one that is half-made is removed
# first): compiled parts, logs, results. A rented disk is as large as the plan: a second run finds no more than that.
_ROOM_BESIDE_THE_ENGINE = {"cpu": 1 * GB, "gpu": 5 * GB}
_ADVICE_DISK = {
    "workstation": "free some space, or set drafthouse_models_dir to a larger disk",
    "rental": "free some space, set drafthouse_models_dir to a larger volume, or rent again with more disk: that of a"
    " container is fixed when it is rented (make rent computes it from the plan)",
}


def preflight_problems(resolved: Run, box: BoxFacts) -> list[Problem]:
    """Return everything that keeps ``resolved`` from running on ``box`` (facts of `box_facts.read_box`)."""
    where = box["hostname"]
    problems = _system(box, where, _makes_host(resolved, box))
    if (hardware := resolved["hardware"])["kind"] == "gpu":
        # The host phase installs the driver, and looks at the GPU again.
        driver_comes = _makes_host(resolved, box) and not resolved.get("rented_vm")
        problems += _gpu(hardware, box, where, driver_comes=driver_comes)
    else:
        problems += _memory(resolved, box, where)
    problems += _shared_memory(resolved, box, where)
    problems += _disk(resolved, box, where)
    problems += _ports(resolved, box, where)
    problems += exposure_problems(resolved, where)
    problems += _not_mapped(resolved, box, where)
    problems += _runtime(resolved, box, where)
    problems += _glibc(resolved, box, where)
    return problems


def gpu_problems(hardware: HardwareEntry | WantedHardware, box: BoxFacts) -> list[Problem]:
    """Return what is wrong with the GPU once a driver must be there: after the host phase."""
    return _gpu(hardware, box, box["hostname"], driver_comes=False) if hardware["kind"] == "gpu" else []


def _runtime(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    """Look for an engine of containers: a rental has none inside, a workstation gets one as root."""
    if resolved["site"]["runtime"] != "docker" or _makes_host(resolved, box) or box["has_docker"]:
        return []
    return [
        Problem(
            "no-docker",
            "no Docker, and no way to install it here"
            + ("" if resolved["site"]["box_kind"] == "workstation" else " (a rental)"),
            "Docker, because drafthouse_runtime is docker",
            "set drafthouse_runtime: process, or connect as root to a box with apt",
            where,
        )
    ]


def _glibc(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    """Return whether the engine's wheels cannot be loaded here: asked before any of them is fetched."""
    install = resolved["engine"]["install"] if resolved["site"]["runtime"] == "process" else None
    needed = install.get("glibc") if install else None
    if not needed or (box["glibc"] and number(box["glibc"]) >= number(needed)):
        return []
    return [
        Problem(
            "unsupported-system",
            f"glibc {box['glibc']}" if box["glibc"] else "a C library that is not glibc (musl, as in Alpine?)",
            f"glibc {needed} or newer, which the wheels of {resolved['engine']['name']} are built for",
            "use a box with a newer distribution, or one with Docker (drafthouse_runtime: docker)",
            where,
        )
    ]


def _makes_host(resolved: Run, box: BoxFacts) -> bool:
    """Tell whether the host phase may install what is missing: on a workstation, as root, from Debian's packages."""
    return bool(resolved["site"]["box_kind"] == "workstation" and box["is_root"] and box["has_apt"])


def _system(box: BoxFacts, where: str, makes_host: bool) -> list[Problem]:
    problems = []
    if (box["system"], box["machine"]) != ("Linux", "x86_64"):
        problems.append(
            Problem(
                "unsupported-system", f"{box['system']} on {box['machine']}", "Linux on x86_64", "use such a box", where
            )
        )
    if tuple(int(part) for part in box["python"].split(".")[:2]) < _OLDEST_PYTHON:
        problems.append(
            Problem(
                "python-unusable",
                f"Python {box['python']} ({box['python_executable']})",
                "Python 3.10 or newer on the box",
                "set ansible_python_interpreter to a newer one",
                where,
            )
        )
    if not box["can_make_environments"] and not makes_host:
        problems.append(
            Problem(
                "python-unusable",
                f"{box['python_executable']} without ensurepip",
                "a Python that can make virtual environments",
                "apt-get install python3-venv on the box",
                where,
            )
        )
    return problems


def _gpu(hardware: HardwareEntry | WantedHardware, box: BoxFacts, where: str, *, driver_comes: bool) -> list[Problem]:
    needed = f"{hardware['devices']} x {hardware['name']}"
    choice = box.get("gpu_choice")
    if choice and choice["wrong"] and choice["listed"]:
        return [
            Problem(
                "no-such-gpu",
                f"{choice['by']} names {', '.join(map(repr, choice['wrong']))}, and the box has GPU"
                f" {', '.join(map(str, choice['listed']))}",
                "indices or UUIDs as nvidia-smi -L lists them, each GPU once",
                "correct drafthouse_gpus in the inventory, which goes before CUDA_VISIBLE_DEVICES of the box",
                where,
            )
        ]
    if not box["gpus"]:
        if box["nvidia_pci_devices"] and driver_comes:
            return []
        if box["nvidia_pci_devices"]:
            return [
                Problem(
                    "driver-not-working",
                    f"an NVIDIA device ({', '.join(box['nvidia_pci_devices'])}) but no working driver",
                    f"{needed}, shown by nvidia-smi",
                    "install NVIDIA's driver (nvidia-smi must list the GPU), then run again",
                    where,
                )
            ]
        return [
            Problem(
                "no-gpu",
                "no NVIDIA GPU",
                needed,
                "choose this box's own profile (make profiles), or name the box that has the GPU in the inventory",
                where,
            )
        ]
    matching = [gpu for gpu in box["gpus"] if any(name in gpu["name"] for name in hardware.get("gpu_names") or [])]
    seen = ", ".join(f"{gpu['name']} ({gpu['memory_mib']} MiB)" for gpu in box["gpus"])
    if len(matching) < hardware["devices"]:
        seen += f", chosen by {choice['by']}" if choice else ""
        return [Problem("gpu-unfit", seen, needed, "choose a profile for this GPU: make profiles", where)]
    small = [gpu for gpu in matching if gpu["memory_mib"] < hardware["memory_mib"] * MEMORY_TOLERANCE]
    if small:
        return [
            Problem(
                "gpu-memory-too-small",
                seen,
                f"{hardware['memory_mib']} MiB on each",
                "choose a profile for this GPU: make profiles",
                where,
            )
        ]
    return []


def _memory(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    fits = {name: arm["fit"]["reserved"] for name, arm in resolved["arms"].items()}
    needed = max(sum(fits[arm] for arm in step["arms"]) for step in resolved["experiment"]["steps"])
    # What our own servers hold at this moment is given back before the next start.
    held = max(fits.values()) if any(port and port["ours"] for port in box["ports"].values()) else 0
    if box["memory_available"] + held >= needed:
        return []
    return [
        Problem(
            "memory-too-small",
            f"{box['memory_available'] / MIB:,.0f} MiB of memory available",
            f"{needed / MIB:,.0f} MiB for {' and '.join(fits)} ({resolved['experiment']['schedule']})",
            "end other programs, or shorten the context (make plan shows what takes the memory)",
            where,
        )
    ]


def _shared_memory(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    """Look at /dev/shm where the engine runs in what somebody else has started; our containers get the box's own."""
    needed, found = resolved.get("shared_memory", 0), box.get("shared_memory")
    if resolved["site"]["runtime"] != "process" or not needed or (found is not None and found >= needed):
        return []
    has = "no /dev/shm" if found is None else f"{found / MIB:,.0f} MiB in /dev/shm"
    return [
        Problem(
            "memory-too-small",
            has,
            f"{needed / MIB:,.0f} MiB: the processes of {resolved['engine']['name']}'s several GPUs talk through it",
            "rent a larger share of the machine's GPUs (vast.ai gives /dev/shm by that share), start the container with"
            " --shm-size=1g or --ipc=host where that is yours, or choose a profile for one GPU",
            where,
        )
    ]


def _not_mapped(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    """Refuse a gateway at a port that the platform maps to nothing: nobody would ever reach the address it prints."""
    wished, mapped = gateway_of(resolved["site"]), box["first_process"]["ports"] if box.get("first_process") else None
    if wished is None or not mapped or str(wished["port"]) in mapped:
        return []
    return [
        Problem(
            "port-not-mapped",
            f"a gateway at port {wished['port']}, and a platform that maps {', '.join(sorted(mapped, key=int))}",
            "a port that is mapped: those of a container are fixed when it is rented",
            "set drafthouse_gateway_port to a free one of them, or use make tunnel and no gateway",
            where,
        )
    ]


def _disk(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    site = resolved["site"]
    problems = [
        Problem(
            "file-unwritable",
            f"{path} cannot be written by this user",
            "a folder that this user can write to",
            "connect as root, or set drafthouse_home and drafthouse_models_dir to folders of this user",
            where,
        )
        for path, writable in box["writable"].items()
        if not writable
    ]
    present, cached = box.get("present", ()), box.get("cached", {})
    # Of weights in the hub's cache a file can be damaged; then the download itself says that the disk is full.
    missing = sum(
        max(0, item["bytes"] - cached.get(item["path"], 0))
        for item in resolved["weights"]
        if item["path"] not in present
    )
    rest = _ROOM_BESIDE_THE_ENGINE if resolved["engine"]["home"] in present else ROOM_FOR_THE_REST
    needed = missing + rest[resolved["hardware"]["kind"]]
    free = min(box["disk"][site["models_dir"]], box["disk"][site["home"]])
    if free < needed:
        problems.append(
            Problem(
                "disk-full",
                f"{free / GB:.1f} GB free at {site['models_dir']}",
                f"{needed / GB:.1f} GB: weights that are not there yet ({missing / GB:.1f} GB), environments, results",
                _ADVICE_DISK[site["box_kind"]],
                where,
            )
        )
    return problems


def _ports(resolved: Run, box: BoxFacts, where: str) -> list[Problem]:
    problems = []
    for port, listener in box["ports"].items():
        if listener and not listener["ours"]:
            problems.append(taken(port, listener, resolved["site"]["host"], where))
    return problems
