"""What is said when something is wrong: where, what was found, what was needed, what to do, and a code for it.

Every part of the house reports through these types, so that an error reads the same
from the resolver, a script, a module on a box and a playbook.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from .plain_text import printable, printable_lines, without_passwords
from .typed import typed

#: So many problems of one file are told one by one.
FEW = 5


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    ``code`` is a literal that `error_codes` explains (``port-taken``); every problem of this kind has it, and it stays
    when words change. ``where`` is a file and the path in it (``profiles/x.yml: engine.version``) or a name of the box.
    """

    code: str
    found: str
    needed: str
    do: str
    where: str = ""

    def __post_init__(self) -> None:
        """Take passwords out of the addresses that a problem quotes: it is printed, kept and sent on."""
        for name in ("found", "needed", "do", "where"):
            object.__setattr__(self, name, without_passwords(getattr(self, name)))

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Problem:
        """The problem that `as_dict` made plain; what older versions kept has no code, and gets an empty one."""
        return cls(**{field.name: str(data.get(field.name) or "") for field in fields(cls)})

    def lines(self) -> list[str]:
        """The problem as the lines a person reads, one fact a line; what it quotes cannot steer a terminal."""
        lines = []
        if self.where:
            lines.append(f"where: {printable(self.where)}")
        for name, text in (("found", self.found), ("needed", self.needed), ("do", self.do)):
            lines.append(f"{name}: {printable_lines(typed(text))}")
        if self.code:
            lines.append(f"code: {self.code}")
        return lines

    def as_dict(self) -> dict[str, str]:
        """The problem as plain data, for results that travel as JSON."""
        return asdict(self)


class DrafthouseError(Exception):
    """One or more problems, all of them collected before anything is touched."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems: list[Problem] = list(problems)
        super().__init__(describe(self.problems))

    @property
    def result(self) -> dict[str, Any]:
        """The problems as a failed Ansible result: one line for its ``msg``, the whole beside it.

        The callback of the house prints them in full, a fact a line.
        """
        message = self.problems[0].found.splitlines()[0]
        if len(self.problems) > 1:
            message += f" (and {len(self.problems) - 1} more)"
        return {"msg": message, "problems": [problem.as_dict() for problem in self.problems]}


class NotHere(DrafthouseError):
    """What cannot be done on this machine, whatever a file says: a program, a system or hardware is missing."""


def one_problem(code: str, found: str, needed: str, do: str, where: str = "") -> DrafthouseError:
    """The error of a single `Problem`, to be raised."""
    return DrafthouseError(Problem(code, found, needed, do, where))


@contextmanager
def failing(module: Any) -> Iterator[None]:
    """Fail an Ansible module (an `AnsibleModule`) with the problems of what is done in the block."""
    try:
        yield
    except DrafthouseError as error:
        module.fail_json(**error.result)


def describe(problems: Iterable[Problem]) -> str:
    """All problems as text, separated by an empty line."""
    return "\n\n".join("\n".join(problem.lines()) for problem in problems)


def first_few(problems: Sequence[Problem], where: str) -> list[Problem]:
    """The first problems of a file and how many more there are: a file of wrong lines must not fill a screen."""
    if len(problems) <= FEW:
        return list(problems)
    more = len(problems) - FEW
    counted = Problem(
        "more-problems",
        f"{more} more problem{'s' if more > 1 else ''}, {len(problems)} in all",
        "none",
        "fix those above first: the others are often of the same kind",
        where,
    )
    return [*problems[:FEW], counted]


def nearest(word: object, words: Iterable[str]) -> str | None:
    """The valid word that is most like ``word``, or None when nothing is near.

    The shortest that goes on where a name breaks off (rtx6000-qwen): it is unfinished, not misspelt.
    """
    known = list(words)
    longer = [name for name in known if name.startswith(f"{word}-")]
    if longer:
        return min(longer, key=len)
    return next(iter(difflib.get_close_matches(str(word), known, n=1, cutoff=0.5)), None)


def did_you_mean(word: object, words: Iterable[str]) -> str:
    """Advice for a word that is not valid: the nearest one, or all of them."""
    known = sorted(words)
    close = nearest(word, known)
    if close:
        return f"write '{close}'"
    return f"use one of: {', '.join(known) or '(none)'}"
