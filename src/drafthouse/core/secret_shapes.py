r"""What looks like a secret that nobody has named to us: by the name that it stands behind, and by where it stands.

Names with a value (environments, INI, YAML, JSON, command lines, headers), passwords in URLs, private keys in PEM, and
the tokens of hubs, clouds and engines that a GPU box meets. Standard library only, Python 3.10.
"""

from __future__ import annotations

import re

GONE = "(secret)"

# The last word of a name tells: API_KEY, apiKey, hf_token, password; not max_tokens, key_file, bytes_per_token.
_LAST = (
    r"key|(?<!per[_-])token|secret|password|passwd|passphrase|passcode|pwd|credential|credentials|creds|auth|authorization"
    r"|apikey|accesskey|pat|psk|cookie|jwt|bearer|signature|mnemonic|connection[_-]?string|sess(?:ion)?[_-]?id"
    r"|(?:api|access)[_-]?keys|(?:api|auth|access)[_-]?tokens|passwords|(?<=[_.\-])(?:pass|pw|sid|sas|otp)"
)
# What may follow that word in a name: HF_TOKEN_2, SECRET_KEY_BASE, API_KEY_PROD, client-key-data.
_MORE = (
    r"(?:[_-]?\d{1,2}|[_-]?(?:value|base64|base|b64|data|pem|string|plaintext|raw)"
    r"|_(?:prod|production|dev|staging|live|main|primary|secondary|old|new|ro|rw|admin|root|default))?"
)
NAME = rf"[A-Za-z0-9_.\-]{{0,64}}?(?:{_LAST}){_MORE}"
_SECRET_NAME = re.compile(rf"(?i)(?:{_LAST}){_MORE}$")
# A tokenizer's, and what is counted or timed by them.
_NO_SECRET_NAME = re.compile(
    r"(?i)(?:eos|bos|pad|unk|sep|cls|mask|stop|image|audio|video|special|end|start|draft|output|input|prompt|next|first|last"
    r"|per|each|think|every|one|added|from)[_ -]?token$"
)
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d+)?(?:e-?\d+)? ?(?:[munµ]?s|%|[KMGT]?i?B|/s|tok/s)?$")
# What such a name may have as a value and is no secret.
_SCHEME = r"(?:(?:bearer|basic|token|&\w+|!+\w+)[ +]+)?"
PLAIN = re.compile(
    rf"(?i)^{_SCHEME}(true|false|null|none|yes|no|on|off|0|1|mode|\.{{3}}|…|={{0,2}}v?\d+(?:\.\d+)+\S{{0,12}}"
    rf"|%s(?:\\+n)?|\(secret\)|\(key\)|[|>][+-]?\d?"
    r"|\{\{.*|\$\{?\w+\}?|\$\(.*|\S*/secrets/api_key(?::r[ow])?)$"
)
_DONE = re.compile(rf"(?i){_SCHEME}{re.escape(GONE)}")

# --- private keys -------------------------------------------------------------------------------------------------

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL)
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}\s*$")

# --- tokens ---------------------------------------------------------------------------------------------------------

# Where a word begins, also behind a line's end as JSON writes it and behind a sign as URLs do.
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
#: Tokens that are known by how they begin. hf_snapshot, hf_transfer and their like are none.
TOKENS = {
    "Hugging Face": r"hf_(?:(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|[a-z]{30,})",
    "OpenAI and its like": r"sk-[A-Za-z0-9_-]{12,}",
    "NVIDIA": r"nvapi-[A-Za-z0-9_-]{16,}",
    "Groq": r"gsk_[A-Za-z0-9]{20,}",
    "Replicate": r"r8_[A-Za-z0-9]{20,}",
    "RunPod": r"rpa_[A-Z0-9]{20,}",
    "GitHub": r"(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})",
    "GitLab": r"glpat-[A-Za-z0-9_-]{16,}",
    "Slack": r"xox[a-z]-[A-Za-z0-9-]{10,}",
    "AWS": r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9_-])",
    "Google": r"AIza[A-Za-z0-9_-]{30,}",
}
_TOKEN = re.compile(rf"{_START}(?:{'|'.join(TOKENS.values())})")
# vast.ai's keys have 64 hexadecimal digits, as sha256 has: what does not say that it is a hash goes.
_HEX = re.compile(r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))[0-9a-f]{64}(?![0-9A-Za-z])")
# Before one, on its line; and what is a file's or a container's name, or stands before a file's as sha256sum writes it.
_IS_HASH = re.compile(
    r"(?i)(?:(?:sha-?256|digest|checksum|fingerprint|drafthouse\.definition)(?:(?!key|token|secret)[^\n]){0,60}"
    r"|(?:etag|oid|hash|blob|layer|commit|revision|container|image|certificate|(?<![a-z])id|_id|(?-i:[a-z]ID))[\"'=:\\\s\-]{0,6}|[/@~])$"
)
_OF_FILE = re.compile(r"(?:\.(?:part|json|log|lock|incomplete)\b|/| [ *][\w./-]+\.\w+|  ?-(?:\s|$))")

