"""Choose what to do about a box's NVIDIA driver: leave it, install one, only start the machine again, or refuse.

Pure: facts of the box (`driver_facts`), wishes (the role's variables) and the table of GPUs
(`profiles/catalog/gpus.yml`) go in; a plan comes out, or every reason why there is none.

Sources of what is written down here:
package names: NVIDIA Driver Installation Guide, chapters Ubuntu, Debian, "Recent updates" (the renaming from branch
590 on) and "Version locking", https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/;
https://packages.ubuntu.com/source/noble/nvidia-graphics-drivers-580 for Ubuntu's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .problems import HouseError, Problem

Data = Mapping[str, Any]

_RENAMED_SINCE = 590  # from this branch on NVIDIA's names for Ubuntu have no branch in them
_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}  # the kernel's word -> the repository's


@dataclass(frozen=True)
class Release:
    """A release of a distribution for which NVIDIA keeps a repository.

    ``key`` is the file of the signing key in it, ``fingerprint`` that key's. Debian 13 has a key of its own: its apt
    no longer takes the older one, whose own signature is SHA-1 (NVIDIA/cuda-repo-management#30, #34, #39).
    """

    folder: str
    key: str
    fingerprint: str
    architectures: tuple[str, ...]


_OLDER_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_NEWER_KEY = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
RELEASES = {
    ("ubuntu", "22.04"): Release("ubuntu2204", *_OLDER_KEY, ("x86_64", "aarch64")),
    ("ubuntu", "24.04"): Release("ubuntu2404", *_OLDER_KEY, ("x86_64", "aarch64")),
    ("debian", "12"): Release("debian12", *_OLDER_KEY, ("x86_64",)),
    ("debian", "13"): Release("debian13", *_NEWER_KEY, ("x86_64",)),
}


@dataclass(frozen=True)
class Wishes:
    """What the role was asked for; the words are those of its variables.

    ``branch`` is the lowest that will do and the one that is installed.
    """

    branch: int = 580
    source: str = "nvidia"  # nvidia | distribution
    open: str = "auto"  # auto | true | false
    compute_only: bool = False
    reboot: str = "never"  # never | when_needed
    secure_boot: str = "refuse"  # refuse | warn
    force: bool = False
    repository_url: str = ""
    repository_key: str = ""
    repository_fingerprint: str = ""

    @classmethod
    def of(cls, words: Data) -> Wishes:
        """Return the wishes of a role's variables, as Ansible hands them over."""
        known = {name: words[name] for name in cls.__dataclass_fields__ if name in words}
        return cls(**known)


@dataclass(frozen=True)
class Card:
    """One GPU as far as it is known: ``generation`` is empty where no table has it."""

    address: str
    name: str
    generation: str = ""
    open: str = ""
    cuda13: bool = True
    first_branch: int = 0
    last_branch: int = 0

    def __str__(self) -> str:
        return f"{self.name} ({self.generation or 'unknown generation'}) at {self.address}"


@dataclass
class Plan:
    """What is to be done; plain data after `as_dict`.

    ``action`` is leave, install or reboot. ``needs`` are packages without which nothing starts (headers),
    ``pinning`` comes before ``driver``, ``optional`` is taken where it exists. ``reboot`` says that the new driver
    will work after a reboot only. ``unhold``: packages that an earlier run of ours holds, and that must go or change.
    """

    action: str
    why: str
    cards: list[str]
    branch: int
    open: bool = False
    repository: dict[str, str] = field(default_factory=dict)
    needs: list[str] = field(default_factory=list)
    pinning: list[str] = field(default_factory=list)
    driver: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    unhold: list[str] = field(default_factory=list)
    reboot: bool = False
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


# --- reading ----------------------------------------------------------------------------------------


def branch_of(version: str) -> int:
    """Return the driver branch in a version of a driver or a package (`1:580.95.05-1ubuntu1`: 580); 0 for none."""
    found = re.match(r"(?:\d+:)?(\d+)\.", version)
    return int(found[1]) if found else 0


@dataclass(frozen=True)
class Smi:
    """What `nvidia-smi` said: the version where it works, else why it does not."""

    version: str = ""
    mismatch: bool = False
    library: str = ""
    text: str = ""

    @property
    def works(self) -> bool:
        """Whether the driver answers and shows a GPU."""
        return bool(self.version)


def read_smi(said: Data) -> Smi:
    """Read the answer to `nvidia-smi --query-gpu=name,driver_version --format=csv,noheader`.

    A failing nvidia-smi writes its reason to its standard output. ``status`` is None where there is no such program.
    """
    text = f"{said.get('output', '')}\n{said.get('error', '')}".strip()
    if said.get("status") == 0:
        for line in str(said.get("output", "")).splitlines():
            version = line.rpartition(",")[2].strip()
            if re.fullmatch(r"\d+(\.\d+)+", version):
                return Smi(version=version, text=text)
    library = re.search(r"NVML library version: ([\d.]+)", text)
    return Smi(
        mismatch="version mismatch" in text.lower(),
        library=library[1] if library else "",
        text=" ".join(text.split())[:200],
    )


def recognise(devices: Iterable[Data], gpus: Data) -> list[Card]:
    """Return the cards behind PCI devices: by their own id, else by the range it lies in."""
    cards = []
    for device in devices:
        number = str(device["id"]).lower()
        known = gpus["cards"].get(number, {})
        generation = known.get("generation") or _generation_in_ranges(number, gpus["ranges"])
        facts = gpus["generations"].get(generation, {})
        cards.append(
            Card(
                address=str(device["address"]),
                name=known.get("name") or device.get("name") or f"10de:{number}",
                generation=generation,
                open=facts.get("open", ""),
                cuda13=facts.get("cuda13", True),
                first_branch=known.get("first_branch") or facts.get("first_branch", 0),
                last_branch=facts.get("last_branch", 0),
            )
        )
    return cards


def _generation_in_ranges(number: str, ranges: Iterable[Data]) -> str:
    value = int(number, 16)
    for entry in ranges:
        if int(entry["first"], 16) <= value <= int(entry["last"], 16):
            return str(entry["generation"])
    return ""


# --- choosing ---------------------------------------------------------------------------------------


def choose(facts: Data, wishes: Wishes, gpus: Data) -> Plan:
    """Return the plan for a box; HouseError holds every reason against touching it."""
    devices = [device for device in facts["pci"] if device.get("driver") != "vfio-pci"]
    if not devices:
        raise HouseError(_no_gpu(facts))
    cards = recognise(devices, gpus)
    shown = [str(card) for card in cards]
    smi = read_smi(facts["smi"])
    if smi.works and branch_of(smi.version) >= wishes.branch:
        why = f"driver {smi.version} works, and branch {wishes.branch} or newer is enough"
        return Plan("leave", why, shown, wishes.branch, warnings=_of_cards(cards))
    problems: list[Problem] = []
    is_open = _kernel_modules(cards, wishes, problems)
    waiting = _waiting_for_reboot(facts, smi, wishes)
    if waiting:
        plan = Plan("reboot", waiting, shown, wishes.branch, is_open, reboot=True)
        if wishes.reboot == "never":
            problems.append(_reboot_needed(waiting))
    else:
        plan = Plan("install", _reason(facts, smi, wishes), shown, wishes.branch, is_open)
        plan.reboot = bool(facts["loaded"]) or "nouveau" in facts["modules"]
        _from_where(plan, facts, wishes, problems)
        _not_ours_to_replace(facts, wishes, problems)
        plan.unhold = _held(facts)
        _secure_boot(plan, facts, wishes, problems)
    _in_use(facts, wishes, plan, problems)
    if not facts["is_root"]:
        problems.append(Problem("a user who is not root", "root, for packages and modules", "run the play with become"))
    plan.warnings += _of_cards(cards) + _of_switches(facts)
    if problems:
        raise HouseError(problems)
    return plan


def _no_gpu(facts: Data) -> Problem:
    given_away = [f"{device['address']}" for device in facts["pci"]]
    if given_away:
        return Problem(
            f"every NVIDIA GPU is held by vfio-pci, for a virtual machine ({', '.join(given_away)})",
            "a GPU that this machine uses itself",
            "take it out of vfio-pci's ids (/etc/modprobe.d, kernel command line) and reboot, or run in the guest",
        )
    return Problem(
        "no NVIDIA GPU on the PCI bus",
        "a display or 3D controller of vendor 10de",
        "see what `lspci -nn | grep 10de` shows; seat the card, or in a virtual machine hand it through; "
        "a box without a GPU does not belong into this group of the inventory",
    )


def _kernel_modules(cards: Sequence[Card], wishes: Wishes, problems: list[Problem]) -> bool:
    """Return whether the open kernel modules are to be installed; add what the cards and the wishes make impossible."""
    usable = [card for card in cards if card.cuda13]
    older = [card for card in cards if not card.cuda13]
    if not usable:
        problems.append(
            Problem(
                f"only GPUs that CUDA 13 has dropped: {_named(older)}",
                "a GPU of the Turing generation or newer: the engines stand on CUDA 13",
                "use another box; branch 580 with the proprietary modules is the last for these GPUs, "
                "for engines that are built on CUDA 12",
            )
        )
        return False
    for card in usable:
        if card.first_branch > wishes.branch:
            problems.append(
                Problem(
                    f"{card}, which branch {wishes.branch} does not know",
                    f"branch {card.first_branch} or newer",
                    f"nvidia_driver_branch={card.first_branch}",
                )
            )
    required = [card for card in usable if card.open == "required"]
    if wishes.open == "true":
        return True
    if wishes.open == "false":
        if required:
            problems.append(
                Problem(
                    f"nvidia_driver_open is false, and there is {_named(required)}",
                    "the open kernel modules: the proprietary ones do not bind to it",
                    "nvidia_driver_open=auto",
                )
            )
        return False
    unknown = [card for card in usable if not card.generation]
    if unknown:
        problems.append(
            Problem(
                f"a GPU that profiles/catalog/gpus.yml does not know: {_named(unknown)}",
                "whether it takes the open kernel modules",
                "add its PCI id there with its source; until then say nvidia_driver_open=true (Turing and newer) "
                "or nvidia_driver_open=false",
            )
        )
        return False
    if required and older:
        problems.append(
            Problem(
                f"{_named(required)}, which needs the open kernel modules, beside {_named(older)}, "
                "which cannot use them",
                "cards that one driver serves",
                "take the older card out, or give it up: nvidia_driver_open=true",
            )
        )
    if older and wishes.branch > min(card.last_branch or wishes.branch for card in older):
        problems.append(
            Problem(
                f"{_named(older)}, which branch {wishes.branch} has dropped",
                "a branch that serves all cards, or the older card given up",
                "nvidia_driver_branch=580, or take the card out, or nvidia_driver_open=true",
            )
        )
    return not older


def _named(cards: Iterable[Card]) -> str:
    return ", ".join(str(card) for card in cards)


def _waiting_for_reboot(facts: Data, smi: Smi, wishes: Wishes) -> str:
    """Return why a reboot alone will do, or '' where it will not: what is installed is right, and not what runs."""
    loaded = facts["loaded"] or {}
    on_disk = str(facts["module_on_disk"])
    if smi.mismatch:
        there = on_disk or smi.library
        if branch_of(there) >= wishes.branch:
            return (
                f"driver and library are of two versions: the kernel runs {loaded.get('version') or 'another one'}, "
                f"{there} is installed"
            )
        return ""
    # nvidia-smi belongs to the installed libraries: without it only half of a driver is there.
    if smi.works or facts["smi"].get("status") is None or branch_of(on_disk) < wishes.branch:
        return ""
    if loaded and branch_of(str(loaded.get("version", ""))) >= wishes.branch:
        return ""  # it runs and does not answer: the wrong kind of module, or a broken one
    holder = "nouveau" if "nouveau" in facts["modules"] else (loaded.get("version") or "no driver")
    return f"driver {on_disk} is installed for this kernel, which runs {holder}"


def _reboot_needed(why: str) -> Problem:
    return Problem(
        why,
        "the machine started again, so that kernel and libraries are of one version",
        "reboot it yourself, or allow it: nvidia_driver_reboot=when_needed; then run again",
    )


def _reason(facts: Data, smi: Smi, wishes: Wishes) -> str:
    loaded = facts["loaded"] or {}
    if smi.works:
        return f"driver {smi.version} is older than branch {wishes.branch}"
    if smi.mismatch:
        return f"a mixed installation (library {smi.library or 'of another version'}) older than branch {wishes.branch}"
    if loaded:
        kind = "open" if loaded.get("open") else "proprietary"
        return f"driver {loaded.get('version')} ({kind}) is loaded and shows no GPU ({smi.text or 'no nvidia-smi'})"
    if "nouveau" in facts["modules"]:
        return "nouveau runs the GPU, which has no CUDA"
    return f"no working driver ({smi.text})" if smi.text else "no driver"


def _from_where(plan: Plan, facts: Data, wishes: Wishes, problems: list[Problem]) -> None:
    """Add repository and packages to an installing plan."""
    name, version = facts["os"]["id"], facts["os"]["version_id"]
    shown = facts["os"]["name"] or f"{name} {version}"
    if name not in ("ubuntu", "debian"):
        problems.append(
            Problem(
                f"{shown}, whose packages this role does not know",
                "Ubuntu or Debian, or a driver that is good enough already",
                f"install a driver of branch {wishes.branch} or newer the way {shown} does, then run again",
            )
        )
        return
    if wishes.source == "distribution":
        plan.needs = _headers(facts)
        plan.driver = _distributions_own(name, plan, facts, wishes)
        return
    release = RELEASES.get((name, version))
    if not release or facts["architecture"] not in release.architectures:
        problems.append(
            Problem(
                f"{shown} on {facts['architecture']}, for which this role knows no repository of NVIDIA's",
                f"one of: {', '.join(f'{known[0]} {known[1]}' for known in RELEASES)}, "
                "or a driver that is good enough already",
                "take the distribution's own package: nvidia_driver_source=distribution",
            )
        )
        return
    folder = f"{_REPOSITORIES}/{release.folder}/{_ARCHITECTURES[facts['architecture']]}"
    url = (wishes.repository_url or folder).rstrip("/")
    plan.repository = {
        "url": f"{url}/",
        "key": wishes.repository_key or f"{url}/{release.key}",
        "fingerprint": (wishes.repository_fingerprint or release.fingerprint).replace(" ", "").upper(),
    }
    plan.needs = _headers(facts)
    plan.pinning = [f"nvidia-driver-pinning-{plan.branch}"]
    plan.driver, plan.optional = _nvidias(name, plan, wishes)


def _headers(facts: Data) -> list[str]:
    """Return the headers that DKMS builds with: the running kernel's, and those that come with its next version."""
    flavours = sorted(
        found[1]
        for name in facts["packages"]
        if (found := re.fullmatch(r"linux-image-((?!\d|unsigned|.*dbg).+)", name))
    )
    return [f"linux-headers-{facts['kernel']}", *(f"linux-headers-{flavour}" for flavour in flavours)]


def _nvidias(distribution: str, plan: Plan, wishes: Wishes) -> tuple[list[str], list[str]]:
    """Return the packages of NVIDIA's repository: those that are needed, and those to take where they exist."""
    opened = plan.open
    if distribution == "debian":
        if wishes.compute_only:
            return (
                ["nvidia-driver-cuda", "nvidia-kernel-open-dkms" if opened else "nvidia-kernel-dkms"],
                ["nvidia-persistenced"],
            )
        return ["nvidia-open" if opened else "cuda-drivers"], []
    if plan.branch >= _RENAMED_SINCE:
        if wishes.compute_only:
            # nvidia-smi came in nvidia-utils-<branch>; where the new name exists it is wanted.
            return (
                ["libnvidia-compute", "nvidia-dkms-open" if opened else "nvidia-dkms"],
                ["nvidia-utils", "nvidia-persistenced"],
            )
        return ["nvidia-open", "nvidia-driver-open"] if opened else ["cuda-drivers", "nvidia-driver"], []
    branch = plan.branch
    if wishes.compute_only:
        modules = f"nvidia-dkms-{branch}-open" if opened else f"nvidia-dkms-{branch}"
        return [f"libnvidia-compute-{branch}", modules, f"nvidia-utils-{branch}"], ["nvidia-persistenced"]
    # The second is the first one's own dependency, which Ubuntu's archive has under another name, too. Left to itself
    # apt can weigh the two against an older driver that is there, and give up.
    if opened:
        return [f"nvidia-open-{branch}", f"nvidia-driver-{branch}-open"], []
    return [f"cuda-drivers-{branch}", f"nvidia-driver-{branch}"], []


def _distributions_own(distribution: str, plan: Plan, facts: Data, wishes: Wishes) -> list[str]:
    """Return the distribution's own packages. Ubuntu keeps the branch in the name; Debian has one branch a release."""
    if distribution == "debian":
        kernel = "nvidia-open-kernel-dkms" if plan.open else "nvidia-kernel-dkms"
        libraries = ["libcuda1", "nvidia-smi"] if wishes.compute_only else ["nvidia-driver", "nvidia-smi"]
        return [kernel, *libraries]
    kind = f"{plan.branch}-server" + ("-open" if plan.open else "")
    if facts["secure_boot"]:
        # Canonical builds and signs these for its kernels: they load where a module built here would not.
        flavours = [name.removeprefix("linux-headers-") for name in _headers(facts)[1:]] or ["generic"]
        signed = [f"linux-modules-nvidia-{kind}-{flavour}" for flavour in flavours]
        if wishes.compute_only:
            return [*signed, f"nvidia-headless-no-dkms-{kind}", f"nvidia-utils-{plan.branch}-server"]
        return [*signed, f"nvidia-driver-{kind}"]
    if wishes.compute_only:
        return [f"nvidia-headless-{kind}", f"nvidia-utils-{plan.branch}-server"]
    return [f"nvidia-driver-{kind}"]


def _not_ours_to_replace(facts: Data, wishes: Wishes, problems: list[Problem]) -> None:
    if facts["runfile"]:
        problems.append(
            Problem(
                "a driver that NVIDIA's .run file installed (there is nvidia-uninstall)",
                "a driver that is good enough, or none: packages over it would leave two halves",
                "nvidia-uninstall, reboot, then run again",
            )
        )
    held = _held(facts)
    if held and not facts["managed"] and not wishes.force:
        problems.append(
            Problem(
                f"driver packages that somebody holds at their version: {', '.join(held)}",
                "packages that may be replaced",
                f"apt-mark unhold {' '.join(held)}; or let the role do it: nvidia_driver_force=true",
            )
        )


def _held(facts: Data) -> list[str]:
    return sorted(name for name, found in facts["packages"].items() if found["held"] and _is_driver(name))


def _secure_boot(plan: Plan, facts: Data, wishes: Wishes, problems: list[Problem]) -> None:
    if not facts["secure_boot"] or facts["module_key_enrolled"]:
        return
    on_ubuntu = facts["os"]["id"] == "ubuntu"
    if wishes.source == "distribution" and on_ubuntu:
        return  # Canonical has signed them
    found = "Secure Boot is on, and no key with which this machine signs modules is enrolled"
    make = "update-secureboot-policy --new-key" if on_ubuntu else "dkms generate_mok"
    enrol = (
        f"switch Secure Boot off in the firmware, or enrol a key: `{make}`, `mokutil --import` it, reboot and "
        "confirm it on the screen"
    )
    if wishes.secure_boot == "warn":
        plan.warnings.append(f"{found}: the kernel will refuse the driver. {enrol[0].upper()}{enrol[1:]}")
        return
    signed = "; or take the modules that Canonical signs: nvidia_driver_source=distribution" if on_ubuntu else ""
    problems.append(
        Problem(
            found,
            "a kernel that will load the driver's modules",
            f"{enrol}{signed}; or install all the same and enrol afterwards: nvidia_driver_secure_boot=warn",
        )
    )


def _in_use(facts: Data, wishes: Wishes, plan: Plan, problems: list[Problem]) -> None:
    users = [f"{user['command']} ({user['pid']})" for user in facts["users"]]
    if not users or wishes.force:
        return
    more = f" and {len(users) - 6} more" if len(users) > 6 else ""
    hurt = "a reboot would end them" if plan.action == "reboot" else "a new driver would break them"
    problems.append(
        Problem(
            f"processes use the GPU: {', '.join(users[:6])}{more}",
            f"none, because {hurt}",
            "stop them, or say that they may break: nvidia_driver_force=true",
        )
    )


def _of_cards(cards: Iterable[Card]) -> list[str]:
    return [f"{card}: CUDA 13 has dropped it, engines will not use it" for card in cards if not card.cuda13]


def _of_switches(facts: Data) -> list[str]:
    if not facts.get("nvswitches"):
        return []
    return [
        f"{facts['nvswitches']} NVSwitch devices: CUDA answers 802 (system not yet initialized) until a fabric manager "
        "of the driver's own version runs; this role does not install it (nvidia-fabricmanager; B200: nvlink5)"
    ]


# --- after the repository was read, and after the installation ---------------------------------------


def pick(plan: Data, versions: Mapping[str, Sequence[str]], check: bool = False) -> dict[str, list[str]]:
    """Return what to install, with exact versions for the driver: {needs, pinning, driver}.

    ``versions``: for each package the versions that apt can install, newest first. Raises HouseError where a package
    is missing or of an older branch. With ``check`` the kernel's headers may be missing: a bare machine has no index
    yet, and check mode does not fetch one.
    """
    problems = []
    branch = int(plan["branch"])
    exact = bool(plan["repository"])
    missing = [name for name in plan["needs"] if not versions.get(name)]
    if missing and not check:
        problems.append(
            Problem(
                f"no package {', '.join(missing)} in apt's archives",
                "headers of the running kernel, to build the modules with",
                "upgrade the kernel and reboot (its headers may have left the archive), or install them yourself",
            )
        )
    missing = [name for name in plan["pinning"] if not versions.get(name)]
    driver = []
    for name in [*plan["driver"], *plan["optional"]]:
        fitting = [
            version
            for version in versions.get(name, [])
            # nvidia-open-580 and the like cannot be of another branch; a distribution may have a newer one.
            if (branch_of(version) == branch if exact else branch_of(version) >= branch)
        ]
        if fitting:
            driver.append(f"{name}={fitting[0]}" if exact else name)
        elif name in plan["driver"] and versions.get(name):
            where = plan["repository"].get("url") or "the distribution's archive"
            problems.append(
                Problem(
                    f"{name} in {where} only as {', '.join(list(versions[name])[:3])}",
                    f"branch {branch}" + ("" if exact else " or newer"),
                    "nvidia_driver_branch=<another branch>" if exact else "nvidia_driver_source=nvidia",
                )
            )
        elif name in plan["driver"]:
            missing.append(name)
    if missing and not (check and not exact):
        where = plan["repository"].get("url") or "the distribution's archive"
        problems.append(
            Problem(
                f"no package {', '.join(missing)} in {where}",
                f"the driver of branch {branch}",
                "nvidia_driver_branch=<a branch that is there>"
                if exact
                else "switch the archive's driver component on (Ubuntu: restricted; Debian: contrib non-free), "
                "or nvidia_driver_source=nvidia",
            )
        )
    if problems:
        raise HouseError(problems)
    return {"needs": list(plan["needs"]), "pinning": list(plan["pinning"]), "driver": driver}


def to_hold(facts: Data) -> list[str]:
    """Return the driver's packages that nothing keeps at their version yet, in order.

    unattended-upgrades would replace the libraries below a running module ("Driver/library version mismatch"), which
    shows only when the next container starts. The branch's own pin does not stop that: it lets newer ones through.
    """
    parts = {name: found for name, found in facts["packages"].items() if _is_driver(name)}
    branches = [branch_of(found["version"]) for found in parts.values()]
    # The driver's own number is the one that most of its parts have; a container toolkit or a pin has another.
    common = max(set(branches), key=branches.count, default=0)
    return sorted(
        name for name, found in parts.items() if not found["held"] and branch_of(found["version"]) == common > 100
    )


def leaving(facts: Data, wishes: Wishes) -> list[str]:
    """Return the packages to remove with the driver; HouseError where it is not ours, or in use.

    None where there is no driver at all, as after an earlier removal.
    """
    parts = sorted(name for name in facts["packages"] if _is_driver(name) or name.startswith("nvidia-driver-pinning"))
    problems = []
    if parts and not facts["managed"]:
        problems.append(
            Problem(
                "a driver that was here before",
                "one that we have installed",
                "leave nvidia_driver=true out, and it stays; or remove it as it was installed",
            )
        )
    users = [f"{user['command']} ({user['pid']})" for user in facts["users"]]
    if parts and users and not wishes.force:
        problems.append(
            Problem(
                f"processes use the GPU: {', '.join(users[:6])}",
                "none, because they would break",
                "stop them, or say that they may break: nvidia_driver_force=true",
            )
        )
    if problems:
        raise HouseError(problems)
    return parts


def _is_driver(name: str) -> bool:
    if re.match(r"nvidia-(driver-pinning|container|cuda|fs|gds)", name) or name.startswith("libnvidia-container"):
        return False
    return bool(
        re.match(r"(lib)?nvidia-|cuda-drivers|libcuda1|xserver-xorg-video-nvidia|firmware-nvidia-", name)
        or re.match(r"(libegl|libgl[a-z0-9]*|lib[a-z0-9]+)-nvidia", name)
    )


def settle(facts: Data, wishes: Wishes, rebooted: bool) -> dict[str, Any]:
    """Return what is left to do after the installation, {version, reboot}; raise where it cannot be good.

    ``rebooted``: the machine was started again already, so that a second time would not help.
    """
    smi = read_smi(facts["smi"])
    if smi.works and branch_of(smi.version) >= wishes.branch:
        return {"version": smi.version, "reboot": False}
    said = smi.text or "there is no nvidia-smi"
    locked = facts["secure_boot"] and not facts["module_key_enrolled"]
    if rebooted or (locked and wishes.secure_boot == "warn"):
        do = "see `dkms status`, `dmesg | grep -i -e nvrm -e nvidia` and `modprobe -v nvidia`"
        if locked:
            do = "Secure Boot is on: enrol this machine's key (`mokutil --import`, reboot, confirm), then run again"
        raise HouseError(
            Problem(f"the driver is installed and does not answer ({said})", "an nvidia-smi that shows the GPU", do)
        )
    if wishes.reboot == "never":
        holder = "nouveau" if "nouveau" in facts["modules"] else (facts["loaded"] or {}).get("version", "")
        running = f"the kernel still runs {holder}" if holder else "the kernel has not loaded it"
        raise HouseError(_reboot_needed(f"the driver is installed, and {running} ({said})"))
    return {"version": "", "reboot": True}
