"""Quote words for a shell, and build the flags of an engine's command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

Flag = list[str]  # the words of a flag: ["--flag"] or ["--flag", "value"]; for a positional argument ["value"]
# Line breaks of YAML besides \n and \r, control characters, surrogates, byte order marks, and no characters at all.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def shell_words(words: str | Sequence[object]) -> str:
    """One word, or several separated by spaces, quoted for a POSIX shell where necessary."""
    if isinstance(words, str):
        return shlex.quote(words)
    return " ".join(shlex.quote(str(word)) for word in words)


def inside_double_quotes(text: object) -> str:
    """``text`` escaped so that it can stand literally inside double quotes of a shell."""
    return re.sub(r'(["\\$`])', r"\\\1", str(text))


def inside_single_quotes(text: object) -> str:
    """``text`` escaped so that it can stand literally inside single quotes of a shell."""
    return str(text).replace("'", "'\"'\"'")


def compact_json(data: object) -> str:
    """``data`` as one line of JSON, in the given order of keys and without escapes that are not needed.

    Escaped are characters that YAML takes for a line break, and those that UTF-8 cannot encode.
    """
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(data, ensure_ascii=False))


def flag(name: str, value: object) -> Flag:
    """The flag ``name`` (--with-dashes) and its value as words; for True the flag alone, for False ``--no-…``."""
    if value is True:
        return [name]
    if value is False:
        return [f"--no-{name.removeprefix('--')}"]
    return [name, str(value)]
