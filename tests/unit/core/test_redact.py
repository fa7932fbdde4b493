"""No secret survives: shapes of unknown secrets, forms of a known one, attacks on its time; and what must stay."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from drafthouse.core.redact import GONE, is_secret_name, known_secrets, redactor
from drafthouse.core.secret_forms import Forms
from drafthouse.core.secret_shapes import TOKENS
from tests.support.pace import in_cpu_time
from tests.support.rendered import PROFILES, rendered
from tests.support.secret_corpus import FORMS, KNOWN, LEFT, PLACES, VENDORS, undone

REDACT = redactor()
MODEL = "2026-11-23 07:00:00 INFO loaded Qwen/Qwen3-32B-FP8 revision 9216db5781bf21249d130ec9da846c4624c16137\n"


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(VENDORS) + len(PLACES) >= 17 + 55
    assert len(FORMS) >= 29 + 30


@pytest.mark.parametrize("name", VENDORS)
@pytest.mark.parametrize("around", ["using {} here", '{{"x": "{}"}}', "a\\n{}\\n", "({})", "x={},", "<b>{}</b>"])
def test_a_vendors_token_goes(name: str, around: str) -> None:
    token = VENDORS[name]
    said = REDACT(around.format(token))
    assert token not in said
    assert GONE in said
    assert REDACT(said) == said


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("around", ["{}", MODEL + "{}", "{}\n" + MODEL])
def test_a_secret_in_its_place_goes(name: str, around: str) -> None:
    text, secret = PLACES[name]
    said = REDACT(around.format(text))
    assert secret not in said
    assert GONE in said
    assert REDACT(said) == said
    assert MODEL in said or MODEL not in around or "BEGIN" in text or "PRIVATE KEY" in text


@pytest.mark.parametrize("name", FORMS)
def test_a_known_secret_goes_in_each_form(name: str) -> None:
    """By its forms alone: what has a shape goes anyway."""
    said = Forms([KNOWN]).without(f"before {FORMS[name]} behind", GONE)
    assert GONE in said
    # A letter beside it may be taken for one of its own.
    assert said.startswith("befor")
    assert said.endswith("behind")
    pieces = [KNOWN[at : at + LEFT + 1] for at in range(len(KNOWN) - LEFT)]
    assert not [piece for piece in pieces for text in undone(said) if piece in text]
    assert Forms([KNOWN]).without(said, GONE) == said


def test_a_key_file_goes_line_by_line_and_its_certificate_stays() -> None:
    draw = random.Random(7)
    key, certificate = (
        f"-----BEGIN {kind}-----\n{base64.encodebytes(draw.randbytes(800)).decode()}-----END {kind}-----\n"
        for kind in ("PRIVATE KEY", "CERTIFICATE")
    )
    forms = Forms(line for line in key.splitlines() if "-----" not in line)
    log = "".join(f"Nov 23 07:00:00 box caddy[7]: {line}\n" for line in key.splitlines())
    said = forms.without(log + certificate, GONE)
    assert not [line for line in key.splitlines()[1:-2] if line[:20] in said]
    assert said.endswith(certificate)


@pytest.mark.parametrize("seed", range(60))
def test_a_drawn_secret_goes_in_drawn_forms(seed: int) -> None:
    """Two encodings one in the other, wrapped at any width, behind any text."""
    draw = random.Random(seed)
    secret = "".join(draw.choices(string.ascii_letters + string.digits + "_-", k=draw.randint(20, 64)))
    before = "".join(draw.choices(string.ascii_lowercase, k=draw.randint(0, 7)))

    def packed(text: str) -> str:
        return base64.b64encode(f"{before}{text}".encode()).decode()

    ways: list[Callable[[str], str]] = [
        packed,
        lambda text: urllib.parse.quote(text, safe=""),
        json.dumps,
        lambda text: text.encode().hex(),
    ]
    # Hexadecimal digits twice are in nobody's log.
    first, second = draw.choice(ways[:3]), draw.choice(ways)
    text = second(first(secret))
    width = draw.randint(5, 80)
    text = draw.choice(["\n", "\n  ", "\\\n", '"\n"']).join(text[at : at + width] for at in range(0, len(text), width))
    said = Forms([secret]).without(f"log: {text} end", GONE)
    assert GONE in said
    # What is left is shorter than a piece: of base64's ends, and of quotes.
    words = re.findall(r"[A-Za-z0-9+/=]+", said.replace("log:", "").replace("end", ""))
    assert len("".join(words)) < 3 * len(before) + 40, said


# --- what must stay ---------------------------------------------------------------------------------------------

SHA = "6a1d5f3c9e8b7a6d5f4e3c2b1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a2f"
BENIGN = f"""\
clone v0.3.1-12-g55dac0f1a2b3-dirty, commit 55dac0f1a2b3c4d5e6f708192a3b4c5d6e7f8091
{SHA}  model-00001-of-00002.safetensors
{SHA} *SmolLM2-135M-Instruct.F32.gguf
verified model-00001-of-00002.safetensors: sha256 of 4,932,148,992 bytes is {SHA}
image docker.io/vllm/vllm-openai:v0.32.0@sha256:{SHA}
"Id": "{SHA}", "Image": "sha256:{SHA}", "NetworkID": "{SHA}"
/var/lib/docker/containers/{SHA}/{SHA}-json.log
/models/.cache/blobs/{SHA}.part of org/model
INFO 11-23 07:00:00 [config.py:1472] model='RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic'
tokenizer='meta-llama/Llama-3.2', max_model_len=8192
INFO spec decode: method=eagle3 num_speculative_tokens=5 draft model yuhuili/EAGLE3-LLaMA3.1-Instruct-8B
SpecDecoding metrics: Mean acceptance length: 2.81, Accepted throughput: 81.30 tokens/s, Drafted: 224.9 tokens/s
Per-position acceptance rate: 0.812, 0.604, 0.397, Avg Draft acceptance rate: 36.2%
Output token throughput (tok/s):         1234.56
Time to First Token (ms): 41.20  Inter-token Latency (ms): 8.11  Time per Output Token (ms): 8.02
median token latency: 8.1ms, p99 per token: 12.5 ms, token rate=812.5, TPOT per output token: 8.02
eos_token: "<|im_end|>", bos_token_id: 151643, pad_token: '<|endoftext|>', max_tokens: 4096
llama_model_loader: - kv  12: tokenizer.ggml.eos_token_id u32 = 2
print_info: EOS token = 2 '<|im_end|>', n_vocab = 49152, key value cache usage 0.43, K (f16): 45.00 MiB
slot 0: n_past = 4096, draft acceptance rate = 0.61538 (  16 accepted /    26 generated)
NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python3, GPU has fallen off the bus
GPU 0: NVIDIA H100 NVL (UUID: GPU-5d0c1b2a-1b2c-3d4e-5f60-718293a4b5c6)
NVIDIA RTX PRO 6000 Blackwell, driver 580.65.06, CUDA 13.0, bus 00000000:41:00.0, MAC 00:11:22:33:44:55
request cmpl-0f1e2d3c4b5a69788796a5b4c3d2e1f0 done, uuid 550e8400-e29b-41d4-a716-446655440000
profile rtx6000-qwen-eagle3, arm speculative, result 3f2a9c1b7d6e5f40, verdict: does not pay (median 1.021)
found: port 8000 is taken (pid 7: python3 -m http.server 8000); needed: a free one; do: set drafthouse_port
GET http://127.0.0.1:8000/v1/models 401; the key of /opt/drafthouse/secrets/api_key is sent with each request
TensorRT-LLM has no authentication: keep it on loopback, with a gateway in front
  fail      API key       /opt/drafthouse/secrets/api_key: mode 0644; needed: 0600: only its owner may read the key
