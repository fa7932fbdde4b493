"""Ladders of known numbers, as the load ladder writes them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ARMS = ("baseline", "speculative")
KIND = "copy-edit"
Gain = Callable[[float], float]


def make_step(level: float, arm: str, number: int, tpot: Mapping[str, Sequence[Any]], **fields: Any) -> Any:
    """One step with the times per output token of its prompts (ms)."""
    every = [value for values in tpot.values() for value in values if isinstance(value, float) and value > 0]
    return {
        "level": level,
        "arm": arm,
        "round": number,
        "kind": KIND,
        "status": "ok",
        "ended_by": "prompts",
        "output_throughput": level * 1000 * len(every) / math.fsum(every) if every else None,
        "tpot_by_prompt": dict(tpot),
        "foreign": None,
        "notes": [],
        **fields,
    }


def make_ladder(
    levels: Sequence[float], steps: Sequence[Mapping[str, Any]], *, kinds: Sequence[str] = (KIND,), **fields: Any
) -> Any:
    """A ladder around its steps."""
    return {
        "schema": "drafthouse.ladder/1",
        "profile": "x",
        "key": "h",
        "load": "closed",
        "unit": "concurrent requests",
        "levels": list(levels),
        "rounds": 2,
        "kinds": list(kinds),
        "steps": [dict(step) for step in steps],
        **fields,
    }


def known_ladder(gains: Mapping[float, float], *, prompts: int = 12, rounds: int = 2, **fields: Any) -> Any:
    """A ladder without any noise: at each level every prompt has that speed-up."""
    names = [f"{KIND}-{number}" for number in range(prompts)]
    steps = [
        make_step(level, arm, number, {name: [12.0 / (gain if arm == "speculative" else 1.0)] for name in names})
        for number in range(1, rounds + 1)
        for arm in ARMS
        for level, gain in gains.items()
    ]
    return make_ladder(list(gains), steps, **fields)


def simulated(
    seed: int,
    levels: Sequence[float],
    gain: Gain,
    *,
    prompts: int = 12,
    rounds: int = 2,
    noise: float = 0.03,
    step_noise: float = 0.0,
    drift: float = 0.0,
    start_sd: float = 0.0,
    liking_sd: float = 0.08,
    kinds: Sequence[str] = (KIND,),
) -> Any:
    """A ladder of random times around a truth, measured as it is: arm by arm, round by round.

    ``noise`` is of each answer, ``step_noise`` of a whole step (both standard deviations of a logarithm), ``drift``
    the share by which the box gets slower from the first step to the last, ``start_sd`` is of each start of a server:
    one for each arm and round. Where speculation does something at all, prompts gain differently (``liking_sd``), each
    at all levels alike.
    """
    chance = random.Random(f"ladder {seed}")
    names = {kind: [f"{kind}-{number}" for number in range(prompts)] for kind in kinds}
    own = {name: chance.lognormvariate(0.0, 0.15) for group in names.values() for name in group}
    liking = {name: chance.lognormvariate(0.0, liking_sd) for name in own}
    starts = random.Random(f"starts {seed}")
    started = {(number, arm): starts.lognormvariate(0.0, start_sd) for number in range(1, rounds + 1) for arm in ARMS}
    order = [
        (number, arm, level, kind)
        for number in range(1, rounds + 1)
        for arm in ARMS
        for level in levels
        for kind in kinds
    ]
    steps = []
    for place, (number, arm, level, kind) in enumerate(order):
        faster = gain(level) if arm == "speculative" else 1.0
        machine = (1 + drift * place / len(order)) * chance.lognormvariate(0.0, step_noise) * started[number, arm]
        times = {
            name: [
                (10 + 0.2 * level)
                * own[name]
                * machine
                / (faster * (liking[name] if faster != 1.0 else 1.0))
                * chance.lognormvariate(0.0, noise)
            ]
            for name in names[kind]
        }
        steps.append(make_step(level, arm, number, times, kind=kind))
    return make_ladder(levels, steps, kinds=kinds)
