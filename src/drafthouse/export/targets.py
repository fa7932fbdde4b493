"""The tools for which an arm can be exported. Each has a template in `templates/export` that makes its file."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..core.errors import one_problem
from ..core.places import ROOT
from ..profiles.profile_types import Site
from .gpus import gpu_name
from .order import Order
from .production_stack import chart_of
from .quoting import template


@dataclass(frozen=True)
class Target:
    """A tool that reads an exported file."""

    name: str
    suffix: str = "yaml"  # of the exported file
    models_dir: str = "/models"  # mount point of the volume with the weights
    keyed: bool = True  # the engine's API key protects the port; False if the tool checks a token of its own
    scales: bool = False  # the tool adds and removes replicas


_ALL = (
    Target("skypilot", scales=True),
    # dstack forwards its client's Authorization header, which an engine with an API key would reject.
    Target("dstack", keyed=False, scales=True),
    Target("kubernetes"),
    # The chart mounts its volume claim at this path.
    Target("production-stack", models_dir="/data"),
    Target("compose"),
    Target("quadlet", suffix="container"),
)
TARGETS = {target.name: target for target in _ALL}
#: GiB of /dev/shm in an exported container. Drafthouse's own containers use the host's shared memory.
SHARED_MEMORY_GIB = 16
_REPLICAS = re.compile(r"([1-9]\d{0,3})(?:\.\.([1-9]\d{0,3}))?")


def site_of(target: Target) -> Site:
    """The site, i.e. the host's settings, for resolving a profile: the engine in its image, the target's volumes."""
    return {
        "manage_host": True,
        "runtime": "docker",
        "home": "/drafthouse",
        "models_dir": target.models_dir,
        # `order.py` replaces it by the container's listen address.
        "host": "127.0.0.1",
        "port": 8000,
    }


def exported(target: Target, order: Order) -> str:
    """The text of an order's file. Raises DrafthouseError for values that the tool or its file cannot hold."""
    return _rendered(order, f"{target.name}.{target.suffix}")


def _rendered(order: Order, name: str, **given: object) -> str:
    """A template of `templates/export` filled in for an order; a template may include another one as `script`."""
    data = {
        "order": order,
        "profile": order.profile,
        "shared_memory_gib": SHARED_MEMORY_GIB,
        "script": functools.partial(_rendered, order),
        "gpu": functools.partial(gpu_name, order.profile["hardware"]),
        "chart_of": chart_of,
    }
    return template(ROOT / "templates", name).render(data, **given)


def replicas_of(text: str | None, target: Target) -> tuple[int, int]:
    """Minimum and maximum of the replicas, from `N..M` or `N`. Raises DrafthouseError for any other text.

    None or '': one to four for a tool that scales, otherwise one.
    """
    default = "1..4" if target.scales else "1"
    match = _REPLICAS.fullmatch(text or default)
    minimum, maximum = 1, 0  # no range, which is refused below
    if match:
        minimum, maximum = int(match[1]), int(match[2] or match[1])
    if minimum > maximum:
        raise one_problem("invalid-option", f"--replicas {text}", "N, or N..M with 1 <= N <= M", "write 2, or 1..4")
    return minimum, maximum
