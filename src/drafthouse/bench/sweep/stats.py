"""The numbers of one step of a load ladder, from its raw requests. Pure.

A step has a window of full load: from its beginning until no further request was begun (a closed loop that
runs out keeps fewer and fewer streams busy, and each is then faster than the level says). Rates count what
lay inside that window; a request that reaches over its end counts for the share of its time that lay inside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...bench.outcome import OK
from ...bench.results import percentile
from ...bench.samples import measured_tpot
from ...bench.stats import CONFIDENCE, SEED, bootstrap_median

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Request
    from drafthouse.bench.stats import Interval
    from drafthouse.bench.sweep.ladder_types import Spread, StepNumbers

#: Share of a request's tokens that must have come under full load for its latencies to count.
SHARE = 0.5
#: Resamples of a step's interval; its bounds move by less than the digits that are printed.
RESAMPLES = 2_000
#: With less than this nothing can be said of the noise.
LEAST_FREEDOM = 3
# The 97.5 % quantile of the normal distribution.
_Z = 1.959964


def noise_interval(
    by_prompt: Mapping[str, Sequence[float]], resamples: int = RESAMPLES, seed: int = SEED
) -> Interval | None:
    """The median over prompts of each prompt's median, with its 95 % interval.

    Only the requests vary, never the prompts: this is the noise of the measurement, which more time makes smaller.
    How much other prompts would differ it does not say. A prompt is asked a few times only, and two values say
    next to nothing of their own spread, so the noise of all prompts is put together, as a share of each prompt's
    own mean: a bootstrap of residuals (Efron and Tibshirani 1993, chapter 9). n values are nearer to their own mean
    than to the truth by the root of (n - 1)/n, which is made good, and so is the doubt about the size of the noise:
    by Student's 97.5 % quantile over the normal one, 1 + (z^2 + 1)/(4 f) for f degrees of freedom (Abramowitz and
    Stegun, 26.7.5). Where hardly any prompt was asked twice a
    share tells nothing: the interval is then that of the median over all values. None for no values.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in by_prompt.values() if len(values)]
    if not groups:
        return None
    everything = np.concatenate(groups)
    number = everything.size
    freedom = number - len(groups)
    if freedom < LEAST_FREEDOM or everything.min() <= 0:
        plain = bootstrap_median(everything.tolist(), resamples=resamples, seed=seed)
        return {"median": plain.median, "low": plain.low, "high": plain.high, "n": number}
    means, residuals = [], []
    for group in groups:
        logarithms = np.log(group)
        mean = float(np.mean(logarithms))
        means.append(mean)
        if group.size > 1:
            residuals.append((logarithms - mean) * math.sqrt(group.size / (group.size - 1)))
    noise = np.concatenate(residuals)
    noise *= 1.0 + (_Z**2 + 1.0) / (4.0 * freedom)
    random = np.random.default_rng(seed)
    drawn = []
    for group, mean in zip(groups, means, strict=True):
        places = random.integers(0, noise.size, size=(resamples, group.size))
        drawn.append(mean + np.median(noise[places], axis=1))
    ratios = np.median(np.exp(np.stack(drawn)), axis=0) / float(np.median(np.exp(means)))
    middle = float(np.median([np.median(group) for group in groups]))
    tail = (1.0 - CONFIDENCE) / 2.0
    return {
        "median": middle,
        "low": middle * float(np.quantile(ratios, tail, method="lower")),
        "high": middle * float(np.quantile(ratios, 1.0 - tail, method="higher")),
        "n": number,
    }


def is_narrow(interval: Interval | None, narrow: float) -> bool:
    """Whether half the interval's width is at most the share ``narrow`` of its median."""
    return interval is not None and (interval["high"] - interval["low"]) / 2 <= narrow * interval["median"]


def inside(start: float, end: float, window: tuple[float, float]) -> float:
    """The share of the time from ``start`` to ``end`` that lies in ``window``; a moment is in it or not."""
    if end <= start:
        return 1.0 if window[0] <= start <= window[1] else 0.0
    return max(0.0, min(end, window[1]) - max(start, window[0])) / (end - start)


def _end_s(request: Request) -> float:
    return request["started_s"] + (request["e2el_ms"] or 0.0) / 1000


