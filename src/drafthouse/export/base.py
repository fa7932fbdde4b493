"""What a target is: it writes a file, reads it back, and says what of a changed one is no longer what was exported.

A target is a file beside this one. It makes plain data of an `Order`; a check makes the same data anew and looks at
what differs. Nothing here talks to the tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

from ..core.documents import BadDocument, Json, json_of, short
from ..core.errors import Problem
from ..core.shell import shell_words
from .order import Order


@dataclass(frozen=True)
class Check:
    """What may not differ from the export: a pattern of paths, and the code of the problem where one does."""

    pattern: str
    needed: str
    code: str


@dataclass(frozen=True)
class Read:
    """A file, read back: its data without the command, and the command."""

    data: Json
    argv: list[str]


class Target:
    """A tool for which is exported."""

    name: ClassVar[str]
    #: As people write it, with the version whose parser read it.
    tool: ClassVar[str]
    suffix: ClassVar[str] = "yaml"
    #: Where the weights' volume is mounted.
    models_dir: ClassVar[str] = "/models"
    #: Whether the engine's own key guards the port; a tool may ask for its own before every path.
    keyed: ClassVar[bool] = True
    checks: ClassVar[tuple[Check, ...]] = ()

    def write(self, order: Order) -> str:
        """Return the file. Raises DrafthouseError for what this tool cannot run."""
        raise NotImplementedError

    def read(self, text: str) -> Read:
        """Return a file of this tool, read back. Raises BadDocument or a KeyError where it is none."""
        raise NotImplementedError

    def argv(self, order: Order) -> list[str]:
        """Return the command that an order's file starts."""
        return order.argv(keyed=self.keyed)

    def unknown(self, data: Json) -> Iterator[str]:
        """Yield keys that the tool would not read and its parser lets pass."""
        return iter(())

    def problems(self, text: str, order: Order, where: str) -> list[Problem]:
        """Return what of a file differs from the order in what must not."""
        try:
            given = self.read(text)
        except BadDocument as error:
            return [error.problem(where, f"a file of {self.tool}", "export it again")]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            do = "export it again, and change the copy"
            return [
                Problem(
                    "export-malformed",
                    f"no {error}",
                    f"a file with the structure of the export to {self.name}",
                    do,
                    where,
                )
            ]
        wanted = self.read(self.write(order))
        found = [self._problem(path, new, old, where) for path, new, old in differing(given.data, wanted.data)]
        unknown = [
            Problem(
                "export-unknown-key", f"{key}, which {self.tool} ignores", "a key that it reads", "remove it", where
            )
            for key in self.unknown(given.data)
        ]
        return [*argument_problems(given.argv, order, self, where), *filter(None, found), *unknown]

    def _problem(self, path: str, new: Json, old: Json, where: str) -> Problem | None:
        for check in self.checks:
            if fnmatchcase(path, check.pattern):
                found = f"{path}: {'nothing' if new is None else short(json.dumps(new), 120)}"
                needed = f"{'nothing' if old is None else short(json.dumps(old), 200)} ({check.needed})"
                return Problem(check.code, found, needed, "put it back, or change the profile and export again", where)
        return None


def argument_problems(given: Sequence[str], order: Order, target: Target, where: str) -> list[Problem]:
    """Return what is wrong with a command: the other arm's, unknown keys of the speculation, or other words."""
    wanted = target.argv(order)
    if list(given) == wanted:
        return []
    do = f"drafthouse export {order.profile['profile']} --to {target.name} --arm {order.arm}"
    if list(given) == target.argv(order.other):
        found, needed = f"the command of the {order.other.arm} arm", f"that of the {order.arm} arm, as the file says"
        return [Problem("export-other-arm", found, needed, do, where)]
    keys = _keys(wanted) | _keys(target.argv(order.other)) | set(order.profile["method"]["settings"])
    if unknown := sorted(_keys(given) - keys):
        found = f"{', '.join(unknown)} in the speculation's settings"
        return [Problem("export-speculation-key", found, f"its keys: {', '.join(sorted(keys))}", do, where)]
    new = [word for word in given if word not in wanted]
    gone = [word for word in wanted if word not in given]
    found = "; ".join(
        f"{said} {short(shell_words(words), 160)}" for said, words in (("added", new), ("missing", gone)) if words
    )
    return [Problem("export-arguments", found or "arguments in another order", "the arm's own command", do, where)]


def _keys(argv: Iterable[str]) -> set[str]:
    """Return the keys of every argument that is an object of JSON."""
    found: set[str] = set()
    for word in argv:
        if word.startswith("{"):
            try:
                found |= set(json_of(word))
            except BadDocument:
                continue
    return found


def differing(new: Json, old: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield path, new and old value of each leaf that is not the same in both; None where one has none."""
    ours, theirs = dict(leaves(new)), dict(leaves(old))
    for path in [*theirs, *(path for path in ours if path not in theirs)]:
        if ours.get(path) != theirs.get(path) or (path in ours) != (path in theirs):
            yield path, ours.get(path), theirs.get(path)


def leaves(data: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield dotted path and value of each leaf; what has a name in a list goes by it, and a list of words is a leaf."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, (list, tuple)) and any(isinstance(one, Mapping) for one in data):
        for place, value in enumerate(data):
            name = value.get("name", place) if isinstance(value, Mapping) else place
            yield from leaves(value, f"{path}.{name}")
    else:
        yield path, data
