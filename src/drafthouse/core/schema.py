"""Check data read from YAML or JSON against a shape (a schema), and collect every problem instead of the first.

A shape is a `Map` of named fields, a `Table` of entries under free names, a `List`, a `Value`, or `Anything`. An
unknown key is a problem that names the nearest valid key. A path is the place of a value in the file, such as
``engine.version`` or ``steps[0]``; '' is the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import Problem, did_you_mean
from .plain_text import hidden_character
from .removed import removed

#: The bounds of every number other than 0, whatever it counts; squares and ratios of such numbers are finite.
LEAST, MOST = 1e-100, 1e18
_SHOWN_BITS = 512  # a larger whole number is not printed digit by digit
_TYPE_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass(frozen=True)
class Form:
    """The form of a word."""

    pattern: str  # a regular expression for the whole word
    needed: str  # its description, for an error

    def fits(self, text: str) -> bool:
        """True if the pattern matches all of ``text``."""
        return re.fullmatch(self.pattern, text) is not None


@dataclass(frozen=True)
class Value:
    """A text, number or boolean."""

    type: type = str
    required: bool = False  # True if the key must be present; here and in the shapes below
    null: bool = False  # True if null is valid too: programs write it for an unknown value; here and below
    choices: tuple[str, ...] = ()  # the valid words; empty: any
    low: float | None = None  # the smallest valid number; None: no limit
    high: float | None = None  # the largest one
    form: Form | None = None  # of a text; None: any


@dataclass(frozen=True)
class List:
    """A list whose items all have one shape."""

    items: Shape
    required: bool = False
    null: bool = False


@dataclass(frozen=True)
class Map:
    """A mapping with named fields."""

    fields: Mapping[str, Shape]
    required: bool = False
    one_of: bool = False  # True if exactly one of the fields must be present
    others: bool = False  # False if any other key is a problem
    null: bool = False


@dataclass(frozen=True)
class Table:
    """A mapping from free names, such as ids of the catalogue, to entries of one shape."""

    entries: Shape
    required: bool = False
    names: Form | None = None  # the form of the names; None: any text
    null: bool = False


@dataclass(frozen=True)
class Anything:
    """Any data; other code checks it."""

    required: bool = False
    null: bool = True


Shape = Value | List | Map | Table | Anything


@dataclass
class Findings:
    """Collects the problems of a file; ``file`` is put in front of the path of each."""

    file: str
    problems: list[Problem] = field(default_factory=list)

    def add(self, code: str, path: str, found: str, needed: str, do: str) -> None:
        """Record one problem at ``path`` of the file."""
        self.problems.append(Problem(code, found, needed, do, f"{self.file}: {path}" if path else self.file))


def check(data: object, shape: Shape, findings: Findings, path: str = "") -> bool:
    """Add every problem of ``data`` to ``findings``; return True if there is none."""
    before = len(findings.problems)
    if data is None and shape.null:
        return True
    if isinstance(shape, Map):
        _check_map(data, shape, findings, path)
    elif isinstance(shape, Table):
        _check_table(data, shape, findings, path)
    elif isinstance(shape, List):
        if isinstance(data, list):
            for number, item in enumerate(data):
                check(item, shape.items, findings, f"{path}[{number}]")
        else:
            findings.add("wrong-type", path, _show(data), "a list", "write it as a YAML list")
    elif isinstance(shape, Value):
        _check_value(data, shape, findings, path)
    return len(findings.problems) == before


def check_text(data: object, findings: Findings, path: str = "") -> None:
    """Add to ``findings`` every text and key of ``data`` that has a line break or a control character.

    It checks all of ``data``, also what the shape :class:`Anything` accepts.
    """
    if isinstance(data, Mapping):
        for key, value in data.items():
            check_text(key, findings, _join(path, key))
            check_text(value, findings, _join(path, key))
    elif isinstance(data, (list, tuple)):
        for number, item in enumerate(data):
            check_text(item, findings, f"{path}[{number}]")
    elif isinstance(data, str) and (hidden := hidden_character(data)):
        findings.add(
            "control-character",
            path,
            f"{_shortened(repr(data))}, which has the character {hidden}",
            "one line of text without control characters",
            "remove the character; a text over several lines of YAML is one line with '>-'",
        )


def check_keys(data: object, findings: Findings, path: str) -> None:
    """Add to ``findings`` every key of ``data``, at any depth, that is not text: YAML allows it, JSON does not."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if _is_name(key, findings, path):
                check_keys(value, findings, _join(path, key))
    elif isinstance(data, (list, tuple)):
        for number, item in enumerate(data):
            check_keys(item, findings, f"{path}[{number}]")


def _is_name(key: object, findings: Findings, path: str) -> bool:
    """True if a key is text; otherwise that is a problem."""
    if isinstance(key, str):
        return True
    findings.add("wrong-type", _join(path, key), f"a name that is {_show(key)}", "text", "put it in quotes")
    return False


