"""Read untrusted JSON files: bytes to text, text to data, with the line and column of every error.

Size and nesting depth are checked before parsing, so that no file can exhaust the memory or the interpreter's stack.
Python's parser would accept a repeated key (the last one wins), NaN, Infinity and numbers that overflow to them; here
they are errors. `yaml_documents.py` reads YAML. Standard library only: boxes run this too.
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
"""A value of a JSON or YAML document whose form another program defines."""

MIB = 1024 * 1024
#: The largest file that is read. The largest that Drafthouse writes is a report with a long ladder: tens of MiB.
MOST_BYTES = 64 * MIB
#: The deepest nesting of lists and objects. Drafthouse's own files nest about 10 deep.
MOST_DEEP = 100
#: The largest whole number: a 64-bit integer. Larger ones lose digits, or overflow, when they become a float.
MOST_WHOLE = 2**63 - 1

# A string, so that brackets inside it are not counted; an unclosed one reaches to the end of the text.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
_BRACKETS = re.compile(r"[\[{]+|[\]}]+")
_INVALID = re.compile("[\0\ud800-\udfff]")
# A text without a match has no number that could be too large, and is parsed by the faster built-in functions.
_LONG_NUMBER = re.compile(r"\d{19}|[eE]\+?\d{3}")


class BadDocument(ValueError):
    """An error in a document: ``found``, and its ``place`` ("line 3, column 7", "" for the whole document).

    ``why`` is the parser's own message if the text does not parse, otherwise the same as ``found``.
    """

    def __init__(self, found: str, place: str = "", why: str = "") -> None:
        self.found = found
        self.place = place
        self.why = why or found
        super().__init__(", ".join(filter(None, (found, place))))

    def problem(self, where: str, needed: str, do: str) -> Problem:
        """The error as a `Problem` of the file ``where``."""
        return Problem("file-malformed", self.found, needed, do, f"{where}: {self.place}" if self.place else where)


def _no_json(why: str, place: str = "") -> BadDocument:
    """The error of a text that does not parse."""
    return BadDocument(f"text that does not parse as JSON: {why}", place, why)


def place_in(text: str, position: int) -> str:
    """The line and column, counted from 1, of the character at index ``position``."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def text_of(data: bytes) -> str:
    """The text of UTF-8 bytes, without the byte order mark that some editors write. Raises BadDocument."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise BadDocument("text in UTF-16, which UTF-8 can't decode", "line 1, column 1") from error
        start = error.start + (len(data) - len(error.object))  # error.object lacks the byte order mark
        line = data.count(b"\n", 0, start) + 1
        column = start - data.rfind(b"\n", 0, start)
        raise BadDocument(
            f"the byte 0x{data[start]:02x}, which UTF-8 can't decode", f"line {line}, column {column}"
        ) from error
    return checked_text(text)


def checked_text(text: str) -> str:
    """``text`` unchanged. Raises BadDocument for a zero byte, and for a surrogate (U+D800 to U+DFFF).

    Python decodes a byte of the command line that is not UTF-8 to a surrogate, which nothing can write.
    """
    invalid = _INVALID.search(text)
    if invalid:
        found = "a zero byte in it" if invalid.group() == "\0" else "a byte that is not UTF-8"
        raise BadDocument(found, place_in(text, invalid.start()))
    return text


def read_json(path: Path, needed: str, do: str, *, where: str = "", most: int = MOST_BYTES) -> Any:
    """The JSON document in a file of at most ``most`` bytes.

    Raises DrafthouseError where the file cannot be read, is too large or is not JSON, with ``needed`` and ``do`` as the
    advice and ``where`` as the name of the file (default: its path).
    """
    where = where or str(path)
    try:
        return json_of(text_of(bytes_of(path, most)))
    except OSError as error:
        raise one_problem("file-unreadable", f"no readable file ({error.strerror})", needed, do, where) from error
    except BadDocument as error:
        raise one_problem("file-malformed", str(error), needed, do, where) from error


def bytes_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file. Raises OSError, and BadDocument for more than ``most`` bytes."""
    if "\0" in str(path):
        raise BadDocument("a zero byte in the path")
    with path.open("rb") as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise BadDocument(f"a file of more than {most // MIB} MiB")
    return data


def json_of(text: str) -> Any:
    """The data of the JSON document ``text``. Raises BadDocument with the place of the error."""
    check_depth(text)
    hooks = {"parse_int": _whole, "parse_float": _finite} if _LONG_NUMBER.search(text) else {}
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, **hooks)  # type: ignore[arg-type]
    except json.JSONDecodeError as error:
        place = place_in(text, error.pos)
        raise BadDocument(f"text that does not parse as JSON: {error.msg}", place, str(error)) from error


def check_depth(text: str) -> None:
    """Raise BadDocument where JSON nests deeper than `MOST_DEEP`."""
    if text.count("[") + text.count("{") <= MOST_DEEP:  # nearly every text: too few brackets to nest so deep
        return
    if _deepest(_BRACKETS.findall(_STRING.sub('""', text))) <= MOST_DEEP:
        return
    # Once more, to find the place: strings become blanks of the same length, so that positions stay.
    blanked = _STRING.sub(lambda string: " " * len(string.group()), text)
    depth = 0
    for run in _BRACKETS.finditer(blanked):
        depth += _levels(run.group())
        if depth > MOST_DEEP:
            # A run may open several levels: the place is that of its first bracket below the limit.
            raise _no_json("nested too deeply", place_in(text, run.end() - 1 - (depth - MOST_DEEP - 1)))


def _deepest(runs: Iterable[str]) -> int:
    """The greatest depth that runs of opening or of closing brackets (matches of `_BRACKETS`) reach."""
    deepest = depth = 0
    for run in runs:
        depth += _levels(run)
        deepest = max(deepest, depth)
    return deepest


def _levels(run: str) -> int:
    """The change of depth by a run of brackets: its length, negative for closing brackets."""
    if run[0] in "[{":
        return len(run)
    return -len(run)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values. Raises BadDocument for a repeated key."""
    data = dict(pairs)
    if len(data) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadDocument(f"the key '{short(key)}' twice in one object")
            seen.add(key)
    return data


def _refuse(name: str) -> NoReturn:
    """Raise BadDocument for NaN, Infinity or -Infinity, which Python's parser accepts."""
    raise _no_json(f"{name}, which is no number")


def _whole(digits: str) -> int:
    """The whole number of these digits. Raises BadDocument for one beyond `MOST_WHOLE`."""
    # The length first: the conversion of very many digits takes long, or fails.
    if len(digits) > len(str(MOST_WHOLE)) + 1 or abs(number := int(digits)) > MOST_WHOLE:
        raise BadDocument(f"the number {short(digits)}, too large to count with")
    return number


def _finite(digits: str) -> float:
    """The number of these digits. Raises BadDocument for one that overflows to infinity."""
    number = float(digits)
    if not math.isfinite(number):
        raise BadDocument(f"the number {short(digits)}, too large to count with")
    return number


def short(text: str, most: int = 40) -> str:
    """``text`` for a message: one line of at most ``most`` characters, cut with an ellipsis."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    return f"{line[: most - 3]}..."
