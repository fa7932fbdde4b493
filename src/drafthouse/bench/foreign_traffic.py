"""Detect other clients' traffic on the measured server, and jumps of the machine's clock, during a step.

The engine's counters show how much it worked between two readings. Work beyond what the measurement's requests can
have cost came from another client: the step is **polluted**, as its times are those of a shared server.
`Engine.traffic` names the counters of each engine.

The cost of the measurement's requests is computed as an upper bound, so that the work for a request that was cut off or
stopped is never taken for another client's. Other traffic below that bound goes unnoticed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..core.prometheus_text import samples
from ..engines.registry import DIALECTS
from .usage_check import disagree, least_generated

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import ClockJump, Foreign
    from drafthouse.bench.result_types import Cost, Counted, Snapshot

#: Other traffic up to this share of the measurement's tokens is taken for health checks and ignored.
SHARE = 0.02
#: Other traffic up to these numbers of tokens is ignored too, however small the measurement is.
FEW_OUTPUT_TOKENS = 16
FEW_INPUT_TOKENS = 256
#: The longest wait for an engine to finish requests whose client has gone, in seconds.
SETTLE_S = 3.0
#: The polling interval of that wait, in seconds.
LOOK_S = 0.1
#: A difference of two clocks up to this many seconds is no jump: so much may pass between reading one and the other.
JUMP_S = 0.5
#: The fraction by which a time server may run the wall clock faster or slower (0.05 %, adjtimex(2)); no jump either.
SLEW = 0.0005

#: An engine's counters by their common names, see `parse_traffic`.
Traffic = dict[str, float]

#: The common name of a counter by its name in an engine's Prometheus text.
_NAMES = {name: key for engine in DIALECTS.values() for name, key in engine.traffic.items()}
#: Who caused the extra work, by whether the server's usage is wrong (``miscounted``).
_CULPRIT = {False: "another client used the server", True: "usage and the engine's counters disagree"}
_Counter = Literal["requests", "input_tokens", "output_tokens"]
_COUNTERS: tuple[_Counter, ...] = ("requests", "input_tokens", "output_tokens")
#: The cost of a request that the client gave up: unknown, at most its `max_tokens`.
GIVEN_UP: Cost = {
    "status": "failed",
    "input_tokens": None,
    "output_tokens": None,
    "chunks": 0,
    "tool_calls": None,
    "timings": None,
}


def parse_traffic(text: str) -> Traffic:
    """The counters of requests and tokens in an engine's Prometheus text, summed over all labels.

    Keys: requests, input_tokens, output_tokens, cached_tokens (since the server's start), running (requests that run
    or wait now). A counter that the engine does not have is left out.
    """
    by_counter: dict[str, Traffic] = {}
    for sample in samples(text):
        if sample.counter in _NAMES and sample.finite:
            # Kept by spelling: a counter that a server shows with and without `_total` must not count twice.
            spellings = by_counter.setdefault(sample.counter, {})
            spellings[sample.name] = spellings.get(sample.name, 0.0) + sample.value
    traffic: Traffic = {}
    for name, spellings in by_counter.items():
        key = _NAMES[name]
        traffic[key] = traffic.get(key, 0.0) + max(spellings.values())
    return traffic


async def settled(read: Callable[[], Awaitable[Snapshot]], wait_s: float = SETTLE_S) -> Snapshot:
    """The counters once no request runs on the server, or as they are after ``wait_s`` seconds.

    ``read`` reads them (`spec_metrics.read_counters`). An engine continues for a moment with a request whose client
    has gone; this work must not be counted in the next step.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        snapshot = await read()
        if not (snapshot.get("traffic") or {}).get("running") or time.monotonic() >= deadline_s:
            return snapshot
        await asyncio.sleep(LOOK_S)


