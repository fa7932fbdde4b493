"""A clock that usage cannot move: bytes of text beside the tokens that the server counts. Pure.

Every speed is tokens over time, and the server counts the tokens. Its text it cannot make longer: where the bytes a
token differ between the arms by more than their interval, one of the two counts is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.usage_check import content_of
from ..core.format import count, times
from .measured import Asked, asked_of, in_groups, mean_by_prompt
from .speedup import BASELINE, SPECULATIVE, mean_ratio, sum_ratio

#: Bytes a token that differ by less explain no gain that counts.
SLACK = 1.03
#: The error rate of either end of the interval: 99 % in all.
TAIL = 0.005
#: On fewer prompts nothing is said.
FEWEST = 6


def usage_against_text(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """A sentence where usage and the text contradict each other between the arms, nothing otherwise."""
    baseline = _with_text(in_groups(results[BASELINE], groups))
    speculative = _with_text(in_groups(results[SPECULATIVE], groups))
    one, two = bytes_per_token(baseline), bytes_per_token(speculative)
    logs = [math.log(two[prompt] / one[prompt]) for prompt in one if prompt in two]
    if len(logs) < FEWEST:
        return []
    ratio = mean_ratio(logs, TAIL, TAIL)
    if ratio is None or (ratio["low"] <= SLACK and ratio["high"] >= 1 / SLACK):
        return []
    # As they were measured, at their own lengths.
    wall = sum_ratio(mean_by_prompt(baseline, _seconds), mean_by_prompt(speculative, _seconds))
    took = ""
    if wall:
        took = f"; its answers took {times(math.exp(-wall.ratio))} the baseline's seconds in sum"
    return [
        f"usage and the text disagree: over {count(len(logs), 'prompt')} the speculative arm has "
        f"{times(ratio['gain'])} as many bytes of text for each token that its server counts as the baseline{took}"
    ]


def bytes_per_token(requests: Sequence[Request]) -> dict[Asked, float]:
    """The bytes of text for each counted token, by prompt, over all of its answers."""
    sums: dict[Asked, list[float]] = {}
    for request in requests:
        own = sums.setdefault(asked_of(request), [0.0, 0.0])
        own[0] += len(content_of(request).encode("utf-8", "replace"))
        own[1] += request.get("output_tokens") or 0
    return {prompt: size / tokens for prompt, (size, tokens) in sums.items() if tokens}


def _with_text(requests: Sequence[Request]) -> list[Request]:
    """The answers that show all they say: a call's marks and an empty answer are no measure of text."""
    return [r for r in requests if content_of(r).strip() and r.get("output_tokens") and not r.get("tool_calls")]


def _seconds(request: Request) -> float | None:
    return request.get("e2el_ms")
