"""A company's network: a namespace from which only an HTTP proxy and a package index can be reached."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

OUTSIDE, INSIDE = "10.213.78.1", "10.213.78.2"
_PYPI = "https://pypi.org"
_PIECE = 64 << 10


@dataclass
class Company:
    """The namespace, the two addresses that answer in it, and the hosts that the proxy was asked for."""

    namespace: str
    proxy: str
    index: str
    asked: set[str]

    @property
    def enter(self) -> tuple[str, ...]:
        """The words that start a program in the namespace."""
        return ("ip", "netns", "exec", self.namespace)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], names: Mapping[str, str] | None = None) -> None:
        super().__init__((OUTSIDE, 0), handler)
        self.names = dict(names or {})
        self.asked: set[str] = set()


class _Proxy(BaseHTTPRequestHandler):
    """Tunnels TLS, and forwards plain requests."""

    server: _Server

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        self.server.asked.add(host)
        with socket.create_connection((host, int(port)), timeout=60) as there:
            self.send_response(200)
            self.end_headers()
            self._pass_on(there)

    def _pass_on(self, there: socket.socket) -> None:
        other = {self.connection: there, there: self.connection}
        while True:
            for side in select.select(list(other), [], [])[0]:
                piece = side.recv(_PIECE)
                if not piece:
                    return
                other[side].sendall(piece)

    def do_GET(self) -> None:
        host = urlsplit(self.path).netloc
        self.server.asked.add(host)
        url = self.path.replace(f"http://{host}", self.server.names.get(host, f"http://{host}"), 1)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "proxy-connection")}
        _answer_with(self, urllib.request.Request(url, headers=kept, method=self.command), self._named)

    def _named(self, location: str) -> str:
        """Where a redirect leads, by the name that only the proxy knows."""
        for name, address in self.server.names.items():
            if urlsplit(location).hostname == urlsplit(address).hostname:
                self.server.names["files." + name] = f"http://{urlsplit(location).netloc}"
                return location.replace(f"http://{urlsplit(location).netloc}", f"http://files.{name}", 1)
        return location

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _Index(BaseHTTPRequestHandler):
    """PyPI's pages at another address, as a mirror has them."""

    def do_GET(self) -> None:
        _answer_with(self, urllib.request.Request(_PYPI + self.path, headers={"Accept": self.headers["Accept"]}))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _answer_with(
    handler: BaseHTTPRequestHandler, request: urllib.request.Request, named: Callable[[str], str] = str
) -> None:
    opener = urllib.request.build_opener(_AsItIs)
    try:
        answer = opener.open(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        body = answer.read()
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                handler.send_header(name, named(value) if name == "Location" else value)
        length = answer.headers.get("Content-Length") if request.get_method() == "HEAD" else str(len(body))
        handler.send_header("Content-Length", length or "0")
        handler.end_headers()
        handler.wfile.write(body)


class _AsItIs(urllib.request.HTTPRedirectHandler):
    """Hands a redirect on to whoever asked."""

    def redirect_request(self, *_: object) -> None:
        return None


@contextmanager
def company(names: Mapping[str, str] | None = None) -> Iterator[Company]:
    """Make the namespace; ``names`` are hosts that only the proxy knows, with their addresses. Skips without root."""
    namespace, here, there = (f"{word}{os.getpid() % 100000}" for word in ("drafthouse-company-", "dhc", "dho"))
    setup = f"""
        ip netns add {namespace}
        ip link add {there} type veth peer name {here} netns {namespace}
        ip addr add {OUTSIDE}/30 dev {there}; ip link set {there} up
        ip -n {namespace} addr add {INSIDE}/30 dev {here}; ip -n {namespace} link set {here} up
        ip -n {namespace} link set lo up
    """
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["ip", "netns", "del", namespace], check=False, capture_output=True)
        made = subprocess.run(["bash", "-ec", setup], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"needs network namespaces (root): {made.stderr.strip()}")
        proxy, index = _Server(_Proxy, names), _Server(_Index)
        for server in (proxy, index):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
        addresses = [f"http://{OUTSIDE}:{server.server_port}" for server in (proxy, index)]
        yield Company(namespace, addresses[0], addresses[1] + "/simple", proxy.asked)
