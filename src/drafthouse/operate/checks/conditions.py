"""Conditions by which checks apply: from the resolved profile and its site settings, one also from the box's facts.

The functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.host.box_types import BoxFacts
    from drafthouse.profiles.resolved_types import Run


def always(_resolved: Run) -> bool:
    """True for every profile: the default of a check that has no condition."""
    return True


def has_gpu(resolved: Run) -> bool:
    """True if the profile runs on a GPU."""
    return resolved["hardware"]["kind"] == "gpu"


def in_system_memory(resolved: Run) -> bool:
    """True if the model uses system memory: on a CPU, or on a GPU that shares the memory of its host."""
    # Only hardware with shared memory has this key: the MiB of that memory which the system keeps.
    return not has_gpu(resolved) or "system_mib" in resolved["hardware"]


def in_docker(resolved: Run) -> bool:
    """True if the engine runs in a container that Drafthouse creates."""
    return resolved["site"]["runtime"] == "docker"


def as_process(resolved: Run) -> bool:
    """True if the engine runs as a plain process (on a rental, inside the provider's container)."""
    return not in_docker(resolved)


def gpu_in_docker(resolved: Run) -> bool:
    """True if the engine runs in a container that needs a GPU."""
    return has_gpu(resolved) and in_docker(resolved)


def can_install_packages(resolved: Run, box: BoxFacts) -> bool:
    """True if the host phase can install missing packages: it manages the host, is root, and the box has apt."""
    return resolved["site"]["manage_host"] and box["is_root"] and box["has_apt"]
