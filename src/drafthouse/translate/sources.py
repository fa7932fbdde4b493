"""From a paste to the serve commands in it: containers are opened, and a call in Python becomes a command."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import replace

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.secret_shapes import GONE, is_secret_name, without_shapes
from ..engines.base import Engine
from ..engines.registry import DIALECTS
from .documents import Holder, holders_of
from .expansions import Value
from .launchers import taken_off
from .paste import FORMS, SHELL, Paste, Words, engine_of, engine_words, read_paste
from .python_text import Program, plain_value, read_python
from .repairs import plain_text
from .values import setting_words

#: Flags of `docker run` that take no value; all the others do.
_DOCKER_SWITCHES = {
    "--rm", "--interactive", "--tty", "--detach", "--privileged", "--init", "--read-only", "--publish-all",
    "--no-healthcheck", "--oom-kill-disable", "--quiet", "--sig-proxy", "--disable-content-trust",
    # Apptainer's.
    "--nv", "--rocm", "--cleanenv", "--contain", "--containall", "--no-home", "--fakeroot", "--writable-tmpfs",
    "--writable", "--compat",
}  # fmt: skip
_DOCKER_SHORT = {
    "-p": "--publish", "-v": "--volume", "-e": "--env", "-u": "--user", "-w": "--workdir", "-h": "--hostname",
    "-m": "--memory", "-l": "--label", "-c": "--cpu-shares", "-i": "--interactive", "-t": "--tty",
    "-d": "--detach", "-P": "--publish-all", "-q": "--quiet", "-B": "--bind",
}  # fmt: skip
#: The calls in Python that make an engine, and whose they are.
_CALLS = {name: engine for engine in DIALECTS.values() for name in engine.python_calls}
_SHELLS = ("bash", "sh")
#: A call by which people start an engine, whether it can be read or not; the others may be anything.
_UNREAD = re.compile(rf"(?<!class )\b(?:{'|'.join(engine.python_calls[0] for engine in set(_CALLS.values()))})\(")
_PYTHON = re.compile(rf"\b(?:{'|'.join([*_CALLS, 'SamplingParams'])})[ \t]*\(")
_WRAPPED = 4  # words of a container's command among which the engine's program is looked for
_DEEPEST = 2  # here-documents in here-documents
_ENVIRONMENT_FILE = re.compile(r"^[ \t]*EnvironmentFile=-?(\S+)", re.MULTILINE)


def commands_of(text: str) -> tuple[list[Words], Paste]:
    """The serve commands of a paste, in order, and the paste itself.

    Raises DrafthouseError when there is none, naming the forms that are known.
    """
    found, waiting, paste = _commands_in(text)
    if not found or _PYTHON.search(text):
        program = read_python(plain_text(text), _PYTHON)
        try:
            found += _python(program, text)
        except DrafthouseError as error:
            paste.problems += error.problems
        found = found or _handed_on(program)
    for words in found:
        paste.files = {**words.files, **paste.files}
    if not found:
        raise DrafthouseError(paste.problems or [_nothing(text, waiting)])
    found.sort(key=lambda words: words.line)
    return list(map(_without_secrets, found)), paste


def _without_secrets(words: Words) -> Words:
    """Take out what looks like a secret; what the name of a flag or variable says of its value is told later."""
    assignments = {name: without_shapes(value) for name, value in words.assignments.items()}
    container: list[tuple[str, str]] = []
    for name, value in words.container:
        public = without_shapes(value)
        if is_secret_name(name):
            public = GONE
        container.append((name, public))
    return replace(
        words,
        words=list(map(without_shapes, words.words)),
        assignments=assignments,
        container=container,
        launchers=list(map(without_shapes, words.launchers)),
        prose=without_shapes(words.prose),
    )


def _commands_in(
    text: str, values: dict[str, Value] | None = None, depth: int = 0
) -> tuple[list[Words], list[Words], Paste]:
    """The serve commands of a text, the containers in it that only start a shell, and the text as a paste."""
    holders, rest = holders_of(plain_text(text))
    paste = Paste([], {}, [])
    if rest.strip() or not holders:
        paste = read_paste(rest, values, comments=not holders)
    found: list[Words] = []
    for holder in holders:
        found += _started_by(holder, paste.values)
    waiting: list[Words] = []  # what is typed into such a shell comes later
    for words in paste.commands:
        if words.program == SHELL:
            found += _script(words.words, words)
        elif words.program == "docker run":
            opened = _open_container(words)
            if opened is None:
                waiting.append(words)
            else:
                found += opened
        else:
            for container in waiting:
                words.container += container.container
                words.image = words.image or container.image
                words.assignments = {**_environment(container), **words.assignments}
            waiting = []
            found.append(words)
    if depth < _DEEPEST:
        for line, body in paste.fed:
            found += _in_document(body, line, paste, depth)
    for file in _ENVIRONMENT_FILE.findall(rest):
        if file.rsplit("/", 1)[-1] not in paste.files:
            for words in found:
                words.container.append(("--env-file", file))
    return found, waiting, paste


def _in_document(body: str, line: int, paste: Paste, depth: int) -> list[Words]:
    """The commands in the text of a here-document: a unit, a script, a compose file."""
    if not body.strip():
        return []
    try:
        found, _, inner = _commands_in(body, paste.values, depth + 1)
    except DrafthouseError:  # a program in another language
        return []
    for name, text in inner.files.items():
        paste.files.setdefault(name, text)
    for words in found:
        words.line += line - 1
    return found


def _started_by(holder: Holder, values: dict[str, Value]) -> list[Words]:
    """The commands that a service or a container of a file starts; nothing where it is no engine's."""
    entrypoint, rest = holder.filled(values.get)
    if values and "--env_file" in dict(holder.settings):
        own = {name: value for name, value in values.items() if isinstance(value, str)}
        holder.environment = {**own, **holder.environment}
    words = Words(holder.line, "docker run", [], dict(holder.environment), container=list(holder.settings))
    words.image = holder.image
    if entrypoint:
        return _opened(words, [*entrypoint, *rest])
    return _in_container(words, rest)


