"""A server that speaks the Hugging Face hub's protocol as far as a download asks for it, faults included.

Two origins, as in reality: the hub (API, ``resolve``) and a CDN on another port to which ``resolve`` sends
whoever wants a large file (302), with Range, 206 and 416. Small files are redirected within the hub (307).
What the protocol is, is taken from huggingface_hub 2.4.0, which speaks the other side of it: file_download.py,
hf_api.py, utils/_http.py, utils/_xet.py, utils/_pagination.py.

As a program it serves folders: ``python -m tests.fakes.hub_server org/model=/folder``.
"""

from __future__ import annotations

import argparse
import fcntl
import http.server
import json
import os
import select
import socket
import ssl
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.fakes.hub_contents import Content, OnDisk, as_content, entry_of, etag_of, in_lfs
from tests.fakes.hub_state import ALWAYS, COMMIT, RIGHT, STRANGER, Fault, Hub

__all__ = ["ALWAYS", "COMMIT", "RIGHT", "STRANGER", "Fault", "Hub", "hub_server"]


class _Handler(http.server.BaseHTTPRequestHandler):
    """What both origins share: answers with a body, and files with what goes wrong in them."""

    protocol_version = "HTTP/1.1"
    wbufsize = 0
    hubs: tuple[Hub, ...]
    cdn_url: str
    closing: threading.Event
    streaming = False

    def do_GET(self) -> None:
        self.guarded()

    def do_HEAD(self) -> None:
        self.guarded()

    def do_POST(self) -> None:
        self.guarded()

    def guarded(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.form = self.rfile.read(length) if length else b""
        try:
            self.answer(urlsplit(self.path).path)
        except OSError:
            self.close_connection = True  # whoever asked is gone, as after kill -9

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def put(self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.head(status, len(data), headers or {})
        if data and self.command != "HEAD":
            self.wfile.write(data)

    def put_json(self, data: object, headers: Mapping[str, str] | None = None) -> None:
        self.put(200, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})

    def head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def put_fault(self, fault: Fault) -> bool:
        """Answer with the fault's status, if it has one."""
        if fault.status:
            wait = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            self.put(fault.status, b"no\n", wait)
        return bool(fault.status)

    def put_file(self, hub: Hub, name: str, content: Content, headers: Mapping[str, str]) -> None:
        fault = Fault() if self.command == "HEAD" else hub.fault(name, "*")
        if self.put_fault(fault):
            return
        begin, end, status = 0, content.size, 200
        if (asked := _range(self.headers.get("Range"), content.size)) is not None and not fault.no_range:
            begin, end, status = *asked, 206
            if begin >= end:
                return self.put(416, b"", {"Content-Range": f"bytes */{content.size}"})
        place = {"Content-Range": f"bytes {begin}-{end - 1}/{content.size}"} if status == 206 else {}
        ranges = {} if fault.no_range else {"Accept-Ranges": "bytes"}
        self.head(status, end - begin + fault.length_off, {**headers, **ranges, **place})
        if self.command == "HEAD":
            return
        self.streaming = True
        with hub.lock:
            hub.streams += 1
            hub.most_streams = max(hub.most_streams, hub.streams)
        try:
            self.send_bytes(hub, name, content, begin, end, fault)
        finally:
            self.stream_ends(hub)

    def stream_ends(self, hub: Hub) -> None:
        """Count the stream as ended, once: a slow one before its last piece, which its client may answer sooner."""
        if self.streaming:
            self.streaming = False
            with hub.lock:
                hub.streams -= 1

    def send_bytes(self, hub: Hub, name: str, content: Content, begin: int, end: int, fault: Fault) -> None:
        stop = min([end, *(at for at in (fault.stall_at, fault.cut_at) if at is not None)])
        rate = min([one for one in (fault.rate, hub.rate) if one], default=0)
        step = max(1, min(1 << 20, int(rate / 20))) if rate else 16 << 20
        began, at = time.monotonic(), begin
        while at < stop and not self.closing.is_set():
            upto = min(at + step, stop)
            hub.wait_turn(upto - at)
            if rate and upto == end:
                self.stream_ends(hub)
            self.send_step(hub, name, content, at, upto, fault)
            at = upto
            if fault.rate:
                time.sleep(max(0.0, began + (at - begin) / fault.rate - time.monotonic()))
        if fault.stall_at is not None and stop == max(fault.stall_at, begin) < end:
            while not self.closing.is_set() and not self.gone():
                time.sleep(0.05)
        if stop < end or fault.length_off:
            self.close_connection = True
            if fault.reset:
                self.drain()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.close()

    def send_step(self, hub: Hub, name: str, content: Content, begin: int, end: int, fault: Fault) -> None:
        wrong = fault.wrong_at
        if isinstance(content, OnDisk) and wrong is None and not isinstance(self.connection, ssl.SSLSocket):
            with content.path.open("rb") as file:
                while begin < end:
                    went = os.sendfile(self.connection.fileno(), file.fileno(), begin, end - begin)
                    hub.counted(name, went)
                    begin += went
            return
        for piece in content.pieces(begin, end):
            if wrong is not None and begin <= wrong < begin + len(piece):
                changed = bytearray(piece)
                changed[wrong - begin] ^= 0xFF
                piece = bytes(changed)  # noqa: PLW2901 (the same piece with another byte)
            self.connection.sendall(piece)
            hub.counted(name, len(piece))
            begin += len(piece)

    def drain(self) -> None:
        """Wait until all that was sent has arrived in the other kernel: a reset throws away the rest."""
        waiting = bytearray(4)
        while not fcntl.ioctl(self.connection, termios.TIOCOUTQ, waiting) and any(waiting):
            time.sleep(0.01)

    def gone(self) -> bool:
        """Tell whether the other side has closed the connection."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def log_message(self, *words: object) -> None:
        """Say nothing: the tests look at what the hub has counted."""


class _Cdn(_Handler):
    """The second origin: ``/<repo>/<commit>/<file>?Signature=…``, without accounts."""

    def answer(self, path: str) -> None:
        for hub in self.hubs:
            commit, _, name = unquote(path).removeprefix(f"/{hub.repo}/").partition("/")
            found = hub.at(commit) if path.startswith(f"/{hub.repo}/") else None
            if found and name in found[1]:
                hub.cdn_asked.append(f"{name} {self.headers.get('Range') or '-'}")
                hub.tokens_at_cdn += "Authorization" in self.headers
                content = as_content(found[1][name])
                return self.put_file(hub, name, content, {"ETag": f'"{etag_of(name, content)}"'})
        return self.put(403, b"<Error><Code>AccessDenied</Code></Error>")


class _Api(_Handler):
    """The hub itself."""

    def answer(self, path: str) -> None:
        if path == "/_state":
            return self.put_json({hub.repo: hub.state() for hub in self.hubs})
        for hub in self.hubs:
            hub.asked.append(unquote(path))
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if given and given not in (STRANGER, *(hub.right for hub in self.hubs)):
            return self.put(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
        for hub in self.hubs:
            for start in (f"/api/models/{hub.repo}", f"/{hub.repo}/resolve", f"/api/resolve-cache/models/{hub.repo}"):
                if path == start or path.startswith(start + "/"):
                    return self.of_repo(hub, start, path.removeprefix(start).strip("/"), given)
        # The hub does not say which private repositories there are: without a token, all that is not there is 401.
        return self.put(404 if given else 401, b"{}", {"X-Error-Code": "RepoNotFound"})

    def of_repo(self, hub: Hub, start: str, rest: str, given: str) -> None:
        # What a gated repository is called and what lies in it, everybody may know; not what is in the files.
        open_to_all = start.startswith("/api/models/") and not rest.startswith(("auth-check", "xet-read-token"))
        if hub.gated and not open_to_all and given != hub.right:
            text = "you are not in the authorized list" if given else "you must be authenticated to access it"
            refused = {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to {hub.repo} is restricted: {text}"}
            return self.put(403 if given else 401, b"{}", refused)
        if not start.startswith("/api/models/"):
            return self.resolve(hub, unquote(rest), direct=start.startswith("/api/"))
        if self.put_fault(hub.fault("xet" if rest.startswith("xet-read-token") else "api")):
            return None
        if rest == "auth-check":
            return self.put_json({})
        verb, _, revision = (rest or "revision/main").partition("/")
        revision, _, folder = revision.partition("/") if verb == "tree" else (revision, "", "")
        revision = unquote(revision)  # a branch's name may have slashes, and they come quoted
        if (found := hub.at(revision)) is None:
            return self.put(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"no {revision}"})
        commit, files = found
        entries = [entry_of(name, data, hub.xet.get(name)) for name, data in files.items() if name.startswith(folder)]
        query = parse_qs(urlsplit(self.path).query)
        if verb == "tree":
            return self.tree(hub, commit, entries, query)
        if verb == "paths-info":
            wanted = parse_qs(self.form.decode()).get("paths", [])
            return self.put_json([entry for entry in entries if entry["path"] in wanted])
        if verb == "xet-read-token":
            expires = str(int(time.time()) + 3600)
            token = {"X-Xet-Cas-Url": hub.xet_store, "X-Xet-Access-Token": "t", "X-Xet-Token-Expiration": expires}
            return self.put_json({}, token)
        blobs = query.get("blobs") in (["true"], ["True"])
        siblings = [_sibling(entry) if blobs else {"rfilename": entry["path"]} for entry in entries]
        info = {"id": hub.repo, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        return self.put_json({**info, "gated": "manual" if hub.gated else False})

    def tree(self, hub: Hub, commit: str, entries: list[dict[str, object]], query: dict[str, list[str]]) -> None:
        at = int(query.get("cursor", ["0"])[0])
        more = {}
        if at + hub.page < len(entries):
            more["Link"] = f'<{hub.url}/api/models/{hub.repo}/tree/{commit}?cursor={at + hub.page}>; rel="next"'
        folders = {str(parent) for entry in entries for parent in Path(str(entry["path"])).parents} - {".", "/", ".."}
        first = (
            [] if at else [{"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in sorted(folders)]
        )
        return self.put_json([*first, *entries[at : at + hub.page]], more)

    def resolve(self, hub: Hub, rest: str, direct: bool) -> None:
        found = None
        for revision in {COMMIT, *hub.commits, *hub.refs}:
            if rest.startswith(revision + "/"):
                found, name = hub.at(revision), rest.removeprefix(revision + "/")
        if found is None:
            return self.put(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        commit, files = found
        known = {"X-Repo-Commit": commit}
        if self.put_fault(hub.fault(f"resolve:{name}", "resolve:*")):
            return None
        if name not in files:
            return self.put(404, b"{}", {**known, "X-Error-Code": "EntryNotFound"})
        content = as_content(files[name])
        tag = f'"{etag_of(name, content)}"'
        if direct:
            return self.put_file(hub, name, content, {**known, "ETag": tag})
        known |= {"X-Linked-Size": str(content.size), "X-Linked-Etag": tag}
        if name in hub.xet:
            route = f"{hub.url}/api/models/{hub.repo}/xet-read-token/{commit}"
            known |= {"X-Xet-Hash": hub.xet[name], "X-Xet-Refresh-Route": route, "Link": f'<{route}>; rel="xet-auth"'}
        if hub.cdn and in_lfs(name, content):
            there = f"{self.cdn_url}/{hub.repo}/{commit}/{quote(name)}?Expires={int(time.time()) + 3600}&Signature=s"
            return self.put(302, b"", {**known, "Location": there})
        there = f"/api/resolve-cache/models/{hub.repo}/{commit}/{quote(name)}?etag={quote(tag)}"
        return self.put(307, b"", {**known, "Location": there})


def _sibling(entry: Mapping[str, object]) -> dict[str, object]:
    """A file's line in the model's info, asked for with ``blobs=true``."""
    line = {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
    if isinstance(lfs := entry.get("lfs"), dict):
        line["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
    return line


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return begin and end of ``bytes=<first>-[last]``, or None."""
    if not header or not header.startswith("bytes="):
        return None
    first, _, last = header.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def hub_server(
    hub: Hub, *more: Hub, host: str = "127.0.0.1", port: int = 0, certificate: Path | None = None
) -> Iterator[Hub]:
    """Serve ``hub`` (and ``more``) on a free port of loopback; ``hub.url`` is for HF_ENDPOINT.

    ``port`` is the hub's own; the CDN takes another free one. ``certificate`` (PEM with its key) makes it https.
    """
    shared = {"hubs": (hub, *more), "closing": threading.Event(), "cdn_url": ""}
    api = type("Api", (_Api,), shared)
    cdn, server = _Server((host, 0), type("Cdn", (_Cdn,), shared)), _Server((host, port), api)
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        for one in (cdn, server):
            one.socket = context.wrap_socket(one.socket, server_side=True, do_handshake_on_connect=False)
    start = f"{'https' if certificate else 'http'}://{host}"
    setattr(api, "cdn_url", f"{start}:{cdn.server_address[1]}")  # noqa: B010 (a class made here)
    for one_hub in (hub, *more):
        one_hub.url = f"{start}:{server.server_address[1]}"
    for serving in (server, cdn):
        threading.Thread(target=serving.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        shared["closing"].set()  # type: ignore[attr-defined]
        for serving in (server, cdn):
            serving.shutdown()
            serving.server_close()


def _folder_as_hub(word: str) -> Hub:
    repo, _, folder = word.partition("=")
    root = Path(folder)
    return Hub({str(path.relative_to(root)): OnDisk(path) for path in sorted(root.rglob("*")) if path.is_file()}, repo)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve folders as repositories until stdin ends.")
    parser.add_argument("repos", nargs="+", metavar="org/model=/folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0, help="bytes/s of each repository")
    parser.add_argument("--certificate", type=Path, help="PEM with its key: https")
    words = parser.parse_args()
    first, *rest = [_folder_as_hub(word) for word in words.repos]
    for served in (first, *rest):
        served.rate = words.rate
    with hub_server(first, *rest, host=words.host, port=words.port, certificate=words.certificate):
        print(json.dumps({"url": first.url}), flush=True)
        sys.stdin.read()
