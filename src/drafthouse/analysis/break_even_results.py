"""What a drafted token costs, out of what an experiment measured: its ladder, and its two results. Pure.

Kinds of work at one load are put together by how much each tells: of N tokens M were drafted, so that a speed-up which
is wrong by d puts the cost wrong by about d·N/M. A kind counts with the weight M²/N.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..bench.result_types import ArmResult
from ..bench.samples import disturbances
from ..bench.stats import Gain
from ..bench.sweep.ladder_types import Ladder, LadderStep
from ..core.errors import one_problem
from .break_even import Counts, Point, cost_of, counts_of
from .crossover import fill
from .drafting import counter_of
from .measured import in_groups, paired

OK, SPECULATIVE, CLOSED = "ok", "speculative", "closed"
NOTHING = Counts(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class _Part:
    """One kind of work at one load: what was counted, and the speed-up with its interval."""

    level: float
    counts: Counts
    speedup: Gain


def points_of(baseline: ArmResult, speculative: ArmResult, ladder: Ladder | None, tokens: int) -> list[Point]:
    """The cost of a drafted token at every load that was measured; ``tokens`` is K.

    The ladder's levels (a closed loop's: an open one sets the rate of requests and not what is under way), and the
    experiment's own concurrency; at a level that both have, the one with the narrower interval: a ladder's step takes
    some seconds. Raises DrafthouseError where nothing tells.
    """
    points: dict[float, Point] = {}
    for point in [
        *(points_of_ladder(ladder, tokens) if ladder else []),
        *points_of_pair(baseline, speculative, tokens),
    ]:
        known = points.get(point.level)
        if known is None or point.high - point.low < known.high - known.low:
            points[point.level] = point
    if not points:
        raise one_problem(
            "no-drafted-tokens",
            "the kept results do not say what a drafted token costs on this box",
            "both arms measured, and a speculative arm that drafted",
            "run the profile again with -e remeasure=true",
        )
    return sorted(points.values(), key=lambda point: point.level)


def points_of_ladder(ladder: Ladder, tokens: int) -> list[Point]:
    """What a ladder tells; levels without a good pair of steps tell nothing."""
    if ladder.get("load") != CLOSED:
        return []
    counted: dict[tuple[str, float], list[Counts]] = {}
    for step in ladder["steps"]:
        counts = _of_step(step, tokens)
        if counts and step["arm"] == SPECULATIVE and step["status"] == OK:
            counted.setdefault((step["kind"], step["level"]), []).append(counts)
    parts = []
    for kind, crossover in fill(ladder).items():
        for level in crossover["levels"]:
            if known := counted.get((kind, level["level"])):
                parts.append(_Part(level["level"], sum(known, NOTHING), level["speedup"]))
    return _pooled(parts)


def points_of_pair(baseline: ArmResult, speculative: ArmResult, tokens: int) -> list[Point]:
    """What two results tell, at their concurrency; a disturbed group tells nothing."""
    level = float(speculative.get("max_concurrency") or 1)
    bad = {group for result in (baseline, speculative) for group, _, _ in disturbances(result)}
    parts = []
    for name, group in (speculative.get("groups") or {}).items():
        drafted, accepted = counter_of(group, "draft_tokens"), counter_of(group, "accepted_tokens")
        speedup = paired(in_groups(baseline, [name]), in_groups(speculative, [name]))
        if name not in bad and drafted and accepted is not None and speedup is not None:
            drafts = counter_of(group, "drafts")
            counts = counts_of(drafted, accepted, tokens, drafts, float(group.get("total_output_tokens") or 0))
            parts.append(_Part(level, counts, speedup))
    return _pooled(parts)


def _of_step(step: LadderStep, tokens: int) -> Counts | None:
    """What a ladder's step drafted, None where it does not say."""
    drafted, accepted = counter_of(step, "draft_tokens"), counter_of(step, "accepted_tokens")
    if not drafted or accepted is None:
        return None
    length = step.get("spec_decode_acceptance_length")
    drafts = accepted / (length - 1) if length and length > 1 else None
    return counts_of(drafted, accepted, tokens, drafts, _answered(step))


def _answered(step: LadderStep) -> float | None:
    """The tokens that the engine itself counted over the step, as it counted the drafts; else the answers'."""
    if pair := step.get("counters"):
        before, after = (pair.get("before") or {}).get("traffic") or {}, (pair.get("after") or {}).get("traffic") or {}
        if after.get("output_tokens"):
            return float(after["output_tokens"] - (before.get("output_tokens") or 0.0))
    mean = step.get("mean_output_tokens")
    return float(mean * step["completed"]) if mean else None


def _pooled(parts: Iterable[_Part]) -> list[Point]:
    by_level: dict[float, list[_Part]] = {}
    for part in parts:
        by_level.setdefault(float(part.level), []).append(part)
    return [_point(level, own) for level, own in sorted(by_level.items())]


def _point(level: float, parts: Sequence[_Part]) -> Point:
    weights, costs = [], []
    drafted = 0.0
    for part in parts:
        drafted += part.counts.drafted
        weights.append(part.counts.drafted**2 / part.counts.tokens)
        # The slower the answers came, the more a drafted token has cost.
        speeds = part.speedup["gain"], part.speedup["high"], part.speedup["low"]
        costs.append([cost_of(part.counts, speed) for speed in speeds])
    cost, low, high = np.average(np.array(costs), axis=0, weights=weights)
    return Point(level, float(cost), float(low), float(high), drafted)
