"""A home on a box, with a real supervisord and little servers in the place of engines: what serves and comes back."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafthouse.serving.promote import accept
from drafthouse.serving.supervisor import Program, Supervisor, configuration
from tests.support.ports import free_port

# Answers with its own name. `mute` says that it is healthy and answers no request, `dies` is gone at once, `brief`
# after seven seconds: supervisord, which starts it again, counts it as started by then.
SERVER = """\
import http.server, json, os, sys, threading
name, port = sys.argv[1], int(sys.argv[sys.argv.index("--port") + 1])
if name.startswith("dies"):
    raise SystemExit("error: invalid argument: --no-such-flag")
if name.startswith("brief"):
    threading.Timer(7, os._exit, [1]).start()
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data):
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        ok = self.path == "/health" or self.headers.get("Authorization") == "Bearer the-key"
        self.answer(200 if ok else 401, {"data": [{"id": "m"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if name.startswith("mute"):
            self.answer(500, {"error": "out of memory"})
        else:
            self.answer(200, {"choices": [{"message": {"content": name}}], "usage": {"completion_tokens": 1}})
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
ARMS = ("baseline", "speculative")


@dataclass
class Box:
    """A home, and the port that its server listens on."""

    home: Path
    port: int

    def resolved(self, name: str, version: str = "1", weights: str = "weights") -> Any:
        """A resolved profile whose arms answer ``NAME-ARM``."""
        (self.home / "engine").mkdir(exist_ok=True)
        (self.home / weights).touch()
        arms: dict[str, Any] = {
            arm: {
                "files": [{"path": "serve.sh", "mode": "0755", "content": self.script(f"{name}-{arm}")}],
                "container": None,
                "environment": {},
            }
            for arm in ARMS
        }
        return {
            "profile": "little",
            "engine": {
                "id": "little", "version": version, "runtime": "process", "home": str(self.home / "engine"),
                "health": "/health", "ready_timeout_s": 120, "image": None,
            },
            "site": {"home": str(self.home), "host": "127.0.0.1", "port": self.port, "runtime": "process"},
            "target": {"served_name": "m"},
            "key_file": str(self.home / "secrets" / "api_key"),
            "weights": [{"path": str(self.home / weights), "details": {}}],
            "arms": arms,
            "box": {"left": "out"},
            "suites": {"left": "out"},
        }  # fmt: skip

    def script(self, name: str) -> str:
        return f'#!/bin/sh\nexec {sys.executable} {self.home}/server.py {name} "$@"\n'

    def start(self, resolved: Any, *arms: str) -> None:
        """Have arms run as the role `serve` does it: files, and what supervisord is told."""
        programs = []
        for arm in arms:
            script = self.home / "serve" / resolved["profile"] / arm / "serve.sh"
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(resolved["arms"][arm]["files"][0]["content"])
            script.chmod(0o755)
            command = [str(script), "--port", str(self.port)]
            programs.append(Program(arm, command, f"{self.home}/logs/{arm}.log"))
        self.supervisor.converge(configuration(self.supervisor.home, programs), list(arms), fresh=False)

    def serve(self, resolved: Any, arm: str = "speculative", why: str = "it pays") -> Any:
        """Have an arm run, and note it as what should serve."""
        self.start(resolved, arm)
        return accept(self.home, resolved, arm, why)

    @property
    def supervisor(self) -> Supervisor:
        return Supervisor(self.home / "supervisor")

    def said(self) -> str:
        """What the server answers: its name; '' where nobody answers."""
        body = json.dumps({"model": "m", "messages": []}).encode()
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except OSError:
            return ""


def kill(supervisor: Supervisor) -> None:
    """End supervisord and what it runs at once; to be told takes it a second or two, of which nothing is learnt."""
    try:
        running = [info["pid"] for info in supervisor.rpc().getAllProcessInfo() if info["pid"]]
        os.kill(supervisor.rpc().getPID(), signal.SIGKILL)
    except OSError:  # it does not answer: none, or one that starts
        supervisor.shut_down()
        return
    for leader in running:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


@contextmanager
def little_box() -> Iterator[Box]:
    """A home in a folder with a short name: a socket's path may have 107 letters at most."""
    with tempfile.TemporaryDirectory(prefix="dh-") as folder:
        box = Box(Path(folder), free_port())
        for name in ("logs", "secrets", "venv/bin"):
            (box.home / name).mkdir(parents=True)
        for program in ("python", "supervisord"):
            (box.home / "venv" / "bin" / program).symlink_to(Path(sys.executable).parent / program)
        (box.home / "secrets" / "api_key").write_text("the-key\n")
        (box.home / "server.py").write_text(SERVER)
        try:
            yield box
        finally:
            kill(box.supervisor)
