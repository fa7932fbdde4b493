"""Compare the tuner's candidates by their time per output token (TPOT), prompt by prompt.

A candidate is a speculation setup, a trial one start of its server with some prompts. The leader is the fastest
candidate so far.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.speedup import mean_ratio
from ..bench.stats import median
from .types import Candidate, Facts

#: Candidates within this factor of the fastest one's speed count as equally fast (docs/tune.md).
SAME = 1.02
#: A trial ends early if the upper bound of the interval of its speed over the leader's (a ratio) is below this.
HOPELESS = 0.90
#: Fewest answers after which a trial may end early.
LEAST_ANSWERS = 3


def pair_key(suite: str, prompt_id: str, temperature: float) -> str:
    """The key by which answers of two candidates to the same prompt are paired: "suite/id", or "suite/id@0.6".

    It includes the suite, since prompts of two suites may have the same id. Temperature 0 is left out.
    """
    name = f"{suite}/{prompt_id}"
    return name if temperature == 0 else f"{name}@{temperature:g}"


def prompt_of(key: str) -> str:
    """The part of a `pair_key` before the temperature."""
    prompt, at, temperature = key.rpartition("@")
    return prompt if at and re.fullmatch(r"[0-9]+(\.[0-9]+)?", temperature) else key


def hopeless(ratios: Sequence[float]) -> bool:
    """True if a candidate is surely slower than the leader, given the ratios of its speed to the leader's by prompt.

    Requires `LEAST_ANSWERS` ratios, and an interval of their geometric mean that ends below `HOPELESS`.
    """
    estimate = mean_ratio(list(map(math.log, ratios)))
    return len(ratios) >= LEAST_ANSWERS and estimate is not None and estimate["high"] < HOPELESS


def speeds_of(candidates: Sequence[Mapping[str, float]]) -> list[float]:
    """The relative speed of each candidate (a ratio; higher is faster), from TPOT in ms by prompt.

    For each prompt that all candidates answered, take the geometric mean of their TPOT and divide it by the
    candidate's TPOT; the speed is the median of these ratios. Raises ValueError if there is no such prompt.
    """
    mean_ms = {}
    for prompt in candidates[0]:
        logs = [math.log(tpot_ms[prompt]) for tpot_ms in candidates if prompt in tpot_ms]
        if len(logs) == len(candidates):
            mean_ms[prompt] = math.exp(math.fsum(logs) / len(logs))
    if not mean_ms:
        raise ValueError("no prompt that all candidates answered")
    speeds = []
    for tpot_ms in candidates:
        speeds.append(median([prompt_mean_ms / tpot_ms[prompt] for prompt, prompt_mean_ms in mean_ms.items()]))
    return speeds


@dataclass
class CandidateRecord:
    """What the trials of a candidate showed."""

    candidate: Candidate
    tpot_ms: dict[str, list[float]] = field(default_factory=dict)  # by prompt (`pair_key`), a value per trial
    out: str = ""  # the reason why the candidate cannot win; "" while it can
    starts: int = 0  # number of trials, each with a fresh server start
    failed: bool = False  # a failure and not its speed put the candidate out
    facts: Facts = field(default_factory=Facts)  # of its last trial that had any

    def medians(self) -> dict[str, float]:
        """The TPOT in ms of each prompt: the median over the trials."""
        return {prompt: median(values) for prompt, values in self.tpot_ms.items()}