def foreign_work(before: Snapshot, after: Snapshot, requests: Sequence[Cost], most_tokens: int) -> Foreign | None:
    """The server's work between two snapshots for other clients.

    ``requests`` are all that the measurement sent in between, including failed and stopped ones; ``most_tokens`` is the
    highest `max_tokens` among them. ``polluted`` is True if there was more other work than the constants above allow.
    ``miscounted`` is True if the extra tokens came without extra requests and contradict the server's usage, which is
    then the culprit.

    The result is None if a snapshot has no counters of requests and tokens, if a counter decreased (a restart), or if
    nothing suspicious was seen and no figure is known at all.
    """
    traffic_before, traffic_after = before.get("traffic"), after.get("traffic")
    if traffic_before is None or traffic_after is None:
        return None
    own_max = _own_max(requests, most_tokens)
    extra = _extra(traffic_before, traffic_after, own_max)
    if extra is None:
        return None
    running_before, running_after = _running(traffic_before), _running(traffic_after)
    traffic: Foreign = {
        "requests": extra["requests"],
        "input_tokens": extra["input_tokens"],
        "output_tokens": extra["output_tokens"],
        "running_before": running_before,
        "running_after": running_after,
        "polluted": False,
        "said": None,
    }
    reasons = _reasons(traffic, own_max)
    if not reasons:
        any_known = any(value is not None for value in (*extra.values(), running_before, running_after))
        return traffic if any_known else None
    sums = token_sums(before, after, requests)
    # Another client's request would be an extra request, or would still be running.
    only_output = traffic["requests"] == 0 and not (traffic["input_tokens"] or running_before or running_after)
    miscounted = bool(only_output and sums and disagree(sums["usage"], sums["engine"], sums["answers"]))
    if miscounted:
        traffic["miscounted"] = True
    return traffic | {"polluted": True, "said": f"{_CULPRIT[miscounted]}: {', '.join(reasons)}"}


def _extra(before: Traffic, after: Traffic, cost: Mapping[_Counter, float | None]) -> dict[_Counter, int | None] | None:
    """The increase of each counter beyond ``cost``, the most that the measurement's requests cost; None: unknown.

    The whole result is None if a counter decreased, because the server was restarted in between.
    """
    extra: dict[_Counter, int | None] = {}
    for counter in _COUNTERS:
        increase = _increase(before, after, counter)
        own_cost = cost[counter]
        if increase is not None and increase < 0:
            return None
        extra[counter] = None
        if increase is not None and own_cost is not None:
            extra[counter] = max(0, round(increase - own_cost))
    return extra


def _running(traffic: Traffic) -> int | None:
    """The number of requests that run or wait; None: the engine has no such gauge."""
    running = traffic.get("running")
    return None if running is None else round(running)


def token_sums(before: Snapshot, after: Snapshot, requests: Sequence[Cost]) -> Counted | None:
    """The output tokens of these requests by the engine's counters and by the usage of its answers.

    ``requests`` are all that were sent between the two snapshots. The result is None if there are none, if one has no
    complete answer (and so no usage), if the server still runs a request (its counters are then incomplete), or if the
    counter is missing or decreased.
    """
    traffic_before, traffic_after = before.get("traffic") or {}, after.get("traffic") or {}
    engine = _increase(traffic_before, traffic_after, "output_tokens")
    usage = [request.get("output_tokens") or 0 for request in requests if request.get("status") == "ok"]
    complete = len(usage) == len(requests) > 0 and not traffic_after.get("running")
    if engine is None or engine < 0 or not complete:
        return None
    return {"engine": round(engine), "usage": sum(usage), "answers": len(usage)}


def _increase(before: Traffic, after: Traffic, key: str) -> float | None:
    """The increase of a counter, below 0 if it has vanished; None if it is in neither text.

    A counter that is missing in ``before`` was 0, because Prometheus clients omit labelled counters until their use.
    """
    if key in after:
        return after[key] - before.get(key, 0.0)
    if key in before:
        return -before[key]
    return None


