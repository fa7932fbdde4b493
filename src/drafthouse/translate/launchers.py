"""Remove what precedes the serving program in a command: variables (`A=b`) and launchers (`sudo`, `mpirun -n 2`)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Launchers, programs that start the program after them, without flags that take a value.
_WITHOUT_VALUES = (
    "exec", "nohup", "time", "setsid", "taskset", "chrt", "trtllm-llmapi-launch", "poetry", "pipenv",
    "pdm", "hatch", "docker-entrypoint.sh", "opentelemetry-instrument", "ddtrace-run", "ncu", "strace", "unbuffer",
)  # fmt: skip
#: All launchers, each with its flags that take a value.
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
#: Subcommands of launchers (`uv run`, `nsys profile`), and the patterns of their positional arguments.
_SUBCOMMANDS = {"uv": ("run", "tool"), "poetry": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",)}
_SUBCOMMANDS |= {"pixi": ("run",), "conda": ("run",), "nsys": ("profile",)}
_MPI = ("mpirun", "mpiexec")
_ARGUMENTS = {"timeout": r"\d+(?:\.\d+)?[smhd]?", "taskset": r"[\da-fx,-]+", "chrt": r"\d+"}
#: Words of a shell, systemd, a Dockerfile and a list after which a command begins.
_BEGINS = re.compile(r"do|then|else|RUN|CMD|ENTRYPOINT|-|ExecStart=[-@:+!]*")


@dataclass
class Prefix:
    """What preceded a program: variables by name, and its launchers with their flags, as typed."""

    assignments: dict[str, str] = field(default_factory=dict)
    launchers: list[str] = field(default_factory=list)


def before_program(words: list[str]) -> tuple[Prefix, bool]:
    """Variables and launchers at the end of ``words``, and True if ``words`` contains nothing else.

    The words before them may be a sentence that ends at the command.
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
        if equals and name == "ExecStart":
            rest.insert(0, value.lstrip("-@:+!"))
        elif equals and re.fullmatch(r"[A-Za-z_]\w*", name):
            before.assignments[name] = value
        elif (program := word.rsplit("/", 1)[-1]) in _LAUNCHERS:
            before.launchers.append(" ".join([word, *_launcher_arguments(program, rest, before)]))
        else:
            return before, [word, *rest]
    return before, rest


def _launcher_arguments(program: str, rest: list[str], before: Prefix) -> list[str]:
    """Remove a launcher's arguments from ``rest``, and return them; variables that it sets go to ``before``."""
    arguments: list[str] = []
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if program in _MPI and word == "-x" and len(rest) > 1:  # a variable for every rank
            name, equals, value = rest[1].partition("=")
            if equals:
                before.assignments[name] = value
            arguments += [rest.pop(0), rest.pop(0)]
        elif word.startswith("-"):
            arguments.append(rest.pop(0))
            if "=" not in word and word in _LAUNCHERS[program] and rest:
                arguments.append(rest.pop(0))
        elif word in _SUBCOMMANDS.get(program, ()) or re.fullmatch(_ARGUMENTS.get(program, r"(?!)"), word):
            arguments.append(rest.pop(0))
        elif arguments and arguments[-1].startswith("-") and word not in _LAUNCHERS and "=" not in word + arguments[-1]:
            arguments.append(rest.pop(0))  # the value of an unknown flag
        else:
            break
    return arguments
