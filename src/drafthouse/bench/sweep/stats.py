"""Compute the numbers of one step of a load sweep (ladder) from its requests.

A step has a window of full load: from its beginning until the last request starts. After it fewer and fewer
streams are busy, and each is faster than at the step's load level. Rates count only what happened in the window;
a request that extends past its end counts with the fraction of its time inside.
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

#: The fraction of a request's tokens that must be inside the window for its TPOT, ITL and E2E to count.
SHARE = 0.5
#: Resamples of a step's interval. More change its bounds by less than the printed digits.
RESAMPLES = 2_000
#: The fewest degrees of freedom from which the noise is estimated.
LEAST_FREEDOM = 3
# The 97.5 % quantile of the normal distribution.
_Z = 1.959964


def noise_interval(
    by_prompt: Mapping[str, Sequence[float]], resamples: int = RESAMPLES, seed: int = SEED
) -> Interval | None:
    """The median over prompts of each prompt's median, with a 95 % interval; None without values.

    The interval is the noise of repeated requests for the same prompts, which more time reduces. It does not include
    the differences between prompts. Each prompt has only a few values, too few to estimate its spread, so the noise of
    all prompts is pooled, relative to each prompt's mean: a bootstrap of residuals (Efron and Tibshirani 1993,
    chapter 9). Two corrections follow. The residuals of n values are too small by the root of (n - 1)/n. And the size
    of the noise is itself uncertain: it is multiplied by the ratio of Student's 97.5 % quantile to the normal one,
    1 + (z^2 + 1)/(4 f) for f degrees of freedom (Abramowitz and Stegun, 26.7.5). With fewer than `LEAST_FREEDOM`
    degrees of freedom the interval is that of the median over all values.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in by_prompt.values() if len(values)]
    if not groups:
        return None
    all_values = np.concatenate(groups)
    values_count = all_values.size
    freedom = values_count - len(groups)
    if freedom < LEAST_FREEDOM or all_values.min() <= 0:  # the logarithm below needs values above 0
        over_all = bootstrap_median(all_values.tolist(), resamples=resamples, seed=seed)
        return {"median": over_all.median, "low": over_all.low, "high": over_all.high, "n": values_count}
    means = []  # of the logarithms, by prompt
    residuals = []  # of the logarithms, by prompt with several values
    for group in groups:
        logarithms = np.log(group)
        mean = float(np.mean(logarithms))
        means.append(mean)
        if group.size > 1:
            residuals.append((logarithms - mean) * math.sqrt(group.size / (group.size - 1)))
    noise = np.concatenate(residuals)
    noise *= 1.0 + (_Z**2 + 1.0) / (4.0 * freedom)
    random = np.random.default_rng(seed)
    resampled = []
    for group, mean in zip(groups, means, strict=True):
        indices = random.integers(0, noise.size, size=(resamples, group.size))
        resampled.append(mean + np.median(noise[indices], axis=1))
    ratios = np.median(np.exp(np.stack(resampled)), axis=0) / float(np.median(np.exp(means)))
    center = float(np.median([np.median(group) for group in groups]))
    tail = (1.0 - CONFIDENCE) / 2.0
    return {
        "median": center,
        "low": center * float(np.quantile(ratios, tail, method="lower")),
        "high": center * float(np.quantile(ratios, 1.0 - tail, method="higher")),
        "n": values_count,
    }


def is_narrow(interval: Interval | None, narrow: float) -> bool:
    """True if half the interval's width is at most the fraction ``narrow`` of its median."""
    return interval is not None and (interval["high"] - interval["low"]) / 2 <= narrow * interval["median"]


def inside(start: float, end: float, window: tuple[float, float]) -> float:
    """The fraction of the time from ``start`` to ``end`` that is inside ``window``; 0 or 1 for a single moment."""
    if end <= start:
        return 1.0 if window[0] <= start <= window[1] else 0.0
    return max(0.0, min(end, window[1]) - max(start, window[0])) / (end - start)


def _end_s(request: Request) -> float:
    """The time of a complete answer's last token, in seconds since the beginning of the step."""
    return request["started_s"] + (request["e2el_ms"] or 0.0) / 1000


