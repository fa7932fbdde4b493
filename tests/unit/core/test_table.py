"""Plain tables for a terminal."""

from __future__ import annotations

from drafthouse.core.table import table


def test_a_long_name_widens_its_column_and_the_other_cells_use_it() -> None:
    made = table(["draft", "K"], [["org/a-name-of-thirty-two-letters", "3"], ["none: a lookup in the text", "12"]], 10)
    assert made.splitlines() == [
        "draft                             K",
        "--------------------------------  --",
        "org/a-name-of-thirty-two-letters   3",
        "none: a lookup in the text        12",
    ]


def test_cells_are_wrapped_at_the_width() -> None:
    assert table(["why"], [["a lookup in the text"]], 10).splitlines() == [
        "why",
        "--------",
        "a lookup",
        "in the",
        "text",
    ]
