"""Why a change is not served, and what became of the server before it: the two reasons of a run that failed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypedDict

from ..analysis.gates import FAILED
from ..analysis.words import CANNOT_SAY
from ..core.errors import Problem
from ..core.format import listing
from ..serving.restore import shown

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.history import ServerFacts

#: What a module's result carries where a newer run on the same box ended it (`core/locks.py`).
SUPERSEDED: Final = "superseded"
# Characters of a reason in the history.
_LONGEST = 300
# A line of a log with one of these is the reason sooner than the one below it: two streams end in any order.
_TELLING = re.compile(r"error|exception|invalid|fail|fatal|cannot|unable|no such|not found|out of memory|killed", re.I)


class TaskResult(TypedDict, total=False):
    """What a task of Ansible's came to, also that of a loop, and what `drafthouse.core.release` adds to it."""

    failed: bool
    msg: str
    problems: list[dict[str, str]] | None
    results: list[TaskResult] | None
    superseded: bool
    release: ServerFacts | None
    seconds: float


class GateSaid(TypedDict):
    """A gate's word and its sentence."""

    word: str
    said: str


class Judged(TypedDict, total=False):
    """What `drafthouse.core.report` returns of a comparison."""

    directory: str
    verdict: str
    sentence: str
    reasons: list[str]
    invalid: bool
    gates: list[GateSaid]


def reason_of(failed: TaskResult) -> Problem:
    """Why a task failed: its first problem in our words, else Ansible's own message."""
    items = failed.get("results") or []
    for result in (failed, *items):
        for problem in result.get("problems") or []:
            return Problem.of(problem)
    message = ""
    for result in (*items, failed):
        message = message or str(result.get("msg") or "")
    message = message.strip() or "a task that failed without output"
    return Problem("task-failed", message, "a task to succeed", "look above")


def brief(found: str) -> str:
    """What was found in one line, for the history: its first line, and of a log the reason."""
    lines = [line.strip() for line in found.splitlines() if line.strip()]
    if not lines:
        return found
    reason = next((line for line in reversed(lines[1:]) if _TELLING.search(line)), lines[-1])
    return " ".join(dict.fromkeys([lines[0], reason]))[:_LONGEST]


def is_superseded(failed: TaskResult) -> bool:
    """Tell whether a newer run on the same box ended the task: the server is that run's by now."""
    return any(result.get(SUPERSEDED) for result in (failed, *(failed.get("results") or [])))


def both(why: Problem, task: str, resolved: ResolvedProfile, back: TaskResult) -> list[Problem]:
    """What to say: why the change is refused, and what became of the last good server.

    ``back`` is the result of bringing it back.
    """
    engine = resolved["engine"]
    change = f"{resolved['profile']} ({engine['id']} {engine['version']})"
    where = ": ".join(filter(None, (why.where, task)))
    refused = Problem(why.code, f"{change} is not served: {why.found}", why.needed, why.do, where)
    if back.get("failed"):
        second = reason_of(back)
        return [
            refused,
            Problem(
                second.code, f"and the last good server could not be restored: {second.found}", second.needed, second.do
            ),
        ]
    facts: ServerFacts = back.get("release") or {}
    if not facts:
        return [refused]
    return [
        refused,
        Problem(
            "last-server-restored",
            f"the last good server runs again: {shown(facts)}; it answers again after {float(back['seconds']):.1f} s",
            "the change itself",
            "fix the cause above and run again; make history shows what served when",
        ),
    ]


def gate_problems(report: Judged, profile: str, serve_arm: str) -> list[Problem]:
    """Why a measured change may not serve: no valid comparison, none that can be told, or a gate that fails.

    Of wrong answers the speculative arm alone can be guilty:
    whoever asked for the baseline by ``serve_arm`` is refused it for none.
    """
    found = []
    for reason in report["reasons"] if report["invalid"] else ():
        found.append(
            Problem(
                "comparison-invalid",
                f"an invalid comparison: {reason}",
                "two arms that differ in speculation only and answered every request",
                "fix that, then run again with -e remeasure=true",
                report["directory"],
            )
        )
    if report.get("verdict") == CANNOT_SAY and serve_arm == "auto":
        found.append(
            Problem(
                "no-verdict",
                f"no verdict: {report['sentence']}",
                "a verdict before the running server is replaced",
                "measure again on a quiet box with -e remeasure=true, or choose the arm to serve: "
                f"make {profile} ARGS='-e serve_arm=speculative' (or baseline)",
                report["directory"],
            )
        )
    gates = [str(gate["said"]) for gate in report.get("gates") or [] if gate["word"] == FAILED]
    if gates and serve_arm != "baseline":
        found.append(
            Problem(
                "gate-failed",
                f"a gate fails: {listing(gates)}",
                "output as correct as the baseline's",
                "choose another draft, method or version; or serve it without speculation: "
                f"make {profile} ARGS='-e serve_arm=baseline'",
                report["directory"],
            )
        )
    return found
