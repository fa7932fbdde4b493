"""The doctor's look at GPU and driver: from facts of the box and the engine's need to checks. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...core.format import count, listing
from ...core.versions import number
from ...host.driver.packages import held, to_hold
from ...host.driver.plan import branch_of
from ...host.nvidia_smi import Smi, read_smi
from ...operate.preflight import gpu_problems
from .check import Check, fail, not_here, of_problem, ok, warn

if TYPE_CHECKING:
    from ...host.driver.facts import DriverFacts
    from .types import DoctorFacts, Wants


# The oldest branch on which libraries of a CUDA generation run (docs.nvidia.com/deploy/cuda-compatibility, "minor
# version compatibility").
_OLDEST_BRANCH = {"11": 450, "12": 525, "13": 580}
_VERSION = re.compile(r"\d+(\.\d+)*")
_DRIVER_DO = (
    "run playbooks/host.yml, which installs the driver of a workstation; of a rental's the owner decides: rent another"
)


def gpu_checks(wants: Wants, facts: DoctorFacts) -> list[Check]:
    """Return the checks of GPU, driver, libraries and held packages; one line on a profile for the CPU."""
    if wants["hardware"]["kind"] != "gpu":
        return [not_here("GPU", f"the profile runs on a CPU: {wants['hardware']['name']}")]
    driver = facts["driver"]
    smi = read_smi(driver["smi"])
    return [
        _gpu(wants, facts, smi),
        _driver(wants, driver, smi),
        _library(driver, smi),
        _cuda(facts, driver, smi),
        _held(wants, facts),
    ]


def _gpu(wants: Wants, facts: DoctorFacts, smi: Smi) -> Check:
    name = "GPU"
    if smi.mismatch:
        return not_here(name, "nvidia-smi shows none until driver and library agree")
    problems = gpu_problems(wants["hardware"], facts["box"])
    if problems:
        return of_problem(name, problems[0])
    seen = ", ".join(f"{gpu['name']} ({gpu['memory_mib']:,} MiB)" for gpu in facts["box"]["gpus"])
    return ok(name, seen, f"{wants['hardware']['devices']} x {wants['hardware']['name']}")


def _running(driver: DriverFacts, smi: Smi) -> str:
    return smi.version or driver["loaded"].get("version", "")


def _driver(wants: Wants, driver: DriverFacts, smi: Smi) -> Check:
    name, needed = "driver", str(wants["need"]["driver"])
    version, engine = _running(driver, smi), f"{wants['engine']['name']} {wants['engine']['version']}"
    if not version:
        why = smi.text or "no nvidia-smi"
        return fail(name, f"no driver answers: {why}", f"{needed or 'a driver'} or newer for {engine}", _DRIVER_DO)
    if not _VERSION.fullmatch(needed):
        return ok(name, version, f"the catalogue names none for {engine}")
    least = f"{needed} or newer: {engine} is built on CUDA {wants['need']['cuda']}"
    if number(version) >= number(needed):
        return ok(name, version, least)
    if branch_of(version) >= branch_of(needed):
        # Within a branch CUDA promises to work all the same, without what the newer release mended.
        return warn(name, version, least, _DRIVER_DO)
    return fail(name, version, least, _DRIVER_DO)


def _library(driver: DriverFacts, smi: Smi) -> Check:
    name, needed = "driver and library", "kernel module and library of one version"
    loaded, on_disk = driver["loaded"].get("version", ""), str(driver["module_on_disk"])
    if smi.mismatch:
        found = f"kernel module {loaded or 'unknown'}, library {smi.library or on_disk or 'of another version'}"
        do = "reboot the box when its server may stop; playbooks/host.yml then holds the packages at their version"
        return fail(name, f"{found}: no new container or process gets the GPU", needed, do)
    if not loaded:
        return not_here(name, "no NVIDIA module is loaded")
    if on_disk and on_disk != loaded:
        do = "reboot the box when its server may stop"
        return warn(name, f"kernel module {loaded} runs, {on_disk} is installed", needed, do)
    return ok(name, f"both are {loaded}", needed)


def _cuda(facts: DoctorFacts, driver: DriverFacts, smi: Smi) -> Check:
    name = "CUDA libraries"
    found = {key: value for key, value in facts["environment"]["versions"].items() if key.startswith("nvidia-cuda-run")}
    if not found:
        return not_here(name, "those of the engine's image, or none of their own")
    version = sorted(found.values(), key=number)[-1]
    oldest = _OLDEST_BRANCH.get(version.partition(".")[0])
    branch = branch_of(_running(driver, smi))
    said = f"CUDA {version} in the engine's environment, driver branch {branch or 'unknown'}"
    if oldest is None:
        return warn(name, said, "a CUDA generation whose driver is known here", "see the CUDA release notes")
    needed = f"branch {oldest} or newer for CUDA {version.partition('.')[0]}"
    return ok(name, said, needed) if branch >= oldest else fail(name, said, needed, _DRIVER_DO)


def _held(wants: Wants, facts: DoctorFacts) -> Check:
    name, needed = "updates held", "driver packages held: an upgrade under a running module takes the GPU away"
    if wants["site"]["box_kind"] == "rental":
        return not_here(name, "a rental's driver is its owner's")
    loose, kept = to_hold(facts["driver"]), held(facts["driver"])
    if loose:
        more = "; unattended-upgrades is installed" if facts["unattended_upgrades"] else ""
        do = f"run playbooks/host.yml, or apt-mark hold {' '.join(loose)}"
        return warn(name, f"{count(len(loose), 'driver package')} not held: {listing(loose)}{more}", needed, do)
    if not kept:
        return not_here(name, "no driver of this box's packages")
    return ok(name, f"{count(len(kept), 'driver package')} held", needed)
