"""Expand variables and commands of a shell, as far as the result follows from the pasted text alone."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable

Value = str | list[str]
_LONGEST = 100_000  # characters or array items of a variable's value, against pastes that grow without end
_NESTED = r"(?:[^{}]|\{[^{}]*\})*"
_VARIABLE = re.compile(rf"\$(?:\{{{_NESTED}\}}|[A-Za-z_]\w*|[0-9@*#?])")
_PARTS = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*|[0-9@*#?])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*?)\}?", re.DOTALL)


def as_text(value: Value) -> str:
    """A value as one text; array items are joined by spaces."""
    return " ".join(value) if isinstance(value, list) else value


def appended(old: Value, new: Value) -> Value:
    """The value of a variable after ``+=``: a longer array, or a longer text."""
    if isinstance(old, str):
        return old + as_text(new)
    if isinstance(new, str):
        return [*old, new]
    return [*old, *new]


def bounded(name: str, value: Value) -> Value:
    """A variable's value, or ``${NAME}`` if the value is too long."""
    return value if len(value) <= _LONGEST else f"${{{name}}}"


def expanded(text: str, value_of: Callable[[str], Value | None]) -> str:
    """The text with its variables expanded; ``value_of`` returns a variable's value, None if it has none."""
    return _VARIABLE.sub(lambda match: as_text(parameter(match.group(), value_of)), text)


def parameter(text: str, value_of: Callable[[str], Value | None]) -> Value:
    """The value of ``$NAME`` or ``${NAME…}``; ``text`` itself if the value is not known."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return text
    rest = match["rest"]
    value = _item(value_of(match["name"]), match["index"])
    operator = re.match(r":?[-=?+]|##?|%%?|//?|,,?|\^\^?|:", rest)
    if operator is None:
        return text if value is None or rest else value
    word = expanded(rest[operator.end() :], value_of)
    if "$(" in word:  # the output of an unknown command, which stays in the text without quotes
        word = word.replace('"', "")
    if operator.group() in (":-", "-", ":=", "="):
        return value or _unquoted(word)
    if operator.group() in (":+", "+"):
        return _unquoted(word) if value else ""
    if operator.group() in (":?", "?"):
        return f"${{{match['name']}}}" if value is None else value
    return text if value is None else _edited(as_text(value), operator.group(), word)


def _unquoted(word: str) -> str:
    """A word without the pair of quotes around all of it; quotes of a part of it stay, to keep that together."""
    return re.sub(r"\A(?:'([^']*)'|\"((?:[^\"\\]|\\.)*)\")\Z", r"\1\2", word, flags=re.DOTALL)


def _item(value: Value | None, index: str | None) -> Value | None:
    """The item of an array for the index in brackets; the whole value for no index, ``@`` or ``*``."""
    if index in (None, "@", "*") or not isinstance(value, list):
        return value
    return value[int(index)] if index.isdigit() and int(index) < len(value) else None


def _edited(value: str, operator: str, word: str) -> str:
    """The value after the shell's operator ``,,``, ``^^``, ``/``, ``#`` or ``%`` with its ``word``."""
    if operator == ",,":
        return value.lower()
    if operator == "^^":
        return value.upper()
    old, _, new = word.partition("/")
    if operator == "/":
        return value.replace(old, new, 1)
    if operator == "//":
        return value.replace(old, new)
    places = range(len(value) + 1)
    if operator in ("##", "%"):  # from the end: the longest head, the shortest tail
        places = places[::-1]
    for place in places:
        head = value[:place]
        tail = value[place:]
        if operator[0] == "#" and fnmatch.fnmatchcase(head, word):
            return tail
        if operator[0] == "%" and fnmatch.fnmatchcase(tail, word):
            return head
    return value


def plain_call(text: str) -> str:
    """A command substitution without quotes; only its program if it holds a script, whose quotes would end others."""
    text = re.sub(r"\"|\\\n\s*", "", text)
    if re.search(r"['\n]", text):
        text = f"{text.split()[0].rstrip(')')})"
    return text


def command_output(words: list[str]) -> str | None:
    """The output of a command by its words alone; None if only running it would tell."""
    name = words[0]
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if name == "echo":
        options = [word for word in words[1:] if re.fullmatch(r"-[neE]+", word)]
        text = " ".join(words[1 + len(options) :])
        return text.replace("\\n", "\n") if "e" in "".join(options) else text
    if name == "printf" and len(words) > 1:
        return _formatted(words[1], words[2:])
    if len(arguments) != 1:
        return None
    (argument,) = arguments
    if name in ("command", "which", "realpath", "readlink"):
        return argument
    if name in ("dirname", "basename") and "$" not in argument:
        return getattr(posixpath, name)(argument.rstrip("/")) or "."
    return None


def _formatted(template: str, arguments: list[str]) -> str | None:
    """The output of `printf`, which repeats its template until the arguments are used up; None for other formats."""
    *pieces, last = re.split(r"%(?:\.\d+)?[sdifg]", template.replace("\\n", "\n"))
    if "%" in "".join([*pieces, last]).replace("%%", ""):
        return None
    if not pieces:
        return last.replace("%%", "%").rstrip("\n")
    text = ""
    for start in range(0, max(len(arguments), 1), len(pieces)):
        for place, piece in enumerate(pieces, start):
            text += piece + "".join(arguments[place : place + 1])
        text += last
    return text.replace("%%", "%").rstrip("\n")
