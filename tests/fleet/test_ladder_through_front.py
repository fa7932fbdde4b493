"""A load sweep through a front: two engines behind a real Caddy with a key and its own certificate, no counters."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from drafthouse.addons.gateway_door import certificate_file
from drafthouse.profiles.workspace import ROOT
from tests.fakes.crossover_server import crossover_server
from tests.support.gateway import KEY, make_certificate, real_caddy
from tests.support.ports import free_port

pytestmark = pytest.mark.alone

CADDYFILE = """{{
	admin off
	auto_https off
	storage file_system {home}/caddy
}}
https://127.0.0.1:{port} {{
	tls {folder}/certificate.pem {folder}/key.pem
	@nobody not header Authorization "Bearer {key}"
	respond @nobody 401
	handle /v1/* {{
		reverse_proxy {upstreams} {{
			lb_policy round_robin
		}}
	}}
	respond 404
}}
"""


@pytest.fixture
def front(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and the certificate of a front before two engines."""
    make_certificate(tmp_path)
    certificate, port, file = Path(certificate_file(str(tmp_path))), free_port(), tmp_path / "Caddyfile"
    with ExitStack() as stack:
        engines = [
            stack.enter_context(crossover_server(fixed_ms=20.0, each_ms=0.2, ttft_ms=20, tokens=16)) for _ in range(2)
        ]
        upstreams = " ".join(engine.base_url.removeprefix("http://") for engine in engines)
        file.write_text(
            CADDYFILE.format(home=tmp_path, port=port, folder=certificate.parent, key=KEY, upstreams=upstreams)
        )
        log = stack.enter_context((tmp_path / "caddy.log").open("wb"))
        words = [real_caddy(), "run", "--adapter", "caddyfile", "--config", str(file)]
        caddy = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while not listens(port):
                assert caddy.poll() is None, (tmp_path / "caddy.log").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield f"https://127.0.0.1:{port}", str(certificate)
        finally:
            caddy.terminate()
            caddy.wait(60)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def bench(url: str, ca: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "bench", "--base-url", url, "--model", "clock"]
    words += ["--ca", ca, "--kind", "chat", "--num-prompts", "8", *more]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "OPENAI_API_KEY": KEY}
    )


def test_a_front_without_counters_is_measured_as_any_server(front: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "fleet.json"
    done = bench(*front, "--ladder", "2,6", "--time", "2", "--result", str(out))
    assert done.returncode == 0, done.stderr
    steps = json.loads(out.read_text())["steps"]
    assert [(step["level"], step["status"], step["failed"]) for step in steps] == [(2, "ok", 0), (6, "ok", 0)]
    assert all(step["output_throughput"] > 0 for step in steps)
    # Nobody knows what was drafted: not 0.
    assert {step["spec_decode_acceptance_rate"] for step in steps} == {None}
    assert all("HTTP 404" in step["counters"]["after"]["error"] for step in steps)
    assert KEY not in out.read_text() + done.stdout + done.stderr


def test_one_level_through_a_front(front: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    done = bench(*front, "--max-concurrency", "4", "--result", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert (result["completed"], result["failed"]) == (8, 0)


def test_a_certificate_that_is_not_the_front_s(front: tuple[str, str], tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_certificate(other)
    refused = bench(front[0], certificate_file(str(other)), "--ladder", "1", "--time", "0.5")
    assert refused.returncode == 2
    assert "certificate verify failed" in refused.stdout + refused.stderr
