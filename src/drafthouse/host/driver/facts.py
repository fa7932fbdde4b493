"""Read what a box says about its NVIDIA driver, without changing anything.

Standard library only: it runs on a bare box. ``sys`` and ``proc`` are where those file systems are.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from ...core.files import text_in
from ...core.procfs import open_files
from ..nvidia_smi import SmiAnswer, query

_VENDOR = "10de"
_DISPLAY = ("0300", "0302")  # VGA and 3D controllers
_BRIDGE = "0680"  # what an NVSwitch calls itself
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Where Ubuntu and Debian keep the certificate that DKMS signs modules with.
_MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
# They hold the devices open for others, and are started again with a new driver.
_SERVANTS = ("nvidia-persistenced", "nvidia-smi", "nv-fabricmanager", "nv-hostengine")
_GPU_DEVICE = re.compile(r"/dev/nvidia(\d|ctl|-uvm|-modeset)")
_LSPCI_LINE = re.compile(
    r"^(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s.*?\[(?P<class>[0-9a-f]{4})\]:\s"
    r"(?P<name>.*)\s\[(?P<vendor>[0-9a-f]{4}):(?P<id>[0-9a-f]{4})\]",
    re.IGNORECASE,
)


class OsRelease(TypedDict):
    """What an os-release file says; empty where it says nothing."""

    id: str
    version_id: str
    name: str


PciDevice = TypedDict("PciDevice", {"address": str, "id": str, "class": str, "name": str, "driver": str})
"""A device of NVIDIA's: its id and class as four hex digits, the driver that holds it ('' for none)."""


class LoadedModule(TypedDict, total=False):
    """The module that the kernel runs; empty where it runs none."""

    version: str
    open: bool


class InstalledPackage(TypedDict):
    """An installed package, and whether somebody holds it at its version."""

    version: str
    held: bool


class GpuUser(TypedDict):
    """A process that holds one of NVIDIA's devices open."""

    pid: int
    command: str


class DriverFacts(TypedDict):
    """What a box says about its driver (`read_driver`)."""

    os: OsRelease
    architecture: str
    kernel: str
    pci: list[PciDevice]
    nvswitches: int
    smi: SmiAnswer
    loaded: LoadedModule
    modules: list[str]
    module_on_disk: str
    secure_boot: bool
    module_key_enrolled: bool
    packages: dict[str, InstalledPackage]
    users: list[GpuUser]
    runfile: bool
    managed: bool
    is_root: bool


def read_driver(sys: str = "/sys", proc: str = "/proc", managed_by: str = "") -> DriverFacts:
    """The facts, as `policy.choose` takes them.

    ``managed_by``: the file that our own role puts down before it touches a package.
    """
    devices = _pci(Path(sys))
    loaded = _loaded(Path(proc))
    users = _users(Path(proc)) if loaded else []
    return {
        "os": os_release(text_in(Path("/etc/os-release"))),
        "architecture": platform.machine(),
        "kernel": text_in(Path(proc) / "sys/kernel/osrelease").strip() or platform.release(),
        "pci": [device for device in devices if is_gpu(device)],
        "nvswitches": sum(device["class"] == _BRIDGE for device in devices),
        "smi": query("name", "driver_version"),
        "loaded": loaded,
        "modules": _modules(Path(proc)),
        "module_on_disk": said("modinfo", "-F", "version", "nvidia").strip(),
        "secure_boot": _secure_boot(Path(sys)),
        "module_key_enrolled": _module_key_enrolled(),
        "packages": _packages(),
        "users": users,
        "runfile": bool(shutil.which("nvidia-uninstall")),
        "managed": bool(managed_by) and Path(managed_by).exists(),
        "is_root": os.geteuid() == 0,
    }


def os_release(text: str) -> OsRelease:
    """Id, version and name of the system in the text of an os-release file."""
    values = release_values(text)
    return {
        "id": values.get("ID", ""),
        "version_id": values.get("VERSION_ID", ""),
        "name": values.get("PRETTY_NAME", ""),
    }