def _script_place(shell: list[str]) -> int | None:
    """The place of a shell's script, which is behind its ``-c`` (or ``-lc``); None without one."""
    for place, word in enumerate(shell, 1):
        if re.fullmatch(r"-\w*c", word):
            return place
    return None


def _script(shell: list[str], around: Words) -> list[Words]:
    """The commands in the script that a shell gets as a word, with what was set around it.

    Behind the script stand its own name (usually ``--``) and what it is called with.
    """
    place = _script_place(shell)
    if place is None or not "".join(shell[place : place + 1]).strip():
        return []
    given = shell[place + 2 :]
    values: dict[str, Value] = {**around.assignments}
    for number, word in enumerate(given, 1):
        values[str(number)] = word
    values["0"] = "".join(shell[place + 1 : place + 2])
    if given:
        values["@"] = given
    found, _, script = _commands_in(shell[place], values)
    for command in found:
        command.files = {**script.files, **command.files}
        command.line, command.prose = around.line, around.prose
        command.assignments = {**around.assignments, **command.assignments}
        command.launchers = [*around.launchers, *command.launchers]
        command.container = [*around.container, *command.container]
        command.image = around.image or command.image
    return found


def _nothing(text: str, waiting: list[Words]) -> Problem:
    if waiting:
        return Problem(
            "no-serve-command",
            f"a container of {waiting[0].image or 'some image'} that does not start an engine",
            f"a serve command after it: {FORMS}",
            "also paste the command that runs in it",
        )
    seen = "no serve command"
    for name in re.findall(r"\b(sglang|ollama|tgi|text-generation-launcher|lmdeploy)\b", text):
        if name not in DIALECTS:
            seen = f"no supported engine ({name} is not one)"
            break
    return Problem("no-serve-command", seen, f"one of: {FORMS}", "paste the whole command, from its first word")


# --- containers -----------------------------------------------------------------------------------------


def _open_container(words: Words) -> list[Words] | None:
    """The commands that a `docker run` starts; None when it is a shell for typing into."""
    words.container, rest = _docker_flags(words.words)
    words.image, *inner = rest or [""]
    words.assignments = _environment(words)
    return _in_container(words, inner) or None


def _in_container(words: Words, inner: list[str]) -> list[Words]:
    """The commands of a container, whose words may repeat its entrypoint (``vllm serve MODEL``)."""
    return _opened(words, inner) or _opened(words, _full_command(words, inner))


def _opened(words: Words, command: list[str]) -> list[Words]:
    """The commands that ``command`` is in a container: an engine's, or those of a shell's script."""
    before, inner = taken_off(command)
    if inner and inner[0].rsplit("/", 1)[-1] in _SHELLS and _script_place(inner) is not None:
        around = replace(words, launchers=before.launchers)
        around.assignments = {**words.assignments, **before.assignments}
        return _script(inner, around)
    # A script of the image's may stand before it, and run what it is given.
    for place in range(len(inner[:_WRAPPED])):
        named = engine_words(inner[place:], words.line)
        if named is not None:
            named.assignments = {**words.assignments, **before.assignments}
            named.launchers = before.launchers
            if place:
                named.launchers.append(" ".join(inner[:place]))
            named.container, named.image, named.prose = list(words.container), words.image, words.prose
            return [named]
    return []


