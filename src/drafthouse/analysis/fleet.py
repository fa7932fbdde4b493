"""What a load sweep through a front says of the fleet behind it: its crossover in one sentence, and each replica. Pure.

The crossover itself is `crossover.fill`: a fleet is one server with more room. The level is what the front gets from
all clients together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..core.format import DASH, shown_level
from .crossover import BASELINE, OK, SPECULATIVE, fill
from .crossover_text import load
from .verdict_text import CANNOT_SAY, PAYS

if TYPE_CHECKING:
    from drafthouse.bench.sweep.ladder_types import Crossover, Ladder, LadderStep, ReplicaStep

SCHEMA = "drafthouse.fleet/1"


class ReplicaSum(TypedDict):
    """One replica over the good steps of an arm; None where nobody counted it, or not in every step."""

    name: str
    requests: int | None
    output_tokens: int | None
    output_throughput: float | None
    acceptance_rate: float | None
    failed: int | None
    notes: list[str]


class FleetArm(TypedDict):
    """One arm over the fleet: the client's counts, and each replica's own."""

    arm: str
    steps: int
    completed: int
    failed: int
    replicas: list[ReplicaSum]


class FleetReport(TypedDict):
    """`drafthouse.fleet/1`."""

    schema: str
    boxes: int
    unit: str
    sentences: dict[str, str]
    details: dict[str, str]
    crossover: dict[str, Crossover]
    arms: list[FleetArm]
    notes: list[str]


def fleet_report(ladder: Ladder, boxes: int | None = None) -> FleetReport:
    """Return what the ladder says of the fleet; ``boxes`` None are as many as replicas were counted."""
    steps = ladder["steps"]
    names = {one["name"] for step in steps for one in step.get("replicas") or []}
    number = boxes or len(names) or 1
    arms = [arm for arm in (BASELINE, SPECULATIVE) if any(step["arm"] == arm for step in steps)]
    both = len(arms) == 2
    crossover = fill(ladder) if both else {}
    lacking = [] if both else [f"no crossover: only {arms[0] if arms else 'neither arm'} was measured"]
    return {
        "schema": SCHEMA,
        "boxes": number,
        "unit": ladder["unit"],
        "sentences": {kind: fleet_sentence(number, one) for kind, one in crossover.items()},
        "details": {kind: one.get("sentence", "") for kind, one in crossover.items()},
        "crossover": crossover,
        "arms": [_arm(arm, [step for step in steps if step["arm"] == arm]) for arm in arms],
        "notes": [*lacking, *ladder["notes"], *_step_notes(steps)],
    }


def fleet_sentence(boxes: int, one: Crossover) -> str:
    """Return up to which load speculation pays: "with 4 boxes speculation pays up to about 44 concurrent requests"."""
    fleet = f"with {boxes} {'box' if boxes == 1 else 'boxes'}"
    unit, levels = one["unit"], one["levels"]
    if one["word"] == CANNOT_SAY:
        return f"{fleet}: {CANNOT_SAY} up to which load speculation pays"
    if one["word"] != PAYS:
        lowest, highest = shown_level(levels[0]["level"]), shown_level(levels[-1]["level"])
        span = lowest if lowest == highest else f"{lowest} to {highest}"
        return f"{fleet} speculation {one['word']} at {span} {unit}"
    start = f" from about {load(one['pays_from'])}" if one["pays_from"] is not None else ""
    but = f", but not at {', '.join(load(gap) for gap in one['gaps'])}" if one["gaps"] else ""
    if one["reaches_top"] or one["pays_until"] is None:
        top = shown_level(levels[-1]["level"])
        return f"{fleet} speculation {PAYS}{start} up to {top} {unit}, the most that was measured{but}"
    low, high = one["interval"] or [None, None]
    known = f" ({load(low)}{DASH}{load(high)})" if low is not None and high is not None else ""
    return f"{fleet} speculation {PAYS}{start} up to about {load(one['pays_until'])} {unit}{known}{but}"


def _step_notes(steps: Sequence[LadderStep]) -> list[str]:
    return [
        f"{shown_level(step['level'])}, {step['kind']}, {step['arm']}, round {step['round']} ({step['status']}): {note}"
        for step in steps
        for note in step["notes"]
    ]


def _arm(arm: str, steps: Sequence[LadderStep]) -> FleetArm:
    good = [step for step in steps if step["status"] == OK]
    names = dict.fromkeys(one["name"] for step in steps for one in step.get("replicas") or [])
    seconds = sum(step["duration_s"] for step in good)
    return {
        "arm": arm,
        "steps": len(good),
        "completed": sum(step["completed"] for step in good),
        # Also those of a step that was broken: that is where they are.
        "failed": sum(step["failed"] for step in steps),
        "replicas": [_replica(name, good, steps, seconds) for name in names],
    }


def _replica(name: str, good: Sequence[LadderStep], steps: Sequence[LadderStep], seconds: float) -> ReplicaSum:
    own = [one for step in good for one in step.get("replicas") or [] if one["name"] == name]
    every = [one for step in steps for one in step.get("replicas") or [] if one["name"] == name]
    tokens = _total([one["output_tokens"] for one in own])
    drafted, accepted = _total([one["draft_tokens"] for one in own]), _total([one["accepted_tokens"] for one in own])
    return {
        "name": name,
        "requests": _total([one["requests"] for one in own]),
        "output_tokens": tokens,
        "output_throughput": tokens / seconds if tokens is not None and seconds > 0 else None,
        "acceptance_rate": 100 * accepted / drafted if drafted and accepted is not None else None,
        "failed": _total([one["failed"] for one in every]),
        "notes": _said(every),
    }


def _said(steps: Sequence[ReplicaStep]) -> list[str]:
    return list(dict.fromkeys(one["said"] for one in steps if one["said"]))


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
