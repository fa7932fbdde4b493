r"""Find serve commands in pasted text: each statement of a shell is read, and those are kept that start an engine.

A paste may be a whole article. A line of prose is a statement too, of a program that nobody has; a statement goes on
over lines only where its first line looks like a shell's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..core.errors import Problem, one_problem
from ..engines.base import Engine
from ..engines.registry import DIALECTS
from .expansions import Value
from .launchers import before_program
from .repairs import BROKEN_LINE, hide_match, mended, plain_text, shown
from .shell import Run, Shell, parsed

#: Programs and Python modules that serve, and the engine of each.
PROGRAMS = {name: engine for engine in DIALECTS.values() for name in engine.programs}
PYTHON_MODULES = {name: engine for engine in DIALECTS.values() for name in engine.python_modules}
_ALONE = [name for name, engine in PROGRAMS.items() if not engine.programs[name]]
FORMS = ", ".join(
    [*(form for engine in DIALECTS.values() for form in engine.forms), "docker run with an image of one of them"]
)
#: How a shell that gets its script as a word stands in the place of a program.
SHELL = "sh -c"
_SHELLS = ("bash", "sh", "zsh")
_CONTAINERS = ("docker", "podman", "nvidia-docker", "nerdctl")
_APPTAINERS = ("apptainer", "singularity")
#: Programs that only talk of others.
_TALKERS = ("pkill", "pgrep", "grep", "which", "killall", "pip", "pip3", "apt", "apt-get", "brew", "man", "type")
_NAMES = sorted([*PROGRAMS, *PYTHON_MODULES, *_CONTAINERS, *_APPTAINERS], key=len, reverse=True)
_NAMED = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, _NAMES))})(?:\.exe)?(?![\w.-])")
#: The first line of what may go on below: a program, a setting, a here-document, what opens a block.
_OPENS = re.compile(
    rf"{_NAMED.pattern}|^\s*(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?\w+\+?=|<<-?\s*['\"\\]?\w"
    r"|^\s*(?:if|for|while|until|case|function)\b|^\s*\w[\w-]*\s*\(\)|^\s*[({]|(?:&&|\|\|?)\s*$"
    r"|\b(?:ba|z)?sh -\w*c\b|\beval\b"
)
_HEREDOC = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"\\]?)(?P<end>\w+)")
#: Lines of one statement; and of one inside another that never became whole. A longer one ends as `_CLOSES` says.
_FAR, _NEAR = 400, 30
_PATIENCE = 50  # statements that are broken: a text with more of them is no script
_CLOSES = re.compile(r"[ \t]*(?:fi\b|done\b|esac\b|[)}\]'\"]|\w+$)")
_LONGEST = 30_000  # letters of one that goes on over lines
_FENCE = re.compile(r"[ \t>]*(?:`{3}|~{3})")
#: A line that goes on with flags, each with a value at most: the backslash before it was lost.
_QUOTED = r"(?:'[^']*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|\$?[^\s\-'\";|&<>][^\s;|&]*|-?\d\S*|<[A-Za-z][^>\n]*>)"
_FLAG = rf"--?[A-Za-z][\w.-]*(?:(?:=|[ \t]+){_QUOTED})?"
_GOES_ON = re.compile(rf"[ \t]*{_FLAG}(?:[ \t]+{_FLAG})*[ \t]*\\?[ \t]*(?:$|[>|;&])")
#: A comment, or a line that a diff adds.
_COMMENT = re.compile(r"^([ \t]*)(?:#+|//|REM\b|::|\+(?!\+))[ \t]?", re.MULTILINE)
_NO_SHELL = re.compile(rf"{_COMMENT.pattern}|^[ \t]*\|")  # a comment, or the row of a table
_LABEL = re.compile(
    r"^[ \t]*(?:#\s*)?`{0,2}(?P<name>[\w./-]+\.ya?ml)`{0,2}:[ \t]*\n|^#\s*(?P<said>[\w./-]+\.ya?ml)[ \t]*\n",
    re.MULTILINE,
)
_YAML_LINE = re.compile(r"^(?:\s*$|\s+\S|[\w-]+\s*:(?:\s|$)|-\s|#)")
_LOOSE = re.compile(r"^[ \t]*(--[A-Za-z][\w.-]*)", re.MULTILINE)


@dataclass
class Words:
    """One command, cut into words.

    ``assignments`` stood before it (``NAME=value``); ``prose`` is what a web page glued to its last number
    (``--draft 5Benchmark it``); ``container`` are the flags of a `docker run` around it, ``image`` its image;
    ``launchers`` are the programs that were to start it; ``guessed`` are conditions that were taken to hold; ``files``
    are those that a script around it writes (name to text).
    """

    line: int
    program: str
    words: list[str]
    assignments: dict[str, str] = field(default_factory=dict)
    prose: str = ""
    container: list[tuple[str, str]] = field(default_factory=list)
    image: str = ""
    launchers: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Paste:
    """What was found in a paste: commands in order, files it writes (name to text), and flags on their own.

    ``values`` are its variables, ``fed`` the texts of its here-documents, each with its line; ``problems`` are why a
    command of it was not read.
    """

    commands: list[Words]
    files: dict[str, str]
    loose: list[str]
    values: dict[str, Value] = field(default_factory=dict)
    fed: list[tuple[int, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_paste(text: str, values: dict[str, Value] | None = None, *, comments: bool = True) -> Paste:
    """Find the commands of ``text``, a script in which ``values`` are set; with ``comments`` in those, where no other.

    Raises DrafthouseError for an empty paste, or a file (heredoc) without its end. Finding no command is no error
    here: the text may be Python.
    """
    text = plain_text(text)
    if not text.strip():
        raise one_problem(
            "no-command", "nothing", "a serve command, as one argument or on standard input", f"paste one of: {FORMS}"
        )
    rest = mended(text)
    paste = _read(rest, values or {})
    if comments and not paste.commands:  # only a comment may say how the server is started
        paste = _read(_COMMENT.sub(r"\1", rest), values or {})
    for match in _LABEL.finditer(text):
        body = _labelled(text[match.end() :])
        if body:
            paste.files.setdefault(match["name"] or match["said"], body)
    return paste


def _labelled(text: str) -> str:
    """The YAML at the start of a text that stands below a file's name."""
    lines: list[str] = []
    for below in text.split("\n"):
        if not _YAML_LINE.match(below) or _NAMED.match(below) is not None:
            break
        lines.append(below)
    body = "\n".join(lines).strip("\n")
    return f"{body}\n" if body else ""


