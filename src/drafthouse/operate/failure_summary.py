"""Problem texts of a failed run: why the new server was refused, and whether the last good server runs again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypedDict

from ..analysis.gates import FAILED
from ..analysis.words import CANNOT_SAY
from ..core.errors import Problem
from ..core.format import listing
from ..serving.restore import shown_server

if TYPE_CHECKING:
    from drafthouse.profiles.resolved_types import ResolvedProfile
    from drafthouse.serving.history import ServerFacts

#: Key in a module's result, set if a newer run on the same box stopped the task (`core/locks.py`).
SUPERSEDED: Final = "superseded"
# Most characters of a reason in the history.
_MAX_LENGTH = 300
# A log line with one of these words tells the cause better than the last line: stdout and stderr mix in any order.
_CAUSES = re.compile(r"error|exception|invalid|fail|fatal|cannot|unable|no such|not found|out of memory|killed", re.I)


class TaskResult(TypedDict, total=False):
    """The result of an Ansible task, with the items of a loop in ``results``. The release module adds ``release``."""

    failed: bool
    msg: str
    problems: list[dict[str, str]] | None
    results: list[TaskResult] | None
    superseded: bool
    release: ServerFacts | None
    seconds: float


class GateSaid(TypedDict):
    """A gate (a check of output quality): its verdict in a word, and a sentence about it."""

    word: str
    said: str


class Judged(TypedDict, total=False):
    """The result of `drafthouse.core.report` about a comparison of two arms."""

    directory: str
    verdict: str
    sentence: str
    reasons: list[str]
    invalid: bool
    gates: list[GateSaid]


def reason_of(failed: TaskResult) -> Problem:
    """The reason of a failed task: the first problem in its result, else Ansible's message."""
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
    """Shorten a problem's ``found`` to a line for the history: its first line and, from a log, the cause."""
    lines = [line.strip() for line in found.splitlines() if line.strip()]
    if not lines:
        return found
    cause = next((line for line in reversed(lines[1:]) if _CAUSES.search(line)), lines[-1])
    return " ".join(dict.fromkeys([lines[0], cause]))[:_MAX_LENGTH]


def is_superseded(failed: TaskResult) -> bool:
    """True if a newer run on the same box stopped the task; that run now controls the server."""
    return any(result.get(SUPERSEDED) for result in (failed, *(failed.get("results") or [])))


def both(failure: Problem, task: str, resolved: ResolvedProfile, result: TaskResult) -> list[Problem]:
    """The problems to report: why the change is refused, and whether the last good server runs again.

    ``result`` is the result of the task that restores the last good server.
    """
    engine = resolved["engine"]
    change = f"{resolved['profile']} ({engine['id']} {engine['version']})"
    where = ": ".join(filter(None, (failure.where, task)))
    refused = Problem(failure.code, f"{change} is not served: {failure.found}", failure.needed, failure.do, where)
    if result.get("failed"):
        reason = reason_of(result)
        return [
            refused,
            Problem(
                reason.code, f"and the last good server could not be restored: {reason.found}", reason.needed, reason.do
            ),
        ]
    facts: ServerFacts = result.get("release") or {}
    if not facts:
        return [refused]
    return [
        refused,
        Problem(
            "last-server-restored",
            f"the last good server runs again: {shown_server(facts)};"
            f" it answers again after {float(result['seconds']):.1f} s",
            "the change itself",
            "fix the cause above and run again; make history shows what served when",
        ),
    ]


def gate_problems(report: Judged, profile: str, serve_arm: str) -> list[Problem]:
    """The problems that keep a measured change from being served: invalid comparison, no verdict, failed gate.

    A gate fails only for the speculative arm, so ``serve_arm: baseline`` is never refused for a gate.
    """
    problems = []
    for reason in report["reasons"] if report["invalid"] else ():
        problems.append(
            Problem(
                "comparison-invalid",
                f"an invalid comparison: {reason}",
                "two arms that differ in speculation only and answered every request",
                "fix that, then run again with -e remeasure=true",
                report["directory"],
            )
        )
    if report.get("verdict") == CANNOT_SAY and serve_arm == "auto":
        problems.append(
            Problem(
                "no-verdict",
                f"no verdict: {report['sentence']}",
                "a verdict before the running server is replaced",
                "measure again on a quiet box with -e remeasure=true, or choose the arm to serve: "
                f"make {profile} ARGS='-e serve_arm=speculative' (or baseline)",
                report["directory"],
            )
        )
    failures = [str(gate["said"]) for gate in report.get("gates") or [] if gate["word"] == FAILED]
    if failures and serve_arm != "baseline":
        problems.append(
            Problem(
                "gate-failed",
                f"a gate fails: {listing(failures)}",
                "output as correct as the baseline's",
                "choose another draft, method or version; or serve it without speculation: "
                f"make {profile} ARGS='-e serve_arm=baseline'",
                report["directory"],
            )
        )
    return problems
