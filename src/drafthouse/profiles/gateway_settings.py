"""A site's gateway (`drafthouse_gateway`, its port and name): a proxy with TLS and the API key before the engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core.errors import Problem

if TYPE_CHECKING:
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import Gateway

PORT = 8443  # of a gateway with a generated certificate
PORT_WITH_A_NAME = 443  # of one with a DNS name, at which clients and certificate authorities expect it

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

_DNS_NAME = re.compile(rf"({_LABEL}\.)+{_LABEL}")


def gateway_of(site: Site) -> Gateway | None:
    """A site's gateway, ``name`` '' without a DNS name; None if the site has none. Every box of a fleet has one."""
    if not site.get("gateway") and site.get("fleet") is None:
        return None
    name = str(site.get("gateway_name") or "")
    return {"port": int(site.get("gateway_port") or (PORT_WITH_A_NAME if name else PORT)), "name": name}


def site_problems(site: Site, ports: Iterable[int]) -> list[Problem]:
    """The problems of a site's gateway, [] without one; ``ports``: those of the engine."""
    gateway = gateway_of(site)
    if gateway is None:
        return []
    problems = name_problems(gateway["name"], "site.gateway_name")
    if site["host"] not in ("127.0.0.1", "localhost"):
        problems.append(
            Problem(
                "server-exposed",
                f"drafthouse_host is {site['host']}, but a gateway is enabled",
                "an engine on loopback, so that the gateway cannot be bypassed",
                "set drafthouse_host: 127.0.0.1, or leave drafthouse_gateway out",
                "site.host",
            )
        )
    if gateway["port"] in set(ports):
        problems.append(
            Problem(
                "port-used-twice",
                f"port {gateway['port']}, already used by the engine",
                "a separate port for the gateway",
                "set drafthouse_gateway_port (default 8443) or drafthouse_port",
                "site.gateway_port",
            )
        )
    return problems


def name_problems(name: str, where: str) -> list[Problem]:
    """The problem, [] for none, of a DNS name for which a certificate is to be obtained; none for an empty name.

    The last label must not be a number: that would be an address. ``where``: the place that sets the name.
    """
    if not name or (_DNS_NAME.fullmatch(name) and len(name) <= 253 and not name.rpartition(".")[2].isdigit()):
        return []
    return [
        Problem(
            "invalid-setting",
            f"'{name}'",
            "a lowercase DNS name that resolves to this box, such as llm.example.org",
            "correct it, or leave it empty for a certificate generated on the box",
            where,
        )
    ]
