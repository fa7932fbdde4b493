"""What is measured of a request, and of a prompt that was asked several times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from ...bench.result_types import Request
from ...bench.samples import Prompt, measured_tpot

#: What a request gives; None where it has no such value.
Clock = Callable[[Request], float | None]


def field(name: Literal["ttft_ms", "ttfat_ms", "e2el_ms"]) -> Clock:
    """What reads one latency of a whole answer, in ms."""

    def read(request: Request) -> float | None:
        value = request.get(name)
        if request.get("status") != "ok" or not isinstance(value, int | float):
            return None
        return float(value)

    return read


def tokens_per_second(request: Request) -> float | None:
    """An answer's output speed after its first token."""
    tpot = measured_tpot(request)
    return 1000.0 / tpot if tpot else None


#: What is measured per kind: name in the data, title, unit, larger is better, value of one request.
MEASURES: tuple[tuple[str, str, str, bool, Clock], ...] = (
    ("tok_s", "Output speed", "tok/s", True, tokens_per_second),
    ("tpot_ms", "TPOT", "ms", False, measured_tpot),
    ("ttft_ms", "TTFT", "ms", False, field("ttft_ms")),
    ("ttfat_ms", "First answer", "ms", False, field("ttfat_ms")),
    ("e2el_ms", "Whole answer", "ms", False, field("e2el_ms")),
)


def in_group(requests: Iterable[Request], group: str) -> list[Request]:
    """The requests of one group, whole answers or not."""
    return [request for request in requests if str(request.get("group")) == group]


def values_of(requests: Iterable[Request], measure: Clock) -> list[float]:
    """The values of the requests that have one, in the order of the requests."""
    values = []
    for request in requests:
        value = measure(request)
        if value is not None:
            values.append(value)
    return values


def by_prompt(requests: Iterable[Request], measure: Clock) -> dict[Prompt, list[float]]:
    """The values of every prompt that has a value."""
    found: dict[Prompt, list[float]] = {}
    for request in requests:
        value = measure(request)
        if value is not None:
            found.setdefault((str(request.get("group")), request.get("prompt_id")), []).append(value)
    return found
