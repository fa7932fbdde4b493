"""What a user waits for: the first token, the first token of the answer, and the answer to its end.

A time per token leaves out the wait for the first one, so an arm may be faster by it and slower to answer. Answers of
two arms differ in length, so they are set to the same one, the length that the profile declares (`max_tokens`):
end to end = TTFT + (tokens - 1) * TPOT. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from ..bench.outcome import OK
from ..bench.result_types import ArmResult, Request
from ..bench.samples import Prompt, apart_from_temperature, measured_tpot, requests_of
from ..bench.stats import estimate, geometric_means, median, paired_ratios
from ..core.format import number, times_span, whole
from .verdict_types import UserClock, Waits

#: The clocks, in the order they are told; the names are those of a request.
TTFT: Final = "ttft_ms"
TTFAT: Final = "ttfat_ms"
E2EL: Final = "e2el_ms"
Name = Literal["ttft_ms", "ttfat_ms", "e2el_ms"]


def user_clock(results: Mapping[str, ArmResult], groups: Sequence[str]) -> UserClock:
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

    def waits(clock: Callable[[Request], float | None]) -> Waits:
        both = [_by_prompt(own, clock) for own in requests.values()]
        ratio = estimate(list(geometric_means(paired_ratios(*both), prompts).values()))
        one, other = (median([median(values) for values in own.values()]) if own else None for own in both)
        return {"baseline": one, "speculative": other, "speedup": ratio.as_dict() if ratio else None}

    return {
        "output_tokens": median(list(lengths.values())) if lengths else None,
        TTFT: waits(lambda request: request.get("ttft_ms")),
        TTFAT: waits(lambda request: request.get("ttfat_ms")),
        E2EL: waits(end_to_end),
    }


def slower_to_answer(clock: UserClock, threshold: float) -> str | None:
    """Return why a speed-up per token does not pay for whoever waits for the answer, or None where it does.

    By the verdict's own rule: the lower bound end to end has to be above ``threshold``.
    """
    speedup = clock[E2EL]["speedup"]
    if speedup is None or speedup["low"] > threshold:
        return None
    word = "slower" if speedup["median"] < 1.0 else "not faster"
    where = f"end to end at {whole(clock['output_tokens'])} tokens"
    return f"faster per token, {word} to answer: {_change(clock[E2EL])} ({times_span(speedup)} {where})"


def later_first_token(clock: UserClock, threshold: float) -> str | None:
    """Return that the first token comes later than in the baseline, where that is more than noise; a warning."""
    speedup = clock[TTFT]["speedup"]
    if speedup is None or speedup["high"] >= 1 / threshold:
        return None
    return f"the first token comes later: {_change(clock[TTFT])}"


def told(clock: UserClock, names: Sequence[Name] = (TTFT, TTFAT, E2EL)) -> str:
    """Return the clocks as the end of a sentence; the first answer token only where it is not the first of all."""
    titles = {TTFT: "TTFT", TTFAT: "first answer token", E2EL: f"end to end at {whole(clock['output_tokens'])} tokens"}
    first, answer = clock[TTFT], clock[TTFAT]
    same = (first["baseline"], first["speculative"]) == (answer["baseline"], answer["speculative"])
    shown = [(name, clock[name]) for name in names if not (same and name == TTFAT)]
    return ", ".join(
        f"{titles[name]} {_milliseconds(waits['speculative'])} (baseline {_figure(waits['baseline'])})"
        for name, waits in shown
        if waits["baseline"] is not None and waits["speculative"] is not None
    )


def with_clock(said: str, clock: UserClock, slow: str | None) -> str:
    """Return what a verdict says of the time per token, with what the user waits for; ``slow`` goes first."""
    waits = told(clock, (TTFT, TTFAT) if slow else (TTFT, TTFAT, E2EL))
    return "; ".join(part for part in (slow, said, waits) if part)


def _figure(value: float) -> str:
    return number(value) if value < 100 else whole(value)


def _change(waits: Waits) -> str:
    # Who has a speed-up has both.
    return f"{_milliseconds(waits['speculative'] or 0.0)} for {_figure(waits['baseline'] or 0.0)}"


def _milliseconds(value: float) -> str:
    return f"{_figure(value)} ms"


def _prompt(request: Request) -> Prompt:
    return str(request.get("group")), str(request.get("prompt_id"))


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
