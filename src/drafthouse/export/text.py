"""How files are written and read back: YAML, and commands for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from ..core.documents import Json
from ..core.shell import shell_words
from ..core.yaml_documents import yaml_of


class _Dumper(yaml.SafeDumper):
    """Lists stand deeper than their key, and a text of several lines is a block."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(header: Iterable[str], *documents: Json) -> str:
    """Return a file of YAML with its comment on top."""
    bodies = [yaml.dump(one, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4000) for one in documents]
    return "\n".join(header) + "\n---\n" + "---\n".join(bodies)


def yaml_mapping(text: str) -> Any:
    """Return the mapping of a YAML file, to be read without asking. Raises BadDocument, or TypeError for another."""
    data = yaml_of(text)
    if not isinstance(data, dict):
        raise TypeError("mapping in it")
    return data


def shell_command(argv: Sequence[str]) -> str:
    """Return `exec` and a command for bash, a flag with its value a line."""
    lines = [["exec"]]
    for word in argv:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n  ".join(shell_words(line) for line in lines) + "\n"


def shell_argv(text: str) -> tuple[str, list[str]]:
    """Return what stands above the command of a script as `shell_command` writes it, and the command."""
    above, _, command = f"\n{text}".partition("\nexec ")
    # shlex takes an escaped line break for a word of its own.
    return above, [word for word in shlex.split(command) if word != "\n"]
