"""Text that somebody else wrote, as a line that a terminal, a comment or a log shows and does not obey.

A profile's title, an engine's answer, a model's metadata: none of them may end a comment, move a cursor or turn the
reading direction. Standard library only, Python 3.10.
"""

from __future__ import annotations

import re
import unicodedata

# What reorders the letters after it, so that a reader sees another text than a program does (CVE-2021-42574).
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BREAKS = frozenset("\n\t\u2028\u2029")
# Controls (colours, cursor moves, and U+0085, which YAML takes for a line break), formats, private use, surrogates.
_NOT_SHOWN = ("Cc", "Cf", "Co", "Cs")


#: User and password in front of a host, as `http://me:secret@host` has them.
_PASSWORD = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]*@")


def without_passwords(text: str) -> str:
    """Text whose URLs have lost their passwords: `http://(password)@host`."""
    return _PASSWORD.sub("(password)@", text) if "://" in text else text


def printable(value: object) -> str:
    """A value as one line: line breaks and tabs show as a space, what would steer a terminal as ``?``."""
    return "".join(map(_shown, str(value)))


def printable_lines(text: str) -> str:
    """Text for a terminal, each line as :func:`printable` has it; line feeds alone part lines."""
    return "\n".join(map(printable, text.split("\n")))


def _shown(char: str) -> str:
    if char in _BREAKS:
        return " "
    if unicodedata.category(char) in _NOT_SHOWN or _is_no_character(char):
        return "?"
    return char


def _is_no_character(char: str) -> bool:
    """Tell whether Unicode will never have it (U+FFFE and its like), which YAML and XML refuse to read."""
    return ord(char) & 0xFFFE == 0xFFFE or "\ufdd0" <= char <= "\ufdef"


def hidden_character(text: str) -> str | None:
    """The first character that has no place in a line of text, as U+000A; None where there is none.

    These are controls, line breaks, surrogates, what turns the direction, and what is no character. Joiners and soft
    hyphens, which some scripts need, are none of them.
    """
    if text.isprintable():  # nothing but letters, marks, signs and spaces: nearly every text, and C looks at it
        return None
    for char in text:
        if char in _DIRECTIONS or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or _is_no_character(char):
            return f"U+{ord(char):04X}"
    return None
