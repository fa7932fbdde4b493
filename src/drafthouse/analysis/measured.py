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
    Speedup,
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
    means: dict[Asked, dict[int, float]] = {}
    for prompt, rounds in values.items():
        means[prompt] = {number: fmean(logs) for number, logs in rounds.items()}
    return means


def end_to_end_s(lengths: Mapping[tuple[str, str], int]) -> Clock:
    """The clock of the seconds to the last token of an answer of the length in ``lengths``: TTFT + (n - 1) * TPOT.

    Where no first token was timed (other people's files), it counts as one more token.
    """

    def seconds(request: Request) -> float | None:
        tpot_ms, ttft_ms = measured_tpot(request), request.get("ttft_ms")
        if tpot_ms is None:
            return None
        if ttft_ms is None:
            ttft_ms = tpot_ms
        length = lengths[str(request.get("group")), str(request.get("prompt_id"))]
        return (float(ttft_ms) + (length - 1) * tpot_ms) / 1000

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
    baseline, speculative = in_groups(results[BASELINE], groups), in_groups(results[SPECULATIVE], groups)
    clock = end_to_end_s(lengths_of([*baseline, *speculative]))
    ours, theirs = _by_temperature(baseline), _by_temperature(speculative)
    by_temperature: dict[float, SumRatio] = {}
    for temperature in sorted(ours):
        answers = theirs.get(temperature, [])
        ratio = sum_ratio(mean_by_prompt(ours[temperature], clock), mean_by_prompt(answers, clock))
        if ratio:
            by_temperature[temperature] = ratio
    return Measured(
        speedup=_estimate(by_round(baseline), by_round(speculative), together=together),
        total=sum_ratio(mean_by_prompt(baseline, clock), mean_by_prompt(speculative, clock)),
        by_temperature=by_temperature,
    )


def _estimate(baseline: LogTimes[Asked], speculative: LogTimes[Asked], *, together: bool = False) -> Speedup | None:
    """The estimator over prompts that name their kind."""
    kinds = {prompt: prompt[0] for prompt in baseline}
    return estimate_speedup(baseline, speculative, kinds, together=together)


def _by_temperature(requests: Iterable[Request]) -> dict[float, list[Request]]:
    """Requests by their temperature, without those that tell none."""
    found: dict[float, list[Request]] = {}
    for request in requests:
        if request.get("temperature") is not None:
            found.setdefault(request["temperature"], []).append(request)
    return found


def paired(slower: Iterable[Request], faster: Iterable[Request], clock: Clock = measured_tpot) -> Gain | None:
    """The ratio of a clock, first over second, by the estimator: starts are a part of it. None without a pair.

    One prompt alone has no interval.
    """
    one, two = by_round(slower, clock), by_round(faster, clock)
    found = _estimate(one, two)
    if found:
        return found.as_dict()
    alone = []
    for prompt, rounds in rounds_in(one, two).items():
        alone.append(fmean(one[prompt][number] - two[prompt][number] for number in rounds))
    return mean_ratio(alone)


def control_of(result: ArmResult, groups: Sequence[str]) -> Control | None:
    """The baseline's odd rounds over its even ones, over some groups; None for one round."""
    log_tpot = by_round(in_groups(result, groups))
    rounds = set[int]().union(*log_tpot.values())
    return control_ratio(log_tpot, sorted(rounds, key=lambda number: (number is None, number)))


def control_ratio(log_tpot: LogTimes[PromptKey], rounds: Sequence[int]) -> Control | None:
    """One arm's odd ``rounds`` over its even ones, prompt by prompt: 1 where the box was steady; None for one round.

    Of the prompts that were asked in both; the interval is that of the prompts alone.
    """
    odd, even = rounds[0::2], rounds[1::2]
    logs = []
    for own in log_tpot.values():
        in_odd = [own[number] for number in odd if number in own]
        in_even = [own[number] for number in even if number in own]
        if in_odd and in_even:
            logs.append(fmean(in_odd) - fmean(in_even))
    found = mean_ratio(logs)
    if found is None:
        return None
    return {**found, "rounds": [_number_or_list(odd), _number_or_list(even)]}


def _number_or_list(rounds: Sequence[int]) -> int | list[int]:
    """The number of one round, or the list of several."""
    return rounds[0] if len(rounds) == 1 else list(rounds)
