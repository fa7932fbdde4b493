"""What a ladder says of the laws of `tests/truth/ladder_laws.py`: a sample of each, all of them by `make truth`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drafthouse.analysis.words import THRESHOLD
from tests.support.ladders import KIND, simulated
from tests.support.loosely import fill
from tests.truth.ladder_laws import (
    CROSSOVERS,
    RESAMPLES,
    Row,
    crossing_at,
    crossovers,
    differing_prompts,
    never_paying,
    power,
)


def missed(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not row.holds]


@pytest.mark.parametrize("load", CROSSOVERS)
def test_a_law_crosses_where_it_says(load: int) -> None:
    gain = crossing_at(load)
    assert gain(1) == pytest.approx(1.8)
    assert gain(load) == pytest.approx(THRESHOLD)
    assert gain(2) > gain(4) > gain(512)


def test_every_crossover_is_found_within_one_step() -> None:
    assert not missed(crossovers(1, 5))


def test_a_gain_for_one_user_stands_though_the_prompts_differ_by_30_percent() -> None:
    # While every one of ten prompts had to gain at a level, 15 of these 40 ladders did not pay for one user.
    (ten,) = differing_prompts(1, 40, [10])
    assert ten.holds, ten


def test_a_ladder_that_never_pays_says_so_when_servers_differ_from_start_to_start() -> None:
    assert not missed(never_paying(1, 80, [0.02]))


def test_what_starts_do_is_in_the_interval_of_each_level() -> None:
    # Twice as fast for sure, and nothing but the starts to doubt: a narrow interval would be a false one.
    steady = simulated(1, [1, 2], lambda level: 2.0, noise=0.001, liking_sd=0.0)
    upset = simulated(1, [1, 2], lambda level: 2.0, noise=0.001, liking_sd=0.0, start_sd=0.1)
    narrow, wide = (fill(ladder, RESAMPLES)[KIND]["levels"][0]["speedup"] for ladder in (steady, upset))
    assert narrow["high"] / narrow["low"] > 1.08
    assert wide["high"] / wide["low"] - 1 > 1.8 * (narrow["high"] / narrow["low"] - 1)


def test_one_seed_gives_one_table_and_another_gives_another() -> None:
    rows = power(3, 10)
    assert rows == power(3, 10)
    assert rows != power(4, 10)
    assert {row.law for row in rows} == {"1.10 at every load", "1.20 at every load", "1.50 at every load"}