def _read(text: str, values: dict[str, Value]) -> Paste:
    shell = Shell(dict(values))
    commands: list[Words] = []
    loose: list[str] = []
    problems: list[Problem] = []
    for line, statement in _statements(text):
        start = len(shell.runs)
        if _NAMED.search(statement) and parsed(statement).has_error:
            found = _from_broken(statement, line, shell, problems)
        else:
            shell.read(statement, line)
            found = _started_since(start, shell)
        commands += found
        if not found:
            loose += _LOOSE.findall(statement)
            continue
        for run in shell.runs[start:]:
            if run.words[0].startswith("--"):  # cut off from its command
                loose += [word for word in run.words if word.startswith("--")]
    start = len(shell.runs)
    shell.finish()
    commands += _started_since(start, shell)
    if not commands:  # it may be put together here and started elsewhere
        for value in shell.values.values():
            run = Run(1, value if isinstance(value, list) else [value])
            if _NAMED.search(" ".join(run.words)):
                commands += _started(run, shell)
    used: set[str] = set()
    for words in commands:
        words.guessed = list(dict.fromkeys(shell.notes))
        used.update(words.words)
    unused = [flag for flag in dict.fromkeys(loose) if flag not in used]
    return Paste(commands, shell.files, unused, shell.values, shell.fed, problems)


