"""The Grafana dashboard of a box: `templates/monitoring/dashboard.json` without the panels whose series are missing.

The file is a dashboard that Grafana can import, with all panels, in the classic dashboard model that every release
since 10 reads. A panel shows only recorded series (`templates/monitoring/rules.yml.j2`). Tests check the file against
the types that Grafana publishes (`tests/pages/test_grafana.py`) and against `tests/grafana.schema.json`, which is
stricter.
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
COLUMNS = 24  # the width of Grafana's grid


def dashboard(templates: Path, recorded: Collection[str], title: str, file: str = FILE) -> dict[str, Json]:
    """The dashboard for a box that records the series ``recorded``; the panels are placed without gaps."""
    board = read_json(templates / file, "Grafana's dashboard, as JSON", f"restore templates/{file}")
    placed: list[Any] = []
    row: list[Any] = []
    left = top = bottom = 0
    for panel in board["panels"]:
        if panel["type"] == "row":
            row = [panel]  # the row's title is placed with its first panel, or not at all
            continue
        targets: list[Any] = []
        for target in panel["targets"]:
            if target["expr"] in recorded:
                targets.append({**target, "refId": chr(ord("A") + len(targets))})
        if not targets:
            continue
        for shown in (*row, {**panel, "targets": targets}):
            width, height = shown["gridPos"]["w"], shown["gridPos"]["h"]
            if left + width > COLUMNS:  # no room: begin a new line below the highest panel
                left, top = 0, bottom
            position = {"x": left, "y": top, "w": width, "h": height}
            placed.append({**shown, "id": len(placed) + 1, "gridPos": position})
            left, bottom = left + width, max(bottom, top + height)
        row = []
    return {**board, "title": title, "panels": placed}
