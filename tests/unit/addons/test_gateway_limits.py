"""The gateway's limits with the real Caddy, over HTTP/1.1 and HTTP/2, IPv4 and IPv6: bodies, time, how many at once."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.stepping_server import Stepping, stepping_server
from tests.support.gateway import KEY, Gateway, real_caddy, settings_for, started, with_

pytestmark = pytest.mark.processes

CHAT = "/v1/chat/completions"
MB = 1_000_000
BODY_S, AT_ONCE = 1, 3
PATIENT_S = 120
HELD = {"stream": True, "stepped": True}  # answered when the test says so
GOOD = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture(scope="module")
def engine() -> Iterator[Stepping]:
    with stepping_server() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(engine: Stepping, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("box")
    settings = settings_for(home, f"127.0.0.1:{engine.port}", real_caddy())
    with started(with_(settings, body_timeout_s=PATIENT_S, max_requests=AT_ONCE)) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(engine: Stepping, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One that gives a body so little time that a test can see its end; a large body may not arrive in it."""
    settings = settings_for(tmp_path_factory.mktemp("hasty"), f"127.0.0.1:{engine.port}", real_caddy())
    with started(with_(settings, body_timeout_s=BODY_S)) as running:
        yield running


@pytest.fixture(autouse=True)
def _forgets(engine: Stepping) -> None:
    engine.forget()


class Client:
    """A client of the gateway by one protocol and one family of addresses."""

    def __init__(self, gateway: Gateway, http2: bool, address: str) -> None:
        trust = gateway.trust()
        self.http = httpx.Client(http1=not http2, http2=http2, verify=trust, timeout=PATIENT_S, trust_env=False)
        self.base, self.version = f"https://{address}:{gateway.settings.port}", "HTTP/2" if http2 else "HTTP/1.1"

    def ask(self, method: str, path: str, key: bool = True, **more: Any) -> httpx.Response:
        answer = self.http.send(self.request(method, path, key, **more))
        assert answer.http_version == self.version
        return answer

    def request(self, method: str, path: str, key: bool = True, **more: Any) -> httpx.Request:
        # The certificate is for localhost; its own address need not stand in it for this.
        more["extensions"] = {"sni_hostname": "localhost"}
        return self.http.build_request(method, self.base + path, headers=GOOD if key else {}, **more)


@pytest.fixture(params=[False, True], ids=["http1", "http2"])
def http2(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=["127.0.0.1", "[::1]"], ids=["ipv4", "ipv6"])
def client(gateway: Gateway, http2: bool, request: pytest.FixtureRequest) -> Iterator[Client]:
    if request.param == "[::1]":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"no IPv6 on this machine's loopback: {error}")
    one = Client(gateway, http2, request.param)
    yield one
    one.http.close()


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_without_the_key_nothing_but_health_answers(client: Client, engine: Stepping) -> None:
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/v1/../v1/models"), ("PATCH", "/v1/x")):
        answer = client.ask(method, path, key=False)
        assert (answer.status_code, code_of(answer)) == (401, "invalid_api_key")
    # What vLLM answers without a key of its own.
    for path in ("/invocations", "/tokenize", "/metrics", "/scale_elastic_ep", "/openapi.json", "/health/", "/"):
        for method in ("GET", "POST", "PATCH"):
            assert client.ask(method, path).status_code == 404
    assert engine.asked == []
    assert client.ask("GET", "/health", key=False).status_code == 200
    assert client.ask("GET", "/v1/models").status_code == 200


def test_health_takes_nobodys_body(client: Client, engine: Stepping) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b"a" * 10_000

    for body in (b"a", b"a" * 200_000, pieces()):
        assert client.ask("GET", "/health", key=False, content=body).status_code == 200
        method, path, headers = engine.asked[-1]
        assert (method, path) == ("GET", "/health")
        assert not {"content-length", "transfer-encoding", "authorization"} & {name.lower() for name in headers}
    head = client.ask("HEAD", "/health", key=False)
    assert (head.status_code, head.content) == (200, b"")
    asked = len(engine.asked)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.ask(method, "/health", content=b"a").status_code == 404
    assert len(engine.asked) == asked


def test_a_body_has_a_limit_with_its_length_said_and_without(client: Client, engine: Stepping) -> None:
    said = b'{"pad": "' + b"a" * (MB - 11) + b'"}'
    assert client.ask("POST", CHAT, content=said).status_code == 200
    assert engine.bodies == [MB]
    answer = client.ask("POST", CHAT, content=said + b" ")
    assert (answer.status_code, code_of(answer)) == (413, "request_too_large")
    pieces = ((said + b" " * 100)[at : at + 50_000] for at in range(0, MB + 100, 50_000))
    answer = client.ask("POST", CHAT, content=pieces)
    assert (answer.status_code, code_of(answer)) == (413, "request_too_large")
    assert engine.bodies == [MB]
    # Without the key nobody looks at it.
    answer = client.ask("POST", CHAT, key=False, content=said + b" ")
    assert answer.status_code == 401


