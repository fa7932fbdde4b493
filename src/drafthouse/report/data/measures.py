"""The measures of a request (speed, TPOT, latencies), and their values by prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ...bench.result_types import Request
from ...bench.samples import Prompt, measured_tpot

#: Reads a value of a request; None if the request does not have it.
Clock = Callable[[Request], float | None]


def field(name: Literal["ttft_ms", "ttfat_ms", "e2el_ms"]) -> Clock:
    """A function that reads a latency of a complete answer, in ms."""

    def read(request: Request) -> float | None:
        value = request.get(name)
        if request.get("status") != "ok" or not isinstance(value, int | float):
            return None
        return float(value)

    return read


def tokens_per_second(request: Request) -> float | None:
    """The output tokens/s of an answer after its first token; None for an answer too short to have a speed."""
    tpot = measured_tpot(request)
    return 1000.0 / tpot if tpot else None


#: The measures per kind: key in report.json, title, unit, whether larger is better, and the function that reads it.
MEASURES: tuple[tuple[str, str, str, bool, Clock], ...] = (
    ("tok_s", "Output speed", "tok/s", True, tokens_per_second),
    ("tpot_ms", "TPOT", "ms", False, measured_tpot),
    ("ttft_ms", "TTFT", "ms", False, field("ttft_ms")),
    ("ttfat_ms", "First answer", "ms", False, field("ttfat_ms")),
    ("e2el_ms", "Whole answer", "ms", False, field("e2el_ms")),
)


def in_group(requests: Iterable[Request], group: str) -> list[Request]:
    """All requests of a group, also those without a complete answer."""
    return [request for request in requests if str(request.get("group")) == group]


def values_of(requests: Iterable[Request], measure: Clock) -> list[float]:
    """The values of the requests that have a value, in the order of the requests."""
    values = []
    for request in requests:
        value = measure(request)
        if value is not None:
            values.append(value)
    return values


def by_prompt(requests: Iterable[Request], measure: Clock) -> dict[Prompt, list[float]]:
    """The values by (group, prompt id), one per round, without prompts that have no value."""
    values: dict[Prompt, list[float]] = {}
    for request in requests:
        value = measure(request)
        if value is not None:
            values.setdefault((str(request.get("group")), request.get("prompt_id")), []).append(value)
    return values
