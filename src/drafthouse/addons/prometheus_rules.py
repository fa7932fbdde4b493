"""Render Prometheus's recording rules and alerts for a box, from `templates/monitoring/rules.yml.j2`.

The recording rules turn each engine's own metrics, whose names are in `Engine.series`, into the series
`drafthouse:...`, which have the same names for all engines. Alerts and the dashboard use only these. A series for which
the engine has no metric is left out. This file runs on the controller, not on the box.
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
    """The timing of scrapes, rates and alerts, in seconds."""

    interval_s: int = 15  # between two scrapes
    window_s: int = 300  # over which a rate is computed
    hold_s: int = 600  # how long a condition holds before its alert; some alerts wait a half, a fifth or a tenth of it


@dataclass(frozen=True)
class Limits:
    """The thresholds above which alerts fire (for ``acceptance`` and ``certificate_days``: below which).

    All but ``restarts`` and ``certificate_days`` are fractions, 0 to 1.
    """

    acceptance: float = 0.15  # published articles: speculation does not pay below an acceptance rate of 10 to 20 %
    restarts: int = 3  # restarts of the engine within 6 * `Pace.hold_s` (an hour by default)
    kv_cache: float = 0.95  # share of the engine's KV cache in use
    memory: float = 0.95  # share of the machine's memory in use
    gpu_memory: float = 0.98  # share of a GPU's memory in use; vLLM allocates 90 % at its start, which is no fault
    hot: float = 0.1  # share of the last `Pace.hold_s` in which a GPU was throttled by its temperature
    power: float = 0.9  # the same by its power limit, which is normal for a busy GPU
    certificate_days: int = 7  # days until it expires; Caddy renews a certificate when a third of its life is left


#: The names of the engines' own series, by dialect; engines without counters are left out.
SERIES = {name: engine.series for name, engine in DIALECTS.items() if engine.series}


@dataclass(frozen=True)
class Watched:
    """What the rules of a box watch, besides whether its engine is up."""

    dialect: str = ""  # the engine whose metric names apply, a key of `SERIES`; "": no metrics
    node: bool = False  # the machine's memory and processors, by the node exporter
    gpu: bool = False  # the GPUs, by DCGM's exporter
    gateway: bool = False  # whether the gateway answers, and when its certificate ends
    log: str = ""  # for the alerts' texts: the path of the engine's log, or the command that prints it


def duration_text(seconds: float) -> str:
    """A duration as Prometheus writes it: 1h, 10m, 90s; at least 1s."""
    whole = max(1, round(seconds))
    for unit, size in (("h", 3600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def rules_file(templates: Path, path: str, watched: Watched, pace: Pace, limits: Limits) -> File:
    """The rendered rules of a box, as a file for ``path`` on it; ``templates`` is the folder `templates/`."""
    data = {
        "names": SERIES.get(watched.dialect),  # None: the template leaves out all rules about the engine's counters
        "watched": watched,
        "pace": pace,
        "limits": limits,
        "duration": duration_text,
    }
    return render_file(templates, "monitoring/rules.yml.j2", path, "0644", data)


def recorded_series(rules: str) -> list[str]:
    """The names of the series that the text ``rules`` records."""
    names = []
    for group in yaml_of(rules)["groups"]:
        for rule in group["rules"]:
            if "record" in rule:
                names.append(rule["record"])
    return names
