"""The crossover of two real servers whose speed hangs on the load by a known law, read by the real client."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.analysis.crossover import crossovers_of
from drafthouse.analysis.words import THRESHOLD
from drafthouse.bench.client import ChatRequest, Endpoint, closed_loop, open_session, raw_request
from drafthouse.bench.foreign_traffic import foreign_work
from drafthouse.bench.spec_metrics import difference, read_counters
from tests.fakes.crossover_server import Law, crossover_server, known_crossover
from tests.support.ladders import KIND, make_ladder, make_step

pytestmark = pytest.mark.alone

LEVELS = (1, 2, 4, 8, 16)
PROMPTS, TOKENS = 9, 20
QUICK: Any = {"ttft_ms": 5.0, "tokens": TOKENS, "noise": 0.01}
BASELINE: Any = {**QUICK, "fixed_ms": 5.0, "each_ms": 0.1}
SPECULATIVE: Any = {**QUICK, "fixed_ms": 3.0, "each_ms": 0.42, "drafted": 3}


def asks(level: int) -> list[ChatRequest]:
    """Twice as many requests as run at once, and every prompt at least once."""
    return [
        ChatRequest("s", KIND, KIND, f"p{n % PROMPTS}", [{"role": "user", "content": f"prompt {n}"}], TOKENS)
        for n in range(max(PROMPTS, 2 * level))
    ]


async def measured(arm: str, base_url: str, level: int, number: int) -> Any:
    """One step of a ladder, as the ladder writes it."""
    endpoint = Endpoint(arm, base_url, "clock")
    async with open_session(60) as session:
        before = await read_counters(session, endpoint)
        records = await closed_loop(session, endpoint, asks(level), level)
        after = await read_counters(session, endpoint)
    requests = [raw_request(record, endpoint, 0.0) for record in records]
    moved = difference(before, after)
    assert moved is not None
    assert bool(moved["num_drafts"]) == (arm == "speculative")
    times: dict[str, list[Any]] = {}
    for request in requests:
        assert request["status"] == "ok", request["error"]
        times.setdefault(request["prompt_id"], []).append(request["tpot_ms"])
    told = foreign_work(before, after, requests, TOKENS)
    assert told is not None
    return make_step(level, arm, number, times, foreign=told, status="polluted" if told["polluted"] else "ok")


def ladder_of(seed: int) -> Any:
    """Measure both arms at all levels in two rounds."""
    with crossover_server(**BASELINE, seed=seed) as one, crossover_server(**SPECULATIVE, seed=seed + 1) as two:
        steps = [
            asyncio.run(measured(arm, server.base_url, level, number))
            for number in (1, 2)
            for arm, server in (("baseline", one), ("speculative", two))
            for level in LEVELS
        ]
    return make_ladder(LEVELS, steps)


# A busy neighbour slows one arm and not the other, so the crossover moves for once. A rule that finds it in the wrong
# place does so every time.
TRIES = 5


def wrong(ladder: Any, true: float) -> list[str]:
    """What is not as the law of the servers has it."""
    found = crossovers_of(ladder)[KIND]
    bad = sorted({step["status"] for step in ladder["steps"]} - {"ok"})
    if found["word"] != "pays" or found["pays_until"] is None:
        return [*bad, found["sentence"]]
    gain = found["levels"][0]["speedup"]["gain"]
    # One user's speed-up by the law: 5.1 over 3.42 ms.
    checks = {
        "more than a ladder step away": abs(math.log2(found["pays_until"] / true)) > 1,
        f"one user's speed-up is {gain:.3f}": abs(gain - 5.1 / 3.42) > 0.06,
        "nothing costs beyond": found["beyond"] is None,
    }
    return [*bad, *(f"{name}: {found['sentence']}" for name, fails in checks.items() if fails)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
def test_the_crossover_of_two_servers_is_found_within_one_ladder_step(seed: int, figure: Callable[[str], None]) -> None:
    true = known_crossover(Law(**BASELINE), Law(**SPECULATIVE), THRESHOLD)
    assert 5 < true < 6
    seen = []
    for attempt in range(1, TRIES + 1):
        ladder = ladder_of(seed)
        trouble = wrong(ladder, true)
        if not trouble:
            sentence = crossovers_of(ladder)[KIND]["sentence"]
            figure(f"two servers that cross at {true:.1f}, seed {seed}, try {attempt}: {sentence}")
            return
        seen += trouble
    pytest.fail("\n".join(seen))
