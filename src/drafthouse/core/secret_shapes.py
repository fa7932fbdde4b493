r"""Remove what looks like a secret: values behind a secret-sounding name, and values of a secret's form or place.

It finds names with a value (environments, INI, YAML, JSON, command lines, headers), passwords in URLs, private keys in
PEM, and the tokens of hubs, clouds and engines that are used on a GPU box. Standard library only, Python 3.10.
"""

from __future__ import annotations

import re

GONE = "(secret)"

# The last word of a secret's name: API_KEY, apiKey, hf_token, password; not max_tokens, key_file, bytes_per_token.
_LAST = (
    r"key|(?<!per[_-])token|secret|password|passwd|passphrase|passcode|pwd|credential|credentials|creds|auth|authorization"
    r"|apikey|accesskey|pat|psk|cookie|jwt|bearer|signature|mnemonic|connection[_-]?string|sess(?:ion)?[_-]?id"
    r"|(?:api|access)[_-]?keys|(?:api|auth|access)[_-]?tokens|passwords|(?<=[_.\-])(?:pass|pw|sid|sas|otp)"
)
# A suffix that may follow this last word: HF_TOKEN_2, SECRET_KEY_BASE, API_KEY_PROD, client-key-data.
_MORE = (
    r"(?:[_-]?\d{1,2}|[_-]?(?:value|base64|base|b64|data|pem|string|plaintext|raw)"
    r"|_(?:prod|production|dev|staging|live|main|primary|secondary|old|new|ro|rw|admin|root|default))?"
)
NAME = rf"[A-Za-z0-9_.\-]{{0,64}}?(?:{_LAST}){_MORE}"
_SECRET_NAME = re.compile(rf"(?i)(?:{_LAST}){_MORE}$")
# Names that end like a secret's and are none: a tokenizer's special tokens, counts and times per token.
_NO_SECRET_NAME = re.compile(
    r"(?i)(?:eos|bos|pad|unk|sep|cls|mask|stop|image|audio|video|special|end|start|draft|output|input|prompt|next|first|last"
    r"|per|each|think|every|one|added|from)[_ -]?token$"
)
# A quantity with or without a unit, such as 30, 1.5e-3 s or 90 %: no secret.
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d+)?(?:e-?\d+)? ?(?:[munµ]?s|%|[KMGT]?i?B|/s|tok/s)?$")
# What may stand before a value: the scheme of a header, an anchor or a tag of YAML.
_SCHEME = r"(?:(?:bearer|basic|token|&\w+|!+\w+)[ +]+)?"
# Values behind a secret's name that are no secret: switches, versions, placeholders, references to a variable.
PLAIN = re.compile(
    rf"(?i)^{_SCHEME}(true|false|null|none|yes|no|on|off|0|1|mode|\.{{3}}|…|={{0,2}}v?\d+(?:\.\d+)+\S{{0,12}}"
    rf"|%s(?:\\+n)?|\(secret\)|\(key\)|[|>][+-]?\d?"
    r"|\{\{.*|\$\{?\w+\}?|\$\(.*|\S*/secrets/api_key(?::r[ow])?)$"
)
_DONE = re.compile(rf"(?i){_SCHEME}{re.escape(GONE)}")  # a secret that is already removed

# --- private keys -------------------------------------------------------------------------------------------------

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----|\Z)", re.DOTALL)
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----")
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}\s*$")

# --- tokens ---------------------------------------------------------------------------------------------------------

# The start of a word, also behind an escaped line end (\n) and behind a character that is escaped in a URL (%3D).
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
#: Tokens with a known prefix. Names of programs, such as hf_snapshot and hf_transfer, do not match.
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
# A key of vast.ai has 64 hexadecimal digits, like a sha256: it is removed unless the text around it names a hash.
_HEX = re.compile(r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))[0-9a-f]{64}(?![0-9A-Za-z])")
# The text before a hash on its line. `_OF_FILE` is the text behind one: a file's suffix, or a name (sha256sum).
_IS_HASH = re.compile(
    r"(?i)(?:(?:sha-?256|digest|checksum|fingerprint|drafthouse\.definition)(?:(?!key|token|secret)[^\n]){0,60}"
    r"|(?:etag|oid|hash|blob|layer|commit|revision|container|image|certificate|(?<![a-z])id|_id|(?-i:[a-z]ID))[\"'=:\\\s\-]{0,6}|[/@~])$"
)
_OF_FILE = re.compile(r"(?:\.(?:part|json|log|lock|incomplete)\b|/| [ *][\w./-]+\.\w+|  ?-(?:\s|$))")

