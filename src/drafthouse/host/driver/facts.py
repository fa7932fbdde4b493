"""Read the facts about a machine's NVIDIA driver, without changing anything.

Standard library only: it runs on a bare machine. Parameters ``sys`` and ``proc`` are the paths of /sys and /proc, which
are other folders in tests.
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

_VENDOR = "10de"  # NVIDIA's PCI id
_DISPLAY = ("0300", "0302")  # PCI classes of GPUs: VGA and 3D controllers
_BRIDGE = "0680"  # the class of an NVSwitch
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# The certificates of the keys that DKMS signs modules with, on Ubuntu and Debian.
_MODULE_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
# Services of the driver itself. They hold GPU devices open, but restart with a new driver, so they are no GPU users.
_DRIVER_SERVICES = ("nvidia-persistenced", "nvidia-smi", "nv-fabricmanager", "nv-hostengine")
_GPU_DEVICE = re.compile(r"/dev/nvidia(\d|ctl|-uvm|-modeset)")
# A line of `lspci -nn`: 01:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 PCIe] [10de:2331]
_LSPCI_LINE = re.compile(
    r"^(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s.*?\[(?P<class>[0-9a-f]{4})\]:\s"
    r"(?P<name>.*)\s\[(?P<vendor>[0-9a-f]{4}):(?P<id>[0-9a-f]{4})\]",
    re.IGNORECASE,
)


class OsRelease(TypedDict):
    """Values of an os-release file; '' if a value is missing."""

    id: str
    version_id: str
    name: str


PciDevice = TypedDict("PciDevice", {"address": str, "id": str, "class": str, "name": str, "driver": str})
"""An NVIDIA PCI device: address (0000:01:00.0), id and class as four hex digits each, name in lspci's list ('' if
unknown), and kernel driver ('' for none)."""


class LoadedModule(TypedDict, total=False):
    """NVIDIA's loaded kernel module: its version, and True if it is the open one; {} if none is loaded."""

    version: str
    open: bool


class InstalledPackage(TypedDict):
    """An installed package; ``held``: apt keeps it at its version (apt-mark hold)."""

    version: str
    held: bool


class GpuUser(TypedDict):
    """A process that has an NVIDIA device open."""

    pid: int
    command: str


class DriverFacts(TypedDict):
    """The facts about a machine's driver (`read_driver`)."""

    os: OsRelease
    architecture: str  # the kernel's name of it: x86_64, aarch64
    kernel: str  # the release that runs
    pci: list[PciDevice]  # the GPUs
    nvswitches: int  # number of NVSwitch devices
    smi: SmiAnswer  # to the query name, driver_version
    loaded: LoadedModule
    modules: list[str]  # loaded ones, of NVIDIA and nouveau
    module_on_disk: str  # version that modinfo reports for the running kernel; '' if none
    secure_boot: bool
    module_key_enrolled: bool  # the firmware trusts a key that DKMS signs modules with
    packages: dict[str, InstalledPackage]  # of NVIDIA, CUDA and the kernel, by name without architecture
    users: list[GpuUser]  # processes that use a GPU
    runfile: bool  # NVIDIA's .run installer put the driver there
    managed: bool  # the driver is Drafthouse's
    is_root: bool  # this process is root's


def read_driver(sys: str = "/sys", proc: str = "/proc", managed_by: str = "") -> DriverFacts:
    """The facts for `policy.choose`.

    ``managed_by`` is the path of the file that Drafthouse's role writes before it changes a package; '' where nobody
    needs to know whether the driver is Drafthouse's.
    """
    devices = _all_pci_devices(Path(sys))
    loaded = _loaded_module(Path(proc))
    users = _gpu_users(Path(proc)) if loaded else []
    return {
        "os": os_release(text_in(Path("/etc/os-release"))),
        "architecture": platform.machine(),
        "kernel": text_in(Path(proc) / "sys/kernel/osrelease").strip() or platform.release(),
        "pci": [device for device in devices if is_gpu(device)],
        "nvswitches": sum(device["class"] == _BRIDGE for device in devices),
        "smi": query("name", "driver_version"),
        "loaded": loaded,
        "modules": _gpu_modules(Path(proc)),
        "module_on_disk": output_of("modinfo", "-F", "version", "nvidia").strip(),
        "secure_boot": _secure_boot(Path(sys)),
        "module_key_enrolled": _module_key_enrolled(),
        "packages": _packages(),
        "users": users,
        "runfile": bool(shutil.which("nvidia-uninstall")),
        "managed": bool(managed_by) and Path(managed_by).exists(),
        "is_root": os.geteuid() == 0,
    }


def os_release(text: str) -> OsRelease:
    """Id, version and display name of the system, from the text of an os-release file."""
    values = release_values(text)
    return {
        "id": values.get("ID", ""),
        "version_id": values.get("VERSION_ID", ""),
        "name": values.get("PRETTY_NAME", ""),
    }