def _full_command(words: Words, inner: list[str]) -> list[str]:
    """The command of a container: its entrypoint, or the image's, and the words behind the image."""
    for name, value in words.container:
        if name == "--entrypoint":
            return [*value.split(), *inner]
    image = words.image.partition("@")[0]
    for engine in DIALECTS.values():
        for pattern, command in engine.images:
            if re.fullmatch(pattern, image) or re.fullmatch(pattern, image.rsplit(":", 1)[0]):
                # llama.cpp's full image is told by its first word which program is meant.
                if command and inner[:1] == ["--server"]:
                    return [*command, *inner[1:]]
                return [*command, *inner]
    if inner and inner[0].startswith("-"):
        return [*_own_image(image), *inner]
    return inner


def _own_image(image: str) -> list[str]:
    """The command of an image that somebody built, by the engine in its name: ``my-vllm:latest``; [] for none."""
    name = image.lower().rsplit("/", 1)[-1].partition(":")[0]
    parts = re.split(r"[^a-z]+", name)
    # An engine's name may be written with a hyphen or a dot in it.
    named = {*parts, *map("".join, itertools.pairwise(parts))}
    for engine in DIALECTS.values():
        if engine.name not in named:
            continue
        for _, command in engine.images:
            if command:
                return list(command)
        if engine.python_modules:
            return ["python3", "-m", engine.python_modules[0]]
        return []
    return []


def _environment(words: Words) -> dict[str, str]:
    """What is set before a `docker run` and by its --env flags."""
    environment = dict(words.assignments)
    for flag, setting in words.container:
        if flag == "--env":
            name, _, value = setting.partition("=")
            environment[name] = value
    return environment


def _docker_flags(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The flags of `docker run` under their long names with their values, and what is behind them."""
    flags: list[tuple[str, str]] = []
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, equals, value = words[place].partition("=")
        place += 1
        if re.fullmatch(r"-[itdPq]{2,}", name):
            for letter in name[1:]:
                flags.append((_DOCKER_SHORT[f"-{letter}"], ""))
            continue
        if re.fullmatch(r"-[pvewul].+", name):  # -p8000:8000
            name, value, equals = name[:2], words[place - 1][2:], "="
        name = _DOCKER_SHORT.get(name, name)
        if not equals and name not in _DOCKER_SWITCHES:
            value = "".join(words[place : place + 1])
            place += 1
        flags.append((name, value))
    return flags, words[place:]


def image_version(image: str) -> str:
    """The version in an image's tag (``v0.10.2`` is 0.10.2); '' where it names none."""
    tag = image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    found = re.match(r"v?(\d+(?:\.\w+)+)", tag)
    return found[1] if found else ""


# --- Python ---------------------------------------------------------------------------------------------


def _python(program: Program, text: str) -> list[Words]:
    """A command for every call that makes an engine; what it samples with comes along."""
    found: list[Words] = []
    sampling = next((given for _, name, _, given in program.calls if name == "SamplingParams"), {})
    others = [engine.python_package for engine in DIALECTS.values() if engine.python_package]
    for line, name, values, given in program.calls:
        engine = _CALLS.get(name)
        if engine is None or not (values or given):
            continue
        call = f"{name}(...)"
        for package, needed, do in others:
            if package in text:
                raise one_problem("no-serve-command", f"{call} of {package}", needed, do, f"line {line}")
        words = list(map(str, plain_value(values)[:1]))
        words += setting_words(engine.settings_of_call(plain_value(given)))
        environment = dict(program.environment)
        for key, value in plain_value(sampling).items():
            environment[f"sampling.{key}"] = str(value)
        found.append(Words(line, call, words, environment))
    match = _UNREAD.search(text)
    if match and not any(name in _CALLS for _, name, _, _ in program.calls):
        raise one_problem(
            "python-not-read",
            f"{match[0]}...) that is not Python",
            "a call with its arguments",
            "paste it up to its closing )",
            f"line {text.count(chr(10), 0, match.start()) + 1}",
        )
    return found


def _handed_on(program: Program) -> list[Words]:
    """The commands that a program hands to a process: a list of words, or a text."""
    scripts: list[tuple[int, str]] = []
    for line, words in program.lists:
        scripts.append((line, shlex.join([str(plain_value(word)) for word in words])))
    if not scripts:
        for line, text in program.texts:
            if re.search(r"\s", text):
                scripts.append((line, str(plain_value(text))))
    found: dict[str, Words] = {}
    for line, script in scripts:
        if not script.strip():
            continue
        for command in _commands_in(script, depth=_DEEPEST)[0]:
            command.line = line
            command.assignments = {**program.environment, **command.assignments}
            found[" ".join(command.words)] = command
    return list(found.values())


def engine_of_words(words: Words) -> Engine:
    """The engine that a command starts."""
    return _CALLS.get(words.program.removesuffix("(...)")) or engine_of(words.program)
