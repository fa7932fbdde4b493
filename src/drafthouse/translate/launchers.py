"""What may stand before a program that serves: settings of variables, and programs that start another one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Programs that start what stands behind them and have no flags with a value.
_WITHOUT_VALUES = (
    "exec", "nohup", "time", "setsid", "taskset", "chrt", "trtllm-llmapi-launch", "poetry", "pipenv",
    "pdm", "hatch", "docker-entrypoint.sh", "opentelemetry-instrument", "ddtrace-run", "ncu", "strace", "unbuffer",
)  # fmt: skip
#: Programs that start what stands behind them, each with the flags of its own that take a value.
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
#: Words between such a program and what it starts: `uv run`, `nsys profile`; what a duration or a mask looks like.
_WORDS = {"uv": ("run", "tool"), "poetry": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",)}
_WORDS |= {"pixi": ("run",), "conda": ("run",), "nsys": ("profile",)}
_RANKS = ("mpirun", "mpiexec")
_ARGUMENT = {"timeout": r"\d+(?:\.\d+)?[smhd]?", "taskset": r"[\da-fx,-]+", "chrt": r"\d+"}
#: Words of a shell, of systemd, of a Dockerfile and of a list behind which a command begins.
_BEGINS = re.compile(r"do|then|else|RUN|CMD|ENTRYPOINT|-|ExecStart=[-@:+!]*")


@dataclass
class Before:
    """What stood before a program: variables that were set, and who was to start it, as typed."""

    assignments: dict[str, str] = field(default_factory=dict)
    launchers: list[str] = field(default_factory=list)


def before_program(words: list[str]) -> tuple[Before, bool]:
    """What stands in words before a program, and whether that is all of them.

    Of words that a sentence begins, what stands behind the sentence is read.
    """
    for start in range(len(words) + 1):
        before, rest = taken_off(words[start:])
        if not rest:
            return before, start == 0
    return Before(), False


def taken_off(words: list[str]) -> tuple[Before, list[str]]:
    """What stands before a program, by words, and the words from the program on."""
    before = Before()
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
            before.launchers.append(" ".join([word, *_own(program, rest, before)]))
        else:
            return before, [word, *rest]
    return before, rest


def _own(program: str, rest: list[str], before: Before) -> list[str]:
    """Take the words of a launcher's own off ``rest``."""
    own: list[str] = []
    while rest:
        word = rest[0]
        if word == "--":
            rest.pop(0)
            break
        if program in _RANKS and word == "-x" and len(rest) > 1:  # a variable for every rank
            name, equals, value = rest[1].partition("=")
            if equals:
                before.assignments[name] = value
            own += [rest.pop(0), rest.pop(0)]
        elif word.startswith("-"):
            own.append(rest.pop(0))
            if "=" not in word and word in _LAUNCHERS[program] and rest:
                own.append(rest.pop(0))
        elif word in _WORDS.get(program, ()) or re.fullmatch(_ARGUMENT.get(program, r"(?!)"), word):
            own.append(rest.pop(0))
        elif own and own[-1].startswith("-") and word not in _LAUNCHERS and "=" not in word + own[-1]:
            own.append(rest.pop(0))  # the value of a flag that is not known here
        else:
            break
    return own
