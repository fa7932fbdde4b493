"""What the Prometheus of a fleet's front asks of every replica, and what it records and tells. Pure; the controller's.

The replicas are asked themselves, never through the front, behind which one of them would answer by chance. What is
open to the front is a replica's own gateway: TLS, and the key before the counters, which tell how much is asked and
when (`profiles/exposure.py`). `/ready` is asked by the front's blackbox exporter.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ..core.errors import Problem
from ..profiles.monitoring_settings import dialect_of
from ..profiles.render import render_file
from .gateway import METRICS
from .grafana import dashboard
from .monitoring_ready import FLEET
from .prometheus_rules import SERIES, Limits, Pace, duration, recorded

if TYPE_CHECKING:
    from drafthouse.addons.fleet.front import Entry
    from drafthouse.core.documents import Json
    from drafthouse.profiles.resolved_types import File, ResolvedProfile

BOARD, UID = "monitoring/fleet_dashboard.json", "drafthouse-fleet"


class Replica(TypedDict):
    """A replica as the front reaches it: ``address`` is HOST:PORT of its own gateway.

    ``dialect``: whose counters it shows, '' where it has none. Replicas of one ``model`` with one ``drafting`` (method
    and tokens of a draft) are peers, whose acceptance is alike.
    """

    name: str
    address: str
    profile: str
    dialect: str
    model: str
    drafting: str


class Fleet(TypedDict):
    """The replicas of a front; ``trust`` has their certificates (PEM), '' where public authorities sign them."""

    replicas: list[Replica]
    trust: str


def fleet_of(kept: Mapping[str, Entry], profiles: Mapping[str, ResolvedProfile]) -> Fleet:
    """Return the fleet of what a front has and of the profiles that its replicas serve."""
    replicas: list[Replica] = []
    for name, resolved in profiles.items():
        entry, method, draft = kept[name], resolved["method"], resolved["draft"]
        host = f"[{entry['address']}]" if ":" in entry["address"] else entry["address"]
        words = [method["id"], *([draft["id"]] if draft else []), f"{method['num_speculative_tokens']} tokens"]
        replicas.append(
            {
                "name": name,
                "address": f"{host}:{entry['port']}",
                "profile": resolved["profile"],
                "dialect": dialect_of(resolved["engine"]["metrics"], resolved["arms"]),
                "model": resolved["target"]["id"],
                "drafting": ", ".join(words),
            }
        )
    certificates = dict.fromkeys(kept[name]["certificate"].strip() for name in profiles)
    return {"replicas": replicas, "trust": "".join(f"{one}\n" for one in certificates)}


def problems(fleet: Fleet) -> list[Problem]:
    """Return what is wrong with a fleet as the role is given it."""
    names = [replica["name"] for replica in fleet["replicas"]]
    twice = sorted({name for name in names if names.count(name) > 1})
    found = [
        Problem("invalid-setting", f"the replica {name} twice", "a name for each", "correct it", "monitoring_fleet")
        for name in twice
    ]
    if not names:
        found.append(
            Problem("invalid-setting", "no replica", "at least one", "leave it out, or name them", "monitoring_fleet")
        )
    return found


def jobs(fleet: Fleet) -> list[str]:
    """Return the jobs whose targets Prometheus must reach at the end of a run.

    Not those of the counters: a replica that is drained, or has its arms measured, shows none meanwhile.
    """
    return [FLEET] if fleet["replicas"] else []


def scraped(fleet: Fleet, trust_file: str, key_file: str, blackbox: str) -> list[Json]:
    """Return Prometheus's jobs; ``blackbox`` is HOST:PORT of the exporter."""
    by_dialect: dict[str, list[Replica]] = {}
    for replica in fleet["replicas"]:
        by_dialect.setdefault(replica["dialect"], []).append(replica)
    found: list[Json] = [
        {
            "job_name": f"fleet_{dialect}",
            "scheme": "https",
            "metrics_path": METRICS,
            "authorization": {"credentials_file": key_file},
            "follow_redirects": False,
            **_trusting(fleet, trust_file),
            "static_configs": [
                {"targets": [replica["address"]], "labels": _labels(replica, dialect)} for replica in replicas
            ],
        }
        for dialect, replicas in by_dialect.items()
        if dialect in SERIES
    ]
    asked: Json = [
        {
            "targets": [f"https://{replica['address']}/ready"],
            "labels": {"replica": replica["name"], "profile": replica["profile"]},
        }
        for replica in fleet["replicas"]
    ]
    ready: Json = {
        "job_name": FLEET,
        "metrics_path": "/probe",
        "params": {"module": [FLEET]},
        "static_configs": asked,
        # As the exporter wants it: what is asked is a parameter, and who is asked is the exporter.
        "relabel_configs": [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"source_labels": ["__param_target"], "target_label": "instance"},
            {"target_label": "__address__", "replacement": blackbox},
        ],
    }
    return [*found, ready]


def _labels(replica: Replica, dialect: str) -> Json:
    return {
        "replica": replica["name"],
        "profile": replica["profile"],
        "model": replica["model"],
        "drafting": replica["drafting"],
        "dialect": dialect,
    }


def _trusting(fleet: Fleet, trust_file: str) -> dict[str, Json]:
    return {"tls_config": {"ca_file": trust_file}} if fleet["trust"] else {}


def asked_ready(fleet: Fleet, trust_file: str) -> dict[str, Json]:
    """Return the blackbox exporter's module that asks a replica's gateway for /ready."""
    return {
        FLEET: {
            "prober": "http",
            "timeout": "5s",
            "http": {
                "valid_status_codes": [200],
                "preferred_ip_protocol": "ip4",
                "follow_redirects": False,
                **_trusting(fleet, trust_file),
            },
        }
    }


def rules_file(templates: Path, path: str, dialects: Collection[str], pace: Pace, limits: Limits) -> File:
    """Return the rules of a fleet as Prometheus reads them; ``dialects``: whose counters its replicas show."""
    data = {
        "dialects": {name: names for name, names in SERIES.items() if name in dialects},
        "pace": pace,
        "limits": limits,
        "duration": duration,
    }
    return render_file(templates, "monitoring/fleet_rules.yml.j2", path, "0644", data)


def files(templates: Path, folder: str, fleet: Fleet, pace: Pace, limits: Limits) -> list[File]:
    """Return what Prometheus and Grafana read of a fleet, in the monitoring's ``folder``."""
    dialects = {replica["dialect"] for replica in fleet["replicas"]}
    rules = rules_file(templates, f"{folder}/fleet_rules.yml", dialects, pace, limits)
    board = dashboard(templates, recorded(rules["content"]), "Drafthouse: fleet", BOARD)
    text = json.dumps(board, indent=1) + "\n"
    found: list[File] = [rules, {"path": f"{folder}/grafana/boards/{UID}.json", "mode": "0644", "content": text}]
    if fleet["trust"]:
        found.append({"path": trust_file(folder), "mode": "0644", "content": fleet["trust"]})
    return found


def trust_file(folder: str) -> str:
    """Return where the replicas' certificates lie."""
    return f"{folder}/fleet.pem"
