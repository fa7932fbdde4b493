"""Checks the token counts of the arms against the bytes of their text.

Speed is tokens over time, and the server itself counts the tokens; but it cannot fake the length of its text.
If bytes per token differ between the arms by more than their interval, one of the token counts is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..bench.result_types import ArmResult, Request
from ..bench.usage_check import content_of
from ..core.format import count, times
from .measured import KindPrompt, answers_in, mean_by_prompt, prompt_of
from .speedup import BASELINE, SPECULATIVE, mean_ratio, sum_ratio

#: A smaller ratio of the arms' bytes per token cannot explain a gain that matters (`words.THRESHOLD`).
TOLERATED_RATIO = 1.03
#: One-sided error rate of each bound: the interval has 99 % confidence.
TAIL = 0.005
#: Fewer prompts give no sentence.
FEWEST = 6


def usage_against_text(results: Mapping[str, ArmResult], groups: Sequence[str]) -> list[str]:
    """One sentence if the arms' token counts (usage) contradict their texts, else an empty list."""
    baseline = _with_text(answers_in(results[BASELINE], groups))
    speculative = _with_text(answers_in(results[SPECULATIVE], groups))
    base = bytes_per_token(baseline)
    spec = bytes_per_token(speculative)
    logs = [math.log(spec[prompt] / base[prompt]) for prompt in base if prompt in spec]
    if len(logs) < FEWEST:
        return []
    ratio = mean_ratio(logs, low_tail=TAIL, high_tail=TAIL)
    if ratio is None or (ratio["low"] <= TOLERATED_RATIO and ratio["high"] >= 1 / TOLERATED_RATIO):
        return []
    # The seconds as measured, each answer at its actual length.
    seconds = sum_ratio(mean_by_prompt(baseline, _end_to_end_ms), mean_by_prompt(speculative, _end_to_end_ms))
    took = ""
    if seconds:
        took = f"; its answers took {times(math.exp(-seconds.log_ratio))} the baseline's seconds in sum"
    return [
        f"usage and the text disagree: over {count(len(logs), 'prompt')} the speculative arm has "
        f"{times(ratio['gain'])} as many bytes of text for each token that its server counts as the baseline{took}"
    ]


def bytes_per_token(requests: Sequence[Request]) -> dict[KindPrompt, float]:
    """By prompt, the bytes of text per counted token over all of its answers; without prompts of no counted token."""
    sums: dict[KindPrompt, list[float]] = {}  # by prompt: bytes, tokens
    for request in requests:
        totals = sums.setdefault(prompt_of(request), [0.0, 0.0])
        totals[0] += len(content_of(request).encode("utf-8", "replace"))
        totals[1] += request.get("output_tokens") or 0
    return {prompt: text_bytes / tokens for prompt, (text_bytes, tokens) in sums.items() if tokens}


def _with_text(requests: Sequence[Request]) -> list[Request]:
    """The answers whose text is complete: no tool calls, whose markup is not in the text, and no empty answers."""
    return [r for r in requests if content_of(r).strip() and r.get("output_tokens") and not r.get("tool_calls")]


def _end_to_end_ms(request: Request) -> float | None:
    """The end-to-end latency of an answer as measured; None if it was not."""
    return request.get("e2el_ms")