def step_numbers(
    requests: Sequence[Request], window: tuple[float, float], limits: Mapping[str, float], streams: int = 1
) -> StepNumbers:
    """What a step says of its requests; ``window`` is the time of full load in seconds.

    Throughput is tokens and requests over the window. TTFT is of all that ended well: each began under full load.
    TPOT, ITL and E2E are of those that had half of their tokens or more under it; the others are ``tail``, and
    taken all the same where nothing else is there. An answer without a TPOT (of one token, or in one chunk:
    `measured_tpot`) is in none of its numbers, and counted in ``without_tpot``. Goodput: requests a second that kept
    every limit, as `vllm bench serve --goodput` counts it; None without limits.
    """
    good = [request for request in requests if request["status"] == OK]
    window, short = _lengthened(window, good, streams)
    under_load = _under_load(good, window, limits)
    counted = under_load.steady or good
    gaps: list[float] = []
    for request in counted:
        gaps += request["itls_ms"]
    by_prompt = _tpot_by_prompt(counted)
    tpots = list(itertools.chain.from_iterable(by_prompt.values()))
    median_tpot = percentile(tpots, 50)
    first_tokens = [request["ttft_ms"] or 0.0 for request in good]
    ended = [request["e2el_ms"] or 0.0 for request in counted]
    without_tpot = sum(measured_tpot(request) is None for request in good)
    seconds = window[1] - window[0]
    output_throughput = request_throughput = goodput = mean_output_tokens = None
    if good:
        mean_output_tokens = math.fsum(request["output_tokens"] or 0 for request in good) / len(good)
    if good and seconds > 0:
        output_throughput = under_load.output_tokens / seconds
        request_throughput = under_load.requests / seconds
        if limits:
            goodput = under_load.good_requests / seconds
    return {
        "duration_s": seconds,
        "short": short,
        "num_prompts": len(requests),
        "completed": len(good),
        "failed": len(requests) - len(good),
        "tail": len(good) - len(counted),
        "without_tpot": without_tpot,
        "mean_output_tokens": mean_output_tokens,
        "output_throughput": output_throughput,
        "per_user_tok_s": 1000 / median_tpot if median_tpot else None,
        "request_throughput": request_throughput,
        "goodput": goodput,
        "ttft_ms": spread(first_tokens),
        "tpot_ms": spread(tpots),
        "itl_ms": spread(gaps),
        "e2el_ms": spread(ended),
        "tpot_by_prompt": by_prompt,
        "tpot_interval": noise_interval(by_prompt),
    }


def _lengthened(window: tuple[float, float], good: Sequence[Request], streams: int) -> tuple[tuple[float, float], bool]:
    """The window of full load, and whether it was too short.

    Where fewer requests than ``streams`` ended in the window, it was shorter than an answer, and most of it went by
    before a token came: the window is then all the time until the last answer.
    """
    ends = [_end_s(request) for request in good]
    short = bool(good) and sum(end <= window[1] for end in ends) < streams
    if short:
        return (window[0], max(window[1], *ends)), True
    return window, False


@dataclass(frozen=True)
class _UnderLoad:
    """What of the whole answers lay in the window of full load: tokens, requests, and those that kept every limit.

    ``steady`` had half of their tokens or more in it.
    """

    output_tokens: float
    requests: float
    good_requests: float
    steady: list[Request]


def _under_load(good: Sequence[Request], window: tuple[float, float], limits: Mapping[str, float]) -> _UnderLoad:
    tokens, lives, kept, steady = [], [], [], []
    for request in good:
        start_s, end_s = request["started_s"], _end_s(request)
        share = inside(start_s + (request["ttft_ms"] or 0.0) / 1000, end_s, window)
        tokens.append((request["output_tokens"] or 0) * share)
        if share >= SHARE:
            steady.append(request)
        life = inside(start_s, end_s, window)
        lives.append(life)
        if keeps(request, limits):
            kept.append(life)
    return _UnderLoad(math.fsum(tokens), math.fsum(lives), math.fsum(kept), steady)


def _tpot_by_prompt(requests: Sequence[Request]) -> dict[str, list[float]]:
    """TPOT in ms of the requests that have one, for each prompt."""
    by_prompt: dict[str, list[float]] = {}
    for request in requests:
        tpot = measured_tpot(request)
        if tpot is not None:
            by_prompt.setdefault(request["prompt_id"], []).append(tpot)
    return by_prompt


def spread(values: Sequence[float]) -> Spread:
    """Median, p90 and p99 by linear interpolation; None of nothing."""
    return {"median": percentile(values, 50), "p90": percentile(values, 90), "p99": percentile(values, 99)}


def keeps(request: Request, limits: Mapping[str, float]) -> bool:
    """Whether a good request kept every limit (ms). An answer of one token has no TPOT to break one with."""
    for value, limit in (
        (request["ttft_ms"], limits.get("ttft_ms")),
        (request["tpot_ms"], limits.get("tpot_ms")),
    ):
        if value is not None and limit is not None and value > limit:
            return False
    return True