def release_values(text: str) -> dict[str, str]:
    """All values in the text of an os-release file, by their keys (os-release(5)), without quotes."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            values[key.strip()] = value.strip().strip("\"'")
    return values


def read_lspci(text: str) -> list[PciDevice]:
    """The NVIDIA devices in the output of `lspci -nn -D`, of every class."""
    found: list[PciDevice] = []
    for line in text.splitlines():
        match = _LSPCI_LINE.match(line)
        if match and match["vendor"].lower() == _VENDOR:
            address = match["address"].lower()
            if address.count(":") < 2:
                address = f"0000:{address}"
            in_brackets = re.search(r"\[([^\]]+)\]\s*$", match["name"])
            found.append(
                {
                    "address": address,
                    "id": match["id"].lower(),
                    "class": match["class"].lower(),
                    "name": in_brackets[1] if in_brackets else "",
                    "driver": "",
                }
            )
    return found


def _pci(sys: Path) -> list[PciDevice]:
    """NVIDIA's devices: sysfs is the truth, lspci adds names, and devices where sysfs shows none."""
    listed = {device["address"]: device for device in read_lspci(said("lspci", "-nn", "-D"))}
    for device in pci_devices(sys):
        address = device["address"]
        if address in listed:
            device["name"] = listed[address]["name"]
        listed[address] = device
    return [listed[address] for address in sorted(listed)]


def pci_devices(sys: Path = Path("/sys")) -> list[PciDevice]:
    """NVIDIA's devices of every class that sysfs shows, which knows no names; `is_gpu` tells the GPUs."""
    found: list[PciDevice] = []
    for folder in sorted((sys / "bus/pci/devices").glob("*")):
        if _hex_digits(folder / "vendor") != _VENDOR:
            continue
        driver = folder / "driver"
        found.append(
            {
                "address": folder.name,
                "id": _hex_digits(folder / "device"),
                "class": _hex_digits(folder / "class")[:4],
                "name": "",
                "driver": driver.readlink().name if driver.is_symlink() else "",
            }
        )
    return found


def _hex_digits(file: Path) -> str:
    """The number in a file of sysfs without its 0x."""
    return text_in(file).strip().removeprefix("0x")


def translated(addresses: Iterable[str], sys: Path = Path("/sys")) -> list[str]:
    """Those PCI devices whose reads of each other an IOMMU translates, which sends them through the processor."""
    found = []
    for address in addresses:
        iommu_type = text_in(sys / "bus/pci/devices" / address / "iommu_group" / "type")
        if iommu_type.startswith("DMA"):
            found.append(address)
    return found


def is_gpu(device: PciDevice) -> bool:
    """Tell a GPU from its bridges, its sound and its USB."""
    return device["class"] in _DISPLAY


def _loaded(proc: Path) -> LoadedModule:
    """The module that the kernel runs."""
    text = text_in(proc / "driver/nvidia/version")
    found = re.search(r"^NVRM version:.*?Module.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return {"version": found[1], "open": "Open Kernel Module" in text} if found else {}


def _modules(proc: Path) -> list[str]:
    names = {line.split()[0] for line in text_in(proc / "modules").splitlines() if line.strip()}
    return sorted(names & {"nouveau", "nvidia", "nvidia_drm", "nvidia_uvm", "nvidia_modeset"})


def _secure_boot(sys: Path) -> bool:
    """Whether the firmware checks signatures; False where there is no UEFI."""
    try:
        content = (sys / _SECURE_BOOT).read_bytes()
    except OSError:
        return False
    return len(content) == 5 and content[4] == 1  # four bytes of attributes, then the value


def _module_key_enrolled() -> bool:
    """Whether a key that DKMS signs with is one of those that the firmware trusts."""
    for path in _MODULE_KEYS:
        if Path(path).exists() and "already enrolled" in said("mokutil", "--test-key", path, any_status=True):
            return True
    return False


def _packages() -> dict[str, InstalledPackage]:
    """The installed packages that matter here, by name."""
    form = "${db:Status-Abbrev}\t${binary:Package}\t${Version}\n"
    found: dict[str, InstalledPackage] = {}
    for line in said("dpkg-query", "-W", "-f", form).splitlines():
        status, name, version = line.split("\t")
        plain = name.partition(":")[0]
        if status[1:2] == "i" and re.search(r"nvidia|^cuda-drivers|^libcuda1|^linux-image-", plain):
            found[plain] = {"version": version, "held": status.startswith("h")}
    return found


def _users(proc: Path) -> list[GpuUser]:
    """The processes that hold one of NVIDIA's devices open."""
    found: list[GpuUser] = []
    for folder in sorted(proc.glob("[0-9]*")):
        command = text_in(folder / "comm").strip()
        if command not in _SERVANTS and any(map(_GPU_DEVICE.match, open_files(folder))):
            found.append({"pid": int(folder.name), "command": command or "a process"})
    return found


def said(*argv: str, any_status: bool = False) -> str:
    """Run a program that only reads and return its output; '' where it is missing, fails or takes over 60 s."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if any_status:
        return done.stdout + done.stderr
    if done.returncode != 0:
        return ""
    return done.stdout
