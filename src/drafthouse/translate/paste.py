r"""Find serve commands in a pasted text: split it into shell statements, read each, keep those that start an engine.

A paste may be a whole article. A line of prose is read as a statement of an unknown program. A statement continues on
the next line only if its first line looks like shell.
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
from .repairs import BROKEN_LINE, hide_match, plain_text, repair, restored
from .shell import Run, Shell, parsed

#: Engines by the names of their serving programs and Python modules.
PROGRAMS = {name: engine for engine in DIALECTS.values() for name in engine.programs}
PYTHON_MODULES = {name: engine for engine in DIALECTS.values() for name in engine.python_modules}
_MODEL_FLAGS = {"-m", "--model", "-hf", "--hf-repo"}
_WITHOUT_VERB = [name for name, engine in PROGRAMS.items() if not engine.programs[name]]
FORMS = ", ".join(
    [*(form for engine in DIALECTS.values() for form in engine.forms), "docker run with an image of one of them"]
)
#: `PastedCommand.program` of a shell that gets its script as a word (``bash -lc SCRIPT``).
SHELL = "sh -c"
_SHELLS = ("bash", "sh", "zsh")
_CONTAINERS = ("docker", "podman", "nvidia-docker", "nerdctl")
_APPTAINERS = ("apptainer", "singularity")
#: Programs that take an engine's name as an argument without starting it.
_NO_LAUNCHER = re.compile(
    r"(?:\S+ (?:-\S+ )*)?(?:\S*/)?"
    r"(?:pkill|pgrep|grep|which|killall|pip3?|apt(?:-get)?|printf|brew|man|type|journalctl|systemctl|ps)(?: |$)"
)
_PRINTS = re.compile(r"(?:\w*[_-])?(?:echo|log|info|print|say|msg|status|step|debug|warn|note)(?:[_-]\w*)?")
_NAMES = sorted([*PROGRAMS, *PYTHON_MODULES, *_CONTAINERS, *_APPTAINERS], key=len, reverse=True)
_PROGRAM_NAME = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, _NAMES))})(?:\.exe)?(?![\w.-])")
#: The first line of a statement of several lines: a program, an assignment, a here-document, the start of a block.
_OPENS = re.compile(
    rf"{_PROGRAM_NAME.pattern}|^\s*(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?\w+\+?=|<<-?\s*['\"\\]?\w"
    r"|^\s*(?:if|for|while|until|case|function)\b|^\s*\w[\w-]*\s*\(\)|^\s*[({]|(?:&&|\|\|?)\s*$"
    r"|\b(?:ba|z)?sh -\w*c\b|\beval\b"
)
_HEREDOC = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<quote>['\"\\]?)(?P<end>\w+)")
#: Most lines of a statement, and of one inside an incomplete one. After `_NEAR` lines only `_CLOSES` may end it.
_FAR, _NEAR = 400, 30
_MOST_BROKEN = 50  # incomplete statements, after which the text is taken for prose
_CLOSES = re.compile(r"[ \t]*(?:fi\b|done\b|esac\b|[)}\]'\"]|\w+$)|[^'\"]*['\"][ \t]*$")
_LONGEST = 30_000  # characters of a statement of several lines
_FENCE = re.compile(r"[ \t>]*(?:`{3}|~{3})")
#: A line of flags with at most one value each: it continues a command whose backslash was lost.
_QUOTED = r"(?:'[^']*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$)|\$?[^\s\-'\";|&<>][^\s;|&]*|-?\d\S*|<[A-Za-z][^>\n]*>)"
_FLAG = rf"--?[A-Za-z][\w.-]*(?:(?:=|[ \t]+){_QUOTED})?"
_FLAG_LINE = re.compile(rf"[ \t]*{_FLAG}(?:[ \t]+{_FLAG})*[ \t]*\\?[ \t]*(?:$|[>|;&])")
#: A flag at the end of a line and its quoted value on the next, as a mail wraps them.
_LOST_VALUE = re.compile(r"(?<!\S)--[A-Za-z][\w.-]*\n\s*['\"{]")
#: The start of a comment line, or of a line that a diff adds.
_COMMENT = re.compile(r"^([ \t]*)(?:#+|//|REM\b|::|\+(?!\+))[ \t]?", re.MULTILINE)
_NO_SHELL = re.compile(rf"{_COMMENT.pattern}|^[ \t]*\|")  # a comment, or the row of a table
#: The name of a YAML file, at the end of a sentence with a colon or alone in its line, above the file's text.
_YAML_NAME = r"[\w./-]+\.ya?ml"
_LABEL = re.compile(
    rf"^(?!.*\s--?\w)(?:[^\n]*?(?<![\w./-])(?P<name>{_YAML_NAME})[`*'\"]{{0,3}}(?: [\w ]{{0,40}})?"
    rf"(?::[*]{{0,2}}|(?=\s*\n[ \t]*`{{3}}\w))|(?:[#$*` \t]|cat )*(?P<alone>{_YAML_NAME})[*`]*)"
    r"[ \t]*(?:\n\s*^[ \t]*`{3}[^\n]*)?\n",
    re.MULTILINE,
)
_YAML_LINE = re.compile(r"^(?:\s*$|\s+\S|[\w-]+\s*:(?:\s|$)|-\s|#)")
_LOOSE = re.compile(r"^[ \t]*(--[A-Za-z][\w.-]*)", re.MULTILINE)


@dataclass
class PastedCommand:
    """A serve command of a paste."""

    line: int  # in the paste, from 1
    program: str  # `vllm serve`, `python -m MODULE`, `LLM(...)`, `docker run`, or `SHELL`
    words: list[str]  # its arguments
    assignments: dict[str, str] = field(default_factory=dict)  # variables before it: values by name
    prose: str = ""  # text that a web page glued to its last number (`--draft 5Benchmark it`)
    container: list[tuple[str, str]] = field(default_factory=list)  # flags of the `docker run` around it, with values
    image: str = ""  # of that container
    launchers: list[str] = field(default_factory=list)  # programs before it (`sudo`), with their flags
    guessed: list[str] = field(default_factory=list)  # conditions of the script that are assumed true
    files: dict[str, str] = field(default_factory=dict)  # texts that the script around it writes, by file name
    printed: bool = False  # by `echo` or a script's own `log`, mostly before it is run


@dataclass
class Paste:
    """A parsed paste."""

    commands: list[PastedCommand]  # in order
    files: dict[str, str]  # texts that its scripts write, by file name
    loose_flags: list[str]  # flags without a command
    values: dict[str, Value] = field(default_factory=dict)  # of its shell variables
    heredocs: list[tuple[int, str]] = field(default_factory=list)  # here-documents: line and text
    problems: list[Problem] = field(default_factory=list)  # why commands could not be read


def read_paste(text: str, values: dict[str, Value] | None = None, *, comments: bool = True) -> Paste:
    """Parse ``text`` as shell with the variables ``values``; ``comments``: search comments too if it has no command.

    Raises DrafthouseError for an empty paste or an unterminated here-document. The text may be Python: no command is
    no error.
    """
    text = plain_text(text)
    if not text.strip():
        raise one_problem(
            "no-command", "nothing", "a serve command, as one argument or on standard input", f"paste one of: {FORMS}"
        )
    repaired = repair(text)
    paste = _read_statements(repaired, values or {})
    if comments and not paste.commands:  # the command may be in a comment only
        paste = _read_statements(_COMMENT.sub(r"\1", repaired), values or {})
    for match in _LABEL.finditer(text):
        body = _labelled(text[match.end() :])
        if body:
            paste.files.setdefault(match["name"] or match["alone"], body)
    return paste


def _labelled(text: str) -> str:
    """The YAML at the start of ``text``, which begins below a file's name; "" for none."""
    lines: list[str] = []
    for line in text.split("\n"):
        if not _YAML_LINE.match(line) or _PROGRAM_NAME.match(line) is not None:
            break
        lines.append(line)
    body = "\n".join(lines).strip("\n")
    return f"{body}\n" if body else ""