# --- statements -----------------------------------------------------------------------------------------


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a text, each with the number of its first line."""
    lines = text.split("\n")
    bounds = _bounds(lines)
    place = hopeless = failed = 0  # a statement that began above was not whole until the line ``hopeless``
    while place < len(lines):
        most = _FAR
        if place < hopeless:
            most = _NEAR if failed < _PATIENCE else 1
        furthest = min(bounds[place], place + most)
        end, whole = _end(lines, place, furthest)
        if not whole:
            hopeless = max(hopeless, furthest)
            failed += 1
        statement = _joined(lines[place:end])
        if _NAMED.search(statement):
            while end < len(lines) and _GOES_ON.match(lines[end]):
                more, _ = _end(lines, end, furthest)
                statement += " \\\n" + _joined(lines[end:more])
                end = more
        if statement.strip():
            yield place + 1, statement
        place = end


def _bounds(lines: list[str]) -> list[int]:
    """For each line, the line at which a statement from there has ended: on a page no later than its block of code.

    Outside of such a block a page has prose, which ends at an empty line.
    """
    bounds = [len(lines)] * len(lines)
    if lines[0].startswith("#!") or not any(map(_FENCE.match, lines)):
        return bounds
    inside, ends = False, []
    for line in lines:
        fence = _FENCE.match(line) is not None
        inside ^= fence
        ends.append(fence or (not inside and not line.strip()))
    for place in range(len(lines) - 2, -1, -1):
        bounds[place] = bounds[place + 1]
        if ends[place] or ends[place + 1]:
            bounds[place] = place + 1
    return bounds


def _end(lines: list[str], start: int, furthest: int) -> tuple[int, bool]:
    """The line behind the statement at ``start``, and whether it is whole with it; else the next line."""
    end = _continued(lines, start)
    first = "\n".join(lines[start:end])
    _check_documents(lines, start, end)
    if not _OPENS.search(first) or _NO_SHELL.match(lines[start]):
        return end, True
    stop, longest = end, max(len(first), _LONGEST)
    while stop <= furthest and len(statement := _joined(lines[start:stop])) <= longest:
        may_end = stop <= start + _NEAR or _CLOSES.match(lines[stop - 1])
        if may_end and not _documents_open(lines[start:stop]) and not parsed(statement).has_error:
            return stop, True
        if stop == len(lines):
            break
        stop = _continued(lines, stop)
    return end, False


def _joined(lines: list[str]) -> str:
    """Lines as one text; a last one goes on to nothing."""
    text = "\n".join(lines)
    stripped = text.rstrip()
    if stripped.endswith("\\"):
        return stripped[:-1].rstrip()
    return text


def _continued(lines: list[str], place: int) -> int:
    """The line behind the one at ``place``, and behind those that it goes on with by a backslash."""
    while place < len(lines) - 1 and re.search(rf"(?<!\\)\\$|{BROKEN_LINE}$", lines[place]):
        place += 1
    return place + 1


def _documents_open(lines: list[str]) -> bool:
    waiting: list[tuple[str, bool]] = []
    for line in lines:
        if waiting:
            end, dashed = waiting[0]
            if (line.lstrip("\t ") if dashed else line).rstrip() == end:
                waiting.pop(0)
            continue
        if "<<<" not in line:
            for match in _HEREDOC.finditer(line):
                waiting.append((match["end"], bool(match["dash"])))
    return bool(waiting)


def _check_documents(lines: list[str], start: int, end: int) -> None:
    """Raise DrafthouseError for a here-document that nothing ends."""
    line = "\n".join(lines[start:end])
    if not re.match(r"\s*(?:sudo\s+)?(?:cat|tee)\b", line):
        return
    match = _HEREDOC.search(line)
    if match and "<<<" not in line and not any(below.strip() == match["end"] for below in lines[start + 1 :]):
        raise one_problem(
            "unclosed-quote",
            f"an unterminated here-document <<{match['end']}",
            f"a line with only {match['end']}",
            "paste all of it",
            f"line {start + 1}",
        )


def _from_broken(statement: str, line: int, shell: Shell, problems: list[Problem]) -> list[Words]:
    """The commands of a statement that is no shell: from each program on, with what breaks it hidden.

    A quote that is never closed is a problem; what it holds is not repeated, since it may be a key.
    """
    found: list[Words] = []
    for match in _NAMED.finditer(statement):
        start = statement.rfind("\n", 0, match.start()) + 1
        head = re.split(r"&&|[;|`(]", statement[start : match.start()])[-1]
        tail = statement[match.end() :].partition("\n\n")[0]
        above = statement.count("\n", 0, match.start())
        for text in (head + match.group() + tail, head + match.group() + re.sub(r"[()|&;<>{}`]", hide_match, tail)):
            if parsed(text).has_error:
                continue
            place = len(shell.runs)
            shell.read(text, line + above)
            found += _started_since(place, shell)
            break
        else:
            opened = _open_quote(statement, match.start())
            _, whole = before_program(re.sub(r"\S*python[\d.]*\s+-m\s*$", "", head).split())
            if opened is not None and (whole or re.match(r"(?:\s+serve)?\s+-", tail)):
                quote, place = opened
                where = (
                    f"line {line + statement.count(chr(10), 0, place)}, "
                    f"column {place - statement.rfind(chr(10), 0, place)}"
                )
                needed, do = "a closing quote after the value", "close it, or paste the whole command"
                problems.append(Problem("unclosed-quote", f"an unclosed quote ({quote})", needed, do, where))
        if found:
            break
    return found


def _open_quote(text: str, start: int) -> tuple[str, int] | None:
    """The quote behind ``start`` that nothing closes, and its place."""
    place = start
    for match in re.finditer(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|(['\"])", text[start:], re.DOTALL):
        if match.group(1):
            return match.group(1), place + match.start()
    return None


#: Words in which a program, or a shell with its `-c`, is seen.
_HEAD = 16

# --- what starts an engine ------------------------------------------------------------------------------


def _started_since(start: int, shell: Shell) -> list[Words]:
    """The commands of a shell's runs from number ``start`` on."""
    found: list[Words] = []
    for run in shell.runs[start:]:
        found += _started(run, shell)
    return found


