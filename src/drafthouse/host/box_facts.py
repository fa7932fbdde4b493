"""Read the facts of a box (a machine that serves models): GPUs, memory, disk, Python, and who uses the ports.

Nothing is changed. Standard library only: it runs before Drafthouse has installed anything on the box.
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

#: Fields of nvidia-smi's query, which `listed_gpus` reads; memory.total is in MiB.
GPU_FIELDS = ("name", "memory.total", "driver_version", "compute_cap", "uuid", "mig.mode.current")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (only its size is read)
# GPUs that use the system's memory, by driver name. nvidia-smi reports GB10's (DGX Spark) memory as "[N/A]".
_SHARES_MEMORY = ("NVIDIA GB10",)
_MIB = 1024 * 1024
_redact_secrets = redactor()


def read_box(
    paths: Iterable[str],
    ports: Iterable[int],
    supervisor_pidfile: str,
    redact: Callable[[str], str] = _redact_secrets,
    gpus: Sequence[str] = (),
) -> BoxFacts:
    """The facts of this box as plain data; sizes are bytes.

    ``paths`` are checked for free space and write access, ``ports`` for listeners. A listener is ours if it descends
    from the supervisor whose pid is in ``supervisor_pidfile``, or if a container of ours publishes the port.
    ``redact`` removes secrets from command lines, which may hold other programs' keys. ``gpus`` selects the GPUs by
    index or UUID; if it is empty, CUDA_VISIBLE_DEVICES does.
    """
    published = published_ports()  # by containers of ours
    gpus_by_index = listed_gpus()
    chosen_indices, gpu_choice = choose_gpus({index: gpu["uuid"] for index, gpu in gpus_by_index.items()}, gpus)
    gpu_addresses = [device["address"] for device in pci_devices() if is_gpu(device)]
    docker_root = _docker_root()
    free_bytes, file_systems = _storage([*paths, docker_root])
    listener_by_port = {str(port): listener_of(port, supervisor_pidfile, published, redact) for port in ports}
    box: BoxFacts = {
        "hostname": platform.node(),
        "system": platform.system(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "os": os_release(text_in(Path("/etc/os-release")))["name"] or platform.system(),
        # Empty with another C library (musl): manylinux wheels do not run there.
        "glibc": _glibc(),
        "python": platform.python_version(),
        "python_executable": sys.executable,
        "can_make_environments": importlib.util.find_spec("ensurepip") is not None,
        "is_root": os.geteuid() == 0,
        "has_apt": shutil.which("apt-get") is not None,
        # Ansible's apt module needs python3-apt and installs it, but in check mode it fails instead.
        "has_python_apt": importlib.util.find_spec("apt") is not None,
        "has_docker": Path("/var/run/docker.sock").exists(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_total": _memory_bytes("MemTotal"),
        "memory_available": _memory_bytes("MemAvailable"),
        "gpus": [gpus_by_index[index] for index in chosen_indices],
        "nvidia_pci_devices": gpu_addresses,
        "translated_pci_devices": translated(gpu_addresses),
        "disk": free_bytes,
        "file_systems": file_systems,
        "docker_root": docker_root,
        # The size of /dev/shm. A container has a separate one, often small.
        "shared_memory": _size_bytes(_SHARED_MEMORY),
        "has_systemd": Path("/run/systemd/system").is_dir(),
        "first_process": facts(first_environment()),
        "writable": {path: _is_writable(path) for path in paths},
        "ports": listener_by_port,
    }
    if gpu_choice:
        box["gpu_choice"] = gpu_choice
    return box


def _glibc() -> str:
    """The version of glibc; '' with another C library."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def listed_gpus() -> dict[int, Gpu]:
    """The GPUs by index, in the driver's order; {} if there is no working driver.

    A GPU that shares the system's memory (`_SHARES_MEMORY`) reports none, so the system's total memory counts as its
    memory. Any other GPU that reports none, and a malformed line, is left out.
    """
    gpus: dict[int, Gpu] = {}
    for index, values in enumerate(rows(query(*GPU_FIELDS), *GPU_FIELDS)):
        memory_mib = values.get("memory.total", "")
        if not memory_mib.isdigit():
            if values.get("name") not in _SHARES_MEMORY:
                continue
            memory_mib = str(_memory_bytes("MemTotal") // _MIB)
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
    """The processor's model name; '' if /proc/cpuinfo has none, as on ARM."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return ""


def _memory_bytes(field: str) -> int:
    """The bytes of a field of /proc/meminfo, which are in KiB there; 0 if it has no such field."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _existing_folder(path: str) -> Path:
    """``path`` or its nearest existing parent: new files below ``path`` land on its file system."""
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _storage(paths: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Free bytes by path, and the id of the file system (st_dev) by path."""
    free_bytes = {}
    file_systems = {}
    for path in paths:
        folder = _existing_folder(path)
        free_bytes[path] = shutil.disk_usage(folder).free
        file_systems[path] = folder.stat().st_dev
    return free_bytes, file_systems


def _size_bytes(path: str) -> int | None:
    """Bytes of the file system at ``path``; None if there is no such folder."""
    return shutil.disk_usage(path).total if Path(path).is_dir() else None


def _docker_root() -> str:
    """The folder for Docker's images: `data-root` in its daemon.json, else Docker's default."""
    try:
        data_root = json.loads(Path("/etc/docker/daemon.json").read_text("utf-8")).get("data-root")
    except (OSError, ValueError, AttributeError):
        data_root = None
    if isinstance(data_root, str) and data_root:
        return data_root
    return "/var/lib/docker"


def _is_writable(path: str) -> bool:
    """True if this user can write to the folder, or create it."""
    return os.access(_existing_folder(path), os.W_OK | os.X_OK)


def listener_of(
    port: int, supervisor_pidfile: str, published: set[int], redact: Callable[[str], str] = _redact_secrets
) -> Listener | None:
    """The process that listens on ``port``, else None. ``published`` are the ports of our containers."""
    inodes = {inode for _, listens, inode in listeners() if listens == port}
    if not inodes:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if open_files(folder) & inodes:
            pid = int(folder.name)
            command = redact(" ".join(command_of(pid)))
            ours = port in published or _descends_from(pid, supervisor_pidfile)
            return {"pid": pid, "command": command[:200], "ours": ours}
    return {"pid": None, "command": "a process of another user", "ours": port in published}


def _descends_from(pid: int, pidfile: str) -> bool:
    """True if ``pid`` is the process whose pid is in ``pidfile``, or descends from it."""
    try:
        ancestor = int(Path(pidfile).read_text())
    except (OSError, ValueError):
        return False
    process: int | None = pid
    while process and process > 1:
        if process == ancestor:
            return True
        process = parent_of(process)
    return False
