"""The times that a user waits for: first token, first token of the answer, and end to end.

A clock is one of these times. The arms' answers differ in length, so all are set to the length that the profile
declares (`max_tokens`): end to end = TTFT + (tokens - 1) * TPOT. These figures are shown beside the verdict; its rule
uses the sum of seconds (`decision.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, Literal

from ..bench.result_types import ArmResult, Request
from ..core.format import number, whole
from .measured import Clock, answers_in, end_to_end_s, lengths_of, paired_ratio, prompt_of
from .speedup import BASELINE, SPECULATIVE
from .verdict_types import UserClock, Waits
from .words import THRESHOLD

#: The clocks in the order of a report, by their keys in a request; TTFAT is the first token after the reasoning.
TTFT: Final = "ttft_ms"
TTFAT: Final = "ttfat_ms"
E2EL: Final = "e2el_ms"
ClockName = Literal["ttft_ms", "ttfat_ms", "e2el_ms"]


def user_clock(results: Mapping[str, ArmResult], groups: Sequence[str]) -> UserClock:
    """The medians of each clock over the prompts in both arms (ms), and ``speedup``, baseline over speculative.

    ``speedup`` is the paired ratio of the clock by the verdict's estimator; None without a prompt that both arms
    answered in one round. ``output_tokens`` is the median of the common lengths of the answers.
    """
    requests = {arm: answers_in(result, groups) for arm, result in results.items()}
    lengths = lengths_of([*requests[BASELINE], *requests[SPECULATIVE]])
    end_to_end = end_to_end_s(lengths)

    def end_to_end_ms(request: Request) -> float | None:
        """The clock `end_to_end` in milliseconds."""
        seconds = end_to_end(request)
        return None if seconds is None else 1000 * seconds

    return {
        "output_tokens": median(lengths.values()) if lengths else None,
        TTFT: _waits(requests, lambda request: request.get("ttft_ms")),
        TTFAT: _waits(requests, lambda request: request.get("ttfat_ms")),
        E2EL: _waits(requests, end_to_end_ms),
    }


def later_first_token(clock: UserClock) -> str | None:
    """A warning if the first token surely comes later than in the baseline by more than `THRESHOLD`; else None."""
    waits = clock[TTFT]
    speedup = waits["speedup"]
    if speedup is None or speedup["high"] >= 1 / THRESHOLD:
        return None
    return f"the first token comes later: {_ms_text(waits['speculative'])} ms for {_ms_text(waits['baseline'])}"


def clocks_text(clock: UserClock) -> str:
    """The clocks that both arms have, as the end of a sentence; TTFAT only if it differs from TTFT; "" without any."""
    titles = {TTFT: "TTFT", TTFAT: "first answer token", E2EL: f"end to end at {whole(clock['output_tokens'])} tokens"}
    names: list[ClockName] = [TTFT, TTFAT, E2EL]
    first_token = clock[TTFT]
    answer_token = clock[TTFAT]
    if (first_token["baseline"], first_token["speculative"]) == (answer_token["baseline"], answer_token["speculative"]):
        names.remove(TTFAT)
    parts = []
    for name in names:
        baseline = clock[name]["baseline"]
        speculative = clock[name]["speculative"]
        if baseline is not None and speculative is not None:
            parts.append(f"{titles[name]} {_ms_text(speculative)} ms (baseline {_ms_text(baseline)})")
    return ", ".join(parts)


def _waits(requests: Mapping[str, Sequence[Request]], clock: Clock) -> Waits:
    """The figures of one clock; ``requests`` is by arm."""
    return {
        "baseline": _median_ms(requests[BASELINE], clock),
        "speculative": _median_ms(requests[SPECULATIVE], clock),
        "speedup": paired_ratio(requests[BASELINE], requests[SPECULATIVE], clock),
    }


def _median_ms(requests: Sequence[Request], clock: Clock) -> float | None:
    """The median over the prompts, per temperature, of each prompt's median, in ms; None without a value."""
    by_prompt: dict[tuple[str, ...], list[float]] = {}
    for request in requests:
        value = clock(request)
        if value is not None:
            by_prompt.setdefault((*prompt_of(request), str(request.get("group"))), []).append(float(value))
    return float(median(map(median, by_prompt.values()))) if by_prompt else None


def _ms_text(value: float | None) -> str:
    """A time in ms as text: whole from 100 on, with significant digits below."""
    if value is None or value < 100:
        return number(value)
    return whole(value)
