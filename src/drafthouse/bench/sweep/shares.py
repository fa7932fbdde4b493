"""One level of load split among several client processes: who sends which requests, and when. Pure.

There is one list of requests and one list of arrival times, whoever sends them: of n processes the first sends the
requests 0, n, 2n, ..., each when the one list says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ...prompts.load_levels import CLOSED

#: What one core follows with a true clock: streams at 50 chunks a second each (tests/load/test_client_load.py).
STREAMS_A_CORE, CHUNKS_A_CORE = 256, 12_800

Item = TypeVar("Item")


@dataclass(frozen=True)
class Share:
    """The part of a load that is number ``index`` (from 0) of ``of``."""

    index: int
    of: int

    def streams(self, level: int) -> int:
        """Return how many of ``level`` requests at a time are this part's; the parts differ by one at most."""
        return level * (self.index + 1) // self.of - level * self.index // self.of

    def pick(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the items of a common list that are this part's."""
        return itertools.islice(items, self.index, None, self.of)


def due_times(gaps_s: Iterable[float], seconds: float) -> list[float]:
    """Return the arrivals of an open loop that lie within ``seconds``, in seconds from its beginning."""
    return list(itertools.takewhile(lambda due_s: due_s < seconds, itertools.accumulate(gaps_s)))


def processes_for(load: str, level: float, tokens: float, cores: int) -> int:
    """Return how many processes follow a level, at most one a core.

    ``tokens`` is the mean length that the requests ask for. In an open loop there are at most rate x tokens chunks a
    second; how many streams that is depends on the server.
    """
    needed = level / STREAMS_A_CORE if load == CLOSED else level * tokens / CHUNKS_A_CORE
    return max(1, min(cores, math.ceil(needed)))
