"""The break-even: the acceptance rate above which speculation pays at a given load. The serving box runs this, too.

Leviathan, Kalman and Matias 2023 (arXiv 2211.17192, theorem 3.8): if a draft token is accepted with probability
a, a step with K draft tokens gives (1 - a^(K+1)) / (1 - a) tokens in the time of 1 + c·K target steps, where c
is the time of one draft token over that of a target step. Speculation pays if the first exceeds the second.

Their c ignores the load: checking K + 1 tokens is assumed to take as long as checking one. That is wrong for
a full batch and on a CPU, and a lookup (n-gram) skips steps. So c is measured here at each load, drafting
and checking together. With M draft tokens, A of them accepted, N output tokens took 1/s of the baseline's
time (s is the speed-up). Each of the N - A steps adds one token of the target, so in target steps

    N / s = (N - A) + c·M        hence        c = (A - N·(1 - 1/s)) / M

This equals the theorem's condition if every step drafts: speculation pays exactly if the acceptance
rate A/M is above c. **The break-even is the cost of a draft token in target steps**, whatever the
text, K, or how often is drafted. One thing is assumed: a draft token costs the same on other texts
at the same load. That is approximate for a method that sometimes drafts fewer than K tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Counts:
    """Numbers of tokens in a measurement."""

    tokens: float  # output tokens, N in the module's formulas
    drafted: float  # draft tokens, M
    accepted: float  # accepted draft tokens, A

    def __add__(self, other: Counts) -> Counts:
        """The sums of both counts."""
        return Counts(self.tokens + other.tokens, self.drafted + other.drafted, self.accepted + other.accepted)

    @property
    def rate(self) -> float:
        """The acceptance rate, a fraction: accepted over draft tokens; 0 if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@dataclass(frozen=True)
class Point:
    """The cost of a draft token at one load, in target steps (the time of a step of the target alone)."""

    level: float  # the number of concurrent requests
    cost: float
    low: float  # the lower end of the 95 % interval of the cost
    high: float  # its upper end
    drafted: float  # the number of draft tokens measured

    def as_dict(self) -> dict[str, float]:
        """The point as plain data, for JSON."""
        return asdict(self)


def counts_of(drafted: float, accepted: float, most: int, drafts: float | None, tokens: float | None) -> Counts:
    """The counts of a measurement. ``most`` is K; ``drafts`` and ``tokens`` are None if the engine does not count them.

    A draft is a step, and each step gives one token beside the accepted ones: the tokens are at
    least drafts + accepted. This corrects engines that count a request's tokens only when it ends.
    Without ``drafts``, every step is taken to have drafted K tokens.
    """
    fewest_tokens = accepted + (drafts if drafts is not None else drafted / max(1, most))
    return Counts(max(fewest_tokens, tokens or 0.0), drafted, accepted)


def cost_of(counts: Counts, speedup: float) -> float:
    """The cost of a draft token in target steps (c in the module's formula), at least 0."""
    return max(0.0, (counts.accepted - counts.tokens * (1.0 - 1.0 / speedup)) / counts.drafted)


def gain_of(counts: Counts, cost: float) -> float:
    """The speed-up (a ratio) over the same tokens without drafting; 1 if nothing was drafted."""
    steps = counts.tokens - counts.accepted + cost * counts.drafted
    return counts.tokens / steps if counts.tokens > 0 and steps > 0 else 1.0


def cost_at(points: Sequence[Point], level: float) -> tuple[float, bool]:
    """The cost of a draft token at a load, and True if loads on both sides of it, or that load itself, were measured.

    Between two measured loads the cost is interpolated over log2 of the load; beyond them it is that of the nearest
    one. Raises ValueError for no points.
    """
    ordered = sorted(points, key=lambda point: point.level)
    if not ordered:
        raise ValueError("the cost of a drafted token at no load")
    if level <= ordered[0].level or level >= ordered[-1].level:
        end = ordered[0] if level <= ordered[0].level else ordered[-1]
        return end.cost, level == end.level
    first_above = next(index for index, point in enumerate(ordered) if point.level > level)
    below, above = ordered[first_above - 1], ordered[first_above]
    share = math.log2(level / below.level) / math.log2(above.level / below.level)
    return below.cost + share * (above.cost - below.cost), True


class BreakEven(TypedDict):
    """The least acceptance with which speculation pays at a load."""

    level: float  # the load: the number of concurrent requests
    rate: float  # acceptance rate: accepted over draft tokens, a fraction
    length: float  # acceptance length: tokens per step
    measured: bool  # True if the load lies within the measured loads


def break_even(points: Sequence[Point], level: float, tokens: int) -> BreakEven:
    """The break-even at a load for drafts of ``tokens`` (K) tokens."""
    cost, measured = cost_at(points, level)
    return {"level": level, "rate": cost, "length": 1.0 + cost * tokens, "measured": measured}
