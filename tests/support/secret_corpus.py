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
from collections.abc import Callable, Mapping

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


_AUTHS = json.dumps({"auths": {"ghcr.io": {"auth": WORD}}})
_UUID = "-".join(drawn(_HEX, count) for count in (8, 4, 4, 4, 12))

#: Tokens that are known by their own form: what is written before them, and the token.
VENDORS: Mapping[str, str] = {
    "hugging face": "hf_" + drawn(_ALNUM, 34),
    "hugging face, an organisation's": "api_org_" + drawn(string.ascii_letters, 34),
    "openai": "sk-" + drawn(_ALNUM, 48),
    "openai, a project's": "sk-proj-" + drawn(_ALNUM, 120),
    "openrouter": "sk-or-v1-" + drawn(_HEX, 64),
    "anthropic": "sk-ant-api03-" + drawn(_ALNUM, 93) + "AA",
    "nvidia": "nvapi-" + drawn(_ALNUM + "-_", 64),
    "groq": "gsk_" + drawn(_ALNUM, 52),
    "xai": "xai-" + drawn(_ALNUM, 80),
    "replicate": "r8_" + drawn(_ALNUM, 37),
    "together": "tgp_v1_" + drawn(_ALNUM, 43),
    "fireworks": "fw_" + drawn(_ALNUM, 24),
    "cerebras": "csk-" + drawn(_ALNUM, 48),
    "perplexity": "pplx-" + drawn(_ALNUM, 48),
    "runpod": "rpa_" + drawn(_UPPER, 46),
    "pinecone": "pcsk_" + drawn(_ALNUM, 60),
    "langsmith": "lsv2_pt_" + drawn(_HEX, 32) + "_" + drawn(_HEX, 10),
    "github": "ghp_" + drawn(_ALNUM, 36),
    "github, fine-grained": "github_pat_" + drawn(_ALNUM, 22) + "_" + drawn(_ALNUM, 59),
    "github, an app's": "ghs_" + drawn(_ALNUM, 36),
    "gitlab": "glpat-" + drawn(_ALNUM, 20),
    "gitlab, a runner's": "glrt-" + drawn(_ALNUM, 20),
    "gitlab, a deploy token": "gldt-" + drawn(_ALNUM, 20),
    "bitbucket": "ATBB" + drawn(_ALNUM, 32),
    "atlassian": "ATATT3" + drawn(_ALNUM, 186),
    "docker hub": "dckr_pat_" + drawn(_ALNUM, 27),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + drawn(_ALNUM, 80),
    "npm": "npm_" + drawn(_ALNUM, 36),
    "rubygems": "rubygems_" + drawn(_HEX, 48),
    "aws, an id": "AKIA" + drawn(string.ascii_uppercase + "234567", 16),
    "aws bedrock": "ABSK" + drawn(_ALNUM, 120),
    "google, an api key": "AIza" + drawn(_ALNUM, 35),
    "google, oauth": "ya29." + drawn(_ALNUM, 60),
    "google, a client's secret": "GOCSPX-" + drawn(_ALNUM, 28),
    "azure ad": "ab1" + "8Q~" + drawn(_ALNUM, 34),
    "digitalocean": "dop_v1_" + drawn(_HEX, 64),
    "databricks": "dapi" + drawn(_HEX, 32),
    "tailscale": "tskey-auth-" + drawn(_ALNUM, 16) + "-" + drawn(_ALNUM, 32),
    "fly.io": "fm2_" + drawn(_ALNUM, 120),
    "hashicorp vault": "hvs." + drawn(_ALNUM, 95),
    "terraform cloud": drawn(_ALNUM, 14) + ".atlasv1." + drawn(_ALNUM, 65),
    "pulumi": "pul-" + drawn(_HEX, 40),
    "doppler": "dp.pt." + drawn(_ALNUM, 43),
    "linear": "lin_api_" + drawn(_ALNUM, 40),
    "notion": "ntn_" + drawn(string.digits, 11) + drawn(_ALNUM, 35),
    "postman": "PMAK-" + drawn(_HEX, 24) + "-" + drawn(_HEX, 34),
    "grafana": "glsa_" + drawn(_ALNUM, 32) + "_" + drawn(_HEX, 8),
    "sentry": "sntryu_" + drawn(_HEX, 64),
    "supabase": "sbp_" + drawn(_HEX, 40),
    "slack, a bot's": "xoxb-" + drawn(string.digits, 12) + "-" + drawn(string.digits, 12) + "-" + drawn(_ALNUM, 24),
    "slack, an app's": "xapp-1-" + drawn(_UPPER, 11) + "-" + drawn(string.digits, 13) + "-" + drawn(_HEX, 64),
    "slack, a hook": f"https://hooks.slack.com/services/T{drawn(_UPPER, 10)}/B{drawn(_UPPER, 10)}/{drawn(_ALNUM, 24)}",
    "discord, a hook": "https://discord.com/api/webhooks/" + drawn(string.digits, 18) + "/" + drawn(_ALNUM, 68),
    "discord, a bot's": "M" + drawn(_ALNUM, 25) + "." + drawn(_ALNUM, 6) + "." + drawn(_ALNUM, 38),
    "telegram": drawn("123456789", 10) + ":AA" + drawn(_ALNUM, 33),
    "stripe": "sk_live_" + drawn(_ALNUM, 24),
    "stripe, a hook's": "whsec_" + drawn(_ALNUM, 32),
    "sendgrid": "SG." + drawn(_ALNUM, 22) + "." + drawn(_ALNUM, 43),
    "shopify": "shpat_" + drawn(_HEX, 32),
    "square": "sq0atp-" + drawn(_ALNUM, 22),
    "jwt": "eyJhbGciOiJIUzI1NiJ9." + drawn(_ALNUM, 40) + "." + drawn(_ALNUM, 43),
    "age": "AGE-SECRET-KEY-1" + drawn("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "vast.ai": drawn(_HEX, 64),
    "a hash of a password (bcrypt)": "$2a$14$" + drawn(_ALNUM, 53),
    "a hash of a password (sha512crypt)": "$6$" + drawn(_ALNUM, 16) + "$" + drawn(_ALNUM, 86),
}  # fmt: skip

#: A text in which a secret stands without a form of its own, and what must not be left of it.
PLACES: Mapping[str, tuple[str, str]] = {
    # Files of programs.
    "netrc": (f"machine huggingface.co login me password {WORD}", WORD),
    "netrc over lines": (f"machine huggingface.co\n  login me\n  password {LOWER}\n", LOWER),
    "netrc, default": (f"default login me password {LOWER}", LOWER),
    "netrc, its end": (f"  password {LOWER}\n", LOWER),
    "pgpass": (f"db.example.org:5432:*:me:{LOWER}", LOWER),
    "git-credentials": (f"https://me:{LOWER}@github.com", LOWER),
    "pypirc": (f"[pypi]\nusername = __token__\npassword = {LOWER}\n", LOWER),
    "npmrc": (f"//registry.npmjs.org/:_authToken={WORD}", WORD),
    "docker's config": (json.dumps({"auths": {"ghcr.io": {"auth": WORD}}}), WORD),
    "docker's config, packed": (f"cfg: {_packed(_AUTHS)}", _packed(_AUTHS)),
    "aws credentials": (f"[default]\naws_secret_access_key = {WORD}\n", WORD),
    "kubeconfig, a token": (f"users:\n- name: me\n  user:\n    token: {WORD}\n", WORD),
    "kubeconfig, a key": (f"    client-key-data: {WORD}\n", WORD),
    "kubernetes secret": (f"kind: Secret\ndata:\n  anything: {WORD}\n  other: {LOWER}\ntype: Opaque\n", WORD),
    "kubernetes secret, its text": (f"kind: Secret\nstringData:\n  user-of-db: {LOWER}\n", LOWER),
    "kubernetes secret in JSON": (json.dumps({"kind": "Secret", "data": {"anything": WORD}}), WORD),
    "an environment in a pod": (f"env:\n- name: HF_TOKEN\n  value: {LOWER}\n", LOWER),
    "an environment in JSON": (json.dumps({"name": "DB_PASSWORD", "value": LOWER}), LOWER),
    "an environment in JSON, the value first": (json.dumps({"value": LOWER, "name": "DB_PASSWORD"}), LOWER),
    "compose": (f"environment:\n  - HF_TOKEN={LOWER}\n", LOWER),
    "wireguard": (f"[Interface]\nPrivateKey = {WORD}=\n", WORD),
    "ansible": (f"ansible_become_pass: {LOWER}", LOWER),
    "ansible vault": ("$ANSIBLE_VAULT;1.1;AES256\n" + "\n".join("6" * 80 for _ in range(3)) + "\n", "6" * 80),
    "shadow": ("root:$6$" + "ab1" * 5 + "$" + WORD * 4 + ":19000:0:99999:7:::", WORD),
    "htpasswd": ("me:$apr1$" + WORD[:8] + "$" + WORD + "ab", WORD),
    # YAML.
    "yaml": (f"api_key: {LOWER}", LOWER),
    "yaml, a block": (f"api_key: |\n  {LOWER}\nport: 8000\n", LOWER),
    "yaml, folded": (f"service:\n  password: >-\n    {LOWER}\n    {WORD}\n  port: 8000\n", WORD),
    "yaml, a block in a list": (f"- token: |\n    {LOWER}\n- port: 1\n", LOWER),
    "yaml, on the next line": (f"password:\n  {LOWER}\nport: 8000\n", LOWER),
    "yaml, a list": (f"api_keys:\n  - {LOWER}\n  - {WORD}\nport: 8000\n", LOWER),
    "yaml, in quotes": (f"'api-key': '{LOWER}'", LOWER),
    # XML and its kin.
    "xml": (f"<server><username>me</username><password>{LOWER}</password></server>", LOWER),
    "xml with a namespace": (f'<ns:apiKey type="x">{LOWER}</ns:apiKey>', LOWER),
    "xml, cdata": (f"<token><![CDATA[{WORD}]]></token>", WORD),
    "xml, an attribute": (f'<db user="me" password="{LOWER}"/>', LOWER),
    "xml, name and value": (f'<add key="ClientSecret" value="{LOWER}" />', LOWER),
    "xml, a property": (f'<property name="hibernate.connection.password">{LOWER}</property>', LOWER),
    "xml in html": (f"&lt;password&gt;{LOWER}&lt;/password&gt;", LOWER),
    "plist": (f"<key>apiToken</key>\n<string>{LOWER}</string>", LOWER),
    # Other files of settings and code.
    "toml over lines": (f'password = """\n{LOWER}"""', LOWER),
    "properties": (f"spring.datasource.password={LOWER}", LOWER),
    "rails": (f"SECRET_KEY_BASE={LOWER}", LOWER),
    "a name with an end": (f"API_KEY_PROD={LOWER}", LOWER),
    "a passphrase with blanks": (f"passphrase: {PHRASE}", "battery"),
    "ruby": (f":password => '{LOWER}'", LOWER),
    "php": (f"define('DB_PASSWORD', '{LOWER}');", LOWER),
    "java": (f'source.setPassword("{LOWER}");', LOWER),
    "go": (f'Config{{User: "me", Password: "{LOWER}"}}', LOWER),
    "powershell": (f'$env:HF_TOKEN = "{LOWER}"', LOWER),
    "dockerfile": (f"ENV HF_TOKEN {LOWER}\n", LOWER),
    "fish": (f"set -gx HF_TOKEN {LOWER}\n", LOWER),
    "git config": (f"git config --global http.password {LOWER}", LOWER),
    "sql": (f"CREATE USER me IDENTIFIED BY '{LOWER}'", LOWER),
    "sql, postgres": (f"ALTER ROLE me WITH PASSWORD '{LOWER}'", LOWER),
    "markdown, a table": (f"| HF_TOKEN | `{LOWER}` |", LOWER),
    "ini": (f"[smtp]\npass = {LOWER}\n", LOWER),
    "yaml with an anchor": (f"token: &t {LOWER}", LOWER),
    "name and value, in short": (json.dumps({"k": "password", "v": LOWER}), LOWER),
    "redis.conf": (f"requirepass {LOWER}", LOWER),
    "yaml in JSON": (json.dumps(f"password: |\n  {LOWER}\nport: 1"), LOWER),
    "netrc in JSON": (json.dumps(f"machine a\n login b\n password {LOWER}"), LOWER),
    # Connections.
    "a url": (f"redis://:{LOWER}@cache:6379/0", LOWER),
    "a connection string": (f"Server=db;User Id=me;Password={LOWER};", LOWER),
    "a go dsn": (f"me:{LOWER}@tcp(db:3306)/x", LOWER),
    "without a scheme": (f"upstream me:{LOWER}@proxy.example.org:3128", LOWER),
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
    "curl, a user": (f"curl --user me:{LOWER} https://x", LOWER),
    "sshpass": (f"sshpass -p {LOWER} ssh me@box", LOWER),
    "mysql": (f"mysql -u root -p{LOWER} db", LOWER),
    "docker login": (f"docker login -u me -p {LOWER} ghcr.io", LOWER),
    "docker login from stdin": (f"echo {LOWER} | docker login --password-stdin", LOWER),
    "redis-cli": (f"redis-cli -h cache -a {LOWER} ping", LOWER),
    "openssl": (f"openssl rsa -in k.pem -passin pass:{LOWER}", LOWER),
    "java's option": (f"java -Djavax.net.ssl.keyStorePassword={LOWER} -jar a.jar", LOWER),
    "an option": (f"vllm serve m --api-key {LOWER} --port 8000", LOWER),
    "an option in JSON": (json.dumps(["--hf-token", LOWER]), LOWER),
    "keytool": (f"keytool -list -storepass {LOWER}", LOWER),
    "ssh-keygen": (f"ssh-keygen -t ed25519 -N {LOWER} -f key", LOWER),
    "kubectl": (f"kubectl create secret generic x --from-literal=password={LOWER}", LOWER),
    # Sentences.
    "a sentence": (f"the password is {WORD}, as agreed", WORD),
    "a sentence with a key": (f"connected with API key {WORD}", WORD),
    "a bearer in a sentence": (f"refused bearer {LOWER}", LOWER),
    "64 digits that are no hash's": (f"the key is invalid {VENDORS['vast.ai']} (401)", VENDORS["vast.ai"]),
    # Private keys.
    "pem": (f"-----BEGIN PRIVATE KEY-----\n{_PEM_BODY}\n-----END PRIVATE KEY-----\n", _PART),
    "pem, its end": (f"{_PEM_BODY}\n-----END RSA PRIVATE KEY-----\n", _PART),
    "pem, its beginning": (f"-----BEGIN EC PRIVATE KEY-----\n{_PEM_BODY}", _PART),
    "pem in JSON": (json.dumps({"pem": _FRAMED}), _PART),
    "pem, packed": (_packed(_FRAMED), _packed(_FRAMED)[200:260]),
    "pgp": (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{_PEM_BODY}\n-----END PGP PRIVATE KEY BLOCK-----\n", _PART),
    "der without a frame": ("key_der MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw" + _PEM_BODY.replace("\n", ""), _PART),
    "openssh without a frame": ("b3BlbnNzaC1rZXktdjEAAAAA" + _PEM_BODY.replace("\n", ""), _PART),
    "putty": (f"Public-Lines: 1\nAAAAB3\nPrivate-Lines: 19\n{_PEM_BODY}\nPrivate-MAC: 1", _PART),
    "jwk": (json.dumps({"kty": "EC", "crv": "P-256", "x": "a" * 43, "d": WORD + WORD}), WORD),
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
Undo = Callable[[str], str]


def undone(text: str) -> list[str]:
    """Return readings of a text in which a secret that is left would be found."""
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
