"""Find known secrets in a text however they are written: encoded, escaped, wrapped, or in pieces.

A text is read twice. *As it reads*: escapes of JSON, URLs, HTML and shells undone, line ends gone; there every form of
a secret is looked for as it is. *Letters and digits alone*: what is left when blanks, quotes, signs and escapes are
gone; there a piece of a form is enough, so that it is found over lines of any width, indented, quoted or with a log's
prefix. Pieces are found by blocks of _BLOCK letters: every one that begins at a multiple of it is looked up among those
of all forms, and grown to both sides. Standard library only, Python 3.10.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from array import array
from collections.abc import Callable, Iterable, Iterator

#: A shorter secret may be a common word, which would be taken out everywhere.
SHORTEST = 6
#: The fewest letters and digits of a form by which a piece of it is known for one. Of 12 hexadecimal digits two logs of
#: 5 MB have none in common by chance; of two blocks less one letter, each such piece holds one block whole.
PIECE = 12
_DIGITS = 24  # ... and of digits alone, which any text of numbers has
_BLOCK = 6
_NEAR = 400  # letters and digits, from a piece, in which the rest of its secret is looked for
_REST = 4  # ... and the fewest of such a rest


class Whole(str):
    """A secret of which a piece is none: a line of a key, whose public part stands in a certificate as well."""

    __slots__ = ()


# What is written otherwise than it reads: colours, a line's end, escapes of JSON, URLs, HTML, shells; a backslash.
_UNIT = re.compile(
    r"(?:\x1b|\\+u001[bB]|\\+x1[bB]|\\+033|\\+e)\[[0-9;]*[A-Za-z]"
    r"|\\*\r?\n[ \t]*|\\+u\{?(?P<code>[0-9A-Fa-f]{4}|(?<=\{)[0-9A-Fa-f]{2,3}(?=\}))\}?|\\+U0000(?P<long>[0-9A-Fa-f]{4})"
    r"|\\+x(?P<byte>[0-9A-Fa-f]{2})|\\+(?P<octal>[01][0-7]{2})|\\+[nr][ \t]*|\\+"
    r"|0x(?P<listed>[0-9A-Fa-f]{2})(?:,\s*|\s+|(?=[\]})]))|%(?:25)*(?P<url>[0-9A-Fa-f]{2})"
    r"|&#0*(?P<number>\d{2,3});|&#[xX]0*(?P<hex>[0-9A-Fa-f]{2});|&(?P<word>amp|lt|gt|quot|apos);"
)
_ESCAPED = re.compile(r"[\\%&\x1b]|0x")
_LINE_END = re.compile(r"\\*\r?\n[ \t]*")
_BASES = (
    ("code", 16),
    ("long", 16),
    ("byte", 16),
    ("listed", 16),
    ("octal", 8),
    ("url", 16),
    ("hex", 16),
    ("number", 10),
)
_WORDS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_SIGNS = re.compile(r"[^A-Za-z0-9]+")
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())
_ENTITY = re.compile(r"&(?:amp|#\w{2,6});|%25|\\\\")


class Forms:
    """All forms of some secrets, and what takes them out of a text."""

    def __init__(self, known: Iterable[str]) -> None:
        spelled: set[str] = set()
        dense: set[tuple[str, int]] = set()
        for secret in set(known):
            if len(secret) >= SHORTEST:
                spelled |= _spelled(secret)
                dense.update(_dense(secret))
        self._spelled = sorted(spelled, key=len, reverse=True)
        self._read = sorted(form for form in set(map(_as_read, spelled)) if len(form) >= SHORTEST)
        # Of each block: the forms it is of, where it stands in them, and the fewest letters of a piece.
        self._blocks: dict[str, list[tuple[str, int, int]]] = {}
        for form, least in dense:
            for at in range(len(form) - _BLOCK + 1):
                self._blocks.setdefault(form[at : at + _BLOCK], []).append((form, at, least))

    def without(self, text: str, gone: str) -> str:
        """The text with ``gone`` in the place of each of them."""
        for form in self._spelled:
            text = text.replace(form, gone)
        plain = _as_read(text)
        letters = plain.encode("ascii", "ignore").translate(None, _NO_LETTERS).decode()
        if not any(form in plain for form in self._read) and not next(self._pieces(letters), None):
            return text
        # Once more with the place of every letter at hand, which takes ten times as long.
        read = _Placed.of(text)
        spans = [read.span(at, at + len(form)) for form in self._read for at in _all(read.text, form)]
        dense = read.replaced(_SIGNS, lambda _: "")
        return _cut(text, [*spans, *(dense.span(*one) for one in self._pieces(dense.text))], gone)

    def _pieces(self, letters: str) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each piece of a form in what has letters and digits alone."""
        blocks = self._blocks
        for at in range(0, len(letters) - _BLOCK + 1, _BLOCK):
            for form, place, least in blocks.get(letters[at : at + _BLOCK], ()):
                before = 0
                while before < min(place, at) and form[place - before - 1] == letters[at - before - 1]:
                    before += 1
                size = _BLOCK
                while place + size < len(form) and letters[at + size : at + size + 1] == form[place + size]:
                    size += 1
                piece = letters[at - before : at + size]
                shortest = least
                if piece.isdigit():
                    shortest = max(least, _DIGITS)
                if len(piece) >= shortest:
                    yield at - before, at + size
                    yield from _rest_behind(letters, at + size, form[place + size :])
                    yield from _rest_before(letters, at - before, form[: place - before])


