"""The doctor: every part's checks over what was read of a box, in the order a person would ask. Pure.

The parts: `doctor_gpu`, `doctor_runtime`, `doctor_box`, `doctor_server`. What is read, and how: `doctor_facts` and
`doctor_asking`, which run on the box. How a check is said: `doctor_words`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.errors import DrafthouseError, Problem, did_you_mean
from .check import Check, of_problem
from .gpu import gpu_checks
from .host import box_checks, outside_checks
from .runtime import runtime_checks
from .server import server_checks, weights_checks

if TYPE_CHECKING:
    from .types import DoctorFacts, Wants


PARTS: Mapping[str, Callable[[Wants, DoctorFacts], list[Check]]] = {
    "gpu": gpu_checks,
    "runtime": runtime_checks,
    "weights": weights_checks,
    "box": box_checks,
    "server": server_checks,
    "outside": outside_checks,
}


def check_parts(parts: Iterable[str]) -> None:
    """Raise DrafthouseError where one of ``parts`` is none of the doctor's."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise DrafthouseError(
            Problem(
                "invalid-option",
                f"the part {', '.join(unknown)}",
                f"parts of the doctor: {', '.join(PARTS)}",
                did_you_mean(unknown[0], PARTS),
                "doctor_parts",
            )
        )


def diagnose(wants: Wants, facts: DoctorFacts, parts: Sequence[str] = ()) -> list[Check]:
    """Return the checks of ``parts``, all of them where none is named.

    ``wants`` is what `doctor_wants` says of the resolved profile, ``facts`` what was read. A part of which something
    could not be read is a failed check with the reason: a sick box is what the doctor is for. Raises DrafthouseError.
    """
    check_parts(parts)
    checks: list[Check] = []
    for part, look in PARTS.items():
        if parts and part not in parts:
            continue
        if part in facts["unread"]:
            checks.append(of_problem(part, facts["unread"][part]))
        else:
            checks += look(wants, facts)
    return checks
