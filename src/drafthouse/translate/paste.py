r"""Find serve commands in pasted text, and cut them into words as a shell would.

A paste may be a whole article. Commands are looked for where a command can stand; what is quoted wrongly in
the prose around them does not matter. Newlines that a web page lost (`\ --model x \ --port 8000`) are
forgiven, and so are typographic quotes and dashes.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.errors import one_problem
from ..core.secret_shapes import is_secret_name
from ..engines.base import Engine
from ..engines.registry import DIALECTS
from .launchers import read_before
from .shell_text import mended, split, split_on

#: Programs and Python modules that serve, and the engine of each.
PROGRAMS = {name: engine for engine in DIALECTS.values() for name in engine.programs}
PYTHON_MODULES = {name: engine for engine in DIALECTS.values() for name in engine.python_modules}
FORMS = ", ".join(
    [*(form for engine in DIALECTS.values() for form in engine.forms), "docker run with an image of one of them"]
)
#: How a shell that gets its script as a word stands in the place of a program.
SHELL = "sh -c"
_QUOTES = str.maketrans({"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'"})


def _called(name: str, verb: str) -> str:
    behind = rf"(?=[\s\\]+{verb}\b)" if verb else ""
    return rf"{re.escape(name)}(?:\.exe)?{behind}"


_NAMES = sorted(PROGRAMS, key=len, reverse=True)
_NAME = "|".join(_called(name, PROGRAMS[name].programs[name]) for name in _NAMES)
_PROGRAM = rf"(?:[\w.:/~-]*/)?(?:{_NAME})(?=[\s\\]|$)"
_MODULE = rf"(?:[\w./~-]*/)?python[\d.]*\s+-m\s+(?:{'|'.join(map(re.escape, PYTHON_MODULES))})\b"
_DOCKER = r"(?:docker|podman|nvidia-docker)(?:\s+container)?\s+run\b"
_SHELL = r"(?:[\w./-]*/)?(?:bash|sh|zsh)(?:[ \t]+-\w+)*[ \t]+-\w*c[ \t]+(?=\$?['\"])"
_PROGRAMS = re.compile(rf"(?<![\w./\\])(?<!(?<!=)-)(?P<one>{_DOCKER}|{_MODULE}|{_SHELL}|{_PROGRAM})")
#: At the start of a line or behind these a command needs nothing more. In the middle of a line (newlines lost) only
#: what is followed by a flag or a broken line end is one, so that prose may name a program.
_ENDS = re.compile(r"(?<!\\)\n|&&|[;|`]|(?<!\$)\(")
_FLAGS_BEHIND = re.compile(r"[ \t]*(?:[ \t]serve[ \t]+)?(?:\\|[ \t]-)")
_NAME_ALONE = re.compile(r"(?:[ \t]+serve)?['\"]")
_IS_SHELL = re.compile(r"(?:[\w./-]*/)?(?:bash|sh|zsh)\s")
_FAR = 4_000  # characters before a program that may belong to its command
_LOST_NEWLINE = re.compile(r"[^\n]*\\[ \t]+-")
_COMMENT = re.compile(r"^([ \t]*)(?:#+|//|REM\b|::)[ \t]?", re.MULTILINE)
_HEREDOC = re.compile(
    r"^[ \t]*(?:sudo\s+)?(?:cat|tee)\b(?P<head>[^\n]*?)"
    r"<<(?P<dash>-?)\s*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)(?P<tail>[^\n]*)\n",
    re.MULTILINE,
)
_LABEL = re.compile(r"^[ \t]*(?:#\s*)?`{0,2}(?P<name>[\w./-]+\.ya?ml)`{0,2}:[ \t]*\n", re.MULTILINE)
_YAML_LINE = re.compile(r"^(?:\s*$|\s+\S|[\w-]+\s*:(?:\s|$)|-\s|#)")
_SETTING = re.compile(
    r"(?:^|;|&&)[ \t]*(?:\$[ \t]+)?(?P<out>export[ \t]+|set[ \t]+|\$env:|ENV[ \t]+|Environment=[\"']?)?"
    r"(?P<name>[A-Za-z_]\w*)[ \t]*=[ \t]*(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"';&]*)[\"']?[ \t]*(?=#|;|&&|$)",
    re.MULTILINE,
)
_LOOSE = re.compile(r"^[ \t]*(--[A-Za-z][\w.-]*)", re.MULTILINE)


@dataclass
class Words:
    """One command, cut into words.

    ``assignments`` stood before it (``NAME=value``); ``prose`` is what a web page glued to its last number
    (``--draft 5Benchmark it``); ``container`` are the flags of a `docker run` around it, ``image`` its image;
    ``launchers`` are the programs that were to start it.
    """

    line: int
    program: str
    words: list[str]
    assignments: dict[str, str] = field(default_factory=dict)
    prose: str = ""
    container: list[tuple[str, str]] = field(default_factory=list)
    image: str = ""
    launchers: list[str] = field(default_factory=list)


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
        raise one_problem(
            "no-command", "nothing", "a serve command, as one argument or on standard input", f"paste one of: {FORMS}"
        )
    files, rest = _take_files(mended(text))
    commands, loose = _commands(rest)
    if not commands:  # only a comment may say how the server is started
        commands, loose = _commands(_COMMENT.sub(r"\1", rest))
    return Paste(commands, files, loose)


def _commands(rest: str) -> tuple[list[Words], list[str]]:
    """Return the commands in a text, and the flags in it that belong to none."""
    commands: list[Words] = []
    place, done, taken = 0, 0, []
    settings = deque(_SETTING.finditer(rest))
    values: dict[str, list[str]] = {}
    exported: list[str] = []
    while match := _PROGRAMS.search(rest, place):
        start = match.start("one")
        begin = max(done, start - _FAR)
        begin = max([begin, *(end.end() for end in _ENDS.finditer(rest, begin, start))])
        before, whole = read_before(rest[begin:start])
        line = rest[rest.rfind("\n", 0, start) + 1 : start]
        # In quotes of its own (--serve-cmd 'vllm serve M') it ends with them; alone in them it is a name.
        quote = rest[start - 1] if start and rest[start - 1] in "'\"" else ""
        closes = rest.find(quote, start) if quote else -1
        if _NAME_ALONE.match(rest, match.end()) and not _IS_SHELL.match(match["one"]):
            place = match.end()
            continue
        named = closes > start or whole or _IS_SHELL.match(match["one"]) or _FLAGS_BEHIND.match(rest, match.end())
        # A page that lost its newlines put a comment and the command below it into one line.
        if (_COMMENT.match(line) and not _LOST_NEWLINE.match(rest, match.end())) or not named:
            place = match.end()
            continue
        words, end = split_on(rest[:closes] if closes > start else rest, start)
        # What the paste sets above, for the words of this command; what it exports is for the program too.
        while settings and settings[0].start() < start:
            above = settings.popleft()
            values[above["name"]] = split(above["value"])[0]
            exported += [above["name"]] if above["out"] else []
        used: set[str] = set()
        words, prose = _without_prose([_expanded(word, values, used) for word in words])
        out = {name: " ".join(values[name]) for name in dict.fromkeys(exported) if name not in used}
        found = _command(words, match["one"], rest.count("\n", 0, begin) + 1)
        place = match.end()
        if found is not None and (found.words or rest[end : end + 1] != "`"):  # `vllm serve` in a sentence
            place = done = max(end, place)
            taken.append((begin, done))
            inner = {name: _expanded(value, values, used) for name, value in before.assignments.items()}
            found.assignments = {**out, **inner}
            found.launchers, found.prose = before.launchers, prose
            found.line = rest.count("\n", 0, start) + 1
            commands.append(found)
    loose = [
        found.group(1)
        for found in _LOOSE.finditer(rest)
        if not any(begin <= found.start() < end for begin, end in taken)
    ]
    return commands, list(dict.fromkeys(loose))


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


def _expanded(word: str, settings: Mapping[str, list[str]], used: set[str]) -> str:
    """Put the values of variables that the paste sets on lines of their own into a word; leave others and secrets."""

    def value(match: re.Match[str]) -> str:
        if match["name"] in settings and not is_secret_name(match["name"]):
            used.add(match["name"])
            return " ".join(settings[match["name"]])
        return match["default"] or match.group()

    pattern = r"\$(?:(?P<brace>\{))?(?P<name>[A-Za-z_]\w*)(?(brace)(?::?-(?P<default>[^}]*))?\})"
    return re.sub(pattern, value, word) if "$" in word else word


def _command(words: list[str], one: str, line: int) -> Words | None:
    """Return a command by its first words; None for `vllm bench` and the like."""
    if re.match(_DOCKER, one):
        count = 3 if words[1:2] == ["container"] else 2
        return Words(line, "docker run", words[count:])
    if _IS_SHELL.match(one):
        return Words(line, SHELL, words)
    return engine_words(words, line)


def engine_words(words: list[str], line: int) -> Words | None:
    """Return a command whose first words start an engine; None where they do not."""
    name = words[0].rsplit("/", 1)[-1].removesuffix(".exe") if words else ""
    if re.fullmatch(r"python[\d.]*", name) and words[1:2] == ["-m"] and words[2:3] and words[2] in PYTHON_MODULES:
        rest = words[3:]
        return Words(line, f"python -m {words[2]}", rest[1:] if rest[:1] == ["serve"] else rest)
    if name not in PROGRAMS:
        return None
    verb, rest = PROGRAMS[name].programs[name], words[1:]
    if verb:
        return Words(line, f"{name} {verb}", rest[1:]) if rest[:1] == [verb] else None
    return Words(line, name, rest[1:] if rest[:1] == ["serve"] else rest)


def engine_of(program: str) -> Engine:
    """Return the engine that ``program`` (as in `Words`) starts."""
    module = program.removeprefix("python -m ")
    return PYTHON_MODULES.get(module) or PROGRAMS[program.split(maxsplit=1)[0]]


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
            raise one_problem(
                "unclosed-quote",
                f"an unterminated here-document <<{match['end']}",
                f"a line with only {match['end']}",
                "paste all of it",
                f"line {line}",
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
            if not _YAML_LINE.match(below) or _PROGRAMS.match(below) is not None:
                break
            lines.append(below)
        body = "\n".join(lines).strip("\n")
        if body:
            files.setdefault(match["name"], body + "\n")
    return files, text