# --- where it stands ------------------------------------------------------------------------------------------------

_BEARER = re.compile(rf"(?i){_START}(bearer(?:[ \t]+|%20|\+))[A-Za-z0-9._~+/=%-]{{6,}}")
_USER_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}:\\*/\\*/)[^\s\"'<>]+@")
_COOKIE = re.compile(r"(?im)\b((?:set-)?cookie[\"']?\s*[:=]\s*)[^\n]+")
_IN_QUERY = re.compile(
    rf"(?i)([?&;](?:[a-z0-9]+[_-])*(?:{_LAST}|sig|x-amz-[a-z-]+|policy|key-pair-id)=)([^&\s\"'<>#]+)"
)
#: A value that is not beside its name; it is the last group.
_PLACES = (
    # A header with another scheme, to its end: Digest, AWS4-HMAC-SHA256, Negotiate.
    re.compile(
        r"(?i)authorization[ \t]*:[ \t]*(?!bearer|basic|token)[\w-]+[ \t]+((?:=\\*\"[^\"\n\\]*\\*\"|[^\n'\"\\])+)"
    ),
    # A name and a value as two fields: environments of containers in JSON and YAML.
    re.compile(
        rf"(?i)\b(?:name|key|k|var)\\*[\"']?\s*:\s*\\*[\"']?(?:{NAME})\\*[\"']?\s*,?\s*\\*[\"']?(?:value|val|v)"
        rf"\\*[\"']?\s*:\s*\\*[\"']?([^\s\"'\\,}}]+)"
    ),
    # Below its name in YAML: a block, a scalar, a list.
    re.compile(
        rf"(?im)^([ \t]*)(?:-[ \t]+)?[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*[|>][+-]?\d?[ \t]*\r?\n"
        rf"((?:\1[ \t]+\S[^\n]*(?:\n|$)|[ \t]*\n)+)"
    ),
    re.compile(
        rf"(?im)^([ \t]*)(?:-[ \t]+)?[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*\r?\n"
        rf"((?:\1[ \t]+(?!-[ \t])[^\s#:][^\n:]*(?:\n|$))+)"
    ),
    re.compile(rf"(?im)^([ \t]*)[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*\r?\n((?:\1[ \t]*-[ \t]+[^\s:]+[ \t]*(?:\n|$))+)"),
)

# name = value in environments, INI, YAML, JSON (also as text inside JSON), Python and command lines: a value in quotes
# to its end, another one to a blank or a quote. Headers and arguments also come as lists of values.
_VALUE = (
    r"(?P<value>\[[^\[\]]*\]|\[[^\[\]\n]*|\"(?:[^\"\\\n\0]|\\.)*\"?|'(?:[^'\\\n\0]|\\.)*'?"
    rf"|(?P<escaped>\\+[\"'])(?:(?!(?P=escaped)).)*(?:(?P=escaped))?|{_SCHEME}[^\s\"'\0]+)"
)
_ASSIGNED = re.compile(
    rf"(?i)(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>{NAME})(?P<close>(?:\\*[\"'])?)"
    rf"[ \t]*(?::[-=?+]?|=>?|%3[AaDd])[ \t]*)"
    rf"(?!\{{){_VALUE}"
)
# An argument behind its option: in a list of JSON's or YAML's, in /proc, or on the next line of a shell's.
_FLAG = re.compile(
    rf"(?i)(?P<head>(?:(?<![\w-])|(?<=\\[nrt]))--?(?P<name>{NAME})(?P<close>(?:\\*[\"'])?)"
    rf"(?:\s*,\s*|[ \t]*\\\r?\n\s*|\s*\n\s*-\s+|[\s\0]+))(?![-{{\[]){_VALUE}"
)
# A header as programs write those that they have: a pair in brackets.
_PAIR = re.compile(rf"(?i)([(\[]\s*b?(\\*[\"'])(?:{NAME})\2\s*,\s*b?(\\*[\"']))((?:(?!\3).)+)(\3\s*[)\]])")
# A passphrase without quotes has blanks in it.
_TO_THE_END = re.compile(r"(?im)((?:password|passwd|passphrase|secret)\s*[:=]\s*)(?![\"'\\\s(])([^\n\0\"']+)")


