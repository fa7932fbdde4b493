r"""What looks like a secret that nobody has named to us: by the name that it stands behind, and by where it stands.

Names with a value (environments, INI, YAML, JSON, XML, command lines, headers), passwords in URLs, netrc, pgpass,
private keys. Tokens of vendors by their form are vendor_tokens.py's. Standard library only, Python 3.10.
"""

from __future__ import annotations

import base64
import re

from .vendor_tokens import START, without_tokens

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
# Without their frames: "openssh-key-v1" in base64; PKCS #8 and #1 of RSA, of curves and of Ed25519 (a public key or a
# certificate has none of these); and PuTTY's.
_KEYS = re.compile(
    r"(?:b3BlbnNzaC1rZXktdjE|MII[A-Za-z0-9+/]{2}[A-Za-z0-9+/]{0,4}(?:IBAAKC|IBADANBgkqhkiG9w0BAQEFAASC)|MHcCAQEE|MIGkAgEBBD"
    r"|MIG[A-Za-z0-9+/]AgEAM[A-Za-z0-9+/]{4}ByqGSM49|MC4CAQAwBQYDK2V)[A-Za-z0-9+/=\s\\]+"
)
_PUTTY = re.compile(r"(Private-Lines:\s*\d+)((?:\s*\n[A-Za-z0-9+/=]{8,})+)")
_PACKED_PEM = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+(?:\\?\s*\n?\s*[A-Za-z0-9+/=]{20,})*")  # base64 of "-----BEGIN"
_JWK = re.compile(r"(\\*\"(?:d|p|q|dp|dq|qi|k)\\*\"\s*:\s*\\*\")([A-Za-z0-9_-]{16,})")

_VAULT = re.compile(r"\$ANSIBLE_VAULT;[0-9.]+;[^\n]*(?:\\?\n[ \t]*[0-9a-f]{40,})+")

# --- where it stands ------------------------------------------------------------------------------------------------

