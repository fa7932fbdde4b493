"""The NVIDIA driver's packages: which to install, hold and remove, and from which repository. Pure functions.

The package names come from the NVIDIA Driver Installation Guide, chapters Ubuntu, Debian, "Recent updates" (the
renaming from branch 590 on) and "Version locking":
https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/.
Ubuntu's names: https://packages.ubuntu.com/source/noble/nvidia-graphics-drivers-580.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import DrafthouseError, Problem
from .plan import Plan, PlanFacts, Wishes, branch_of

if TYPE_CHECKING:
    from drafthouse.host.driver.facts import DriverFacts

_RENAMED_SINCE = 590  # from this branch on NVIDIA's package names for Ubuntu do not contain the branch
_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}  # the repository's name by the kernel's


@dataclass(frozen=True)
class Release:
    """NVIDIA's repository for a release of a distribution."""

    folder: str  # below `_REPOSITORIES`
    key: str  # the file name of the signing key in it
    fingerprint: str  # of that key
    architectures: tuple[str, ...]  # the kernel's names
    oldest_branch: int = 0  # the oldest driver branch in the repository; 0: no limit


# File name and fingerprint. Debian 13 and Ubuntu 26.04 need the newer key: their apt rejects the older one because of
# its SHA-1 self-signature (NVIDIA/cuda-repo-management#30, #34, #39).
_OLDER_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_NEWER_KEY = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
#: By id and version in os-release.
RELEASES = {
    ("ubuntu", "22.04"): Release("ubuntu2204", *_OLDER_KEY, ("x86_64", "aarch64")),
    ("ubuntu", "24.04"): Release("ubuntu2404", *_OLDER_KEY, ("x86_64", "aarch64")),
    # NVIDIA's driver images for 26.04 install branch 595 from it (NVIDIA/gpu-driver-container, ubuntu26.04/).
    ("ubuntu", "26.04"): Release("ubuntu2604", *_NEWER_KEY, ("x86_64", "aarch64"), oldest_branch=595),
    ("debian", "12"): Release("debian12", *_OLDER_KEY, ("x86_64",)),
    ("debian", "13"): Release("debian13", *_NEWER_KEY, ("x86_64",)),
}


def oldest_offered(facts: DriverFacts, wishes: Wishes) -> int:
    """The oldest branch in NVIDIA's repository for the machine's release; 0 if no limit is known or applies."""
    release = RELEASES.get((facts["os"]["id"], facts["os"]["version_id"]))
    if not release or wishes.source != "nvidia":
        return 0
    return release.oldest_branch


def add_packages(plan: Plan, facts: DriverFacts, wishes: Wishes, problems: list[Problem]) -> None:
    """Add the repository and the packages to a plan that installs; append to ``problems`` if there are none.

    From the distribution's archive for the source ``distribution``, else from NVIDIA's repository.
    """
    distribution = facts["os"]["id"]
    version = facts["os"]["version_id"]
    system = facts["os"]["name"] or f"{distribution} {version}"
    if distribution not in ("ubuntu", "debian"):
        found = f"{system}, a distribution whose packages this role does not know"
        needed = "Ubuntu or Debian, or an installed driver that is new enough"
        do = f"install a driver of branch {wishes.branch} or newer the way {system} does, then run again"
        problems.append(Problem("unsupported-system", found, needed, do))
        return
    if wishes.source == "distribution":
        plan.needs = _headers(facts)
        plan.driver = _distribution_packages(distribution, plan, facts, wishes)
        return
    release = RELEASES.get((distribution, version))
    if not release or facts["architecture"] not in release.architectures:
        found = f"{system} on {facts['architecture']}, for which this role knows no NVIDIA repository"
        needed = (
            f"one of: {', '.join(f'{known[0]} {known[1]}' for known in RELEASES)}, "
            "or an installed driver that is new enough"
        )
        do = "use the distribution's package: nvidia_driver_source=distribution"
        problems.append(Problem("unsupported-system", found, needed, do))
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
    plan.driver, plan.optional = _nvidia_packages(distribution, plan, wishes)


def _headers(facts: DriverFacts) -> list[str]:
    """Packages of the headers that DKMS needs: the running kernel's, and those of its future versions."""
    return [f"linux-headers-{facts['kernel']}", *(f"linux-headers-{flavour}" for flavour in _kernel_flavours(facts))]


def _kernel_flavours(facts: DriverFacts) -> list[str]:
    """The flavours (generic, amd64) of the installed kernel packages that depend on the newest kernel."""
    flavours = []
    for name in facts["packages"]:
        match = re.fullmatch(r"linux-image-((?!\d|unsigned|.*dbg).+)", name)
        if match:
            flavours.append(match[1])
    return sorted(flavours)


