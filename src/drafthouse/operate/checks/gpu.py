"""Checks that the box has the GPUs and the NVIDIA driver that the profile needs, and that both work.

The functions are pure. The host phase, run after preflight, installs the driver on a host that Drafthouse manages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...core.format import count, listing
from ...core.messages import last_known_message
from ...core.versions import as_version
from ...host.driver.packages import held_packages, to_hold
from ...host.driver.plan import branch_of
from ...host.gpu_choice import gpus_named
from ...host.nvidia_smi import Smi, read_smi
from ...profiles.rental_spec import MEMORY_TOLERANCE
from .conditions import can_install_packages, has_gpu
from .finding import Finding, fail, not_here, ok, warn

if TYPE_CHECKING:
    from drafthouse.host.box_types import BoxFacts
    from drafthouse.host.driver.facts import DriverFacts
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run


# By CUDA major version, the oldest driver branch that runs its libraries (docs.nvidia.com/deploy/cuda-compatibility,
# "minor version compatibility").
_OLDEST_BRANCH = {"11": 450, "12": 525, "13": 580}
_VERSION = re.compile(r"\d+(\.\d+)*")
_DRIVER_DO = (
    "run site.yml --tags host, which installs a workstation's driver; a rented box's cannot be changed: rent another"
)
_OTHER_PROFILE = "choose a profile for this GPU: make profiles"


def gpu_or_driver_to_come(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Run the check `gpu`; None where the host phase installs the driver first, as `gpu` then runs afterwards.

    That is so where it can install packages, on no rented VM (whose driver is the provider's), if there is an NVIDIA
    device and no driver that lists it.
    """
    box = facts["box"]
    choice = box.get("gpu_choice")
    # A choice that names no GPU leaves ``gpus`` empty; ``listed`` still has those of the driver.
    driver_answers = bool(box["gpus"] or (choice and choice["listed"]))
    is_installed_here = can_install_packages(resolved, box) and not resolved.get("rented_vm")
    if is_installed_here and box["nvidia_pci_devices"] and not driver_answers:
        return None
    return gpu(resolved, facts)