def test_an_answer_may_take_longer_than_a_body(hasty: Gateway, http2: bool, engine: Stepping) -> None:
    """Each chunk is let go only when the one before is here, and the last long after the body's time."""
    client = Client(hasty, http2, "127.0.0.1")
    request = client.request("POST", CHAT, json={"stream": True, "stepped": True, "chunks": 4})
    engine.step.release()
    answer = client.http.send(request, stream=True)
    assert (answer.http_version, answer.headers["Content-Type"]) == (client.version, "text/event-stream")
    got = []
    for line in answer.iter_lines():
        if line:
            got.append(json.loads(line.removeprefix("data: "))["n"])
            time.sleep(BODY_S * 0.4)
            engine.step.release()
    assert got == [0, 1, 2, 3]
    engine.step.acquire(blocking=False)
    assert client.ask("POST", CHAT, json={"seconds": BODY_S * 1.5}).status_code == 200
    client.http.close()


def secure(gateway: Gateway) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", gateway.settings.port), PATIENT_S)
    return gateway.trust().wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize("key", [False, True], ids=["without key", "with key"])
def test_a_body_that_never_ends_is_not_waited_for(hasty: Gateway, engine: Stepping, key: bool) -> None:
    """Without this time a connection is held for ever by a hundred bytes, and no key is needed for it."""
    held = []
    for path in (CHAT, "/health", "/nothing"):
        one = secure(hasty)
        one.settimeout(PATIENT_S)
        said = f"Authorization: Bearer {KEY}\r\n" if key else ""
        one.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{said}Content-Length: 1000\r\n\r\nabc".encode())
        held.append(one)
    for one in held:
        while one.recv(1000):
            pass
        one.close()
    assert engine.finished.is_set() is False


def test_headers_have_a_limit(gateway: Gateway) -> None:
    with secure(gateway) as one, one.makefile("rb") as answer:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
        assert answer.readline().startswith(b"HTTP/1.1 431 ")


def test_so_many_at_once_and_the_next_is_told(gateway: Gateway, engine: Stepping, http2: bool) -> None:
    clients = [Client(gateway, http2, "127.0.0.1") for _ in range(AT_ONCE + 2)]
    with ThreadPoolExecutor(len(clients)) as pool:
        told = threading.Semaphore(0)

        def ask(one: Client) -> tuple[int, str]:
            answer = one.ask("POST", CHAT, json=HELD)
            if answer.status_code == 200:
                return 200, ""
            told.release()
            return answer.status_code, code_of(answer)

        asked = [pool.submit(ask, one) for one in clients]
        # Those that got through are let go when the others have been told.
        for _ in range(2):
            assert told.acquire(timeout=PATIENT_S / 2)
        engine.step.release(AT_ONCE)
        answers = [one.result() for one in asked]
    assert sorted(answers) == [(200, "")] * AT_ONCE + [(503, "overloaded")] * 2
    # It is a limit and no sickness: the next is served.
    assert clients[0].ask("POST", CHAT, json={}).status_code == 200
    for one in clients:
        one.http.close()


def test_a_full_house_still_says_that_it_lives(gateway: Gateway, engine: Stepping) -> None:
    clients = [Client(gateway, False, "127.0.0.1") for _ in range(AT_ONCE)]
    with ThreadPoolExecutor(len(clients)) as pool:
        asked = [pool.submit(one.ask, "POST", CHAT, json=HELD) for one in clients]
        end = time.monotonic() + 120
        while len(engine.asked) < AT_ONCE and time.monotonic() < end:
            time.sleep(0.02)
        fresh = Client(gateway, True, "127.0.0.1")
        assert fresh.ask("GET", "/health", key=False).status_code == 200
        assert fresh.ask("GET", "/v1/models").status_code == 503
        engine.step.release(AT_ONCE)
        assert [one.result().status_code for one in asked] == [200] * AT_ONCE
    for one in (*clients, fresh):
        one.http.close()


class OncePerConnection(BaseHTTPRequestHandler):
    """Says that it keeps a connection, and closes it on the second request, as an engine's limit or timeout does."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked += 1
        if self.asked > 1:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def test_an_engine_that_ends_a_kept_connection_costs_no_request(tmp_path: Path) -> None:
    """llama.cpp does so after 100 requests: one in a hundred was answered by 502."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OncePerConnection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = settings_for(tmp_path / "box", f"127.0.0.1:{server.server_port}", real_caddy())
        with started(settings) as gateway:
            client = Client(gateway, http2=True, address="127.0.0.1")
            assert [client.ask("POST", CHAT, json={}).status_code for _ in range(4)] == [200] * 4
            client.http.close()
        server.shutdown()
