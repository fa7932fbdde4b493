"""Error messages of the kernel, the NVIDIA driver, Docker, NVIDIA's toolkit and CUDA: their causes and remedies.

The container check, the driver role, the engine log reader and the doctor share this table. It is ordered: where a text
matches two entries, the first explains more. Standard library only, Python 3.10: it runs on the box.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """A regular expression for a message, the cause of the message, and what to do about it."""

    pattern: str
    cause: str
    do: str


_TOOLKIT = "set container_engine_nvidia=always and run again: the role installs and registers NVIDIA's toolkit"
_FIRMWARE = (
    "switch on Above 4G decoding and Resizable BAR in the firmware, check power cables and seat,"
    " and read `dmesg | grep -e NVRM -e RmInitAdapter`"
)
_RESET = "reboot the box; if it comes again, try another driver branch (nvidia_driver_branch)"

MESSAGES = (
    # --- the kernel's log (Xid, an error of the driver by its number: docs.nvidia.com/deploy/xid-errors) ---
    Message(
        r"Xid \(PCI:[^)]*\): 79\b|GPU has fallen off the bus|GPU is lost",
        "the GPU has fallen off the PCI bus: power, temperature or its seat",
        "power the box off and on; check cables, temperature and riser; lower the power limit (nvidia-smi -pl)",
    ),
    Message(
        r"Xid \(PCI:[^)]*\): (?:48|63|64|92|94|95)\b",
        "the GPU's memory has errors",
        "see `nvidia-smi -q -d ECC,ROW_REMAPPER`, reset the GPU or reboot; have the card replaced if it comes again",
    ),
    Message(r"Xid \(PCI:[^)]*\): (?:8|61|62|119|120)\b", "the GPU or its GSP firmware stopped responding", _RESET),
    Message(
        r"Xid \(PCI:[^)]*\): 74\b", "NVLink has errors", "see `nvidia-smi nvlink -e`; reseat the bridge, then reboot"
    ),
    Message(r"Xid \(PCI:[^)]*\): 154\b", "the driver asks for a reset of the GPU", _RESET),
    Message(
        r"Xid \(PCI:[^)]*\): (?:13|31|43|45)\b",
        "a program on the GPU read outside its memory, or was ended",
        "see the engine's log of that moment; a known issue of the engine is the usual cause",
    ),
    Message(r"RmInitAdapter failed", "the driver cannot start the GPU", _FIRMWARE),
    # --- the driver ---
    Message(
        r"(?i)driver/library version mismatch",
        "the driver's library is newer than its kernel module",
        "reboot the box",
    ),
    Message(r"No devices were found", "the driver runs, but no GPU answers it", _FIRMWARE),
    Message(
        r"couldn't communicate with the NVIDIA driver",
        "the driver's kernel module is not loaded",
        "see `dkms status` and `modprobe -v nvidia`; with Secure Boot the module needs an enrolled key",
    ),
    Message(
        r"Failed to initialize NVML: Unknown Error",
        "the container has lost its GPUs, which `systemctl daemon-reload` does with systemd's cgroup driver",
        "restart the container; container_engine_reload_safe: true (the default) keeps it from happening again",
    ),
    # --- Docker and NVIDIA's toolkit ---
    Message(
        r"could not select device driver|failed to discover GPU vendor from CDI|no known GPU vendor"
        r"|unresolvable CDI devices|unknown or invalid runtime name: nvidia",
        "the engine knows no NVIDIA runtime",
        _TOOLKIT,
    ),
    Message(
        r"load library failed: libnvidia-ml\.so\.1|libnvidia-ml\.so\.1: cannot open shared object",
        "the toolkit does not find the driver's libraries where Docker runs",
        "Docker Desktop and other Docker in a virtual machine have no GPU: install Docker Engine on the box itself;"
        " otherwise run `ldconfig`, and see `root` in /etc/nvidia-container-runtime/config.toml",
    ),
    # --- CUDA, in an engine's log ---
    Message(
        r"(?i)system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|(?:error|code|cuInit: status)[ :=]*802\b",
        "the NVSwitch fabric is not up",
        "install and start nvidia-fabricmanager of the driver's own version",
    ),
    Message(
        r"(?i)forward compatibility was attempted on non supported HW|(?:error|code|cuInit: status)[ :=]*804\b",
        "a CUDA compatibility library in the image hides the box's driver, which this card does not allow",
        "install a driver of the image's CUDA version, or an image without cuda-compat",
    ),
    Message(
        r"(?i)CUDA driver version is insufficient|driver on your system is too old",
        "the driver is older than the engine's CUDA",
        "install a newer driver (nvidia_driver_branch), or rent a box that has one",
    ),
    Message(
        r"(?i)cuInit.{0,80}(?:CUDA_ERROR_UNKNOWN|999)|CUDA unknown error",
        "CUDA cannot start although nvidia-smi works: mostly /dev/nvidia-uvm is missing",
        "run `nvidia-modprobe -u -c=0` on the box, update the Container Toolkit, and restart the container",
    ),
    Message(
        r"(?i)no kernel image is available",
        "the engine was not built for this GPU's generation",
        "a newer engine version (make upgrade LIST=1), or a profile for this card",
    ),
    Message(
        r"(?i)no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE",
        "CUDA sees no GPU",
        "see `nvidia-smi -L` where the engine runs, and drafthouse_gpus and CUDA_VISIBLE_DEVICES",
    ),
)


def known_message(text: str) -> Message | None:
    """The first entry of the table whose pattern matches in ``text``; None if none does."""
    return next((message for message in MESSAGES if re.search(message.pattern, text)), None)


def last_known_message(lines: list[str]) -> tuple[str, Message] | None:
    """The last line that an entry of the table matches, and the entry; None if there is none."""
    for line in reversed(lines):
        if message := known_message(line):
            return line, message
    return None
