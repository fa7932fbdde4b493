"""Every target by name. Each has a template in `templates/export`, which makes the file."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..core.errors import one_problem
from ..core.places import ROOT
from ..profiles.profile_types import Site
from .gpus import spelled
from .order import Order
from .production_stack import chart_of
from .quoting import template


@dataclass(frozen=True)
class Target:
    """A tool for which is exported.

    ``models_dir``: where the weights' volume is mounted. ``keyed``: whether the engine's own key
    guards the port; a tool may ask for its own before every path. ``scales``: whether the tool adds
    and removes replicas by itself.
    """

    name: str
    suffix: str = "yaml"
    models_dir: str = "/models"
    keyed: bool = True
    scales: bool = False


_ALL = (
    Target("skypilot", scales=True),
    # It passes the client's header on: an engine with a key of its own would refuse everybody.
    Target("dstack", keyed=False, scales=True),
    Target("kubernetes"),
    # The chart mounts its claim there.
    Target("production-stack", models_dir="/data"),
    Target("compose"),
    Target("quadlet", suffix="container"),
)
TARGETS = {target.name: target for target in _ALL}
#: In GiB, for engines that have the host's shared memory on a box of ours.
SHARED_MEMORY_GIB = 16
_REPLICAS = re.compile(r"([1-9]\d{0,3})(?:\.\.([1-9]\d{0,3}))?")


def site_of(target: Target) -> Site:
    """The site for which a profile is resolved: the engine's image, the target's volumes."""
    return {
        "manage_host": True,
        "runtime": "docker",
        "home": "/drafthouse",
        "models_dir": target.models_dir,
        # What the engine's container is told in its place is the order's to say.
        "host": "127.0.0.1",
        "port": 8000,
    }


def exported(target: Target, order: Order) -> str:
    """The file of an order. Raises DrafthouseError for what the tool or its file cannot hold."""
    return _rendered(order, f"{target.name}.{target.suffix}")


def _rendered(order: Order, name: str, **given: object) -> str:
    """A file of `templates/export` for an order; a script is quoted where it stands in another."""
    data = {
        "order": order,
        "profile": order.profile,
        "shared_memory_gib": SHARED_MEMORY_GIB,
        "script": functools.partial(_rendered, order),
        "gpu": functools.partial(spelled, order.profile["hardware"]),
        "chart_of": chart_of,
    }
    return template(ROOT / "templates", name).render(data, **given)


def replicas_of(text: str | None, target: Target) -> tuple[int, int]:
    """Replicas at least and at most; `2` is both. Raises DrafthouseError where it is no range."""
    default = "1..4" if target.scales else "1"
    found = _REPLICAS.fullmatch(text or default)
    least, most = 1, 0
    if found:
        least, most = int(found[1]), int(found[2] or found[1])
    if least > most:
        raise one_problem("invalid-option", f"--replicas {text}", "N, or N..M with 1 <= N <= M", "write 2, or 1..4")
    return least, most
