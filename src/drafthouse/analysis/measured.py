"""From the requests of two results to what the estimator takes: log_tpot and seconds by prompt. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from ..bench.result_types import ArmResult, Request
from ..bench.samples import measured_tpot, whole_answers
from ..bench.stats import Gain
from .decision import Measured
from .speedup import (
    BASELINE,
    SPECULATIVE,
    LogTimes,
    PromptKey,
    SumRatio,
    estimate_speedup,
    mean_ratio,
    rounds_in,
    sum_ratio,
)
from .verdict_types import Control

#: A kind and the id of a prompt in it, whatever its temperature.
Asked = tuple[str, str]
Clock = Callable[[Request], float | None]


def asked_of(request: Request) -> Asked:
    """What a request asked: its kind and its prompt, at any temperature."""
    return str(request.get("kind") or request.get("group")), str(request.get("prompt_id"))


def in_groups(result: ArmResult, groups: Sequence[str]) -> list[Request]:
    """The whole answers of some groups."""
    return [r for r in whole_answers(result) if str(r.get("group")) in groups]


def by_round(requests: Iterable[Request], clock: Clock = measured_tpot) -> dict[Asked, dict[int, float]]:
    """The logarithm of a clock by prompt and round, averaged over the temperatures; no value that is not above 0."""
    values: dict[Asked, dict[int, list[float]]] = {}
    for request in requests:
        value = clock(request)
        if value is not None and value > 0:
            own = values.setdefault(asked_of(request), {})
            own.setdefault(request.get("round"), []).append(math.log(value))
    return {prompt: {number: fmean(logs) for number, logs in own.items()} for prompt, own in values.items()}


def end_to_end_s(lengths: Mapping[tuple[str, str], int]) -> Clock:
    """The clock of the seconds to the last token of an answer of the length in ``lengths``: TTFT + (n - 1) * TPOT.

    Where no first token was timed (other people's files), it counts as one more token.
    """

    def seconds(request: Request) -> float | None:
        tpot_ms, ttft_ms = measured_tpot(request), request.get("ttft_ms")
        if tpot_ms is None:
            return None
        length = lengths[str(request.get("group")), str(request.get("prompt_id"))]
        return (float(tpot_ms if ttft_ms is None else ttft_ms) + (length - 1) * tpot_ms) / 1000

    return seconds


def lengths_of(requests: Iterable[Request]) -> dict[tuple[str, str], int]:
    """The length that answers to a prompt of a group are set to: the declared one, otherwise the longest answer's."""
    found: dict[tuple[str, str], int] = {}
    for request in requests:
        prompt = str(request.get("group")), str(request.get("prompt_id"))
        tokens = request.get("max_tokens") or request.get("output_tokens") or 1
        found[prompt] = max(tokens, found.get(prompt, 1))
    return found


def mean_by_prompt(requests: Iterable[Request], clock: Clock) -> dict[Asked, float]:
    """The mean of a clock over a prompt's answers, whatever their rounds and temperatures."""
    found: dict[Asked, list[float]] = {}
    for request in requests:
        value = clock(request)
        if value is not None:
            found.setdefault(asked_of(request), []).append(value)
    return {prompt: fmean(values) for prompt, values in found.items()}


def measure(results: Mapping[str, ArmResult], groups: Sequence[str], *, together: bool) -> Measured:
    """What was measured of both arms over some groups; ``together``: they ran side by side."""
    requests = {arm: in_groups(result, groups) for arm, result in results.items()}
    log_tpot = {arm: by_round(own) for arm, own in requests.items()}
    asked = rounds_in(log_tpot[BASELINE], log_tpot[SPECULATIVE])
    kinds = {prompt: prompt[0] for prompt in asked}
    clock = end_to_end_s(lengths_of([*requests[BASELINE], *requests[SPECULATIVE]]))
    by_temperature: dict[float, SumRatio] = {}
    for temperature in sorted({r["temperature"] for r in requests[BASELINE] if r.get("temperature") is not None}):
        seconds = []
        for arm in (BASELINE, SPECULATIVE):
            chosen = [r for r in requests[arm] if r.get("temperature") == temperature]
            seconds.append(mean_by_prompt(chosen, clock))
        if part := sum_ratio(*seconds):
            by_temperature[temperature] = part
    return Measured(
        speedup=estimate_speedup(log_tpot[BASELINE], log_tpot[SPECULATIVE], kinds, together=together),
        total=sum_ratio(mean_by_prompt(requests[BASELINE], clock), mean_by_prompt(requests[SPECULATIVE], clock)),
        by_temperature=by_temperature,
    )


def paired(slower: Iterable[Request], faster: Iterable[Request], clock: Clock = measured_tpot) -> Gain | None:
    """The ratio of a clock, first over second, by the estimator: starts are a part of it. None without a pair.

    One prompt alone has no interval.
    """
    one, two = by_round(slower, clock), by_round(faster, clock)
    found = estimate_speedup(one, two, {prompt: prompt[0] for prompt in one})
    if found:
        return found.as_dict()
    alone = []
    for prompt, rounds in rounds_in(one, two).items():
        alone.append(fmean(one[prompt][number] - two[prompt][number] for number in rounds))
    return mean_ratio(alone)


def control_of(result: ArmResult, groups: Sequence[str]) -> Control | None:
    """The baseline's odd rounds over its even ones, over some groups; None for one round."""
    log_tpot = by_round(in_groups(result, groups))
    rounds = sorted({number for own in log_tpot.values() for number in own}, key=lambda value: (value is None, value))
    return control_ratio(log_tpot, rounds)


def control_ratio(log_tpot: LogTimes[PromptKey], rounds: Sequence[int]) -> Control | None:
    """One arm's odd ``rounds`` over its even ones, prompt by prompt: 1 where the box was steady; None for one round.

    Of the prompts that were asked in both; the interval is that of the prompts alone.
    """
    odd, even = rounds[0::2], rounds[1::2]
    logs = []
    for own in log_tpot.values():
        sides = [[own[number] for number in side if number in own] for side in (odd, even)]
        if all(sides):
            logs.append(fmean(sides[0]) - fmean(sides[1]))
    found = mean_ratio(logs)
    if found is None:
        return None
    named: list[int | list[int]] = [side[0] if len(side) == 1 else list(side) for side in (odd, even)]
    return {**found, "rounds": named}
