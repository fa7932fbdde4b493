"""Choose what to do about a machine's NVIDIA driver: leave it, install one, reboot, or refuse.

Pure functions. From the facts of the machine (`facts.py`), the wishes (the role's variables) and the table of GPUs
(`profiles/catalog/gpus.yml`) they make a plan, or raise every reason against one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from ...core.errors import DrafthouseError, Problem, one_problem
from ...core.messages import known_message
from ..nvidia_smi import Smi, read_smi
from .packages import add_packages, gpu_users, held_packages, oldest_offered
from .plan import Card, Plan, Wishes, branch_of, recognise

if TYPE_CHECKING:
    from drafthouse.host.driver.facts import DriverFacts
    from drafthouse.profiles.catalog_types import Gpus


# A vGPU is named like its profile: "GRID T4-16Q", "NVIDIA A40-48Q", "NVIDIA H100XM-4-20C" (NVIDIA vGPU User Guide).
_VGPU = re.compile(r"^GRID |-\d+[ABCQ](?:ME)?$")


class Settled(TypedDict):
    """The state after an installation (`settle`)."""

    version: str  # of the driver that runs; '' if none does before the reboot
    reboot: bool  # a reboot is still needed


def choose(facts: DriverFacts, wishes: Wishes, gpus: Gpus) -> Plan:
    """The plan for a machine. Raises DrafthouseError with every reason against changing its driver.

    1. A driver that works and is new enough is left alone.
    2. A guest whose host decides on the driver, and a machine without a GPU, are refused at once.
    3. Where the right driver is installed and another one runs, the plan is a reboot.
    4. Else the plan is an installation.
    """
    # vfio-pci holds a GPU for a virtual machine.
    devices = [device for device in facts["pci"] if device.get("driver") != "vfio-pci"]
    cards = recognise(devices, gpus)
    smi = read_smi(facts["smi"])
    # WSL and some virtual machines have GPUs without a visible PCI device.
    gpu_names = [str(card) for card in cards] or list(smi.names)
    if smi.works and branch_of(smi.version) >= wishes.branch:
        why = f"driver {smi.version} works, and branch {wishes.branch} or newer is enough"
        return Plan(action="leave", why=why, cards=gpu_names, branch=wishes.branch, warnings=_card_warnings(cards))
    _refuse_guest(facts, smi, wishes)
    if not devices:
        raise DrafthouseError(_no_gpu(facts))
    # NVIDIA's repository for a new release of a distribution lacks old branches: the oldest one in it must do.
    wishes = replace(wishes, branch=max(wishes.branch, oldest_offered(facts, wishes)))
    problems: list[Problem] = []
    is_open = _kernel_modules(cards, wishes, problems)
    reboot_reason = _reboot_reason(facts, smi, wishes)
    problems += _broken_driver_problems(facts, smi, wishes, is_open)
    why = reboot_reason or _install_reason(facts, smi, wishes)
    plan = Plan(action="install", why=why, cards=gpu_names, branch=wishes.branch, open=is_open)
    if reboot_reason:
        plan.action = "reboot"
        plan.reboot = True
        if wishes.reboot == "never":
            problems.append(_reboot_needed(reboot_reason))
    else:
        # A driver that the kernel has loaded stays in use until a reboot.
        plan.reboot = bool(facts["loaded"]) or "nouveau" in facts["modules"]
        add_packages(plan, facts, wishes, problems)
        _add_foreign_driver(facts, wishes, problems)
        plan.unhold = held_packages(facts)
        _add_secure_boot(plan, facts, wishes, problems)
    _add_gpu_users(facts, wishes, plan, problems)
    if not facts["is_root"]:
        found = "the user is not root"
        needed = "root, to install packages and modules"
        do = "run the play with become"
        problems.append(Problem("root-required", found, needed, do))
    plan.warnings += _card_warnings(cards) + _nvswitch_warnings(facts)
    if problems:
        raise DrafthouseError(problems)
    return plan


def _refuse_guest(facts: DriverFacts, smi: Smi, wishes: Wishes) -> None:
    """Raise DrafthouseError if the host decides on the driver: under WSL, and for an NVIDIA vGPU."""
    running = f"driver {smi.version}" if smi.works else "no driver that responds"
    needed = f"a driver of branch {wishes.branch} or newer"
    if "microsoft" in facts["kernel"].lower():
        raise one_problem(
            "driver-not-ours",
            f"WSL ({facts['kernel']}), with {running}",
            f"{needed}, installed in Windows: one installed here would hide it",
            "update NVIDIA's driver in Windows, `wsl --shutdown`, then set drafthouse_manage_host: false",
        )
    signs = sorted(name for name in facts["packages"] if name.startswith("nvidia-linux-grid"))
    signs += filter(_VGPU.search, smi.names)
    if signs:
        raise one_problem(
            "driver-not-ours",
            f"a vGPU guest ({', '.join(signs)}), with {running}",
            f"{needed}, from the NVIDIA vGPU release that the host runs: a workstation's does not serve a vGPU",
            "ask whoever runs the host for that guest driver (nvidia-linux-grid); a working one is left alone",
        )


def _no_gpu(facts: DriverFacts) -> Problem:
    """The problem of a machine without a GPU for itself: all are passed through to virtual machines, or none exists."""
    passed_through = [device["address"] for device in facts["pci"]]
    if passed_through:
        found = f"every NVIDIA GPU is held by vfio-pci, for a virtual machine ({', '.join(passed_through)})"
        needed = "a GPU for this machine itself"
        do = "remove it from vfio-pci's ids (/etc/modprobe.d, kernel command line) and reboot, or run in the guest"
        return Problem("no-gpu", found, needed, do)
    found = "no NVIDIA GPU on the PCI bus"
    needed = "a display or 3D controller of vendor 10de"
    do = (
        "see what `lspci -nn | grep 10de` shows; seat the card, or pass it through to the virtual machine; "
        "a box without a GPU does not belong in this inventory group"
    )
    return Problem("no-gpu", found, needed, do)


def _kernel_modules(cards: Sequence[Card], wishes: Wishes, problems: list[Problem]) -> bool:
    """True to install the open kernel modules, False for the proprietary ones; append to ``problems``.

    The wish decides (true, false), else the GPUs do (auto). GPUs that CUDA 13 does not support count only for auto.
    """
    usable = [card for card in cards if card.cuda13]
    if not usable:
        found = f"only GPUs that CUDA 13 does not support: {_card_names(cards)}"
        needed = "a GPU of the Turing generation or newer: the engines need CUDA 13"
        do = (
            "use another box; branch 580 with the proprietary modules is the last for these GPUs, "
            "for engines built for CUDA 12"
        )
        problems.append(Problem("gpu-too-old", found, needed, do))
        return False
    for card in usable:
        if card.first_branch > wishes.branch:
            found = f"{card}, which branch {wishes.branch} does not support"
            needed = f"branch {card.first_branch} or newer"
            do = f"nvidia_driver_branch={card.first_branch}"
            problems.append(Problem("driver-does-not-fit-gpu", found, needed, do))
    if wishes.open == "true":
        return True
    if wishes.open != "false":
        return _open_for_cards(cards, wishes, problems)
    required = _open_only(usable)
    if required:
        found = f"nvidia_driver_open is false, but this box has {_card_names(required)}"
        needed = "the open kernel modules: the proprietary ones do not support it"
        do = "nvidia_driver_open=auto"
        problems.append(Problem("driver-does-not-fit-gpu", found, needed, do))
    return False


def _open_for_cards(cards: Sequence[Card], wishes: Wishes, problems: list[Problem]) -> bool:
    """True if the open kernel modules fit the GPUs; append to ``problems`` if no single driver fits all."""
    usable = [card for card in cards if card.cuda13]
    older = [card for card in cards if not card.cuda13]
    unknown = [card for card in usable if not card.generation]
    if unknown:
        found = f"a GPU that profiles/catalog/gpus.yml does not know: {_card_names(unknown)}"
        needed = "an entry that says whether it takes the open kernel modules"
        do = (
            "add its PCI id there with its source; until then set nvidia_driver_open=true (Turing and newer) "
            "or nvidia_driver_open=false"
        )
        problems.append(Problem("gpu-unknown", found, needed, do))
        return False
    required = _open_only(usable)
    if required and older:
        found = (
            f"{_card_names(required)}, which needs the open kernel modules, beside {_card_names(older)}, "
            "which cannot use them"
        )
        needed = "cards that one driver supports"
        do = "remove the older card, or do without it: nvidia_driver_open=true"
        problems.append(Problem("driver-does-not-fit-gpu", found, needed, do))
    # A last branch of 0 is no limit.
    if older and wishes.branch > min(card.last_branch or wishes.branch for card in older):
        found = f"{_card_names(older)}, which branch {wishes.branch} no longer supports"
        needed = "a branch that supports all cards, or no older card"
        do = "nvidia_driver_branch=580, or remove the card, or nvidia_driver_open=true"
        problems.append(Problem("driver-does-not-fit-gpu", found, needed, do))
    return not older


def _open_only(cards: Iterable[Card]) -> list[Card]:
    """The GPUs that only the open kernel modules support."""
    return [card for card in cards if card.open == "required"]


def _card_names(cards: Iterable[Card]) -> str:
    """The GPUs as text for a message."""
    return ", ".join(map(str, cards))


def _reboot_reason(facts: DriverFacts, smi: Smi, wishes: Wishes) -> str:
    """The reason why a reboot suffices (the installed driver is right, the running one is not), else ''.

    1. Kernel module and library differ: if the installed driver is new enough, and is not the one that runs.
    2. Else nvidia-smi exists and fails: if the driver on disk is new enough, and the loaded one, if any, is not.
    """
    loaded = facts["loaded"]
    on_disk = str(facts["module_on_disk"])
    if smi.mismatch:
        if on_disk and on_disk == loaded.get("version"):
            return ""  # the installed module runs already; the library's module is missing, so a reboot is no help
        installed = on_disk or smi.library
        if branch_of(installed) >= wishes.branch:
            return (
                f"driver and library versions differ: the kernel runs {loaded.get('version') or 'another one'}, "
                f"{installed} is installed"
            )
        return ""
    # nvidia-smi comes with the driver's libraries: without it the installation is incomplete.
    if smi.works or facts["smi"].get("status") is None or branch_of(on_disk) < wishes.branch:
        return ""
    if loaded and branch_of(str(loaded.get("version", ""))) >= wishes.branch:
        return ""  # it runs but does not respond: the wrong kind of module, or a broken one
    return f"driver {on_disk} is installed for this kernel, which runs {_running_module(facts) or 'no driver'}"


def _running_module(facts: DriverFacts) -> str:
    """The kernel's driver for the GPU: "nouveau", or the version of NVIDIA's module; '' if none is loaded."""
    if "nouveau" in facts["modules"]:
        return "nouveau"
    return facts["loaded"].get("version", "")


def _broken_driver_problems(facts: DriverFacts, smi: Smi, wishes: Wishes, is_open: bool) -> list[Problem]:
    """The problem that the right driver runs but shows no GPU, for a known cause; installing would not help."""
    loaded = facts["loaded"]
    version = str(loaded.get("version", ""))
    explanation = known_message(smi.text)
    is_right = version == facts["module_on_disk"] and bool(loaded.get("open")) == is_open
    if smi.mismatch or explanation is None or not is_right or branch_of(version) < wishes.branch:
        return []
    found = f"driver {version} runs, the right one for this GPU, and nvidia-smi says: {smi.text}"
    needed = "an nvidia-smi that shows the GPU"
    do = f"{explanation.cause}: {explanation.do}"
    return [Problem("driver-not-working", found, needed, do)]


def _reboot_needed(why: str) -> Problem:
    """The problem that only a reboot helps, and the settings allow none."""
    needed = "a reboot, so that kernel module and libraries have the same version"
    do = "reboot it yourself, or allow it: nvidia_driver_reboot=when_needed; then run again"
    return Problem("reboot-required", why, needed, do)


def _install_reason(facts: DriverFacts, smi: Smi, wishes: Wishes) -> str:
    """What is wrong with the driver that the machine has, as the plan's reason."""
    loaded = facts["loaded"]
    if smi.works:
        return f"driver {smi.version} is older than branch {wishes.branch}"
    if smi.mismatch:
        module = facts["module_on_disk"] or loaded.get("version") or "none"
        return f"a mixed installation: kernel module {module}, library {smi.library or 'of another version'}"
    if loaded:
        kind = "open" if loaded.get("open") else "proprietary"
        return f"driver {loaded.get('version')} ({kind}) is loaded but shows no GPU ({smi.text or 'no nvidia-smi'})"
    if "nouveau" in facts["modules"]:
        return "nouveau, which has no CUDA, runs the GPU"
    return f"no working driver ({smi.text})" if smi.text else "no driver"


