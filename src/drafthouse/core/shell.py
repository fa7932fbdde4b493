"""Command lines as lists of words, and how a person would type them in a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

Flag = list[str]  # ["--flag"] or ["--flag", "value"]; a positional is ["value"]


_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def shell_words(words: str | Sequence[object]) -> str:
    """One word, or several, quoted for a POSIX shell where that is needed."""
    if isinstance(words, str):
        return shlex.quote(words)
    return " ".join(shlex.quote(str(word)) for word in words)


def inside_double_quotes(text: object) -> str:
    """Text for the inside of a shell's double quotes, where it stands for itself."""
    return re.sub(r'(["\\$`])', r"\\\1", str(text))


def inside_single_quotes(text: object) -> str:
    """Text for the inside of a shell's single quotes, where it stands for itself."""
    return str(text).replace("'", "'\"'\"'")


def compact_json(data: object) -> str:
    """``data`` as one line of JSON in the order it was given, as a person would type it.

    What is a line break to YAML, or cannot be written as UTF-8, is escaped.
    """
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(data, ensure_ascii=False))


def flag(name: str, value: object) -> Flag:
    """One flag with its value; a true switch stands alone, a false one is ``--no-…``."""
    if value is True:
        return [name]
    if value is False:
        return [f"--no-{name.removeprefix('--')}"]
    return [name, str(value)]