def _read_statements(text: str, values: dict[str, Value]) -> Paste:
    shell = Shell(dict(values))
    commands: list[PastedCommand] = []
    loose_flags: list[str] = []
    problems: list[Problem] = []
    for line, statement in _statements(text):
        start = len(shell.runs)
        if _PROGRAM_NAME.search(statement) and parsed(statement).has_error:
            statement_commands = _commands_of_broken(statement, line, shell, problems)
        else:
            shell.read(statement, line)
            statement_commands = _commands_since(start, shell)
        commands += statement_commands
        if not statement_commands:
            loose_flags += _LOOSE.findall(statement)
            continue
        for run in shell.runs[start:]:
            if run.words[0].startswith("--"):  # flags that were separated from their command
                loose_flags += [word for word in run.words if word.startswith("--")]
    start = len(shell.runs)
    shell.finish()
    commands += _commands_since(start, shell)
    unprinted = [command for command in commands if not command.printed]
    commands = unprinted or commands or _commands_of_variables(shell, values)
    used: set[str] = set()
    for command in commands:
        command.guessed = list(dict.fromkeys(shell.guessed))
        used.update(command.words)
    unused = [flag for flag in dict.fromkeys(loose_flags) if flag not in used]
    return Paste(commands, shell.files, unused, shell.values, shell.heredocs, problems)


