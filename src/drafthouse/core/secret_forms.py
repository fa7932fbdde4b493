"""Find known secrets in a text in every form: encoded, escaped, wrapped over lines, or in pieces.

A form is one way to write a secret: as it is, in base64, as hexadecimal digits, ... A text is searched twice:

1. With the escapes of JSON, URLs, HTML and shells undone and line ends removed. Each form must stand in it whole.
2. "Dense": with letters and digits only. A piece of a form is enough, so that it is found across lines of any width,
   indented, quoted or behind a log's prefix. An index has all blocks of `_BLOCK` characters of all forms. Each block of
   the text that begins at a multiple of `_BLOCK` is looked up in it, and a match is extended to both sides.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from array import array
from collections.abc import Callable, Iterable, Iterator

#: Characters of the shortest secret that is removed: a shorter one may be a common word.
SHORTEST = 6
#: The fewest letters and digits that count as a piece of a form. Two logs of 5 MB have no 12 hexadecimal digits in
#: common by chance, and a piece of 11 or more contains a whole block that begins at a multiple of `_BLOCK`.
PIECE = 12
_DIGITS = 24  # the same for a piece of digits only, because long numbers are common
_BLOCK = 6  # characters
_NEAR = 400  # the distance from a piece, in letters and digits, in which the rest of its form is searched
_REST = 4  # the fewest letters and digits of such a rest


class Whole(str):
    """A secret that only counts as a whole: a line of a private key, parts of which are in the public certificate."""

    __slots__ = ()


# An escape that stands for one character or none: colours, line ends, escapes of JSON, URLs, HTML and shells.
_ESCAPE = re.compile(
    r"(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;]*[A-Za-z]"
    r"|\\*\r?\n[ \t]*|\\+u\{?(?P<code>[0-9A-Fa-f]{4}|(?<=\{)[0-9A-Fa-f]{2,3}(?=\}))\}?|\\+U0000(?P<long>[0-9A-Fa-f]{4})"
    r"|\\+x(?P<byte>[0-9A-Fa-f]{2})|\\+(?P<octal>[01][0-7]{2})|\\+[nr][ \t]*|\\+"
    r"|0x(?P<listed>[0-9A-Fa-f]{2})(?:,\s*|\s+|(?=[\]})]))|%(?:25)*(?P<url>[0-9A-Fa-f]{2})"
    r"|&#0*(?P<number>\d{2,3});|&#[xX]0*(?P<hex>[0-9A-Fa-f]{2});|&(?P<word>amp|lt|gt|quot|apos);"
)
_ANY_ESCAPE = re.compile(r"[\\%&\x1b]|0x")  # matches in every text that `_ESCAPE` matches in, but for line ends
_LINE_END = re.compile(r"\\*\r?\n[ \t]*")
# The groups of `_ESCAPE` that hold a number, and the number's base.
_BASES = (
    ("code", 16), ("long", 16), ("byte", 16), ("listed", 16), ("octal", 8), ("url", 16), ("hex", 16), ("number", 10),
)  # fmt: skip
_WORDS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NOT_DENSE = re.compile(r"[^A-Za-z0-9]+")
_ASCII_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
_ENTITY = re.compile(r"&(?:amp|#\w{2,6});|%25|\\\\")  # an escaped sign of an escape


class Forms:
    """All forms of some secrets, and their removal from texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        dense_forms: set[tuple[str, int]] = set()
        for secret in set(secrets):
            if len(secret) >= SHORTEST:
                forms |= _forms_of(secret)
                dense_forms.update(_dense_forms_of(secret))
        # The longest first: a form may be part of another one, which would no longer be found whole.
        self._forms = sorted(forms, key=len, reverse=True)
        self._unescaped_forms = sorted(form for form in set(map(_unescaped, forms)) if len(form) >= SHORTEST)
        # For each block, where it occurs: the form, the index in the form, and the length of the form's shortest piece.
        self._blocks: dict[str, list[tuple[str, int, int]]] = {}
        for form, least in dense_forms:
            for at in range(len(form) - _BLOCK + 1):
                self._blocks.setdefault(form[at : at + _BLOCK], []).append((form, at, least))

    def without(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` in place of each form or piece of a secret."""
        for form in self._forms:
            text = text.replace(form, mark)
        unescaped = _unescaped(text)
        dense = unescaped.encode("ascii", "ignore").translate(None, _ASCII_SIGNS).decode()
        if not any(form in unescaped for form in self._unescaped_forms) and not next(self._pieces(dense), None):
            return text
        # Search again while tracking where each character was in ``text``, which takes ten times as long.
        tracked = _Tracked.of(text)
        spans = []
        for form in self._unescaped_forms:
            spans += [tracked.span(at, at + len(form)) for at in _positions(tracked.text, form)]
        tracked_dense = tracked.replaced(_NOT_DENSE, lambda _: "")
        spans += [tracked_dense.span(*piece) for piece in self._pieces(tracked_dense.text)]
        return _replace(text, spans, mark)

    def _pieces(self, dense: str) -> Iterator[tuple[int, int]]:
        """Yield the begin and end of each piece of a form in ``dense``, a text of letters and digits only."""
        blocks = self._blocks
        for at in range(0, len(dense) - _BLOCK + 1, _BLOCK):
            for form, index, least in blocks.get(dense[at : at + _BLOCK], ()):
                # Extend the block to both sides, as far as text and form are equal.
                before = 0
                while before < min(index, at) and form[index - before - 1] == dense[at - before - 1]:
                    before += 1
                size = _BLOCK
                while index + size < len(form) and dense[at + size : at + size + 1] == form[index + size]:
                    size += 1
                piece = dense[at - before : at + size]
                shortest = least
                if piece.isdigit():
                    shortest = max(least, _DIGITS)
                if len(piece) >= shortest:
                    yield at - before, at + size
                    yield from _rest_behind(dense, at + size, form[index + size :])
                    yield from _rest_before(dense, at - before, form[: index - before])


def _rest_behind(dense: str, at: int, rest: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part of a form's ``rest`` behind a piece, which ends at ``at``.

    A log's prefixes may stand between the parts.
    """
    end = at + _NEAR
    while len(rest) >= _REST:
        # The longest beginning of the rest that stands nearby; 0 if not even `_REST` characters do.
        size = next((n for n in range(len(rest), _REST - 1, -1) if dense.find(rest[:n], at, end) >= 0), 0)
        if not size:
            return
        begin = dense.find(rest[:size], at, end)
        at = begin + size
        yield begin, at
        rest = rest[size:]


def _rest_before(dense: str, at: int, rest: str) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part of a form's ``rest`` before a piece that begins at ``at``."""
    while len(rest) >= _REST:
        begin = max(0, at - _NEAR)
        size = next((n for n in range(len(rest), _REST - 1, -1) if dense.rfind(rest[-n:], begin, at) >= 0), 0)
        if not size:
            return
        at = dense.rfind(rest[-size:], begin, at)
        yield at, at + size
        rest = rest[:-size]


# --- positions in the original text --------------------------------------------------------------------------


class _Tracked:
    """A text made from an original one, and where each of its characters begins and ends in the original."""

    def __init__(self, text: str, begins: array[int], ends: array[int]) -> None:
        self.text = text
        self._begins = begins  # by index of a character in ``text``, its begin in the original
        self._ends = ends

    @classmethod
    def of(cls, text: str) -> _Tracked:
        """The original ``text`` with its escapes undone, as `_unescaped` does it."""
        tracked = cls(text, array("I", range(len(text))), array("I", range(1, len(text) + 1)))
        for _ in range(_passes(text)):
            tracked = tracked.replaced(_ESCAPE, _character)
        return tracked

    def replaced(self, pattern: re.Pattern[str], character: Callable[[re.Match[str]], str]) -> _Tracked:
        """The text with each match of ``pattern`` replaced by what ``character`` returns: one character or none."""
        parts: list[str] = []
        begins = array("I")
        ends = array("I")
        at = 0  # the end of the match before
        for match in pattern.finditer(self.text):
            parts.append(self.text[at : match.start()])
            begins.extend(self._begins[at : match.start()])
            ends.extend(self._ends[at : match.start()])
            if replacement := character(match):
                parts.append(replacement)
                begins.append(self._begins[match.start()])
                ends.append(self._ends[match.end() - 1])
            at = match.end()
        begins.extend(self._begins[at:])
        ends.extend(self._ends[at:])
        return _Tracked("".join([*parts, self.text[at:]]), begins, ends)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """The begin and end in the original text of the characters from ``begin`` to ``end`` here."""
        return self._begins[begin], self._ends[end - 1]


def _unescaped(text: str) -> str:
    """``text`` with the escapes of `_ESCAPE` undone and its line ends removed."""
    if not _ANY_ESCAPE.search(text):
        return _LINE_END.sub("", text)
    for _ in range(_passes(text)):
        text = _ESCAPE.sub(_character, text)
    return text


def _passes(text: str) -> int:
    """How often escapes are undone: three times where the text may have escapes inside escapes."""
    return 3 if _ENTITY.search(text) else 1


def _character(escape: re.Match[str]) -> str:
    """The character that an escape stands for; '' for a line end, a colour or a lone backslash."""
    for name, base in _BASES:
        if escape[name]:
            return chr(int(escape[name], base))
    return _WORDS.get(escape["word"] or "", "")


def _positions(text: str, form: str) -> Iterator[int]:
    """Yield where ``form`` begins in ``text``; occurrences may overlap."""
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _replace(text: str, spans: Iterable[tuple[int, int]], mark: str) -> str:
    """``text`` with ``mark`` in place of the ``spans`` (begin and end); spans that overlap get one mark together."""
    parts: list[str] = []
    done = 0
    for begin, end in sorted(spans):
        if begin > done or not parts:  # otherwise it overlaps the span before, which has a mark
            parts += [text[done:begin], mark]
        done = max(done, end)
    return "".join([*parts, text[done:]])


# --- forms ------------------------------------------------------------------------------------------------------


def _forms_of(secret: str) -> set[str]:
    """A secret as it is; quoted for URLs, JSON and Python; in base64, base32 and hexadecimal digits."""
    raw = secret.encode()
    forms = {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret), json.dumps(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=False)[1:-1], secret.replace("/", "\\/"), repr(secret)[1:-1]}
    # The inner characters hold only whole bytes of the secret; SHORTEST bytes are SHORTEST + 2 characters of base64.
    encoded = {inner for inner in _in_base64(raw) if len(inner) >= SHORTEST + 2} | {base64.b64encode(raw).decode()}
    forms |= encoded | {form.replace("+", "-").replace("/", "_") for form in encoded}
    forms |= {raw.hex(), raw.hex().upper(), base64.b32encode(raw).decode()}
    return {form for form in forms if len(form) >= SHORTEST}


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield the base64 characters that ``raw`` alone determines inside a longer text, at each of 3 alignments."""
    # A character of base64 holds 6 bits, a byte 8. The characters at either end that also hold bits of the neighbours
    # are left out; with one byte before ``raw`` (8 bits) these are the first two.
    for before, first in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        yield encoded[first : (before + len(raw)) * 8 // 6]


def _dense_forms_of(secret: str) -> Iterator[tuple[str, int]]:
    """Yield the letters and digits of each form of a secret, and how many of them in a row count as a piece.

    Forms of fewer letters and digits than `PIECE` are left out.
    """
    raw = secret.encode()
    # Only the whole counts without a digit, or as a path: a piece would be a common word, or a folder's name.
    whole = isinstance(secret, Whole) or not re.search(r"\d", secret) or re.match(r"[~.]{0,2}/", secret)
    quoted = urllib.parse.quote(secret, safe="").encode()
    texts = {raw, quoted, json.dumps(secret)[1:-1].encode(), secret.encode("utf-16-le"), raw.hex().encode()}
    texts.update(map(str.encode, _in_base64(raw)))
    forms: set[str] = set()
    for text in texts:
        forms.update(_in_base64(text))
        if text != raw.hex().encode():  # hexadecimal digits are not encoded as such once more
            forms.add(text.hex())
    forms |= {form.upper() for form in forms if re.fullmatch(r"[0-9a-f]+", form)}
    # Base32 has five alignments, as a character holds 5 bits. The first ones, with bits of a neighbour, are left out.
    for before in range(5):
        shifted = base64.b32encode(b"\0" * before + raw).decode()
        forms.add(shifted[(8 * before + 4) // 5 :].rstrip("="))
    # The secret itself, in quoted-printable, and its bytes as a list of decimal numbers.
    forms |= {secret, secret.replace("=", "=3D"), "".join(map(str, raw))}
    for form in forms:
        letters = _NOT_DENSE.sub("", form)
        if len(letters) >= PIECE:
            yield letters, len(letters) if whole else PIECE
