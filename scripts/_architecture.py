"""The picture docs/architecture.svg: the library's rooms in the order that import-linter enforces, with imports."""

from __future__ import annotations

import html
import re

import _clone  # noqa: F401 (puts the library on the path)
import tomllib

from drafthouse.core.places import ROOT

_LIBRARY = ROOT / "src" / "drafthouse"
# In pixels.
_WIDTH = 900
_ROW = 66  # from the top of a row to that of the next
_BOX = 44  # height of a box
_GAP = 20  # between two boxes of a row
_SIDE = 110  # left and right of the boxes, for lines around them
_STYLE = """
    .room { fill: #f6f8fa; stroke: #57606a } .name { font: 600 14px ui-monospace, monospace; fill: #1f2328 }
    .says { font: 11px system-ui, sans-serif; fill: #57606a } .way { stroke: #8c959f; fill: none; opacity: .7 }
"""


def layers() -> list[list[str]]:
    """The rooms from the top down, those side by side in one list."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (rows,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [[word.strip() for word in row.split("|")] for row in rows if row != "__main__"]


def purposes() -> dict[str, str]:
    """What each room is for, from the table of docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    return {
        name: re.sub(r" \(.*?\]\(.+?\)\)|`", "", says)
        for name, says in re.findall(r"^\| `(\w+)` \| (.+?) \|$", text, re.M)
    }


def imports(rooms: list[str]) -> dict[str, set[str]]:
    """Which rooms each room imports from."""
    imported: dict[str, set[str]] = {room: set() for room in rooms}
    for room in rooms:
        for path in (_LIBRARY / room).rglob("*.py"):
            dots = "." * (len(path.relative_to(_LIBRARY).parts))
            names = re.findall(rf"^\s*from {re.escape(dots)}(\w+)", path.read_text("utf-8"), re.MULTILINE)
            imported[room] |= {name for name in names if name in imported and name != room}
    return imported


def drawn(edges: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports to draw, as (importer, imported), without those that others imply, such as `report -> core`."""

    def below(room: str) -> set[str]:
        return edges[room].union(*(below(lower) for lower in edges[room]))

    pairs = []
    for room, lower_rooms in edges.items():
        for lower in sorted(lower_rooms):
            if not any(lower in below(between) for between in lower_rooms):
                pairs.append((room, lower))
    return pairs


def svg() -> str:
    """The picture."""
    rows = layers()
    says = purposes()
    edges = imports([room for row in rows for room in row])
    place: dict[str, tuple[float, float, float]] = {}
    boxes = []
    for number, row in enumerate(rows):
        width = (_WIDTH - 2 * _SIDE - _GAP * (len(row) - 1)) / len(row)
        for column, room in enumerate(row):
            x = _SIDE + column * (width + _GAP)
            y = 10 + number * _ROW
            place[room] = (x, y, width)
            boxes += [
                f'<rect class="room" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_BOX}" rx="6"/>',
                f'<text class="name" x="{x + 12:.0f}" y="{y + 19}">{room}</text>',
                f'<text class="says" x="{x + 12:.0f}" y="{y + 35}">{html.escape(_cut(says[room], width))}</text>',
            ]
    ways = [f'<path class="way" d="{_way(place[upper], place[lower])}"/>' for upper, lower in drawn(edges)]
    height = 10 + len(rows) * _ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t">',
            '<title id="t">The rooms of the library: each imports only from those below it</title>',
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *ways,
            *boxes,
            "</svg>\n",
        ]
    )


def _way(upper: tuple[float, float, float], lower: tuple[float, float, float]) -> str:
    """The SVG path between two boxes (x, y, width): straight to the next row, else around the rows between."""
    x1, y1, width1 = upper
    x2, y2, width2 = lower
    if y2 - y1 <= _ROW:
        return f"M{x1 + width1 / 2:.0f} {y1 + _BOX} L{x2 + width2 / 2:.0f} {y2}"
    left = x1 + width1 < _WIDTH / 2 or x2 + width2 < _WIDTH / 2
    out = (y2 - y1) / _ROW * 13 + 14
    far = _SIDE - out if left else _WIDTH - _SIDE + out
    begin = _anchor(x1, y1, width1, left)
    end = _anchor(x2, y2, width2, left)
    return f"M{begin} C{far:.0f} {begin.split()[1]} {far:.0f} {end.split()[1]} {end}"


def _anchor(x: float, y: float, width: float, left: bool) -> str:
    """Where a line around other rows meets a box, as "X Y": its outer side, or its middle if it has boxes on both."""
    outer = x if left else x + width
    at_the_rim = abs(outer - (_SIDE if left else _WIDTH - _SIDE)) < 1
    return f"{outer if at_the_rim else x + width / 2:.0f} {y + _BOX / 2:.0f}"


def _cut(text: str, width: float) -> str:
    """The text, cut between words to a width in pixels."""
    most = int(width / 5.6)
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0].rstrip(",;:") + " …"
