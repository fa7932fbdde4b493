"""How often the interval of a median holds the true median, by the number of values and their law."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drafthouse.bench.stats import interval_ends

Chance = np.random.Generator
Law = Callable[[Chance, tuple[int, int]], np.ndarray]

#: Laws with the median 0.
LAWS: dict[str, Law] = {
    "normal": lambda chance, size: chance.standard_normal(size),
    "skewed (log-normal, sd 1)": lambda chance, size: np.expm1(chance.standard_normal(size)),
    "skewed (exponential)": lambda chance, size: chance.standard_exponential(size) - np.log(2.0),
    "heavy tails (t, 2)": lambda chance, size: chance.standard_t(2, size),
}
SIZES = range(6, 61)
#: The share of the runs in which an interval must hold the truth.
BAR = 0.945


def covered(n: int, law: Law, runs: int, chance: Chance) -> float:
    """Return the share of ``runs`` samples of ``n`` values whose interval holds the true median."""
    low, high = interval_ends(np.sort(law(chance, (runs, n)), axis=1))
    return float(np.mean((low <= 0.0) & (high >= 0.0)))


def coverage(runs: int, seed: int, sizes: range = SIZES) -> dict[str, dict[int, float]]:
    """Return the coverage by law and number of values."""
    chance = np.random.default_rng(seed)
    return {name: {n: covered(n, law, runs, chance) for n in sizes} for name, law in LAWS.items()}
