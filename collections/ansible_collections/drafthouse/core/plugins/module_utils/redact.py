"""Take secrets out of text: those that are known, and what looks like one. Standard library only, Python 3.10.

Two ways together. Known secrets (`known_secrets`: of the environment, of key files) go wherever they stand and however
they are written: plain, in base64, in a URL, in JSON, over several lines. Beside them everything goes that has the
shape of a secret or the name of one: it may be nobody's that we know. Too much taken out costs a question, too little
costs a key.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

GONE = "(secret)"
# A shorter value of a variable called TOKEN or PASSWORD may be a common word, which would be taken out everywhere.
# Behind its name it goes at any length.
SHORTEST = 6
_MOST_BYTES = 65536  # of a key file

# The last word of a name tells: API_KEY, apiKey, hf_token, password; not max_tokens, key_file, bytes_per_token.
_LAST = (
    r"key|(?<!per[_-])token|secret|password|passwd|passphrase|pwd|credential|credentials|auth|authorization|apikey"
    r"|accesskey|pat|cookie|jwt|bearer|signature|(?:api|access)[_-]?keys|(?:api|auth|access)[_-]?tokens|passwords|(?<=[_.\-])(?:pass|pw)"
)
# Of a shell, and in every environment: paths, which would be taken out everywhere.
_NO_SECRET = ("PWD", "OLDPWD")
_NAME = rf"[A-Za-z0-9_.\-]{{0,64}}?(?:{_LAST})(?:[_-]?\d{{1,2}})?"
_SECRET_NAME = re.compile(rf"(?i)(?:{_LAST})(?:[_-]?\d{{1,2}})?$")
# Where a word begins, also behind a line's end as JSON writes it and behind a sign as URLs do.
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
# What such a name may have as a value and is no secret.
_SCHEME = r"(?:(?:bearer|basic|token)[ +]+)?"
_PLAIN = re.compile(
    rf"(?i)^{_SCHEME}(true|false|null|none|yes|no|on|off|0|1|\.{{3}}|%s(?:\\+n)?|\(secret\)|\(key\)"
    r"|\{\{.*|\$\{?\w+\}?|\$\(.*|\S*/secrets/api_key(?::r[ow])?)$"
)
_DONE = re.compile(rf"(?i){_SCHEME}{re.escape(GONE)}")

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL)
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}\s*$")
_OPENSSH = re.compile(r"b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=\s\\]+")  # base64 of "openssh-key-v1", without its frame

_SHAPES = tuple(
    re.compile(_START + pattern)
    for pattern in (
        r"hf_[A-Za-z0-9]{8,}",  # Hugging Face
        r"api_org_[A-Za-z0-9]{8,}",
        r"sk-[A-Za-z0-9_-]{12,}",  # OpenAI and its like
        r"(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}",
        r"github_pat_[A-Za-z0-9_]{20,}",
        r"glpat-[A-Za-z0-9_-]{16,}",
        r"dckr_pat_[A-Za-z0-9_-]{16,}",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"AIza[A-Za-z0-9_-]{30,}",
        r"xox[abprs]-[A-Za-z0-9-]{10,}",
        r"nvapi-[A-Za-z0-9_-]{16,}",
        r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",  # JWT
        r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
        r"hooks\.slack\.com/services/[A-Za-z0-9/_-]{10,}",
        r"\$ANSIBLE_VAULT;[0-9.]+;[^\n]*(?:\n[ \t]*[0-9a-f]{40,})+",
    )
)
# vast.ai's keys have 64 hexadecimal digits, as sha256 has: what does not say that it is a hash goes.
_HEX = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{64}(?![0-9A-Za-z])")
_IS_HASH = re.compile(r"(?i)(?:sha256|digest|etag|checksum|oid|hash)[\"'=:\s\-]{0,6}$")

_BEARER = re.compile(rf"(?i){_START}(bearer|basic|token|apikey)(\s+|%20|\+)([A-Za-z0-9._~+/=%-]{{6,}})")
_USER_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*:\\*/\\*/)[^\s\"'<>]+@")
# As curl takes it; docker's is two numbers.
_USER = re.compile(
    r"(?<![\w-])((?:-u|--user|--proxy-user)(?:[\"']\s*,\s*[\"']|[ =]+[\"']?)[^\s:\"']+:)(?!\d+(?:[\s\"']|$))([^\s\"']+)"
)
_COOKIE = re.compile(r"(?im)\b((?:set-)?cookie[\"']?\s*[:=]\s*)[^\n]+")
_IN_QUERY = re.compile(
    rf"(?i)([?&;](?:[a-z0-9]+[_-])*(?:{_LAST}|sig|x-amz-[a-z-]+|policy|key-pair-id)=)([^&\s\"'<>#]+)"
)
# name = value in environments, INI, YAML, JSON (also as text inside JSON), Python and command lines: a value in quotes
# to its end, another one to a blank or a quote. Headers and arguments also come as lists of values.
_VALUE = (
    r"(?P<value>\[[^\[\]]*\]|\[[^\[\]\n]*|\"(?:[^\"\\\n\0]|\\.)*\"?|'(?:[^'\\\n\0]|\\.)*'?"
    rf"|(?P<escaped>\\+[\"'])(?:(?!(?P=escaped)).)*(?:(?P=escaped))?|{_SCHEME}[^\s\"'\0]+)"
)
_ASSIGNED = re.compile(
    rf"(?i)(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>{_NAME})(?P<close>(?:\\*[\"'])?)"
    rf"[ \t]*(?::[-=?+]?|=>?|%3[AaDd])[ \t]*)"
    rf"(?!\{{){_VALUE}"
)
# An argument behind its option: in a list of JSON's or YAML's, in /proc, or on the next line of a shell's.
_FLAG = re.compile(
    rf"(?i)(?P<head>(?:(?<![\w-])|(?<=\\[nrt]))--?(?P<name>{_NAME})(?P<close>(?:\\*[\"'])?)"
    rf"(?:\s*,\s*|[ \t]*\\\r?\n\s*|\s*\n\s*-\s+|[\s\0]+))(?![-{{\[]){_VALUE}"
)
# A header as programs write those that they have: a pair in brackets.
_PAIR = re.compile(rf"(?i)([(\[]\s*b?(\\*[\"'])(?:{_NAME})\2\s*,\s*b?(\\*[\"']))((?:(?!\3).)+)(\3\s*[)\]])")
# What is written otherwise than it reads: a line's end, escapes of JSON, URLs and HTML, and a backslash.
_UNIT = re.compile(
    r"\\*\r?\n[ \t]*|\\+u(?P<code>[0-9A-Fa-f]{4})|\\+[nr][ \t]*|\\+|%(?:25)*(?P<url>[0-9A-Fa-f]{2})"
    r"|&#(?P<number>\d{2,3});|&#[xX](?P<hex>[0-9A-Fa-f]{2});|&(?P<word>amp|lt|gt|quot|apos);"
)
_WORDS = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# A passphrase without quotes has blanks in it.
_TO_THE_END = re.compile(r"(?im)((?:password|passwd|passphrase|secret)\s*[:=]\s*)(?![\"'\\\s(])([^\n\0\"']+)")


def redactor(known: Iterable[str] = ()) -> Callable[[str], str]:
    """Return what takes secrets out of a text; ``known`` are secrets themselves."""
    spellings = sorted({form for secret in known if len(secret) >= SHORTEST for form in _spelled(secret)}, key=len)
    exact = re.compile("|".join(re.escape(form) for form in reversed(spellings))) if spellings else None
    as_read = sorted({form for spelling in spellings if len(form := _Read(spelling).text) >= SHORTEST})

    def redact(text: str) -> str:
        if exact:
            text = _without_read(exact.sub(GONE, text), as_read)
        return _without_shapes(text)

    return redact


class _Read:
    """A text as it reads without escapes and line ends, and where each letter of that stands in it."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        # Of each part: where it begins as it reads, where it stands, and how long one letter of it is there.
        self._marks: list[tuple[int, int, int]] = []
        size = at = 0
        for unit in _UNIT.finditer(text):
            for part, begin, width in (
                (text[at : unit.start()], at, 1),
                (_letter(unit), unit.start(), unit.end() - unit.start()),
            ):
                if part:
                    parts.append(part)
                    self._marks.append((size, begin, width))
                    size += len(part)
            at = unit.end()
        self._marks.append((size, at, 1))
        self.text = "".join([*parts, text[at:]])

    def place(self, letter: int) -> tuple[int, int]:
        """Return begin and end of a letter, by its number in ``text``, where it stands."""
        first, begin, width = self._marks[bisect_right(self._marks, letter, key=lambda mark: mark[0]) - 1]
        begin += letter - first
        return begin, begin + width


