"""Read what people and earlier runs wrote: bytes to text, text to JSON, with a place for everything that is wrong.

Bounded in size and depth before anything is built, so that no file can use up the memory or end the interpreter. A key
that stands twice in one object is an error (JSON would keep the last one), and so are NaN, Infinity and numbers that
become one of them. YAML is read by `yaml_documents.py`. Standard library only, for this travels to boxes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from .errors import Problem, one_problem

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | bool | None"
"""A value of a JSON or YAML document whose form is somebody else's."""

MIB = 1024 * 1024
#: Bytes of a file of ours at most: a report of a long ladder has some tens of MiB.
MOST_BYTES = 64 * MIB
#: Lists and objects inside each other, at most: ours have some ten.
MOST_DEEP = 100
#: Whole numbers beyond this become no float, or lose what they say when they do.
MOST_WHOLE = 2**63 - 1

# Strings go first, in one go, so that brackets in them do not count. One that does not end is nobody's bracket either.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
_BRACKETS = re.compile(r"[\[{]+|[\]}]+")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
# Only where one of these stands can a number be beyond reason.
_LONG_NUMBER = re.compile(r"\d{19}|[eE]\+?\d{3}")


class BadDocument(ValueError):
    """What is wrong with a document: ``found``, and ``place`` in it ("line 3, column 7", "" for the whole).

    ``why`` is the reader's own word, where the text does not parse.
    """

    def __init__(self, found: str, place: str = "", why: str = "") -> None:
        self.found, self.place, self.why = found, place, why or found
        super().__init__(", ".join(filter(None, (found, place))))

    def problem(self, where: str, needed: str, do: str) -> Problem:
        """The fault as a problem of the file ``where``."""
        return Problem("file-malformed", self.found, needed, do, f"{where}: {self.place}" if self.place else where)


def _no_json(why: str, place: str = "") -> BadDocument:
    return BadDocument(f"text that does not parse as JSON: {why}", place, why)


def place_in(text: str, position: int) -> str:
    """Line and column, from 1, of the character at ``position``."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def text_of(data: bytes) -> str:
    """Bytes as text: UTF-8, with or without the mark that some editors put in front. Raises BadDocument."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise BadDocument("text in UTF-16, which UTF-8 can't decode", "line 1, column 1") from error
        start = error.start + (len(data) - len(error.object))  # the mark in front is not part of what was decoded
        line = data.count(b"\n", 0, start) + 1
        column = start - data.rfind(b"\n", 0, start)
        raise BadDocument(
            f"the byte 0x{data[start]:02x}, which UTF-8 can't decode", f"line {line}, column {column}"
        ) from error
    return checked_text(text)


def checked_text(text: str) -> str:
    """Text as it was given, on a command line too. Raises BadDocument for a zero byte, and for half characters.

    Those are what Python makes of bytes that are not UTF-8: no file and no terminal takes them.
    """
    odd = _NO_TEXT.search(text)
    if odd:
        found = "a zero byte in it" if odd.group() == "\0" else "a byte that is not UTF-8"
        raise BadDocument(found, place_in(text, odd.start()))
    return text


def read_json(path: Path, needed: str, do: str, *, where: str = "", most: int = MOST_BYTES) -> Any:
    """The JSON in a file of at most ``most`` bytes.

    Raises DrafthouseError with ``needed`` and ``do`` where it cannot be read, is too large or is no JSON; ``where`` is
    what the message calls the file (default: its path).
    """
    where = where or str(path)
    try:
        return json_of(text_of(bytes_of(path, most)))
    except OSError as error:
        raise one_problem("file-unreadable", f"no readable file ({error.strerror})", needed, do, where) from error
    except BadDocument as error:
        raise one_problem("file-malformed", str(error), needed, do, where) from error


def bytes_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a file holds. Raises OSError, and BadDocument where it holds more than ``most`` bytes."""
    if "\0" in str(path):
        raise BadDocument("a zero byte in the path")
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise BadDocument(f"a file of more than {most // MIB} MiB")
    return data


def json_of(text: str) -> Any:
    """The JSON document ``text``. Raises BadDocument with the place of what is wrong."""
    check_depth(text)
    odd = {"parse_int": _whole, "parse_float": _finite} if _LONG_NUMBER.search(text) else {}
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, **odd)  # type: ignore[arg-type]
    except json.JSONDecodeError as error:
        place = place_in(text, error.pos)
        raise BadDocument(f"text that does not parse as JSON: {error.msg}", place, str(error)) from error


def check_depth(text: str) -> None:
    """Raise BadDocument where brackets of JSON stand deeper in each other than ours ever do."""
    if (
        text.count("[") + text.count("{") <= MOST_DEEP
        or _deepest(_BRACKETS.findall(_STRING.sub('""', text))) <= MOST_DEEP
    ):
        return
    # Its place: the same once more, with the strings' lengths kept.
    blank = _STRING.sub(lambda string: " " * len(string.group()), text)
    depth = 0
    for found in _BRACKETS.finditer(blank):
        depth += _levels(found.group())
        if depth > MOST_DEEP:
            raise _no_json("nested too deeply", place_in(text, found.end() - 1 - (depth - MOST_DEEP - 1)))


def _deepest(runs: Iterable[str]) -> int:
    """How deep runs of opening and of closing brackets go."""
    deepest = depth = 0
    for run in runs:
        depth += _levels(run)
        deepest = max(deepest, depth)
    return deepest


def _levels(run: str) -> int:
    """How many levels deeper a run of brackets of one direction leads; less than 0 for closing ones."""
    if run[0] in "[{":
        return len(run)
    return -len(run)


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadDocument(f"the key '{short(key)}' twice in one object")
            seen.add(key)
    return found


def _no_constant(name: str) -> NoReturn:
    raise _no_json(f"{name}, which is no number")


def _whole(digits: str) -> int:
    if len(digits) > len(str(MOST_WHOLE)) + 1 or abs(number := int(digits)) > MOST_WHOLE:
        raise BadDocument(f"the number {short(digits)}, too large to count with")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadDocument(f"the number {short(digits)}, too large to count with")
    return number


def short(text: str, most: int = 40) -> str:
    """``text`` for a message: one line, not longer than ``most``."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return f"{line[: most - 3]}..."
