"""What a box is, read without changing anything: GPUs, memory, disk, Python, and who holds our ports.

Standard library only: it runs on a bare box, before anything of ours is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..core.files import text_in
from ..core.first_process import facts
from ..core.procfs import command_of, first_environment, listeners, open_files, parent_of
from ..core.redact import redactor
from ..serving.containers import published_ports
from .box_types import BoxFacts, Gpu, Listener
from .driver.facts import is_gpu, os_release, pci_devices, translated
from .gpu_choice import choose_gpus
from .nvidia_smi import query, rows

GPU_FIELDS = ("name", "memory.total", "driver_version", "compute_cap", "uuid", "mig.mode.current")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (only its size is read)
# By the driver's names: GB10 (DGX Spark), of which nvidia-smi tells "[N/A]" as its memory.
_SHARES_MEMORY = ("NVIDIA GB10",)
_MIB = 1024 * 1024
_without_shapes = redactor()


def read_box(
    paths: Iterable[str],
    ports: Iterable[int],
    supervisor_pidfile: str,
    redact: Callable[[str], str] = _without_shapes,
    gpus: Sequence[str] = (),
) -> BoxFacts:
    """The facts of this box as plain data; sizes are bytes.

    ``paths`` are asked for free space, ``ports`` for who listens. A listener below the supervisor
    of ``supervisor_pidfile`` is ours, and so is a port that a container of ours publishes. Command
    lines are as ``redact`` leaves them: a key may stand in another program's. The GPUs are those that
    ``gpus`` chooses, or else CUDA_VISIBLE_DEVICES.
    """
    published = published_ports()
    listed = listed_gpus()
    chosen, choice = choose_gpus({index: gpu["uuid"] for index, gpu in listed.items()}, gpus)
    cards = [device["address"] for device in pci_devices() if is_gpu(device)]
    docker_root = _docker_root()
    free_bytes, file_systems = _storage([*paths, docker_root])
    listening = {str(port): listener_of(port, supervisor_pidfile, published, redact) for port in ports}
    box: BoxFacts = {
        "hostname": platform.node(),
        "system": platform.system(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "os": os_release(text_in(Path("/etc/os-release")))["name"] or platform.system(),
        # Empty where the C library is another one (musl): wheels of the manylinux kind do not run there.
        "glibc": _glibc(),
        "python": platform.python_version(),
        "python_executable": sys.executable,
        "can_make_environments": importlib.util.find_spec("ensurepip") is not None,
        "is_root": os.geteuid() == 0,
        "has_apt": shutil.which("apt-get") is not None,
        # Without it Ansible's apt can do nothing in check mode; otherwise it installs it first.
        "has_python_apt": importlib.util.find_spec("apt") is not None,
        "has_docker": Path("/var/run/docker.sock").exists(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_total": _memory("MemTotal"),
        "memory_available": _memory("MemAvailable"),
        "gpus": [listed[index] for index in chosen],
        "nvidia_pci_devices": cards,
        "translated_pci_devices": translated(cards),
        "disk": free_bytes,
        "file_systems": file_systems,
        "docker_root": docker_root,
        # What processes share; a container's own, and often small.
        "shared_memory": _size_bytes(_SHARED_MEMORY),
        "has_systemd": Path("/run/systemd/system").is_dir(),
        "first_process": facts(first_environment()),
        "writable": {path: _writable(path) for path in paths},
        "ports": listening,
    }
    if choice:
        box["gpu_choice"] = choice
    return box


def _glibc() -> str:
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def listed_gpus() -> dict[int, Gpu]:
    """The GPUs by their indices, in which order the driver lists them; {} where there is no working driver.

    A GPU that shares the processor's memory has none of its own to tell: what the system has counts as its own.
    """
    gpus: dict[int, Gpu] = {}
    for index, values in enumerate(rows(query(*GPU_FIELDS), *GPU_FIELDS)):
        memory_mib = values.get("memory.total", "")
        if not memory_mib.isdigit():
            if values.get("name") not in _SHARES_MEMORY:
                continue
            memory_mib = str(_memory("MemTotal") // _MIB)
        gpus[index] = {
            "name": values["name"],
            "memory_mib": int(memory_mib),
            "driver": values["driver_version"],
            "compute_capability": values["compute_cap"],
            "uuid": values["uuid"],
        }
        if values["mig.mode.current"] == "Enabled":
            gpus[index]["split"] = True
    return gpus


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""


def _memory(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _existing(path: str) -> Path:
    """The nearest folder that exists: what will be made below it lands on its file system."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _storage(paths: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The free bytes at each path, and the file system (st_dev) that it lies on."""
    free_bytes, file_systems = {}, {}
    for path in paths:
        folder = _existing(path)
        free_bytes[path] = shutil.disk_usage(folder).free
        file_systems[path] = folder.stat().st_dev
    return free_bytes, file_systems


def _size_bytes(path: str) -> int | None:
    """The size of the file system at ``path``, None where there is no such folder."""
    return shutil.disk_usage(path).total if Path(path).is_dir() else None


def _docker_root() -> str:
    """Where Docker keeps its images, or will: as its daemon.json says, else its own default."""
    try:
        data_root = json.loads(Path("/etc/docker/daemon.json").read_text("utf-8")).get("data-root")
    except (OSError, ValueError, AttributeError):
        data_root = None
    if isinstance(data_root, str) and data_root:
        return data_root
    return "/var/lib/docker"


def _writable(path: str) -> bool:
    return os.access(_existing(path), os.W_OK | os.X_OK)


def listener_of(
    port: int, supervisor_pidfile: str, published: set[int], redact: Callable[[str], str] = _without_shapes
) -> Listener | None:
    """Who listens on ``port``: None, or who it is."""
    inodes = {inode for _, listens, inode in listeners() if listens == port}
    if not inodes:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if open_files(folder) & inodes:
            pid = int(folder.name)
            command = redact(" ".join(command_of(pid)))
            ours = port in published or _is_below(pid, supervisor_pidfile)
            return {"pid": pid, "command": command[:200], "ours": ours}
    return {"pid": None, "command": "a process of another user", "ours": port in published}


def _is_below(pid: int, pidfile: str) -> bool:
    """Tell whether the process whose pid stands in ``pidfile`` is ``pid``, or an ancestor of it."""
    try:
        ancestor = int(Path(pidfile).read_text())
    except (OSError, ValueError):
        return False
    found: int | None = pid
    while found and found > 1:
        if found == ancestor:
            return True
        found = parent_of(found)
    return False
