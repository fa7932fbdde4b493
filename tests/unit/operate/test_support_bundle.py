"""A support bundle of a home in which secrets were planted everywhere they could be: none of them is in it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from drafthouse.core.redact import known_secrets, redactor
from drafthouse.operate import support_facts
from drafthouse.operate.support_bundle import contents, write
from drafthouse.operate.support_facts import BYTES, LINES, gather, key_files, redactor_of, tail
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory

pytestmark = pytest.mark.processes

PROFILE = "cpu-smollm2-ngram"
API_KEY = "Ap1KeyOfTheBox/0123456789+abcdefghij="  # with all that URLs, JSON and base64 write otherwise
HF = "hf_" + "QrStUvWxYz" * 3
VAST, CONTAINER = "0a1b2c3d" * 8, "f9e8d7c6" * 8
PROXY, INDEX = "proxyPassw0rd", "index+Passw0rd"
PASSPHRASE = "correct horse battery staple"
CONTROLLER_KEY = "kept-key-of-a-rented-server-42"
PEM_BODY = [base64.b64encode(os.urandom(48)).decode() for _ in range(3)]
PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(PEM_BODY) + "\n-----END PRIVATE KEY-----\n"
ENVIRON = {
    "HF_TOKEN": HF,
    "DRAFTHOUSE_API_KEY": API_KEY,
    "VAST_API_KEY": VAST,
    "CONTAINER_API_KEY": CONTAINER,
    "https_proxy": f"http://me:{PROXY}@proxy.example:3128",
    "PIP_INDEX_URL": f"https://me:{quote(INDEX, safe='')}@index.example/simple",
}
SECRETS = [API_KEY, HF, VAST, CONTAINER, PROXY, INDEX, "horse battery", CONTROLLER_KEY, *PEM_BODY]


def every_form(secret: str) -> set[bytes]:
    """A secret as files have it: plain, in a URL, in JSON, in base64."""
    packed = base64.b64encode(secret.encode()).decode().rstrip("=")
    return {form.encode() for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], packed)}


LEAKY_LOG = "\n".join(
    [
        "loading the model",
        f"HF_TOKEN={HF}",
        f"GET https://me:{PROXY}@proxy.example/v1/models?api_key={quote(API_KEY, safe='')} 200",
        f'request headers: {{"Authorization": "Bearer {API_KEY}", "x-api-key": "{API_KEY}"}}',
        f"Authorization: Basic {base64.b64encode(f'user:{API_KEY}'.encode()).decode()}",
        f"vast key {VAST} and CONTAINER_API_KEY: {CONTAINER}",
        f"pip install --index-url https://me:{quote(INDEX, safe='')}@index.example/simple",
        f"database password: {PASSPHRASE}",
        PEM,
        json.dumps({"tls": PEM, "env": [f"HF_TOKEN={HF}"]}),
        "SpecDecoding metrics: Accepted: 120 tokens, Drafted: 300 tokens",
        "server is listening on 127.0.0.1:8000",
    ]
)


def put(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    put(home / "secrets/api_key", f"{API_KEY}\n", 0o600)
    put(home / "gateway/tls/key.pem", PEM, 0o600)
    put(home / "gateway/tls/certificate.pem", "-----BEGIN CERTIFICATE-----\nMIIBpublic\n-----END CERTIFICATE-----\n")
    for name in (
        "logs/speculative.log",
        "gateway/logs/gateway.log",
        "supervisor/supervisord.log",
        "watchdog/logs/watchdog.log",
        "monitoring/logs/prometheus.log",
    ):
        put(home / name, LEAKY_LOG)
    put(home / "served/history.jsonl", json.dumps({"at": 1, "event": "served", "why": f"key {API_KEY}"}) + "\n")
    put(home / "watchdog/journal.jsonl", json.dumps({"at": 1, "why": f"token={HF}"}) + "\n")
    put(home / "watchdog/state.json", json.dumps({"api_key": API_KEY}))
    bearer = f"authorization: {{credentials: {API_KEY}}}"
    put(home / "monitoring/prometheus.yml", f"scrape_configs:\n- job_name: engine\n  {bearer}\n")
    put(home / "monitoring/programs/prometheus/serve.sh", f"GF_SECURITY_ADMIN_PASSWORD='{API_KEY}' exec prometheus\n")
    put(home / "monitoring/grafana/datasources/drafthouse.yml", f"secureJsonData:\n  password: {PASSPHRASE}\n")
    put(home / "monitoring/data/wal/00000001", API_KEY)
    put(home / "run/speculative.ready.json", json.dumps({"ready_s": 3.5}))
    put(home / "serve/p/speculative/serve.sh", f"export VLLM_API_KEY='{API_KEY}'\nexec vllm serve --hf-token {HF}\n")
    put(home / "supervisor/supervisord.conf", f'environment = HF_TOKEN="{HF}",LANG="C"\ncommand = serve\n')
    put(home / "gateway/Caddyfile", f'@keyed vars Authorization "Bearer {API_KEY}"\n')
    # What must not be followed, and what is not asked for.
    (home / "logs/evil.log").symlink_to(home / "gateway/tls/key.pem")
    (home / "serve/p/baseline").mkdir()
    (home / "serve/p/baseline/passwd").symlink_to("/etc/passwd")
    put(home / "secrets/of-somebody.log", f"{API_KEY}\n")
    return home


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "root/etc/os-release", "ID=debian\n")
    put(tmp_path / "root/etc/docker/daemon.json", json.dumps({"proxies": {"http-proxy": ENVIRON["https_proxy"]}}))
    return tmp_path / "root"


@pytest.fixture
def resolved() -> Any:
    return {**resolved_profile(PROFILE, site_of_inventory("local")), "box": {"hostname": "box", "note": f"key {VAST}"}}


def test_the_hubs_token_is_known_wherever_its_login_left_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "elsewhere"))
    put(tmp_path / "elsewhere", "of-no-known-shape-1234\n")
    assert known_secrets({}, key_files(user=tmp_path)) == {"of-no-known-shape-1234"}


def unpacked(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in tar.getmembers()
        }


@pytest.fixture
def bundle(home: Path, root: Path, resolved: Any, tmp_path: Path) -> Path:
    of_box = gather(home, home / "engines/e", root, ENVIRON)
    # Before it leaves the box nothing that the box can know is in it.
    text = json.dumps(of_box).encode()
    assert [secret for secret in SECRETS for form in every_form(secret) if form in text] == []
    reports = tmp_path / "reports"
    report = {"profile": PROFILE, "note": f"asked with Bearer {CONTROLLER_KEY}", "answer": f"my token is {HF}"}
    put(reports / PROFILE / "20261121-111600-box" / "report.json", json.dumps(report))
    # Newer, and of a host whose name ends alike.
    put(reports / PROFILE / "20261122-111600-my-box" / "report.json", json.dumps({"host": "my-box"}))
    checks = [{"name": "API key", "status": "fail", "found": f"401 to {CONTROLLER_KEY}", "needed": "x", "do": "y"}]
    keys = put(tmp_path / "state/keys/p", f"{CONTROLLER_KEY}\n", 0o600)
    redact = redactor(known_secrets(ENVIRON, [keys, *key_files(user=tmp_path)]))
    return write(tmp_path / "support", "box", contents(resolved, "box", checks, of_box, reports), redact, 1_800_000_000)


def test_a_secret_of_the_first_process_is_known_beside_ours_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = HF[::-1]
    monkeypatch.setattr(support_facts, "first_environment", lambda: {"SOME_TOKEN": theirs})
    text = redactor_of(tmp_path, {"SOME_TOKEN": HF})(f"a word {theirs} and {HF}")
    assert theirs not in text and HF not in text


def test_no_planted_secret_is_in_the_bundle(bundle: Path) -> None:
    raw = gzip.decompress(bundle.read_bytes())
    assert [secret for secret in SECRETS for form in every_form(secret) if form in raw] == []


def test_the_bundle_has_what_a_helper_needs(bundle: Path, resolved: Any) -> None:
    found = unpacked(bundle)
    for name in (
        "plan.txt", "resolved.json", "doctor.json", "report.json", "controller.txt", "rendered/baseline/serve.sh",
        "rendered/speculative/serve.sh", "box/logs/speculative.log", "box/gateway/logs/gateway.log",
        "box/supervisor/supervisord.log", "box/watchdog/logs/watchdog.log", "box/served/history.jsonl",
        "box/watchdog/journal.jsonl", "box/watchdog/state.json", "box/serve/p/speculative/serve.sh",
        "box/gateway/Caddyfile", "box/supervisor/supervisord.conf", "box/gateway/tls/certificate.pem",
        "box/run/speculative.ready.json", "box/monitoring/logs/prometheus.log", "box/monitoring/prometheus.yml",
        "box/monitoring/programs/prometheus/serve.sh", "box/monitoring/grafana/datasources/drafthouse.yml",
        "box/versions.txt", "box/system/etc/os-release", "box/system/etc/docker/daemon.json",
    ):  # fmt: skip
        assert found.get(name), name
    log = found["box/logs/speculative.log"]
    assert "SpecDecoding metrics: Accepted: 120 tokens, Drafted: 300 tokens" in log
    assert "server is listening on 127.0.0.1:8000" in log
    assert "MIIBpublic" in found["box/gateway/tls/certificate.pem"]
    assert found["rendered/speculative/serve.sh"] == resolved["arms"]["speculative"]["files"][0]["content"]
    assert json.loads(found["doctor.json"])["checks"][0]["status"] == "fail"
    assert "my-box" not in found["report.json"]
    assert "job_name: engine" in found["box/monitoring/prometheus.yml"]
    assert not [name for name in found if name.startswith("box/monitoring/data")]
    for name in ("resolved.json", "report.json", "box/watchdog/state.json", "box/run/speculative.ready.json"):
        json.loads(found[name])


def test_neither_keys_nor_what_links_lead_to_is_taken(bundle: Path) -> None:
    names = set(unpacked(bundle))
    assert not {name for name in names if "secrets/" in name or "key.pem" in name or "evil" in name or "passwd" in name}


def test_only_its_owner_may_read_it(bundle: Path) -> None:
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    assert stat.S_IMODE(bundle.parent.stat().st_mode) == 0o700
    with tarfile.open(bundle) as tar:
        assert {member.mode for member in tar.getmembers()} == {0o600}


def test_a_logs_end_has_whole_lines_alone(tmp_path: Path) -> None:
    # The cut goes through the middle of a secret: what is left of it would have no shape any more.
    body = f"{'y' * 99}\n" * (BYTES // 100 + 1)
    log = put(tmp_path / "a.log", f"{HF}\n{body[16 - BYTES :]}")
    whole = tail(log, lines=BYTES)
    assert set(whole) == {"y", "\n"}
    assert len(whole) == BYTES - 16
    assert tail(log).splitlines() == ["y" * 99] * LINES
    assert tail(put(tmp_path / "b.log", "one\ntwo\n"), lines=1) == "two\n"
    assert tail(tmp_path / "gone.log") == ""
