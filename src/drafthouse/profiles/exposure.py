"""Which paths of an engine answer without its key, what they give, and who reaches them. Pure.

An engine's key does not stand before all that it answers: vLLM's guards a few prefixes, TensorRT-LLM's server has none.
What is open stands in the catalogue (``open_paths``), by version. What counts as exposed is what gives something away:

- ``work``: the engine computes for whoever asks; ``control``: it serves otherwise afterwards; ``tells``: prompts, or
  how much is asked of it and when. These count wherever somebody else reaches the engine.
- ``memory``: it holds a body of any size. That counts where anybody may come: those who are named in an allow-list are
  trusted not to do it, and can do no more than that.
- ``nothing``: that it lives, its version, its own documentation. Monitors and load balancers ask for that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from ..core.errors import Problem
from ..core.versions import known

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import NamedRoute, OpenRoute, ResolvedOpenPaths, ResolvedProfile

SomeRoute = TypeVar("SomeRoute", bound="NamedRoute")

NOBODY, NAMED, ANYBODY = "nobody", "named", "anybody"
#: Of a route that a running engine names and the catalogue does not.
UNKNOWN = ""
_SAID = {
    "work": "make it compute",
    "control": "change how it serves",
    "tells": "show its prompts or its traffic",
    "memory": "buffer a body of any size",
    UNKNOWN: "effect unknown",
}
_COUNTS = {NOBODY: (), NAMED: ("work", "control", "tells", UNKNOWN), ANYBODY: tuple(_SAID)}


def open_paths(engine: EngineEntry, version: str) -> ResolvedOpenPaths:
    """The routes of a version of an engine, and which of them answer without the key."""
    facts = engine["open_paths"]
    guards = [prefix for prefix, when in (facts.get("guards") or {}).items() if known(version, when)]
    routes: list[OpenRoute] = []
    for path, route in facts["routes"].items():
        if known(version, route):
            is_open = not route.get("guarded", False) and not path.startswith(tuple(guards))
            routes.append({"path": path, "gives": route["gives"], "open": is_open})
    return {"ask": facts["ask"], "lists": facts.get("lists", ""), "guards": guards, "routes": routes}


def near(host: str) -> bool:
    """Tell whether an address is the machine's own loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name leads to whatever it leads to


def reach(site: Site) -> str:
    """Who reaches the engine itself at a site: nobody else, those that are named, or anybody.

    Only a workstation has a firewall of ours that makes an allow-list hold.
    """
    allowed = site.get("allow_cidrs") or ()
    if site.get("gateway") or (near(str(site["host"])) and not allowed):
        return NOBODY
    if not site["manage_host"] or not allowed or any(map(_everybody, allowed)):
        return ANYBODY
    return NAMED


def _everybody(network: str) -> bool:
    return network.strip().endswith("/0")


def exposed(routes: Iterable[SomeRoute], who: str) -> list[SomeRoute]:
    """Return those of the open routes that count where ``who`` reaches them."""
    return [route for route in routes if route["gives"] in _COUNTS[who]]


def told(routes: Iterable[NamedRoute]) -> str:
    """Routes by what they give, for people."""
    by_gift: dict[str, list[str]] = {}
    for route in routes:
        by_gift.setdefault(route["gives"], []).append(str(route["path"]))
    return "; ".join(f"{', '.join(by_gift[gift])} ({said})" for gift, said in _SAID.items() if gift in by_gift)


def exposure_problems(resolved: ResolvedProfile, where: str) -> list[Problem]:
    """Refuse an engine with open paths where others reach it, with no gateway in front."""
    site, engine, facts = resolved["site"], resolved["engine"], resolved["open_paths"]
    who = reach(site)
    routes = exposed((route for route in facts["routes"] if route["open"] or not engine["has_key"]), who)
    if not routes:
        return []
    host, allowed = site["host"], ", ".join(site.get("allow_cidrs") or ())
    opened, close = f"drafthouse_host is {host}", "set drafthouse_host: 127.0.0.1, and "
    if near(host):
        opened, close = f"drafthouse_allow_cidrs lets {allowed} in", ""
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
            f"{opened}, without a gateway, and {guards}; reachable without a key: {told(routes)}",
            "the gateway, which requires the key for every path, or an engine that is not reachable from outside",
            f"{close}reach it by make tunnel",
            where,
        )
    ]