# Needed and optional packages of NVIDIA's repository. The keys: the style of their names, whether compute only is
# wanted (no display), and whether the open modules are. `@` stands for the branch.
_NVIDIA_PACKAGES = {
    ("debian", True, True): ("nvidia-driver-cuda nvidia-kernel-open-dkms", "nvidia-persistenced"),
    ("debian", True, False): ("nvidia-driver-cuda nvidia-kernel-dkms", "nvidia-persistenced"),
    ("debian", False, True): ("nvidia-open", ""),
    ("debian", False, False): ("cuda-drivers", ""),
    # Before the renaming nvidia-smi was in nvidia-utils-<branch>; nvidia-utils is installed if it exists.
    ("renamed", True, True): ("libnvidia-compute nvidia-dkms-open", "nvidia-utils nvidia-persistenced"),
    ("renamed", True, False): ("libnvidia-compute nvidia-dkms", "nvidia-utils nvidia-persistenced"),
    ("renamed", False, True): ("nvidia-open nvidia-driver-open", ""),
    ("renamed", False, False): ("cuda-drivers nvidia-driver", ""),
    ("branch", True, True): ("libnvidia-compute-@ nvidia-dkms-@-open nvidia-utils-@", "nvidia-persistenced"),
    ("branch", True, False): ("libnvidia-compute-@ nvidia-dkms-@ nvidia-utils-@", "nvidia-persistenced"),
    # The second package is a dependency of the first, and Ubuntu's archive offers an alternative to it. If it is not
    # named, apt may fail to choose between them when an older driver is installed.
    ("branch", False, True): ("nvidia-open-@ nvidia-driver-@-open", ""),
    ("branch", False, False): ("cuda-drivers-@ nvidia-driver-@", ""),
}


def _nvidia_packages(distribution: str, plan: Plan, wishes: Wishes) -> tuple[list[str], list[str]]:
    """The needed and the optional packages of NVIDIA's repository."""
    style = "branch"
    if distribution == "debian":
        style = "debian"
    elif plan.branch >= _RENAMED_SINCE:
        style = "renamed"
    needed, optional = _NVIDIA_PACKAGES[style, wishes.compute_only, plan.open]
    return needed.replace("@", str(plan.branch)).split(), optional.split()


def _distribution_packages(distribution: str, plan: Plan, facts: DriverFacts, wishes: Wishes) -> list[str]:
    """The distribution's packages. Ubuntu's names contain the branch; a Debian release has only one branch."""
    if distribution == "debian":
        modules = "nvidia-open-kernel-dkms" if plan.open else "nvidia-kernel-dkms"
        libraries = "libcuda1" if wishes.compute_only else "nvidia-driver"
        return [modules, libraries, "nvidia-smi"]
    kind = f"{plan.branch}-server-open" if plan.open else f"{plan.branch}-server"
    if facts["secure_boot"]:
        # Canonical builds and signs these modules, so they load. A module that DKMS builds may be refused.
        signed = [f"linux-modules-nvidia-{kind}-{flavour}" for flavour in _kernel_flavours(facts) or ["generic"]]
        if wishes.compute_only:
            return [*signed, f"nvidia-headless-no-dkms-{kind}", f"nvidia-utils-{plan.branch}-server"]
        return [*signed, f"nvidia-driver-{kind}"]
    if wishes.compute_only:
        return [f"nvidia-headless-{kind}", f"nvidia-utils-{plan.branch}-server"]
    return [f"nvidia-driver-{kind}"]


def pick(plan: PlanFacts, versions: Mapping[str, Sequence[str]], check: bool = False) -> dict[str, list[str]]:
    """The packages to install, by the keys needs, pinning and driver; the driver's from NVIDIA's as `name=version`.

    ``versions`` are the versions that apt can install by package, newest first. Raises DrafthouseError if a package
    is missing or of an older branch. With ``check`` missing kernel headers are no error, because a bare machine has
    no apt index and check mode does not download one.
    """
    problems = []
    missing = [name for name in plan["needs"] if not versions.get(name)]
    if missing and not check:
        found = f"no package {', '.join(missing)} in apt's archives"
        needed = "the headers of the running kernel, to build the modules"
        do = "upgrade the kernel and reboot (its headers may be gone from the archive), or install them yourself"
        problems.append(Problem("package-missing", found, needed, do))
    exact = bool(plan["repository"])  # NVIDIA's repository, not the distribution's archive
    missing = [name for name in plan["pinning"] if not versions.get(name)]
    driver = []
    for name in [*plan["driver"], *plan["optional"]]:
        version = _fitting_version(versions.get(name, []), int(plan["branch"]), exact)
        if version and exact:
            driver.append(f"{name}={version}")
        elif version:
            driver.append(name)
        elif name in plan["driver"] and versions.get(name):
            problems.append(_only_other_branches(plan, name, versions[name]))
        elif name in plan["driver"]:
            missing.append(name)
    if missing and (exact or not check):
        problems.append(_no_packages(plan, missing))
    if problems:
        raise DrafthouseError(problems)
    return {"needs": list(plan["needs"]), "pinning": list(plan["pinning"]), "driver": driver}


