"""What a ladder says of loads whose truth is known: simulated, and judged by `crossovers_of` as a real one is.

`table` gives a row for each law: what is counted, in how many of how many ladders, and the bar. Every draw follows
from ``seed``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drafthouse.analysis.words import PAYS, THRESHOLD
from drafthouse.prompts.load_levels import doubled
from tests.support.ladders import KIND, Gain, simulated
from tests.support.loosely import fill

#: The bounds of a crossover matter to no row: fewer resamples than a report's are enough.
RESAMPLES = 500
START_SD = 0.02
#: Where the true speed-up is 1.03, and the highest level of the ladder that looks for it.
CROSSOVERS = {3: 16, 8: 32, 20: 64, 100: 256}
Seen = Callable[[Any], bool]


class Row(NamedTuple):
    """One law: in ``found`` of ``ladders`` simulated ones ``said`` was so; ``bar`` is how often it may or must be."""

    law: str
    said: str
    found: int
    ladders: int
    bar: str
    holds: bool


def crossing_at(load: float, alone: float = 1.8) -> Gain:
    """The speed-up over the load of two arms whose times per token are straight lines over it.

    ``alone`` for one user, and the verdict's threshold at ``load``.
    """

    def baseline(level: float) -> float:
        return 10.0 + 0.2 * level

    at_one, there = baseline(1) / alone, baseline(load) / THRESHOLD
    each = (there - at_one) / (load - 1)
    return lambda level: baseline(level) / (at_one + each * (level - 1))


def same(speedup: float) -> Gain:
    """A law that is the same at any load; 1 is that of a speculation that does nothing."""
    return lambda level: speedup


def within_one_step(load: float) -> Seen:
    """Tell whether a crossover is said, and lies within a doubling of ``load``."""

    def near(one: Any) -> bool:
        return bool(one["word"] == PAYS and one["pays_until"] and abs(math.log2(one["pays_until"] / load)) <= 1)

    return near


def pays_somewhere(one: Any) -> bool:
    """Tell whether any gain is claimed."""
    return bool(one["word"] == PAYS)


def pays_alone(one: Any) -> bool:
    """Tell whether a gain is claimed for one user."""
    return bool(one["word"] == PAYS and one["quoted"] == 1)


def counted(seen: Seen, seed: int, ladders: int, levels: Sequence[float], gain: Gain, **truth: Any) -> int:
    """Return in how many simulated ladders it was seen; ``truth`` is `tests.support.ladders.simulated`'s."""
    seeds = range(seed * 100_000, seed * 100_000 + ladders)
    return sum(seen(fill(simulated(one, levels, gain, **truth), RESAMPLES)[KIND]) for one in seeds)


def crossovers(seed: int, ladders: int = 20) -> list[Row]:
    """A row for each true crossover: all of them are found within one step."""
    rows = []
    for load, top in CROSSOVERS.items():
        near = within_one_step(load)
        found = counted(near, seed, ladders, doubled(top), crossing_at(load), start_sd=START_SD, step_noise=0.01)
        rows.append(Row(f"crosses at {load}", "within one step", found, ladders, "all", found == ladders))
    return rows


def differing_prompts(seed: int, ladders: int = 40, numbers: Sequence[int] = (10, 12, 16)) -> list[Row]:
    """A row for each number of prompts: 1.8 times as fast alone and falling, prompts differing by 30 %."""
    rows = []
    for prompts in numbers:
        truth: Any = {"prompts": prompts, "liking_sd": 0.3, "start_sd": START_SD}
        found = counted(pays_alone, seed, ladders, doubled(16), crossing_at(8), **truth)
        least = math.ceil(0.95 * ladders)
        law = f"1.8 alone, prompts differ by 30 %, {prompts} of them"
        rows.append(Row(law, "pays for one user", found, ladders, f"at least {least}", found >= least))
    return rows


def never_paying(seed: int, ladders: int = 400, spreads: Sequence[float] = (0.0, 0.02, 0.03, 0.05)) -> list[Row]:
    """A row for each spread of the starts: a ladder that never pays seldom pays somewhere."""
    rows = []
    for sd in spreads:
        truth: Any = {"start_sd": sd, "step_noise": 0.01}
        found = counted(pays_somewhere, seed, ladders, doubled(32), same(1.0), **truth)
        most = 5 * ladders // 400 if sd <= START_SD else None
        bar = f"at most {most}" if most is not None else "none"
        rows.append(Row(f"no gain, starts differ by {100 * sd:.0f} %", "pays somewhere", found, ladders, bar,
                        most is None or found <= most))  # fmt: skip
    return rows


def power(seed: int, ladders: int = 100) -> list[Row]:
    """A row for each true speed-up that holds at every level: how often it is claimed, with 16 prompts."""
    rows = []
    for gain, least in ((1.1, None), (1.2, 95), (1.5, 100)):
        truth: Any = {"prompts": 16, "noise": 0.05, "start_sd": START_SD}
        found = counted(pays_alone, seed, ladders, doubled(16), same(gain), **truth)
        bar = f"at least {least} %" if least else "none"
        rows.append(Row(f"{gain:.2f} at every load", "pays for one user", found, ladders, bar,
                        100 * found >= (least or 0) * ladders))  # fmt: skip
    return rows


def table(seed: int = 1) -> list[Row]:
    """Every law's row; a minute or two on one core."""
    return [*crossovers(seed), *differing_prompts(seed), *never_paying(seed), *power(seed)]
