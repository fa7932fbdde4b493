"""The dashboard of Grafana: `templates/monitoring/dashboard.json`, less what a box does not record.

The file is a dashboard as Grafana imports it, of a box that has everything, in Grafana's classic model, which every
release from 10 on reads. A panel shows recorded series (`rules.yml.j2`, beside it) by their names and nothing else. Its
shape is held to the types that Grafana publishes (`tests/pages/test_grafana.py`) and to `tests/grafana.schema.json`,
which is stricter.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.documents import read_json

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

UID = DATASOURCE = "drafthouse"
FILE = "monitoring/dashboard.json"
COLUMNS = 24  # of Grafana's grid


def dashboard(templates: Path, recorded: Collection[str], title: str, file: str = FILE) -> dict[str, Json]:
    """The dashboard of a box that records the series named: what is left of it moves together."""
    board = read_json(templates / file, "Grafana's dashboard, as JSON", f"restore templates/{file}")
    made: list[Any] = []
    row: list[Any] = []
    left = top = bottom = 0
    for panel in board["panels"]:
        if panel["type"] == "row":
            row = [panel]  # it comes with the first of its panels
            continue
        targets: list[Any] = []
        for target in panel["targets"]:
            if target["expr"] in recorded:
                targets.append({**target, "refId": chr(ord("A") + len(targets))})
        if not targets:
            continue
        for one in (*row, {**panel, "targets": targets}):
            width, height = one["gridPos"]["w"], one["gridPos"]["h"]
            if left + width > COLUMNS:
                left, top = 0, bottom
            place = {"x": left, "y": top, "w": width, "h": height}
            made.append({**one, "id": len(made) + 1, "gridPos": place})
            left, bottom = left + width, max(bottom, top + height)
        row = []
    return {**board, "title": title, "panels": made}
