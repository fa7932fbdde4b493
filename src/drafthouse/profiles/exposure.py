"""Paths of an engine that answer without its API key: what they give away, and who can reach them.

An engine's key does not protect every path: vLLM's protects a few prefixes, TensorRT-LLM's server has no key. The
catalogue has each version's paths (``open_paths``) and what they give:

- ``work``: the engine computes for anyone. ``control``: a request changes how it serves. ``tells``: it shows prompts or
  traffic. These count as exposed if anyone else can reach the engine.
- ``memory``: it buffers a body of any size. That counts only if anybody can come: clients in an allow-list are trusted.
- ``nothing``: health, version and documentation, which monitors and load balancers need. These never count.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import Problem
from ..core.versions import supports

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import NamedRoute, OpenRoute, ResolvedOpenPaths, ResolvedProfile

SomeRoute = TypeVar("SomeRoute", bound="NamedRoute")

#: Who else can reach an engine: nobody, the clients in an allow-list, anybody.
NOBODY, NAMED, ANYBODY = "nobody", "named", "anybody"
#: The effect of a path that a running engine has and the catalogue does not.
UNKNOWN = ""
_EFFECTS = {
    "work": "make it compute",
    "control": "change how it serves",
    "tells": "show its prompts or its traffic",
    "memory": "buffer a body of any size",
    UNKNOWN: "effect unknown",
}
_EXPOSED_EFFECTS = {NOBODY: (), NAMED: ("work", "control", "tells", UNKNOWN), ANYBODY: tuple(_EFFECTS)}


def open_paths(engine: EngineEntry, version: str) -> ResolvedOpenPaths:
    """The paths of an engine version, and whether each answers without the key.

    A path is protected if the catalogue says so, or if it begins with a prefix that the key guards in this version.
    """
    facts = engine["open_paths"]
    guards = [prefix for prefix, when in (facts.get("guards") or {}).items() if supports(version, when)]
    routes: list[OpenRoute] = []
    for path, route in facts["routes"].items():
        if supports(version, route):
            is_open = not route.get("guarded", False) and not path.startswith(tuple(guards))
            routes.append({"path": path, "gives": route["gives"], "open": is_open})
    return {"ask": facts["ask"], "lists": facts.get("lists", ""), "guards": guards, "routes": routes}


def _is_loopback(host: str) -> bool:
    """True if ``host`` is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name may resolve to any address


def reach(site: Site) -> str:
    """Who else can reach the engine itself at a site.

    NOBODY: behind a gateway, or on loopback without an allow-list. ANYBODY: without an allow-list, with one that admits
    all addresses, or on a host that is not managed, where no firewall of Drafthouse's enforces it. Otherwise NAMED.
    """
    allowed = site.get("allow_cidrs") or ()
    if site.get("gateway") or (_is_loopback(str(site["host"])) and not allowed):
        return NOBODY
    if not site["manage_host"] or not allowed or any(map(_is_everybody, allowed)):
        return ANYBODY
    return NAMED


def _is_everybody(network: str) -> bool:
    """True if a network holds all addresses."""
    return network.strip().endswith("/0")


def exposed(routes: Iterable[SomeRoute], who: str) -> list[SomeRoute]:
    """The open ``routes`` that count as exposed if ``who`` can reach them."""
    return [route for route in routes if route["gives"] in _EXPOSED_EFFECTS[who]]


def routes_text(routes: Iterable[NamedRoute]) -> str:
    """``routes`` as text, grouped by what they give."""
    paths: dict[str, list[str]] = {}
    for route in routes:
        paths.setdefault(route["gives"], []).append(str(route["path"]))
    return "; ".join(f"{', '.join(paths[effect])} ({text})" for effect, text in _EFFECTS.items() if effect in paths)


def exposure_problems(resolved: ResolvedProfile, where: str) -> list[Problem]:
    """The problem, [] for none, of an engine with open paths that others reach without a gateway in front."""
    site = resolved["site"]
    engine = resolved["engine"]
    facts = resolved["open_paths"]
    who = reach(site)
    routes = exposed((route for route in facts["routes"] if route["open"] or not engine["has_key"]), who)
    if not routes:
        return []
    host = site["host"]
    allowed = ", ".join(site.get("allow_cidrs") or ())
    opened = f"drafthouse_host is {host}"
    close = "set drafthouse_host: 127.0.0.1, and "
    if _is_loopback(host):
        opened = f"drafthouse_allow_cidrs lets {allowed} in"
        close = ""
    close += "set drafthouse_gateway: true (docs/gateway.md); or "
    if allowed:
        close += "empty drafthouse_allow_cidrs and "
    name = f"{engine['name']} {engine['version']}"
    guards = f"the key of {name} does not guard everything"
    if not engine["has_key"]:
        guards = f"{name} has no authentication"
    elif facts["guards"]:
        guards = f"the key of {name} guards only {', '.join(facts['guards'])}"
    return [
        Problem(
            "server-exposed",
            f"{opened}, without a gateway, and {guards}; reachable without a key: {routes_text(routes)}",
            "the gateway, which requires the key for every path, or an engine that is not reachable from outside",
            f"{close}reach it by make tunnel",
            where,
        )
    ]
