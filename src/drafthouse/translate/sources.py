"""Find the serve commands of a paste, also inside containers, files, shell scripts and Python programs."""

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
from .launchers import split_prefix
from .paste import FORMS, SHELL, Paste, PastedCommand, engine_of, engine_words, read_paste
from .python_text import Program, plain_value, read_python
from .repairs import plain_text
from .values import setting_words

#: Flags of `docker run` without a value; all others take one.
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
#: Engines by the Python call that creates them (`LLM`).
_CALLS = {name: engine for engine in DIALECTS.values() for name in engine.python_calls}
_SHELLS = ("bash", "sh")
#: Usual calls that create an engine, reported if they cannot be parsed; other calls' names are too common for that.
_USUAL_CALL = re.compile(rf"(?<!class )\b(?:{'|'.join(engine.python_calls[0] for engine in set(_CALLS.values()))})\(")
_PYTHON = re.compile(rf"\b(?:{'|'.join([*_CALLS, 'SamplingParams'])})[ \t]*\(")
_WRAPPED = 4  # the engine's program is searched in so many first words of a container's command
_DEEPEST = 2  # levels of here-documents inside here-documents
_ENVIRONMENT_FILE = re.compile(r"^[ \t]*EnvironmentFile=-?(\S+)", re.MULTILINE)
#: A flag, or a model before the flags (``Qwen/Qwen3-8B``, ``/models/a.gguf``): no program or script of the image.
_FLAG_OR_MODEL = re.compile(r"-|(?:/models?|[\w.-]+)/\S*(?<!\.sh)(?<!\.py)$")


def commands_of(text: str) -> tuple[list[PastedCommand], Paste]:
    """The serve commands of a pasted text, in order, and the parsed paste.

    Raises DrafthouseError if there is no command; the error lists the supported forms.
    """
    commands, shell_containers, paste = _commands_in(text)
    # An article may have shell commands as well as Python calls.
    if not commands or _PYTHON.search(text):
        program = read_python(plain_text(text), _PYTHON)
        try:
            commands += _commands_of_python(program, text)
        except DrafthouseError as error:
            paste.problems += error.problems
        commands = commands or _commands_of_processes(program)
    for command in commands:  # files of inner scripts, unless the paste itself writes one of that name
        paste.files = {**command.files, **paste.files}
    if not commands:
        raise DrafthouseError(paste.problems or [_no_command(text, shell_containers)])
    commands.sort(key=lambda command: command.line)
    return list(map(_without_secrets, commands)), paste


def _without_secrets(command: PastedCommand) -> PastedCommand:
    """A copy without texts that look like secrets; `reader.py` removes those that only a name shows."""
    assignments = {name: without_shapes(value) for name, value in command.assignments.items()}
    container: list[tuple[str, str]] = []
    for name, value in command.container:
        safe_value = without_shapes(value)
        if is_secret_name(name):
            safe_value = GONE
        container.append((name, safe_value))
    return replace(
        command,
        words=list(map(without_shapes, command.words)),
        assignments=assignments,
        container=container,
        launchers=list(map(without_shapes, command.launchers)),
        prose=without_shapes(command.prose),
    )


def _commands_in(
    text: str, values: dict[str, Value] | None = None, depth: int = 0
) -> tuple[list[PastedCommand], list[PastedCommand], Paste]:
    """The serve commands of a text; the `docker run`s that start an interactive shell; the parsed paste."""
    holders, rest = holders_of(plain_text(text))
    paste = Paste([], {}, [])
    if rest.strip() or not holders:
        paste = read_paste(rest, values, comments=not holders)
    commands: list[PastedCommand] = []
    for holder in holders:
        commands += _commands_of_holder(holder, paste.values)
    shell_containers: list[PastedCommand] = []  # the next command is typed into these containers' shells
    for command in paste.commands:
        if command.program == SHELL:
            commands += _commands_of_script(command.words, command)
        elif command.program == "docker run":
            container_commands = _open_container(command)
            if container_commands is None:
                shell_containers.append(command)
            else:
                commands += container_commands
        else:
            for container in shell_containers:
                command.container += container.container
                command.image = command.image or container.image
                command.assignments = {**_environment(container), **command.assignments}
            shell_containers = []
            commands.append(command)
        paste.files = {**command.files, **paste.files}
    if depth < _DEEPEST:
        for line, body in paste.heredocs:
            commands += _commands_of_document(body, line, paste, depth)
    for file in _ENVIRONMENT_FILE.findall(rest):
        if file.rsplit("/", 1)[-1] not in paste.files:
            for command in commands:
                command.container.append(("--env-file", file))
    return commands, shell_containers, paste


