"""Make untrusted text safe to show on a terminal, in a comment or in a log.

A profile's title, an engine's answer or a model's metadata must not end a comment, move the cursor or reverse the
reading direction. Standard library only, Python 3.10.
"""

from __future__ import annotations

import re
import unicodedata

# Characters that change the direction of writing, so that a reader sees another text than a program (CVE-2021-42574).
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BREAKS = frozenset("\n\t\u2028\u2029")
# Unicode categories: control (colours, cursor moves, U+0085, a line break in YAML), format, private use, surrogate.
_NOT_SHOWN = ("Cc", "Cf", "Co", "Cs")
#: The user and the password before the host of a URL, such as `http://me:secret@host`.
_PASSWORD = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]*@")


def without_passwords(text: str) -> str:
    """``text`` with users and passwords removed from its URLs: `http://(password)@host`."""
    return _PASSWORD.sub("(password)@", text) if "://" in text else text


def printable(value: object) -> str:
    """A value as one line of text: a space for each line break or tab, ``?`` for other control characters."""
    return "".join(map(_safe_character, str(value)))


def printable_lines(text: str) -> str:
    """``text`` with :func:`printable` applied to each line; only line feeds separate lines."""
    return "\n".join(map(printable, text.split("\n")))


def _safe_character(char: str) -> str:
    """A character as `printable` shows it."""
    if char in _BREAKS:
        return " "
    if unicodedata.category(char) in _NOT_SHOWN or _is_no_character(char):
        return "?"
    return char


def _is_no_character(char: str) -> bool:
    """True for a code point that is no character (U+FFFE and similar), which YAML and XML refuse."""
    return ord(char) & 0xFFFE == 0xFFFE or "\ufdd0" <= char <= "\ufdef"


def hidden_character(text: str) -> str | None:
    """The first character that must not be in a line of text, written as U+000A; None if there is none.

    These are control characters, line breaks, surrogates, changes of direction and code points that are no character.
    Joiners and soft hyphens are allowed, because some scripts need them.
    """
    if text.isprintable():  # a fast check that nearly every text passes
        return None
    for char in text:
        if char in _DIRECTIONS or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or _is_no_character(char):
            return f"U+{ord(char):04X}"
    return None
