"""Every target by name, and the way from a profile to its exports and their checks."""

from __future__ import annotations

import re

from ..core.errors import DrafthouseError, Problem, one_problem
from ..profiles.profile_types import Site
from ..profiles.resolved_types import ResolvedProfile
from .base import Target
from .compose import Compose
from .dstack import Dstack
from .evidence import Evidence
from .kubernetes import Kubernetes
from .order import Order
from .production_stack import ProductionStack
from .quadlet import Quadlet
from .skypilot import SkyPilot

TARGETS: dict[str, Target] = {
    one.name: one for one in (SkyPilot(), Dstack(), Kubernetes(), ProductionStack(), Compose(), Quadlet())
}
#: Tools that add and remove replicas by themselves.
SCALING = ("skypilot", "dstack")
_REPLICAS = re.compile(r"([1-9]\d{0,3})(?:\.\.([1-9]\d{0,3}))?")


def site_of(target: Target) -> Site:
    """Return the site for which a profile is resolved: the engine's image, and the volumes of the target."""
    return {
        "manage_host": True,
        "runtime": "docker",
        "home": "/drafthouse",
        "models_dir": target.models_dir,
        # What the engine's container is told in its place is the order's to say.
        "host": "127.0.0.1",
        "port": 8000,
    }


def order_of(
    profile: ResolvedProfile,
    arm: str,
    target: Target,
    evidence: Evidence | None = None,
    replicas: tuple[int, int] = (1, 1),
    image: str | None = None,
) -> Order:
    """Return what is exported. Raises DrafthouseError with everything that no container elsewhere could have."""
    where, engine, container = profile["profile"], profile["engine"], profile["arms"][arm]["container"]
    problems: list[Problem] = []

    def lacks(found: str, needed: str, do: str) -> None:
        problems.append(Problem("export-unsupported", found, needed, do, where))

    if container is None:
        lacks(f"no image of {engine['name']} for this profile", "an engine in an image", "export a profile for a GPU")
    if profile["derived_image"] and not image:
        do = f"build and push build/{where}/Containerfile (drafthouse render {where}), then --image NAME@sha256:..."
        lacks("an image that is built on the box", "an image in a registry", do)
    if target.keyed and not engine["has_key"]:
        found = f"{engine['name']} does not ask for a key"
        problems.append(
            Problem("export-unguarded", found, "a guarded port", "export to dstack, which asks for its own", where)
        )
    if profile["arms"][arm]["config"]:
        lacks(
            f"{engine['name']} reads its settings from a file beside its script",
            "arguments only",
            "serve it with make",
        )
    if remote := [item["name"] for item in profile["weights"] if item["source"] != "hub"]:
        lacks(
            f"{', '.join(remote)}: not from the Hub",
            "weights that a container can fetch",
            "upload them, and add a model",
        )
    if problems:
        raise DrafthouseError(problems)
    assert container
    digest = profile.get("image_digest") or (evidence.digest if evidence else None)
    named = image or (f"{container['image']}@{digest}" if digest else container["image"])
    return Order(profile, arm, named, evidence, replicas)


def exported(target: Target, order: Order) -> str:
    """Return the file of an order, read back and checked. Raises DrafthouseError for what may not be written."""
    text = target.write(order)
    if problems := target.problems(text, order, f"the export to {target.name}"):
        raise DrafthouseError(problems)
    return text


def check(target: Target, text: str, order: Order, where: str) -> None:
    """Raise DrafthouseError with everything in which a changed export is no longer what was proven."""
    if problems := target.problems(text, order, where):
        raise DrafthouseError(problems)


def said_arm(text: str) -> str | None:
    """Return the arm that a file says it is; None where it says nothing."""
    for arm in ("baseline", "speculative"):
        if any(f"drafthouse{mark}arm{sign}{arm}" in text.lower() for mark in ".-_" for sign in (": ", "=")):
            return arm
    return None


def replicas_of(text: str | None, target: Target) -> tuple[int, int]:
    """Return at least and at most how many replicas; `2` is both. Raises DrafthouseError where it is no range."""
    found = _REPLICAS.fullmatch(text or ("1..4" if target.name in SCALING else "1"))
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if least > most:
        raise one_problem("invalid-option", f"--replicas {text}", "N, or N..M with 1 <= N <= M", "write 2, or 1..4")
    return least, most