def _add_foreign_driver(facts: DriverFacts, wishes: Wishes, problems: list[Problem]) -> None:
    """Add the problem of a driver from NVIDIA's .run file, and that of packages which somebody else put on hold."""
    if facts["runfile"]:
        found = "a driver installed by NVIDIA's .run file (nvidia-uninstall exists)"
        needed = "a driver that is new enough, or none: packages on top of it would leave a mix of both"
        do = "nvidia-uninstall, reboot, then run again"
        problems.append(Problem("driver-not-ours", found, needed, do))
    on_hold = held_packages(facts)
    if on_hold and not facts["managed"] and not wishes.force:
        found = f"driver packages held at their version: {', '.join(on_hold)}"
        needed = "packages that may be replaced"
        do = f"apt-mark unhold {' '.join(on_hold)}; or allow it: nvidia_driver_force=true"
        problems.append(Problem("driver-not-ours", found, needed, do))


def _add_secure_boot(plan: Plan, facts: DriverFacts, wishes: Wishes, problems: list[Problem]) -> None:
    """Add a warning to the plan, or a problem, where Secure Boot would refuse modules that DKMS signs."""
    if not facts["secure_boot"] or facts["module_key_enrolled"]:
        return
    on_ubuntu = facts["os"]["id"] == "ubuntu"
    if wishes.source == "distribution" and on_ubuntu:
        return  # Canonical signs these modules
    found = "Secure Boot is on, but no module signing key of this machine is enrolled"
    make_key = "dkms generate_mok"
    signed = ""
    if on_ubuntu:
        make_key = "update-secureboot-policy --new-key"
        signed = "; or take the modules that Canonical signs: nvidia_driver_source=distribution"
    advice = (
        f"switch Secure Boot off in the firmware, or enrol a key: `{make_key}`, `mokutil --import` it, reboot and "
        "confirm it on the screen"
    )
    if wishes.secure_boot == "warn":
        plan.warnings.append(f"{found}: the kernel will refuse the driver. {advice[0].upper()}{advice[1:]}")
        return
    needed = "a kernel that will load the driver's modules"
    do = f"{advice}{signed}; or install anyway and enrol afterwards: nvidia_driver_secure_boot=warn"
    problems.append(Problem("secure-boot", found, needed, do))


