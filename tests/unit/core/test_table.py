"""Plain tables for a terminal."""

from __future__ import annotations

import pytest

from drafthouse.core.table import table

HEAD = ["draft", "why", "K"]
ROWS = [["org/a-name-of-some-letters", "a lookup in the text", "3"], ["none", "nothing/that-is-as-long-as-this", "12"]]


def test_a_table_that_fits_is_as_wide_as_needed() -> None:
    assert table(HEAD, ROWS, 80).splitlines() == [
        "draft                       why                              K",
        "--------------------------  -------------------------------  --",
        "org/a-name-of-some-letters  a lookup in the text              3",
        "none                        nothing/that-is-as-long-as-this  12",
    ]


def test_cells_are_wrapped_and_names_broken_but_not_what_a_row_is_called() -> None:
    assert table(HEAD, ROWS, 50).splitlines() == [
        "draft                       why               K",
        "--------------------------  ----------------  --",
        "org/a-name-of-some-letters  a lookup in the    3",
        "                            text",
        "none                        nothing/that-is-  12",
        "                            as-long-as-this",
    ]


@pytest.mark.parametrize("columns", [44, 60, 100])
def test_it_is_no_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, table(HEAD, ROWS).splitlines())) <= columns


def test_a_number_stands_at_the_right_and_a_word_of_a_cell_does_not() -> None:
    lines = table(["hardware", "GB"], [["two NVIDIA GeForce RTX 5090", "68.7"], ["x", "8"]], 26).splitlines()
    assert lines[2:] == ["two NVIDIA GeForce  68.7", "RTX 5090", "x                      8"]
