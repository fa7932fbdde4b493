"""The table of tests/weights/faults.md has a line for every fault that is tested, and none for anything else."""

from __future__ import annotations

from tests.weights.cases import TITLES
from tests.weights.conftest import documented


def test_the_table_is_whole_and_in_order() -> None:
    assert list(documented()) == list(TITLES)