def _own_max(requests: Sequence[Cost], most_tokens: int) -> dict[_Counter, float | None]:
    """The most that the measurement's requests can have cost, for each counter; None where it has no bound."""
    output_tokens = input_tokens = longest = unknown_prompts = 0
    for request in requests:
        # A usage of 0 is no bound, and one below the number of received chunks is too low.
        if request.get("output_tokens"):
            output_tokens += least_generated(request)
        else:
            output_tokens += max(most_tokens, 0)
        prompt = request.get("input_tokens") or 0
        input_tokens += prompt
        longest = max(longest, prompt)
        unknown_prompts += not prompt
    bounded = longest or not unknown_prompts  # False: no prompt's length is known, so there is no bound
    return {
        "requests": float(len(requests)),
        "output_tokens": float(output_tokens),
        # A prompt of unknown length counts as the longest known one.
        "input_tokens": float(input_tokens + unknown_prompts * longest) if bounded else None,
    }


def _reasons(traffic: Foreign, own_max: Mapping[_Counter, float | None]) -> list[str]:
    """Parts of a sentence that say why a step is polluted; empty if it is not."""
    reasons = []
    limits: Mapping[_Counter, int] = {"output_tokens": FEW_OUTPUT_TOKENS, "input_tokens": FEW_INPUT_TOKENS}
    for key, tolerated in limits.items():
        extra = traffic[key]
        own_cost = own_max[key]
        if extra is not None and extra > max(tolerated, SHARE * (own_cost or 0)):
            reasons.append(
                f"{extra:,.0f} {key.replace('_', ' ')} more than the {own_cost:,.0f} that our requests account for"
            )
    # Requests are compared only without token counts, because a health check is a request too.
    requests = traffic["requests"]
    if traffic["output_tokens"] is None and requests and requests > SHARE * (own_max["requests"] or 0):
        reasons.append(f"{requests:.0f} requests more than our {own_max['requests']:.0f}")
    for running, when in (
        (traffic["running_before"], "before we began"),
        (traffic["running_after"], "after ours had ended"),
    ):
        if running:
            reasons.append(f"{running} of its requests were running {when}")
    return reasons


# --- the clock --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clocks:
    """The machine's clocks at one moment, in seconds.

    ``unix_s`` is the wall clock, which people and time servers set. ``monotonic_s`` never goes back, and stops while
    the machine is suspended. ``boot_s`` continues then; it is None where the system has no such clock.
    """

    unix_s: float
    monotonic_s: float
    boot_s: float | None


def read_clocks() -> Clocks:
    """The clocks now."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return Clocks(time.time(), time.monotonic(), None if boot is None else time.clock_gettime(boot))


def clock_jump(before: Clocks, after: Clocks) -> ClockJump | None:
    """How far the clocks moved apart between two moments; None if they agree within `JUMP_S` and `SLEW`.

    ``jump_s`` is how far the wall clock was set forward (below 0: backward; 0: not set). Measured times do not use that
    clock, so the step stays valid. ``suspended_s`` is how long the machine was suspended. That breaks or delays
    streams, so the step is ``polluted``.
    """
    ran_s = after.monotonic_s - before.monotonic_s
    suspended_s = 0.0
    if before.boot_s is not None and after.boot_s is not None:
        suspended_s = after.boot_s - before.boot_s - ran_s
    if suspended_s <= JUMP_S:
        suspended_s = 0.0
    jump_s = after.unix_s - before.unix_s - ran_s - suspended_s
    jumped = abs(jump_s) > JUMP_S + SLEW * ran_s
    if not jumped and not suspended_s:
        return None
    sentences = []
    if suspended_s:
        sentences.append(f"the machine was suspended for {suspended_s:.1f} s during the measurement")
    if jumped:
        direction = "forward" if jump_s > 0 else "back"
        sentences.append(
            f"the machine's clock was set {direction} by {abs(jump_s):.1f} s; measured times use another clock"
        )
    return {
        "jump_s": round(jump_s, 3) if jumped else 0.0,
        "suspended_s": round(suspended_s, 3),
        "polluted": bool(suspended_s),
        "said": "; ".join(sentences),
    }
