"""One load split among several processes: the parts are the whole, and nothing else."""

from __future__ import annotations

import itertools

import pytest

from drafthouse.bench.sweep.level import arrivals
from drafthouse.bench.sweep.shares import Share, due_times, processes_for


@pytest.mark.parametrize("of", [1, 2, 3, 7])
@pytest.mark.parametrize("level", [1, 2, 5, 64, 1023])
def test_streams_are_split_to_the_last_one(level: int, of: int) -> None:
    parts = [Share(index, of).streams(level) for index in range(of)]
    assert sum(parts) == level
    assert max(parts) - min(parts) <= 1


def test_requests_are_split_by_number() -> None:
    parts = [list(itertools.islice(Share(index, 3).pick(itertools.count()), 4)) for index in range(3)]
    assert parts == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_arrivals_are_those_of_a_single_client() -> None:
    whole = due_times(arrivals(50.0, 7), 2.0)
    assert whole == sorted(whole)
    assert whole[0] > 0
    assert whole[-1] < 2.0
    assert whole == list(itertools.accumulate(itertools.islice(arrivals(50.0, 7), len(whole))))
    assert sorted(itertools.chain(*(Share(index, 4).pick(whole) for index in range(4)))) == whole


@pytest.mark.parametrize(
    ("load", "level", "tokens", "cores", "needed"),
    [
        ("closed", 1, 200, 8, 1), ("closed", 256, 200, 8, 1), ("closed", 257, 200, 8, 2), ("closed", 4096, 200, 8, 8),
        ("open", 0.5, 100, 8, 1), ("open", 128, 100, 8, 1), ("open", 256, 100, 8, 2), ("open", 256, 100, 1, 1),
    ],
)  # fmt: skip
def test_as_many_processes_as_a_level_needs(load: str, level: float, tokens: float, cores: int, needed: int) -> None:
    assert processes_for(load, level, tokens, cores) == needed