def _letter(unit: re.Match[str]) -> str:
    for name, base in (("code", 16), ("url", 16), ("hex", 16), ("number", 10)):
        if unit[name]:
            return chr(int(unit[name], base))
    return _WORDS.get(unit["word"] or "", "")


def _without_read(text: str, forms: Sequence[str]) -> str:
    """Take out what reads like one of ``forms``, however it is escaped and over however many lines it is written."""
    read = _Read(text)
    found = []
    for form in forms:
        at = read.text.find(form)
        while at >= 0:
            found.append((read.place(at)[0], read.place(at + len(form) - 1)[1]))
            at = read.text.find(form, at + 1)
    kept: list[str] = []
    behind = 0
    for begin, end in sorted(found):
        if begin >= behind:
            kept += [text[behind:begin], GONE]
        behind = max(behind, end)
    return "".join([*kept, text[behind:]])


def _spelled(secret: str) -> set[str]:
    """Return the forms in which a secret is written: as it is, quoted for URLs, shells and JSON, and in base64."""
    raw = secret.encode()
    forms = {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret), json.dumps(secret)[1:-1]}
    forms |= {json.dumps(secret, ensure_ascii=False)[1:-1], secret.replace("/", "\\/"), repr(secret)[1:-1]}
    # Base64 of a longer text has one of three forms, by where in it the secret begins; its ends depend on the rest.
    for before in range(3):
        packed = base64.b64encode(b"\0" * before + raw).decode()
        inner = packed[{0: 0, 1: 2, 2: 3}[before] : len(packed) - 4].rstrip("=")
        if len(inner) >= 2 * SHORTEST:
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    forms |= {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex(), raw.hex().upper()}
    return {form for form in forms if len(form) >= SHORTEST}


