"""What the doctor's readers are told of a resolved profile, and the requests that the engine is asked. Pure."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...addons.gateway_door import certificate_file
from ...addons.monitoring import jobs
from ...bench.ask import Ask
from ...bench.groups import ask_fields
from ...profiles.monitoring_settings import local_address
from ...prompts.suites import expand

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import Asked, WantedMonitoring
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.prompts.suite_types import RequestFields, Suite


#: How many prompts the engine is asked at most; it is enough when one of them shows drafts.
ASKS = 3
#: Output tokens of an answer: a lookup needs some of them before it finds anything to draft from.
ASK_TOKENS = 48


def asked_of(resolved: Run, own_suite: Suite) -> Asked:
    """What travels to the box in place of the whole profile; ``own_suite``: see `asks_of`."""
    site, gateway = resolved["site"], resolved["gateway"]
    signatures = {issue["id"]: issue["signature"] for issue in resolved["known_issues"] if issue["signature"]}
    return {
        "profile": resolved["profile"],
        "gpu": resolved["hardware"]["kind"] == "gpu",
        "site": site,
        "ports": resolved["ports"],
        "engine": resolved["engine"],
        "weights": {item["id"]: item["path"] for item in resolved["weights"]},
        "open_paths": resolved["open_paths"],
        "signatures": signatures,
        "gateway": gateway,
        # The one that was made on the box; an authority's is trusted as any other.
        "certificate": certificate_file(site["home"]) if gateway and not gateway["name"] else "",
        "monitoring": monitoring_of(resolved),
        "served_name": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "chats": asks_of(resolved, own_suite),
    }


def monitoring_of(resolved: Run) -> WantedMonitoring:
    """Where its programs listen, which ports of them are opened to others, and what Prometheus must read.

    ``prometheus`` is its address on the box, '' where there is no monitoring.
    """
    wished = resolved["monitoring"]
    if not wished:
        return {"prometheus": "", "grafana": "", "jobs": [], "ports": {}, "open_ports": []}
    at, ports = local_address(wished["listen"]), wished["ports"]
    programs, grafana = list(wished["programs"]), ""
    if wished["gpu"]:
        programs.append("dcgm")
    if wished["grafana"]:
        programs.append("grafana")
        grafana = f"http://{at}:{ports['grafana']}"
    return {
        "prometheus": f"http://{at}:{ports['prometheus']}",
        "grafana": grafana,
        "jobs": jobs(wished),
        "ports": {name: ports[name] for name in programs},
        "open_ports": list(wished["open_ports"]),
    }


def asks_of(resolved: Run, own_suite: Suite) -> list[RequestFields]:
    """The bodies of a few chat requests of the work that the profile is for.

    They are taken out of ``own_suite`` (`tune`), which no experiment has: an engine that looks its drafts up
    remembers what it answered, and a later measurement of the same prompts would look fast. Where it has none of the
    profile's kinds, any of its prompts will do.
    """
    kinds = resolved["experiment"]["kinds"] or list(resolved["prompts"])
    own = expand(own_suite)
    prompts = list(itertools.chain(*(own.get(kind, []) for kind in kinds))) or list(itertools.chain(*own.values()))
    model = resolved["target"]["served_name"]
    bodies = []
    for prompt in prompts[:ASKS]:
        fields = ask_fields(prompt) | {"output_tokens": min(prompt.output_tokens, ASK_TOKENS)}
        body = Ask(**fields, group="doctor").body(model)
        # One answer in one piece: nothing is timed.
        body.pop("stream", None)
        body.pop("stream_options", None)
        bodies.append(body)
    return bodies
