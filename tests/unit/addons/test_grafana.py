"""The dashboard: what it asks is recorded, and its shape is Grafana's."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from drafthouse.addons.grafana import COLUMNS, FILE, dashboard
from drafthouse.addons.prometheus_rules import SERIES, Watched, recorded_series
from drafthouse.profiles.workspace import ROOT
from drafthouse.prompts.json_schema import schema_problem, why_not
from tests.support.builders import broken
from tests.support.prometheus import TEMPLATES, alerts_of, rules_text

WHOLE = json.loads((TEMPLATES / FILE).read_text("utf-8"))
SCHEMA = json.loads((ROOT / "tests/grafana.schema.json").read_text("utf-8"))
PLACES = [
    Watched(dialect, node=node, gpu=gpu, gateway=gateway)
    for dialect in ("", *SERIES)
    for node, gpu, gateway in ((False, False, False), (True, False, True), (True, True, True))
]


def names(watched: Watched) -> list[str]:
    return recorded_series(rules_text(watched))


def board(watched: Watched) -> Any:
    return dashboard(TEMPLATES, names(watched), "Drafthouse: box")


def queries(board: Any) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("watched", PLACES, ids=str)
def test_it_asks_for_what_this_box_records_and_nothing_else(watched: Watched) -> None:
    asked = queries(board(watched))
    assert asked
    assert set(asked) <= set(names(watched))


@pytest.mark.parametrize("watched", PLACES, ids=str)
def test_what_is_recorded_is_shown_or_told(watched: Watched) -> None:
    told = " ".join(alert["expr"] for alert in alerts_of(watched))
    lost = {name for name in names(watched) if name not in told} - set(queries(board(watched)))
    assert lost == set()


def test_every_panel_is_shown_somewhere() -> None:
    shown = {panel["title"] for watched in PLACES for panel in board(watched)["panels"]}
    assert shown == {panel["title"] for panel in WHOLE["panels"]}
    assert {q for watched in PLACES for q in queries(board(watched))} == set(queries(WHOLE))


def test_the_file_is_the_dashboard_of_a_box_that_has_everything() -> None:
    """Its numbers, letters and places are those that are put on a box: Grafana shows it as it lies there."""
    everything = Watched("vllm", node=True, gpu=True, gateway=True)
    assert board(everything) == {**WHOLE, "title": "Drafthouse: box"}


@pytest.mark.parametrize("watched", PLACES, ids=str)
def test_it_has_grafanas_shape(watched: Watched) -> None:
    assert why_not(board(watched), SCHEMA) is None


def test_the_schema_is_one_and_refuses_what_is_none() -> None:
    assert schema_problem(SCHEMA) is None
    whole = board(PLACES[-1])

    number = next(at for at, panel in enumerate(whole["panels"]) if panel["type"] == "stat")
    for data in (
        broken(whole, "panels", value=None),
        broken(whole, "schemaVersion", value="39"),
        broken(whole, "uid", value="short"),
        broken(whole, "refresh", value="often"),
        broken(whole, "panels", number, "gridPos", "w", value=25),
        broken(whole, "panels", number, "gridPos", value=None),
        broken(whole, "panels", number, "targets", value=[]),
        broken(whole, "panels", number, "targets", 0, "expr", value=None),
        broken(whole, "panels", number, "type", value="graph"),
        broken(whole, "panels", number, "fieldConfig", "defaults", "unit", value="parsecs"),
        broken(whole, "panels", number, "fieldConfig", "defaults", "thresholds", "steps", 0, "value", value=1),
        broken(whole, "panels", number, "queries", value=[]),
        broken(whole, "panels", 0, "collapsed", value=None),
    ):
        assert why_not(data, SCHEMA) is not None


@pytest.mark.parametrize("watched", PLACES, ids=str)
def test_no_two_panels_lie_on_one_another(watched: Watched) -> None:
    panels = board(watched)["panels"]
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        assert place["x"] + place["w"] <= COLUMNS
    for one, other in itertools.combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
