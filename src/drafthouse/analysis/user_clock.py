"""What a user waits for: the first token, the first token of the answer, and the answer to its end.

A time per token leaves out the wait for the first one, so an arm may be faster by it and slower to answer. Answers of
two arms differ in length, so they are set to the same one, the length that the profile declares (`max_tokens`):
end to end = TTFT + (tokens - 1) * TPOT. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..bench.outcome import OK
from ..bench.samples import Prompt, Request, Result, apart_from_temperature, measured_tpot, requests_of
from ..bench.stats import estimate, geometric_means, median, paired_ratios
from ..core.format import number, times_span, whole

Clock = Mapping[str, Any]

#: The clocks, in the order they are told; the names are those of a request.
TTFT, TTFAT, E2EL = "ttft_ms", "ttfat_ms", "e2el_ms"
_ARMS = ("baseline", "speculative")


def user_clock(results: Mapping[str, Result], groups: Sequence[str]) -> dict[str, Any]:
    """Return for each clock both arms' medians over the prompts (ms) and ``speedup``, baseline over speculative.

    ``results`` are the baseline and the speculative one. ``speedup`` is the median over prompts of the paired ratio
    with its interval, reduced as the verdict's (rounds by their median, temperatures by the geometric mean), or None
    without a pair. ``output_tokens`` is the median of the declared lengths; of a result that does not hold them, each
    prompt's longest answer.
    """
    requests = {
        arm: [r for r in requests_of(result) if r.get("status") == OK and str(r.get("group")) in groups]
        for arm, result in results.items()
    }
    lengths = _lengths([r for own in requests.values() for r in own])
    prompts = apart_from_temperature([r for own in requests.values() for r in own])

    def end_to_end(request: Request) -> float | None:
        tpot, ttft = measured_tpot(request), request.get("ttft_ms")
        return None if tpot is None or ttft is None else float(ttft) + (lengths[_prompt(request)] - 1) * tpot

    clocks: dict[str, Callable[[Request], float | None]] = {
        TTFT: lambda request: request.get("ttft_ms"),
        TTFAT: lambda request: request.get("ttfat_ms"),
        E2EL: end_to_end,
    }
    found: dict[str, Any] = {"output_tokens": median(list(lengths.values())) if lengths else None}
    for name, clock in clocks.items():
        one, other = (_by_prompt(own, clock) for own in requests.values())
        ratio = estimate(list(geometric_means(paired_ratios(one, other), prompts).values()))
        found[name] = {
            arm: median([median(values) for values in own.values()]) if own else None
            for arm, own in zip(results, (one, other), strict=True)
        } | {"speedup": ratio.as_dict() if ratio else None}
    return found


def slower_to_answer(clock: Clock, threshold: float) -> str | None:
    """Return why a speed-up per token does not pay for whoever waits for the answer, or None where it does.

    By the verdict's own rule: the lower bound end to end has to be above ``threshold``.
    """
    speedup = clock[E2EL]["speedup"]
    if speedup is None or speedup["low"] > threshold:
        return None
    word = "slower" if speedup["median"] < 1.0 else "not faster"
    where = f"end to end at {whole(clock['output_tokens'])} tokens"
    return f"faster per token, {word} to answer: {_change(clock[E2EL])} ({times_span(speedup)} {where})"


def later_first_token(clock: Clock, threshold: float) -> str | None:
    """Return that the first token comes later than in the baseline, where that is more than noise; a warning."""
    speedup = clock[TTFT]["speedup"]
    if speedup is None or speedup["high"] >= 1 / threshold:
        return None
    return f"the first token comes later: {_change(clock[TTFT])}"


def told(clock: Clock, names: Sequence[str] = (TTFT, TTFAT, E2EL)) -> str:
    """Return the clocks as the end of a sentence; the first answer token only where it is not the first of all."""
    titles = {TTFT: "TTFT", TTFAT: "first answer token", E2EL: f"end to end at {whole(clock['output_tokens'])} tokens"}
    shown = [name for name in names if all(clock[name][arm] is not None for arm in _ARMS)]
    if all(clock[TTFAT][arm] == clock[TTFT][arm] for arm in _ARMS):
        shown = [name for name in shown if name != TTFAT]
    return ", ".join(
        f"{titles[name]} {_milliseconds(clock[name]['speculative'])} (baseline {_figure(clock[name]['baseline'])})"
        for name in shown
    )


def with_clock(said: str, clock: Clock, slow: str | None) -> str:
    """Return what a verdict says of the time per token, with what the user waits for; ``slow`` goes first."""
    waits = told(clock, (TTFT, TTFAT) if slow else (TTFT, TTFAT, E2EL))
    return "; ".join(part for part in (slow, said, waits) if part)


def _figure(value: float) -> str:
    return number(value) if value < 100 else whole(value)


def _change(arms: Mapping[str, Any]) -> str:
    return f"{_milliseconds(arms['speculative'])} for {_figure(arms['baseline'])}"


def _milliseconds(value: float) -> str:
    return f"{_figure(value)} ms"


def _prompt(request: Request) -> Prompt:
    return str(request.get("group")), request.get("prompt_id")


def _lengths(requests: Sequence[Request]) -> dict[Prompt, int]:
    found: dict[Prompt, int] = {}
    for request in requests:
        tokens = request.get("max_tokens") or request.get("output_tokens") or 1
        found[_prompt(request)] = max(tokens, found.get(_prompt(request), 1))
    return found


def _by_prompt(requests: Sequence[Request], clock: Callable[[Request], float | None]) -> dict[Prompt, list[float]]:
    found: dict[Prompt, list[float]] = {}
    for request in requests:
        value = clock(request)
        if value is not None:
            found.setdefault(_prompt(request), []).append(float(value))
    return found