def _commands_of_document(body: str, line: int, paste: Paste, depth: int) -> list[PastedCommand]:
    """The commands in a here-document, which may be a systemd unit, a script or a compose file."""
    if not body.strip():
        return []
    try:
        commands, _, inner = _commands_in(body, paste.values, depth + 1)
    except DrafthouseError:  # a program in another language
        return []
    for name, text in inner.files.items():
        paste.files.setdefault(name, text)
    for command in commands:
        command.line += line - 1
    return commands


def _commands_of_holder(holder: Holder, values: dict[str, Value]) -> list[PastedCommand]:
    """The commands that a service or container of a file starts; none if it starts no engine."""
    entrypoint, rest = holder.expanded(values.get)
    if values and "--env_file" in dict(holder.settings):
        text_values = {name: value for name, value in values.items() if isinstance(value, str)}
        holder.environment = {**text_values, **holder.environment}
    command = PastedCommand(holder.line, "docker run", [], dict(holder.environment), container=list(holder.settings))
    command.image = holder.image
    if entrypoint:
        return _engine_commands(command, [*entrypoint, *rest])
    return _in_container(command, rest)


def _script_index(shell: list[str]) -> int | None:
    """The index of a shell's script, the word after ``-c`` (or ``-lc``); None without one."""
    for index, word in enumerate(shell, 1):
        if re.fullmatch(r"-\w*c", word):
            return index
    return None


def _commands_of_script(shell: list[str], around: PastedCommand) -> list[PastedCommand]:
    """The commands in the script of ``shell`` (words like ``bash -c SCRIPT NAME ARGUMENT``).

    ``around`` is the command that runs the shell: its variables, launchers and container are added.
    """
    script_index = _script_index(shell)
    if script_index is None or not "".join(shell[script_index : script_index + 1]).strip():
        return []
    arguments = shell[script_index + 2 :]
    values: dict[str, Value] = {**around.assignments}
    for number, argument in enumerate(arguments, 1):
        values[str(number)] = argument
    values["0"] = "".join(shell[script_index + 1 : script_index + 2])
    if arguments:
        values["@"] = arguments
    commands, _, script = _commands_in(shell[script_index], values)
    around.files.update(script.files)
    for command in commands:
        command.files = {**around.files, **command.files}
        command.line, command.prose = around.line, around.prose
        command.assignments = {**around.assignments, **command.assignments}
        command.launchers = [*around.launchers, *command.launchers]
        command.container = [*around.container, *command.container]
        command.image = around.image or command.image
    return commands


