"""A site's monitoring (`drafthouse_monitoring`): its programs, their ports, and what they watch."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..core.addresses import in_brackets
from ..core.errors import Problem
from ..engines.registry import engine_of

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry, Metrics, Options
    from drafthouse.profiles.profile_types import Site
    from drafthouse.profiles.resolved_types import BuiltArm, Gateway, Monitoring

_PORT = 9490  # the first port by default

# The programs that listen, at consecutive ports in this order.
PROGRAMS = ("prometheus", "node", "blackbox", "dcgm", "grafana")

LOOPBACK = "127.0.0.1"

NOT_IN_A_PATH = set('"`{}\n\\$%')  # characters that the programs' configuration files cannot quote


def monitoring_of(
    site: Site,
    *,
    profile: str,
    engine: EngineEntry,
    arms: Mapping[str, BuiltArm],
    gpu: bool,
    gateway: Gateway | None,
) -> Monitoring | None:
    """A site's monitoring with all defaults filled in; None if the site has none.

    ``profile``: its name. ``engine``: the catalogue's entry. ``arms``: the built arms. ``gpu``: the hardware has GPUs.
    ``gateway``: what `gateway_of` returned.
    """
    settings = site.get("monitoring")
    if not settings or not settings["enabled"]:
        return None
    docker = site["runtime"] == "docker"
    metrics = engine["metrics"]
    listen = str(settings.get("listen", LOOPBACK))
    ports = {name: port for port, name in enumerate(PROGRAMS, start=int(settings.get("port", _PORT)))}
    grafana = bool(settings.get("grafana", docker))
    # On a rental the node exporter would show the whole machine, which others use too.
    node = site["manage_host"]
    programs = ["prometheus", "blackbox"]
    if node:
        programs.append("node")
    open_programs: list[str] = []
    if not _is_loopback(listen):
        open_programs.append("prometheus")
        if grafana:
            open_programs.append("grafana")
    log = "docker logs drafthouse-ARM" if docker else f"{site['home']}/logs/ARM.log"
    return {
        "ports": ports,
        "listen": listen,
        # These run under systemd or supervisord; the DCGM exporter and Grafana are containers.
        "programs": programs,
        "open_ports": [ports[name] for name in open_programs],
        "retention_days": int(settings.get("retention_days", 15)),
        "retention_gb": int(settings.get("retention_gb", 2)),
        "alertmanager": str(settings.get("alertmanager", "")),
        "grafana": grafana,
        "profile": profile,
        "target": f"{local_address(site['host'])}:{site['port']}",
        "health": engine["health"],
        "dialect": dialect_of(metrics, arms),
        "path": metrics.get("path", "/metrics"),
        "key": bool(metrics["key"]),
        "node": node,
        "gpu": gpu and docker,
        "gateway": gateway and {**gateway},
        "log": log,
    }


def local_address(listen: str) -> str:
    """The address, as in a URL, at which the box itself reaches a server that listens at ``listen``."""
    if listen in ("0.0.0.0", "::"):  # noqa: S104
        return LOOPBACK
    return in_brackets(listen)


def dialect_of(metrics: Metrics, arms: Mapping[str, BuiltArm]) -> str:
    """The dialect of the engine's counters; '' if it shows none with the speculative arm's configuration."""
    settings: Options = {}
    if config := arms["speculative"]["config"]:
        settings = config["data"]
    if not engine_of(metrics["dialect"]).shows_counters(settings):
        return ""
    return metrics["dialect"]


def site_problems(site: Site, ports: Iterable[int]) -> list[Problem]:
    """The problems of a site's monitoring, [] without one; ``ports``: those of engine, gateway and fleet front."""
    settings = site.get("monitoring")
    if not settings or not settings["enabled"]:
        return []
    problems = []
    first = int(settings.get("port", _PORT))
    taken = sorted(set(ports) & set(range(first, first + len(PROGRAMS))))
    if taken:
        problems.append(
            Problem(
                "port-used-twice",
                f"port {taken[0]}, already used by the engine or the gateway",
                f"{len(PROGRAMS)} consecutive free ports for monitoring, starting at {first}",
                f"set port: of drafthouse_monitoring ({_PORT} by default)",
                "site.monitoring.port",
            )
        )
    listen = str(settings.get("listen", LOOPBACK))
    if not _is_address(listen):
        problems.append(
            Problem(
                "invalid-setting",
                f"'{listen}'",
                "an address of the box, or 0.0.0.0 for all of them",
                "correct it, or leave it out for loopback",
                "site.monitoring.listen",
            )
        )
    elif not _is_loopback(listen) and not site["manage_host"]:
        problems.append(
            Problem(
                "server-exposed",
                f"'{listen}' without our firewall in front (drafthouse_manage_host: false)",
                "loopback: Prometheus has no authentication",
                f"leave it out, and use SSH: ssh -L {first}:127.0.0.1:{first} ...",
                "site.monitoring.listen",
            )
        )
    if settings.get("grafana") and site["runtime"] != "docker":
        problems.append(
            Problem(
                "runtime-unavailable",
                "true in the process runtime",
                "the docker runtime: Debian has no Grafana",
                "leave it out; import the dashboard's file into another Grafana (docs/monitoring.md)",
                "site.monitoring.grafana",
            )
        )
    return problems


def _is_address(text: str) -> bool:
    """True if ``text`` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    """True if ``text`` is a loopback IP address; False for a name, even `localhost`."""
    return _is_address(text) and ipaddress.ip_address(text).is_loopback