# --- places of a secret ---------------------------------------------------------------------------------------------

_BEARER = re.compile(rf"(?i){_START}(bearer(?:[ \t]+|%20|\+))[A-Za-z0-9._~+/=%-]{{6,}}")
_USER_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}:\\*/\\*/)[^\s\"'<>]+@")
_COOKIE = re.compile(r"(?im)\b((?:set-)?cookie[\"']?\s*[:=]\s*)[^\n]+")
# A secret in the query of a URL, among them the signatures of clouds.
_IN_QUERY = re.compile(
    rf"(?i)([?&;](?:[a-z0-9]+[_-])*(?:{_LAST}|sig|x-amz-[a-z-]+|policy|key-pair-id)=)([^&\s\"'<>#]+)"
)
#: A name and a value that does not follow it directly; the value is the last group.
_PLACES = (
    # The header Authorization with a scheme such as Digest, AWS4-HMAC-SHA256 or Negotiate, to its end.
    re.compile(
        r"(?i)authorization[ \t]*:[ \t]*(?!bearer|basic|token)[\w-]+[ \t]+((?:=\\*\"[^\"\n\\]*\\*\"|[^\n'\"\\])+)"
    ),
    # Two fields, one with the name and one with the value, as in a container's environment in JSON or YAML.
    re.compile(
        rf"(?i)\b(?:name|key|k|var)\\*[\"']?\s*:\s*\\*[\"']?(?:{NAME})\\*[\"']?\s*,?\s*\\*[\"']?(?:value|val|v)"
        rf"\\*[\"']?\s*:\s*\\*[\"']?([^\s\"'\\,}}]+)"
    ),
    # Lines below the name in YAML: a block, a scalar, a list.
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

# The value of a name in environments, INI, YAML, JSON (also in a JSON string), Python and command lines: up to its
# closing quote, or without quotes up to a blank or a quote. Headers and arguments may be lists of values.
_VALUE = (
    r"(?P<value>\[[^\[\]]*\]|\[[^\[\]\n]*|\"(?:[^\"\\\n\0]|\\.)*\"?|'(?:[^'\\\n\0]|\\.)*'?"
    rf"|(?P<escaped>\\+[\"'])(?:(?!(?P=escaped)).)*(?:(?P=escaped))?|{_SCHEME}[^\s\"'\0]+)"
)
_ASSIGNED = re.compile(
    rf"(?i)(?P<head>(?<![A-Za-z0-9_.\-])(?P<name>{NAME})(?P<close>(?:\\*[\"'])?)"
    rf"[ \t]*(?::[-=?+]?|=>?|%3[AaDd])[ \t]*)"
    rf"(?!\{{){_VALUE}"
)
# An option and its argument: in a JSON or YAML list, in /proc/PID/cmdline, or on the next line of a shell command.
_FLAG = re.compile(
    rf"(?i)(?P<head>(?:(?<![\w-])|(?<=\\[nrt]))--?(?P<name>{NAME})(?P<close>(?:\\*[\"'])?)"
    rf"(?:\s*,\s*|[ \t]*\\\r?\n\s*|\s*\n\s*-\s+|[\s\0]+))(?![-{{\[]){_VALUE}"
)
# A header as a pair in brackets, as Python programs print it.
_PAIR = re.compile(rf"(?i)([(\[]\s*b?(\\*[\"'])(?:{NAME})\2\s*,\s*b?(\\*[\"']))((?:(?!\3).)+)(\3\s*[)\]])")
# A passphrase without quotes, which may contain blanks: to the end of its line.
_TO_THE_END = re.compile(r"(?im)((?:password|passwd|passphrase|secret)\s*[:=]\s*)(?![\"'\\\s(])([^\n\0\"']+)")


def without_shapes(text: str) -> str:
    """``text`` with `GONE` in place of everything that looks like a secret, the surest signs first."""
    text = _without_key_ends(_PEM.sub(GONE, text))
    text = _USER_IN_URL.sub(rf"\1{GONE}@", text)
    text = _IN_QUERY.sub(rf"\1{GONE}", text)
    text = _COOKIE.sub(rf"\1{GONE}", text)
    text = _TOKEN.sub(GONE, text)
    text = _BEARER.sub(rf"\1{GONE}", text)
    text = _HEX.sub(_unless_hash, text)
    for pattern in _PLACES:
        text = pattern.sub(_without_last_group, text)
    text = _TO_THE_END.sub(_without_passphrase, text)
    text = _PAIR.sub(rf"\g<1>{GONE}\g<5>", text)
    return _FLAG.sub(_without_value, _ASSIGNED.sub(_without_value, text))


def _without_last_group(match: re.Match[str]) -> str:
    """The match with `GONE` for the text of its last group, whose leading and trailing whitespace stays.

    Unchanged if that text is no secret.
    """
    last = match.re.groups
    secret = match[last]
    if _is_harmless(secret.strip().strip("\"'`")):
        return match[0]
    begin = match.start(last) - match.start()
    lead, _, tail = secret.partition(secret.strip())
    return f"{match[0][:begin]}{lead}{GONE}{tail}{match[0][begin + len(secret) :]}"


def _is_harmless(value: str) -> bool:
    """True for a value that is no secret: nothing, a plain word (`PLAIN`), a number, or one that is removed already."""
    return not value or bool(PLAIN.match(value) or _DONE.match(value) or _NUMBER.match(value))


def _without_key_ends(text: str) -> str:
    """Remove the end of a private key whose beginning is missing: its last line, and the base64 lines before it."""
    if not _PEM_END.search(text):
        return text
    kept: list[str] = []
    for line in text.splitlines(keepends=True):
        if _PEM_END.search(line):
            while kept and _BASE64_LINE.search(kept[-1]):
                kept.pop()
            line = f"{GONE}\n"  # noqa: PLW2901 (it replaces the line)
        kept.append(line)
    return "".join(kept)


def _without_passphrase(match: re.Match[str]) -> str:
    """The match of `_TO_THE_END` with `GONE` for the passphrase; unchanged if it is no secret."""
    if _is_harmless(match[2].strip()):
        return match[0]
    return f"{match[1]}{GONE}"


def _unless_hash(match: re.Match[str]) -> str:
    """`GONE` for 64 hexadecimal digits, unless the text before or behind them on their line names a hash."""
    # 90 characters are more than `_IS_HASH` can match.
    before = match.string[max(0, match.start() - 90) : match.start()]
    is_hash = _IS_HASH.search(before.rpartition("\n")[2]) or _OF_FILE.match(match.string, match.end())
    return match[0] if is_hash else GONE


def _without_value(match: re.Match[str]) -> str:
    """The match of a name and its value with `GONE` for the value, in its quotes; unchanged if it is no secret."""
    value = match["value"]
    if _DONE.match(value.strip("\"'\\")) or _NO_SECRET_NAME.search(match["name"]) or _in_sentence(match):
        return match[0]
    if value.startswith("["):
        inner = value.strip("[]\"'\\, \t\r\n")
        if not inner or PLAIN.match(inner):
            return match[0]
        quote = match["close"]
        if quotes := re.search(r"\\*[\"']", value):
            quote = quotes[0]
        return f"{match['head']}[{quote}{GONE}{quote}{']' * value.endswith(']')}"
    quote = match["escaped"] or (value[0] if value[0] in "\"'" else "")
    # An unquoted value ends before the brackets of a list or object around it, and before an escaped quote.
    core = value if quote else value.rstrip(",;)}]\\")
    bare = core.strip("\"'\\")
    if match["name"] == "key" and re.fullmatch(r"[0-9a-f]{16}", bare):
        return match[0]  # the hash `key` of a result in Drafthouse's reports
    if not bare or PLAIN.match(bare) or (not quote and _NUMBER.match(bare)):
        return match[0]
    # An unquoted JSON value, such as a number, gets the quotes of its name, so that the text stays valid JSON.
    around = quote or match["close"]
    return f"{match['head']}{around}{GONE}{around}{value[len(core) :]}"


def _in_sentence(match: re.Match[str]) -> bool:
    """True for a sentence that is no setting, such as "it asks nobody for a key: keep it on loopback"."""
    before = match.string[max(0, match.start() - 16) : match.start()]
    behind = match.string[match.end() : match.end() + 3]
    is_word = match["name"] in ("key", "token") and re.fullmatch(r"[A-Za-z]{1,12}:?", match["value"])
    return bool(is_word and re.search(r"[A-Za-z] $", before) and re.match(r"[,;]? [a-z]", behind))


def is_secret_name(name: str) -> bool:
    """True if a variable, key or option with this name holds a secret."""
    name = name.strip()
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET_NAME.search(name)
