"""Where a check applies: by the profile and its site, before the box is looked at. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.host.box_types import BoxFacts
    from drafthouse.profiles.resolved_types import Run


def always(resolved: Run) -> bool:
    """Everywhere."""
    return True


def has_gpu(resolved: Run) -> bool:
    """Where the profile runs on a GPU."""
    return resolved["hardware"]["kind"] == "gpu"


def in_system_memory(resolved: Run) -> bool:
    """Where the model lies in the box's own memory: on a CPU, or on a GPU that shares it."""
    return not has_gpu(resolved) or "system_mib" in resolved["hardware"]


def in_docker(resolved: Run) -> bool:
    """Where the engine runs in a container of ours."""
    return resolved["site"]["runtime"] == "docker"


def in_process(resolved: Run) -> bool:
    """Where the engine runs as a process of ours, in what may be somebody else's container."""
    return not in_docker(resolved)


def gpu_in_docker(resolved: Run) -> bool:
    """Where a container of ours must be given a GPU."""
    return has_gpu(resolved) and in_docker(resolved)


def manages_host(resolved: Run, box: BoxFacts) -> bool:
    """Tell whether the host phase may install what is missing: on a workstation, as root, from Debian's packages."""
    return resolved["site"]["manage_host"] and box["is_root"] and box["has_apt"]
