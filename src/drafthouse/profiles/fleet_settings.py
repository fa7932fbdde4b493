"""A site's fleet (`drafthouse_fleet`): each box is one replica, and one box also runs the front that clients reach."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import Problem
from .gateway_settings import PORT_WITH_A_NAME, gateway_of, name_problems

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site

PORT = 8444  # of a front without a DNS name
#: The programs that can choose the replica for a request.
CADDY, VLLM_ROUTER = ("caddy", "vllm-router")
_MOST_BEHIND_A_ROUTER = 64  # replicas, each of which takes a port of the front's host


class Fleet(TypedDict):
    """The fleet with all defaults filled in (`profile_types.FleetWishes` has what a site may set)."""

    front: str  # the host with the front; '' for the first host
    port: int
    name: str  # DNS name of the front; '' for a generated certificate
    served_name: str  # the model's name in requests; '' for the profile's
    policy: str  # by which Caddy chooses a replica
    router: str  # CADDY or VLLM_ROUTER
    router_policy: str  # by which another router than Caddy chooses a replica
    drain_s: float  # seconds for running requests to end before a replica is changed


_DEFAULTS: Fleet = {
    "front": "", "port": PORT, "name": "", "served_name": "", "policy": "least_conn", "router": CADDY,
    "router_policy": "consistent_hash", "drain_s": 600,
}  # fmt: skip


def fleet_of(site: Site) -> Fleet | None:
    """A site's fleet with all defaults filled in; None if the site has none."""
    settings = site.get("fleet")
    if settings is None:
        return None
    port = PORT_WITH_A_NAME if settings.get("name") else PORT
    return {**_DEFAULTS, "port": port, **settings}


def ports_of(fleet: Fleet) -> set[int]:
    """The front's ports: its own and, with a router, the router's two and one for each replica, on loopback."""
    count = 1
    if fleet["router"] != CADDY:
        count += 2 + _MOST_BEHIND_A_ROUTER
    return set(range(fleet["port"], fleet["port"] + count))


def site_problems(site: Site, ports: Iterable[int]) -> list[Problem]:
    """The problems of a site's fleet, [] without one; ``ports``: those of the engine and the gateway."""
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