def _add_gpu_users(facts: DriverFacts, wishes: Wishes, plan: Plan, problems: list[Problem]) -> None:
    """Add the problem of processes that use a GPU, unless the wishes accept that they crash."""
    users = gpu_users(facts)
    if not users or wishes.force:
        return
    more = f" and {len(users) - 6} more" if len(users) > 6 else ""
    harm = "a reboot would end them" if plan.action == "reboot" else "a new driver would break them"
    found = f"processes use the GPU: {', '.join(users[:6])}{more}"
    needed = f"none, because {harm}"
    do = "stop them, or accept that they crash: nvidia_driver_force=true"
    problems.append(Problem("gpu-in-use", found, needed, do))


def _card_warnings(cards: Iterable[Card]) -> list[str]:
    """A sentence for each GPU that CUDA 13 does not support."""
    return [f"{card}: CUDA 13 has dropped it, engines will not use it" for card in cards if not card.cuda13]


def _nvswitch_warnings(facts: DriverFacts) -> list[str]:
    """A sentence about the fabric manager, which NVSwitch devices need; [] without such devices."""
    if not facts.get("nvswitches"):
        return []
    return [
        f"{facts['nvswitches']} NVSwitch devices: CUDA answers 802 (system not yet initialized) until a fabric manager "
        "of the driver's own version runs; this role does not install it (nvidia-fabricmanager; B200: nvlink5)"
    ]