def _without_shapes(text: str) -> str:
    text = _without_key_ends(_PEM.sub(GONE, text))
    text = _OPENSSH.sub(GONE, text)
    text = _USER_IN_URL.sub(rf"\1{GONE}@", text)
    text = _USER.sub(rf"\1{GONE}", text)
    text = _IN_QUERY.sub(rf"\1{GONE}", text)
    text = _COOKIE.sub(rf"\1{GONE}", text)
    for shape in _SHAPES:
        text = shape.sub(GONE, text)
    text = _BEARER.sub(lambda found: f"{found[1]}{found[2]}{GONE}" if _dense(found) else found[0], text)
    text = _HEX.sub(_unless_hash, text)
    text = _TO_THE_END.sub(lambda found: found[0] if _PLAIN.match(found[2].strip()) else f"{found[1]}{GONE}", text)
    text = _PAIR.sub(rf"\g<1>{GONE}\g<5>", text)
    return _FLAG.sub(_value_gone, _ASSIGNED.sub(_value_gone, text))


def _without_key_ends(text: str) -> str:
    """Take out the end of a private key whose beginning was cut off: its last line, and those of base64 before it."""
    if not _PEM_END.search(text):
        return text
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        if _PEM_END.search(line):
            while kept and _BASE64_LINE.search(kept[-1]):
                kept.pop()
            line = f"{GONE}\n"  # noqa: PLW2901 (the line as it is kept)
        kept.append(line)
    return "".join(kept)


def _unless_hash(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 24) : found.start()]
    return found[0] if _IS_HASH.search(before) else GONE


def _dense(found: re.Match[str]) -> bool:
    """Tell a credential from the next word of a sentence ("token counts", "basic authentication")."""
    if found[1].lower() == "bearer":
        return True
    return bool(re.search(r"[0-9A-Z=+/]", found[3]))


def _value_gone(found: re.Match[str]) -> str:
    value = found["value"]
    if _DONE.match(value.strip("\"'\\")):
        return found[0]
    if value.startswith("["):
        inner = value.strip("[]\"'\\, \t\r\n")
        if not inner or _PLAIN.match(inner):
            return found[0]
        quotes = re.search(r"\\*[\"']", value)
        quote = quotes[0] if quotes else found["close"]
        return f"{found['head']}[{quote}{GONE}{quote}{']' * value.endswith(']')}"
    quote = found["escaped"] or (value[0] if value[0] in "\"'" else "")
    # What closes a list or an object around a bare value is none of it, nor what escapes the quote behind it.
    core = value if quote else value.rstrip(",;)}]\\")
    if not core.strip("\"'\\") or _PLAIN.match(core.strip("\"'\\")):
        return found[0]
    # A bare number in JSON becomes a text, so that it is JSON still.
    around = quote or found["close"]
    return f"{found['head']}{around}{GONE}{around}{value[len(core) :]}"


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, a key or an option of this name holds a secret."""
    return bool(_SECRET_NAME.search(name.strip()))


def known_secrets(environ: Mapping[str, str], files: Iterable[Path] = ()) -> set[str]:
    """Return the secrets of an environment (by the names of variables, and in URLs), and of files that hold one."""
    texts = [value for name, value in environ.items() if is_secret_name(name) and name not in _NO_SECRET]
    for path in files:
        try:
            texts.append(path.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace"))
        except OSError:
            continue
    # A key of several lines is known by its lines: a log may have any of them.
    found = {line.strip() for text in texts for line in text.splitlines() if "-----" not in line}
    for value in environ.values():
        for word in value.split():
            found |= _of_url(word)
    return {secret for secret in found if len(secret) >= SHORTEST and secret not in GONE and not _PLAIN.match(secret)}


def _of_url(value: str) -> set[str]:
    """Return the password of a URL such as a proxy's or an index's."""
    try:
        password = urllib.parse.urlsplit(value).password if "://" in value else None
    except ValueError:
        return set()
    return {password, urllib.parse.unquote(password)} if password else set()
