r"""Find serve commands in pasted text, and cut them into words as a shell would.

A paste may be a whole article. Commands are looked for where a command can stand; what is quoted wrongly in
the prose around them does not matter. Newlines that a web page lost (`\ --model x \ --port 8000`) are
forgiven, and so are typographic quotes and dashes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.errors import DrafthouseError, Problem
from ..engines.base import Engine
from ..engines.registry import DIALECTS

#: Programs and Python modules that serve, and the engine of each.
PROGRAMS = {name: engine for engine in DIALECTS.values() for name in engine.programs}
PYTHON_MODULES = {name: engine for engine in DIALECTS.values() for name in engine.python_modules}
FORMS = ", ".join(
    [*(form for engine in DIALECTS.values() for form in engine.forms), "docker run with an image of one of them"]
)
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'"})
_STARTERS = ("sudo", "-E", "exec", "nohup", "time", "env", "nice")

_NAME = "|".join(sorted(map(re.escape, PROGRAMS), key=len, reverse=True))
_PROGRAM = rf"(?:[\w./~-]*/)?(?:{_NAME})(?=[\s\\]|$)"
_MODULE = rf"(?:[\w./~-]*/)?python[\d.]*\s+-m\s+(?:{'|'.join(map(re.escape, PYTHON_MODULES))})\b"
_DOCKER = r"(?:docker|podman|nvidia-docker)(?:\s+container)?\s+run\b"
_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|\S*)"
_BEFORE = rf"(?:[$>%]\s+)?(?:(?:sudo|exec|nohup|time|env|nice|-E)\s+|[A-Za-z_]\w*={_VALUE}\s+)*"
_ONE = rf"{_DOCKER}|{_MODULE}|{_PROGRAM}"
# At the start of a line or behind && ; | ( ` a command needs nothing more. In the middle of a line (newlines
# lost) only what is followed by a flag or a broken line end is one, so that prose may name a program.
_START = re.compile(
    rf"(?:^|(?<=&&)|(?<=[;|(`]))[ \t]*(?P<begin>{_BEFORE})(?P<one>{_ONE})"
    rf"|(?<=\s)(?P<begin2>{_BEFORE})(?P<one2>{_ONE})(?=[ \t]*(?:[ \t]serve[ \t]+)?(?:\\|[ \t]-))",
    re.MULTILINE,
)
_HEREDOC = re.compile(
    r"^[ \t]*(?:sudo\s+)?(?:cat|tee)\b(?P<head>[^\n]*?)"
    r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)(?P<tail>[^\n]*)\n",
    re.MULTILINE,
)
_LABEL = re.compile(r"^[ \t]*(?:#\s*)?`{0,2}(?P<name>[\w./-]+\.ya?ml)`{0,2}:[ \t]*\n", re.MULTILINE)
_YAML_LINE = re.compile(r"^(?:\s*$|\s+\S|[\w-]+\s*:(?:\s|$)|-\s|#)")
_SETTING = re.compile(
    r"^[ \t]*(?:\$[ \t]+)?(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)="
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']*)[ \t]*(?:#[^\n]*)?$",
    re.MULTILINE,
)
_LOOSE = re.compile(r"^[ \t]*(--[A-Za-z][\w.-]*)", re.MULTILINE)


@dataclass
class Words:
    """One command, cut into words.

    ``assignments`` stood before it (``NAME=value``); ``prose`` is what a web page glued to its last number
    (``--draft 5Benchmark it``); ``container`` are the flags of a `docker run` around it, ``image`` its image.
    """

    line: int
    program: str
    words: list[str]
    assignments: dict[str, str] = field(default_factory=dict)
    prose: str = ""
    container: list[tuple[str, str]] = field(default_factory=list)
    image: str = ""


@dataclass
class Paste:
    """What was found in a paste: commands in order, files it writes (name to text), and flags on their own."""

    commands: list[Words]
    files: dict[str, str]
    loose: list[str]


def read_paste(text: str) -> Paste:
    """Find the commands of ``text``.

    Raises DrafthouseError for an empty paste, an unclosed quote, or a file (heredoc) without its end. Finding no
    command is no error here: the text may be Python.
    """
    text = plain_text(text)
    if not text.strip():
        raise DrafthouseError(
            Problem(
                "no-command",
                "nothing",
                "a serve command, as one argument or on standard input",
                f"paste one of: {FORMS}",
            )
        )
    files, rest = _take_files(text)
    commands: list[Words] = []
    settings = {found["name"]: split(found["value"])[0] for found in _SETTING.finditer(rest)}
    place, taken = 0, []
    while match := _START.search(rest, place):
        begin, one = (match["begin"], match["one"]) if match["one"] else (match["begin2"], match["one2"])
        start = match.start("one" if match["one"] else "one2") - len(begin)
        line = rest.count("\n", 0, start) + 1
        words, place = split(rest, start)
        place = max(place, match.end())
        taken.append((start, place))
        words, prose = _without_prose([_expanded(word, settings) for word in words])
        found = _command(words, one, line)
        if found is not None:
            found.prose = prose
            commands.append(found)
    loose = [
        found.group(1)
        for found in _LOOSE.finditer(rest)
        if not any(begin <= found.start() < end for begin, end in taken)
    ]
    return Paste(commands, files, list(dict.fromkeys(loose)))


def plain_text(text: str) -> str:
    """Return a paste as it was before a terminal coloured it, or a web page made it pretty."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.replace("\r\n", "\n")).translate(_QUOTES)
    # Spaces that do not break or have no width, and control characters.
    text = re.sub(r"[\u00a0\u2007\u202f]", " ", text)
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]", "", text)
    return re.sub(r"(?<!\S)[\u2013\u2014](?=[A-Za-z])", "--", text)


