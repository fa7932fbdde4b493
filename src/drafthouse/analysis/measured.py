"""Reduces the requests of two results to the inputs of the estimator (`speedup.py`): log_tpot and seconds, by prompt.

log_tpot is the natural logarithm of an answer's time per output token (TPOT), which leaves out the first token (TTFT).
"""

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

#: Kind and prompt id, without the temperature: a prompt at several temperatures is one prompt.
KindPrompt = tuple[str, str]
Clock = Callable[[Request], float | None]  # a time of an answer, None where it cannot be measured


def prompt_of(request: Request) -> KindPrompt:
    """The kind and the prompt id of a request; the group stands for the kind if a file has none."""
    return str(request.get("kind") or request.get("group")), str(request.get("prompt_id"))


def answers_in(result: ArmResult, groups: Sequence[str]) -> list[Request]:
    """The complete answers of a result in ``groups``; a group is a kind at one temperature ("chat@0.6")."""
    return [request for request in whole_answers(result) if str(request.get("group")) in groups]


def log_by_round(requests: Iterable[Request], clock: Clock = measured_tpot) -> dict[KindPrompt, dict[int, float]]:
    """By prompt, then by round, the mean logarithm of ``clock`` over temperatures; values of 0 or less are skipped."""
    logs: dict[KindPrompt, dict[int, list[float]]] = {}
    for request in requests:
        value = clock(request)
        if value is not None and value > 0:
            by_round = logs.setdefault(prompt_of(request), {})
            by_round.setdefault(request.get("round"), []).append(math.log(value))
    means: dict[KindPrompt, dict[int, float]] = {}
    for prompt, rounds in logs.items():
        means[prompt] = {round_number: fmean(round_logs) for round_number, round_logs in rounds.items()}
    return means


def end_to_end_s(lengths: Mapping[tuple[str, str], int]) -> Clock:
    """A clock in seconds: the end-to-end time of an answer of n tokens, TTFT + (n - 1) * TPOT, with n from ``lengths``.

    ``lengths`` is by (group, prompt id). Without a TTFT (imported files) the first token counts as one TPOT.
    """

    def seconds(request: Request) -> float | None:
        """The end-to-end time of one answer; None without a TPOT."""
        tpot_ms = measured_tpot(request)
        ttft_ms = request.get("ttft_ms")
        if tpot_ms is None:
            return None
        if ttft_ms is None:
            ttft_ms = tpot_ms
        length = lengths[str(request.get("group")), str(request.get("prompt_id"))]
        return (float(ttft_ms) + (length - 1) * tpot_ms) / 1000

    return seconds


def lengths_of(requests: Iterable[Request]) -> dict[tuple[str, str], int]:
    """By (group, prompt id), the common length in tokens: ``max_tokens``, else the longest answer's; at least 1."""
    lengths: dict[tuple[str, str], int] = {}
    for request in requests:
        key = str(request.get("group")), str(request.get("prompt_id"))
        tokens = request.get("max_tokens") or request.get("output_tokens") or 1
        lengths[key] = max(tokens, lengths.get(key, 1))
    return lengths


def mean_by_prompt(requests: Iterable[Request], clock: Clock) -> dict[KindPrompt, float]:
    """By prompt, the mean of ``clock`` over its answers of all rounds and temperatures; without prompts of no time."""
    values_by_prompt: dict[KindPrompt, list[float]] = {}
    for request in requests:
        value = clock(request)
        if value is not None:
            values_by_prompt.setdefault(prompt_of(request), []).append(value)
    return {prompt: fmean(values) for prompt, values in values_by_prompt.items()}


def measure(results: Mapping[str, ArmResult], groups: Sequence[str], *, together: bool) -> Measured:
    """The speed-up and the sums of seconds over ``groups``; ``together``: the arms ran side by side."""
    baseline = answers_in(results[BASELINE], groups)
    speculative = answers_in(results[SPECULATIVE], groups)
    clock = end_to_end_s(lengths_of([*baseline, *speculative]))
    baseline_answers = _by_temperature(baseline)
    speculative_answers = _by_temperature(speculative)
    by_temperature: dict[float, SumRatio] = {}
    for temperature in sorted(baseline_answers):
        matching = speculative_answers.get(temperature, [])
        sums = sum_ratio(mean_by_prompt(baseline_answers[temperature], clock), mean_by_prompt(matching, clock))
        if sums:
            by_temperature[temperature] = sums
    return Measured(
        speedup=_estimate(log_by_round(baseline), log_by_round(speculative), together=together),
        total=sum_ratio(mean_by_prompt(baseline, clock), mean_by_prompt(speculative, clock)),
        by_temperature=by_temperature,
    )


def _estimate(
    baseline: LogTimes[KindPrompt], speculative: LogTimes[KindPrompt], *, together: bool = False
) -> Speedup | None:
    """The estimated speed-up; the kind of each prompt is taken from its key."""
    kinds = {prompt: prompt[0] for prompt in baseline}
    return estimate_speedup(baseline, speculative, kinds, together=together)


def _by_temperature(requests: Iterable[Request]) -> dict[float, list[Request]]:
    """The requests by temperature, without those that have none (imported files)."""
    by_temperature: dict[float, list[Request]] = {}
    for request in requests:
        if request.get("temperature") is not None:
            by_temperature.setdefault(request["temperature"], []).append(request)
    return by_temperature


def paired_ratio(slower: Iterable[Request], faster: Iterable[Request], clock: Clock = measured_tpot) -> Gain | None:
    """The ratio of a clock, slower over faster, by the estimator.

    A single shared prompt gives a ratio without an interval (the bounds are the ratio), no shared prompt gives None.
    """
    slow = log_by_round(slower, clock)
    fast = log_by_round(faster, clock)
    speedup = _estimate(slow, fast)
    if speedup:
        return speedup.as_dict()
    logs = []
    for prompt, rounds in rounds_in(slow, fast).items():
        logs.append(fmean(slow[prompt][round_number] - fast[prompt][round_number] for round_number in rounds))
    return mean_ratio(logs)


def control_of(result: ArmResult, groups: Sequence[str]) -> Control | None:
    """The A/A control over ``groups``: the baseline's odd rounds over its even ones; None for a single round."""
    log_tpot = log_by_round(answers_in(result, groups))
    rounds = set[int]().union(*log_tpot.values())
    # A request without a round number has None, which comes last.
    return control_ratio(log_tpot, sorted(rounds, key=lambda round_number: (round_number is None, round_number)))


def control_ratio(log_tpot: LogTimes[PromptKey], rounds: Sequence[int]) -> Control | None:
    """The ratio of one arm's odd rounds over its even ones, near 1 on a steady machine; None for a single round.

    ``rounds`` are the arm's rounds in order: the first, third, ... count as odd. Prompts that were asked in both are
    paired. The interval is over prompts only and leaves out server starts.
    """
    odd, even = rounds[0::2], rounds[1::2]
    logs = []
    for prompt_logs in log_tpot.values():
        odd_logs = [prompt_logs[round_number] for round_number in odd if round_number in prompt_logs]
        even_logs = [prompt_logs[round_number] for round_number in even if round_number in prompt_logs]
        if odd_logs and even_logs:
            logs.append(fmean(odd_logs) - fmean(even_logs))
    ratio = mean_ratio(logs)
    if ratio is None:
        return None
    return {**ratio, "rounds": [_number_or_numbers(odd), _number_or_numbers(even)]}


def _number_or_numbers(rounds: Sequence[int]) -> int | list[int]:
    """The number of the only round, else the list of all, as `Control` holds them."""
    return rounds[0] if len(rounds) == 1 else list(rounds)
