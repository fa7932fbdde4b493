"""Shapes of secrets that a log or a file may have, and forms that one may take. None is real: all are drawn anew."""

from __future__ import annotations

import base64
import html
import json
import quopri
import random
import shlex
import string
import textwrap
import urllib.parse
from collections.abc import Mapping

_DRAW = random.Random(16)
_ALNUM, _UPPER, _HEX = string.ascii_letters + string.digits, string.ascii_uppercase + string.digits, "0123456789abcdef"


def drawn(letters: str, count: int) -> str:
    """Draw so many letters, a digit among them."""
    while True:
        text = "".join(_DRAW.choices(letters, k=count))
        if any(letter.isdigit() for letter in text) or not any(letter.isdigit() for letter in letters):
            return text


WORD = "xk7" + drawn(_ALNUM, 17)  # a secret without a form of its own
LOWER = drawn(string.ascii_lowercase, 14)  # ... and without a digit
PHRASE = "correct horse battery staple"
_PEM_BODY = textwrap.fill(base64.b64encode(_DRAW.randbytes(1200)).decode(), 64)
_PART = _PEM_BODY.splitlines()[5]
_FRAMED = f"-----BEGIN PRIVATE KEY-----\n{_PEM_BODY}\n-----END PRIVATE KEY-----\n"


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_UUID = "-".join(drawn(_HEX, count) for count in (8, 4, 4, 4, 12))

#: Tokens that are known by how they begin.
VENDORS: Mapping[str, str] = {
    "hugging face": "hf_" + drawn(_ALNUM, 34),
    "openai": "sk-" + drawn(_ALNUM, 48),
    "openai, a project's": "sk-proj-" + drawn(_ALNUM, 120),
    "openrouter": "sk-or-v1-" + drawn(_HEX, 64),
    "anthropic": "sk-ant-api03-" + drawn(_ALNUM, 93) + "AA",
    "nvidia": "nvapi-" + drawn(_ALNUM + "-_", 64),
    "groq": "gsk_" + drawn(_ALNUM, 52),
    "replicate": "r8_" + drawn(_ALNUM, 37),
    "runpod": "rpa_" + drawn(_UPPER, 46),
    "github": "ghp_" + drawn(_ALNUM, 36),
    "github, fine-grained": "github_pat_" + drawn(_ALNUM, 22) + "_" + drawn(_ALNUM, 59),
    "github, an app's": "ghs_" + drawn(_ALNUM, 36),
    "gitlab": "glpat-" + drawn(_ALNUM, 20),
    "aws, an id": "AKIA" + drawn(string.ascii_uppercase + "234567", 16),
    "google, an api key": "AIza" + drawn(_ALNUM, 35),
    "slack, a bot's": "xoxb-" + drawn(string.digits, 12) + "-" + drawn(string.digits, 12) + "-" + drawn(_ALNUM, 24),
    "vast.ai": drawn(_HEX, 64),
}  # fmt: skip