# --- statements -----------------------------------------------------------------------------------------


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a text, each with the number (from 1) of its first line."""
    lines = text.split("\n")
    bounds = _bounds(lines)
    start = incomplete_until = failed = 0  # before the line ``incomplete_until`` an earlier statement was incomplete
    while start < len(lines):
        # Each look ahead parses all its lines: the more statements failed, the shorter it is.
        most_lines = _FAR
        if start < incomplete_until:
            most_lines = _NEAR if failed < _MOST_BROKEN else 1
        furthest = min(bounds[start], start + most_lines)
        end, complete = _statement_end(lines, start, furthest)
        if not complete:
            incomplete_until = max(incomplete_until, furthest)
            failed += 1
        statement = _joined(lines[start:end])
        if _PROGRAM_NAME.search(statement):  # lines of flags below it belong to it, although a backslash is missing
            while end < len(lines) and (
                _FLAG_LINE.match(lines[end]) or _LOST_VALUE.search("\n".join(lines[end - 1 : end + 1]))
            ):
                more_end, _ = _statement_end(lines, end, furthest)
                statement += " \\\n" + _joined(lines[end:more_end])
                end = more_end
        if statement.strip():
            yield start + 1, statement
        start = end


def _commands_of_variables(shell: Shell, known: dict[str, Value]) -> list[PastedCommand]:
    """The commands in variables, which another script starts; those in ``known`` are of the text around this one."""
    commands: list[PastedCommand] = []
    for name, value in shell.values.items():
        if name in known:
            continue
        run = Run(1, value if isinstance(value, list) else [value])
        if _PROGRAM_NAME.search(" ".join(run.words)):
            commands += _commands_of_run(run, shell)
    return commands


def _bounds(lines: list[str]) -> list[int]:
    """For each line, the line before which a statement that starts there ends: at a Markdown fence or empty line.

    Inside a fenced block empty lines do not count; in a script without fences only its end does.
    """
    bounds = [len(lines)] * len(lines)
    if lines[0].startswith("#!") or not any(map(_FENCE.match, lines)):
        return bounds
    in_block, is_end = False, []
    for line in lines:
        fence = _FENCE.match(line) is not None
        in_block ^= fence
        is_end.append(fence or (not in_block and not line.strip()))
    for index in range(len(lines) - 2, -1, -1):
        bounds[index] = bounds[index + 1]
        if is_end[index] or is_end[index + 1]:
            bounds[index] = index + 1
    return bounds


def _statement_end(lines: list[str], start: int, furthest: int) -> tuple[int, bool]:
    """The line after the statement at ``start``, and True; the next line and False if it is open at ``furthest``."""
    end = _continued(lines, start)
    first_text = "\n".join(lines[start:end])
    _check_heredoc(lines, start, end)
    if not _OPENS.search(first_text) or _NO_SHELL.match(lines[start]):
        return end, True
    candidate, longest = end, max(len(first_text), _LONGEST)
    while candidate <= furthest and len(statement := _joined(lines[start:candidate])) <= longest:
        may_end = candidate <= start + _NEAR or _CLOSES.match(lines[candidate - 1])
        if may_end and not _has_open_heredoc(lines[start:candidate]) and not parsed(statement).has_error:
            return candidate, True
        if candidate == len(lines):
            break
        candidate = _continued(lines, candidate)
    return end, False


def _joined(lines: list[str]) -> str:
    """The lines as one text, without a backslash at the end."""
    text = "\n".join(lines)
    stripped = text.rstrip()
    if stripped.endswith("\\"):
        return stripped[:-1].rstrip()
    return text


def _continued(lines: list[str], index: int) -> int:
    """The line after the line ``index`` and after the lines that continue it by a backslash."""
    while index < len(lines) - 1 and re.search(rf"(?<!\\)\\$|{BROKEN_LINE}$", lines[index]):
        index += 1
    return index + 1


def _has_open_heredoc(lines: list[str]) -> bool:
    waiting_for: list[tuple[str, bool]] = []
    for line in lines:
        if waiting_for:
            end, dashed = waiting_for[0]
            if (line.lstrip("\t ") if dashed else line).rstrip() == end:
                waiting_for.pop(0)
            continue
        if "<<<" not in line:
            for match in _HEREDOC.finditer(line):
                waiting_for.append((match["end"], bool(match["dash"])))
    return bool(waiting_for)


def _check_heredoc(lines: list[str], start: int, end: int) -> None:
    """Raise DrafthouseError for the unterminated here-document of a `cat` or `tee`."""
    line = "\n".join(lines[start:end])
    if not re.match(r"\s*(?:sudo\s+)?(?:cat|tee)\b", line):
        return
    match = _HEREDOC.search(line)
    if match and "<<<" not in line and not any(later_line.strip() == match["end"] for later_line in lines[start + 1 :]):
        raise one_problem(
            "unclosed-quote",
            f"an unterminated here-document <<{match['end']}",
            f"a line with only {match['end']}",
            "paste all of it",
            f"line {start + 1}",
        )


def _commands_of_broken(statement: str, line: int, shell: Shell, problems: list[Problem]) -> list[PastedCommand]:
    """The commands of a statement that is not valid shell: read from each program on, with offending characters hidden.

    An unclosed quote is added to ``problems`` without the text after it, which may be a key.
    """
    commands: list[PastedCommand] = []
    for match in _PROGRAM_NAME.finditer(statement):
        start = statement.rfind("\n", 0, match.start()) + 1
        head = re.split(r"&&|[;|`(]", statement[start : match.start()])[-1]
        is_in_backticks = statement[start : match.start()].count("`") % 2  # in a table, say
        tail = statement[match.end() :].partition(("\n\n", "`")[is_in_backticks])[0]
        lines_above = statement.count("\n", 0, match.start())
        for text in (head + match.group() + tail, head + match.group() + re.sub(r"[()|&;<>{}`]", hide_match, tail)):
            if parsed(text).has_error:
                continue
            first_run = len(shell.runs)
            shell.read(text, line + lines_above)
            commands += _commands_since(first_run, shell)
            break
        else:
            open_quote = _open_quote(statement, match.start())
            _, only_launchers = before_program(re.sub(r"\S*python[\d.]*\s+-m\s*$", "", head).split())
            if open_quote is not None and (only_launchers or re.match(r"(?:\s+serve)?\s+-", tail)):
                quote, quote_index = open_quote
                where = (
                    f"line {line + statement.count(chr(10), 0, quote_index)}, "
                    f"column {quote_index - statement.rfind(chr(10), 0, quote_index)}"
                )
                needed, do = "a closing quote after the value", "close it, or paste the whole command"
                problems.append(Problem("unclosed-quote", f"an unclosed quote ({quote})", needed, do, where))
        if commands:
            break
    return commands


def _open_quote(text: str, start: int) -> tuple[str, int] | None:
    """The first unclosed quote after ``start``, and its index in ``text``; None if there is none."""
    offset = start
    for match in re.finditer(r"\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|(['\"])", text[start:], re.DOTALL):
        if match.group(1):
            return match.group(1), offset + match.start()
    return None


#: First words of a command that show its program, or a shell with its `-c`.
_HEAD = 16

# --- what starts an engine ------------------------------------------------------------------------------


def _commands_since(start: int, shell: Shell) -> list[PastedCommand]:
    """The serve commands of a shell's runs from index ``start`` on."""
    commands: list[PastedCommand] = []
    for run in shell.runs[start:]:
        for command in _commands_of_run(run, shell):
            command.files = {**shell.files, **command.files}  # so far: a script may write a file anew for each server
            command.printed = _PRINTS.fullmatch(run.words[0]) is not None
            commands.append(command)
    return commands