def release_values(text: str) -> dict[str, str]:
    """Values by key of the text of an os-release file (os-release(5)), without quotes."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            values[key.strip()] = value.strip().strip("\"'")
    return values


def read_lspci(text: str) -> list[PciDevice]:
    """The NVIDIA devices of every class in the output of `lspci -nn -D`."""
    devices: list[PciDevice] = []
    for line in text.splitlines():
        match = _LSPCI_LINE.match(line)
        if match and match["vendor"].lower() == _VENDOR:
            address = match["address"].lower()
            if address.count(":") < 2:
                address = f"0000:{address}"
            # The product's name is in brackets behind that of the chip.
            bracketed_name = re.search(r"\[([^\]]+)\]\s*$", match["name"])
            devices.append(
                {
                    "address": address,
                    "id": match["id"].lower(),
                    "class": match["class"].lower(),
                    "name": bracketed_name[1] if bracketed_name else "",
                    "driver": "",
                }
            )
    return devices


def _all_pci_devices(sys: Path) -> list[PciDevice]:
    """The NVIDIA devices in sysfs, with names from lspci, and devices that only lspci lists; by address."""
    listed = {device["address"]: device for device in read_lspci(output_of("lspci", "-nn", "-D"))}
    for device in pci_devices(sys):
        address = device["address"]
        if address in listed:
            device["name"] = listed[address]["name"]
        listed[address] = device
    return [listed[address] for address in sorted(listed)]


def pci_devices(sys: Path = Path("/sys")) -> list[PciDevice]:
    """The NVIDIA devices of every class in sysfs, with an empty name; `is_gpu` selects the GPUs."""
    devices: list[PciDevice] = []
    for folder in sorted((sys / "bus/pci/devices").glob("*")):
        if _hex_digits(folder / "vendor") != _VENDOR:
            continue
        driver = folder / "driver"
        devices.append(
            {
                "address": folder.name,
                "id": _hex_digits(folder / "device"),
                "class": _hex_digits(folder / "class")[:4],
                "name": "",
                "driver": driver.readlink().name if driver.is_symlink() else "",
            }
        )
    return devices


def _hex_digits(file: Path) -> str:
    """The hex digits of a number in a sysfs file, without 0x."""
    return text_in(file).strip().removeprefix("0x")


def translated(addresses: Iterable[str], sys: Path = Path("/sys")) -> list[str]:
    """The PCI devices behind a translating IOMMU: their reads of each other go through the processor."""
    translated_addresses = []
    for address in addresses:
        iommu_type = text_in(sys / "bus/pci/devices" / address / "iommu_group" / "type")
        if iommu_type.startswith("DMA"):
            translated_addresses.append(address)
    return translated_addresses


def is_gpu(device: PciDevice) -> bool:
    """True for a GPU, False for its bridges, audio and USB devices."""
    return device["class"] in _DISPLAY


def _loaded_module(proc: Path) -> LoadedModule:
    """NVIDIA's loaded kernel module, from /proc/driver/nvidia/version."""
    text = text_in(proc / "driver/nvidia/version")
    match = re.search(r"^NVRM version:.*?Module.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return {"version": match[1], "open": "Open Kernel Module" in text} if match else {}


def _gpu_modules(proc: Path) -> list[str]:
    """The loaded kernel modules that drive NVIDIA GPUs, sorted."""
    names = {line.split()[0] for line in text_in(proc / "modules").splitlines() if line.strip()}
    return sorted(names & {"nouveau", "nvidia", "nvidia_drm", "nvidia_uvm", "nvidia_modeset"})


def _secure_boot(sys: Path) -> bool:
    """True if Secure Boot is on; False without UEFI."""
    try:
        content = (sys / _SECURE_BOOT).read_bytes()
    except OSError:
        return False
    return len(content) == 5 and content[4] == 1  # four bytes of attributes, then the value


def _module_key_enrolled() -> bool:
    """True if the firmware trusts a key that DKMS signs modules with."""
    for path in _MODULE_KEYS:
        if Path(path).exists() and "already enrolled" in output_of("mokutil", "--test-key", path, any_status=True):
            return True
    return False


def _packages() -> dict[str, InstalledPackage]:
    """The installed packages of NVIDIA, CUDA and the kernel, by name without architecture."""
    format_string = "${db:Status-Abbrev}\t${binary:Package}\t${Version}\n"
    packages: dict[str, InstalledPackage] = {}
    for line in output_of("dpkg-query", "-W", "-f", format_string).splitlines():
        status, name, version = line.split("\t")
        base_name = name.partition(":")[0]
        # The first letter of the status is what is wanted (h: hold), the second what is the case (i: installed).
        if status[1:2] == "i" and re.search(r"nvidia|^cuda-drivers|^libcuda1|^linux-image-", base_name):
            packages[base_name] = {"version": version, "held": status.startswith("h")}
    return packages


def _gpu_users(proc: Path) -> list[GpuUser]:
    """The processes that have an NVIDIA device open, without the driver's services."""
    users: list[GpuUser] = []
    for folder in sorted(proc.glob("[0-9]*")):
        command = text_in(folder / "comm").strip()
        if command not in _DRIVER_SERVICES and any(map(_GPU_DEVICE.match, open_files(folder))):
            users.append({"pid": int(folder.name), "command": command or "a process"})
    return users


def output_of(*argv: str, any_status: bool = False) -> str:
    """Standard output of a read-only program; '' if it is missing, takes over 60 s, or fails.

    ``any_status``: its output counts also if it fails, and its error output is added.
    """
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
