"""What a drafted token costs, out of what an experiment measured: its ladder, and its two results. Pure.

Kinds of work at one load are put together by how much each tells: of N tokens M were drafted, so that a speed-up which
is wrong by d puts the cost wrong by about d·N/M. A kind counts with the weight M²/N.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..bench.result_types import ArmResult
from ..bench.samples import disturbances, requests_of, tpot_by_prompt
from ..bench.stats import Estimated, estimate, paired_ratios
from ..bench.sweep.ladder_types import Ladder, LadderStep
from ..core.errors import one_problem
from .break_even import Counts, Point, cost_of, counts_of
from .drafting import counter_of

OK, SPECULATIVE, CLOSED = "ok", "speculative", "closed"


@dataclass(frozen=True)
class _Part:
    """One kind of work at one load: what was counted, and the speed-up with its interval."""

    level: float
    counts: Counts
    speedup: Estimated


def points_of(baseline: ArmResult, speculative: ArmResult, ladder: Ladder | None, tokens: int) -> list[Point]:
    """Return the cost of a drafted token at every load that was measured; ``tokens`` is K.

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
    """Return what a ladder with its ``crossover`` tells; levels without a good pair of steps tell nothing."""
    if ladder.get("load") != CLOSED:
        return []
    parts = []
    for kind, crossover in (ladder.get("crossover") or {}).items():
        for level in crossover["levels"]:
            own = [
                _of_step(step, tokens)
                for step in ladder["steps"]
                if (step["kind"], step["level"], step["arm"], step["status"]) == (kind, level["level"], SPECULATIVE, OK)
            ]
            known = [counts for counts in own if counts]
            parts += [_Part(level["level"], _sum(known), level["speedup"])] if known else []
    return _pooled(parts)


def points_of_pair(baseline: ArmResult, speculative: ArmResult, tokens: int) -> list[Point]:
    """Return what two results tell, at their concurrency; a disturbed group tells nothing."""
    level = float(speculative.get("max_concurrency") or 1)
    bad = {group for result in (baseline, speculative) for group, _, _ in disturbances(result)}
    times = [tpot_by_prompt(requests_of(result)) for result in (baseline, speculative)]
    parts = []
    for name, group in (speculative.get("groups") or {}).items():
        drafted, accepted = counter_of(group, "draft_tokens"), counter_of(group, "accepted_tokens")
        own = [{key: list(values.values()) for key, values in arm.items() if key[0] == name} for arm in times]
        speedup = estimate(list(paired_ratios(own[0], own[1]).values()))
        if name in bad or not drafted or accepted is None or speedup is None:
            continue
        drafts = counter_of(group, "drafts")
        counts = counts_of(drafted, accepted, tokens, drafts, float(group.get("total_output_tokens") or 0))
        parts.append(_Part(level, counts, speedup.as_dict()))
    return _pooled(parts)


def _of_step(step: LadderStep, tokens: int) -> Counts | None:
    """Return what a ladder's step drafted, None where it does not say."""
    drafted, accepted = counter_of(step, "draft_tokens"), counter_of(step, "accepted_tokens")
    if not drafted or accepted is None:
        return None
    length = step.get("spec_decode_acceptance_length")
    drafts = accepted / (length - 1) if length and length > 1 else None
    return counts_of(drafted, accepted, tokens, drafts, _answered(step))


def _answered(step: LadderStep) -> float | None:
    """Return the tokens that the engine itself counted over the step, as it counted the drafts; else the answers'."""
    pair = step.get("counters")
    snapshots = (pair.get("before"), pair.get("after")) if pair else (None, None)
    ends = [(one and (one.get("traffic") or {}).get("output_tokens")) or None for one in snapshots]
    if ends[1] is not None:
        return float(ends[1] - (ends[0] or 0.0))
    mean = step.get("mean_output_tokens")
    return float(mean * step["completed"]) if mean else None


def _sum(parts: Sequence[Counts]) -> Counts:
    return Counts(
        math.fsum(part.tokens for part in parts),
        math.fsum(part.drafted for part in parts),
        math.fsum(part.accepted for part in parts),
    )


def _pooled(parts: Iterable[_Part]) -> list[Point]:
    by_level: dict[float, list[_Part]] = {}
    for part in parts:
        by_level.setdefault(float(part.level), []).append(part)
    return [_point(level, by_level[level]) for level in sorted(by_level)]


def _point(level: float, parts: Sequence[_Part]) -> Point:
    weights = [part.counts.drafted**2 / part.counts.tokens for part in parts]

    def middle(name: Literal["median", "low", "high"]) -> float:
        costs = [cost_of(part.counts, part.speedup[name]) for part in parts]
        return math.fsum(w * cost for w, cost in zip(weights, costs, strict=True)) / math.fsum(weights)

    # The slower the answers came, the more a drafted token has cost.
    return Point(level, middle("median"), middle("high"), middle("low"), _sum([part.counts for part in parts]).drafted)
