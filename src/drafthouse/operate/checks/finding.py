"""What a check found: the line and the JSON that it is written as, and the exit status of several. Pure."""

from __future__ import annotations

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
        if self.status in (WARN, FAIL):
            parts += [f"{word}: {text}" for word, text in (("needed", self.needed), ("do", self.do)) if text]
        text = " ".join(typed("; ".join(parts)).split())
        return printable(f"{_SHOWN[self.status]:<8}  {self.name:<{_NAME_WIDTH}}  {text}")


if TYPE_CHECKING:
    #: What a check says: nothing where there is nothing to look at.
    Answer = Finding | list[Finding] | None
    Look = Callable[[Run, DoctorFacts], Answer]


def ok(found: str, needed: str = "") -> Finding:
    """Return that what is needed was found."""
    return Finding(OK, found, needed)


def warn(found: str, needed: str, do: str) -> Finding:
    """What works now, and may not tomorrow."""
    return Finding(WARN, found, needed, do)


def fail(found: str, needed: str, do: str) -> Finding:
    """What does not work, or is open where it must be closed."""
    return Finding(FAIL, found, needed, do)


def not_here(why: str) -> Finding:
    """Return that the check does not apply."""
    return Finding(NOT_HERE, why)


def of_problem(problem: Problem | Mapping[str, str], status: str = FAIL) -> Finding:
    """A problem, as the rest of the library tells one, as a finding."""
    said = problem.as_dict() if isinstance(problem, Problem) else problem
    where = f"{said['where']}: " if said.get("where") else ""
    return Finding(status, where + said["found"], said["needed"], said["do"])


def exit_code(findings: Iterable[Mapping[str, str] | Finding]) -> int:
    """DONE, WARNED where one warns, FAILED where one fails or nothing was looked at."""
    found = {one.status if isinstance(one, Finding) else one["status"] for one in findings}
    return FAILED if FAIL in found or not found else WARNED if WARN in found else DONE


def summary(findings: Sequence[Finding]) -> str:
    """How many of which kind: ``9 ok, 1 warning, 2 failed, 3 skipped``."""
    well, warns, fails, skipped = (sum(one.status == status for one in findings) for status in STATUSES)
    parts = [count(warns, "warning")] if warns else []
    parts += [f"{number} {_SHOWN[status]}" for status, number in ((FAIL, fails), (NOT_HERE, skipped)) if number]
    return ", ".join([f"{well} ok", *parts])


def report(host: str, findings: Sequence[Finding]) -> list[str]:
    """What the doctor says of one box: a line each, and their sum as the last one."""
    return [*(f"  {one.line}" for one in findings), f"{host}: {summary(findings)}"]
