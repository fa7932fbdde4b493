"""The redactor against shapes of unknown secrets, forms of a known one, attacks on its time, and what must stay."""

from __future__ import annotations

import base64
import json
import random
import re
import string
import time
import urllib.parse
from collections.abc import Callable

import pytest

from drafthouse.core.gitleaks_rules import RULES
from drafthouse.core.redact import GONE, known_secrets, redactor
from drafthouse.core.secret_forms import Forms
from drafthouse.core.vendor_tokens import OURS, compiled
from drafthouse.profiles.workspace import ROOT
from tests.support.pace import in_cpu_time
from tests.support.rendered import PROFILES, rendered
from tests.support.secret_corpus import FORMS, KNOWN, LEFT, PLACES, VENDORS, undone

REDACT = redactor()
MODEL = "2026-11-23 07:00:00 INFO loaded Qwen/Qwen3-32B-FP8 revision 9216db5781bf21249d130ec9da846c4624c16137\n"


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(VENDORS) + len(PLACES) >= 98 + 60
    assert len(FORMS) >= 29 + 30


@pytest.mark.parametrize("name", VENDORS)
@pytest.mark.parametrize("around", ["using {} here", '{{"x": "{}"}}', "a\\n{}\\n", "({})", "x={},", "<b>{}</b>"])
def test_a_vendors_token_goes(name: str, around: str) -> None:
    token = VENDORS[name]
    said = REDACT(around.format(token))
    # Of a hook's address the part that is secret.
    assert re.split(r"services/|webhooks/", token)[-1] not in said
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
    # A key without its frame may go on in the next line.
    assert MODEL in said or MODEL not in around or "BEGIN" in text or "PRIVATE KEY" in text or "without a frame" in name


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


# --- time, and the rules ---------------------------------------------------------------------------------------


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


def test_no_rule_takes_long_on_its_own_words() -> None:
    for _, _, words, _ in (*OURS, *RULES):
        for word in words.split():
            text = f"{word}=" * (4000 // len(word))
            begun = time.process_time()
            REDACT(text)
            assert in_cpu_time(time.process_time() - begun, 2), word


@pytest.mark.parametrize("rule", [*OURS, *RULES], ids=lambda rule: str(rule[0]))
def test_every_rule_compiles_and_names_its_words(rule: tuple[str, float, str, str]) -> None:
    pattern, _ = compiled(rule[3])
    assert not pattern.match("")
    assert rule[2] == rule[2].lower()
    assert rule[2].split()


def test_where_the_rules_come_from_stands_beside_them() -> None:
    text = (ROOT / "src/drafthouse/core/gitleaks_rules.py").read_text()
    for word in (
        "https://github.com/gitleaks/gitleaks",
        "v8.30.1",
        "commit ",
        "MIT",
        "Copyright (c) 2019 Zachary Rice",
    ):
        assert word in text
    assert len(RULES) > 200


def test_what_differs_between_go_and_python_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from gitleaks_rules import converted

    # Flags hold to the end of their group, over its alternatives; in Python they must stand before what they are for.
    assert converted(r"\b(p8e-(?i)[a-z]{3}|x)y") == r"{START}(p8e-(?i:[a-z]{3})|(?i:x))y"
    assert converted(r"(?i)ab|c") == "(?i:ab)|(?i:c)"
    assert converted(r"a[[:alnum:]_]$") == r"a[A-Za-z0-9_]\Z"
    assert converted(r"a\z[$]\$") == r"a\Z[$]\$"
    assert (
        converted(r"""(?i)[\w.-]{0,50}?(?:x(y|z))(?:[ \t\w.-]{0,20})[\s'"]{0,3}(w)""", 2)
        == "(?i:(?:x(?:y|z)){TAIL}(w))"
    )