# vast.ai's keys have 64 hexadecimal digits, as sha256 has: what does not say that it is a hash goes.
_HEX = re.compile(r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt])|(?<=%[0-9A-F]{2}))[0-9a-f]{64}(?![0-9A-Za-z])")
# Before one, on its line; and what is a file's or a container's name, or stands before a file's as sha256sum writes it.
_IS_HASH = re.compile(
    r"(?i)(?:(?:sha-?256|digest|checksum|fingerprint|drafthouse\.definition)(?:(?!key|token|secret)[^\n]){0,60}"
    r"|(?:etag|oid|hash|blob|layer|commit|revision|container|image|certificate|(?<![a-z])id|_id|(?-i:[a-z]ID))[\"'=:\\\s\-]{0,6}|[/@~])$"
)
_OF_FILE = re.compile(r"(?:\.(?:part|json|log|lock|incomplete)\b|/| [ *][\w./-]+\.\w+|  ?-(?:\s|$))")
_BEARER = re.compile(rf"(?i){START}(bearer|basic|token|apikey)([ \t]+|%20|\+)([A-Za-z0-9._~+/=%-]{{6,}})")
_USER_IN_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,30}:\\*/\\*/)[^\s\"'<>]+@")
# As curl takes it; docker's is two numbers.
_USER = re.compile(
    r"(?<![\w-])((?:-u|--user|--proxy-user)(?:[\"']\s*,\s*[\"']|[ =]+[\"']?)[^\s:\"']+:)(?!\d+(?:[\s\"']|$))([^\s\"']+)"
)
_COOKIE = re.compile(r"(?im)\b((?:set-)?cookie[\"']?\s*[:=]\s*)[^\n]+")
_IN_QUERY = re.compile(
    rf"(?i)([?&;](?:[a-z0-9]+[_-])*(?:{_LAST}|sig|x-amz-[a-z-]+|policy|key-pair-id)=)([^&\s\"'<>#]+)"
)
#: Rules of which one is tried where its word stands in the text (in small letters); the secret is the last group.
_PLACES: tuple[tuple[str, str], ...] = (
    # netrc, on one line or several; and its last line alone.
    ("password", r"(?i)\b(?:machine\s+\S+|default|login\s+\S+)(?:\s+(?:login|account)\s+\S+)*\s+password\s+(\S+)"),
    ("passw", r"(?im)^[ \t]*passw(?:or)?d[ \t]+(\S+)[ \t]*$"),
    # pgpass: host:port:database:user:password.
    (":", r"(?m)^[^\s:]+:(?:\d{4,5}|\*):[^\s:]+:[^\s:]+:(\S+)$"),
    # A header with another scheme, to its end: Digest, AWS4-HMAC-SHA256, Negotiate.
    ("authorization", r"(?i)authorization[ \t]*:[ \t]*(?!bearer|basic|token)[\w-]+[ \t]+((?:=\\*\"[^\"\n\\]*\\*\"|["
     r"^\n'\"\\])+)"),
    # user:password@host, without a scheme before it; not image:tag@sha256.
    ("@", r"(?<![\w/.@:-])[A-Za-z][\w.-]{0,31}:(?!\d+[.@])([^\s:@/\"'<>]{3,64})@(?!sha\d+:)(?:tcp\(|unix\(|[A-Za-z0"
     r"-9])"),
    # Programs that take a password as an argument.
    ("sshpass", r"\bsshpass\s+-p\s*(\S+)"),
    ("mysql", r"\bmysql\w*\b[^\n|;]{0,200}?\s-p([^\s\"']+|\"[^\"\n]+\"|'[^'\n]+')"),
    (" -p", r"(?:^|\s)-u[ =]?[^\s:]+\s+-p[ =]?(?!\d+(?:[:\s]|$))(\S+)"),
    ("login", r"\b(?:docker|podman|az|oc|helm registry) login\b[^\n|;]{0,200}?\s-p[ =]?(\S+)"),
    ("redis-cli", r"\bredis-cli\b[^\n|;]{0,200}?\s-a\s+(\S+)"),
    ("ldap", r"\bldap\w+\b[^\n|;]{0,200}?\s-w\s+(\S+)"),
    ("htpasswd", r"\bhtpasswd\s+-\w*b\w*\s+(?:-\S+\s+)*\S+\s+\S+\s+(\S+)"),
    ("zip", r"\b(?:un)?zip\b[^\n|;]{0,200}?\s-P\s*(\S+)"),
    ("pass:", r"(?i)\s-?-pass(?:in|out|phrase)?[ =]pass:(\S+)"),
    ("ssh-keygen", r"\bssh-keygen\b[^\n|;]{0,200}?\s-N\s*(\S+)"),
    ("net use", r"(?i)\bnet use\b[^\n|;]{0,200}?/user:\S+\s+(\S+)"),
    ("pass", r"(?i)(?:\s-(?:store|key|src|dest)(?:store)?pass|\brequirepass|\bmasterauth)\s+(\S+)"),
    ("p", r"(?i)(?<![\w.-])(?:pass\s*=|pw\s*[=:])\s*(\S+)"),
    ("echo", r"\b(?:echo|printf)\s+(?:-\w+\s+)?(\S+)\s*\|[^\n]{0,200}?(?:--password-stdin|sudo\s+-S|chpasswd|passwd"
     r"\b)"),
    # SQL, and calls.
    ("identified", r"(?i)\bidentified\s+(?:with\s+\S+\s+)?(?:by|as)\s+[\"']([^\"'\n]+)"),
    ("password", r"(?i)\bpassword\s+[\"']([^\"'\n]+)"),
    ("(", r"(?i)(?:password|passwd|secret|token|api_?key|credential)\(\s*\\*[\"']([^\"'\n\\]+)\\*[\"']"),
    # What sets a variable without a sign: Dockerfiles, csh, fish, git, npm.
    (" ", rf"(?m)(?:^[ \t]*(?:ENV|ARG)|\bsetenv|\bsetx|\bset(?:\s+-[a-zA-Z]+)?|\bconfig(?:\s+--\w+)*(?:\s+set)?)\s+"
     rf"[^\s=]*?(?i:{NAME})\s+(\S+)"),
    # XML: an element, an attribute with its value, a property list; also as it stands in HTML.
    ("<key>", rf"(?i)<key>(?:{NAME})</key>\s*<(?:string|data)>\s*([^<>]+)"),
    ("</", rf"(?i)<(?:[\w-]+:)?{NAME}(?:\s[^<>]*)?>\s*(?:<!\[CDATA\[)?([^<>\]]+)"),
    ("lt;", rf"(?i)&lt;(?:[\w-]+:)?{NAME}&gt;\s*([^&<>]+)"),
    ("<", rf"(?i)<[\w:-]+\s[^<>]*?(?:name|key|id)=[\"'](?:{NAME})[\"'][^<>]*?\svalue=[\"']([^\"'<>]+)"),
    ("<", rf"(?i)<[\w:-]+\s[^<>]*?(?:name|key)=[\"'](?:{NAME})[\"'][^<>]*>\s*([^<>]+)</"),
    # A name and a value as two fields: environments of containers in JSON and YAML.
    ("v", rf"(?i)\b(?:name|key|k|var)\\*[\"']?\s*:\s*\\*[\"']?(?:{NAME})\\*[\"']?\s*,?\s*\\*[\"']?(?:value|val|v)"
     rf"\\*[\"']?\s*:\s*\\*[\"']?([^\s\"'\\,}}]+)"),
    ("value", rf"(?i)\bvalue\\*[\"']?\s*:\s*\\*[\"']?([^\s\"'\\,"
     rf"}}]+)\\*[\"']?\s*,?\s*\\*[\"']?name\\*[\"']?\s*:\s*\\*[\"']?(?:{NAME})\b"),
    ("|", rf"(?i)\|[ \t]*`?(?:{NAME})`?[ \t]*\|[ \t]*`?([^\s|`]{{6,}})"),
    # On the line below its name: a YAML block or scalar.
    (":", rf"(?im)^([ \t]*)(?:-[ \t]+)?[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*[|>][+-]?\d?[ \t]*\r?\n((?:\1[ \t]+\S[^\n"
     rf"]*(?:\n|$)|[ \t]*\n)+)"),
    (":", rf"(?im)^([ \t]*)(?:-[ \t]+)?[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*\r?\n((?:\1[ \t]+(?!-[ \t])[^\s#:][^\n:]*"
     rf"(?:\n|$))+)"),
    (":", rf"(?im)^([ \t]*)[\"']?(?:{NAME})[\"']?[ \t]*:[ \t]*\r?\n((?:\1[ \t]*-[ \t]+[^\s:]+[ \t]*(?:\n|$))+)"),
    # TOML and Python: text over lines.
    ('"""', rf'(?i)(?:{NAME})\s*[:=]\s*"""([\s\S]{{1,4000}}?)"""'),
    ("'''", rf"(?i)(?:{NAME})\s*[:=]\s*'''([\s\S]{{1,4000}}?)'''"),
)  # fmt: skip
# In a sentence: "the password is x", "with API key x". What has no digit there may be its next word.
_SAID = re.compile(
    r"(?i)\b((?:api|access|secret|auth)[ _-]?(?:key|token)|password|passphrase|passwd|passcode)"
    r"((?: (?:is|was|now|of|set to|changed to|for \S+ is)\b:?)? [\"'`]?)"
    r"((?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9_~.+@!#$%^&*-]{6,})(?![=:/(])"
)
# The values of a Kubernetes secret.
_KIND = re.compile(r"(?im)(?:^[ \t]*kind|\"kind\")\s*:\s*[\"']?secret\b")
_DATA = re.compile(r"(?im)^([ \t]*)(?:data|stringData):[ \t]*\n((?:\1[ \t]+\S[^\n]*(?:\n|$))+)")
_DATA_JSON = re.compile(r"(\"(?:data|stringData)\"\s*:\s*\{)([^{}]*)(\})")

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
    """Return the text without what looks like a secret."""
    text = _without_key_ends(_PEM.sub(GONE, text))
    text = _PUTTY.sub(rf"\1\n{GONE}", _KEYS.sub(GONE, text))
    text = _PACKED_PEM.sub(_unless_public, text)
    text = _VAULT.sub(GONE, text)
    if '"kty' in text or 'kty\\"' in text:
        text = _JWK.sub(rf"\g<1>{GONE}", text)
    text = _USER_IN_URL.sub(rf"\1{GONE}@", text)
    text = _USER.sub(rf"\1{GONE}", text)
    text = _IN_QUERY.sub(rf"\1{GONE}", text)
    text = _COOKIE.sub(rf"\1{GONE}", text)
    text = without_tokens(text, GONE)
    text = _BEARER.sub(lambda found: f"{found[1]}{found[2]}{GONE}" if _dense(found[1], found[3]) else found[0], text)
    text = _HEX.sub(_unless_hash, text)
    text = _in_places(text)
    text = _TO_THE_END.sub(lambda found: found[0] if _harmless(found[2].strip()) else f"{found[1]}{GONE}", text)
    text = _PAIR.sub(rf"\g<1>{GONE}\g<5>", text)
    return _FLAG.sub(_value_gone, _ASSIGNED.sub(_value_gone, text))