def _without_prose(words: list[str]) -> tuple[list[str], str]:
    """Cut off a sentence that was glued to a number at the end: ``--draft 5Benchmark it``."""
    for place, word in enumerate(words):
        glued = re.fullmatch(r"(\d+)([A-Z][a-z]+)", word)
        if glued and words[place - 1].startswith("-") and not any(rest.startswith("-") for rest in words[place + 1 :]):
            return [*words[:place], glued.group(1)], " ".join([glued.group(2), *words[place + 1 :]])
    return words, ""


def _expanded(word: str, settings: Mapping[str, list[str]]) -> str:
    """Put the values of variables that the paste sets on lines of their own into a word; leave the others."""

    def value(match: re.Match[str]) -> str:
        return " ".join(settings.get(match["name"], [match.group()]))

    return re.sub(r"\$(?:\{(?=\w+\}))?(?P<name>[A-Za-z_]\w*)\}?", value, word) if "$" in word else word


def _command(words: list[str], one: str, line: int) -> Words | None:
    """Put what stands before the program apart; None for `vllm bench` and the like."""
    assignments: dict[str, str] = {}
    while words and (words[0] in _STARTERS or re.match(r"^[A-Za-z_]\w*=", words[0]) or words[0] in ("$", ">", "%")):
        name, equals, value = words.pop(0).partition("=")
        if equals:
            assignments[name] = value
    if not words:
        return None
    if re.match(_DOCKER, one):
        count = 3 if words[1:2] == ["container"] else 2
        return Words(line, "docker run", words[count:], assignments)
    return engine_words(words, line, assignments)


def engine_words(words: list[str], line: int, assignments: dict[str, str]) -> Words | None:
    """Return a command whose first words start an engine; None where they do not."""
    name = words[0].rsplit("/", 1)[-1] if words else ""
    if re.fullmatch(r"python[\d.]*", name) and words[1:2] == ["-m"] and words[2:3] and words[2] in PYTHON_MODULES:
        rest = words[3:]
        return Words(line, f"python -m {words[2]}", rest[1:] if rest[:1] == ["serve"] else rest, assignments)
    if name not in PROGRAMS:
        return None
    verb, rest = PROGRAMS[name].programs[name], words[1:]
    if verb:
        return Words(line, f"{name} {verb}", rest[1:], assignments) if rest[:1] == [verb] else None
    return Words(line, name, rest[1:] if rest[:1] == ["serve"] else rest, assignments)


