"""A rented machine that is no container: it has systemd and Docker, and is treated as a workstation.

vast.ai rents both under one address. A VM's driver belongs to its image: it is left alone, whatever its version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile


class VmSigns(TypedDict):
    """By what a box shows that it is a VM and not a container."""

    has_systemd: bool
    has_docker: bool
    is_root: bool


def site_of_vm(resolved: ResolvedProfile, box: VmSigns, variables: Unchecked) -> Site | None:
    """The site of a rented VM, None where the box is none.

    The inventory says that it may be one (``drafthouse_recognise_vm``) or that it is (``drafthouse_is_vm``); the box
    shows it: systemd runs there, and so does Docker. Only as root: what a workstation gets needs it. Folders and ports
    stay as they are.
    """
    site = resolved["site"]
    asked = variables.get("drafthouse_is_vm") or variables.get("drafthouse_recognise_vm")
    if not asked or site["manage_host"] or not (box["has_systemd"] and box["has_docker"] and box["is_root"]):
        return None
    runtime = "docker" if "docker" in resolved["engine"]["runtimes"] else site["runtime"]
    return {**site, "manage_host": True, "runtime": runtime}