def settle(facts: DriverFacts, wishes: Wishes, rebooted: bool) -> Settled:
    """The state after the installation, with facts read anew.

    1. The driver works and is new enough: no reboot is needed.
    2. No reboot helps, as the machine was just ``rebooted`` or Secure Boot refuses the module: DrafthouseError.
    3. The settings allow no reboot: DrafthouseError.
    4. Else a reboot is needed.
    """
    smi = read_smi(facts["smi"])
    if smi.works and branch_of(smi.version) >= wishes.branch:
        return {"version": smi.version, "reboot": False}
    answer = smi.text or "there is no nvidia-smi"
    locked = facts["secure_boot"] and not facts["module_key_enrolled"]
    if rebooted or (locked and wishes.secure_boot == "warn"):
        explanation = known_message(answer)
        if locked:
            do = "Secure Boot is on: enrol this machine's key (`mokutil --import`, reboot, confirm), then run again"
        elif explanation:
            do = explanation.do
        else:
            do = "see `dkms status`, `dmesg | grep -i -e nvrm -e nvidia` and `modprobe -v nvidia`"
        found = f"the driver is installed but does not respond ({answer})"
        needed = "an nvidia-smi that shows the GPU"
        raise one_problem("driver-not-working", found, needed, do)
    if wishes.reboot == "never":
        module = _running_module(facts)
        kernel_state = f"the kernel still runs {module}" if module else "the kernel has not loaded it"
        raise DrafthouseError(_reboot_needed(f"the driver is installed, but {kernel_state} ({answer})"))
    return {"version": "", "reboot": True}
