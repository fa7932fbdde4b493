"""The counters of several engines behind one front, as one: their sum, and what each of them did. Pure.

A front's own counters say nothing of drafting, and one engine's nothing of the others, so all of them are read, each at
its own address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ..core.format import listing
from .outcome import OK
from .usage_check import apart

if TYPE_CHECKING:
    from drafthouse.bench.result_types import CounterPair, Counts, Request, Snapshot
    from drafthouse.bench.sweep.ladder_types import ReplicaStep

_COUNTED: tuple[Literal["num_drafts", "draft_tokens", "accepted_tokens"], ...]
_COUNTED = ("num_drafts", "draft_tokens", "accepted_tokens")


def summed(workers: Mapping[str, Snapshot]) -> Snapshot:
    """Return the counters of all workers as those of one engine; ``workers`` in it holds each.

    What one of them does not count, the sum does not. The traffic is left out where one could not be read: a part of it
    would make the others' requests look like a stranger's.
    """
    read = [one for one in workers.values() if one["error"] is None]
    dialects = {one["dialect"] for one in read}
    result: Snapshot = {
        "dialect": dialects.pop() if len(dialects) == 1 else None,
        "present": any(one["present"] for one in read),
        "num_drafts": None,
        "draft_tokens": None,
        "accepted_tokens": None,
        "per_position": [],
        "error": None if read else listing([str(one["error"]) for one in workers.values()]),
        "workers": dict(workers),
    }
    for name in _COUNTED:
        values = [one[name] for one in read]
        known = [value for value in values if value is not None]
        result[name] = sum(known) if values and len(known) == len(values) else None
    longest = max((len(one["per_position"]) for one in read), default=0)
    result["per_position"] = [
        math.fsum(one["per_position"][at] for one in read if at < len(one["per_position"])) for at in range(longest)
    ]
    traffic = [one.get("traffic") for one in workers.values()]
    told = [one for one in traffic if one is not None]
    if told and len(told) == len(traffic):
        keys = set.intersection(*(set(one) for one in told))
        result["traffic"] = {key: math.fsum(one[key] for one in told) for key in sorted(keys)}
    return result


def pairs_of(pair: CounterPair) -> dict[str, CounterPair]:
    """Return the counters of each worker before and after."""
    before, after = pair["before"].get("workers") or {}, pair["after"].get("workers") or {}
    return {name: {"before": before[name], "after": after[name]} for name in after if name in before}


def missing(pair: CounterPair) -> dict[str, str]:
    """Return the workers whose counters could not be read, and why."""
    found = {}
    for name, one in pairs_of(pair).items():
        if error := one["before"]["error"] or one["after"]["error"]:
            found[name] = error
    return found


def restarted(pair: CounterPair) -> list[str]:
    """Return the workers whose engine was started anew in between: by its own word, or as it counts from 0 again."""
    return [name for name, one in pairs_of(pair).items() if _fell(one["before"], one["after"])]


def _fell(before: Snapshot, after: Snapshot) -> bool:
    if before["error"] or after["error"]:
        return False
    if before.get("started_unix_s") != after.get("started_unix_s"):
        return True
    counts = [(before[name] or 0, after[name] or 0) for name in _COUNTED if before["present"]]
    old, new = before.get("traffic") or {}, after.get("traffic") or {}
    counts += [(int(value), int(new.get(key, 0.0))) for key, value in old.items() if key != "running"]
    return any(later < earlier for earlier, later in counts)


def uncounted(pair: CounterPair, requests: Sequence[Request]) -> str | None:
    """Return a sentence where the workers together counted fewer tokens than the answers hold.

    One of them was then started anew without a word, and has counted beyond where it was since, or is not in the list.
    """
    tokens = sum(one["output_tokens"] or 0 for one in requests if one["status"] == OK)
    answers = sum(one["status"] == OK for one in requests)
    moved = [
        _moved(one["before"].get("traffic") or {}, one["after"].get("traffic") or {}).get("output_tokens")
        for one in pairs_of(pair).values()
    ]
    known = [one for one in moved if one is not None]
    if missing(pair) or not moved or len(known) != len(moved):
        return None
    engines = sum(known)
    if engines >= tokens or not apart(engines, tokens, answers):
        return None
    return (
        f"the engines counted {engines:,} output tokens, but the answers contain {tokens:,}: an engine was "
        "restarted during this step, or its counters are not read"
    )


def replica_steps(
    pair: CounterPair, drafted: Mapping[str, Counts | None], requests: Sequence[Request], seconds: float
) -> list[ReplicaStep]:
    """Return what each worker did in a step of ``seconds``; ``drafted`` is what it counted of drafting.

    Failures are counted by the replica that the front named in its answer; the counters' own requests are those that
    ended well.
    """
    lost, gone = missing(pair), restarted(pair)
    # A front may name them otherwise than whoever measures does: then nobody knows whose a failure was.
    named = {one.get("replica") for one in requests} & set(pairs_of(pair))
    found: list[ReplicaStep] = []
    for name, one in pairs_of(pair).items():
        known = name not in lost and name not in gone
        moved = _moved(one["before"].get("traffic") or {}, one["after"].get("traffic") or {}) if known else {}
        tokens, counts = moved.get("output_tokens"), drafted.get(name) if known else None
        failed = sum(own.get("replica") == name and own["status"] != OK for own in requests)
        found.append(
            {
                "name": name,
                "requests": moved.get("requests"),
                "output_tokens": tokens,
                "output_throughput": tokens / seconds if tokens is not None and seconds > 0 else None,
                "draft_tokens": counts["draft_tokens"] if counts else None,
                "accepted_tokens": counts["accepted_tokens"] if counts else None,
                "failed": failed if named else None,
                "said": lost.get(name) or ("its engine was restarted" if name in gone else None),
            }
        )
    return found


def _moved(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, int]:
    return {key: round(value - before.get(key, 0.0)) for key, value in after.items() if key != "running"}
