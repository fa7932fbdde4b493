"""What a check found: the line and the JSON that it is written as, and the exit status of several. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...core.errors import Problem
from ...core.exit_codes import DONE, FAILED, WARNED
from ...core.format import count
from ...core.plain_text import printable
from ...core.typed import typed

if TYPE_CHECKING:
    from drafthouse.operate.doctor.types import DoctorFacts
    from drafthouse.profiles.resolved_types import Run

#: ``not here``: the check does not apply to this box, and ``found`` says why. It is never counted as ok.
OK, WARN, FAIL, NOT_HERE = "ok", "warn", "fail", "not here"
STATUSES = (OK, WARN, FAIL, NOT_HERE)
#: A variable of the environment: the file into which the callback writes all checks of a run, as JSON.
FILE = "DRAFTHOUSE_DOCTOR_FILE"
_SHOWN = {OK: "ok", WARN: "warning", FAIL: "failed", NOT_HERE: "skipped"}
_NAME_WIDTH = 22


@dataclass(frozen=True)
class Finding:
    """What a check found. Its id and its name come from the list of checks; one of several names itself."""

    status: str
    found: str
    needed: str = ""
    do: str = ""
    id: str = ""
    name: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain data, for JSON."""
        return {"id": self.id, "name": self.name, **asdict(self)}

    @property
    def line(self) -> str:
        """The finding in one line; where all is well what was found is enough."""
        parts = [self.found]
        if self.needed and self.status in (WARN, FAIL):
            parts.append(f"needed: {self.needed}")
        if self.do and self.status in (WARN, FAIL):
            parts.append(f"do: {self.do}")
        text = " ".join(typed("; ".join(parts)).split())
        return printable(f"{_SHOWN[self.status]:<8}  {self.name:<{_NAME_WIDTH}}  {text}")


if TYPE_CHECKING:
    #: What a check says: nothing where there is nothing to look at.
    Answer = Finding | list[Finding] | None
    Look = Callable[[Run, DoctorFacts], Answer]


def ok(found: str, needed: str = "") -> Finding:
    """What is needed and was found."""
    return Finding(OK, found, needed)


def warn(found: str, needed: str, do: str) -> Finding:
    """What works now, and may not tomorrow."""
    return Finding(WARN, found, needed, do)


def fail(found: str, needed: str, do: str) -> Finding:
    """What does not work, or is open where it must be closed."""
    return Finding(FAIL, found, needed, do)


def not_here(why: str) -> Finding:
    """The reason why a check does not apply."""
    return Finding(NOT_HERE, why)


def of_problem(problem: Problem | Mapping[str, str], status: str = FAIL) -> Finding:
    """A problem, also one in its plain form, as a finding."""
    if not isinstance(problem, Problem):
        problem = Problem.of(problem)
    found = f"{problem.where}: {problem.found}" if problem.where else problem.found
    return Finding(status, found, problem.needed, problem.do)


def exit_code(findings: Iterable[Mapping[str, str] | Finding]) -> int:
    """DONE, WARNED where one warns, FAILED where one fails or nothing was looked at."""
    statuses = set()
    for finding in findings:
        statuses.add(finding.status if isinstance(finding, Finding) else finding["status"])
    if FAIL in statuses or not statuses:
        return FAILED
    if WARN in statuses:
        return WARNED
    return DONE


def summary(findings: Sequence[Finding]) -> str:
    """The number of findings of each status: ``9 ok, 1 warning, 2 failed, 3 skipped``."""
    counts = Counter(finding.status for finding in findings)
    parts = [f"{counts[OK]} ok"]
    if counts[WARN]:
        parts.append(count(counts[WARN], "warning"))
    for status in (FAIL, NOT_HERE):
        if counts[status]:
            parts.append(f"{counts[status]} {_SHOWN[status]}")
    return ", ".join(parts)


def report(host: str, findings: Sequence[Finding]) -> list[str]:
    """What the doctor says of one box: a line each, and their sum as the last one."""
    return [*(f"  {finding.line}" for finding in findings), f"{host}: {summary(findings)}"]
