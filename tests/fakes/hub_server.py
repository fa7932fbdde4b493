"""A server that speaks the Hugging Face hub's protocol as far as a snapshot download asks for it."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

COMMIT = "a" * 40


@dataclass
class Hub:
    """One model repository: its files, and what happens to whoever asks."""

    files: dict[str, bytes]
    repo: str = "org/model"
    gated: bool = False
    url: str = ""
    sent: int = 0
    asked: list[str] = field(default_factory=list)


@contextmanager
def hub_server(hub: Hub) -> Iterator[Hub]:
    """Serve ``hub`` on a free port of loopback; ``hub.url`` is for HF_ENDPOINT."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, body: bool) -> None:
            path = urlsplit(self.path).path
            hub.asked.append(path)
            # What a gated repository is called, everybody may know.
            open_to_all = path == f"/api/models/{hub.repo}" or "/revision/" in path
            if hub.gated and not open_to_all and self.headers.get("Authorization") != "Bearer hf_right":
                return self.put(403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"}, body)
            if path == f"/api/models/{hub.repo}/auth-check":
                return self.put(200, b"{}", {}, body)
            if path.startswith(f"/api/models/{hub.repo}/tree/"):
                listing = [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in hub.files.items()
                ]
                return self.put(200, json.dumps(listing).encode(), {"Content-Type": "application/json"}, body)
            if path in (f"/api/models/{hub.repo}", *(f"/api/models/{hub.repo}/revision/{r}" for r in ("main", COMMIT))):
                siblings = [{"rfilename": name, "size": len(data)} for name, data in hub.files.items()]
                info = {"id": hub.repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
                return self.put(200, json.dumps(info).encode(), {"Content-Type": "application/json"}, body)
            prefix = f"/{hub.repo}/resolve/{COMMIT}/"
            if path.startswith(prefix) and path.removeprefix(prefix) in hub.files:
                data = hub.files[path.removeprefix(prefix)]
                return self.put(200, data, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"'}, body)
            if path.startswith(("/api/models/", f"/{hub.repo}/resolve/")):
                known = hub.repo in path
                code = "RevisionNotFound" if known else "RepoNotFound"
                return self.put(404 if known else 401, b"{}", {"X-Error-Code": code}, body)
            return self.put(404, b"", {}, body)

        def put(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            for name, value in {"X-Repo-Commit": COMMIT, **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)
                hub.sent += len(data) if "/resolve/" in self.path else 0

        def log_message(self, *words: object) -> None:
            """Say nothing: the tests look at ``asked``."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
