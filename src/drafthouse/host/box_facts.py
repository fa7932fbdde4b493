"""What a box is, read without changing anything: GPUs, memory, disk, Python, and who holds our ports.

Standard library only: it runs on a bare box, before anything of ours is there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..core.first_process import facts
from ..core.procfs import first_environment, listeners
from ..core.redact import redactor
from ..serving.containers import published_ports
from .box_types import BoxFacts, Gpu, GpuChoice, Listener

_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (only its size is read)
_without_shapes = redactor()


def read_box(
    paths: Iterable[str],
    ports: Iterable[int],
    supervisor_pidfile: str,
    redact: Callable[[str], str] = _without_shapes,
    gpus: Sequence[str] = (),
) -> BoxFacts:
    """Return the facts of this box as plain data; sizes are bytes.

    ``paths`` are asked for free space, ``ports`` for who listens. A listener below the supervisor
    of ``supervisor_pidfile`` is ours, and so is a port that a container of ours publishes. Command
    lines are told as ``redact`` leaves them: a key may stand in another program's. Of the GPUs those are told that
    ``gpus`` chooses, or else CUDA_VISIBLE_DEVICES.
    """
    published = published_ports()
    chosen, choice = _chosen(_listed_gpus(), gpus)
    box: BoxFacts = {
        "hostname": platform.node(),
        "system": platform.system(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "os": _os_name(),
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
        "gpus": chosen,
        "nvidia_pci_devices": _nvidia_pci_devices(),
        "disk": {path: _free_bytes(path) for path in paths},
        # What processes share; a container's own, and often small.
        "shared_memory": _size_bytes(_SHARED_MEMORY),
        "has_systemd": Path("/run/systemd/system").is_dir(),
        "first_process": facts(first_environment()),
        "writable": {path: _writable(path) for path in paths},
        "ports": {str(port): listener_of(port, supervisor_pidfile, published, redact) for port in ports},
    }
    if choice:
        box["gpu_choice"] = choice
    return box


def _glibc() -> str:
    name, version = platform.libc_ver()
    return version if name == "glibc" else ""


def nvidia_smi() -> list[Gpu]:
    """Return one entry for each GPU that the NVIDIA driver shows; [] where there is no working driver."""
    return list(_listed_gpus().values())


def _chosen(listed: Mapping[int, Gpu], asked: Sequence[str]) -> tuple[list[Gpu], GpuChoice | None]:
    """Return the GPUs that are ours, in the order in which they were chosen; without a choice all, and None."""
    by, variable = "drafthouse_gpus", os.environ.get("CUDA_VISIBLE_DEVICES")
    if not asked and variable is not None:
        by, asked = "CUDA_VISIBLE_DEVICES", [word.strip() for word in variable.split(",")]
    # Parts of a GPU are not listed here: such a choice is left to the engine, which finds it as it is.
    if not asked or any(word.startswith("MIG-") for word in asked):
        return list(listed.values()), None
    chosen: dict[int, str] = {}
    wrong = []
    for word in asked:
        uuid = word.startswith("GPU-")  # CUDA takes the beginning of one, too
        found = [
            index for index, gpu in listed.items() if (gpu["uuid"].startswith(word) if uuid else str(index) == word)
        ]
        if len(found) == 1 and found[0] not in chosen:
            chosen[found[0]] = listed[found[0]]["uuid"] if uuid else word
        else:
            wrong.append(word)
    choice: GpuChoice = {"by": by, "ids": list(chosen.values()), "wrong": wrong, "listed": list(listed)}
    return [listed[index] for index in chosen], choice


def _listed_gpus() -> dict[int, Gpu]:
    """Return the GPUs by their indices: the driver lists them in that order."""
    fields = ("name", "memory.total", "driver_version", "compute_cap", "uuid")
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    gpus: dict[int, Gpu] = {}
    for index, line in enumerate(done.stdout.splitlines()):
        values = dict(zip(fields, (part.strip() for part in line.split(",")), strict=False))
        if len(values) == len(fields) and values["memory.total"].isdigit():
            gpus[index] = {
                "name": values["name"],
                "memory_mib": int(values["memory.total"]),
                "driver": values["driver_version"],
                "compute_capability": values["compute_cap"],
                "uuid": values["uuid"],
            }
    return gpus


def _nvidia_pci_devices() -> list[str]:
    """Return the PCI addresses of NVIDIA display devices, driver or not."""
    found = []
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()[:6]
        except OSError:
            continue
        if vendor == _NVIDIA and kind in _DISPLAY_CLASSES:
            found.append(device.name)
    return found


def _os_name() -> str:
    try:
        lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    except OSError:
        return platform.system()
    return next((line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "")


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _memory(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def _existing(path: str) -> Path:
    """Return the nearest folder that exists: what will be made below it lands on its file system."""
    place = Path(path)
    while not place.exists() and place != place.parent:
        place = place.parent
    return place


def _free_bytes(path: str) -> int:
    return shutil.disk_usage(_existing(path)).free


def _size_bytes(path: str) -> int | None:
    """Return the size of the file system at ``path``, None where there is no such folder."""
    return shutil.disk_usage(path).total if Path(path).is_dir() else None


def _writable(path: str) -> bool:
    return os.access(_existing(path), os.W_OK | os.X_OK)


def listener_of(
    port: int, supervisor_pidfile: str, published: set[int], redact: Callable[[str], str] = _without_shapes
) -> Listener | None:
    """Return who listens on ``port``: None, or who it is."""
    inodes = {inode for _, listens, inode in listeners() if listens == port}
    if not inodes:
        return None
    for folder in Path("/proc").glob("[0-9]*"):
        if _open_files(folder) & inodes:
            pid = int(folder.name)
            words = _bytes(folder / "cmdline").split(b"\0")
            command = redact(" ".join(word.decode(errors="replace") for word in words if word))
            ours = port in published or _is_below(pid, supervisor_pidfile)
            return {"pid": pid, "command": command[:200], "ours": ours}
    return {"pid": None, "command": "a process of another user", "ours": port in published}


def _open_files(process: Path) -> set[str]:
    """Return what the process has open; nothing of another user's process, or of one that just ended."""
    held = set()
    try:
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed since it was listed
                held.add(str(link.readlink()))
    except OSError:
        pass
    return held


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _is_below(pid: int, pidfile: str) -> bool:
    """Tell whether the process whose pid stands in ``pidfile`` is an ancestor of ``pid``."""
    try:
        ancestor = int(Path(pidfile).read_text())
    except (OSError, ValueError):
        return False
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rsplit(")", 1)[1].split()[1])
    return False
