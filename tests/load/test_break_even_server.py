"""The break-even out of a measured ladder, against the crossover of another, both of real servers of known law."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.module_utils.break_even import counts_of, crosses_at
from ansible_collections.drafthouse.core.plugins.module_utils.break_even_results import points_of_ladder
from ansible_collections.drafthouse.core.plugins.module_utils.client import (
    Ask,
    Endpoint,
    closed_loop,
    open_session,
    raw_request,
)
from ansible_collections.drafthouse.core.plugins.module_utils.counters import acceptance, difference, read_counters
from ansible_collections.drafthouse.core.plugins.module_utils.crossover import fill
from ansible_collections.drafthouse.core.plugins.module_utils.verdict_words import THRESHOLD

from tests.fakes.crossover_server import Law, crossover_server, known_crossover
from tests.ladders import KIND, make_ladder, make_step

LEVELS = (1, 2, 4, 8, 16)
PROMPTS, TOKENS, K = 9, 40, 3
COMMON: dict[str, Any] = {"ttft_ms": 5.0, "tokens": TOKENS, "noise": 0.01}
BASELINE: dict[str, Any] = {**COMMON, "fixed_ms": 5.0, "each_ms": 0.1}
#: A step with three drafted tokens, in ms: what is accepted of them is the text's. One that gets two tokens out of a
#: step pays until 2.7 requests, one that gets three until 8.3: both in the middle of the ladder.
FIXED_MS, EACH_MS = 7.0, 1.2
TRIES = 3


def speculative(length: int) -> dict[str, Any]:
    """A server that gets ``length`` tokens out of each step of three drafted ones."""
    law = {"fixed_ms": FIXED_MS / length, "each_ms": EACH_MS / length}
    return {**COMMON, **law, "tokens_per_chunk": length, "drafted": K}


async def measured(arm: str, base_url: str, level: int, number: int) -> dict[str, Any]:
    """Return one step of a ladder with what it drafted."""
    endpoint = Endpoint(arm, base_url, "clock")
    asks = [
        Ask("s", KIND, KIND, f"p{n % PROMPTS}", [{"role": "user", "content": f"prompt {n}"}], TOKENS)
        for n in range(max(PROMPTS, 2 * level))
    ]
    async with open_session(60) as session:
        before = await read_counters(session, endpoint)
        records = await closed_loop(session, endpoint, asks, level)
        after = await read_counters(session, endpoint)
    moved = difference(before, after)
    assert moved is not None
    times: dict[str, list[float]] = {}
    for request in (raw_request(record, endpoint, 0.0) for record in records):
        times.setdefault(request["prompt_id"], []).append(request["tpot_ms"])
    pair = {"before": before, "after": after}
    return make_step(level, arm, number, times, counters=pair, **acceptance("metrics", moved))


def ladder_of(length: int, seed: int) -> dict[str, Any]:
    with crossover_server(**BASELINE, seed=seed) as one, crossover_server(**speculative(length), seed=seed + 1) as two:
        steps = [
            asyncio.run(measured(arm, server.base_url, level, number))
            for number in (1, 2)
            for arm, server in (("baseline", one), ("speculative", two))
            for level in LEVELS
        ]
    ladder = make_ladder(LEVELS, steps)
    return ladder | {"crossover": fill(ladder)}


def traffic_of(ladder: dict[str, Any]) -> Any:
    steps = [step for step in ladder["steps"] if step["arm"] == "speculative"]
    drafted, accepted, drafts = (
        sum(step[f"spec_decode_{name}"] for step in steps) for name in ("draft_tokens", "accepted_tokens", "num_drafts")
    )
    return counts_of(drafted, accepted, K, drafts, None)


def test_the_break_even_is_the_measured_crossover_within_one_ladder_step(figure: Callable[[str], None]) -> None:
    """What one text's ladder says of another's, which accepts more or less."""
    truths = {length: known_crossover(Law(**BASELINE), Law(**speculative(length)), THRESHOLD) for length in (2, 3)}
    seen: list[str] = []
    for seed in range(TRIES):
        ladders = {length: ladder_of(length, 2 * seed + length) for length in truths}
        said = [
            compared(ladders[known], ladders[asked], truths[asked], f"{asked} tokens a step from {known}")
            for known, asked in ((2, 3), (3, 2))
        ]
        if all(good for good, _ in said):
            for _, text in said:
                figure(text)
            return
        seen += [text for _, text in said]
    pytest.fail("\n".join(seen))


def compared(known: dict[str, Any], other: dict[str, Any], truth: float, what: str) -> tuple[bool, str]:
    """Tell whether one ladder's break-even is where another has crossed, and say where each is."""
    found = crosses_at(points_of_ladder(known, K), traffic_of(other), THRESHOLD)
    crossover = other["crossover"][KIND]["pays_until"]
    good = bool(found and crossover and all(abs(math.log2(found / one)) <= 1 for one in (truth, crossover)))
    return good, f"break-even of {what}: {found}, measured {crossover}, by the law {truth:.1f}"
