"""The dashboard of Grafana, made from one table. Pure; the controller's part.

A panel shows recorded series (`prometheus_rules.py`) by their names and nothing else; one whose series this box does
not have is left out. The JSON is Grafana's classic model, which every release from 10 on reads; its shape is held to
the types that Grafana publishes (`tests/pages/test_grafana.py`) and to `tests/grafana.schema.json`, which is stricter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.documents import Json

UID = DATASOURCE = "drafthouse"
COLUMNS = 24  # of Grafana's grid
_SCHEMA_VERSION = 39  # of Grafana 10.4 and 11; newer ones read it and convert it
_GREEN, _ORANGE, _RED = "green", "orange", "red"


@dataclass(frozen=True)
class Panel:
    """One picture. ``shows``: recorded series and the legend of each; ``unit`` is Grafana's word for it.

    ``steps`` are the values from which on a number turns another colour. A ``number`` is one, else it is a curve.
    """

    title: str
    shows: Sequence[tuple[str, str]]
    unit: str
    says: str
    steps: Sequence[tuple[float, str]] = ()
    number: bool = False
    most: float | None = None


_RATIO = "percentunit"
_TOKENS = "suffix: tok/s"
PANELS: Mapping[str, Sequence[Panel]] = {
    "Now": (
        Panel(
            "Engine", [("drafthouse:engine_up:bool", "")], "bool_yes_no", "Whether it answers its health path.",
            [(0, _RED), (1, _GREEN)], number=True,
        ),
        Panel(
            "Acceptance", [("drafthouse:acceptance_rate:ratio", "")], _RATIO,
            "Accepted of the drafted tokens. Empty while nothing is drafted.",
            [(0, _RED), (0.15, _ORANGE), (0.3, _GREEN)], number=True,
        ),
        Panel(
            "Mean acceptance length", [("drafthouse:acceptance_length:mean", "")], "none",
            "Tokens for each step of the target: 1 without speculation.", number=True,
        ),
        Panel("Output", [("drafthouse:output_tokens:rate", "")], _TOKENS, "Tokens of all requests.", number=True),
        Panel(
            "Restarts", [("drafthouse:engine_restarts:count", "")], "none", "In the last hour.",
            [(0, _GREEN), (1, _ORANGE), (3, _RED)], number=True,
        ),
        Panel(
            "Alerts", [("drafthouse:alerts_firing:count", "")], "none",
            "That fire now; what each says to do: Prometheus, /api/v1/alerts.",
            [(0, _GREEN), (1, _RED)], number=True,
        ),
    ),
    "Speculation": (
        Panel(
            "Acceptance rate", [("drafthouse:acceptance_rate:ratio", "accepted")], _RATIO,
            "Accepted of the drafted tokens.", most=1,
        ),
        Panel(
            "Acceptance by position", [("drafthouse:acceptance_at_position:ratio", "{{position}}")], _RATIO,
            "Of the drafts, how many were accepted up to here. A steep fall: draft fewer tokens.", most=1,
        ),
        Panel(
            "Mean acceptance length", [("drafthouse:acceptance_length:mean", "tokens a step")], "none",
            "1 + accepted / drafts.",
        ),
        Panel(
            "Drafted and accepted",
            [("drafthouse:draft_tokens:rate", "drafted"), ("drafthouse:accepted_tokens:rate", "accepted")], _TOKENS,
            "What is between the two was computed for nothing.",
        ),
        Panel("Drafts", [("drafthouse:drafts:rate", "drafts")], "suffix: /s", "Each is one step of the target."),
    ),
    "Traffic": (
        Panel(
            "Tokens",
            [("drafthouse:output_tokens:rate", "output"), ("drafthouse:input_tokens:rate", "input")], _TOKENS,
            "Of all requests.",
        ),
        Panel(
            "Requests",
            [("drafthouse:requests_running:sum", "running"), ("drafthouse:requests_waiting:sum", "waiting")], "none",
            "In the engine, and in its queue.",
        ),
        Panel(
            "Time to first token",
            [("drafthouse:ttft_seconds:quantile", "{{quantile}}"), ("drafthouse:ttft_seconds:mean", "mean")], "s",
            "Quantiles from the engine's buckets.",
        ),
        Panel(
            "Time per output token",
            [("drafthouse:tpot_seconds:quantile", "{{quantile}}"), ("drafthouse:tpot_seconds:mean", "mean")], "s",
            "After the first token.",
        ),
        Panel("Time in the queue", [("drafthouse:queue_seconds:mean", "mean")], "s", "Before a request is begun."),
        Panel("KV cache", [("drafthouse:kv_cache_used:ratio", "used")], _RATIO, "Full: requests wait.", most=1),
    ),
    "Machine": (
        Panel("Memory", [("drafthouse:memory_used:ratio", "used")], _RATIO, "What is not available any more.", most=1),
        Panel("Processors", [("drafthouse:cpu_busy:ratio", "busy")], _RATIO, "Of all of them.", most=1),
        Panel(
            "GPU",
            [("drafthouse:gpu_busy:ratio", "{{gpu}} busy"), ("drafthouse:gpu_memory_used:ratio", "{{gpu}} memory")],
            _RATIO, "Busy: some kernel ran.", most=1,
        ),
        Panel("GPU temperature", [("drafthouse:gpu_temperature:celsius", "GPU {{gpu}}")], "celsius", "Of the chip."),
        Panel("GPU power", [("drafthouse:gpu_power:watts", "GPU {{gpu}}")], "watt", "Drawn by the card."),
        Panel(
            "GPU slowed down",
            [
                ("drafthouse:gpu_slowed_by_heat:bool", "GPU {{gpu}} by heat"),
                ("drafthouse:gpu_slowed_by_power:bool", "GPU {{gpu}} by power"),
            ],
            "bool_yes_no", "Clocks lowered for it.", most=1,
        ),
        Panel(
            "Gateway", [("drafthouse:gateway_up:bool", "")], "bool_yes_no", "Whether it answers over TLS.",
            [(0, _RED), (1, _GREEN)], number=True,
        ),
        Panel(
            "Certificate ends in", [("drafthouse:certificate_left:seconds", "")], "s", "Of the gateway.",
            [(0, _RED), (604_800, _ORANGE), (1_209_600, _GREEN)], number=True,
        ),
    ),
}  # fmt: skip


def dashboard(recorded: Iterable[str], title: str) -> dict[str, Json]:
    """Return the dashboard of a box that records the series named."""
    known = set(recorded)
    made: list[Json] = []
    row_at = 0
    for name, wanted in PANELS.items():
        panels = [(panel, _known(panel, known)) for panel in wanted]
        panels = [(panel, shows) for panel, shows in panels if shows]
        if not panels:
            continue
        made.append(_row(len(made) + 1, name, row_at))
        row_at = _laid_out(panels, made, row_at + 1)
    return {
        "uid": UID,
        "title": title,
        "description": "Made by Drafthouse from what this box records; the next run overwrites changes made here.",
        "tags": ["drafthouse"],
        "schemaVersion": _SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "panels": made,
    }


def _known(panel: Panel, known: set[str]) -> list[tuple[str, str]]:
    return [(name, legend) for name, legend in panel.shows if name in known]


def _laid_out(panels: Sequence[tuple[Panel, list[tuple[str, str]]]], made: list[Json], top: int) -> int:
    """Add the panels below ``top``, side by side while they fit; return where the next row begins."""
    left, deepest = 0, top
    for panel, shows in panels:
        width, height = (4, 4) if panel.number else (8, 8)
        if left + width > COLUMNS:
            left, top = 0, deepest
        made.append(_panel(len(made) + 1, panel, shows, {"x": left, "y": top, "w": width, "h": height}))
        left, deepest = left + width, max(deepest, top + height)
    return deepest


def _row(number: int, title: str, top: int) -> Json:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Panel, shows: Sequence[tuple[str, str]], place: Mapping[str, int]) -> Json:
    source = {"type": "prometheus", "uid": DATASOURCE}
    targets: list[Json] = [
        {
            "refId": chr(ord("A") + at),
            "datasource": source,
            "expr": name,
            "legendFormat": legend or "__auto",
            "instant": panel.number,
            "range": not panel.number,
        }
        for at, (name, legend) in enumerate(shows)
    ]
    defaults: dict[str, Json] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.steps:
        # The first one reaches down to minus infinity, which Grafana writes as null.
        steps = [{"color": color, "value": value if at else None} for at, (value, color) in enumerate(panel.steps)]
        defaults |= {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.number and panel.unit == "s":
        del defaults["min"]  # a certificate may have ended
    return {
        "id": number,
        "type": "stat" if panel.number else "timeseries",
        "title": panel.title,
        "description": panel.says,
        "datasource": source,
        "gridPos": dict(place),
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _OPTIONS["stat" if panel.number else "timeseries"],
    }


# Whole, as Grafana's own types ask for them: what is left out here, every release fills in with what it likes.
_OPTIONS: Mapping[str, Json] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
}
