"""The break-even out of a measured ladder, against the crossover of another, both of real servers of known law."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.words import THRESHOLD
from tests.fakes.crossover_server import Law, crossover_server, known_crossover
from tests.support.break_even import compared, crossed, measured

LEVELS = (1, 2, 4, 8, 16)
PROMPTS, TOKENS, K = 9, 40, 3
COMMON: Any = {"ttft_ms": 5.0, "tokens": TOKENS, "noise": 0.01}
BASELINE: Any = {**COMMON, "fixed_ms": 5.0, "each_ms": 0.1}
#: A step with three drafted tokens, in ms: what is accepted of them is the text's. One that gets two tokens out of a
#: step pays until 2.7 requests, one that gets three until 8.3: both in the middle of the ladder.
FIXED_MS, EACH_MS = 7.0, 1.2
TRIES = 5


def speculative(length: int) -> Any:
    """A server that gets ``length`` tokens out of each step of three drafted ones."""
    law = {"fixed_ms": FIXED_MS / length, "each_ms": EACH_MS / length}
    return {**COMMON, **law, "tokens_per_chunk": length, "drafted": K}


def ladder_of(length: int, seed: int) -> Any:
    asked: Any = {"prompts": PROMPTS, "tokens": TOKENS, "wording": "prompt {}".format}
    with crossover_server(**BASELINE, seed=seed) as one, crossover_server(**speculative(length), seed=seed + 1) as two:
        steps = [
            asyncio.run(measured(arm, server.base_url, level, number, **asked))
            for number in (1, 2)
            for arm, server in (("baseline", one), ("speculative", two))
            for level in LEVELS
        ]
    return crossed(LEVELS, steps)


def test_the_break_even_is_the_measured_crossover_within_one_ladder_step(figure: Callable[[str], None]) -> None:
    """What one text's ladder says of another's, which accepts more or less."""
    truths = {length: known_crossover(Law(**BASELINE), Law(**speculative(length)), THRESHOLD) for length in (2, 3)}
    seen: list[str] = []
    for seed in range(TRIES):
        ladders = {length: ladder_of(length, 2 * seed + length) for length in truths}
        said = [
            compared(ladders[known], ladders[asked], K, f"{asked} tokens a step from {known}", truths[asked])
            for known, asked in ((2, 3), (3, 2))
        ]
        if all(good for good, _ in said):
            for _, text in said:
                figure(text)
            return
        seen += [text for _, text in said]
    pytest.fail("\n".join(seen))