def _check_table(data: object, shape: Table, findings: Findings, path: str) -> None:
    """Add the problems of a mapping with free names: of the names, and of the entries."""
    if not _is_mapping(data, findings, path):
        return
    assert isinstance(data, Mapping)
    for name, entry in data.items():
        if not _is_name(name, findings, path):
            continue
        if shape.names and not shape.names.fits(name):
            findings.add("wrong-format", _join(path, name), f"the key {name!r}", shape.names.needed, "correct the key")
        check(entry, shape.entries, findings, _join(path, name))


def _check_map(data: object, shape: Map, findings: Findings, path: str) -> None:
    """Add the problems of a mapping with named fields: in known keys, removed and unknown keys, missing keys."""
    if not _is_mapping(data, findings, path):
        return
    assert isinstance(data, Mapping)
    for key, value in data.items():
        if key in shape.fields:
            check(value, shape.fields[key], findings, _join(path, key))
        elif problem := removed("key", _join(path, key), f"{findings.file}: {_join(path, key)}"):
            findings.problems.append(problem)
        elif not shape.others:
            findings.add(
                "unknown-key",
                _join(path, key),
                f"the unknown key '{key}'",
                f"one of: {', '.join(sorted(shape.fields))}",
                did_you_mean(key, shape.fields),
            )
    for key, wanted in shape.fields.items():
        if wanted.required and key not in data:
            findings.add("missing-key", _join(path, key), "nothing", f"the key '{key}'", f"add '{key}:' here")
    present = [key for key in shape.fields if key in data]
    if shape.one_of and len(present) != 1:
        findings.add(
            "conflicting-keys",
            path,
            f"{len(present)} of them ({', '.join(present) or 'none'})",
            f"exactly one of: {', '.join(shape.fields)}",
            "keep one",
        )


def _check_value(data: object, shape: Value, findings: Findings, path: str) -> None:
    """Add the problem of a value: its type, else its choice, else the form of a text, or the limits of a number."""
    if not _is_of_type(data, shape.type):
        do = "correct the value"
        if shape.type is str and isinstance(data, (bool, int, float)):
            do = "put it in quotes"
        findings.add("wrong-type", path, _show(data), _TYPE_NAMES[shape.type], do)
    elif shape.choices and data not in shape.choices:
        if problem := removed("value", f"{path}: {data}", f"{findings.file}: {path}"):
            findings.problems.append(problem)
            return
        findings.add(
            "unknown-value", path, _show(data), f"one of: {', '.join(shape.choices)}", did_you_mean(data, shape.choices)
        )
    elif isinstance(data, str):
        if shape.form and not shape.form.fits(data):
            findings.add("wrong-format", path, _show(data), shape.form.needed, "correct the value")
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        _check_number(data, shape, findings, path)


def _is_of_type(data: object, kind: type) -> bool:
    """True if a value of a file has the type ``kind`` of a shape."""
    # In Python a bool is an int, which is not meant here. An int is accepted as a float.
    if isinstance(data, bool):
        return kind is bool
    return isinstance(data, kind) or (kind is float and isinstance(data, int))


def _check_number(data: float, shape: Value, findings: Findings, path: str) -> None:
    """Add the problem of a number that is beyond the bounds of all numbers, or of this shape."""
    if not _is_in_bounds(data):
        findings.add(
            "out-of-range", path, _show(data), f"0, or a number from {LEAST:g} to {MOST:g}", "correct the value"
        )
        return
    if shape.low is not None and data < shape.low:
        findings.add("out-of-range", path, _show(data), f"{shape.low:g} or more", "correct the value")
    if shape.high is not None and data > shape.high:
        findings.add("out-of-range", path, _show(data), f"{shape.high:g} or less", "correct the value")


def _is_in_bounds(number: float) -> bool:
    return number == 0 or LEAST <= abs(number) <= MOST  # False for NaN


def _is_mapping(data: object, findings: Findings, path: str) -> bool:
    """True if the data is a mapping; otherwise that is a problem."""
    if isinstance(data, Mapping):
        return True
    findings.add("wrong-type", path, _show(data), "keys with values", "write it as a YAML mapping")
    return False


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _show(data: object) -> str:
    """A value for an error: a text in quotes, "nothing" for null."""
    if data is None:
        return "nothing"
    if isinstance(data, str):
        return _shortened(repr(data))
    return _shortened(data)


def _shortened(data: Any) -> str:
    """A value as text of at most 80 characters."""
    # str() raises ValueError for a whole number of more than 4,300 digits.
    if isinstance(data, int) and data.bit_length() > _SHOWN_BITS:
        return f"a number of {data.bit_length()} bits"
    text = str(data)
    return text if len(text) <= 80 else f"{text[:77]}..."
