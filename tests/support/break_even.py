"""Ladders of running servers and what the break-even says of them: for servers of known law, and for a real engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from drafthouse.analysis.break_even import Counts, Point, cost_at, counts_of, gain_of
from drafthouse.analysis.words import THRESHOLD
from drafthouse.bench.client import ChatRequest, Endpoint, closed_loop, open_session, raw_request
from drafthouse.bench.spec_metrics import acceptance, difference, read_counters
from tests.support.ladders import KIND, make_ladder, make_step
from tests.support.loosely import fill, points_of_ladder

Wording = Callable[[int], str]


async def measured(
    arm: str, base_url: str, level: int, number: int, *, prompts: int, tokens: int, wording: Wording
) -> Any:
    """One step of a ladder with what it drafted; ``wording`` says what the n-th prompt is."""
    endpoint = Endpoint(arm, base_url, "clock")
    words: list[Any] = [[{"role": "user", "content": wording(n)}] for n in range(prompts)]
    asks = [
        ChatRequest("s", KIND, KIND, f"p{n % prompts}", words[n % prompts], tokens, ignore_eos=True)
        for n in range(max(prompts, 2 * level))
    ]
    async with open_session(120) as session:
        before = await read_counters(session, endpoint)
        records = await closed_loop(session, endpoint, asks, level)
        after = await read_counters(session, endpoint)
    moved = difference(before, after)
    assert moved is not None
    times: dict[str, list[Any]] = {}
    for request in (raw_request(record, endpoint, 0.0) for record in records):
        times.setdefault(request["prompt_id"], []).append(request["tpot_ms"])
    pair = {"before": before, "after": after}
    return make_step(level, arm, number, times, counters=pair, **acceptance("metrics", moved))


def crossed(levels: Sequence[int], steps: Sequence[Any]) -> Any:
    """The ladder of these steps, with where it crosses."""
    ladder = make_ladder(levels, steps)
    return ladder | {"crossover": fill(ladder)}


def traffic_of(ladder: Any, tokens: int) -> Counts:
    """What the speculative arm of a ladder drafted; ``tokens`` is K."""
    steps = [step for step in ladder["steps"] if step["arm"] == "speculative"]
    drafted, accepted, drafts = (
        sum(step[f"spec_decode_{name}"] for step in steps) for name in ("draft_tokens", "accepted_tokens", "num_drafts")
    )
    return counts_of(drafted, accepted, tokens, drafts, None)


def crosses_at(points: Sequence[Point], counts: Counts, threshold: float) -> float | None:
    """The load up to which traffic with these counts gains ``threshold``, and above which it does not.

    0 where it does not at the lowest load that was measured, None where it still does at the highest.
    """
    ordered = sorted(points, key=lambda point: point.level)
    gains = [gain_of(counts, point.cost) for point in ordered]
    if gains[-1] > threshold:
        return None
    last = next((place for place in reversed(range(len(ordered))) if gains[place] > threshold), None)
    if last is None:
        return 0.0
    low, high = math.log2(ordered[last].level), math.log2(ordered[last + 1].level)
    for _ in range(60):
        middle = (low + high) / 2
        above = gain_of(counts, cost_at(ordered, 2.0**middle)[0]) > threshold
        low, high = (middle, high) if above else (low, middle)
    return float(2.0**high)


def compared(known: Any, other: Any, tokens: int, what: str, truth: float | None = None) -> tuple[bool, str]:
    """Tell whether one ladder's break-even is where another has crossed, and say where each is."""
    found = crosses_at(points_of_ladder(known, tokens), traffic_of(other, tokens), THRESHOLD)
    crossover = other["crossover"][KIND]["pays_until"]
    against = [crossover] if truth is None else [crossover, truth]
    good = bool(found and crossover and all(abs(math.log2(found / one)) <= 1 for one in against))
    law = "" if truth is None else f", by the law {truth:.1f}"
    return good, f"break-even of {what}: {found}, measured {crossover}{law}"
