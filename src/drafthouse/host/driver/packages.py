"""The names of the driver's packages: which to install, to hold and to take away, and from which repository.

Pure. Sources of what is written down here:
package names: NVIDIA Driver Installation Guide, chapters Ubuntu, Debian, "Recent updates" (the renaming from branch
590 on) and "Version locking", https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/;
https://packages.ubuntu.com/source/noble/nvidia-graphics-drivers-580 for Ubuntu's own.
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

_RENAMED_SINCE = 590  # from this branch on NVIDIA's names for Ubuntu have no branch in them
_REPOSITORIES = "https://developer.download.nvidia.com/compute/cuda/repos"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}  # the kernel's word -> the repository's


@dataclass(frozen=True)
class Release:
    """A release of a distribution for which NVIDIA keeps a repository.

    ``key`` is the file of the signing key in it, ``fingerprint`` that key's. Debian 13 has a key of its own: its apt
    no longer takes the older one, whose own signature is SHA-1 (NVIDIA/cuda-repo-management#30, #34, #39). Ubuntu
    26.04's apt refuses that one too. ``oldest_branch`` is the oldest driver in the repository.
    """

    folder: str
    key: str
    fingerprint: str
    architectures: tuple[str, ...]
    oldest_branch: int = 0


_OLDER_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_NEWER_KEY = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
RELEASES = {
    ("ubuntu", "22.04"): Release("ubuntu2204", *_OLDER_KEY, ("x86_64", "aarch64")),
    ("ubuntu", "24.04"): Release("ubuntu2404", *_OLDER_KEY, ("x86_64", "aarch64")),
    # NVIDIA's own driver images of 26.04 take branch 595 from it (NVIDIA/gpu-driver-container, ubuntu26.04/).
    ("ubuntu", "26.04"): Release("ubuntu2604", *_NEWER_KEY, ("x86_64", "aarch64"), oldest_branch=595),
    ("debian", "12"): Release("debian12", *_OLDER_KEY, ("x86_64",)),
    ("debian", "13"): Release("debian13", *_NEWER_KEY, ("x86_64",)),
}


def oldest_offered(facts: DriverFacts, wishes: Wishes) -> int:
    """The oldest branch that NVIDIA's repository has for the box's release; 0 where all that we know are there."""
    release = RELEASES.get((facts["os"]["id"], facts["os"]["version_id"]))
    if not release or wishes.source != "nvidia":
        return 0
    return release.oldest_branch


def from_where(plan: Plan, facts: DriverFacts, wishes: Wishes, problems: list[Problem]) -> None:
    """Add repository and packages to an installing plan."""
    name, version = facts["os"]["id"], facts["os"]["version_id"]
    shown = facts["os"]["name"] or f"{name} {version}"
    if name not in ("ubuntu", "debian"):
        problems.append(
            Problem(
                "unsupported-system",
                f"{shown}, a distribution whose packages this role does not know",
                "Ubuntu or Debian, or an installed driver that is new enough",
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
                "unsupported-system",
                f"{shown} on {facts['architecture']}, for which this role knows no NVIDIA repository",
                f"one of: {', '.join(f'{known[0]} {known[1]}' for known in RELEASES)}, "
                "or an installed driver that is new enough",
                "use the distribution's package: nvidia_driver_source=distribution",
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


def _headers(facts: DriverFacts) -> list[str]:
    """The headers that DKMS builds with: the running kernel's, and those that come with its next version."""
    return [f"linux-headers-{facts['kernel']}", *(f"linux-headers-{flavour}" for flavour in _kernel_flavours(facts))]


def _kernel_flavours(facts: DriverFacts) -> list[str]:
    """The flavours of the installed kernel images that follow each new version (generic, amd64)."""
    flavours = []
    for name in facts["packages"]:
        found = re.fullmatch(r"linux-image-((?!\d|unsigned|.*dbg).+)", name)
        if found:
            flavours.append(found[1])
    return sorted(flavours)


# NVIDIA's packages by the style of their names, compute only or not, and open modules or not:
# those that are needed, and those to take where they exist. `@` is the branch.
_NVIDIAS = {
    ("debian", True, True): ("nvidia-driver-cuda nvidia-kernel-open-dkms", "nvidia-persistenced"),
    ("debian", True, False): ("nvidia-driver-cuda nvidia-kernel-dkms", "nvidia-persistenced"),
    ("debian", False, True): ("nvidia-open", ""),
    ("debian", False, False): ("cuda-drivers", ""),
    # nvidia-smi came in nvidia-utils-<branch>; where the new name exists it is wanted.
    ("renamed", True, True): ("libnvidia-compute nvidia-dkms-open", "nvidia-utils nvidia-persistenced"),
    ("renamed", True, False): ("libnvidia-compute nvidia-dkms", "nvidia-utils nvidia-persistenced"),
    ("renamed", False, True): ("nvidia-open nvidia-driver-open", ""),
    ("renamed", False, False): ("cuda-drivers nvidia-driver", ""),
    ("branch", True, True): ("libnvidia-compute-@ nvidia-dkms-@-open nvidia-utils-@", "nvidia-persistenced"),
    ("branch", True, False): ("libnvidia-compute-@ nvidia-dkms-@ nvidia-utils-@", "nvidia-persistenced"),
    # The second is the first one's own dependency, which Ubuntu's archive has under another name, too. Left to itself
    # apt can weigh the two against an older driver that is there, and give up.
    ("branch", False, True): ("nvidia-open-@ nvidia-driver-@-open", ""),
    ("branch", False, False): ("cuda-drivers-@ nvidia-driver-@", ""),
}


def _nvidias(distribution: str, plan: Plan, wishes: Wishes) -> tuple[list[str], list[str]]:
    """The packages of NVIDIA's repository: those that are needed, and those to take where they exist."""
    style = "branch"
    if distribution == "debian":
        style = "debian"
    elif plan.branch >= _RENAMED_SINCE:
        style = "renamed"
    needed, optional = _NVIDIAS[style, wishes.compute_only, plan.open]
    return needed.replace("@", str(plan.branch)).split(), optional.split()


def _distributions_own(distribution: str, plan: Plan, facts: DriverFacts, wishes: Wishes) -> list[str]:
    """The distribution's own packages. Ubuntu keeps the branch in the name; Debian has one branch a release."""
    if distribution == "debian":
        modules = "nvidia-open-kernel-dkms" if plan.open else "nvidia-kernel-dkms"
        libraries = "libcuda1" if wishes.compute_only else "nvidia-driver"
        return [modules, libraries, "nvidia-smi"]
    kind = f"{plan.branch}-server-open" if plan.open else f"{plan.branch}-server"
    if facts["secure_boot"]:
        # Canonical builds and signs these for its kernels: they load where a module built here would not.
        signed = [f"linux-modules-nvidia-{kind}-{flavour}" for flavour in _kernel_flavours(facts) or ["generic"]]
        if wishes.compute_only:
            return [*signed, f"nvidia-headless-no-dkms-{kind}", f"nvidia-utils-{plan.branch}-server"]
        return [*signed, f"nvidia-driver-{kind}"]
    if wishes.compute_only:
        return [f"nvidia-headless-{kind}", f"nvidia-utils-{plan.branch}-server"]
    return [f"nvidia-driver-{kind}"]


def pick(plan: PlanFacts, versions: Mapping[str, Sequence[str]], check: bool = False) -> dict[str, list[str]]:
    """What to install, with exact versions for the driver: {needs, pinning, driver}.

    ``versions``: for each package the versions that apt can install, newest first. Raises DrafthouseError where a
    package is missing or of an older branch. With ``check`` the kernel's headers may be missing: a bare machine has no
    index yet, and check mode does not fetch one.
    """
    problems = []
    missing = [name for name in plan["needs"] if not versions.get(name)]
    if missing and not check:
        problems.append(
            Problem(
                "package-missing",
                f"no package {', '.join(missing)} in apt's archives",
                "the headers of the running kernel, to build the modules",
                "upgrade the kernel and reboot (its headers may be gone from the archive), or install them yourself",
            )
        )
    exact = bool(plan["repository"])
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
    """The first version of the branch, or without ``exact`` of a newer one; '' where there is none."""
    for version in versions:
        # nvidia-open-580 and the like cannot be of another branch; a distribution may have a newer one.
        if branch_of(version) == branch or (branch_of(version) > branch and not exact):
            return version
    return ""


def _archive(plan: PlanFacts) -> str:
    return plan["repository"].get("url") or "the distribution's archive"


def _only_other_branches(plan: PlanFacts, name: str, versions: Sequence[str]) -> Problem:
    needed, do = f"branch {plan['branch']}", "nvidia_driver_branch=<another branch>"
    if not plan["repository"]:
        needed, do = f"branch {plan['branch']} or newer", "nvidia_driver_source=nvidia"
    found = f"{name} in {_archive(plan)} only as {', '.join(versions[:3])}"
    return Problem("package-missing", found, needed, do)


def _no_packages(plan: PlanFacts, names: Iterable[str]) -> Problem:
    do = "nvidia_driver_branch=<an available branch>"
    if not plan["repository"]:
        do = (
            "enable the archive's driver component (Ubuntu: restricted; Debian: contrib non-free), "
            "or nvidia_driver_source=nvidia"
        )
    found = f"no package {', '.join(names)} in {_archive(plan)}"
    return Problem("package-missing", found, f"the driver of branch {plan['branch']}", do)


def to_hold(facts: DriverFacts) -> list[str]:
    """The driver's packages that nothing keeps at their version yet, in order.

    unattended-upgrades would replace the libraries below a running module ("Driver/library version mismatch"), which
    shows only when the next container starts. The branch's own pin does not stop that: it lets newer ones through.
    """
    branches = {name: branch_of(facts["packages"][name]["version"]) for name in _driver_packages(facts)}
    # The driver's own number is the one that most of its parts have; a container toolkit or a pin has another.
    counted = list(branches.values())
    common = max(set(counted), key=counted.count, default=0)
    if common <= 100:
        return []
    return [name for name, branch in branches.items() if branch == common and not facts["packages"][name]["held"]]


def held(facts: DriverFacts) -> list[str]:
    """The driver's packages that somebody holds at their version."""
    return [name for name in _driver_packages(facts) if facts["packages"][name]["held"]]


def _driver_packages(facts: DriverFacts) -> list[str]:
    return sorted(filter(_is_driver, facts["packages"]))


def gpu_users(facts: DriverFacts) -> list[str]:
    """The processes that hold a GPU, as messages show them: ``python (123)``."""
    return [f"{user['command']} ({user['pid']})" for user in facts["users"]]


def leaving(facts: DriverFacts, wishes: Wishes) -> list[str]:
    """The packages to remove with the driver; DrafthouseError where it is not ours, or in use.

    None where there is no driver at all, as after an earlier removal.
    """
    parts = sorted(name for name in facts["packages"] if _is_driver(name) or name.startswith("nvidia-driver-pinning"))
    problems = []
    if parts and not facts["managed"]:
        problems.append(
            Problem(
                "driver-not-ours",
                "a driver that was installed before Drafthouse",
                "one that Drafthouse installed",
                "leave nvidia_driver=true out to keep it, or remove it the way it was installed",
            )
        )
    users = gpu_users(facts)
    if parts and users and not wishes.force:
        problems.append(
            Problem(
                "gpu-in-use",
                f"processes use the GPU: {', '.join(users[:6])}",
                "none, because they would crash",
                "stop them, or accept that they crash: nvidia_driver_force=true",
            )
        )
    if problems:
        raise DrafthouseError(problems)
    return parts


def _is_driver(name: str) -> bool:
    if re.match(r"nvidia-(driver-pinning|container|cuda|fs|gds)", name) or name.startswith("libnvidia-container"):
        return False
    return bool(
        re.match(r"(lib)?nvidia-|cuda-drivers|libcuda1|xserver-xorg-video-nvidia|firmware-nvidia-", name)
        or re.match(r"(libegl|libgl[a-z0-9]*|lib[a-z0-9]+)-nvidia", name)
    )