def without_shapes(text: str) -> str:
    """The text without what looks like a secret."""
    text = _without_key_ends(_PEM.sub(GONE, text))
    text = _USER_IN_URL.sub(rf"\1{GONE}@", text)
    text = _IN_QUERY.sub(rf"\1{GONE}", text)
    text = _COOKIE.sub(rf"\1{GONE}", text)
    text = _TOKEN.sub(GONE, text)
    text = _BEARER.sub(rf"\1{GONE}", text)
    text = _HEX.sub(_unless_hash, text)
    for pattern in _PLACES:
        text = pattern.sub(_last_gone, text)
    text = _TO_THE_END.sub(_unless_harmless, text)
    text = _PAIR.sub(rf"\g<1>{GONE}\g<5>", text)
    return _FLAG.sub(_value_gone, _ASSIGNED.sub(_value_gone, text))


def _last_gone(found: re.Match[str]) -> str:
    """What was found without its last group; of several lines their indentation and their ends stay."""
    number = found.re.groups
    secret, begin = found[number], found.start(number) - found.start()
    if _harmless(secret.strip().strip("\"'`")):
        return found[0]
    inside = secret.strip()
    lead, tail = secret[: secret.index(inside)], secret[secret.index(inside) + len(inside) :]
    return f"{found[0][:begin]}{lead}{GONE}{tail}{found[0][begin + len(secret) :]}"


def _harmless(value: str) -> bool:
    return not value or bool(PLAIN.match(value) or _DONE.match(value) or _NUMBER.match(value))


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


def _unless_harmless(found: re.Match[str]) -> str:
    if _harmless(found[2].strip()):
        return found[0]
    return f"{found[1]}{GONE}"


def _unless_hash(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 90) : found.start()]
    named = _IS_HASH.search(before.rpartition("\n")[2]) or _OF_FILE.match(found.string, found.end())
    return found[0] if named else GONE


def _value_gone(found: re.Match[str]) -> str:
    value = found["value"]
    if _DONE.match(value.strip("\"'\\")) or _NO_SECRET_NAME.search(found["name"]) or _in_sentence(found):
        return found[0]
    if value.startswith("["):
        inner = value.strip("[]\"'\\, \t\r\n")
        if not inner or PLAIN.match(inner):
            return found[0]
        quote = found["close"]
        if quotes := re.search(r"\\*[\"']", value):
            quote = quotes[0]
        return f"{found['head']}[{quote}{GONE}{quote}{']' * value.endswith(']')}"
    quote = found["escaped"] or (value[0] if value[0] in "\"'" else "")
    # What closes a list or an object around a bare value is none of it, nor what escapes the quote behind it.
    core = value if quote else value.rstrip(",;)}]\\")
    bare = core.strip("\"'\\")
    if found["name"] == "key" and re.fullmatch(r"[0-9a-f]{16}", bare):
        return found[0]  # of a result, in our own reports
    if not bare or PLAIN.match(bare) or (not quote and _NUMBER.match(bare)):
        return found[0]
    # A bare number in JSON becomes a text, so that it is JSON still.
    around = quote or found["close"]
    return f"{found['head']}{around}{GONE}{around}{value[len(core) :]}"


def _in_sentence(found: re.Match[str]) -> bool:
    """Tell a sentence from a setting: "it asks nobody for a key: keep it on loopback"."""
    before, behind = (
        found.string[max(0, found.start() - 16) : found.start()],
        found.string[found.end() : found.end() + 3],
    )
    is_word = found["name"] in ("key", "token") and re.fullmatch(r"[A-Za-z]{1,12}:?", found["value"])
    return bool(is_word and re.search(r"[A-Za-z] $", before) and re.match(r"[,;]? [a-z]", behind))


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, a key or an option of this name holds a secret."""
    name = name.strip()
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)
