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

# Grafana's ids of the dashboard and of its data source; the dashboard's file contains both.
UID = "drafthouse"
DATASOURCE = "drafthouse"
FILE = "monitoring/dashboard.json"  # below the templates
COLUMNS = 24  # the width of Grafana's grid


def dashboard(templates: Path, recorded: Collection[str], title: str, file: str = FILE) -> dict[str, Json]:
    """The dashboard for a box that records the series ``recorded``.

    A panel keeps those of its targets whose series are recorded, and is left out without any. The panels are placed
    from left to right, in lines from top to bottom, so that no gaps stay.
    """
    board = read_json(templates / file, "Grafana's dashboard, as JSON", f"restore templates/{file}")
    placed: list[Any] = []
    row: list[Any] = []
    left = top = bottom = 0  # where the next panel begins, and the lower end of all panels, in units of the grid
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
            width = shown["gridPos"]["w"]
            height = shown["gridPos"]["h"]
            if left + width > COLUMNS:  # no room: begin a new line below the line's tallest panel
                left = 0
                top = bottom
            position = {"x": left, "y": top, "w": width, "h": height}
            placed.append({**shown, "id": len(placed) + 1, "gridPos": position})
            left += width
            bottom = max(bottom, top + height)
        row = []
    return {**board, "title": title, "panels": placed}
