"""Check plain data (read from YAML) against the shape it must have, and collect everything that is wrong.

A shape is data too: a `Map` of named fields, a `Table` of entries under free names, a `List`, or a
`Value`. Unknown keys are errors with the nearest valid word; nothing stops at the first problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .problems import Problem, did_you_mean

_TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Value:
    """One plain value; ``choices`` are its words, ``low`` and ``high`` its limits (inclusive)."""

    type: type = str
    required: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class List:
    """A list whose items all have one shape."""

    items: Shape
    required: bool = False


@dataclass(frozen=True)
class Map:
    """Named fields; every key must be one of them. ``one_of``: exactly one of the fields is given."""

    fields: Mapping[str, Shape]
    required: bool = False
    one_of: bool = False


@dataclass(frozen=True)
class Table:
    """Entries of one shape under free names (the catalogue's ids)."""

    entries: Shape
    required: bool = False


@dataclass(frozen=True)
class Anything:
    """Data that another place knows how to check."""

    required: bool = False


Shape = Value | List | Map | Table | Anything


@dataclass
class Findings:
    """Collects problems while a file is checked; ``file`` stands in front of every path."""

    file: str
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: str, found: str, needed: str, do: str) -> None:
        """Record one problem at ``path`` of the file."""
        self.problems.append(Problem(found, needed, do, f"{self.file}: {path}" if path else self.file))


def check(data: object, shape: Shape, findings: Findings, path: str = "") -> bool:
    """Add to ``findings`` all that is wrong with ``data``; return whether it is as it should be."""
    before = len(findings.problems)
    if isinstance(shape, Map):
        _check_map(data, shape, findings, path)
    elif isinstance(shape, Table):
        if _is_mapping(data, findings, path):
            for name, entry in data.items():  # type: ignore[attr-defined]  # _is_mapping has looked
                check(entry, shape.entries, findings, _join(path, name))
    elif isinstance(shape, List):
        if isinstance(data, list):
            for number, item in enumerate(data):
                check(item, shape.items, findings, f"{path}[{number}]")
        else:
            findings.add(path, _show(data), "a list", "write it as a YAML list")
    elif isinstance(shape, Value):
        _check_value(data, shape, findings, path)
    return len(findings.problems) == before


def _check_map(data: object, shape: Map, findings: Findings, path: str) -> None:
    if not _is_mapping(data, findings, path):
        return
    assert isinstance(data, Mapping)
    for key, value in data.items():
        if key in shape.fields:
            check(value, shape.fields[key], findings, _join(path, key))
        else:
            findings.add(
                _join(path, key),
                f"the unknown key '{key}'",
                f"one of: {', '.join(sorted(shape.fields))}",
                did_you_mean(key, shape.fields),
            )
    for key, wanted in shape.fields.items():
        if wanted.required and key not in data:
            findings.add(_join(path, key), "nothing", f"the key '{key}'", f"add '{key}:' here")
    given = [key for key in shape.fields if key in data]
    if shape.one_of and len(given) != 1:
        findings.add(
            path,
            f"{len(given)} of them ({', '.join(given) or 'none'})",
            f"exactly one of: {', '.join(shape.fields)}",
            "keep one",
        )


def _check_value(data: object, shape: Value, findings: Findings, path: str) -> None:
    # bool is an int in Python, and an int is a fine float.
    right = isinstance(data, shape.type) and not (isinstance(data, bool) and shape.type is not bool)
    if shape.type is float and isinstance(data, int) and not isinstance(data, bool):
        right = True
    if not right:
        findings.add(path, _show(data), _TYPE_NAMES[shape.type], "correct the value")
    elif shape.choices and data not in shape.choices:
        findings.add(path, _show(data), f"one of: {', '.join(shape.choices)}", did_you_mean(data, shape.choices))
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        if shape.low is not None and data < shape.low:
            findings.add(path, _show(data), f"{shape.low:g} or more", "correct the value")
        if shape.high is not None and data > shape.high:
            findings.add(path, _show(data), f"{shape.high:g} or less", "correct the value")


def _is_mapping(data: object, findings: Findings, path: str) -> bool:
    if isinstance(data, Mapping):
        return True
    findings.add(path, _show(data), "keys with values", "write it as a YAML mapping")
    return False


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _show(data: object) -> str:
    return "nothing" if data is None else f"{data!r}" if isinstance(data, str) else f"{_plain(data)}"


def _plain(data: Any) -> str:
    text = str(data)
    return text if len(text) <= 80 else f"{text[:77]}..."
