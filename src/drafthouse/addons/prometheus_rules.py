"""Recording rules and alerts: `templates/monitoring/rules.yml.j2`, and what it is filled in with.

Prometheus reads the engine's own counters (`Engine.series` has their names) and records from them series called
`drafthouse:...`, under the same names for every engine, which the alerts and the dashboard are made of. What an engine
does not count is not recorded for it. The controller's part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.yaml_documents import yaml_of
from ..engines.registry import DIALECTS
from ..profiles.render import render_file

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import File


@dataclass(frozen=True)
class Pace:
    """Seconds between two scrapes, over which a rate is taken, and for which something holds before it is an alert."""

    interval_s: int = 15
    window_s: int = 300
    hold_s: int = 600


@dataclass(frozen=True)
class Limits:
    """From where on something is said. Fractions, unless said otherwise."""

    acceptance: float = 0.15  # the articles say: below 10 to 20 % you are better off without
    restarts: int = 3  # in six times the hold: an hour
    kv_cache: float = 0.95
    memory: float = 0.95
    gpu_memory: float = 0.98  # vLLM takes nine tenths at once, by design
    hot: float = 0.1  # of the time
    power: float = 0.9  # of the time; a GPU at work may well run at its power limit
    certificate_days: int = 7  # Caddy renews when a third of a certificate's life is left


#: The names of an engine's own counters, by the engine.
SERIES = {name: engine.series for name, engine in DIALECTS.items() if engine.series}


@dataclass(frozen=True)
class Watched:
    """What there is to watch on a box. ``dialect`` is '' where the engine shows no counters.

    ``log`` is where a person reads what the engine printed.
    """

    dialect: str = ""
    node: bool = False
    gpu: bool = False
    gateway: bool = False
    log: str = ""


def duration(seconds: float) -> str:
    """Seconds as Prometheus writes them: 1h, 10m, 90s."""
    whole = max(1, round(seconds))
    for unit, size in (("h", 3600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def rules_file(templates: Path, path: str, watched: Watched, pace: Pace, limits: Limits) -> File:
    """The rules of a box as Prometheus reads them."""
    data = {
        "names": SERIES.get(watched.dialect), "watched": watched, "pace": pace, "limits": limits, "duration": duration,
    }  # fmt: skip
    return render_file(templates, "monitoring/rules.yml.j2", path, "0644", data)


def recorded(rules: str) -> list[str]:
    """The names of the series that rules record."""
    names = []
    for group in yaml_of(rules)["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                names.append(rule["record"])
    return names
