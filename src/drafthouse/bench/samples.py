"""What one arm measured, as its result holds it: requests, rounds, and the time per token of each prompt."""

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

#: What a server answers to a request whose form it does not take (RFC 9110): no tools here, no such schema.
REFUSALS = (400, 404, 422, 501)
#: Chunks this near to each other came together, in ms: what one step of an engine accepted, or what a proxy held back.
TOGETHER_MS = 0.5
#: In fewer pieces no time per token can be read off an answer.
LEAST_PIECES = 3


def requests_of(result: ArmResult) -> list[Request]:
    """The raw requests of a result."""
    return list(result.get("requests") or [])


def whole_answers(result: ArmResult) -> list[Request]:
    """The requests of a result that were answered as a whole."""
    return [request for request in requests_of(result) if request.get("status") == OK]


def rounds_of(requests: Iterable[Request]) -> list[int]:
    """The numbers of the rounds, in order."""
    return sorted({r.get("round") for r in requests}, key=lambda value: (value is None, value))


def pieces_of(gaps_ms: Iterable[float]) -> int:
    """The number of pieces in which an answer came: its chunks, those taken for one that came together."""
    return 1 + sum(gap > TOGETHER_MS for gap in gaps_ms)


def time_per_token(
    ttft_ms: float | None, e2el_ms: float | None, output_tokens: int | None, gaps_ms: Sequence[float]
) -> float | None:
    """(end - first token) / (tokens - 1) in ms, or None where that means nothing.

    ``gaps_ms`` are the times between the chunks that carried tokens. The first piece of an answer holds several tokens,
    and the formula takes all but one of them for tokens that were waited for: an error of up to one part in as many
    as there are pieces. Below `LEAST_PIECES` (or a piece for each token, in a shorter answer) it is no measurement:
    of an answer in one piece it would be 0.
    """
    if ttft_ms is None or e2el_ms is None or not output_tokens or output_tokens < 2:
        return None
    if pieces_of(gaps_ms) < min(output_tokens, LEAST_PIECES):
        return None
    return (e2el_ms - ttft_ms) / (output_tokens - 1)


def measured_tpot(request: Request) -> float | None:
    """The TPOT of a whole answer in ms, or None where it has none (see `time_per_token`).

    It is asked of results of earlier versions too, which gave a TPOT to any answer.
    """
    value = request.get("tpot_ms")
    if request.get("status") != "ok" or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    least = min(request.get("output_tokens") or 0, LEAST_PIECES)
    gaps, chunks = request.get("itls_ms") or [], request.get("chunks")
    if isinstance(chunks, int) and (chunks < least or (len(gaps) == chunks - 1 and pieces_of(gaps) < least)):
        return None
    return float(value)


def disturbances(result: ArmResult) -> list[tuple[str, int, str]]:
    """What disturbed an arm while it was measured: the group, the round, and a sentence.

    That is somebody else's traffic on its server, and a machine that was suspended (`foreign_traffic.py`). A result of
    an older version, and an engine that counts nothing, tell nothing of it.
    """
    found: list[tuple[CounterReading | GroupMachine, Disturbance]] = []
    for reading in result.get("counters") or []:
        traffic = reading.get("foreign")
        # Where its own counts contradict each other, that is no stranger's doing (`usage_check.py` says it).
        if traffic and not traffic.get("miscounted"):
            found.append((reading, traffic))
    machine = result.get("machine")
    for group in (machine and machine.get("groups")) or []:
        jump = group.get("clock")
        if jump:
            found.append((group, jump))
    return [(str(part.get("group")), part.get("round"), str(bad["said"])) for part, bad in found if bad["polluted"]]


def throttled(result_by_arm: Mapping[str, ArmResult]) -> list[str]:
    """A sentence for each arm that was told to come back later (HTTP 429): its clocks begin at the last try."""
    found = []
    for arm, result in result_by_arm.items():
        requests = requests_of(result)
        waited = [request for request in requests if request.get("throttled")]
        if waited:
            times = sum(request["throttled"] for request in waited)
            seconds = math.fsum(request["throttled_s"] for request in waited)
            found.append(
                f"{arm}: {len(waited)} of {count(len(requests), 'request')} were answered HTTP 429 first, "
                f"{count(times, 'time')} in all, and retried after the wait it asked for ({seconds:.1f} s)"
            )
    return found


def gave_nothing(request: Request) -> bool:
    """Whether a server refused what a gate tries (tools, a schema), or answered it with nothing at all.

    Then the gate judges it: it is an answer, a wrong one, and no breakdown of the server. A gate that only compares
    answers with each other judges none.
    """
    refused = request.get("status") == "failed" and request.get("http_status") in REFUSALS
    looked_at = (request.get("gate") or {}).keys() & {"contains", "schema", "tools"}
    return bool(looked_at) and (refused or request.get("status") == "empty")


def whole_prompt(prompt_id: object) -> str:
    """The prompt that an id is about: `vacation#3` is the third time that `vacation` is asked."""
    return str(prompt_id).partition("#")[0]