def _shown_words(words: list[str]) -> list[str]:
    """Words with their hidden characters given back, without the marks of lost line ends."""
    return [shown(word) for word in words if word != BROKEN_LINE]


def _started(run: Run, shell: Shell) -> list[Words]:
    """The commands that one command of a shell is: none, its own, or those in its words."""
    places = run.words
    if places and places[0].rsplit("/", 1)[-1] in _TALKERS:
        return []
    for place, word in enumerate(places):
        if word == BROKEN_LINE:
            continue
        # A program shows in its first words: of a long paste not every end is read as a command.
        if _command(_shown_words(places[place : place + _HEAD]), run.line) is None:
            continue
        rest = places[place:]
        clean = _shown_words(rest)
        found = _command(clean, run.line)
        if found is None:
            continue
        before, whole = before_program(_shown_words(places[:place]))
        behind = rest[len(clean) - len(found.words) :][:1]
        flags_behind = BROKEN_LINE in rest[:3] or bool(behind and behind[0].startswith("-"))
        if not (whole or flags_behind or found.program == SHELL):
            continue
        if run.in_backticks and not found.words:
            return []
        found.words, found.prose = _without_prose(found.words)
        found.assignments = {**run.exported, **run.assignments, **before.assignments}
        found.launchers = before.launchers
        return [found]
    return _in_scripts(run, shell)


def _in_scripts(run: Run, shell: Shell) -> list[Words]:
    """The commands in those words of a run that are scripts."""
    found: list[Words] = []
    for word in run.words:
        # What stands in backticks is a run of its own.
        if re.search(r"\s", word) and not word.startswith("`"):
            found += _in_word(shown(word), run, shell)
    return found


