"""Laws of known truth: what besides the gain moves the time per token in the course of a run.

Time is counted in steps: a server start, measured from ``t`` to ``t + 1``. A law's ``span`` is over how many steps it
unfolds; four is a run of two rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Chance = np.random.Generator
#: The slowdown at a moment, as a logarithm.
Course = Callable[[float], float]

TWO_ROUNDS, WHOLE_BUDGET = 4, 16


def steady(chance: Chance, span: int) -> Course:
    """Return a box that does not change."""
    return lambda t: 0.0


def one_step(size: float) -> Callable[[Chance, int], Course]:
    """Return a law by which one of the steps is slower by ``size`` (faster where it is below 0)."""

    def law(chance: Chance, span: int) -> Course:
        which = int(chance.integers(span))
        return lambda t: math.log1p(size) if int(t) == which else 0.0

    return law


def drift(size: float) -> Callable[[Chance, int], Course]:
    """Return a law by which the box slows down evenly, by ``size`` over the span."""
    return lambda chance, span: lambda t: math.log1p(size) * min(t / span, 1.0)


def quarter(size: float) -> Callable[[Chance, int], Course]:
    """Return a law by which a quarter of the span, anywhere, is slower by ``size``."""

    def law(chance: Chance, span: int) -> Course:
        begin = float(chance.uniform(0.0, 0.75 * span))
        return lambda t: math.log1p(size) if begin <= t < begin + span / 4 else 0.0

    return law


def cold(size: float) -> Callable[[Chance, int], Course]:
    """Return a law by which the run begins slower by ``size`` and recovers, to a tenth of it in one step."""
    return lambda chance, span: lambda t: math.log1p(size) * 10.0**-t


def cold_starts(size: float) -> Callable[[Chance, int], Course]:
    """Return a law by which every start begins slower by ``size`` and recovers, to a tenth in half a step."""
    return lambda chance, span: lambda t: math.log1p(size) * 100.0 ** -(t % 1.0)


@dataclass(frozen=True)
class Law:
    """What is true of a box and its engine. Standard deviations are of logarithms of the time per token."""

    name: str
    noise_sd: float = 0.05
    """Of each request."""
    start_sd: float = 0.0
    """Of each server start."""
    gain_sd: float = 0.05
    """Of the prompts' gains, where there is a gain."""
    heavy: bool = False
    """Whether the requests' noise has the tails of Student's t with three degrees of freedom."""
    course: Callable[[Chance, int], Course] = steady
    span: int = TWO_ROUNDS
    quiet: bool = False
    """Whether nothing disturbs: `cannot say` would be a false word."""
    alternated: bool = False
    """Whether the baseline is first in each round, as in results of older versions."""
    bar: bool = True
    """Whether at most five false `pays` of 400 are promised; otherwise it is shown and no more."""


_COURSES = (
    ("one step 20 % slower", one_step(0.20)),
    ("one step 20 % faster", one_step(-1 / 6)),
    ("drift, 20 % slower at the end", drift(0.20)),
    ("drift, 20 % faster at the end", drift(-1 / 6)),
    ("a quarter of the run 20 % slower", quarter(0.20)),
)

LAWS: tuple[Law, ...] = (
    Law("noise 3 %", noise_sd=0.03, quiet=True),
    Law("noise 5 %", quiet=True),
    Law("noise 15 %", noise_sd=0.15),
    Law("noise 5 %, heavy tails", heavy=True, quiet=True),
    Law("starts differ, sd 1 %", start_sd=0.01, quiet=True),
    Law("starts differ, sd 2 %", start_sd=0.02),
    Law("starts differ, sd 3 %", start_sd=0.03),
    Law("starts differ, sd 5 %", start_sd=0.05, bar=False),
    *(Law(name, course=course) for name, course in _COURSES),
    *(Law(f"{name}, over the whole budget", course=course, span=WHOLE_BUDGET) for name, course in _COURSES),
    Law("cold start 15 %", course=cold(0.15)),
    Law("every start cold by 15 %", course=cold_starts(0.15)),
    Law("one step 20 % slower, starts sd 2 %", course=one_step(0.20), start_sd=0.02),
    Law("drift, 20 % faster, B,S,B,S", course=drift(-1 / 6), alternated=True),
    Law("one step 60 % slower", course=one_step(0.60)),
)
