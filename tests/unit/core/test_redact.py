"""No secret survives, whatever it looks like and wherever it stands; what a helper needs to read does."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
from pathlib import Path

import pytest

from drafthouse.core.redact import GONE, is_secret_name, known_secrets, redactor
from tests.support.pace import in_cpu_time

SECRET = "S3cr3t+Value/with=signs&more"
PLAIN = "plainwordsecret"
BODY = "\n".join(base64.b64encode(bytes(range(at, at + 48))).decode() for at in range(0, 144, 48))
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{BODY}\n-----END EC PRIVATE KEY-----\n"
VAST = "9f" * 32
BASIC = base64.b64encode(b"user:pw12345").decode()
HF = "hf_" + "AbCdEfGhIj" * 3


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        (f"HF_TOKEN={PLAIN}", PLAIN),
        (f"export DRAFTHOUSE_API_KEY='{SECRET}'", SECRET),
        (f'DRAFTHOUSE_API_KEY="{SECRET}"', SECRET),
        (f'{{"api_key": "{SECRET}"}}', SECRET),
        (f'{{"apiKey":"{PLAIN}"}}', PLAIN),
        (json.dumps(json.dumps({"api_key": SECRET})), SECRET),
        (json.dumps({"password": 'with "quotes" in it'}), "quotes"),
        (f"api_key: {PLAIN}", PLAIN),
        ("password: correct horse battery staple", "battery"),
        (f"environment = DRAFTHOUSE_SCRIPT=\"abc\",VLLM_API_KEY=\"{PLAIN}\"", PLAIN),
        (f"--api-key {PLAIN} --port 8000", PLAIN),
        (f"--api-key={PLAIN}", PLAIN),
        (f'["--api-key","{PLAIN}","--port"]', PLAIN),
        (f"['--hf-token', '{PLAIN}']", PLAIN),
        (f"PATH=/bin\0HF_TOKEN={PLAIN}\0HOME=/root", PLAIN),
        (f"Authorization: Bearer {PLAIN}", PLAIN),
        (f"authorization: Basic {BASIC}", BASIC),
        (f"sent with bearer {PLAIN}", PLAIN),
        ("Authorization: Bearer ab1", "ab1"),
        (f"key=${{API_KEY:-{PLAIN}}}", PLAIN),
        (json.dumps(f'echo "${{API_KEY:-{PLAIN}}}"'), PLAIN),
        (f"Cookie: session={PLAIN}; other={PLAIN}", PLAIN),
        (f"Set-Cookie: a={PLAIN}", PLAIN),
        (f"index-url = https://user:{PLAIN}@pypi.example.org/simple", PLAIN),
        (f"https://{PLAIN}@pypi.example.org/simple", PLAIN),
        (f"http_proxy=http://me:p@ss{PLAIN}@proxy:3128", PLAIN),
        (f"GET /v1/x?token={PLAIN}&page=2", PLAIN),
        (f"https://s3/x?X-Amz-Credential={PLAIN}&X-Amz-Signature={PLAIN}", PLAIN),
        (f"downloading with {HF}", HF),
        (f"key {VAST} was refused", VAST),
        (f"VAST_API_KEY={VAST}", VAST),
        (PEM, BODY.splitlines()[1]),
        (PEM.replace("\n", "\\n"), BODY.splitlines()[1]),
        (PEM.partition("-----END")[0], BODY.splitlines()[1]),
        # A log's end that begins in the middle of a key, also behind the names that logs put before each line.
        ("\n".join(PEM.splitlines()[2:]), BODY.splitlines()[1]),
        ("".join(f"gateway: {line}\n" for line in PEM.splitlines()[2:]), BODY.splitlines()[1]),
        ("sk-proj-" + "a1B2" * 6, "a1B2a1B2"),
        ("ghp_" + "a1B2" * 9, "a1B2a1B2"),
        ("nvapi-" + "a1B2" * 9, "a1B2a1B2"),
        ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        (f'{{"auths": {{"ghcr.io": {{"auth": "{PLAIN}"}}}}}}', PLAIN),
        # As vLLM prints its arguments, Caddy its requests' headers, and Python's clients theirs.
        (f"non-default args: {{'api_key': ['{PLAIN}', 'other'], 'port': 8000}}", PLAIN),
        (f'{{"headers":{{"X-Api-Key":["{PLAIN}"],"Accept":["*/*"]}}}}', PLAIN),
        (json.dumps({"api_key": [PLAIN]}, indent=1), PLAIN),
        (json.dumps(json.dumps({"api_keys": [PLAIN]})), PLAIN),
        (f"headers=[(b'x-api-key', b'{PLAIN}'), (b'accept', b'*/*')]", PLAIN),
        (f"api_key=['{PLAIN}", PLAIN),
        # An argument behind its option, however it is written.
        (f"vllm\0serve\0--api-key\0{PLAIN}\0--port\08000\0", PLAIN),
        (f"vllm serve \\\n  --api-key \\\n    {PLAIN} \\\n  --port 8000", PLAIN),
        (f"args:\n  - --api-key\n  - {PLAIN}\n", PLAIN),
        (json.dumps(f"vllm serve \\\n--api-key {PLAIN}"), PLAIN),
        (f"curl -u me:{PLAIN} https://example.org", PLAIN),
        # Behind what JSON and URLs write for a line's end and a sign.
        (json.dumps(f"line\n{HF}"), HF),
        (json.dumps(f"sent\nBearer {PLAIN}"), PLAIN),
        (f"next=https%3A%2F%2Fexample.org%3Ftoken%3D{HF}", HF),
        (f"next=https%3A%2F%2Fexample.org%3Fapi_key%3D{PLAIN}", PLAIN),
        (f"index: https:\\/\\/me:{PLAIN}@example.org\\/simple", PLAIN),
        (f"DB_PASS={PLAIN} HF_TOKEN_2={PLAIN}", PLAIN),
        ("AIza" + "a1B2" * 9, "a1B2a1B2"),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_goes(text: str, gone: str) -> None:
    said = redactor()(text)
    assert gone not in said
    assert GONE in said
    # Once more changes nothing: it is done on the box and on the controller.
    assert redactor()(said) == said


@pytest.mark.parametrize(
    "form",
    [
        SECRET, urllib.parse.quote(SECRET, safe=""), urllib.parse.quote_plus(SECRET), json.dumps(SECRET)[1:-1],
        base64.b64encode(SECRET.encode()).decode(), base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(), SECRET.replace("/", "\\/"),
    ],
)  # fmt: skip
def test_a_known_secret_goes_in_every_form(form: str) -> None:
    said = redactor([SECRET])(f"before {form} behind")
    assert form not in said
    assert said.startswith("before (secret)")
    assert said.endswith("behind")


def over_lines(text: str, letters: int, end: str = "\n") -> str:
    return end.join(text[at : at + letters] for at in range(0, len(text), letters))


@pytest.mark.parametrize(
    "form",
    [
        over_lines(SECRET, 10), over_lines(SECRET, 10, "\r\n    "), over_lines(SECRET, 10, "\\\n"),
        json.dumps(over_lines(SECRET, 10))[1:-1],
        base64.encodebytes(SECRET.encode() * 4).decode(), over_lines(base64.b64encode(SECRET.encode()).decode(), 16),
        urllib.parse.quote(SECRET, safe="").lower().replace("s3cr3t", "S3cr3t").replace("value", "Value"),
        urllib.parse.quote(SECRET), urllib.parse.quote(urllib.parse.quote(SECRET, safe=""), safe=""),
        SECRET.replace("&", "\\u0026").replace("+", "\\u002B"), SECRET.replace("&", "&amp;").replace("+", "&#43;"),
        json.dumps(json.dumps(SECRET.replace("/", "\\/")))[1:-1], SECRET.encode().hex().upper(),
    ],
)  # fmt: skip
def test_a_known_secret_goes_however_it_is_escaped_and_split(form: str) -> None:
    said = redactor([SECRET])(f"before {form} behind")
    assert said.startswith("before ")
    assert said.endswith(" behind")
    assert GONE in said
    # Of its letters, as they read, no eight stand together.
    left = urllib.parse.unquote(urllib.parse.unquote(said)).replace("\n", "").replace("\\", "")
    assert not [at for at in range(len(SECRET) - 7) if SECRET[at : at + 8] in left]
    assert redactor([SECRET])(said) == said


def test_what_only_reads_alike_stays() -> None:
    text = "first line\nsecond line\n\tthird \\n 100% &amp; C:\\new\n"
    assert redactor([SECRET, "line and more"])(text) == text
    # A key that is a word of our own.
    assert redactor(known_secrets({"A_KEY": "secret"}))("a (secret) secret") == "a (secret) secret"


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:"])
def test_a_known_secret_goes_inside_a_longer_base64(before: str) -> None:
    text = base64.b64encode(f"{before}{SECRET}{SECRET}".encode()).decode()
    said = redactor([SECRET])(text)
    assert said.count(GONE) == 2
    # What is left of it on both sides: fewer than nine bytes.
    assert all(len(rest) < 12 for rest in said.split(GONE))


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 48, num_speculative_tokens: 5",
        "--api-key-file /opt/drafthouse/secrets/api_key --port 8000",
        'key_file: /opt/drafthouse/secrets/api_key\n"has_key": true, "key": null',
        "token counts: 48 tokens, basic sampling, token acceptance 0.62",
        f'"sha256": "{"ab" * 32}" image sha256:{"cd" * 32}',
        "vllm:spec_decode_num_draft_tokens_total{position=\"0\"} 300.0",
        "http://127.0.0.1:8000/v1/models 401",
        "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQ\n-----END CERTIFICATE-----",
        "env.DRAFTHOUSE_GATEWAY_KEY is set; export VLLM_API_KEY=$KEY",
        "found: port 8000 is taken (pid 7: python3 -m http.server)",
        '"bytes_per_token": 539845664, "kv_per_token": 23040',
        "[[ -z \"${DRAFTHOUSE_API_KEY:-}\" ]] || printf 'Authorization: Bearer %s\\n' \"${DRAFTHOUSE_API_KEY:-none}\"",
        "DRAFTHOUSE_API_KEY=... ./smoke.sh; /opt/drafthouse/secrets/api_key:/opt/drafthouse/secrets/api_key:ro",
        "author: Drafthouse, tokenizer: Qwen/Qwen3-32B, keyword: x",
    ],
)  # fmt: skip
def test_what_is_needed_stays(text: str) -> None:
    assert redactor(["another-secret"])(text) == text


def test_json_stays_json() -> None:
    data = {
        "api_key": SECRET,
        "token": 12345678,
        "list": ["--api-key", "x1y2z3"],
        "max_tokens": 5,
        "nested": {"auth": "a b"},
    }
    said = json.loads(redactor([SECRET])(json.dumps(data)))
    assert said["api_key"] == said["token"] == said["nested"]["auth"] == GONE
    assert said["list"][1] == GONE
    assert said["max_tokens"] == 5
    # Shell and more JSON inside it: what escapes a quote is not taken with the value.
    for text in ('[ -z "${API_KEY:-}" ]; api_key=abcdef"', json.dumps(data), "api_key=abcdef\\", f"Bearer {SECRET}"):
        json.loads(redactor([SECRET])(json.dumps({"text": text, "again": json.dumps({"text": text})})))


def test_names_of_secrets() -> None:
    for name in (
        "HF_TOKEN",
        "VAST_API_KEY",
        "CONTAINER_API_KEY",
        "apiKey",
        "password",
        "pip.auth",
        "x-api-key",
        "DB_PASSWD",
        "DB_PASS",
        "API_KEYS",
        "HF_TOKEN_2",
    ):
        assert is_secret_name(name), name
    for name in ("max_tokens", "KEY_FILE", "SSH_AUTH_SOCK", "TOKENIZERS_PARALLELISM", "keyboard", "secrets_dir"):
        assert not is_secret_name(name), name


def test_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "api_key").write_text(f"{SECRET}\n")
    (tmp_path / "key.pem").write_text(PEM)
    environ = {
        # A shell's own word for a folder.
        "PWD": "/opt/drafthouse", "TLS_KEY": "-----BEGIN PRIVATE KEY-----\nfirstline\nsecondline\n",
        "PIP_EXTRA_INDEX_URL": "https://a:first123@one/simple https://b:second12@two/simple",
        "HF_TOKEN": "tokenvalue1", "LANG": "C.UTF-8", "SOME_KEY": "true", "A_TOKEN": "abc",
        "PIP_INDEX_URL": "https://u:pw%2B1234@index/simple",
    }  # fmt: skip
    found = known_secrets(environ, [tmp_path / "api_key", tmp_path / "key.pem", tmp_path / "gone"])
    assert found == {
        "tokenvalue1", SECRET, "pw%2B1234", "pw+1234", *BODY.splitlines(),
        "firstline", "secondline", "first123", "second12",
    }  # fmt: skip


def test_a_large_log_takes_no_time() -> None:
    line = (
        "2026-11-22 10:00:00 INFO slot 0: draft tokens accepted 12 of 16, key value cache usage: 0.43, n_past = 4096\n"
    )
    hexes = "".join(f"{number:064x} layer\n" for number in range(4000))
    text = line * 5_000 + hexes + "A" * 100_000 + "\n" + "word_" * 50_000
    begun = time.process_time()
    said = redactor([SECRET])(text)
    assert in_cpu_time(time.process_time() - begun, 10)
    assert said.count("draft tokens accepted 12 of 16") == 5_000
