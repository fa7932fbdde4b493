"""A server on loopback that behaves as vast.ai's REST API, as far as renting asks for it, faults included.

What the protocol is, is taken from the `vastai` package 1.9.1, which speaks the other side of it, and from vast.ai's
API reference; tests/vast/test_real_client.py points that package's own command line at this server.

    with vast_server() as vast:
        vast.faults.append(Fault("create", status=500, after=True))  # rented, and the answer is a 500
        client = VastClient(vast.key, vast.url)
"""

from __future__ import annotations

import http.server
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.vast_market import KEY, SECOND_KEY, Instance, Life, Market, Refused, others
from tests.fakes.vast_state import ALWAYS, Asked, Fault, Running

__all__ = ["ALWAYS", "KEY", "SECOND_KEY", "Asked", "Fault", "Instance", "Life", "Running", "vast_server"]

# The routes by name, as faults and `asked` call them.
_ROUTES = [
    ("search", "POST", r"/api/v0/bundles/?"),
    ("create", "PUT", r"/api/v0/asks/(\d+)/?"),
    ("instances", "GET", r"/api/v1/instances/?"),
    ("filters", "GET", r"/api/v0/instances/filters/?"),
    ("instance", "GET", r"/api/v0/instances/(\d+)/?"),
    ("destroy", "DELETE", r"/api/v0/instances/(\d+)/?"),
    ("state", "PUT", r"/api/v0/instances/(\d+)/?"),
    ("logs", "PUT", r"/api/v0/instances/request_logs/(\d+)/?"),
    ("keys", "GET", r"/api/v0/ssh/?"),
    ("add_key", "POST", r"/api/v0/ssh/?"),
    ("attach_key", "POST", r"/api/v0/instances/(\d+)/ssh/?"),
    ("user", "GET", r"/api/v0/users/current/?"),
    ("log_text", "GET", r"/logs/(\d+)"),
]


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request: who asks, what for, and what is to go wrong with it."""

    protocol_version = "HTTP/1.1"
    vast: Running

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Say what time it is at the provider."""
        return super().date_time_string(self.vast.market.clock() if timestamp is None else timestamp)

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length) if length else b""
        where = urlsplit(self.path)
        route, number = self._route(where.path)
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        query = {name: values[0] for name, values in parse_qs(where.query).items()}
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = None
        agent = self.headers.get("User-Agent") or ""
        self.vast.asked.append(Asked(route, self.command, where.path, query, body, key, agent))
        fault = self.vast.take_fault(route)
        try:
            if fault is None:
                self._put(*self._effect(route, number, query, body, key))
            else:
                self._with_fault(fault, lambda: self._effect(route, number, query, body, key), number)
        except OSError:
            self.close_connection = True  # whoever asked is gone, as after kill -9

    def _route(self, path: str) -> tuple[str, int]:
        for name, method, pattern in _ROUTES:
            found = re.fullmatch(pattern, path)
            if found and method == self.command:
                return name, int(found.group(1)) if found.groups() else 0
        return "unknown", 0

    def _with_fault(self, fault: Fault, effect: Callable[[], tuple[int, Any, dict[str, str]]], number: int) -> None:
        """Answer as ``fault`` says; the effect comes before it, or not at all."""
        offer = self.vast.market.offers.get(number)
        if fault.gone and offer:
            offer["rentable"] = False
        if fault.price is not None and offer:
            offer["dph_base"] = fault.price
        bad = bool(fault.status or fault.cut or fault.reset or fault.half or fault.body is not None)
        answer = effect() if fault.after or not bad else None
        if fault.act:
            fault.act()
        if fault.slow_s:
            time.sleep(fault.slow_s)
        if fault.cut or fault.reset:
            self._hang_up(rudely=fault.reset)
        elif fault.half:
            self._put_half(answer or (200, {"success": True}, {}))
        elif fault.body is not None:
            self._put(fault.status or 200, fault.body, dict(fault.headers))
        elif fault.status:
            refusal = {"success": False, "error": fault.error or "server_error", "msg": fault.said or "try later"}
            self._put(fault.status, refusal, dict(fault.headers))
        elif answer:
            self._put(*answer)

    def _hang_up(self, *, rudely: bool) -> None:
        self.close_connection = True
        if rudely:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def _put_half(self, answer: tuple[int, Any, dict[str, str]]) -> None:
        data = json.dumps(answer[1]).encode()
        self.send_response(answer[0])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        self._hang_up(rudely=False)

    def _put(self, status: int, data: Any, headers: dict[str, str]) -> None:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", headers.pop("Content-Type", "application/json"))
        self.send_header("Content-Length", str(len(raw)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def _effect(
        self, route: str, number: int, query: Mapping[str, str], body: Any, key: str | None
    ) -> tuple[int, Any, dict[str, str]]:
        """Do what is asked for, and return the answer of it."""
        with self.vast.lock:
            try:
                return 200, self._do(route, number, query, body, self._owner(route, number, key)), {}
            except Refused as error:
                refusal = {"success": False, "error": error.error, "msg": error.said}
                return error.status, refusal, {}
            except Ready as ready:
                return ready.status, ready.text, {"Content-Type": "text/plain"}

    def _owner(self, route: str, number: int, key: str | None) -> str:
        """The account that may do this with ``key``; a container's own key is good for that container only."""
        market = self.vast.market
        if key in market.keys:
            return str(key)
        if route == "log_text":
            return market.keys[0]
        for instance in market.instances.values():
            if key == instance.container_key and number == instance.row["id"]:
                if route in market.container_may:
                    return instance.owner
                raise Refused(403, "forbidden", "This API key does not have permission to do this.")
        raise Refused(401, "auth_error", "Invalid user key")

    def _do(self, route: str, number: int, query: Mapping[str, str], body: Any, owner: str) -> Any:
        market = self.vast.market
        if body is None:
            raise Refused(400, "invalid_args", "the body is no JSON")
        if route == "search":
            return {"offers": market.search(body)}
        if route == "create":
            instance = market.create(number, body, owner)
            self.vast.created(instance)
            return {"success": True, "new_contract": instance.row["id"], "instance_api_key": instance.container_key}
        if route == "instances":
            return self._page(query, owner)
        if route == "filters":
            return {"success": True, "filters": []}
        if route == "user":
            return {"id": 17, "email": "someone@example.com", "credit": 25.0}
        if route in ("keys", "add_key"):
            return self._keys(route, body, owner)
        if route == "log_text":
            return self._log(number)
        if route == "unknown":
            raise Refused(404, "not_found", "no such path")
        return self._of_instance(route, number, body, owner)

    def _page(self, query: Mapping[str, str], owner: str) -> Any:
        market = self.vast.market
        rows = [
            one for one in market.listed(owner) if _selected(one.row, json.loads(query.get("select_filters", "{}")))
        ]
        start = int(query.get("after_token", "t0")[1:])
        size = min(int(query.get("limit", market.page)), market.page)
        page = [market.look(one) for one in rows[start : start + size]]
        if columns := json.loads(query.get("select_cols", "[]")):
            page = [{name: row.get(name) for name in columns} for row in page]
        more = start + size < len(rows)
        labels: dict[str, int] = {}
        for one in rows:
            labels[one.row["label"] or ""] = labels.get(one.row["label"] or "", 0) + 1
        token = f"t{start + size}" if more else None
        return {
            "success": True, "instances": page, "next_token": token,
            "total_instances": len(rows), "label_counts": labels,
        }  # fmt: skip

    def _keys(self, route: str, body: Any, owner: str) -> Any:
        kept = self.vast.market.ssh_keys.setdefault(owner, [])
        if route == "keys":
            if not kept:
                raise Refused(404, "not_found", "No SSH keys found for the user.")
            return kept
        text = str(body.get("ssh_key") or "")
        if not text.startswith(("ssh-", "ecdsa-", "sk-")):
            raise Refused(400, "invalid_args", "ssh_key is no public key")
        if any(one["key"].split()[:2] == text.split()[:2] for one in kept):
            raise Refused(400, "duplicate_key", "SSH key already exists")
        kept.append({"id": 500 + len(kept), "user_id": 17, "key": text, "created_at": "2026-11-21", "deleted_at": None})
        return {"success": True, "key": kept[-1]}

    def _log(self, number: int) -> Any:
        """Raise the text of the log, from the second time on that it is asked for: it is uploaded first."""
        looks = self.vast.log_delays[number] = self.vast.log_delays.get(number, 0) + 1
        raise (
            Ready(403, b"<Error><Code>AccessDenied</Code></Error>")
            if looks < 2
            else Ready(200, self.vast.market.log.encode())
        )

    def _of_instance(self, route: str, number: int, body: Any, owner: str) -> Any:
        market = self.vast.market
        instance = market.instances.get(number)
        if instance is not None and instance.owner != owner:
            instance = None
        if route == "instance":
            return {"instances": market.look(instance) if instance else None}
        if instance is None:
            raise Refused(404, "no_such_instance", f"Instance {number} not found")
        if route == "destroy":
            self.vast.destroyed(market.destroy(number))
        elif route == "state":
            if "label" in body:
                instance.row["label"] = body["label"]
            if "state" in body:
                if body["state"] not in ("running", "stopped"):
                    raise Refused(400, "invalid_args", f"state {body['state']!r}")
                instance.row["intended_status"] = body["state"]
        elif route == "logs":
            self.vast.log_delays[number] = 0
            return {"success": True, "result_url": f"{self.vast.url}/logs/{number}", "msg": "done"}
        elif route == "attach_key":
            instance.body.setdefault("attached_keys", []).append(body.get("ssh_key"))
        return {"success": True}

    def log_message(self, *words: object) -> None:
        """Say nothing: the tests look at `asked`."""


class Ready(Exception):
    """An answer that is no JSON."""

    def __init__(self, status: int, text: bytes) -> None:
        self.status, self.text = status, text
        super().__init__(status)


def _selected(row: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    for name, asked in filters.items():
        if "in" in asked and row.get(name) not in asked["in"]:
            return False
        if "eq" in asked and row.get(name) != asked["eq"]:
            return False
    return True


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


@contextmanager
def vast_server(host: str = "127.0.0.1", **options: Any) -> Iterator[Running]:
    """Serve a `Market` with these options on a free port; other instances of the account are in it.

    With ``host="0.0.0.0"`` containers reach it too, at ``vast.port`` of this machine.

    ``on_create(instance)`` runs in a thread of its own as soon as something is rented, and the instance is loading
    until it returns; what it returns (``public_ipaddr``, ``ports``, ``ssh_host``, ``ssh_port``) the API shows then.
    """
    market = Market(**options)
    server = _Server((host, 0), _Handler)
    port = int(server.server_address[1])
    vast = Running(f"http://127.0.0.1:{port}", market, port)
    vast.others = others(market, market.keys[0])
    server.RequestHandlerClass = type("Handler", (_Handler,), {"vast": vast})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield vast
    finally:
        server.shutdown()
        server.server_close()
        thread.join(120)
        for hook in vast.hooks:
            hook.join(120)