def _in_places(text: str) -> str:
    small = text.lower()
    if "secret" in small and _KIND.search(text):
        text = _DATA.sub(lambda found: _lines_gone(found[0]), text)
        text = _DATA_JSON.sub(lambda found: found[1] + _json_gone(found[2]) + found[3], text)
    for word, pattern in _PLACES:
        if word in small:
            text = re.sub(pattern, _last_gone, text)
    if "pass" in small or "key" in small or "token" in small:
        text = _SAID.sub(rf"\1\2{GONE}", text)
    return text


def _last_gone(found: re.Match[str]) -> str:
    """Return what was found without its last group; of several lines their indentation and their ends stay."""
    number = found.re.groups
    secret, begin = found[number], found.start(number) - found.start()
    if _harmless(secret.strip().strip("\"'`")):
        return found[0]
    inside = secret.strip()
    lead, tail = secret[: secret.index(inside)], secret[secret.index(inside) + len(inside) :]
    return f"{found[0][:begin]}{lead}{GONE}{tail}{found[0][begin + len(secret) :]}"


def _lines_gone(block: str) -> str:
    return re.sub(r"(?m)^([ \t]+[^\s:]+:[ \t]*)(?!\(secret\))(\S[^\n]*)$", rf"\1{GONE}", block)


def _json_gone(pairs: str) -> str:
    return re.sub(r"(:\s*\")[^\"]*", rf"\1{GONE}", pairs)


