"""Plain tables for a terminal, no wider than it is."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence

#: Columns of what is copied, or goes to a file: no line or word of it is broken.
WHOLE = 10_000
#: Through a pipe, where nobody says how wide it is shown.
PIPED = 100
_NARROWEST = 40
_LEAST, _NARROW = 12, 5
#: Behind these a name is broken that is longer than its column.
_BREAKS = "/-._,"


def terminal_columns(least: int = _NARROWEST, most: int = WHOLE) -> int:
    """Columns of the terminal, or of COLUMNS, from ``least`` to ``most``; PIPED where there is none."""
    return min(max(shutil.get_terminal_size((PIPED, 24)).columns, least), most)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """A table as text, ``columns`` wide at most (default: the terminal's).

    The widest columns give way, and their cells are wrapped; names are broken where nothing else helps, those of the
    first column never. A cell that looks like a number stands at the right.
    """
    cells = [list(map(str, row)) for row in [head, *rows]]
    most = _widths(list(zip(*cells, strict=True)), columns or terminal_columns())
    wrapped = [list(map(_wrapped, row, most)) for row in cells]
    widths = [0] * len(head)
    for row in wrapped:
        for place, cell in enumerate(row):
            widths[place] = max(widths[place], *map(len, cell))
    lines = []
    for number, row in enumerate(wrapped):
        for line in range(max(map(len, row))):
            parts = []
            for place, cell in enumerate(row):
                part = "".join(cell[line : line + 1])
                parts.append(_padded(part, widths[place], right=_is_number(cells[number][place])))
            lines.append("  ".join(parts).rstrip())
        if number == 0:
            lines.append("  ".join("-" * size for size in widths))
    return "\n".join(lines)


def _widths(cells: Sequence[Sequence[str]], columns: int) -> list[int]:
    """The width of each column: its longest cell, or less of the widest ones, so that all stand in ``columns``."""
    room = columns - 2 * (len(cells) - 1)
    longest = [max(map(len, column)) for column in cells]
    whole = [max(map(len, " ".join(column).split()), default=0) for column in cells]
    long_names = [min(word, _LEAST) for word in whole[1:]]
    # What is broken, by turns: spaces, those of what a row is called, long names, at last any word; a row's own name,
    # which is typed, never.
    ways = ([longest[0], *whole[1:]], whole, [longest[0], *long_names], [whole[0], *long_names])
    for least in (*ways, [whole[0], *[_NARROW] * len(long_names)]):
        widths = _at_most(longest, least, room)
        if sum(widths) <= room:
            break
    return widths


def _at_most(longest: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths that stand in ``room`` if the widest are cut alike, none to less than its ``least``."""

    def cut(most: int) -> list[int]:
        return [min(one, max(most, low)) for one, low in zip(longest, least, strict=True)]

    fits, too_wide = 0, max(longest) + 1
    while too_wide - fits > 1:
        middle = (fits + too_wide) // 2
        if sum(cut(middle)) <= room:
            fits = middle
        else:
            too_wide = middle
    return cut(fits)


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Rows as lines of columns as wide as needed, to the right but for those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [_padded(cell, widths[place], right=place not in left) for place, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _padded(text: str, width: int, *, right: bool) -> str:
    """A cell's text, filled up with blanks to the ``width`` of its column."""
    if right:
        return text.rjust(width)
    return text.ljust(width)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell."""
    lines = [""]
    for word in text.split():
        rest = word
        if lines[-1] and len(lines[-1]) + 1 + len(rest) <= width:
            lines[-1] += f" {rest}"
            continue
        if lines[-1]:
            lines.append("")
        while len(rest) > width:
            cut = max(rest.rfind(mark, 0, width) for mark in _BREAKS) + 1 or width
            lines[-1] = rest[:cut]
            lines.append("")
            rest = rest[cut:]
        lines[-1] = rest
    return lines


def _is_number(text: str) -> bool:
    return text[:1].isdigit() and not text.strip("0123456789.,%x")
