"""A rented box that is a virtual machine, not a container: it has systemd and Docker, and is set up like a workstation.

vast.ai rents out both in the same way. The driver of a VM belongs to its image: it is never changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site, Unchecked
    from drafthouse.profiles.resolved_types import ResolvedProfile


class VmSigns(TypedDict):
    """The facts of a box that tell a VM from a container."""

    has_systemd: bool
    has_docker: bool  # Docker's socket exists
    is_root: bool  # the user is root


def site_of_vm(resolved: ResolvedProfile, box: VmSigns, variables: Unchecked) -> Site | None:
    """The site of a rented VM, with a managed host; None if the box is not a VM.

    The inventory must allow it (``drafthouse_recognise_vm``) or state it (``drafthouse_is_vm``), and its host must not
    be managed already. The box must run systemd and Docker. The user must be root, as the setup of a workstation needs
    it. The runtime becomes docker if the engine has it. Folders and ports do not change.
    """
    site = resolved["site"]
    may_be_vm = variables.get("drafthouse_is_vm") or variables.get("drafthouse_recognise_vm")
    if not may_be_vm or site["manage_host"] or not (box["has_systemd"] and box["has_docker"] and box["is_root"]):
        return None
    runtime = "docker" if "docker" in resolved["engine"]["runtimes"] else site["runtime"]
    return {**site, "manage_host": True, "runtime": runtime}
