"""What an inventory says of the monitoring, and what follows from it: `drafthouse_monitoring`."""

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

_PORT = 9490

# Who listens, in order, from the first port on.
PROGRAMS = ("prometheus", "node", "blackbox", "dcgm", "grafana")

LOOPBACK = "127.0.0.1"

NOT_IN_A_PATH = set('"`{}\n\\$%')


def monitoring_of(
    site: Site,
    profile: str,
    engine: EngineEntry,
    arms: Mapping[str, BuiltArm],
    gpu: bool,
    gateway: Gateway | None,
) -> Monitoring | None:
    """Everything about a site's monitoring, None where it has none.

    ``engine`` is the catalogue's entry, ``arms`` what is built of it; ``gateway`` is what `gateway_of` returned.
    """
    wished = site.get("monitoring")
    if not wished or not wished["enabled"]:
        return None
    docker = site["runtime"] == "docker"
    metrics, listen = engine["metrics"], str(wished.get("listen", LOOPBACK))
    ports = {name: number for number, name in enumerate(PROGRAMS, start=int(wished.get("port", _PORT)))}
    grafana = bool(wished.get("grafana", docker))
    # A rental's node exporter would show the memory and processors of the machine that others use too.
    node = site["manage_host"]
    programs = ["prometheus", "blackbox"]
    if node:
        programs.append("node")
    opened: list[str] = []
    if not _is_loopback(listen):
        opened.append("prometheus")
        if grafana:
            opened.append("grafana")
    log = "docker logs drafthouse-ARM" if docker else f"{site['home']}/logs/ARM.log"
    return {
        "ports": ports,
        "listen": listen,
        # What a keeper holds running; the others are containers.
        "programs": programs,
        "open_ports": [ports[name] for name in opened],
        "retention_days": int(wished.get("retention_days", 15)),
        "retention_gb": int(wished.get("retention_gb", 2)),
        "alertmanager": str(wished.get("alertmanager", "")),
        "grafana": grafana,
        "profile": profile,
        "target": f"{near(site['host'])}:{site['port']}",
        "health": engine["health"],
        "dialect": dialect_of(metrics, arms),
        "path": metrics.get("path", "/metrics"),
        "key": bool(metrics["key"]),
        "node": node,
        "gpu": gpu and docker,
        "gateway": gateway and {**gateway},
        "log": log,
    }


def near(listen: str) -> str:
    """The address at which the box itself reaches what listens there, as a URL has it."""
    if listen in ("0.0.0.0", "::"):  # noqa: S104
        return LOOPBACK
    return in_brackets(listen)


def dialect_of(metrics: Metrics, arms: Mapping[str, BuiltArm]) -> str:
    """Whose counters an engine shows, '' for none: that may depend on its version or its configuration file."""
    data: Options = {}
    if config := arms["speculative"]["config"]:
        data = config["data"]
    if not engine_of(metrics["dialect"]).shows_counters(data):
        return ""
    return metrics["dialect"]


def site_problems(site: Site, ports: Iterable[int]) -> list[Problem]:
    """What is wrong with a site's monitoring; ``ports`` are those of the engine and of the gateway."""
    wished = site.get("monitoring")
    if not wished or not wished["enabled"]:
        return []
    problems = []
    first = int(wished.get("port", _PORT))
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
    listen = str(wished.get("listen", LOOPBACK))
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
    if wished.get("grafana") and site["runtime"] != "docker":
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
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ipaddress.ip_address(text).is_loopback