pip install pyjwt==2.10.1 tiktoken==0.14.0 --hash=sha256:{SHA}
torch-2.9.1+cu130 flashinfer_python-0.5.2 hf_transfer-0.1.9 hf_xet-1.2.0 drafthouse.core.hf_snapshot
-rw------- 1 root root 41 Nov 23 07:00 secrets/api_key
Mounts: /opt/drafthouse/secrets/api_key:/opt/drafthouse/secrets/api_key:ro
User: 1000:1000  Ports: 127.0.0.1:8000->8000/tcp
vllm:spec_decode_num_accepted_tokens_total{{model_name="qwen3-32b",position="0"}} 8123.0
vllm:request_success_total{{finished_reason="stop"}} 128.0  process_start_time_seconds 1.76388e+09
"max_num_batched_tokens": 8192, "kv_cache_dtype": "auto", "bytes_per_token": 539845664, "seed": 1234567890
CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 94.97 GiB of which 1.06 GiB is free.
systemd[1]: drafthouse-watchdog.service: Main process exited, code=exited, status=1/FAILURE
  "key": "7761a01ea55a8bfa", "profile": "cpu-smollm2-ngram", "sha256": "{SHA}"
Energy per token and money per token: energy: no NVIDIA driver's library (libnvidia-ml.so.1); no nvidia-smi
# Caddyfile d7112edc2f4f480e, certificate {SHA}, key of 1795419583.178106
TASK [weights : Fetch or make the weights] *** changed: [vast-8500001] => 0:01:12 elapsed, 512 MiB/s
"""


@pytest.mark.parametrize("line", BENIGN.splitlines())
def test_what_a_supporter_reads_stays(line: str) -> None:
    assert redactor([KNOWN, "hf_" + "AbCdEfGhIj" * 3])(line) == line


def test_what_we_render_stays() -> None:
    """Plans, serve scripts, engine configurations, containers of all profiles."""
    redact = redactor([KNOWN])
    files = {f"{name}: {path}": text for name in PROFILES for path, text in rendered(name).items()}
    assert len(files) > 100
    changed = [path for path, text in files.items() if redact(text) != text]
    assert changed == []


# --- time, and the tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("megabytes", [1, pytest.param(5, marks=pytest.mark.soak)])
def test_a_log_takes_seconds(megabytes: int) -> None:
    text = (MODEL + BENIGN) * (megabytes * 1_000_000 // len(MODEL + BENIGN) + 1)
    begun = time.process_time()
    said = redactor(known_secrets({"HF_TOKEN": VENDORS["hugging face"], "API_KEY": KNOWN}))(text)
    seconds = time.process_time() - begun
    assert said == text
    assert in_cpu_time(seconds, 8 * megabytes), f"{seconds:.1f} s"


ATTACKS = (
    "A", "word_", "a-", "key ", "key:", "--key ", "<key ", "<a key=", "| key ", "name: key ", "password ", "login x ",
    " -u a -p 1:1", "a:", "a@", "\\", "%25", "[[[", '{"key": [',
    "'", '"', 'authorization: x ="', "\n", " \n", "key:\n ",
    "key: |\n", "MIIEAIBAAKC", "-----BEGIN PRIVATE KEY", "<b",
    "machine x ", "echo x | ", "mysql -u ", "kind: secret\ndata:\n",
    "LS0tLS1CRUdJTi", "value: x name: ", "aGVsbG8=", "0", "-", "/", ":", "eyJ", "token.", "-key\n", "<key>", "key\\",
    "=key=", "\t", "S3cr3t", "\x1b[0m", "&#x", "\\u00",
)  # fmt: skip


@pytest.mark.parametrize("unit", ATTACKS)
def test_no_text_takes_long(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    begun = time.process_time()
    redactor([KNOWN])(text)
    assert in_cpu_time(time.process_time() - begun, 5)


@pytest.mark.parametrize(
    "prefix", ["hf_", "sk-", "nvapi-", "gsk_", "r8_", "rpa_", "ghp_", "github_pat_", "glpat-", "xoxb-", "AKIA", "AIza"]
)
def test_no_prefix_of_a_token_takes_long(prefix: str) -> None:
    begun = time.process_time()
    REDACT(f"{prefix}=" * (20_000 // len(prefix)) + prefix * 5_000)
    assert in_cpu_time(time.process_time() - begun, 2)


def test_every_kind_of_token_is_in_the_corpus() -> None:
    for vendor, pattern in TOKENS.items():
        assert [token for token in VENDORS.values() if re.fullmatch(pattern, token)], vendor


# --- what else looks like a secret, and what does not ---------------------------------------------


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
        (f"environment = DRAFTHOUSE_SCRIPT=\"abc\",VLLM_API_KEY=\"{PLAIN}\"", PLAIN),
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
        (f"Set-Cookie: a={PLAIN}", PLAIN),
        (f"index-url = https://user:{PLAIN}@pypi.example.org/simple", PLAIN),
        (f"https://{PLAIN}@pypi.example.org/simple", PLAIN),
        (f"http_proxy=http://me:p@ss{PLAIN}@proxy:3128", PLAIN),
        (f"GET /v1/x?token={PLAIN}&page=2", PLAIN),
        (f"https://s3/x?X-Amz-Credential={PLAIN}&X-Amz-Signature={PLAIN}", PLAIN),
        (f"VAST_API_KEY={VAST}", VAST),
        # A log's end that begins in the middle of a key, also behind the names that logs put before each line.
        ("\n".join(PEM.splitlines()[2:]), BODY.splitlines()[1]),
        ("".join(f"gateway: {line}\n" for line in PEM.splitlines()[2:]), BODY.splitlines()[1]),
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
        # Behind what JSON and URLs write for a line's end and a sign.
        (json.dumps(f"line\n{HF}"), HF),
        (json.dumps(f"sent\nBearer {PLAIN}"), PLAIN),
        (f"next=https%3A%2F%2Fexample.org%3Ftoken%3D{HF}", HF),
        (f"next=https%3A%2F%2Fexample.org%3Fapi_key%3D{PLAIN}", PLAIN),
        (f"index: https:\\/\\/me:{PLAIN}@example.org\\/simple", PLAIN),
        (f"DB_PASS={PLAIN} HF_TOKEN_2={PLAIN}", PLAIN),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_goes(text: str, gone: str) -> None:
    said = redactor()(text)
    assert gone not in said
    assert GONE in said
    # Once more changes nothing: it is done on the box and on the controller.
    assert redactor()(said) == said


def test_what_only_reads_alike_stays() -> None:
    text = "first line\nsecond line\n\tthird \\n 100% &amp; C:\\new\n"
    assert redactor([SECRET, "line and more"])(text) == text
    # A key that is a word of our own.
    assert redactor(known_secrets({"A_KEY": "secret"}))("a (secret) secret") == "a (secret) secret"


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 48, num_speculative_tokens: 5",
        "--api-key-file /opt/drafthouse/secrets/api_key --port 8000",
        'key_file: /opt/drafthouse/secrets/api_key\n"has_key": true, "key": null',
        "token counts: 48 tokens, basic sampling, token acceptance 0.62",
        "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQ\n-----END CERTIFICATE-----",
        "env.DRAFTHOUSE_GATEWAY_KEY is set; export VLLM_API_KEY=$KEY",
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