def engine_of(program: str) -> Engine:
    """Return the engine that ``program`` (as in `Words`) starts."""
    module = program.removeprefix("python -m ")
    return PYTHON_MODULES.get(module) or PROGRAMS[program.split(maxsplit=1)[0]]


# --- words, as a shell cuts them ------------------------------------------------------------------------


def split(text: str, start: int = 0) -> tuple[list[str], int]:
    """Return the words of the command at ``start`` and the place behind it.

    The command ends at a newline, ``;``, ``|``, ``&``, a redirection, or the end. A backslash between spaces
    is a line end whose newline was lost. Raises DrafthouseError for a quote that is never closed; what it holds is
    not repeated, since it may be a key.
    """
    words: list[str] = []
    word: str | None = None
    place, end = start, len(text)
    while place < end:
        char = text[place]
        if char in "'\"":
            piece, place = _quoted(text, place)
            word = (word or "") + piece
            continue
        if char == "\\":
            skip = re.compile(r"\\(?:[ \t]*\n[ \t]*|[ \t]+|$)").match(text, place)
            if skip and (word is None or "\n" in skip.group() or skip.end() == end):
                place = skip.end()
                if word is not None:
                    words.append(word)
                    word = None
                continue
            word = (word or "") + text[place + 1 : place + 2]
            place += 2
            continue
        if char in " \t" or char in "\n;|&<>`)" or (char == "#" and word is None):
            if word is not None:
                if not (char in "<>" and word.isdigit()):  # 2>&1
                    words.append(word)
                word = None
            if char not in " \t":
                break
            place += 1
            continue
        word = (word or "") + char
        place += 1
    return ([*words, word] if word is not None else words), place


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return what stands in the quotes at ``start``, and the place behind them."""
    quote, place, piece = text[start], start + 1, ""
    while place < len(text) and text[place] != quote:
        if quote == '"' and text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`", "\n"):
            piece += "" if text[place + 1] == "\n" else text[place + 1]
            place += 2
        else:
            piece += text[place]
            place += 1
    if place >= len(text):
        line = text.count("\n", 0, start) + 1
        column = start - text.rfind("\n", 0, start)
        raise DrafthouseError(
            Problem(
                "unclosed-quote",
                f"a quote ({quote}) that is opened and never closed",
                "the same quote again behind the value",
                "close it, or paste the whole command",
                f"line {line}, column {column}",
            )
        )
    return piece, place + 1


# --- files that stand in the paste ----------------------------------------------------------------------


def _take_files(text: str) -> tuple[dict[str, str], str]:
    """Return the files that heredocs write or that stand under their name (``x.yaml:``), and the other text."""
    files: dict[str, str] = {}
    while match := _HEREDOC.search(text):
        indent = r"[ \t]*" if match["dash"] else ""
        ending = re.compile(rf"^{indent}{match['end']}[ \t]*$", re.MULTILINE)
        stop = ending.search(text, match.end())
        if stop is None:
            line = text.count("\n", 0, match.start()) + 1
            raise DrafthouseError(
                Problem(
                    "unclosed-quote",
                    f"a file that begins with <<{match['end']} and has no end",
                    f"a line with {match['end']} alone",
                    "paste the file to its end",
                    f"line {line}",
                )
            )
        name = re.search(r">{1,2}\s*(\S+)", f"{match['head']} {match['tail']}") or re.search(
            r"^\s*(?:-a\s+)?([^\s>|-]\S*)", match["head"]
        )
        if name:
            files[name.group(1).strip("'\"").removeprefix("./")] = text[match.end() : stop.start()]
        # Newlines stay, so that later places are counted as the reader counts them.
        text = text[: match.start()] + "\n" * text.count("\n", match.start(), stop.end()) + text[stop.end() :]
    for match in _LABEL.finditer(text):
        lines: list[str] = []
        for below in text[match.end() :].split("\n"):
            if not _YAML_LINE.match(below) or _START.match(below) is not None:
                break
            lines.append(below)
        body = "\n".join(lines).strip("\n")
        if body:
            files.setdefault(match["name"], body + "\n")
    return files, text