def _harmless(value: str) -> bool:
    return not value or bool(PLAIN.match(value) or _DONE.match(value) or _NUMBER.match(value))


def _unless_public(found: re.Match[str]) -> str:
    """Keep base64 of a certificate or a public key."""
    head = re.sub(r"[^A-Za-z0-9+/]", "", found[0])[:64]
    return GONE if b"PRIVATE" in base64.b64decode(head[: len(head) // 4 * 4]) else found[0]


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
    before = found.string[max(0, found.start() - 90) : found.start()]
    named = _IS_HASH.search(before.rpartition("\n")[2]) or _OF_FILE.match(found.string, found.end())
    return found[0] if named else GONE


def _dense(scheme: str, value: str) -> bool:
    """Tell a credential from the next word of a sentence ("token counts", "Inter-token Latency", "token rate=0.6")."""
    if scheme.lower() == "bearer":
        return True
    if re.match(r"[A-Za-z_.-]+[=:/]-?\d", value) or len(value) < 8:
        return False
    return bool(re.search(r"\d", value) and re.search(r"[A-Za-z]", value)) or bool(re.search(r"[a-z][A-Z]|=$", value))


def _value_gone(found: re.Match[str]) -> str:
    value = found["value"]
    if _DONE.match(value.strip("\"'\\")) or _NO_SECRET_NAME.search(found["name"]) or _in_sentence(found):
        return found[0]
    if value.startswith("["):
        inner = value.strip("[]\"'\\, \t\r\n")
        if not inner or PLAIN.match(inner):
            return found[0]
        quotes = re.search(r"\\*[\"']", value)
        quote = quotes[0] if quotes else found["close"]
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