def _shown_words(words: list[str]) -> list[str]:
    """Words with their hidden characters restored, without the marks of lost line ends."""
    return [restored(word) for word in words if word != BROKEN_LINE]


def _commands_of_run(run: Run, shell: Shell) -> list[PastedCommand]:
    """The serve commands of a shell's run: itself, those in its words that are scripts, or none."""
    words = run.words
    if _NO_LAUNCHER.match(" ".join(words[:4])):
        return []
    for index, word in enumerate(words):
        if word == BROKEN_LINE:
            continue
        # First words only: parsing all words from each index on would be slow for a long paste.
        if _command(_shown_words(words[index : index + _HEAD]), run.line) is None:
            continue
        rest = words[index:]
        shown_rest = _shown_words(rest)
        found = _command(shown_rest, run.line)
        if found is None:
            continue
        # Prose may name a program too. Of a command only launchers precede it, or its first argument is a flag, or a
        # repository with a flag behind it.
        prefix, only_launchers = before_program(_shown_words(words[:index]))
        # The first arguments: the arguments, `found.words`, are the last words of `shown_rest`.
        next_words = _shown_words(rest[len(shown_rest) - len(found.words) :][:2])
        flags_follow = BROKEN_LINE in rest[:3] or re.match(r"-|\S*[/>]\S* --\w", " ".join(next_words)) is not None
        if not (only_launchers or flags_follow or found.program == SHELL):
            continue
        if run.in_backticks and not found.words:  # a program's name that a sentence quotes
            return []
        found.words, found.prose = _without_prose(found.words)
        found.assignments = {**run.exported, **run.assignments, **prefix.assignments}
        found.launchers = prefix.launchers
        return [found]
    return _commands_of_scripts(run, shell)


