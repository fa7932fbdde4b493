"""From which acceptance on speculation pays at a load: the break-even. Pure, and it travels to the box.

Leviathan, Kalman and Matias 2023 (arXiv 2211.17192, theorem 3.8): with the chance a that a drafted token is accepted,
a step with K drafted tokens gives (1 - a^(K+1)) / (1 - a) tokens for the time of 1 + c·K target steps, where c is the
time of one drafted token over that of a target step. It pays where the first is more than the second.

Their c knows no load: checking K + 1 tokens is taken to last as long as checking one. On a full batch, or on a CPU, it
does not, and a lookup does not draft in every step. So c is here what was measured, drafting and checking together, at
each load: of N output tokens A had been accepted out of M drafted ones, and N came in 1/s of the baseline's time.
Each of the N - A steps gives one token of its own, so in target steps

    N / s = (N - A) + c·M        and from that        c = (A - N·(1 - 1/s)) / M

With a draft in every step this is the theorem's own line. It says that speculation pays exactly where the acceptance
rate A/M is above c: **the break-even is the cost of a drafted token in target steps**, whatever the text, K, or how
often is drafted. What is taken from one text to another is that a drafted token costs the same at the same load; with
a method that drafts fewer tokens than K at times this is an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Counts:
    """Tokens that were answered, drafted, and accepted of the drafted ones."""

    tokens: float
    drafted: float
    accepted: float

    def __add__(self, other: Counts) -> Counts:
        """The counts of both together."""
        return Counts(self.tokens + other.tokens, self.drafted + other.drafted, self.accepted + other.accepted)

    @property
    def rate(self) -> float:
        """The share of the drafted tokens that was accepted; 0 of none."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True)
class Point:
    """What a drafted token costs at one load, in target steps, with its 95 % interval.

    ``level``: requests under way. ``drafted``: the tokens that it was measured with.
    """

    level: float
    cost: float
    low: float
    high: float
    drafted: float

    def as_dict(self) -> dict[str, float]:
        """The point as plain data, for JSON."""
        return asdict(self)


def counts_of(drafted: float, accepted: float, most: int, drafts: float | None, tokens: float | None) -> Counts:
    """The counts of some traffic; ``most`` is K, ``drafts`` and ``tokens`` are None where nobody counts them.

    A draft is a step, and a step gives one token beside the accepted ones: there are no fewer tokens than that.
    Engines that count a request's tokens as it ends are behind at times; where nobody counts them, every step is taken
    to draft.
    """
    least = accepted + (drafts if drafts is not None else drafted / max(1, most))
    return Counts(max(least, tokens or 0.0), drafted, accepted)


def cost_of(counts: Counts, speedup: float) -> float:
    """What a drafted token costs, in target steps; 0 where it seems to cost less than nothing."""
    return max(0.0, (counts.accepted - counts.tokens * (1.0 - 1.0 / speedup)) / counts.drafted)


def gain_of(counts: Counts, cost: float) -> float:
    """How many times as fast as without drafting these tokens came; 1 where nothing was drafted."""
    steps = counts.tokens - counts.accepted + cost * counts.drafted
    return counts.tokens / steps if counts.tokens > 0 and steps > 0 else 1.0


def cost_at(points: Sequence[Point], level: float) -> tuple[float, bool]:
    """A drafted token's cost at a load, and whether loads on both sides of it were measured.

    On a straight line over log2 of the load; outside of what was measured, the nearest that was. Raises ValueError
    without points.
    """
    ordered = sorted(points, key=lambda point: point.level)
    if not ordered:
        raise ValueError("the cost of a drafted token at no load")
    if level <= ordered[0].level or level >= ordered[-1].level:
        nearest = ordered[0] if level <= ordered[0].level else ordered[-1]
        return nearest.cost, level == nearest.level
    after = next(place for place, point in enumerate(ordered) if point.level > level)
    one, two = ordered[after - 1], ordered[after]
    share = math.log2(level / one.level) / math.log2(two.level / one.level)
    return one.cost + share * (two.cost - one.cost), True


class BreakEven(TypedDict):
    """From which acceptance on speculation pays at a load: accepted over drafted tokens, or the mean length.

    ``measured``: whether the load lies within what was measured.
    """

    level: float
    rate: float
    length: float
    measured: bool


def break_even(points: Sequence[Point], level: float, tokens: int) -> BreakEven:
    """From which acceptance on speculation pays at a load, for a draft of K = ``tokens``."""
    cost, measured = cost_at(points, level)
    return {"level": level, "rate": cost, "length": 1.0 + cost * tokens, "measured": measured}
