"""What somebody without a key can do to a real llama.cpp: through the real gateway nothing, past it fill its memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drafthouse.addons.gateway_ready import request_status
from drafthouse.operate.doctor.paths import ask_paths
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.exposure import NAMED, exposed, open_paths
from drafthouse.profiles.workspace import ROOT
from tests.support.engines import LlamaServer, engine_home, llama_server, packaged_weights
from tests.support.gateway import KEY, Gateway, real_caddy, settings_for, started

CONNECTIONS, EACH_MB = 20, 100
#: What the server may take more: its own work, and nothing of two thousand megabytes.
MORE_MB = 150
ENGINE = load_catalog(ROOT).engines["llamacpp"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("box")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[LlamaServer]:
    (home / "key").write_text(KEY)
    words = ("-m", str(packaged_weights("smollm2-135m-q4")), "-np", "1", "-c", "1024", "--metrics")
    with llama_server(engine_home("llamacpp"), *words, "--api-key-file", str(home / "key")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(home: Path, server: LlamaServer) -> Iterator[Gateway]:
    with started(settings_for(home / "h", f"127.0.0.1:{server.port}", real_caddy())) as running:
        yield running


def peak_mb(pid: int) -> float:
    """The most resident memory since the peak was last forgotten (proc(5): clear_refs)."""
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmHWM")]
    return int(line.split()[1]) / 1000


def forget_peak(pid: int) -> float:
    """Forget the peak; return what is resident now, in MB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_mb(pid)


def fill(connect: Callable[[], socket.socket], times: int, size_mb: int) -> None:
    """Send so many bodies to /health at once, all of them but for their last bytes: who takes them holds them all."""
    sent = threading.Barrier(times)

    def one() -> None:
        with connect() as connection:
            head = f"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: {size_mb * 1_000_000 + 10}\r\n\r\n"
            try:
                connection.sendall(head.encode())
                for _ in range(size_mb):
                    connection.sendall(b"a" * 1_000_000)
            except OSError:
                pass  # nobody takes it
            sent.wait(120)

    with ThreadPoolExecutor(times) as pool:
        for done in [pool.submit(one) for _ in range(times)]:
            done.result()


def test_twenty_connections_without_a_key_take_no_memory(
    gateway: Gateway, server: LlamaServer, figure: Callable[[str], None]
) -> None:
    context = gateway.trust()

    def connect() -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", gateway.settings.port), 120)
        return context.wrap_socket(plain, server_hostname="localhost")

    pids = server.process.pid, gateway.process.pid
    before = [forget_peak(pid) for pid in pids]
    fill(connect, CONNECTIONS, EACH_MB)
    engine, proxy = (peak_mb(pid) - was for pid, was in zip(pids, before, strict=True))
    figure(
        f"gateway: {CONNECTIONS} bodies of {EACH_MB} MB to /health without a key: llama.cpp {engine:+.0f} MB,"
        f" Caddy {proxy:+.0f} MB"
    )
    assert max(engine, proxy) < MORE_MB
    assert request_status(gateway.settings.port, "", gateway.trust(), "/v1/models", KEY) == 200


def test_past_the_gateway_they_would(server: LlamaServer) -> None:
    """What the catalogue says of it; and that the measure above sees what it looks for."""
    before = forget_peak(server.process.pid)
    fill(lambda: socket.create_connection(("127.0.0.1", server.port), 120), 3, EACH_MB)
    assert peak_mb(server.process.pid) - before > 2 * EACH_MB


def test_its_key_guards_what_the_catalogue_says(server: LlamaServer) -> None:
    facts = open_paths(ENGINE, ENGINE["default_version"])
    found = ask_paths(facts, server.base, KEY)
    # Its pages are compressed: who takes no gzip gets 415, and is not refused for want of a key.
    assert {one["path"] for one in found["open"]} == {one["path"] for one in facts["routes"] if one["open"]}
    assert found["asked"] == len(facts["routes"])
    assert exposed(found["open"], NAMED) == []


def test_without_its_key_the_doctor_names_what_it_shows() -> None:
    facts = open_paths(ENGINE, ENGINE["default_version"])
    words = ("-m", str(packaged_weights("smollm2-135m-q4")), "-np", "1", "-c", "512", "--metrics")
    with llama_server(engine_home("llamacpp"), *words) as server:
        found = ask_paths(facts, server.base, KEY)
        assert server.counter("llamacpp:tokens_predicted_total") == 0
    assert {"/slots", "/metrics", "/props"} <= {one["path"] for one in exposed(found["open"], NAMED)}