def _no_command(text: str, shell_containers: list[PastedCommand]) -> Problem:
    if shell_containers:
        return Problem(
            "no-serve-command",
            f"a container of {shell_containers[0].image or 'some image'} that does not start an engine",
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


def _open_container(command: PastedCommand) -> list[PastedCommand] | None:
    """The commands that a `docker run` starts; None if it starts an interactive shell or no engine."""
    command.container, rest = _docker_flags(command.words)
    command.image, *inner = rest or [""]
    command.assignments = _environment(command)
    return _in_container(command, inner) or None


def _in_container(container: PastedCommand, inner: list[str]) -> list[PastedCommand]:
    """The commands of a container; its words may be the whole command or only arguments of its entrypoint."""
    return _engine_commands(container, inner) or _engine_commands(container, _full_command(container, inner))


def _engine_commands(container: PastedCommand, command: list[str]) -> list[PastedCommand]:
    """The commands in the words of ``command``, which runs in a container: an engine's, or those of a script."""
    prefix, inner = split_prefix(command)
    if inner and inner[0].rsplit("/", 1)[-1] in _SHELLS and _script_index(inner) is not None:
        around = replace(container, launchers=prefix.launchers)
        around.assignments = {**container.assignments, **prefix.assignments}
        return _commands_of_script(inner, around)
    # A script of the image may precede the program, and run its arguments.
    for start in range(len(inner[:_WRAPPED])):
        found = engine_words(inner[start:], container.line)
        if found is not None:
            found.assignments = {**container.assignments, **prefix.assignments}
            found.launchers = prefix.launchers
            if start:
                found.launchers.append(" ".join(inner[:start]))
            found.container, found.image, found.prose = list(container.container), container.image, container.prose
            found.files = container.files
            return [found]
    return []


def _full_command(container: PastedCommand, inner: list[str]) -> list[str]:
    """The full command of a container: the entrypoint (else that of a known image) and the words after the image."""
    for name, value in container.container:
        if name == "--entrypoint":
            return [*value.split(), *inner]
    image = container.image.partition("@")[0]
    for engine in DIALECTS.values():
        for pattern, image_command in engine.images:
            if re.fullmatch(pattern, image) or re.fullmatch(pattern, image.rsplit(":", 1)[0]):
                # llama.cpp's full image chooses its program by the first word.
                if image_command and inner[:1] == ["--server"]:
                    return [*image_command, *inner[1:]]
                return [*image_command, *inner]
    if inner and _FLAG_OR_MODEL.match(inner[0]):
        return [*_custom_image_command(image), *inner]
    return inner


def _custom_image_command(image: str) -> list[str]:
    """The command of a user's own image by the engine or program in its name (``my-vllm:latest``); [] for none."""
    name = image.lower().rsplit("/", 1)[-1].partition(":")[0]
    parts = re.split(r"[^a-z]+", name)
    # Pairs, since an engine's name may be written with a hyphen or a dot in it.
    words = {*parts, *map("".join, itertools.pairwise(parts))}
    for engine in DIALECTS.values():
        if words.isdisjoint([engine.name, *" ".join(engine.programs).replace("-", "").split()]):
            continue
        for _, command in engine.images:
            if command:
                return list(command)
        if engine.python_modules:
            return ["python3", "-m", engine.python_modules[0]]
        return []
    return []


def _environment(command: PastedCommand) -> dict[str, str]:
    """The variables that are set before a `docker run` and by its `--env` flags."""
    environment = dict(command.assignments)
    for flag, setting in command.container:
        if flag == "--env":
            name, _, value = setting.partition("=")
            environment[name] = value
    return environment


def _docker_flags(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The flags of `docker run` by their long names, with their values; and the words after the flags."""
    flags: list[tuple[str, str]] = []
    index = 0
    while index < len(words) and words[index].startswith("-"):
        name, equals, value = words[index].partition("=")
        index += 1
        if re.fullmatch(r"-[itdPq]{2,}", name):  # several switches in one word: -it
            for letter in name[1:]:
                flags.append((_DOCKER_SHORT[f"-{letter}"], ""))
            continue
        if re.fullmatch(r"-[pvewul].+", name):  # -p8000:8000
            name, value, equals = name[:2], words[index - 1][2:], "="
        name = _DOCKER_SHORT.get(name, name)
        if not equals and name not in _DOCKER_SWITCHES:
            value = "".join(words[index : index + 1])
            index += 1
        flags.append((name, value))
    return flags, words[index:]


def image_version(image: str) -> str:
    """The version in an image's tag (0.10.2 for ``v0.10.2``); "" if the tag has none."""
    tag = image.partition("@")[0].rsplit("/", 1)[-1].partition(":")[2]
    match = re.match(r"v?(\d+(?:\.\w+)+)", tag)
    return match[1] if match else ""


# --- Python ---------------------------------------------------------------------------------------------


def _commands_of_python(program: Program, text: str) -> list[PastedCommand]:
    """A command per call that creates an engine, with its SamplingParams as `sampling.*`. Raises DrafthouseError."""
    commands: list[PastedCommand] = []
    sampling = next((keywords for _, name, _, keywords in program.calls if name == "SamplingParams"), {})
    other_packages = [engine.python_package for engine in DIALECTS.values() if engine.python_package]
    for line, name, values, keywords in program.calls:
        engine = _CALLS.get(name)
        if engine is None or not (values or keywords):
            continue
        call = f"{name}(...)"
        for package, needed, advice in other_packages:
            if package in text:
                raise one_problem("no-serve-command", f"{call} of {package}", needed, advice, f"line {line}")
        words = list(map(str, plain_value(values)[:1]))  # the first positional value is the model
        words += setting_words(engine.settings_of_call(plain_value(keywords)))
        environment = dict(program.environment)
        for key, value in plain_value(sampling).items():
            if "$" not in str(value):  # of each request
                environment[f"sampling.{key}"] = str(value)
        commands.append(PastedCommand(line, call, words, environment))
    match = _USUAL_CALL.search(text)
    if match and not any(name in _CALLS for _, name, _, _ in program.calls):
        raise one_problem(
            "python-not-read",
            f"{match[0]}...) that is not Python",
            "a call with its arguments",
            "paste it up to its closing )",
            f"line {text.count(chr(10), 0, match.start()) + 1}",
        )
    return commands


def _commands_of_processes(program: Program) -> list[PastedCommand]:
    """The commands that a Python program starts as processes: from its lists of words, else from its texts."""
    scripts: list[tuple[int, str]] = []
    for line, words in program.lists:
        scripts.append((line, shlex.join([str(plain_value(word)) for word in words])))
    if not scripts:
        for line, text in program.texts:
            if re.search(r"\s", text):
                scripts.append((line, str(plain_value(text))))
    command_by_words: dict[str, PastedCommand] = {}
    for line, script in scripts:
        if not script.strip():
            continue
        for command in _commands_in(script, depth=_DEEPEST)[0]:
            command.line = line
            command.assignments = {**program.environment, **command.assignments}
            command_by_words[" ".join(command.words)] = command
    return list(command_by_words.values())


def engine_of_words(command: PastedCommand) -> Engine:
    """The engine that a command starts."""
    return _CALLS.get(command.program.removesuffix("(...)")) or engine_of(command.program)