def gpu(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that the box has the profile's GPUs, counting only the GPUs that the site selects, if it selects any.

    None for a profile without a GPU. Failures, in this order: a selection that names no GPU; no GPU; too few GPUs of
    the profile's name; too little memory on one of these; a GPU that is split into parts (MIG).
    """
    hardware = resolved["hardware"]
    box = facts["box"]
    if not has_gpu(resolved):
        return None
    choice = box.get("gpu_choice")
    if choice and choice["wrong"] and choice["listed"]:
        return fail(
            f"{choice['by']} names {', '.join(map(repr, choice['wrong']))}, and the box has GPU"
            f" {', '.join(map(str, choice['listed']))}",
            "indices or UUIDs as nvidia-smi -L lists them, each GPU once",
            "correct drafthouse_gpus in the inventory, which takes precedence over CUDA_VISIBLE_DEVICES of the box",
        )
    needed = hardware["name"]
    if not box["gpus"]:
        return _no_gpu(box, needed)
    gpus_text = ", ".join(f"{device['name']} ({device['memory_mib']:,} MiB)" for device in box["gpus"])
    if choice:
        gpus_text += f", chosen by {choice['by']}"
    matching = gpus_named(box["gpus"], hardware.get("gpu_names") or [])
    if len(matching) < hardware["devices"]:
        return fail(gpus_text, needed, _OTHER_PROFILE)
    if min(device["memory_mib"] for device in matching) < hardware["memory_mib"] * MEMORY_TOLERANCE:
        return fail(gpus_text, f"{hardware['memory_mib']:,} MiB on each", _OTHER_PROFILE)
    if any(device.get("split") for device in matching):
        return fail(
            f"{gpus_text}, split into MIG parts",
            f"{hardware['memory_mib']:,} MiB in one piece: CUDA gives a program one part of a split GPU",
            "nvidia-smi -mig 0 (as root, nothing may use the GPU), or a hardware entry of your own with the part's"
            " memory and drafthouse_gpus: [MIG-...] (nvidia-smi -L)",
        )
    return ok(gpus_text, needed)


def _no_gpu(box: BoxFacts, needed: str) -> Finding:
    """The failure of a box whose driver lists no GPU: with an NVIDIA device on the PCI bus, or without one."""
    if box["nvidia_pci_devices"]:
        return fail(
            f"an NVIDIA device ({', '.join(box['nvidia_pci_devices'])}) but no working driver",
            f"{needed}, shown by nvidia-smi",
            "install NVIDIA's driver (nvidia-smi must list the GPU), then run again",
        )
    do = "choose this box's own profile (make profiles), or name the box that has the GPU in the inventory"
    return fail("no NVIDIA GPU", needed, do)


def gpu_of_driver(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Run the check `gpu`, unless the profile has no GPU, or nvidia-smi shows none until versions match.

    A kernel module and a driver library of different versions are the finding of the check `driver_library`.
    """
    if not has_gpu(resolved):
        return not_here(f"the profile runs on a CPU: {resolved['hardware']['name']}")
    if read_smi(facts["driver"]["smi"]).mismatch:
        return not_here("nvidia-smi shows no GPU until driver and library match")
    return gpu(resolved, facts)


def peer_access(resolved: Run, facts: DoctorFacts) -> Finding | None:
    """Check that no IOMMU translates direct reads between GPUs on PCIe (P2P), which costs speed."""
    hardware = resolved["hardware"]
    if hardware["devices"] == 1:
        return not_here(f"the profile uses one GPU: {hardware['name']}")
    if hardware.get("nvlink"):
        return not_here(f"the GPUs are connected by NVLink: {hardware['name']}")
    if devices := facts["box"].get("translated_pci_devices"):
        return warn(
            f"an IOMMU translates what the GPUs read of each other ({', '.join(devices)})",
            "direct reads over PCIe (P2P): others measured prompts half as fast again with them",
            "boot with iommu=pt if no virtual machine needs it (nvidia-smi topo -p2p r shows it); not on a rented box",
        )
    return ok(f"no IOMMU between the {hardware['devices']} GPUs")


def _running_version(driver: DriverFacts, smi: Smi) -> str:
    """The version of the running driver; "" if no driver responds."""
    return smi.version or driver["loaded"].get("version", "")


def driver_version(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the driver is new enough for the CUDA version that the engine is built on.

    1. No driver responds: failed.
    2. The catalogue names no version: ok.
    3. As new as the named version: ok.
    4. Older, of an older branch: failed. Older, of the same branch: a warning.
    """
    needed = str(resolved["rental"]["driver"])
    smi = read_smi(facts["driver"]["smi"])
    engine = f"{resolved['engine']['name']} {resolved['engine']['version']}"
    version = _running_version(facts["driver"], smi)
    if not version:
        why = smi.text or "no nvidia-smi"
        return fail(f"the driver does not respond: {why}", f"{needed or 'a driver'} or newer for {engine}", _DRIVER_DO)
    if not _VERSION.fullmatch(needed):
        return ok(version, f"the catalogue names no driver version for {engine}")
    requirement = f"{needed} or newer: {engine} is built on CUDA {resolved['rental']['cuda']}"
    if as_version(version) >= as_version(needed):
        return ok(version, requirement)
    if branch_of(version) < branch_of(needed):
        return fail(version, requirement, _DRIVER_DO)
    # CUDA works on every release of a branch; the older release only lacks bug fixes.
    return warn(version, requirement, _DRIVER_DO)


def driver_library(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the loaded kernel module, the module on disk and the driver library have the same version."""
    driver = facts["driver"]
    needed = "kernel module and library of the same version"
    smi = read_smi(driver["smi"])
    loaded = driver["loaded"].get("version", "")
    on_disk = driver["module_on_disk"]
    if smi.mismatch:
        found = f"kernel module {loaded or 'unknown'}, library {smi.library or on_disk or 'of a different version'}"
        do = "reboot the box when its server can be stopped; site.yml --tags host then puts the packages on hold"
        return fail(f"{found}: new containers and processes do not get the GPU", needed, do)
    if not loaded:
        return not_here("no NVIDIA module is loaded")
    if on_disk and on_disk != loaded:
        do = "reboot the box when its server can be stopped"
        return warn(f"kernel module {loaded} is loaded, {on_disk} is installed", needed, do)
    return ok(f"both are {loaded}", needed)


def kernel_log(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the kernel's log has no known GPU failure since boot; the latest one is a warning."""
    needed = "no failure of a GPU since the box started"
    if facts["kernel_log"] is None:
        return not_here("only root may read the kernel's log")
    latest_failure = last_known_message(facts["kernel_log"])
    if latest_failure is None:
        return ok("no message of the driver that is known as a failure", needed)
    line, failure = latest_failure
    return warn(f"{line.strip()}: {failure.cause}", needed, failure.do)


def cuda_libraries(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the driver branch can run the CUDA libraries of the engine's environment."""
    versions = facts["environment"]["versions"]
    runtime_versions = [version for name, version in versions.items() if name.startswith("nvidia-cuda-run")]
    if not runtime_versions:
        return not_here("provided by the engine's image, or not needed")
    version = max(runtime_versions, key=as_version)
    cuda_major = version.partition(".")[0]
    oldest = _OLDEST_BRANCH.get(cuda_major)
    branch = branch_of(_running_version(facts["driver"], read_smi(facts["driver"]["smi"])))
    combination = f"CUDA {version} in the engine's environment, driver branch {branch or 'unknown'}"
    if oldest is None:
        return warn(combination, "a CUDA version with a known driver requirement", "see the CUDA release notes")
    needed = f"branch {oldest} or newer for CUDA {cuda_major}"
    if branch < oldest:
        return fail(combination, needed, _DRIVER_DO)
    return ok(combination, needed)


def driver_held(resolved: Run, facts: DoctorFacts) -> Finding:
    """Check that the driver packages are on hold, so that no upgrade replaces a driver in use."""
    if not resolved["site"]["manage_host"]:
        return not_here("Drafthouse does not manage the driver here (drafthouse_manage_host: false)")
    needed = "driver packages on hold: an upgrade under a running module makes the GPU unusable"
    not_held = to_hold(facts["driver"])
    on_hold = held_packages(facts["driver"])
    if not_held:
        risk = "; unattended-upgrades is installed" if facts["unattended_upgrades"] else ""
        do = f"run site.yml --tags host, or apt-mark hold {' '.join(not_held)}"
        return warn(f"{count(len(not_held), 'driver package')} not held: {listing(not_held)}{risk}", needed, do)
    if not on_hold:
        return not_here("no driver from the box's packages")
    return ok(f"{count(len(on_hold), 'driver package')} held", needed)
