"""What a user waits for: the first token, the first token of the answer, and the answer to its end. Pure.

Answers of two arms differ in length, so they are set to the same one, the length that the profile declares
(`max_tokens`): end to end = TTFT + (tokens - 1) * TPOT. Whether all answers together took longer is a part of the
verdict (`decision.py`); here is what a reader is shown beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, Literal

from ..bench.result_types import ArmResult, Request
from ..core.format import number, whole
from .measured import Clock, asked_of, end_to_end_s, in_groups, lengths_of, paired
from .speedup import BASELINE, SPECULATIVE
from .verdict_types import UserClock, Waits
from .words import THRESHOLD

#: The clocks, in the order they are shown; the names are those of a request.
TTFT: Final = "ttft_ms"
TTFAT: Final = "ttfat_ms"
E2EL: Final = "e2el_ms"
Name = Literal["ttft_ms", "ttfat_ms", "e2el_ms"]


def user_clock(results: Mapping[str, ArmResult], groups: Sequence[str]) -> UserClock:
    """For each clock both arms' medians over the prompts (ms) and ``speedup``, baseline over speculative.

    ``speedup`` is the geometric mean over prompts of the paired ratio with its interval, None without a pair.
    ``output_tokens`` is the median of the lengths that answers are set to.
    """
    requests = {arm: in_groups(result, groups) for arm, result in results.items()}
    lengths = lengths_of([*requests[BASELINE], *requests[SPECULATIVE]])
    end_to_end = end_to_end_s(lengths)

    def end_to_end_ms(request: Request) -> float | None:
        seconds = end_to_end(request)
        return None if seconds is None else 1000 * seconds

    return {
        "output_tokens": median(lengths.values()) if lengths else None,
        TTFT: _waits(requests, lambda request: request.get("ttft_ms")),
        TTFAT: _waits(requests, lambda request: request.get("ttfat_ms")),
        E2EL: _waits(requests, end_to_end_ms),
    }


def later_first_token(clock: UserClock) -> str | None:
    """A sentence where the first token comes later than in the baseline by more than noise; a warning."""
    waits = clock[TTFT]
    speedup = waits["speedup"]
    if speedup is None or speedup["high"] >= 1 / THRESHOLD:
        return None
    return f"the first token comes later: {_figure(waits['speculative'])} ms for {_figure(waits['baseline'])}"


def clocks_text(clock: UserClock) -> str:
    """The clocks as the end of a sentence; the first answer token only where it is not the first of all."""
    titles = {TTFT: "TTFT", TTFAT: "first answer token", E2EL: f"end to end at {whole(clock['output_tokens'])} tokens"}
    names: list[Name] = [TTFT, TTFAT, E2EL]
    first, answer = clock[TTFT], clock[TTFAT]
    if (first["baseline"], first["speculative"]) == (answer["baseline"], answer["speculative"]):
        names.remove(TTFAT)
    parts = []
    for name in names:
        one, two = clock[name]["baseline"], clock[name]["speculative"]
        if one is not None and two is not None:
            parts.append(f"{titles[name]} {_figure(two)} ms (baseline {_figure(one)})")
    return ", ".join(parts)


def _waits(requests: Mapping[str, Sequence[Request]], clock: Clock) -> Waits:
    return {
        "baseline": _middle(requests[BASELINE], clock),
        "speculative": _middle(requests[SPECULATIVE], clock),
        "speedup": paired(requests[BASELINE], requests[SPECULATIVE], clock),
    }


def _middle(requests: Sequence[Request], clock: Clock) -> float | None:
    """The median over the prompts of each prompt's median, in ms."""
    by_prompt: dict[tuple[str, ...], list[float]] = {}
    for request in requests:
        value = clock(request)
        if value is not None:
            by_prompt.setdefault((*asked_of(request), str(request.get("group"))), []).append(float(value))
    return float(median(map(median, by_prompt.values()))) if by_prompt else None


def _figure(value: float | None) -> str:
    if value is None or value < 100:
        return number(value)
    return whole(value)
