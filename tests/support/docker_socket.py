"""Answers on a socket as a container engine does, made for a test; the real one is asked in tests/hosts."""

from __future__ import annotations

import socketserver
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[Any, Any]:
        request, _ = super().get_request()
        return request, ("local", 0)


@contextmanager
def docker_socket(answers: Mapping[str, tuple[int, str, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """Yield a socket's path, and the list of what is asked there; ``answers``: path -> status, kind, body."""
    asked: list[str] = []

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Read before it is answered, or the client's write meets a closed connection.
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append(f"{self.command} {self.path}")
            status, kind, body = answers[self.path.partition("?")[0]]
            self.send_response(status)
            if kind:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    # A socket's address is short.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, _Server(str(Path(folder, "s")), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield str(Path(folder, "s")), asked
        server.shutdown()
