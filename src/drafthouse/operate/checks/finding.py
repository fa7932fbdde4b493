"""The finding of a check, its text line and JSON form, and the exit status of all findings together.

The functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...core.errors import Problem
from ...core.exit_codes import DONE, FAILED, WARNED
from ...core.format import count
from ...core.plain_text import printable
from ...core.typed import with_verbs

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

#: The statuses of a finding. ``not here``: the check does not apply to this box, and ``found`` says why; it is never
#: counted as ok.
OK, WARN, FAIL, NOT_HERE = "ok", "warn", "fail", "not here"
STATUSES = (OK, WARN, FAIL, NOT_HERE)
#: Environment variable that names the JSON file to which the Ansible callback writes the checks of a run.
FILE = "DRAFTHOUSE_DOCTOR_FILE"
_STATUS_WORDS = {OK: "ok", WARN: "warning", FAIL: "failed", NOT_HERE: "skipped"}
_NAME_WIDTH = 22  # characters: the longest name of a check, so that the texts of all lines begin in one column


@dataclass(frozen=True)
class Finding:
    """The result of a check: what it ``found``, what is ``needed``, what to ``do``. The registry sets id and name."""

    status: str  # one of `STATUSES`
    found: str
    needed: str = ""  # '' where nothing need be said, as in a check that does not apply
    do: str = ""  # '' unless it warns or fails
    id: str = ""  # of the check (`registry.Check`)
    name: str = ""  # in the doctor's output

    def as_dict(self) -> dict[str, str]:
        """The finding as a dict, for JSON; id and name come first, for people who read the file."""
        return {"id": self.id, "name": self.name, **asdict(self)}

    @property
    def line(self) -> str:
        """The finding as one line of text; ``needed`` and ``do`` appear only in a warning or a failure."""
        parts = [self.found]
        if self.needed and self.status in (WARN, FAIL):
            parts.append(f"needed: {self.needed}")
        if self.do and self.status in (WARN, FAIL):
            parts.append(f"do: {self.do}")
        text = " ".join(with_verbs("; ".join(parts)).split())
        return printable(f"{_STATUS_WORDS[self.status]:<8}  {self.name:<{_NAME_WIDTH}}  {text}")


if TYPE_CHECKING:
    #: The result of a check's function; None or [] where there is nothing to report.
    CheckResult = Finding | list[Finding] | None
    CheckFunction = Callable[[Run, DoctorFacts], CheckResult]


def ok(found: str, needed: str = "") -> Finding:
    """A finding that the requirement is met."""
    return Finding(OK, found, needed)


def warn(found: str, needed: str, do: str) -> Finding:
    """A finding about something that works now and may fail later."""
    return Finding(WARN, found, needed, do)


def fail(found: str, needed: str, do: str) -> Finding:
    """A finding about something broken, or exposed that must not be."""
    return Finding(FAIL, found, needed, do)


def not_here(why: str) -> Finding:
    """A finding that the check does not apply, with the reason."""
    return Finding(NOT_HERE, why)


def of_problem(problem: Problem | Mapping[str, str], status: str = FAIL) -> Finding:
    """The finding that a problem, or its dict form, means; ``found`` begins with the problem's place if it has one."""
    if not isinstance(problem, Problem):
        problem = Problem.of(problem)
    found = f"{problem.where}: {problem.found}" if problem.where else problem.found
    return Finding(status, found, problem.needed, problem.do)


def exit_code(findings: Iterable[Mapping[str, str] | Finding]) -> int:
    """The exit code of a doctor with these findings, or their dict forms.

    FAILED if a finding failed, or if there is no finding at all, as nothing was checked then; else WARNED if one is a
    warning; else DONE.
    """
    statuses = set()
    for finding in findings:
        statuses.add(finding.status if isinstance(finding, Finding) else finding["status"])
    if FAIL in statuses or not statuses:
        return FAILED
    if WARN in statuses:
        return WARNED
    return DONE


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each status: ``9 ok, 1 warning, 2 failed, 3 skipped``; 0 is shown for ok only."""
    counts = Counter(finding.status for finding in findings)
    parts = [f"{counts[OK]} ok"]
    if counts[WARN]:
        parts.append(count(counts[WARN], "warning"))
    for status in (FAIL, NOT_HERE):
        if counts[status]:
            parts.append(f"{counts[status]} {_STATUS_WORDS[status]}")
    return ", ".join(parts)


def report(host: str, findings: Sequence[Finding]) -> list[str]:
    """The doctor's lines about one box: one per finding, then the summary."""
    return [*(f"  {finding.line}" for finding in findings), f"{host}: {summary(findings)}"]
