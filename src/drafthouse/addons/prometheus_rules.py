"""Render Prometheus's recording rules and alerts for a box, from `templates/monitoring/rules.yml.j2`.

Prometheus reads the engine's counters, whose names are in `Engine.series`, and records from them the series
`drafthouse:...`, with the same names for all engines. Alerts and the dashboard use only these. A series that an engine
does not count is not recorded. This file runs on the controller.
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
    """Seconds between two scrapes, over which a rate is computed, and for which a condition holds before an alert."""

    interval_s: int = 15
    window_s: int = 300
    hold_s: int = 600


@dataclass(frozen=True)
class Limits:
    """Thresholds of the alerts; fractions, except for ``restarts`` and ``certificate_days``."""

    acceptance: float = 0.15  # published articles: speculation does not pay below an acceptance rate of 10 to 20 %
    restarts: int = 3  # within 6 * `Pace.hold_s`, which is an hour
    kv_cache: float = 0.95
    memory: float = 0.95
    gpu_memory: float = 0.98  # vLLM allocates 90 % at its start
    hot: float = 0.1  # of the time
    power: float = 0.9  # of the time; a busy GPU may normally run at its power limit
    certificate_days: int = 7  # Caddy renews a certificate when a third of its life is left


#: The names of the engines' series, by engine.
SERIES = {name: engine.series for name, engine in DIALECTS.items() if engine.series}


@dataclass(frozen=True)
class Watched:
    """What Prometheus watches on a box. ``dialect``: the engine whose counters are shown, '' for no counters.

    ``log``: the path of the engine's log, or the command that prints it.
    """

    dialect: str = ""
    node: bool = False
    gpu: bool = False
    gateway: bool = False
    log: str = ""


def duration_text(seconds: float) -> str:
    """A duration as Prometheus writes it: 1h, 10m, 90s; at least 1s."""
    whole = max(1, round(seconds))
    for unit, size in (("h", 3600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def rules_file(templates: Path, path: str, watched: Watched, pace: Pace, limits: Limits) -> File:
    """The rendered rules of a box, as a file for ``path`` on it."""
    data = {
        "names": SERIES.get(watched.dialect), "watched": watched, "pace": pace, "limits": limits,
        "duration": duration_text,
    }  # fmt: skip
    return render_file(templates, "monitoring/rules.yml.j2", path, "0644", data)


def recorded_series(rules: str) -> list[str]:
    """The names of the series that the text ``rules`` records."""
    names = []
    for group in yaml_of(rules)["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                names.append(rule["record"])
    return names
