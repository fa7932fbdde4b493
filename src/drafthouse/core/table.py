"""Plain tables for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 40) -> str:
    """Return a table as text: columns as wide as needed, cells wrapped at ``width`` letters, names kept whole.

    A name that is longer widens its column, and the other cells use that. A cell that looks like a number stands at
    the right.
    """
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    wraps = [
        max(width, *(len(word) for cell in column for word in cell.split())) for column in zip(*cells, strict=True)
    ]
    wrapped = [[_wrapped(cell, wrap) for cell, wrap in zip(row, wraps, strict=True)] for row in cells]
    widths = [max(len(line) for row in wrapped for line in row[place]) for place in range(len(head))]
    lines = []
    for number, row in enumerate(wrapped):
        for line in range(max(len(cell) for cell in row)):
            parts = [cell[line] if line < len(cell) else "" for cell in row]
            padded = [
                part.rjust(size) if _is_number(part) else part.ljust(size)
                for part, size in zip(parts, widths, strict=True)
            ]
            lines.append("  ".join(padded).rstrip())
        if number == 0:
            lines.append("  ".join("-" * size for size in widths))
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return rows as lines of columns as wide as needed, to the right but for those in ``left``."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _is_number(text: str) -> bool:
    return bool(text) and text[0].isdigit() and all(letter in "0123456789.,%x" for letter in text)
