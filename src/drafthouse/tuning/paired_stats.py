"""How candidates of the tuner are set beside each other, prompt by prompt. Pure; numpy, for the box."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.speedup import mean_ratio
from ..bench.stats import median
from .types import Candidate, Facts

#: Candidates this near to the fastest count as equally fast.
SAME = 1.02
#: A trial ends early when the upper end of its speed over the leader's is below this.
HOPELESS = 0.90
#: How many answers it takes at least to end one early.
LEAST_ANSWERS = 3


def pair_key(suite: str, prompt_id: str, temperature: float) -> str:
    """The name under which answers of two candidates are set beside each other.

    With the suite, for two suites may each have a prompt of the same id.
    """
    name = f"{suite}/{prompt_id}"
    return name if temperature == 0 else f"{name}@{temperature:g}"


def prompt_of(key: str) -> str:
    """The prompt of a name that `pair_key` made: what stands before its temperature."""
    prompt, at, temperature = key.rpartition("@")
    return prompt if at and re.fullmatch(r"[0-9]+(\.[0-9]+)?", temperature) else key


def hopeless(ratios: Sequence[float]) -> bool:
    """Tell whether speeds over the leader's, prompt by prompt, are so low that more of them cannot help.

    They are when the upper end of the interval of their geometric mean is below 0.90. It takes three answers at least.
    """
    found = mean_ratio(list(map(math.log, ratios)))
    return len(ratios) >= LEAST_ANSWERS and found is not None and found["high"] < HOPELESS


def speeds_of(candidates: Sequence[Mapping[str, float]]) -> list[float]:
    """The speed of each candidate over that of the field, from their TPOT in ms by prompt; no unit.

    On each prompt that all of them answered, the field is the geometric mean of their TPOT; a candidate's speed is
    the median over these prompts of the field's TPOT over its own. Raises ValueError when there is no such prompt.
    """
    field_ms = {}
    for prompt in candidates[0]:
        logs = [math.log(tpot_ms[prompt]) for tpot_ms in candidates if prompt in tpot_ms]
        if len(logs) == len(candidates):
            field_ms[prompt] = math.exp(math.fsum(logs) / len(logs))
    if not field_ms:
        raise ValueError("no prompt that all candidates answered")
    speeds = []
    for tpot_ms in candidates:
        speeds.append(median([of_field_ms / tpot_ms[prompt] for prompt, of_field_ms in field_ms.items()]))
    return speeds


@dataclass
class Tried:
    """What is known of one candidate. ``out`` says why it cannot win; it is empty while it can."""

    candidate: Candidate
    tpot_ms: dict[str, list[float]] = field(default_factory=dict)
    out: str = ""
    starts: int = 0
    failed: bool = False
    """Whether it is out because it did not run, and not for its speed."""
    facts: Facts = field(default_factory=Facts)

    def medians(self) -> dict[str, float]:
        """The TPOT of each prompt, its runs reduced to their median, in ms."""
        return {prompt: median(values) for prompt, values in self.tpot_ms.items()}
