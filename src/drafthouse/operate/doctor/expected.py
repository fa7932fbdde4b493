"""What the doctor is told of a resolved profile: what shall hold on its box, and what the engine is asked. Pure.

It travels to the box in place of the whole resolved profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ...addons.gateway import certificate_file
from ...addons.monitoring import jobs
from ...bench.client import Ask
from ...bench.groups import ask_fields
from ...profiles.exposure import reach
from ...profiles.monitoring_settings import near
from ...profiles.watchdog_settings import REPORT
from ...prompts.suites import expand

if TYPE_CHECKING:
    from ...prompts.suite_types import Suite

Data = dict[str, Any]

#: How many prompts the engine is asked at most; it is enough when one of them shows drafts.
ASKS = 3
#: Output tokens of an answer: a lookup needs some of them before it finds anything to draft from.
ASK_TOKENS = 48
_ENGINE = ("id", "name", "version", "home", "image", "health", "has_key", "ready_timeout_s")
_HARDWARE = ("kind", "name", "devices", "gpu_names", "memory_mib")
_WEIGHTS = ("id", "name", "source", "details", "path")


def wants(resolved: Mapping[str, Any], own_suite: Mapping[str, Any]) -> Data:
    """Return what shall hold for ``resolved``, the fact of `drafthouse.core.resolve`; ``own_suite``: see `asks_of`."""
    engine, hardware, site, gateway = (resolved[part] for part in ("engine", "hardware", "site", "gateway"))
    return {
        "profile": resolved["profile"],
        "arms": list(resolved["arms"]),
        "hardware": {key: hardware[key] for key in _HARDWARE if key in hardware},
        "rented_vm": bool(resolved.get("rented_vm")),
        "site": dict(site),
        "ports": list(resolved["ports"]),
        "gateway": gateway,
        "open_paths": {**resolved["open_paths"], "reach": reach(site)},
        "monitoring": _monitoring(resolved["monitoring"]),
        "watchdog": str((site.get("watchdog") or {}).get("mode", REPORT)) if "watchdog" in site else "",
        # The one that was made on the box; an authority's is trusted as any other.
        "certificate": certificate_file(site["home"]) if gateway and not gateway["name"] else "",
        "engine": {
            **{key: engine[key] for key in _ENGINE},
            "packages": list((engine["install"] or {}).get("python_packages", ())),
            "metrics": (engine.get("metrics") or {}).get("path", "/metrics"),
        },
        "need": {key: resolved["rental"][key] for key in ("cuda", "driver")},
        "method": {"id": resolved["method"]["id"], "kind": resolved["method"]["kind"]},
        "weights": [{key: item[key] for key in _WEIGHTS} for item in resolved["weights"]],
        "served_name": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "asks": asks_of(resolved, own_suite),
    }


def _monitoring(wished: Mapping[str, Any] | None) -> Data:
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


def asks_of(resolved: Mapping[str, Any], own_suite: Mapping[str, Any]) -> list[Data]:
    """Return the bodies of a few chat requests of the work that the profile is for.

    They are taken out of ``own_suite`` (`tune`), which no experiment has: an engine that looks its drafts up
    remembers what it answered, and a later measurement of the same prompts would look fast. Where it has none of the
    profile's kinds, any of its prompts will do.
    """
    kinds = resolved["experiment"]["kinds"] or list(resolved["prompts"])
    own = expand(cast("Suite", own_suite))
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