def _rest_behind(letters: str, at: int, rest: str) -> Iterator[tuple[int, int]]:
    """Yield where the rest of a form goes on behind a piece: lines of a log have a prefix of their own between."""
    end = at + _NEAR
    while len(rest) >= _REST:
        size = next((n for n in range(len(rest), _REST - 1, -1) if letters.find(rest[:n], at, end) >= 0), 0)
        if not size:
            return
        at = letters.find(rest[:size], at, end)
        yield at, at + size
        at, rest = at + size, rest[size:]


def _rest_before(letters: str, at: int, rest: str) -> Iterator[tuple[int, int]]:
    while len(rest) >= _REST:
        begin = max(0, at - _NEAR)
        size = next((n for n in range(len(rest), _REST - 1, -1) if letters.rfind(rest[-n:], begin, at) >= 0), 0)
        if not size:
            return
        at = letters.rfind(rest[-size:], begin, at)
        yield at, at + size
        rest = rest[:-size]


# --- a text and where its letters stand ----------------------------------------------------------------------


class _Placed:
    """A text that was made from another, and where each of its letters begins and ends in that."""

    def __init__(self, text: str, begins: array[int], ends: array[int]) -> None:
        self.text, self._begins, self._ends = text, begins, ends

    @classmethod
    def of(cls, text: str) -> _Placed:
        """A text as it reads; what is escaped twice is undone twice."""
        read = cls(text, array("I", range(len(text))), array("I", range(1, len(text) + 1)))
        for _ in range(_times(text)):
            read = read.replaced(_UNIT, _letter)
        return read

    def replaced(self, unit: re.Pattern[str], letter: Callable[[re.Match[str]], str]) -> _Placed:
        """The text with one letter, or none, for each unit."""
        parts: list[str] = []
        begins, ends, at = array("I"), array("I"), 0
        for one in unit.finditer(self.text):
            parts.append(self.text[at : one.start()])
            begins.extend(self._begins[at : one.start()])
            ends.extend(self._ends[at : one.start()])
            if said := letter(one):
                parts.append(said)
                begins.append(self._begins[one.start()])
                ends.append(self._ends[one.end() - 1])
            at = one.end()
        begins.extend(self._begins[at:])
        ends.extend(self._ends[at:])
        return _Placed("".join([*parts, self.text[at:]]), begins, ends)

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Begin and end of these letters in the first text."""
        return self._begins[begin], self._ends[end - 1]


def _as_read(text: str) -> str:
    if not _ESCAPED.search(text):
        return _LINE_END.sub("", text)
    for _ in range(_times(text)):
        text = _UNIT.sub(_letter, text)
    return text


def _times(text: str) -> int:
    """How often escapes are undone: thrice where one escapes another."""
    return 3 if _ENTITY.search(text) else 1


def _letter(unit: re.Match[str]) -> str:
    for name, base in _BASES:
        if unit[name]:
            return chr(int(unit[name], base))
    return _WORDS.get(unit["word"] or "", "")


def _all(text: str, form: str) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _cut(text: str, spans: Iterable[tuple[int, int]], gone: str) -> str:
    kept: list[str] = []
    behind = 0
    for begin, end in sorted(spans):
        if begin > behind or not kept:
            kept += [text[behind:begin], gone]
        behind = max(behind, end)
    return "".join([*kept, text[behind:]])


# --- forms ------------------------------------------------------------------------------------------------------


def _spelled(secret: str) -> set[str]:
    """A secret as it is, quoted for URLs, shells and JSON, in base64 and in hexadecimal digits."""
    raw = secret.encode()
    forms = {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret), json.dumps(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=False)[1:-1], secret.replace("/", "\\/"), repr(secret)[1:-1]}
    packed = {inner for inner in _in_base64(raw) if len(inner) >= SHORTEST + 2} | {base64.b64encode(raw).decode()}
    forms |= packed | {form.replace("+", "-").replace("/", "_") for form in packed}
    forms |= {raw.hex(), raw.hex().upper(), base64.b32encode(raw).decode()}
    return {form for form in forms if len(form) >= SHORTEST}


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield what base64 of a longer text has of it: three forms, by where it begins in that; not its ends."""
    for before in range(3):
        packed = base64.b64encode(b"\0" * before + raw).decode()
        yield packed[{0: 0, 1: 2, 2: 3}[before] : (before + len(raw)) * 8 // 6]


def _dense(secret: str) -> Iterator[tuple[str, int]]:
    """Yield the letters and digits of each form, and the fewest of them that are a piece of it."""
    raw = secret.encode()
    # Of words a piece is words, and of a path a folder's name.
    whole = isinstance(secret, Whole) or not re.search(r"\d", secret) or re.match(r"[~.]{0,2}/", secret)
    quoted = urllib.parse.quote(secret, safe="").encode()
    texts = {raw, quoted, json.dumps(secret)[1:-1].encode(), secret.encode("utf-16-le"), raw.hex().encode()}
    texts.update(map(str.encode, _in_base64(raw)))
    packed: set[str] = set()
    for text in texts:
        packed.update(_in_base64(text))
        if text != raw.hex().encode():
            packed.add(text.hex())
    packed |= {form.upper() for form in packed if re.fullmatch(r"[0-9a-f]+", form)}
    # Base32 as well has as many forms as bits of the secret can begin at.
    for before in range(5):
        shifted = base64.b32encode(b"\0" * before + raw).decode()
        packed.add(shifted[(8 * before + 4) // 5 :].rstrip("="))
    # The secret itself, quoted-printable, and bytes as a list of numbers.
    packed |= {secret, secret.replace("=", "=3D"), "".join(map(str, raw))}
    for form in packed:
        letters = _SIGNS.sub("", form)
        if len(letters) >= PIECE:
            yield letters, len(letters) if whole else PIECE
