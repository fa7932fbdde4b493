"""What an inventory says of its fleet: `drafthouse_fleet`. Each host is one replica; one of them has the front, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import Problem
from .gateway_settings import PORT_WITH_A_NAME, gateway_of, name_problems

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

PORT = 8444
CADDY, VLLM_ROUTER = ("caddy", "vllm-router")
_MOST_BEHIND_A_ROUTER = 64


class Fleet(TypedDict):
    """The fleet that the box is a replica of; ``front`` is empty where it is the first host. Times in seconds."""

    front: str
    port: int
    name: str
    served_name: str
    policy: str
    router: str
    router_policy: str
    drain_s: float


_DEFAULTS: Fleet = {
    "front": "", "port": PORT, "name": "", "served_name": "", "policy": "least_conn", "router": CADDY,
    "router_policy": "consistent_hash", "drain_s": 600,
}  # fmt: skip


def fleet_of(site: Site) -> Fleet | None:
    """Everything about a site's fleet, None where the site has none."""
    wished = site.get("fleet")
    if wished is None:
        return None
    port = PORT_WITH_A_NAME if wished.get("name") else PORT
    return {**_DEFAULTS, "port": port, **wished}


def ports_of(fleet: Fleet) -> set[int]:
    """The front's ports; with a router, its two and those of the replicas stand behind, all on loopback."""
    return set(range(fleet["port"], fleet["port"] + (3 + _MOST_BEHIND_A_ROUTER if fleet["router"] != CADDY else 1)))


def site_problems(site: Site, ports: Iterable[int]) -> list[Problem]:
    """What is wrong with a site's fleet; ``ports`` are those of engine and gateway."""
    fleet = fleet_of(site)
    if fleet is None:
        return []
    problems = name_problems(fleet["name"], "site.fleet.name")
    gateway = gateway_of(site)
    if gateway and gateway["name"]:
        problems.append(
            Problem(
                "conflicting-keys",
                f"drafthouse_gateway_name {gateway['name']}, in a fleet",
                "gateways with generated certificates, which the front pins",
                "leave it out: clients connect to the front (drafthouse_fleet.name)",
                "site.gateway_name",
            )
        )
    taken = ports_of(fleet) & set(ports)
    if taken:
        problems.append(
            Problem(
                "port-used-twice",
                f"port {min(taken)}, already used by the engine or the gateway",
                "a separate port for the front; with a router, also the 66 ports after it",
                f"set port: of drafthouse_fleet (default {PORT})",
                "site.fleet.port",
            )
        )
    if fleet["router"] == CADDY and "router_policy" in (site.get("fleet") or {}):
        problems.append(
            Problem(
                "conflicting-keys",
                f"router_policy {fleet['router_policy']}, but Caddy chooses the replica",
                "a policy of the router in use",
                "set router: vllm-router, or policy: instead",
                "site.fleet.router_policy",
            )
        )
    return problems
