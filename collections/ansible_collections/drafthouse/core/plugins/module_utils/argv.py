"""Command lines as lists of words, and how a person would type them in a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

Flag = list[str]  # ["--flag"] or ["--flag", "value"]; a positional is ["value"]


def shell_words(words: str | Sequence[object]) -> str:
    """Return one word, or several, quoted for a POSIX shell where that is needed."""
    if isinstance(words, str):
        return shlex.quote(words)
    return " ".join(shlex.quote(str(word)) for word in words)


def compact_json(data: object) -> str:
    """Return ``data`` as one line of JSON in the order it was given, as a person would type it."""
    return json.dumps(data, ensure_ascii=False)


def flag(name: str, value: object) -> Flag:
    """Return one flag with its value; a true switch stands alone, a false one is ``--no-…``."""
    if value is True:
        return [name]
    if value is False:
        return [f"--no-{name.removeprefix('--')}"]
    return [name, str(value)]
