"""The quoting of every string that a template of `templates/export` writes.

Each kind of file has an environment with filters of its own. Whatever a template prints has to come
out of one of them: `_finalize` refuses any other string, so that none is written unquoted. `$` and
`%` mean something to the tools as well: the filters write them so that the tool reads the plain
character.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jinja2

from ..core.errors import one_problem
from ..core.plain_text import printable
from ..core.shell import compact_json
from ..profiles.render import comment_lines
from ..profiles.render import variable as checked_variable

#: What a program cannot be given as an argument, in any file: NUL, and half a character.
_IMPOSSIBLE = re.compile("[\x00\ud800-\udfff]")


class Quoted(str):
    """Text that stands for itself where it is written."""

    __slots__ = ()


def _finalize(value: object) -> object:
    """A value that may be printed: quoted text or a whole number. Raises TypeError for another."""
    if isinstance(value, Quoted) or type(value) is int:
        return value
    raise TypeError(f"printed without a quoting filter: {value!r}")


def _words(words: str | Sequence[str]) -> list[str]:
    """One word or several, as a list. Raises DrafthouseError for what no argument can be."""
    listed = [words] if isinstance(words, str) else list(words)
    for word in listed:
        if _IMPOSSIBLE.search(word):
            found, needed = f"{word[:80]!r} in what is exported", "text without NUL and without half a character"
            raise one_problem("wrong-format", found, needed, "correct it in the profile or the catalogue entry")
    return listed


def shell_word(words: str | Sequence[str]) -> Quoted:
    """One word or several for a shell.

    The quotes close and open again in `${`, `$(` and `$$`: no tool through which the script passes
    finds its own in it.
    """
    quoted = []
    for word in _words(words):
        quoted.append(re.sub(r"\$(?=[{($])", "$''", shlex.quote(word)))
    return Quoted(" ".join(quoted))


def variable(name: str) -> Quoted:
    """The name of a variable. Raises DrafthouseError for anything else."""
    return Quoted(checked_variable(name))


def yaml_value(value: object, indent: int = 0) -> Quoted:
    """A value in YAML: a scalar, or a list or mapping, an entry a line after ``indent`` spaces.

    A script is a literal block where nothing in it could end or change the block; every other text
    is in quotes.
    """
    pad = "\n" + " " * indent
    if isinstance(value, str):
        (text,) = _words(value)
        script = text.endswith("\n") and text[0] not in " \n" and not text.endswith("\n\n")
        if indent and script and text.replace("\n", "").isprintable():
            block = "|"
            for line in text[:-1].split("\n"):
                block += pad + line if line else "\n"
            return Quoted(block)
        if '"' in text and text.isprintable():
            return Quoted("'" + text.replace("'", "''") + "'")
        return Quoted(compact_json(text))
    if isinstance(value, Mapping):
        entries = [f"{pad}{yaml_value(key)}: {yaml_value(entry)}" for key, entry in value.items()]
        return Quoted("".join(entries) or " {}")
    if isinstance(value, Sequence):
        return Quoted("".join(f"{pad}- {yaml_value(entry, indent + 2)}" for entry in value) or " []")
    return Quoted(json.dumps(value))


def yaml_doubled(value: object, indent: int = 0) -> Quoted:
    """A value in YAML for a tool that fills in variables, and makes one `$` of two."""
    return Quoted(yaml_value(value, indent).replace("$", "$$"))


def dstack_tag(text: str) -> Quoted:
    """The value of a tag of dstack, which refuses other characters and more of them."""
    return yaml_value(re.sub(r"[^a-zA-Z0-9 .:/=_+@-]", "-", text)[:256])


def unit_words(words: str | Sequence[str]) -> Quoted:
    """Words of a command in a unit, each in double quotes, without variables and specifiers.

    Raises DrafthouseError for an empty word, behind which Quadlet reads nothing more, and for `;`,
    which Quadlet hands to systemd without quotes: the end of the command.
    """
    listed = _words(words)
    quoted = []
    for word in listed:
        if word in ("", ";"):
            found, needed = f"the argument {word!r}", "arguments that Podman's Quadlet can hand on"
            raise one_problem("export-unsupported", found, needed, "export to another target")
        letters = "".join(map(_unit_letter, word))
        quoted.append(f'"{_doubled(letters)}"')
    return Quoted(" ".join(quoted))


def _unit_letter(letter: str) -> str:
    """A character between a unit's double quotes; systemd takes what follows an x for a byte."""
    if letter in '\\"':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\U{code:08x}"


def unit_json(words: Sequence[str]) -> Quoted:
    """A list of words as JSON, for the keys of a unit that are handed on as one text."""
    return Quoted(_doubled(json.dumps(_words(words))))


def unit_line(text: str) -> Quoted:
    """The rest of a unit's line, without variables and specifiers; a line break is a space."""
    (word,) = _words(text)
    return Quoted(_doubled(printable(word)))


def _doubled(text: str) -> str:
    return text.replace("$", "$$").replace("%", "%%")


def comment(sentences: Sequence[str]) -> Quoted:
    """Lines of a comment; empty sentences are left out."""
    return Quoted("\n".join(comment_lines(text) for text in sentences if text))


Filters = Mapping[str, Callable[..., Quoted]]
_YAML: Filters = {"yaml": yaml_value, "comment": comment}
_COMPOSE: Filters = {"yaml": yaml_doubled, "comment": comment}
#: Kubernetes fills in commands, variables and probes; its annotations are as they stand.
_KUBERNETES: Filters = {**_COMPOSE, "annotation": yaml_value}
_UNIT: Filters = {"unit_words": unit_words, "unit_json": unit_json, "unit_line": unit_line, "comment": comment}
_SHELL: Filters = {"shell_word": shell_word, "variable": variable}
#: The filters of a template, by its name or else by its suffix.
FILTERS: Mapping[str, Filters] = {
    "compose.yaml": _COMPOSE,
    "kubernetes.yaml": _KUBERNETES,
    "production-stack.yaml": _KUBERNETES,
    "dstack.yaml": {**_YAML, "tag": dstack_tag},
    "skypilot.yaml": _YAML,
    ".container": _UNIT,
    ".sh": _SHELL,
}


@functools.cache
def template(templates: Path, name: str) -> jinja2.Template:
    """The template ``name`` (`kubernetes.yaml`) below ``templates``/export, with its filters."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
        autoescape=False,  # noqa: S701 (shell, YAML and units, where HTML escapes would be wrong)
    )
    env.filters = dict(FILTERS.get(name) or FILTERS[Path(name).suffix])
    return env.get_template(f"{name}.j2")
