"""The names of the driver's packages: which to install, to hold and to take away, and from which repository.

Pure. Sources of what is written down here:
package names: NVIDIA Driver Installation Guide, chapters Ubuntu, Debian, "Recent updates" (the renaming from branch
590 on) and "Version locking", https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/;
https://packages.ubuntu.com/source/noble/nvidia-graphics-drivers-580 for Ubuntu's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    return release.oldest_branch if release and wishes.source == "nvidia" else 0


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
    flavours = sorted(
        found[1]
        for name in facts["packages"]
        if (found := re.fullmatch(r"linux-image-((?!\d|unsigned|.*dbg).+)", name))
    )
    return [f"linux-headers-{facts['kernel']}", *(f"linux-headers-{flavour}" for flavour in flavours)]


def _nvidias(distribution: str, plan: Plan, wishes: Wishes) -> tuple[list[str], list[str]]:
    """The packages of NVIDIA's repository: those that are needed, and those to take where they exist."""
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


def _distributions_own(distribution: str, plan: Plan, facts: DriverFacts, wishes: Wishes) -> list[str]:
    """The distribution's own packages. Ubuntu keeps the branch in the name; Debian has one branch a release."""
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


def pick(plan: PlanFacts, versions: Mapping[str, Sequence[str]], check: bool = False) -> dict[str, list[str]]:
    """What to install, with exact versions for the driver: {needs, pinning, driver}.

    ``versions``: for each package the versions that apt can install, newest first. Raises DrafthouseError where a
    package is missing or of an older branch. With ``check`` the kernel's headers may be missing: a bare machine has no
    index yet, and check mode does not fetch one.
    """
    problems = []
    branch = int(plan["branch"])
    exact = bool(plan["repository"])
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
                    "package-missing",
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
                "package-missing",
                f"no package {', '.join(missing)} in {where}",
                f"the driver of branch {branch}",
                "nvidia_driver_branch=<an available branch>"
                if exact
                else "enable the archive's driver component (Ubuntu: restricted; Debian: contrib non-free), "
                "or nvidia_driver_source=nvidia",
            )
        )
    if problems:
        raise DrafthouseError(problems)
    return {"needs": list(plan["needs"]), "pinning": list(plan["pinning"]), "driver": driver}


def to_hold(facts: DriverFacts) -> list[str]:
    """The driver's packages that nothing keeps at their version yet, in order.

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


def held(facts: DriverFacts) -> list[str]:
    """The driver's packages that somebody holds at their version."""
    return sorted(name for name, found in facts["packages"].items() if found["held"] and _is_driver(name))


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
    users = [f"{user['command']} ({user['pid']})" for user in facts["users"]]
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