def _in_word(word: str, run: Run, shell: Shell) -> list[Words]:
    """The commands in a word that is a script of its own: ``ssh box 'vllm serve M'``."""
    if not _NAMED.search(word) or shell.depth > 3:
        return []
    inner = Shell(dict(shell.values), depth=shell.depth + 1, left=shell.left)
    inner.read(mended(word), run.line)
    found = [words for words in _started_since(0, inner) if words.words]
    for words in found:
        words.line = run.line
        words.assignments = {**run.exported, **run.assignments, **words.assignments}
    return found


def _without_prose(words: list[str]) -> tuple[list[str], str]:
    """Cut off a sentence that was glued to a number at the end: ``--draft 5Benchmark it``."""
    for place, word in enumerate(words):
        glued = re.fullmatch(r"(\d+)([A-Z][a-z]+)", word)
        if glued and words[place - 1].startswith("-") and not any(rest.startswith("-") for rest in words[place + 1 :]):
            return [*words[:place], glued.group(1)], " ".join([glued.group(2), *words[place + 1 :]])
    return words, ""


def _command(words: list[str], line: int) -> Words | None:
    """A command by its first words; None for `vllm bench` and the like."""
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name in _CONTAINERS:
        inner = _without_verb(words[1:], "container")
        if inner[:1] not in (["run"], ["create"]):
            return None
        return Words(line, "docker run", inner[1:])
    if name in _APPTAINERS and words[1:2] in (["exec"], ["run"]):
        return Words(line, "docker run", words[2:])
    if name in _SHELLS and any(re.fullmatch(r"-\w*c", word) for word in words[1:-1]):
        return Words(line, SHELL, words)
    return engine_words(words, line)


def engine_words(words: list[str], line: int) -> Words | None:
    """A command whose first words start an engine; None where they do not."""
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1].removesuffix(".exe")
    python = re.fullmatch(r"python[\d.]*|\$\{?\w+\}?", name)
    if python and words[1:2] == ["-m"] and words[2:3] and words[2] in PYTHON_MODULES:
        return Words(line, f"python -m {words[2]}", _without_verb(words[3:], "serve"))
    if python and words[1:] and words[1].startswith("-"):
        name = _program_of_variable(name)
    name = _without_build(name)
    if name not in PROGRAMS:
        return None
    verb, rest = PROGRAMS[name].programs[name], words[1:]
    if verb:
        if rest[:1] != [verb]:
            return None
        return Words(line, f"{name} {verb}", rest[1:])
    return Words(line, name, _without_verb(rest, "serve"))


def _without_verb(words: list[str], verb: str) -> list[str]:
    """Words without ``verb`` at their start."""
    return words[1:] if words[:1] == [verb] else words


def _without_build(name: str) -> str:
    """The program of a build that has a name of its own: ``llama-server-b6343``."""
    if name in PROGRAMS:
        return name
    for program in _ALONE:
        if name.startswith(f"{program}-"):
            return program
    return name


def _program_of_variable(name: str) -> str:
    """The program that a variable stands for by its name (``$LLAMA_SERVER_BIN``, ``$LLAMA``); else the name itself."""
    match = re.fullmatch(r"\$\{?(\w+?)(?:_(?:BIN|EXE|PATH|CMD|BINARY))?\}?", name, re.IGNORECASE)
    if match is None or "_model" in name.lower():
        return name
    meant = match[1].lower().replace("_cpp", "").replace("_", "-")
    for program in _ALONE:
        if program == meant or program.startswith(f"{meant}-"):
            return program
    return name


def engine_of(program: str) -> Engine:
    """The engine that ``program`` (as in `Words`) starts."""
    module = program.removeprefix("python -m ")
    return PYTHON_MODULES.get(module) or PROGRAMS[program.split(maxsplit=1)[0]]
