"""Access to an arm's result: its requests, their TPOT, and what disturbed them.

An arm is one of the compared servers, baseline or speculative. A gate is the check of an answer (for a text, a schema,
tool calls), which shows whether speculation changes answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.format import count
from .outcome import OK
from .result_types import ArmResult, Request

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import Disturbance, GroupMachine
    from drafthouse.bench.result_types import CounterReading

Prompt = tuple[str, str]
"""The group and the id of a prompt."""

#: HTTP statuses (RFC 9110) by which a server refuses a feature that it lacks, such as tools or a JSON schema.
REFUSALS = (400, 404, 422, 501)
#: Chunks at most this many ms apart count as one piece: one engine step produced them, or a proxy held them back.
TOGETHER_MS = 0.5
#: An answer that came in fewer pieces has no TPOT (see `time_per_token`).
LEAST_PIECES = 3


def requests_of(result: ArmResult) -> list[Request]:
    """The requests of a result; empty if the file has none."""
    return list(result.get("requests") or [])


def whole_answers(result: ArmResult) -> list[Request]:
    """The requests of a result whose answers are complete (status "ok")."""
    return [request for request in requests_of(result) if request.get("status") == OK]


def rounds_of(requests: Iterable[Request]) -> list[int]:
    """The distinct round numbers in ascending order; None, from files without rounds, comes last."""
    return sorted({r.get("round") for r in requests}, key=lambda number: (number is None, number))


def pieces_of(gaps_ms: Iterable[float]) -> int:
    """The number of pieces of an answer: its chunks, where chunks within `TOGETHER_MS` of each other count as one."""
    return 1 + sum(gap > TOGETHER_MS for gap in gaps_ms)


def time_per_token(
    ttft_ms: float | None, e2el_ms: float | None, output_tokens: int | None, gaps_ms: Sequence[float]
) -> float | None:
    """TPOT: (end - first token) / (tokens - 1) in ms, or None where it cannot be measured.

    ``gaps_ms`` are the times between consecutive chunks that carried tokens. The first piece may hold several tokens
    that arrive together, but the formula counts all but one of them as waited for. With n pieces the error is up to
    1/n; with one piece the TPOT would be 0. The TPOT is therefore None for an answer of fewer than `LEAST_PIECES`
    pieces; an answer of fewer tokens than that needs as many pieces as tokens. It is also None if a time or the number
    of tokens is unknown, or if that number is below 2.
    """
    if ttft_ms is None or e2el_ms is None or not output_tokens or output_tokens < 2:
        return None
    if pieces_of(gaps_ms) < min(output_tokens, LEAST_PIECES):
        return None
    return (e2el_ms - ttft_ms) / (output_tokens - 1)


def measured_tpot(request: Request) -> float | None:
    """The TPOT of a complete answer in ms, or None where it has none.

    The rule of `time_per_token` is applied again, because results of earlier versions have a TPOT for every answer.
    """
    value = request.get("tpot_ms")
    if request.get("status") != "ok" or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    least = min(request.get("output_tokens") or 0, LEAST_PIECES)
    gaps = request.get("itls_ms") or []
    chunks = request.get("chunks")
    if isinstance(chunks, int):  # files of other clients may lack it
        if chunks < least:
            return None
        # Without the gap of every chunk, the pieces cannot be counted, and the file's TPOT is believed.
        if len(gaps) == chunks - 1 and pieces_of(gaps) < least:
            return None
    return float(value)


def disturbances(result: ArmResult) -> list[tuple[str, int, str]]:
    """Disturbances of an arm's measurement: tuples of the group, the round and a sentence.

    A disturbance is another client's traffic on the server, or a suspended machine (`foreign_traffic.py`). Results of
    older versions and engines without counters show none.
    """
    pairs: list[tuple[CounterReading | GroupMachine, Disturbance]] = []  # the group, and what disturbed it
    for reading in result.get("counters") or []:
        traffic = reading.get("foreign")
        # Contradictory token counts are not another client's traffic; `usage_check.py` reports them.
        if traffic and not traffic.get("miscounted"):
            pairs.append((reading, traffic))
    machine = result.get("machine")
    for group in (machine and machine.get("groups")) or []:
        jump = group.get("clock")
        if jump:
            pairs.append((group, jump))
    return [(str(part.get("group")), part.get("round"), str(mark["said"])) for part, mark in pairs if mark["polluted"]]


def rate_limit_sentences(result_by_arm: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each arm of which requests were sent again after HTTP 429."""
    sentences = []
    for arm, result in result_by_arm.items():
        requests = requests_of(result)
        waited = [request for request in requests if request.get("throttled")]
        if waited:
            times = sum(request["throttled"] for request in waited)
            seconds = math.fsum(request["throttled_s"] for request in waited)
            sentences.append(
                f"{arm}: {len(waited)} of {count(len(requests), 'request')} were answered HTTP 429 first, "
                f"{count(times, 'time')} in all, and retried after the wait it asked for ({seconds:.1f} s)"
            )
    return sentences


def refused_or_empty(request: Request) -> bool:
    """True if a gate's request was refused or its answer is empty.

    Such a request counts as a wrong answer, not as a server failure: a server without tools refuses the request. It is
    False for a request without a gate, and for a gate that only compares the arms' answers with each other.
    """
    refused = request.get("status") == "failed" and request.get("http_status") in REFUSALS
    checks = (request.get("gate") or {}).keys() & {"contains", "schema", "tools"}
    return bool(checks) and (refused or request.get("status") == "empty")


def whole_prompt(prompt_id: object) -> str:
    """The prompt id without its repeat number: `vacation#3`, the third request of the prompt, gives `vacation`."""
    return str(prompt_id).partition("#")[0]
