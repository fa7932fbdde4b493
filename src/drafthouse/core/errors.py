"""The form of every error: where it is, what was found, what is needed, what to do about it, and a code.

All of Drafthouse raises these types, so that an error reads the same whether it comes from the profile resolver, a verb
(a command of `drafthouse`), an Ansible module on a box, or a playbook.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from .plain_text import printable, printable_lines, without_passwords
from .typed import with_verbs

#: The number of problems of one file that are shown; the rest is only counted.
FEW = 5


@dataclass(frozen=True)
class Problem:
    """One error: what was found, what is needed instead, and what the user can do.

    ``code`` (``port-taken``) names its kind; `error_codes` explains it, and it stays when the texts are reworded.
    ``where`` is a file and a key in it (``profiles/x.yml: engine.version``), the name of a box, or empty.
    """

    code: str
    found: str
    needed: str
    do: str
    where: str = ""

    def __post_init__(self) -> None:
        """Remove passwords from URLs in the texts, because problems are printed and stored."""
        for name in ("found", "needed", "do", "where"):
            object.__setattr__(self, name, without_passwords(getattr(self, name)))

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Problem:
        """The problem in ``data``, a result of `as_dict`; other keys are ignored.

        A missing field, as in older files, becomes empty.
        """
        return cls(**{field.name: str(data.get(field.name) or "") for field in fields(cls)})

    def lines(self) -> list[str]:
        """The problem as texts, one for each field, with control characters replaced; an empty place or code has none.

        Found, needed and do may have several lines.
        """
        lines = []
        if self.where:
            lines.append(f"where: {printable(self.where)}")
        for name, text in (("found", self.found), ("needed", self.needed), ("do", self.do)):
            lines.append(f"{name}: {printable_lines(with_verbs(text))}")
        if self.code:
            lines.append(f"code: {self.code}")
        return lines

    def as_dict(self) -> dict[str, str]:
        """The problem as a dict of its fields, for JSON."""
        return asdict(self)


class DrafthouseError(Exception):
    """One or more problems. Checks collect all problems that they find before they raise it."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems: list[Problem] = list(problems)
        super().__init__(describe(self.problems))

    @property
    def result(self) -> dict[str, Any]:
        """The problems as the result of a failed Ansible module: a short ``msg``, and all of them in ``problems``.

        The callback plugin `drafthouse.core.house` prints ``problems`` in full.
        """
        message = self.problems[0].found.splitlines()[0]
        if len(self.problems) > 1:
            message += f" (and {len(self.problems) - 1} more)"
        return {"msg": message, "problems": [problem.as_dict() for problem in self.problems]}


class NotHere(DrafthouseError):
    """An operation that this machine cannot do, because a program, a system or hardware is missing."""


def one_problem(code: str, found: str, needed: str, do: str, where: str = "") -> DrafthouseError:
    """A DrafthouseError with a single `Problem`, for `raise`."""
    return DrafthouseError(Problem(code, found, needed, do, where))


@contextmanager
def failing(module: Any) -> Iterator[None]:
    """Turn a DrafthouseError of the block into the failed result of ``module``, an `AnsibleModule`."""
    try:
        yield
    except DrafthouseError as error:
        module.fail_json(**error.result)


def describe(problems: Iterable[Problem]) -> str:
    """All problems as text, separated by an empty line."""
    return "\n\n".join("\n".join(problem.lines()) for problem in problems)


def first_few(problems: Sequence[Problem], where: str) -> list[Problem]:
    """The first `FEW` problems of a file, and one that counts the rest, so that the list fits on a screen."""
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
    """The one of ``words`` that is most similar to ``word``; None if none is similar.

    An unfinished name is completed rather than corrected: rtx6000-qwen gives the shortest name that begins with it and
    a hyphen.
    """
    valid = list(words)
    longer = [name for name in valid if name.startswith(f"{word}-")]
    if longer:
        return min(longer, key=len)
    # The cutoff is a similarity from 0 to 1; difflib's default is 0.6.
    return next(iter(difflib.get_close_matches(str(word), valid, n=1, cutoff=0.5)), None)


def did_you_mean(word: object, words: Iterable[str]) -> str:
    """Advice for an invalid word: write the nearest of the valid ``words``, or use one of them."""
    valid = sorted(words)
    close = nearest(word, valid)
    if close:
        return f"write '{close}'"
    return f"use one of: {', '.join(valid) or '(none)'}"
