"""Predicates that decide whether a check applies to a resolved profile on its site (a `Run`). All are pure.

`can_install_packages` also needs the box's facts.
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


def model_in_system_memory(resolved: Run) -> bool:
    """True if the model uses system memory: on a CPU, or on a GPU that shares the memory of its host."""
    # Only hardware with shared memory, such as DGX Spark, has this key: the MiB that are left to the system.
    return not has_gpu(resolved) or "system_mib" in resolved["hardware"]


def runs_in_docker(resolved: Run) -> bool:
    """True if the engine runs in a container that Drafthouse creates."""
    return resolved["site"]["runtime"] == "docker"


def runs_as_process(resolved: Run) -> bool:
    """True if the engine runs as a plain process (on a rented box, inside the provider's container)."""
    return not runs_in_docker(resolved)


def needs_gpu_in_docker(resolved: Run) -> bool:
    """True if the engine runs in a container that needs a GPU."""
    return has_gpu(resolved) and runs_in_docker(resolved)


def can_install_packages(resolved: Run, box: BoxFacts) -> bool:
    """True if site.yml's phase `host` can install packages: it manages the host, is root, and the box has apt."""
    return resolved["site"]["manage_host"] and box["is_root"] and box["has_apt"]
