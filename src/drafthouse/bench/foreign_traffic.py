"""Was the server ours alone while a step was measured, and did the machine's clock run through.

The engine's own counters say how much it worked between two readings. What it did more than our requests account
for was asked by somebody else: the step is **polluted**, and its times are about two clients. Which counters are read
is `Engine.traffic` of each engine.

What our own requests may have cost is taken at its highest, so that a request of ours that was cut off or stopped
is never taken for somebody else's; the price is that a stranger's traffic of that size goes unseen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..core.prometheus_text import samples
from ..engines.registry import DIALECTS
from .usage_check import apart, least_generated

if TYPE_CHECKING:
    from drafthouse.bench.machine_types import ClockJump, Foreign
    from drafthouse.bench.result_types import Cost, Counted, Snapshot

#: Less than this share of our own tokens is a health check, and moves no median.
SHARE = 0.02
#: Nor do so few tokens, however little we asked for ourselves.
FEW_OUTPUT_TOKENS, FEW_INPUT_TOKENS = 16, 256
#: How long to wait for the server to finish what was cut off, and how often to look, in seconds.
SETTLE_S, LOOK_S = 3.0, 0.1
#: The wall clock may be slewed by 0.05 % (adjtimex(2)): a step of this many seconds is none of that.
JUMP_S, SLEW = 0.5, 0.0005

Traffic = dict[str, float]

_NAMES = {name: key for engine in DIALECTS.values() for name, key in engine.traffic.items()}
_CULPRIT = {False: "another client used the server", True: "usage and the engine's counters disagree"}
_Counter = Literal["requests", "input_tokens", "output_tokens"]
_COUNTERS: tuple[_Counter, ...] = ("requests", "input_tokens", "output_tokens")
#: A request that was given up: it can have cost what it asked for.
GIVEN_UP: Cost = {
    "status": "failed",
    "input_tokens": None,
    "output_tokens": None,
    "chunks": 0,
    "tool_calls": None,
    "timings": None,
}


def parse_traffic(text: str) -> Traffic:
    """What a Prometheus text says of an engine's work, summed over all labels.

    Keys: requests, input_tokens, output_tokens, cached_tokens (since the server's start), running (now, those in
    the queue included). A key that the engine does not have is left out.
    """
    found: dict[str, Traffic] = {}
    for sample in samples(text):
        if sample.counter in _NAMES and sample.finite:
            # By spelling: where a server writes a counter with and without `_total`, it is one counter.
            spellings = found.setdefault(sample.counter, {})
            spellings[sample.name] = spellings.get(sample.name, 0.0) + sample.value
    traffic: Traffic = {}
    for name, spellings in found.items():
        key = _NAMES[name]
        traffic[key] = traffic.get(key, 0.0) + max(spellings.values())
    return traffic


async def settled(read: Callable[[], Awaitable[Snapshot]], wait_s: float = SETTLE_S) -> Snapshot:
    """The counters once nothing runs on the server, or as they are after ``wait_s`` seconds.

    ``read`` is `spec_metrics.read_counters` with its arguments. An engine goes on for a moment with a request whose
    client has gone, and what it does then must not be counted in the next step.
    """
    until = time.monotonic() + wait_s
    while True:
        snapshot = await read()
        if not (snapshot.get("traffic") or {}).get("running") or time.monotonic() >= until:
            return snapshot
        await asyncio.sleep(LOOK_S)


def foreign(before: Snapshot, after: Snapshot, requests: Sequence[Cost], most_tokens: int) -> Foreign | None:
    """What the server did between two snapshots for somebody else; None where its counters cannot tell.

    ``requests`` are all that were sent to it between the two, those that failed or were stopped included;
    ``most_tokens`` is the highest number of output tokens that one of them asked for. ``miscounted`` is True where the
    server answered no more requests than ours, and yet made more tokens than its usage says: then that is wrong.
    """
    one, two = before.get("traffic"), after.get("traffic")
    if one is None or two is None:
        return None
    own = _own(requests, most_tokens)
    beyond = _beyond(one, two, own)
    if beyond is None:
        return None
    running_before, running_after = _running(one), _running(two)
    found: Foreign = {
        "requests": beyond["requests"],
        "input_tokens": beyond["input_tokens"],
        "output_tokens": beyond["output_tokens"],
        "running_before": running_before,
        "running_after": running_after,
        "polluted": False,
        "said": None,
    }
    reasons = _reasons(found, own)
    if not reasons:
        known = any(value is not None for value in (*beyond.values(), running_before, running_after))
        return found if known else None
    tokens = counted(before, after, requests)
    # A stranger's request is one more, or still under way.
    alone = found["requests"] == 0 and not (found["input_tokens"] or running_before or running_after)
    miscounted = bool(alone and tokens and apart(tokens["usage"], tokens["engine"], tokens["answers"]))
    if miscounted:
        found["miscounted"] = True
    return found | {"polluted": True, "said": f"{_CULPRIT[miscounted]}: {', '.join(reasons)}"}


def _beyond(before: Traffic, after: Traffic, own: Mapping[_Counter, float | None]) -> dict[_Counter, int | None] | None:
    """How far each counter moved beyond what our requests cost at most, each None where that is not known.

    None for a server that was started anew in between: it counts from 0 again.
    """
    beyond: dict[_Counter, int | None] = {}
    for counter in _COUNTERS:
        moved, ours = _moved(before, after, counter), own[counter]
        if moved is not None and moved < 0:
            return None
        beyond[counter] = None
        if moved is not None and ours is not None:
            beyond[counter] = max(0, round(moved - ours))
    return beyond


def _running(traffic: Traffic) -> int | None:
    running = traffic.get("running")
    return None if running is None else round(running)


def counted(before: Snapshot, after: Snapshot, requests: Sequence[Cost]) -> Counted | None:
    """The output tokens of some requests by the engine's counters and by its usage; None where one is unknown.

    ``requests`` are all that were sent between the two snapshots. One that did not end well has made tokens that
    nobody counted for us, and a server that still works has not counted all of its own.
    """
    one, two = before.get("traffic") or {}, after.get("traffic") or {}
    engine = _moved(one, two, "output_tokens")
    usage = [request.get("output_tokens") or 0 for request in requests if request.get("status") == "ok"]
    whole = len(usage) == len(requests) > 0 and not two.get("running")
    if engine is None or engine < 0 or not whole:
        return None
    return {"engine": round(engine), "usage": sum(usage), "answers": len(usage)}


def _moved(before: Traffic, after: Traffic, key: str) -> float | None:
    """How far a counter moved; one that has no line yet has counted nothing (Prometheus' labelled ones)."""
    if key in after:
        return after[key] - before.get(key, 0.0)
    if key in before:
        return -before[key]
    return None


def _own(requests: Sequence[Cost], most_tokens: int) -> dict[_Counter, float | None]:
    """The most that our requests can have cost, each None where that has no bound."""
    output_tokens = input_tokens = longest = unknown = 0
    for request in requests:
        # A usage of nothing is no bound, and one too low is none either: what came in the stream was made for us.
        if request.get("output_tokens"):
            output_tokens += least_generated(request)
        else:
            output_tokens += max(most_tokens, 0)
        prompt = request.get("input_tokens") or 0
        input_tokens += prompt
        longest = max(longest, prompt)
        unknown += not prompt
    bounded = longest or not unknown
    return {
        "requests": float(len(requests)),
        "output_tokens": float(output_tokens),
        # An unknown prompt counts as the longest of the others.
        "input_tokens": float(input_tokens + unknown * longest) if bounded else None,
    }


def _reasons(found: Foreign, own: Mapping[_Counter, float | None]) -> list[str]:
    reasons = []
    limits: Mapping[_Counter, int] = {"output_tokens": FEW_OUTPUT_TOKENS, "input_tokens": FEW_INPUT_TOKENS}
    for key, few in limits.items():
        extra, ours = found[key], own[key]
        if extra is not None and extra > max(few, SHARE * (ours or 0)):
            reasons.append(
                f"{extra:,.0f} {key.replace('_', ' ')} more than the {ours:,.0f} that our requests account for"
            )
    # Where tokens are counted they say more: a probe is a request as well.
    requests = found["requests"]
    if found["output_tokens"] is None and requests and requests > SHARE * (own["requests"] or 0):
        reasons.append(f"{requests:.0f} requests more than our {own['requests']:.0f}")
    for count, when in (
        (found["running_before"], "before we began"),
        (found["running_after"], "after ours had ended"),
    ):
        if count:
            reasons.append(f"{count} of its requests were running {when}")
    return reasons


# --- the clock --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clocks:
    """The machine's clocks at one moment, in seconds.

    ``unix_s`` is the wall clock, which people and time servers set; ``monotonic_s`` only runs forward, and stands
    while the machine is suspended; ``boot_s`` runs on then, and is None where the system has no such clock.
    """

    unix_s: float
    monotonic_s: float
    boot_s: float | None


def read_clocks() -> Clocks:
    """The clocks now."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return Clocks(time.time(), time.monotonic(), None if boot is None else time.clock_gettime(boot))


def clock_jump(before: Clocks, after: Clocks) -> ClockJump | None:
    """How the clocks disagree about the time in between; None where they agree.

    ``jump_s`` is how far the wall clock was set forward (backward below 0). Nothing that is measured hangs on it,
    so such a step stays good. ``suspended_s`` is how long the machine stood still: streams were torn or delayed by
    it, so ``polluted`` is True.
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
