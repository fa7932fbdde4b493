"""The words of the doctor: a check, the line and the JSON that it is written as, and the exit status of all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ...core.errors import Problem
from ...core.exit_codes import DONE, FAILED, WARNED
from ...core.format import count
from ...core.plain_text import printable

#: ``not here``: the check does not apply to this box, and ``found`` says why. It is never counted as ok.
OK, WARN, FAIL, NOT_HERE = "ok", "warn", "fail", "not here"
STATUSES = (OK, WARN, FAIL, NOT_HERE)
#: A variable of the environment: the file into which the callback writes all checks of a run, as JSON.
FILE = "DRAFTHOUSE_DOCTOR_FILE"
_NAME_WIDTH = 22


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str
    found: str
    needed: str = ""
    do: str = ""

    def as_dict(self) -> dict[str, str]:
        """Return plain data, for JSON."""
        return asdict(self)

    @property
    def line(self) -> str:
        """The check in one line; of a fine one what was found is enough."""
        parts = [self.found]
        if self.status in (WARN, FAIL):
            parts += [f"{word}: {text}" for word, text in (("needed", self.needed), ("do", self.do)) if text]
        return printable(f"{self.status:<8}  {self.name:<{_NAME_WIDTH}}  {' '.join('; '.join(parts).split())}")


def ok(name: str, found: str, needed: str = "") -> Check:
    """Return a check that found what is needed."""
    return Check(name, OK, found, needed)


def warn(name: str, found: str, needed: str, do: str) -> Check:
    """Return a check of what works now, and may not tomorrow."""
    return Check(name, WARN, found, needed, do)


def fail(name: str, found: str, needed: str, do: str) -> Check:
    """Return a check of what does not work, or is open where it must be closed."""
    return Check(name, FAIL, found, needed, do)


def not_here(name: str, why: str) -> Check:
    """Return a check that does not apply."""
    return Check(name, NOT_HERE, why)


def of_problem(name: str, problem: Problem | Mapping[str, str], status: str = FAIL) -> Check:
    """Return a problem, as the rest of the house tells one, as a check."""
    said = problem.as_dict() if isinstance(problem, Problem) else problem
    where = f"{said['where']}: " if said.get("where") else ""
    return Check(name, status, where + said["found"], said["needed"], said["do"])


def exit_code(checks: Iterable[Mapping[str, str] | Check]) -> int:
    """Return DONE, WARNED where one warns, FAILED where one fails or nothing was looked at."""
    found = {check.status if isinstance(check, Check) else check["status"] for check in checks}
    return FAILED if FAIL in found or not found else WARNED if WARN in found else DONE


def summary(checks: Sequence[Check]) -> str:
    """Return how many of which kind: ``2 checks fail, 1 warns, 9 are well``."""
    fails, warns, well = (sum(check.status == status for check in checks) for status in (FAIL, WARN, OK))
    parts = [f"{count(fails, 'check')} {'fails' if fails == 1 else 'fail'}"] if fails else []
    parts += [f"{warns} {'warns' if warns == 1 else 'warn'}"] if warns else []
    return ", ".join([*parts, f"{well} {'is' if well == 1 else 'are'} well"])


def report(host: str, checks: Sequence[Check]) -> list[str]:
    """Return what the doctor says of one box, a line each."""
    return [f"doctor of {host}: {summary(checks)}", *(f"  {check.line}" for check in checks)]
