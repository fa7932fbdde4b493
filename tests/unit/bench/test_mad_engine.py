"""`drafthouse bench` ends within bounds whatever an engine sends, and keeps what was measured before."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT
from tests.support.hostile_server import WITH_PEAK, served

pytestmark = pytest.mark.processes

Handler = http.server.BaseHTTPRequestHandler
MIB = bytes(1 << 20)


def chunk(text: str = "", **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more}).encode() + b"\n\n"


def well(handler: Handler) -> None:
    for _ in range(4):
        handler.wfile.write(chunk("word "))
    handler.wfile.write(chunk(usage={"prompt_tokens": 3, "completion_tokens": 4}))
    handler.wfile.write(b"data: [DONE]\n\n")


def a_line_without_an_end(handler: Handler) -> None:
    handler.wfile.write(b"data: ")
    for _ in range(3000):
        handler.wfile.write(MIB)


def a_flood_of_events(handler: Handler) -> None:
    for _ in range(300_000):
        handler.wfile.write(chunk("x") * 100)


def choices_are_a_number(handler: Handler) -> None:
    handler.wfile.write(b'data: {"choices": 7}\n\ndata: [DONE]\n\n')


def deep_json(handler: Handler) -> None:
    handler.wfile.write(b"data: " + b"[" * 5000 + b"]" * 5000 + b"\n\ndata: [DONE]\n\n")


def a_count_of_many_digits(handler: Handler) -> None:
    handler.wfile.write(
        chunk("x") + b'data: {"usage": {"completion_tokens": ' + b"9" * 5000 + b"}}\n\ndata: [DONE]\n\n"
    )


def a_huge_count(handler: Handler) -> None:
    handler.wfile.write(
        chunk("x") + b'data: {"usage": {"completion_tokens": 1' + b"0" * 300 + b"}}\n\ndata: [DONE]\n\n"
    )


def packed(handler: Handler) -> None:
    handler.wfile.write(gzip.compress(bytes(200 << 20)))


def metrics_without_an_end(handler: Handler) -> None:
    for _ in range(3000):
        handler.wfile.write(MIB)


def metrics_that_hang(handler: Handler) -> None:
    time.sleep(60)


CHATS = (
    a_line_without_an_end, a_flood_of_events, choices_are_a_number, deep_json, a_count_of_many_digits, a_huge_count,
    packed,
)  # fmt: skip


@contextlib.contextmanager
def engine(chat: Callable[[Handler], None], metrics: Callable[[Handler], None] | None = None) -> Iterator[str]:
    """An engine whose second answer and whose /metrics are as given; its first answer is well."""
    answered = []

    class Answers(Handler):
        def do_GET(self) -> None:
            if metrics is None or self.path != "/metrics":
                return self.send_error(404)
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                metrics(self)
            return None

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if not self.path.endswith("/chat/completions"):
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            answered.append(1)
            if chat is packed and len(answered) == 3:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            with contextlib.suppress(OSError):
                (chat if len(answered) == 3 else well)(self)
            return None

        def log_message(self, *given: Any) -> None:
            pass

    with served(Answers) as url:
        yield url


def measured(url: str, tmp_path: Path, figure: Callable[[str], None], name: str) -> dict[str, Any]:
    words = ["bench", "--base-url", url, "--model", "m", "--num-prompts", "4", "--timeout", "6", "--result", "r.json"]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", WITH_PEAK, *words, "--max-concurrency", "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    seconds, peak = time.monotonic() - begun, int(done.stderr.rpartition("peak ")[2])
    figure(f"bench, {name}: {seconds:.1f} s, {peak} MB, status {done.returncode}")
    assert "Traceback" not in done.stderr, done.stderr
    assert peak < 300
    assert seconds < 35, "20 s of ours, on a machine that does other work as well"
    result: dict[str, Any] = json.loads((tmp_path / "r.json").read_text())
    return result


@pytest.mark.parametrize("chat", CHATS, ids=lambda chat: chat.__name__)
def test_an_answer_that_is_none_costs_one_request(
    chat: Callable[[Handler], None], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    with engine(chat) as url:
        result = measured(url, tmp_path, figure, chat.__name__)
    statuses = [request["status"] for request in result["requests"]]
    assert statuses.count("ok") == len(statuses) - 1 >= 3


@pytest.mark.parametrize("metrics", [metrics_without_an_end, metrics_that_hang], ids=lambda one: one.__name__)
def test_counters_that_do_not_come(
    metrics: Callable[[Handler], None], tmp_path: Path, figure: Callable[[str], None]
) -> None:
    with engine(well, metrics) as url:
        result = measured(url, tmp_path, figure, metrics.__name__)
    assert {request["status"] for request in result["requests"]} == {"ok"}
