"""Extracts from a resolved profile what the box needs to read the doctor's facts, chat requests included.

The functions are pure and run on the controller.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...addons.gateway_door import certificate_file
from ...addons.monitoring import jobs
from ...bench.chat_request import ChatRequest
from ...bench.groups import request_fields
from ...profiles.monitoring_settings import local_address
from ...prompts.suites import expand

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorOrder, WantedMonitoring
    from drafthouse.profiles.resolved_types import Run
    from drafthouse.prompts.suite_types import RequestFields, Suite


#: Most chat requests to the engine; the doctor stops at the first answer that shows draft tokens.
ASKS = 3
#: Most output tokens of an answer: lookup drafting needs some output before it finds a repetition.
ASK_TOKENS = 48


def order_of(resolved: Run, own_suite: Suite) -> DoctorOrder:
    """The data that is sent to the box in place of the whole profile; ``own_suite``: see `asks_of`."""
    site = resolved["site"]
    gateway = resolved["gateway"]
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
        # The self-signed certificate; '' for a certificate by a public authority, which needs no extra trust.
        "certificate": certificate_file(site["home"]) if gateway and not gateway["name"] else "",
        "monitoring": monitoring_of(resolved),
        "served_name": resolved["target"]["served_name"],
        "key_file": resolved["key_file"],
        "chats": asks_of(resolved, own_suite),
    }


def monitoring_of(resolved: Run) -> WantedMonitoring:
    """URLs of the monitoring programs on the box, their ports, the open ones, and Prometheus's scrape jobs.

    ``prometheus`` is '' if the profile has no monitoring.
    """
    settings = resolved["monitoring"]
    if not settings:
        return {"prometheus": "", "grafana": "", "jobs": [], "ports": {}, "open_ports": []}
    address = local_address(settings["listen"])
    ports = settings["ports"]
    programs = list(settings["programs"])
    grafana = ""
    if settings["gpu"]:
        programs.append("dcgm")
    if settings["grafana"]:
        programs.append("grafana")
        grafana = f"http://{address}:{ports['grafana']}"
    return {
        "prometheus": f"http://{address}:{ports['prometheus']}",
        "grafana": grafana,
        "jobs": jobs(settings),
        "ports": {name: ports[name] for name in programs},
        "open_ports": list(settings["open_ports"]),
    }


def asks_of(resolved: Run, own_suite: Suite) -> list[RequestFields]:
    """The bodies of at most `ASKS` chat requests, of the profile's prompt kinds; of all kinds if none is in the suite.

    ``own_suite`` (`tune`) is used in no experiment. A lookup engine drafts from its earlier answers, so prompts of an
    experiment would be too fast in a later measurement.
    """
    kinds = resolved["experiment"]["kinds"] or list(resolved["prompts"])
    suite = expand(own_suite)
    prompts = list(itertools.chain(*(suite.get(kind, []) for kind in kinds)))
    if not prompts:
        prompts = list(itertools.chain(*suite.values()))
    model = resolved["target"]["served_name"]
    bodies = []
    for prompt in prompts[:ASKS]:
        fields = request_fields(prompt) | {"output_tokens": min(prompt.output_tokens, ASK_TOKENS)}
        body = ChatRequest(**fields, group="doctor").body(model)
        # No streaming: the doctor measures no latency.
        body.pop("stream", None)
        body.pop("stream_options", None)
        bodies.append(body)
    return bodies
