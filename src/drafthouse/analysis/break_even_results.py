"""The measured cost of a draft token at each load, from an experiment's load sweep (ladder) and A/B results.

Prompt kinds at one load are pooled by their precision: with M draft tokens among N output tokens, an error d
of the speed-up is an error of about d·N/M of the cost (`break_even.py`). So each kind has the weight M²/N.
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
from .crossover import crossovers_of
from .drafting import counter_of
from .measured import answers_in, paired_ratio

OK = "ok"  # the status of a good step of a ladder
SPECULATIVE = "speculative"  # the arm
CLOSED = "closed"  # a load of so many requests at a time
NOTHING = Counts(tokens=0.0, drafted=0.0, accepted=0.0)


@dataclass(frozen=True)
class _KindFigures:
    """One prompt kind at one load."""

    level: float  # the number of concurrent requests
    counts: Counts  # of the speculative arm
    speedup: Gain


def points_of(baseline: ArmResult, speculative: ArmResult, ladder: Ladder | None, tokens: int) -> list[Point]:
    """The cost of a draft token at every measured load; ``tokens`` is K.

    The loads are those of a closed-loop ladder (an open loop sets the request rate, not the
    concurrency) and the experiment's own concurrency. If both measured a load, the narrower
    interval counts, because a ladder's step is short. Raises DrafthouseError without a point.
    """
    points: dict[float, Point] = {}
    for point in [
        *(points_of_ladder(ladder, tokens) if ladder else []),
        *points_of_pair(baseline, speculative, tokens),
    ]:
        earlier = points.get(point.level)
        if earlier is None or point.high - point.low < earlier.high - earlier.low:
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
    """The points of a ladder, for levels that have a good step in both arms."""
    if ladder.get("load") != CLOSED:
        return []
    counts_by_level: dict[tuple[str, float], list[Counts]] = {}
    for step in ladder["steps"]:
        counts = _counts_of_step(step, tokens)
        if counts and step["arm"] == SPECULATIVE and step["status"] == OK:
            counts_by_level.setdefault((step["kind"], step["level"]), []).append(counts)
    parts = []
    for kind, crossover in crossovers_of(ladder).items():
        for level in crossover["levels"]:
            if level_counts := counts_by_level.get((kind, level["level"])):
                parts.append(_KindFigures(level["level"], sum(level_counts, NOTHING), level["speedup"]))
    return _points_by_level(parts)


def points_of_pair(baseline: ArmResult, speculative: ArmResult, tokens: int) -> list[Point]:
    """The point of the two arms' results at their concurrency, as a list of one.

    Left out are disturbed groups, and groups without drafting counters or without a speed-up; empty if none is left.
    """
    level = float(speculative.get("max_concurrency") or 1)
    disturbed_groups = {group for result in (baseline, speculative) for group, _, _ in disturbances(result)}
    parts = []
    for group_name, figures in (speculative.get("groups") or {}).items():
        drafted = counter_of(figures, "draft_tokens")
        accepted = counter_of(figures, "accepted_tokens")
        speedup = paired_ratio(answers_in(baseline, [group_name]), answers_in(speculative, [group_name]))
        if group_name not in disturbed_groups and drafted and accepted is not None and speedup is not None:
            drafts = counter_of(figures, "drafts")
            output_tokens = float(figures.get("total_output_tokens") or 0)
            counts = counts_of(drafted, accepted, most=tokens, drafts=drafts, tokens=output_tokens)
            parts.append(_KindFigures(level, counts, speedup))
    return _points_by_level(parts)


def _counts_of_step(step: LadderStep, tokens: int) -> Counts | None:
    """The token counts of a ladder's step; None if it has no drafting counters, or drafted nothing."""
    drafted = counter_of(step, "draft_tokens")
    accepted = counter_of(step, "accepted_tokens")
    if not drafted or accepted is None:
        return None
    # A step of the server gives one token beside the accepted ones: length = 1 + accepted / drafts.
    acceptance_length = step.get("spec_decode_acceptance_length")
    drafts = None
    if acceptance_length and acceptance_length > 1:
        drafts = accepted / (acceptance_length - 1)
    return counts_of(drafted, accepted, most=tokens, drafts=drafts, tokens=_output_tokens(step))


def _output_tokens(step: LadderStep) -> float | None:
    """The output tokens of a step by the engine's counters, like its draft tokens; else by the answers; else None."""
    if pair := step.get("counters"):
        before = (pair.get("before") or {}).get("traffic") or {}
        after = (pair.get("after") or {}).get("traffic") or {}
        if after.get("output_tokens"):
            return float(after["output_tokens"] - (before.get("output_tokens") or 0.0))
    mean_tokens = step.get("mean_output_tokens")
    return float(mean_tokens * step["completed"]) if mean_tokens else None


def _points_by_level(parts: Iterable[_KindFigures]) -> list[Point]:
    """One point per load, by rising load."""
    by_level: dict[float, list[_KindFigures]] = {}
    for part in parts:
        by_level.setdefault(float(part.level), []).append(part)
    return [_pooled_point(level, level_parts) for level, level_parts in sorted(by_level.items())]


def _pooled_point(level: float, parts: Sequence[_KindFigures]) -> Point:
    """The point of one load: the mean cost over its prompt kinds, weighted as the module's docstring says."""
    weights = []
    costs = []  # of each kind: the cost, its lower bound, its upper bound
    drafted = 0.0
    for part in parts:
        drafted += part.counts.drafted
        weights.append(part.counts.drafted**2 / part.counts.tokens)
        # A lower speed-up means a higher cost, so its upper bound gives the cost's lower one.
        speeds = part.speedup["gain"], part.speedup["high"], part.speedup["low"]
        costs.append([cost_of(part.counts, speed) for speed in speeds])
    cost, low, high = np.average(np.array(costs), axis=0, weights=weights)
    return Point(level, cost=float(cost), low=float(low), high=float(high), drafted=drafted)