def _commands_of_scripts(run: Run, shell: Shell) -> list[PastedCommand]:
    """The commands in the words of a run that are scripts."""
    commands: list[PastedCommand] = []
    for word in run.words:
        # Text in backticks is a run already.
        if re.search(r"\s", word) and not word.startswith("`"):
            commands += _commands_of_word(restored(word), run, shell)
    return commands


def _commands_of_word(word: str, run: Run, shell: Shell) -> list[PastedCommand]:
    """The commands in a word that is a script: ``ssh box 'vllm serve M'``."""
    if not _PROGRAM_NAME.search(word) or shell.depth > 3:
        return []
    inner = Shell(dict(shell.values), depth=shell.depth + 1, budget=shell.budget)
    inner.read(repair(word), run.line)
    commands = [command for command in _commands_since(0, inner) if command.words]
    for command in commands:
        command.line = run.line
        command.assignments = {**run.exported, **run.assignments, **command.assignments}
    return commands


def _without_prose(words: list[str]) -> tuple[list[str], str]:
    """Words without a sentence that is glued to a flag's number (``--draft 5Benchmark it``), and that sentence."""
    for index, word in enumerate(words):
        glued = re.fullmatch(r"(\d+)([A-Z][a-z]+)", word)
        if glued and words[index - 1].startswith("-") and not any(rest.startswith("-") for rest in words[index + 1 :]):
            return [*words[:index], glued.group(1)], " ".join([glued.group(2), *words[index + 1 :]])
    return words, ""