def _fitting_version(versions: Iterable[str], branch: int, exact: bool) -> str:
    """The first version of the branch, or unless ``exact`` of a newer branch; '' if there is none."""
    for version in versions:
        # NVIDIA's repository needs the exact branch; a distribution may offer a newer one only.
        if branch_of(version) == branch or (branch_of(version) > branch and not exact):
            return version
    return ""


def _archive(plan: PlanFacts) -> str:
    """Where the driver comes from, for messages: the repository's URL, or the distribution's archive."""
    return plan["repository"].get("url") or "the distribution's archive"


def _only_other_branches(plan: PlanFacts, name: str, versions: Sequence[str]) -> Problem:
    """The problem that a package of the driver exists, but not of the planned branch."""
    needed = f"branch {plan['branch']}"
    do = "nvidia_driver_branch=<another branch>"
    if not plan["repository"]:
        needed += " or newer"
        do = "nvidia_driver_source=nvidia"
    found = f"{name} in {_archive(plan)} only as {', '.join(versions[:3])}"
    return Problem("package-missing", found, needed, do)


def _no_packages(plan: PlanFacts, names: Iterable[str]) -> Problem:
    """The problem that packages of the driver, or the pin of its branch, do not exist at all."""
    do = "nvidia_driver_branch=<an available branch>"
    if not plan["repository"]:
        do = (
            "enable the archive's driver component (Ubuntu: restricted; Debian: contrib non-free), "
            "or nvidia_driver_source=nvidia"
        )
    found = f"no package {', '.join(names)} in {_archive(plan)}"
    return Problem("package-missing", found, f"the driver of branch {plan['branch']}", do)


def to_hold(facts: DriverFacts) -> list[str]:
    """The driver's packages that are not held at their version yet, sorted by name.

    Without a hold unattended-upgrades replaces the libraries under a running kernel module. Then the next container
    does not start ("Driver/library version mismatch"). The pin of the branch does not prevent this update.
    """
    branches = {name: branch_of(facts["packages"][name]["version"]) for name in _driver_packages(facts)}
    # Most of the packages have the driver's branch; a few have another number in their version.
    all_branches = list(branches.values())
    common = max(set(all_branches), key=all_branches.count, default=0)
    if common <= 100:  # the driver's branches are above 100, so no driver is installed
        return []
    return [name for name, branch in branches.items() if branch == common and not facts["packages"][name]["held"]]


def held_packages(facts: DriverFacts) -> list[str]:
    """The driver's packages that are held at their version (apt-mark hold)."""
    return [name for name in _driver_packages(facts) if facts["packages"][name]["held"]]


def _driver_packages(facts: DriverFacts) -> list[str]:
    """The names of the driver's installed packages, sorted."""
    return sorted(filter(_is_driver, facts["packages"]))


def gpu_users(facts: DriverFacts) -> list[str]:
    """The processes that use a GPU, as text for messages: ``python (123)``, with the pid."""
    return [f"{user['command']} ({user['pid']})" for user in facts["users"]]


def leaving(facts: DriverFacts, wishes: Wishes) -> list[str]:
    """The packages to remove with the driver. Raises DrafthouseError if it is in use, or not Drafthouse's.

    ``wishes.force`` removes a driver in use. The list is empty if no driver is installed, for example after an earlier
    removal.
    """
    names = sorted(name for name in facts["packages"] if _is_driver(name) or name.startswith("nvidia-driver-pinning"))
    problems = []
    if names and not facts["managed"]:
        found = "a driver that was installed before Drafthouse"
        needed = "one that Drafthouse installed"
        do = "leave nvidia_driver=true out to keep it, or remove it the way it was installed"
        problems.append(Problem("driver-not-ours", found, needed, do))
    users = gpu_users(facts)
    if names and users and not wishes.force:
        found = f"processes use the GPU: {', '.join(users[:6])}"
        needed = "none, because they would crash"
        do = "stop them, or accept that they crash: nvidia_driver_force=true"
        problems.append(Problem("gpu-in-use", found, needed, do))
    if problems:
        raise DrafthouseError(problems)
    return names


def _is_driver(name: str) -> bool:
    """True for a package of the driver. The packages excluded first have versions of their own, or pin a branch."""
    if re.match(r"nvidia-(driver-pinning|container|cuda|fs|gds)", name) or name.startswith("libnvidia-container"):
        return False
    return bool(
        re.match(r"(lib)?nvidia-|cuda-drivers|libcuda1|xserver-xorg-video-nvidia|firmware-nvidia-", name)
        or re.match(r"(libegl|libgl[a-z0-9]*|lib[a-z0-9]+)-nvidia", name)
    )
