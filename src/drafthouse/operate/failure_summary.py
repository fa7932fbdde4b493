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
_MAX_CHARACTERS = 300  # of a reason in the history
# A log line with one of these words tells the cause better than the last line: stdout and stderr mix in any order.
_CAUSES = re.compile(r"error|exception|invalid|fail|fatal|cannot|unable|no such|not found|out of memory|killed", re.I)


class TaskResult(TypedDict, total=False):
    """The result of an Ansible task; keys other than ``failed``, ``msg`` and ``results`` are Drafthouse's own."""

    failed: bool
    msg: str  # Ansible's message, or the module's
    problems: list[dict[str, str]] | None  # as `Problem.as_dict` gives them
    results: list[TaskResult] | None  # of the items of a loop
    superseded: bool
    release: ServerFacts | None  # the restored server; only from the release module, as the next one
    seconds: float  # that it took until that server answered


class GateSaid(TypedDict):
    """A gate (a check of output quality): its verdict in a word, and a sentence about it."""

    word: str
    said: str


class Judged(TypedDict, total=False):
    """The result of the module `drafthouse.core.report` about a comparison of two arms."""

    directory: str  # of the report, on the controller
    verdict: str  # its word (`analysis.words`)
    sentence: str  # the verdict as a sentence
    reasons: list[str]  # why the comparison is invalid; also present for a valid one
    invalid: bool
    gates: list[GateSaid]


def reason_of(failed: TaskResult) -> Problem:
    """The reason of a failed task.

    The first problem in its result or in that of an item of its loop; else the first message, the items' before the
    task's own, as that one only says that an item failed.
    """
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
    """A problem's ``found`` in one line for the history: its first line and, from a log, the line with the cause.

    That is the last of the other lines with a word of `_CAUSES`, else the last line.
    """
    lines = [line.strip() for line in found.splitlines() if line.strip()]
    if not lines:
        return found
    cause = next((line for line in reversed(lines[1:]) if _CAUSES.search(line)), lines[-1])
    # A single line is its own cause; dict.fromkeys keeps it once.
    return " ".join(dict.fromkeys([lines[0], cause]))[:_MAX_CHARACTERS]


def is_superseded(failed: TaskResult) -> bool:
    """True if a newer run on the same box stopped the task; that run now controls the server."""
    return any(result.get(SUPERSEDED) for result in (failed, *(failed.get("results") or [])))


def both(failure: Problem, task: str, resolved: ResolvedProfile, result: TaskResult) -> list[Problem]:
    """The problems to report: why the change is refused, and whether the last good server runs again.

    ``failure`` is the reason why ``task`` failed, ``result`` the result of the task that restores the last good server.
    Where there was none to restore, only the refusal is reported.
    """
    engine = resolved["engine"]
    change = f"{resolved['profile']} ({engine['id']} {engine['version']})"
    where = ": ".join(filter(None, (failure.where, task)))
    problems = [Problem(failure.code, f"{change} is not served: {failure.found}", failure.needed, failure.do, where)]
    server: ServerFacts = result.get("release") or {}
    if result.get("failed"):
        reason = reason_of(result)
        found = f"and the last good server could not be restored: {reason.found}"
        problems.append(Problem(reason.code, found, reason.needed, reason.do))
    elif server:
        found = (
            f"the last good server runs again: {shown_server(server)};"
            f" it answers again after {float(result['seconds']):.1f} s"
        )
        needed = "the change itself"
        do = "fix the cause above and run again; make history shows what served when"
        problems.append(Problem("last-server-restored", found, needed, do))
    return problems


def gate_problems(report: Judged, profile: str, serve_arm: str) -> list[Problem]:
    """The problems that keep a measured change from being served: invalid comparison, no verdict, failed gate.

    ``serve_arm`` is the arm to serve, or ``auto``: the one that the verdict chooses. Only ``auto`` needs a verdict. A
    gate fails only for the speculative arm, so ``serve_arm: baseline`` is never refused for a gate.
    """
    problems = []
    for reason in report["reasons"] if report["invalid"] else ():
        found = f"an invalid comparison: {reason}"
        needed = "two arms that differ in speculation only and answered every request"
        do = "fix that, then run again with -e remeasure=true"
        problems.append(Problem("comparison-invalid", found, needed, do, report["directory"]))
    if report.get("verdict") == CANNOT_SAY and serve_arm == "auto":
        found = f"no verdict: {report['sentence']}"
        needed = "a verdict before the running server is replaced"
        do = (
            "measure again on a quiet box with -e remeasure=true, or choose the arm to serve: "
            f"make {profile} ARGS='-e serve_arm=speculative' (or baseline)"
        )
        problems.append(Problem("no-verdict", found, needed, do, report["directory"]))
    failures = [str(gate["said"]) for gate in report.get("gates") or [] if gate["word"] == FAILED]
    if failures and serve_arm != "baseline":
        found = f"a gate fails: {listing(failures)}"
        needed = "output as correct as the baseline's"
        do = (
            "choose another draft, method or version; or serve it without speculation: "
            f"make {profile} ARGS='-e serve_arm=baseline'"
        )
        problems.append(Problem("gate-failed", found, needed, do, report["directory"]))
    return problems