def _command(words: list[str], line: int) -> PastedCommand | None:
    """The command that ``words`` start; None if they start neither an engine, a container nor a shell's script."""
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name in _CONTAINERS:
        inner = _without_verb(words[1:], "container")
        sets_variables = inner[:1] == ["exec"] and {"-e", "--env"} & {*inner}
        if inner[:1] not in (["run"], ["create"]) and not sets_variables:
            return None
        return PastedCommand(line, "docker run", inner[1:])
    if name in _APPTAINERS and words[1:2] in (["exec"], ["run"]):
        return PastedCommand(line, "docker run", words[2:])
    if name in _SHELLS and any(re.fullmatch(r"-\w*c", word) for word in words[1:-1]):
        return PastedCommand(line, SHELL, words)
    return engine_words(words, line)


def engine_words(words: list[str], line: int) -> PastedCommand | None:
    """The command of an engine whose program is the first of ``words``; None if they start no engine."""
    if not words or words[1:2] == ["="]:  # `llama-server = …` names it in another language
        return None
    name = words[0].rsplit("/", 1)[-1].removesuffix(".exe")
    python = re.fullmatch(r"python[\d.]*|\$\{?\w+\}?", name)  # a variable may stand for Python or for the program
    if python and words[1:2] == ["-m"] and words[2:3] and words[2] in PYTHON_MODULES:
        return PastedCommand(line, f"python -m {words[2]}", _without_verb(words[3:], "serve"))
    if python and words[1:] and words[1].startswith("-"):
        name = _program_of_variable(name)
    name = _program_of_build(name)
    if name not in PROGRAMS and _MODEL_FLAGS.intersection(words[1:]):
        name = _program_of_wrapper(name)
    if name not in PROGRAMS:
        return None
    verb, rest = PROGRAMS[name].programs[name], words[1:]
    if verb:
        if rest[:1] != [verb]:
            return None
        return PastedCommand(line, f"{name} {verb}", rest[1:])
    return PastedCommand(line, name, _without_verb(rest, "serve"))


def _without_verb(words: list[str], verb: str) -> list[str]:
    """Words without a leading ``verb``."""
    return words[1:] if words[:1] == [verb] else words


def _program_of_build(name: str) -> str:
    """The program's name without that of a build (``llama-server-b6343``)."""
    if name in PROGRAMS:
        return name
    for program in _WITHOUT_VERB:
        if name.startswith(f"{program}-"):
            return program
    return name


def _program_of_wrapper(name: str) -> str:
    """The program in the name of a script or function that takes its flags (``run_llama_server``); else the name."""
    parts = f"-{name.replace('_', '-').removesuffix('.sh')}-"
    return next((program for program in _WITHOUT_VERB if f"-{program}-" in parts), name)


def _program_of_variable(name: str) -> str:
    """The program that a variable's name indicates (``$LLAMA_SERVER_BIN``, ``$LLAMA``); else the name itself."""
    match = re.fullmatch(r"\$\{?(\w+?)(?:_(?:BIN|EXE|PATH|CMD|BINARY))?\}?", name, re.IGNORECASE)
    if match is None or "_model" in name.lower():
        return name
    program_word = match[1].lower().replace("_cpp", "").replace("_", "-")
    for program in _WITHOUT_VERB:
        if program == program_word or program.startswith(f"{program_word}-"):
            return program
    return name


def engine_of(program: str) -> Engine:
    """The engine that ``program`` (of a `PastedCommand`) starts."""
    module = program.removeprefix("python -m ")
    return PYTHON_MODULES.get(module) or PROGRAMS[program.split(maxsplit=1)[0]]
