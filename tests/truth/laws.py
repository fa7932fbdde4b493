"""Laws of known truth: how prompts gain, what starts and the box do, and how much single answers vary.

A law's gain is the geometric mean over the prompts. Standard deviations are of natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Chance = np.random.Generator
Array = npt.NDArray[np.floating[Any]]
#: What prompts deviate from the law's gain by, as logarithms with the mean 0: of prompts of kinds 0 and 1, at these
#: places in their files.
Deviations = Callable[[Chance, Array, Array], Array]
#: How much slower each answer of a step is, as logarithms: of the step's number, and of so many answers.
Disturbance = Callable[[Chance, int, int], Array]

STEPS = 12
"""The steps of a whole experiment: two arms, six rounds."""


def normal(sd: float) -> Deviations:
    """Gains that differ normally."""
    return lambda chance, kinds, places: chance.normal(0.0, sd, kinds.size)


def skewed(sd: float, side: int) -> Deviations:
    """Gains with an exponential tail: of prompts that gain much (side 1), or of slow ones (-1)."""

    def law(chance: Chance, kinds: Array, places: Array) -> Array:
        found: Array = side * sd * (chance.standard_exponential(kinds.size) - 1.0)
        return found

    return law


def two_groups(share: float, ratio: float) -> Deviations:
    """A share of the prompts gains ``ratio`` times as much as the others."""

    def law(chance: Chance, kinds: Array, places: Array) -> Array:
        found: Array = math.log(ratio) * ((chance.random(kinds.size) < share) - share)
        return found

    return law


def by_kind(ratio: float) -> Deviations:
    """One of the two kinds gains ``ratio`` times as much as the other."""
    return lambda chance, kinds, places: math.log(ratio) * (kinds - 0.5)


def in_fours(sd: float) -> Deviations:
    """Prompts that are alike in fours, one behind the other in their file: written from one template."""

    def law(chance: Chance, kinds: Array, places: Array) -> Array:
        group = (places // 4 * 2 + kinds).astype(int)
        found: Array = chance.normal(0.0, sd, group.max() + 1)[group]
        return found

    return law


def quiet(chance: Chance, step: int, answers: int) -> Array:
    """Nothing happens."""
    return np.zeros(answers)


def odd_starts(one_in: int, ratio: float) -> Disturbance:
    """One start in so many is slower as a whole."""

    def law(chance: Chance, step: int, answers: int) -> Array:
        return np.full(answers, math.log(ratio) if chance.random() < 1.0 / one_in else 0.0)

    return law


def half_steps(ratio: float, share: float = 0.25) -> Disturbance:
    """In a share of the steps one half, the first or the second, is slower."""

    def law(chance: Chance, step: int, answers: int) -> Array:
        found = np.zeros(answers)
        if chance.random() < share:
            half = answers // 2
            found[slice(half) if chance.random() < 0.5 else slice(half, None)] = math.log(ratio)
        return found

    return law


def drift(ratio: float) -> Disturbance:
    """The box becomes slower evenly, by ``ratio`` over a whole experiment."""
    return lambda chance, step, answers: math.log(ratio) * (step + np.arange(answers) / answers) / STEPS


def cold_first(ratio: float) -> Disturbance:
    """The first step begins slower and recovers, to a tenth within the step."""

    def law(chance: Chance, step: int, answers: int) -> Array:
        return math.log(ratio) * 10.0 ** -(step + np.arange(answers) / answers)

    return law


ALIKE = normal(0.05)


@dataclass(frozen=True)
class Bars:
    """What a law must hold, as shares; None: it is shown, and nothing is promised."""

    false_pays: float | None = 0.01
    pays: tuple[tuple[float, float], ...] = ()
    """The least power at a gain."""
    cannot_say_at_1_3: float | None = None
    does_not_pay: float = 0.02
    """The most `does not pay` where gain and sum are 1.15 or above."""


QUIET_BOX = Bars(cannot_say_at_1_3=0.03)


@dataclass(frozen=True)
class Law:
    """What is true of prompts, engine and box."""

    name: str
    gains: Deviations = ALIKE
    noise_sd: float = 0.03
    heavy: bool = False
    """Whether the noise has the tails of Student's t with three degrees of freedom."""
    noise_ar: float = 0.0
    """The correlation of an answer's noise with that of the one before (AR(1))."""
    start_sd: float = 0.01
    box: Disturbance = quiet
    length_sd: float = 0.3
    """What the answers' lengths differ by."""
    stall_s: float = 0.0
    """So many seconds are added to one answer in 20, of `answer_s` on average."""
    answer_s: float = 6.0
    slow_answer: float = 1.0
    """One answer of the speculative arm is so many times slower."""
    bars: Bars = Bars()


def _power(at_1_15: float, at_1_3: float) -> Bars:
    return Bars(pays=((1.15, at_1_15), (1.3, at_1_3)), cannot_say_at_1_3=0.03)


_ODD = Bars(false_pays=0.05, does_not_pay=1.0)
LAWS: tuple[Law, ...] = (
    Law("gains sd 5 %", bars=_power(0.95, 0.98)),
    Law("gains sd 15 %", normal(0.15), bars=_power(0.95, 0.98)),
    Law("gains sd 24 %", normal(0.24), bars=_power(0.95, 0.98)),
    Law("gains sd 32 %", normal(0.32), bars=_power(0.80, 0.98)),
    Law("gains sd 41 %", normal(0.41), bars=Bars(pays=((1.3, 0.98),), cannot_say_at_1_3=0.03)),
    Law("gains sd 41 %, skewed right", skewed(0.41, 1), bars=Bars()),
    Law("gains sd 41 %, skewed left", skewed(0.41, -1), bars=Bars(false_pays=0.04)),
    Law("none on 55 %, 1.6 times as much on 45 %", two_groups(0.45, 1.6), bars=QUIET_BOX),
    Law("1.6 times as much on one kind", by_kind(1.6), bars=QUIET_BOX),
    Law("sd 24 %, prompts alike in fours", in_fours(0.24), bars=Bars(false_pays=0.05)),
    Law("sd 24 %, noise 1 %", normal(0.24), noise_sd=0.01, bars=_power(0.95, 0.98)),
    Law("sd 24 %, noise 15 %", normal(0.24), noise_sd=0.15),
    Law("sd 24 %, noise 30 %", normal(0.24), noise_sd=0.30),
    Law("sd 24 %, noise 25 %, tails of t3", normal(0.24), noise_sd=0.25, heavy=True),
    Law("sd 24 %, lengths differ e-fold", normal(0.24), length_sd=1.0),
    Law("starts sd 3 %", start_sd=0.03),
    Law("starts sd 5 %", start_sd=0.05, bars=Bars(false_pays=0.015)),
    *(
        Law(f"one start in {n} slower by {ratio:g}", box=odd_starts(n, ratio), bars=_ODD)
        for n in (3, 4, 10)
        for ratio in (1.2, 1.3, 1.5)
    ),
    Law("half a step 40 % slower, in a quarter of the steps", box=half_steps(1.4), bars=Bars(false_pays=0.05)),
    Law("noise 5 %, AR(1) 0.9", noise_sd=0.05, noise_ar=0.9),
    Law("drift, 20 % slower at the end", box=drift(1.2)),
    Law("first step cold by 50 %", box=cold_first(1.5)),
    Law("stalls of 2 s in one answer of 20, answers of 6 s", stall_s=2.0),
    Law("stalls of 2 s in one answer of 20, answers of 1 s", stall_s=2.0, answer_s=1.0),
    Law("one answer 10 times slower in the speculative arm", slow_answer=10.0),
)
