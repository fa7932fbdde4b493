"""Split a command into what precedes the serving program, and the rest.

Variables (`A=b`) and launchers precede it. A launcher is a program that starts the program after it: `sudo`, `nice`,
`mpirun -n 2`. A profile needs none of them, but the user is told of each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..engines.registry import DIALECTS

#: Launchers without flags that take a value.
_WITHOUT_VALUES = (
    "exec", "nohup", "time", "setsid", "taskset", "chrt", "trtllm-llmapi-launch", "poetry", "pipenv",
    "pdm", "hatch", "docker-entrypoint.sh", "opentelemetry-instrument", "ddtrace-run", "ncu", "strace", "unbuffer",
)  # fmt: skip
#: All launchers, each with its usual flags that take a value: the next word belongs to such a flag.
_LAUNCHERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_WITHOUT_VALUES, ()),
    "sudo": ("-u", "-g"),
    "env": ("-u",),
    "nice": ("-n",),
    "ionice": ("-c", "-n"),
    "stdbuf": ("-i", "-o", "-e"),
    "timeout": ("-s", "-k", "--signal", "--kill-after"),
    "numactl": ("-N", "-m", "-C", "-i", "-p"),
    "mpirun": ("-n", "-np", "-c", "-H", "-host", "--host", "-hostfile", "--hostfile", "--bind-to", "--map-by"),
    "mpiexec": ("-n", "-np", "-H", "-host"),
    "srun": ("-N", "-n", "-p", "-A", "-J", "-G"),
    "uv": (
        "--with", "--python", "-p", "--extra", "--group", "--directory", "--project", "--env-file", "--index-strategy",
    ),
    "uvx": ("--with", "--from", "--python", "-p", "--index-strategy", "--torch-backend"),
    "pixi": ("-e", "--environment"),
    "conda": ("-n", "--name", "-p"),
    "nsys": ("-o", "-t", "--trace", "--output"),
}  # fmt: skip
#: Subcommands by launcher (`uv run`, `nsys profile`).
_SUBCOMMANDS = {"uv": ("run", "tool"), "poetry": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",)}
_SUBCOMMANDS |= {"pixi": ("run",), "conda": ("run",), "nsys": ("profile",)}
_MPI = ("mpirun", "mpiexec")
#: Patterns of positional arguments by launcher: a duration, the CPUs, a priority.
_ARGUMENTS = {"timeout": r"\d+(?:\.\d+)?[smhd]?", "taskset": r"[\da-fx,-]+", "chrt": r"\d+"}
_PROGRAMS = {program for engine in DIALECTS.values() for program in engine.programs}
#: Words of a shell, systemd, a Dockerfile and a list after which a command begins.
_BEGINS = re.compile(r"do|then|else|RUN|CMD|ENTRYPOINT|-|ExecStart=[-@:+!]*")


@dataclass
class Prefix:
    """The part of a command before its program."""

    assignments: dict[str, str] = field(default_factory=dict)  # values by variable
    launchers: list[str] = field(default_factory=list)  # each with its flags, as typed


def before_program(words: list[str]) -> tuple[Prefix, bool]:
    """Variables and launchers at the end of ``words``, which precede a program; True if ``words`` has nothing else.

    A sentence may lead to the command, so words are dropped from the start until only a prefix is left.
    """
    for start in range(len(words) + 1):
        before, rest = split_prefix(words[start:])
        if not rest:
            return before, start == 0
    return Prefix(), False


def split_prefix(words: list[str]) -> tuple[Prefix, list[str]]:
    """Variables and launchers at the start of ``words``, and the words from the program on."""
    before = Prefix()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if _BEGINS.fullmatch(word):
            continue
        if equals and name == "ExecStart":  # systemd: the program may follow the sign without a space
            rest.insert(0, value.lstrip("-@:+!"))
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            before.assignments[name] = value
        elif (program := word.rsplit("/", 1)[-1]) in _LAUNCHERS:
            before.launchers.append(" ".join([word, *_launcher_arguments(program, rest, before)]))
        else:
            return before, [word, *rest]
    return before, rest


def _is_program(word: str) -> bool:
    """True for a launcher, an engine's program or its Python: such a word is never the value of a launcher's flag."""
    name = word.rsplit("/", 1)[-1]
    return name in _LAUNCHERS or name in _PROGRAMS or re.fullmatch(r"python[\d.]*|(?:ba|z)?sh", name) is not None


def _launcher_arguments(program: str, rest: list[str], before: Prefix) -> list[str]:
    """Remove a launcher's arguments from ``rest``, and return them; variables that it sets go to ``before``."""
    arguments: list[str] = []
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if program in _MPI and word == "-x" and len(rest) > 1:  # sets or passes a variable for every rank
            name, equals, value = rest[1].partition("=")
            if equals:
                before.assignments[name] = value
            arguments += [rest.pop(0), rest.pop(0)]
        elif word.startswith("-"):
            arguments.append(rest.pop(0))
            if "=" not in word and word in _LAUNCHERS[program] and rest:
                arguments.append(rest.pop(0))
        # `(?!)` matches nothing: most launchers have no positional arguments.
        elif word in _SUBCOMMANDS.get(program, ()) or re.fullmatch(_ARGUMENTS.get(program, r"(?!)"), word):
            arguments.append(rest.pop(0))
        elif arguments and arguments[-1].startswith("-") and "=" not in word + arguments[-1] and not _is_program(word):
            # Behind a flag that `_LAUNCHERS` lacks, a word is taken for its value.
            arguments.append(rest.pop(0))
        else:
            break
    return arguments
