"""The rule's arithmetic once more, written from docs/verdict.md alone: to compare the product's with.

Tables instead of the product's loops, and Student's t from the integral of its density.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

GRID = np.linspace(0.0, 1.0, 200_001)


class Answer(NamedTuple):
    """What the rule says of one experiment; ratios, not logarithms."""

    word: str
    speedup: float
    low: float
    high: float
    total: float
    fresh: str


def t_quantile(tail: float, freedom: float) -> float:
    """The quantile by the integral over s = t / sqrt(freedom + t^2), with the density (1 - s^2)^(freedom / 2 - 1)."""
    # With s = 1 - u^2 the density stays finite at the end, also for one degree of freedom.
    u = GRID[1:]
    density = (2 * u**2 - u**4) ** (freedom / 2 - 1) * 2 * u
    area = np.concatenate(([0.0], np.cumsum((density + np.concatenate(([0.0], density[:-1]))) / 2)))
    place = float(np.interp(2 * tail, area / area[-1], GRID))
    s = 1 - place**2
    return float(s * math.sqrt(freedom / (1 - s * s)))


def rule(
    times: Mapping[str, Mapping[int, Mapping[str, float]]],
    kinds: Mapping[str, str],
    temperatures: Mapping[str, float],
    tokens: Mapping[str, float],
) -> Answer:
    """What the rule says of ``{arm: {round: {prompt: seconds a token}}}``."""
    rounds = sorted(times["baseline"])
    count = len(rounds)
    prompts = sorted({prompt for number in rounds for prompt in times["baseline"][number]})
    table = {
        arm: np.log([[times[arm][number].get(prompt, np.nan) for number in rounds] for prompt in prompts])
        for arm in ("baseline", "speculative")
    }
    asked: Any = ~np.isnan(table["baseline"])
    anchor: Any = asked.all(axis=1)
    effects, residuals = {}, 0.0
    for arm, own in table.items():
        anchors = own[anchor]
        effects[arm] = anchors.mean(axis=0) - anchors.mean()
        fitted = anchors.mean(axis=1, keepdims=True) + effects[arm]
        residuals += float(((anchors - fitted) ** 2).sum())
    noise = residuals / (2 * (count - 1) * (anchor.sum() - 1)) / anchor.sum()
    free = 2 * (count - 1) + 4
    squares = float(sum((own**2).sum() for own in effects.values()))
    start = max((squares + 4 * (0.02**2 + noise)) / free - noise, 4 * 0.02**2 / free)
    share = start / (start + noise)
    differences = table["baseline"] - table["speculative"]
    moved = np.where(anchor[:, None], 0.0, share * (effects["baseline"] - effects["speculative"]))
    gains = np.nanmean(differences - moved, axis=1)
    of_kind = np.array([kinds[prompt] for prompt in prompts])
    if min(np.unique(of_kind, return_counts=True)[1]) < 4:
        of_kind = np.array(["all"] * len(prompts))
    names = np.unique(of_kind)
    # The estimate is linear in the gains: with these coefficients.
    coefficients = np.array([1 / (of_kind == own).sum() / len(names) for own in of_kind])
    speedup = float(coefficients @ gains)
    parts = [
        (float(gains[of_kind == name].var(ddof=1)) / int((of_kind == name).sum()) / len(names) ** 2,
         int((of_kind == name).sum()) - 1)
        for name in names
    ]  # fmt: skip
    from_prompts = sum(part for part, _ in parts)
    weights = (coefficients[:, None] * asked / asked.sum(axis=1, keepdims=True)).sum(axis=0)
    uneven = float(((weights - 1 / count) ** 2).sum())
    from_starts = 2 * start * (1 / count + (1 - share) ** 2 * uneven) + 2 * noise * share**2 * uneven
    variance = from_prompts + from_starts
    freedom = variance**2 / (sum(part**2 / own for part, own in parts) + from_starts**2 / free)
    low = speedup - t_quantile(0.01, freedom) * math.sqrt(variance)
    high = speedup + t_quantile(0.025, freedom) * math.sqrt(variance)

    length = np.array([tokens[prompt] for prompt in prompts])
    seconds = {arm: length * np.nanmean(np.exp(own), axis=1) for arm, own in table.items()}
    hot = np.array([temperatures[prompt] for prompt in prompts])
    shares = seconds["baseline"] / seconds["baseline"].mean() - seconds["speculative"] / seconds["speculative"].mean()
    total = math.log(seconds["baseline"].sum() / seconds["speculative"].sum())
    error = math.sqrt(float((shares**2).sum()) / (len(prompts) - 1) / len(prompts) + from_starts)
    each = all(seconds["baseline"][hot == t].sum() > seconds["speculative"][hot == t].sum() for t in np.unique(hot))
    gained = low > math.log(1.03) and total > t_quantile(0.10, freedom) * error and each
    apart = max(float(own.max() - own.min()) for own in effects.values()) >= math.log(1.10)
    needs_more = high >= math.log(1.03) and ((speedup < math.log(1.6) and count < 3) or (apart and count < 4))
    word, fresh = "cannot say", "many" if from_prompts > from_starts else "few"
    if total < -t_quantile(0.01, freedom) * error:
        word = "does not pay"
    elif high < math.log(1.10) or gained:
        fresh = "few"
        if not needs_more:
            word = "does not pay" if high < math.log(1.10) else "pays"
    ratios = [math.exp(value) for value in (speedup, low, high, total)]
    return Answer(word, ratios[0], ratios[1], ratios[2], ratios[3], "" if word != "cannot say" else fresh)


def as_log_times(times: Mapping[int, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """One arm's times as the product takes them: by prompt, by round."""
    found: dict[str, dict[int, float]] = {}
    for number, answers in times.items():
        for prompt, seconds in answers.items():
            found.setdefault(prompt, {})[number] = math.log(seconds)
    return found


def made(seed: int, rounds: int) -> tuple[Any, ...]:
    """An experiment of a random truth: times, kinds, temperatures, tokens by prompt."""
    chance = np.random.default_rng([39, seed])
    sd, start_sd, noise = chance.choice([0.05, 0.2, 0.4]), chance.choice([0.0, 0.03, 0.1]), chance.choice([0.01, 0.1])
    gain = math.log(chance.choice([0.9, 1.0, 1.2, 1.5, 2.0]))
    numbers = [6] + [int(chance.choice([4, 10, 20])) for _ in range(rounds)]
    names = [f"p{n}" for n in range(sum(numbers))]
    few = seed % 3 == 0
    kinds = {name: "ab"[n % 2] if not few or n > 2 else "c" for n, name in enumerate(names)}
    temperatures = {name: (0.0, 0.6)[n // 2 % 2] for n, name in enumerate(names)}
    tokens = {name: float(chance.integers(20, 400)) for name in names}
    own = dict(zip(names, chance.normal(0, 0.3, len(names)), strict=True))
    gains = dict(zip(names, gain + chance.normal(0, sd, len(names)), strict=True))
    times: dict[str, dict[int, dict[str, float]]] = {"baseline": {}, "speculative": {}}
    for number in range(1, rounds + 1):
        first = sum(numbers[:number])
        asked = names[:6] + names[first : first + numbers[number]]
        for arm, steps in times.items():
            start = chance.normal(0, start_sd)
            steps[number] = {
                name: math.exp(
                    own[name] + start - (gains[name] if arm == "speculative" else 0) + chance.normal(0, noise)
                )
                for name in asked
            }
    return times, kinds, temperatures, tokens
