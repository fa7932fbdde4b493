"""Notes (sentences for people) about a step of a load sweep, and the merging of readings taken during it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.format import count
from ..outcome import OK as REQUEST_OK
from .level import OVERLOAD, LoadRun
from .store import OK, POLLUTED

if TYPE_CHECKING:
    from drafthouse.bench.result_types import Acceptance, Drafting, Request
    from drafthouse.bench.sweep.ladder_types import LadderStep, StepReadings


def is_give_up_note(note: str, arm: str, rounds: Sequence[int]) -> bool:
    """True if a note was written by `_Ladder.give_up` for this arm in one of ``rounds``."""
    head, separator, _ = note.partition("' were not measured: ")
    return (
        bool(separator)
        and head.startswith(f"{arm}: the steps after '")
        and any(head.endswith(f", round {number}") for number in rounds)
    )


def request_notes(requests: Sequence[Request], run: LoadRun) -> list[str]:
    """Notes about failed, unfinished or too many requests of a step."""
    not_ok = [request for request in requests if request["status"] != REQUEST_OK]
    notes = []
    if not_ok:
        notes.append(f"{len(not_ok)} of {len(requests)} requests did not succeed; the first: {not_ok[0]['error']}")
    if run.ended_by == OVERLOAD:
        notes.append(
            f"the server did not keep up: {run.unfinished + len(requests)} requests started, {len(requests)} ended"
        )
    if run.unfinished:
        notes.append(f"{run.unfinished} requests were still running long after the step and were cancelled")
    return notes


def number_notes(step: LadderStep) -> list[str]:
    """Notes about answers without a TPOT, and about a step that is too short for its rates."""
    notes = []
    if step["without_tpot"]:
        notes.append(
            f"{step['without_tpot']} of {count(step['completed'], 'answer')} had no TPOT (one token, or all in one "
            "chunk) and are left out"
        )
    if step["short"]:
        notes.append("too short for one answer per stream: the rates cover the whole step")
    return notes


def merge_readings(step: LadderStep, readings: StepReadings) -> None:
    """Merge readings into a step: notes are appended, and a step with status "ok" may become "polluted"."""
    step["notes"] += readings.get("notes", [])
    if readings.get("status") == POLLUTED and step["status"] == OK:
        step["status"] = POLLUTED
    if "power" in readings:
        step["power"] = readings["power"]
    if "gpus" in readings:
        step["gpus"] = readings["gpus"]


def drafting(acceptance: Acceptance) -> Drafting:
    """The acceptance fields that a step has: the rate in percent, the mean length, token counts and the source."""
    return {
        "spec_decode_acceptance_rate": acceptance["spec_decode_acceptance_rate"],
        "spec_decode_acceptance_length": acceptance["spec_decode_acceptance_length"],
        "spec_decode_draft_tokens": acceptance["spec_decode_draft_tokens"],
        "spec_decode_accepted_tokens": acceptance["spec_decode_accepted_tokens"],
        "spec_decode_source": acceptance["spec_decode_source"],
    }
