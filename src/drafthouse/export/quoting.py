"""Quote every string that a template of `templates/export` writes.

Each kind of file has its own Jinja filters, such as `yaml` or `shell_word`. `_finalize` refuses a string that did not
pass through one of them, so nothing is written unquoted. The filters also escape `$` and `%`, with which tools and
systemd mark variables and specifiers.
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

#: Characters that no argument of a program can hold: NUL, and a lone surrogate (half of a character).
_IMPOSSIBLE = re.compile("[\x00\ud800-\udfff]")


class Quoted(str):
    """Text that is already quoted for its file."""

    __slots__ = ()


def _finalize(value: object) -> object:
    """``value`` if it may be printed: quoted text or an integer. Raises TypeError for any other."""
    if isinstance(value, Quoted) or type(value) is int:
        return value
    raise TypeError(f"printed without a quoting filter: {value!r}")


def _checked_words(words: str | Sequence[str]) -> list[str]:
    """One word or several as a list. Raises DrafthouseError for a word that no program argument can hold."""
    word_list = [words] if isinstance(words, str) else list(words)
    for word in word_list:
        if _IMPOSSIBLE.search(word):
            found = f"{word[:80]!r} in what is exported"
            needed = "text without NUL and without half a character"
            raise one_problem("wrong-format", found, needed, "correct it in the profile or the catalogue entry")
    return word_list


def shell_word(words: str | Sequence[str]) -> Quoted:
    """One word or several, quoted for a POSIX shell.

    `${`, `$(` and `$$` are split by closing and reopening the quotes, so that no tool between the file and the shell
    takes them for its own variables.
    """
    quoted = []
    for word in _checked_words(words):
        quoted.append(re.sub(r"\$(?=[{($])", "$''", shlex.quote(word)))
    return Quoted(" ".join(quoted))


def variable(name: str) -> Quoted:
    """The name of an environment variable. Raises DrafthouseError if it is not one."""
    return Quoted(checked_variable(name))


def yaml_value(value: object, indent: int = 0) -> Quoted:
    """A value in YAML: a scalar, or a list or mapping with an entry per line after ``indent`` spaces.

    A script, which ends in a newline, becomes a literal block if that keeps it unchanged. Other text is quoted.
    """
    pad = "\n" + " " * indent
    if isinstance(value, str):
        (text,) = _checked_words(value)
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
    """A value in YAML for a tool that expands variables and reads `$$` as `$`."""
    return Quoted(yaml_value(value, indent).replace("$", "$$"))


def dstack_tag(text: str) -> Quoted:
    """The value of a dstack tag: other characters become `-`, and dstack allows at most 256."""
    return yaml_value(re.sub(r"[^a-zA-Z0-9 .:/=_+@-]", "-", text)[:256])


def unit_words(words: str | Sequence[str]) -> Quoted:
    """The words of a command in a systemd unit, each in double quotes, with variables and specifiers escaped.

    Raises DrafthouseError for an empty word, after which Quadlet stops reading, and for `;`, which Quadlet passes to
    systemd unquoted, where it ends the command.
    """
    word_list = _checked_words(words)
    quoted = []
    for word in word_list:
        if word in ("", ";"):
            needed = "arguments that Podman's Quadlet can hand on"
            raise one_problem("export-unsupported", f"the argument {word!r}", needed, "export to another target")
        escaped = "".join(map(_escape_in_unit, word))
        quoted.append(f'"{_double_markers(escaped)}"')
    return Quoted(" ".join(quoted))


def _escape_in_unit(character: str) -> str:
    """A character as it stands inside a unit's double quotes; systemd reads an x escape as a byte, not a character."""
    if character in '\\"':
        return f"\\{character}"
    if character.isprintable():
        return character
    code_point = ord(character)
    return f"\\x{code_point:02x}" if code_point < 0x80 else f"\\U{code_point:08x}"


def unit_json(words: Sequence[str]) -> Quoted:
    """A list of words as JSON, for unit keys that Quadlet passes on as a single text."""
    return Quoted(_double_markers(json.dumps(_checked_words(words))))


def unit_line(text: str) -> Quoted:
    """The value of a unit's key on one line, with variables and specifiers escaped; line breaks become spaces."""
    (word,) = _checked_words(text)
    return Quoted(_double_markers(printable(word)))


def _double_markers(text: str) -> str:
    """Double `$` and `%`, which systemd would expand."""
    return text.replace("$", "$$").replace("%", "%%")


def comment(sentences: Sequence[str]) -> Quoted:
    """Comment lines for the non-empty sentences."""
    return Quoted("\n".join(comment_lines(text) for text in sentences if text))


#: Jinja filters by name.
Filters = Mapping[str, Callable[..., Quoted]]
_YAML: Filters = {"yaml": yaml_value, "comment": comment}
_COMPOSE: Filters = {"yaml": yaml_doubled, "comment": comment}
#: Kubernetes expands variables in commands, environment and probes, but not in annotations.
_KUBERNETES: Filters = {**_COMPOSE, "annotation": yaml_value}
_UNIT: Filters = {"unit_words": unit_words, "unit_json": unit_json, "unit_line": unit_line, "comment": comment}
_SHELL: Filters = {"shell_word": shell_word, "variable": variable}
#: The filters of a template, by its file name or its suffix.
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
