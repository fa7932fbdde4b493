"""What a person must know of a step, and what was read beside it laid over it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.format import count
from ..outcome import OK as WELL
from .level import OVERLOAD, LoadRun
from .store import OK, POLLUTED

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Acceptance, Drafting, Request
    from drafthouse.bench.sweep.ladder_types import Beside as Laid
    from drafthouse.bench.sweep.ladder_types import LadderStep


def of_arm_given_up(note: str, arm: str, rounds: Sequence[int]) -> bool:
    """Whether a note is that of `_Ladder.give_up` for this arm, in a round that is measured now."""
    head, found, _ = note.partition("' were not measured: ")
    return (
        bool(found)
        and head.startswith(f"{arm}: the steps after '")
        and any(head.endswith(f", round {number}") for number in rounds)
    )


def remarks(requests: Sequence[Request], run: LoadRun) -> list[str]:
    """What a person must know of a step's requests."""
    bad = [request for request in requests if request["status"] != WELL]
    notes = []
    if bad:
        notes.append(f"{len(bad)} of {len(requests)} requests did not succeed; the first: {bad[0]['error']}")
    if run.ended_by == OVERLOAD:
        notes.append(
            f"the server did not keep up: {run.unfinished + len(requests)} requests started, {len(requests)} ended"
        )
    if run.unfinished:
        notes.append(f"{run.unfinished} requests were still running long after the step and were cancelled")
    return notes


def remarks_on_numbers(step: LadderStep) -> list[str]:
    """What a person must know of a step's numbers."""
    notes = []
    if step["without_tpot"]:
        notes.append(
            f"{step['without_tpot']} of {count(step['completed'], 'answer')} had no TPOT (one token, or all in one "
            "chunk) and are left out"
        )
    if step["short"]:
        notes.append("too short for one answer per stream: the rates cover the whole step")
    return notes


def lay_over(step: LadderStep, more: Laid) -> None:
    """Lay what was read beside a step over it: notes are added, and only a good step can become polluted."""
    step["notes"] += more.get("notes", [])
    if more.get("status") == POLLUTED and step["status"] == OK:
        step["status"] = POLLUTED
    if "power" in more:
        step["power"] = more["power"]
    if "gpus" in more:
        step["gpus"] = more["gpus"]


def drafting(acceptance: Acceptance) -> Drafting:
    """The rate (percent), the mean length and where they are from."""
    return {
        "spec_decode_acceptance_rate": acceptance["spec_decode_acceptance_rate"],
        "spec_decode_acceptance_length": acceptance["spec_decode_acceptance_length"],
        "spec_decode_draft_tokens": acceptance["spec_decode_draft_tokens"],
        "spec_decode_accepted_tokens": acceptance["spec_decode_accepted_tokens"],
        "spec_decode_source": acceptance["spec_decode_source"],
    }
