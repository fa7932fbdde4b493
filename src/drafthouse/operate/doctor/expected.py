"""What the doctor is told of a resolved profile: what shall hold on its box, and what the engine is asked. Pure.

It travels to the box in place of the whole resolved profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...addons.gateway import certificate_file
from ...addons.monitoring import jobs
from ...bench.client import Ask
from ...bench.groups import ask_fields
from ...profiles.exposure import reach
from ...profiles.monitoring_settings import near
from ...profiles.watchdog_settings import REPORT
from ...prompts.suites import expand

if TYPE_CHECKING:
    from ...profiles.resolved_types import Hardware, Monitoring, Run
    from ...prompts.suite_types import RequestFields, Suite
    from .types import WantedHardware, WantedMonitoring, Wants


#: How many prompts the engine is asked at most; it is enough when one of them shows drafts.
ASKS = 3
#: Output tokens of an answer: a lookup needs some of them before it finds anything to draft from.
ASK_TOKENS = 48


def wants(resolved: Run, own_suite: Suite) -> Wants:
    """Return what shall hold for ``resolved``; ``own_suite``: see `asks_of`."""
    engine, site, gateway = resolved["engine"], resolved["site"], resolved["gateway"]
    rental, method = resolved["rental"], resolved["method"]
    return {
        "profile": resolved["profile"],
        "arms": list(resolved["arms"]),
        "hardware": _hardware(resolved["hardware"]),
        "rented_vm": bool(resolved.get("rented_vm")),
        "site": site,
        "ports": list(resolved["ports"]),
        "gateway": gateway,
        "open_paths": {**resolved["open_paths"], "reach": reach(site)},
        "monitoring": _monitoring(resolved["monitoring"]),
        "watchdog": str((site.get("watchdog") or {}).get("mode", REPORT)) if "watchdog" in site else "",
        # The one that was made on the box; an authority's is trusted as any other.
        "certificate": certificate_file(site["home"]) if gateway and not gateway["name"] else "",
        "engine": {
            "id": engine["id"],
            "name": engine["name"],
            "version": engine["version"],
            "home": engine["home"],
            "image": engine["image"],
            "health": engine["health"],
            "has_key": engine["has_key"],
            "ready_timeout_s": engine["ready_timeout_s"],
            "packages": list(engine["install"]["python_packages"]) if engine["install"] else [],
            "metrics": engine["metrics"].get("path", "/metrics"),
        },
        "need": {"cuda": rental["cuda"], "driver": rental["driver"]},
        "method": {"id": method["id"], "kind": method["kind"]},
        "weights": [
            {
                "id": item["id"],
                "name": item["name"],
                "source": item["source"],
                "details": item["details"],
                "path": item["path"],
            }
            for item in resolved["weights"]
        ],
        "served_name": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "asks": asks_of(resolved, own_suite),
    }


def _hardware(hardware: Hardware) -> WantedHardware:
    found: WantedHardware = {
        "kind": hardware["kind"],
        "name": hardware["name"],
        "devices": hardware["devices"],
        "memory_mib": hardware["memory_mib"],
    }
    if "gpu_names" in hardware:
        found["gpu_names"] = hardware["gpu_names"]
    return found


def _monitoring(wished: Monitoring | None) -> WantedMonitoring:
    """Return where its programs listen, which ports of them are opened to others, and what Prometheus must read.

    ``prometheus`` is its address on the box, '' where there is no monitoring.
    """
    if not wished:
        return {"prometheus": "", "grafana": "", "jobs": [], "ports": {}, "open_ports": []}
    at, ports = near(wished["listen"]), wished["ports"]
    there = [*wished["programs"], *(["dcgm"] if wished["gpu"] else []), *(["grafana"] if wished["grafana"] else [])]
    return {
        "prometheus": f"http://{at}:{ports['prometheus']}",
        "grafana": f"http://{at}:{ports['grafana']}" if wished["grafana"] else "",
        "jobs": jobs(wished),
        "ports": {name: ports[name] for name in there},
        "open_ports": list(wished["open_ports"]),
    }


def asks_of(resolved: Run, own_suite: Suite) -> list[RequestFields]:
    """Return the bodies of a few chat requests of the work that the profile is for.

    They are taken out of ``own_suite`` (`tune`), which no experiment has: an engine that looks its drafts up
    remembers what it answered, and a later measurement of the same prompts would look fast. Where it has none of the
    profile's kinds, any of its prompts will do.
    """
    kinds = resolved["experiment"]["kinds"] or list(resolved["prompts"])
    own = expand(own_suite)
    prompts = [prompt for kind in kinds for prompt in own.get(kind, [])] or [
        one for each in own.values() for one in each
    ]
    model = resolved["target"]["served_name"]
    bodies = []
    for prompt in prompts[:ASKS]:
        fields = ask_fields(prompt) | {"output_tokens": min(prompt.output_tokens, ASK_TOKENS)}
        body = Ask(**fields, group="doctor").body(model)
        # One answer in one piece: nothing is timed.
        bodies.append({key: value for key, value in body.items() if key not in ("stream", "stream_options")})
    return bodies