#: A text in which a secret stands behind its name, and what must not be left of it.
PLACES: Mapping[str, tuple[str, str]] = {
    # Files of programs.
    "git-credentials": (f"https://me:{LOWER}@github.com", LOWER),
    "pypirc": (f"[pypi]\nusername = __token__\npassword = {LOWER}\n", LOWER),
    "npmrc": (f"//registry.npmjs.org/:_authToken={WORD}", WORD),
    "docker's config": (json.dumps({"auths": {"ghcr.io": {"auth": WORD}}}), WORD),
    "aws credentials": (f"[default]\naws_secret_access_key = {WORD}\n", WORD),
    "kubeconfig, a token": (f"users:\n- name: me\n  user:\n    token: {WORD}\n", WORD),
    "kubeconfig, a key": (f"    client-key-data: {WORD}\n", WORD),
    "an environment in a pod": (f"env:\n- name: HF_TOKEN\n  value: {LOWER}\n", LOWER),
    "an environment in JSON": (json.dumps({"name": "DB_PASSWORD", "value": LOWER}), LOWER),
    "compose": (f"environment:\n  - HF_TOKEN={LOWER}\n", LOWER),
    "wireguard": (f"[Interface]\nPrivateKey = {WORD}=\n", WORD),
    "ansible": (f"ansible_become_pass: {LOWER}", LOWER),
    # YAML.
    "yaml": (f"api_key: {LOWER}", LOWER),
    "yaml, a block": (f"api_key: |\n  {LOWER}\nport: 8000\n", LOWER),
    "yaml, folded": (f"service:\n  password: >-\n    {LOWER}\n    {WORD}\n  port: 8000\n", WORD),
    "yaml, a block in a list": (f"- token: |\n    {LOWER}\n- port: 1\n", LOWER),
    "yaml, on the next line": (f"password:\n  {LOWER}\nport: 8000\n", LOWER),
    "yaml, a list": (f"api_keys:\n  - {LOWER}\n  - {WORD}\nport: 8000\n", LOWER),
    "yaml, in quotes": (f"'api-key': '{LOWER}'", LOWER),
    # Other files of settings and code.
    "xml, an attribute": (f'<db user="me" password="{LOWER}"/>', LOWER),
    "properties": (f"spring.datasource.password={LOWER}", LOWER),
    "rails": (f"SECRET_KEY_BASE={LOWER}", LOWER),
    "a name with an end": (f"API_KEY_PROD={LOWER}", LOWER),
    "a passphrase with blanks": (f"passphrase: {PHRASE}", "battery"),
    "ruby": (f":password => '{LOWER}'", LOWER),
    "php": (f"define('DB_PASSWORD', '{LOWER}');", LOWER),
    "go": (f'Config{{User: "me", Password: "{LOWER}"}}', LOWER),
    "powershell": (f'$env:HF_TOKEN = "{LOWER}"', LOWER),
    "yaml with an anchor": (f"token: &t {LOWER}", LOWER),
    "name and value, in short": (json.dumps({"k": "password", "v": LOWER}), LOWER),
    "yaml in JSON": (json.dumps(f"password: |\n  {LOWER}\nport: 1"), LOWER),
    # Connections.
    "a url": (f"redis://:{LOWER}@cache:6379/0", LOWER),
    "a connection string": (f"Server=db;User Id=me;Password={LOWER};", LOWER),
    "azure storage": (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={WORD * 4}==;", WORD),
    "azure sas": (f"https://a.blob.core.windows.net/c?sv=2024&sig={WORD}%3D", WORD),
    "a signed url": (f"https://cdn/x?Expires=1&Signature={WORD}&Key-Pair-Id={LOWER}", WORD),
    "otpauth": (f"otpauth://totp/me?secret={WORD}&issuer=x", WORD),
    "a fragment": (f"https://x/cb#access_token={WORD}&state=1", WORD),
    # Headers.
    "basic": (f"Authorization: Basic {_packed(f'me:{WORD}')}", _packed(f"me:{WORD}")),
    "digest": (f'Authorization: Digest username="me", realm="x", response="{WORD}"', WORD),
    "aws, signed": (f"Authorization: AWS4-HMAC-SHA256 Credential=x/2026/s3, Signature={WORD}", WORD),
    "negotiate": (f"Proxy-Authorization: Negotiate {WORD}", WORD),
    "a key of its own": (f"X-Api-Key: {LOWER}", LOWER),
    "a cookie": (f"Cookie: session={LOWER}; a=b", LOWER),
    "a session": (f"PHPSESSID={LOWER}", LOWER),
    # Command lines.
    "curl": (f"curl -H 'Authorization: Bearer {LOWER}' https://x", LOWER),
    "java's option": (f"java -Djavax.net.ssl.keyStorePassword={LOWER} -jar a.jar", LOWER),
    "an option": (f"vllm serve m --api-key {LOWER} --port 8000", LOWER),
    "an option in JSON": (json.dumps(["--hf-token", LOWER]), LOWER),
    "kubectl": (f"kubectl create secret generic x --from-literal=password={LOWER}", LOWER),
    # In a sentence.
    "a bearer in a sentence": (f"refused bearer {LOWER}", LOWER),
    "64 digits that are no hash's": (f"the key is invalid {VENDORS['vast.ai']} (401)", VENDORS["vast.ai"]),
    # Private keys.
    "pem": (f"-----BEGIN PRIVATE KEY-----\n{_PEM_BODY}\n-----END PRIVATE KEY-----\n", _PART),
    "pem, its end": (f"{_PEM_BODY}\n-----END RSA PRIVATE KEY-----\n", _PART),
    "pem, its beginning": (f"-----BEGIN EC PRIVATE KEY-----\n{_PEM_BODY}", _PART),
    "pem in JSON": (json.dumps({"pem": _FRAMED}), _PART),
    "pgp": (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{_PEM_BODY}\n-----END PGP PRIVATE KEY BLOCK-----\n", _PART),
    "a uuid behind its name": (f"heroku_api_key: {_UUID}", _UUID),
}  # fmt: skip

#: A known secret, and how it may be written.
KNOWN = "S3cr3t+Value/with=signs&more"
_BYTES = KNOWN.encode()


def _wrapped(text: str, width: int, end: str = "\n") -> str:
    return end.join(text[at : at + width] for at in range(0, len(text), width))


def _b64(before: bytes = b"", behind: bytes = b"") -> str:
    return base64.b64encode(before + _BYTES + behind).decode()


def _url(text: str) -> str:
    return urllib.parse.quote(text, safe="")


FORMS: Mapping[str, str] = {
    "plain": KNOWN,
    "base64": _b64(),
    "base64, one letter on": _b64(b"x", b"yz"),
    "base64, two letters on": _b64(b"xy", b"z"),
    "base64, as Basic has it": _b64(b"user:"),
    "base64 for URLs": base64.urlsafe_b64encode(_BYTES).decode(),
    "base64 without padding": _b64().rstrip("="),
    "base64 over lines": _wrapped(_b64(), 16),
    "base64 over lines of mail": base64.encodebytes(_BYTES * 4).decode(),
    "base64, one letter on, over lines with an indentation": _wrapped(_b64(b"x"), 14, "\n    "),
    "base64 in a URL": _url(_b64(b"x")),
    "base64 in JSON over lines": json.dumps(_wrapped(_b64(), 20)),
    "base64 of base64": base64.b64encode(_b64().encode()).decode(),
    "base64 of what a URL has": base64.b64encode(_url(KNOWN).encode()).decode(),
    "base64 of JSON": base64.b64encode(json.dumps({"key": KNOWN, "a": 1}).encode()).decode(),
    "base64 of UTF-16": base64.b64encode(KNOWN.encode("utf-16-le")).decode(),
    "base32": base64.b32encode(_BYTES).decode(),
    "base32, in the middle": base64.b32encode(b"abc" + _BYTES + b"d").decode(),
    "hexadecimal": _BYTES.hex(),
    "hexadecimal, large": _BYTES.hex().upper(),
    "hexadecimal with colons": _BYTES.hex(":"),
    "hexadecimal as xxd has it": _BYTES.hex(" ", 2),
    "hexadecimal of base64": _b64().encode().hex(),
    "bytes as escapes": "".join(f"\\x{byte:02x}" for byte in _BYTES),
    "bytes as octal escapes": "".join(f"\\{byte:03o}" for byte in _BYTES),
    "bytes as C has them": ", ".join(f"0x{byte:02x}" for byte in _BYTES),
    "bytes as a list": str(list(_BYTES)),
    "a URL": _url(KNOWN),
    "a URL, its slash as it is": urllib.parse.quote(KNOWN),
    "a URL, small digits": _url(KNOWN).replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d"),
    "a URL, each letter": "".join(f"%{byte:02X}" for byte in _BYTES),
    "a URL's form": urllib.parse.quote_plus(KNOWN),
    "a URL in a URL": _url(_url(KNOWN)),
    "a URL in a URL in a URL": _url(_url(_url(KNOWN))),
    "JSON": json.dumps(KNOWN),
    "JSON in JSON": json.dumps(json.dumps({"key": KNOWN.replace("/", "\\/")})),
    "JSON, each letter": "".join(f"\\u{byte:04x}" for byte in _BYTES),
    "JSON, as Go writes it": KNOWN.replace("&", "\\u0026").replace("+", "\\u002B"),
    "JavaScript": "".join(f"\\u{{{byte:02x}}}" for byte in _BYTES),
    "a shell's quotes": shlex.quote(KNOWN),
    "a shell's quotes, closed and opened": "'" + "'\"'\"'".join(_wrapped(KNOWN, 9, "\0").split("\0")) + "'",
    "a shell's backslashes": "".join(f"\\{letter}" if not letter.isalnum() else letter for letter in KNOWN),
    "Python's quotes over lines": _wrapped(KNOWN, 12, "'\n    '"),
    "HTML": html.escape(KNOWN),
    "HTML, by number": "".join(f"&#{byte};" for byte in _BYTES),
    "HTML, by hexadecimal number": "".join(f"&#x{byte:X};" for byte in _BYTES),
    "a URL in HTML": html.escape(f"?a=1&k={_url(KNOWN)}"),
    "quoted-printable": quopri.encodestring(_BYTES).decode(),
    "UTF-16": KNOWN.encode("utf-16-le").decode("latin-1"),
    "over lines of 7": _wrapped(KNOWN, 7),
    "over lines of 10, indented": _wrapped(KNOWN, 10, "\r\n      "),
    "over lines of a shell": _wrapped(KNOWN, 11, "\\\n"),
    "over lines of a diff": _wrapped(KNOWN, 13, "\n+"),
    "over lines of a quotation": _wrapped(KNOWN, 8, "\n> "),
    "over lines of YAML": _wrapped(KNOWN, 9, "\n\n    "),
    "over lines, in JSON": json.dumps(_wrapped(KNOWN, 10)),
    "over lines of a journal": _wrapped(KNOWN, 14, "\nNov 23 07:00:00 box gateway[17]: "),
    "over lines of Docker": _wrapped(_b64(), 20, '\\n","stream":"stdout"}\n{"log":"'),
    "letter by letter": " ".join(KNOWN),
    "in colours": _wrapped(KNOWN, 6, "\x1b[0m\x1b[31m"),
    "in colours, in JSON": json.dumps(_wrapped(KNOWN, 6, "\x1b[1;32m")),
    "cut, its beginning": KNOWN[:16],
    "cut, its end": KNOWN[-16:],
}  # fmt: skip

#: What may be left of a known one, undone: so many letters at a stretch.
LEFT = 6


def undone(text: str) -> list[str]:
    """Readings of a text in which a secret that is left would be found."""
    read = text
    for _ in range(3):
        read = html.unescape(urllib.parse.unquote(read))
    plain = read.replace("\\", "").replace("\n", "").replace(" ", "").replace("\0", "").replace(" ", "")
    found = [text, read, plain]
    for word in "".join(letter if letter.isalnum() or letter in "+/=-_" else " " for letter in plain).split():
        tidy = word.replace("-", "+").replace("_", "/").rstrip("=")
        for at in range(4):
            piece = tidy[at : at + (len(tidy) - at) // 4 * 4]
            try:
                found.append(base64.b64decode(piece).decode("latin-1"))
            except ValueError:
                continue
        found += (
            [bytes.fromhex(word).decode("latin-1")] if len(word) % 2 == 0 and set(word.lower()) <= set(_HEX) else []
        )
    return found