def step_numbers(
    requests: Sequence[Request], window: tuple[float, float], limits: Mapping[str, float], streams: int = 1
) -> StepNumbers:
    """The numbers of a step; ``window`` is begin and end of full load in seconds, ``limits`` are in ms by name.

    Throughputs are tokens and requests over the window. TTFT is over all complete answers, because each request started
    under full load. TPOT, ITL and E2E are over those with at least `SHARE` of their tokens in the window. The others
    are the ``tail``, and are used only if there are no such answers. Answers without a TPOT (`measured_tpot`) are
    counted in ``without_tpot``. Goodput is the requests per second that met every limit, as in
    `vllm bench serve --goodput`; None without limits. ``short`` is explained at `_extend`.
    """
    complete = [request for request in requests if request["status"] == OK]
    window, short = _extend(window, complete, streams)
    under_load = _under_load(complete, window, limits)
    measured = under_load.steady or complete
    gaps: list[float] = []
    for request in measured:
        gaps += request["itls_ms"]
    by_prompt = _tpot_by_prompt(measured)
    tpots = list(itertools.chain.from_iterable(by_prompt.values()))
    median_tpot = percentile(tpots, 50)
    ttfts = [request["ttft_ms"] or 0.0 for request in complete]
    e2e_times = [request["e2el_ms"] or 0.0 for request in measured]
    without_tpot = sum(measured_tpot(request) is None for request in complete)
    seconds = window[1] - window[0]
    output_throughput = request_throughput = goodput = mean_output_tokens = None
    if complete:
        mean_output_tokens = math.fsum(request["output_tokens"] or 0 for request in complete) / len(complete)
    if complete and seconds > 0:
        output_throughput = under_load.output_tokens / seconds
        request_throughput = under_load.requests / seconds
        if limits:
            goodput = under_load.good_requests / seconds
    return {
        "duration_s": seconds,
        "short": short,
        "num_prompts": len(requests),
        "completed": len(complete),
        "failed": len(requests) - len(complete),
        "tail": len(complete) - len(measured),
        "without_tpot": without_tpot,
        "mean_output_tokens": mean_output_tokens,
        "output_throughput": output_throughput,
        "per_user_tok_s": 1000 / median_tpot if median_tpot else None,
        "request_throughput": request_throughput,
        "goodput": goodput,
        "ttft_ms": spread(ttfts),
        "tpot_ms": spread(tpots),
        "itl_ms": spread(gaps),
        "e2el_ms": spread(e2e_times),
        "tpot_by_prompt": by_prompt,
        "tpot_interval": noise_interval(by_prompt),
    }


def _extend(window: tuple[float, float], complete: Sequence[Request], streams: int) -> tuple[tuple[float, float], bool]:
    """The window to use, and True if the window of full load was too short.

    If fewer requests than ``streams`` ended in it, it was shorter than an answer, and mostly waited for first tokens.
    It is then extended to the end of the last answer.
    """
    ends = [_end_s(request) for request in complete]
    short = bool(complete) and sum(end <= window[1] for end in ends) < streams
    if short:
        return (window[0], max(window[1], *ends)), True
    return window, False


@dataclass(frozen=True)
class _UnderLoad:
    """The parts of the complete answers inside the window. Numbers are fractional: a request counts with its part."""

    output_tokens: float
    requests: float
    good_requests: float  # those that met every limit
    steady: list[Request]  # those with at least `SHARE` of their tokens in the window


def _under_load(complete: Sequence[Request], window: tuple[float, float], limits: Mapping[str, float]) -> _UnderLoad:
    """The parts of complete answers inside the window, each request counted with its fraction of time inside."""
    tokens = []
    request_shares = []
    good_shares = []  # of those that met every limit
    steady = []
    for request in complete:
        start_s = request["started_s"]
        end_s = _end_s(request)
        token_share = inside(start_s + (request["ttft_ms"] or 0.0) / 1000, end_s, window)
        tokens.append((request["output_tokens"] or 0) * token_share)
        if token_share >= SHARE:
            steady.append(request)
        request_share = inside(start_s, end_s, window)
        request_shares.append(request_share)
        if meets_limits(request, limits):
            good_shares.append(request_share)
    return _UnderLoad(
        output_tokens=math.fsum(tokens),
        requests=math.fsum(request_shares),
        good_requests=math.fsum(good_shares),
        steady=steady,
    )


def _tpot_by_prompt(requests: Sequence[Request]) -> dict[str, list[float]]:
    """The TPOTs in ms by prompt id, of the requests that have one."""
    by_prompt: dict[str, list[float]] = {}
    for request in requests:
        tpot = measured_tpot(request)
        if tpot is not None:
            by_prompt.setdefault(request["prompt_id"], []).append(tpot)
    return by_prompt


def spread(values: Sequence[float]) -> Spread:
    """Median, p90 and p99 by linear interpolation; None without values."""
    return {"median": percentile(values, 50), "p90": percentile(values, 90), "p99": percentile(values, 99)}


def meets_limits(request: Request, limits: Mapping[str, float]) -> bool:
    """True if a complete answer met every limit (ms). An answer without a TPOT cannot exceed the limit on TPOT."""
    for latency, limit in (
        (request["ttft_ms"], limits.get("ttft_ms")),
        (request["tpot_ms"], limits.get("tpot_ms")),
    ):
        if latency is not None and limit is not None and latency > limit:
            return False
    return True
