"""Tables as plain text that fit the width of the terminal."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence

#: A width in characters at which nothing is wrapped, for text that is copied or written to a file.
WHOLE = 10_000
#: The width where the output is a pipe, which has none.
PIPED = 100
_NARROWEST = 40
#: Least widths of a column: where long names are broken, and where any word may be.
_LEAST, _NARROW = 12, 5
#: A name that is longer than its column is broken after one of these characters.
_BREAKS = "/-._,"


def terminal_columns(least: int = _NARROWEST, most: int = WHOLE) -> int:
    """The width of the terminal, or of COLUMNS, limited to ``least`` to ``most``; PIPED without a terminal."""
    return min(max(shutil.get_terminal_size((PIPED, 24)).columns, least), most)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None = None) -> str:
    """A table as text, at most ``columns`` characters wide (default: the terminal's width).

    The cells of the widest columns are wrapped at blanks. If that is not enough, names are broken too, but never those
    of the first column. Numbers are aligned to the right.
    """
    cells = [list(map(str, row)) for row in [head, *rows]]
    limits = _widths(list(zip(*cells, strict=True)), columns or terminal_columns())
    wrapped = [list(map(_wrapped, row, limits)) for row in cells]
    widths = [0] * len(head)
    for row in wrapped:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], *map(len, cell))
    lines = []
    for row_index, row in enumerate(wrapped):
        for line in range(max(map(len, row))):
            parts = []
            for column, cell in enumerate(row):
                part = "".join(cell[line : line + 1])
                parts.append(_padded(part, widths[column], right=_is_number(cells[row_index][column])))
            lines.append("  ".join(parts).rstrip())
        if row_index == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _widths(cells: Sequence[Sequence[str]], columns: int) -> list[int]:
    """The width of each column, whose ``cells`` are given: its longest cell, or less where all must fit ``columns``."""
    room = columns - 2 * (len(cells) - 1)
    longest_cell = [max(map(len, column)) for column in cells]
    longest_word = [max(map(len, " ".join(column).split()), default=0) for column in cells]
    broken = [min(word, _LEAST) for word in longest_word[1:]]
    # The least widths, tried in turn. Words of the first column are never broken, because users copy them.
    steps = (
        [longest_cell[0], *longest_word[1:]],  # wrap all columns but the first
        longest_word,  # wrap the first too
        [longest_cell[0], *broken],  # break long names instead
        [longest_word[0], *broken],  # do both
        [longest_word[0], *[_NARROW] * len(broken)],  # break any word
    )
    for least in steps:
        widths = _cut_widths(longest_cell, least, room)
        if sum(widths) <= room:
            break
    return widths


def _cut_widths(longest: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The ``longest`` widths, cut to the largest common maximum whose sum fits ``room``, but not below ``least``."""

    def cut(most: int) -> list[int]:
        return [min(width, max(most, low)) for width, low in zip(longest, least, strict=True)]

    # Bisect between a maximum that fits and one that is too wide.
    fits = 0
    too_wide = max(longest) + 1
    while too_wide - fits > 1:
        middle = (fits + too_wide) // 2
        if sum(cut(middle)) <= room:
            fits = middle
        else:
            too_wide = middle
    return cut(fits)


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """The rows as lines whose columns are aligned to the right; the columns in ``left`` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [_padded(cell, widths[column], right=column not in left) for column, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _padded(text: str, width: int, *, right: bool) -> str:
    """A cell's text, padded with blanks to ``width`` characters."""
    if right:
        return text.rjust(width)
    return text.ljust(width)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a cell that is ``width`` characters wide; a longer word is broken, if possible after a `_BREAKS`."""
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
    """True for a number, also with separators, a percent sign or an x."""
    return text[:1].isdigit() and not text.strip("0123456789.,%x")
