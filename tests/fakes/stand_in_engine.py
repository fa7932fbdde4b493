#!/usr/bin/env python3
"""A llama-server of known clock that computes nothing: what many boxes cost can be measured without their engines.

    stand_in_engine.py --alias NAME --port N --api-key-file FILE [--spec-type METHOD ...]

It answers as llama.cpp does: a token every 6 ms, or every 3 ms with speculation, counted as llama.cpp counts. Standard
library only: it is copied onto a box.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 20


class Engine:
    """What it was started as, and what it has counted."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--alias")
        parser.add_argument("--port", action="append", type=int)
        parser.add_argument("--api-key-file", type=Path)
        parser.add_argument("--spec-type")
        given, _ = parser.parse_known_args()
        self.name, self.port, self.drafts = given.alias, given.port[-1], bool(given.spec_type)
        self.key = given.api_key_file.read_text().strip()
        self.tpot_s = 0.003 if self.drafts else 0.006
        self.lock, self.asked, self.made = threading.Lock(), 0, 0

    def counts(self, tokens: int) -> dict[str, int]:
        """Return llama.cpp's timings of an answer, and add it to the counters."""
        with self.lock:
            self.asked, self.made = self.asked + 1, self.made + tokens
        return {"predicted_n": tokens, "prompt_n": PROMPT_TOKENS, **self.drafted(tokens)}

    def drafted(self, tokens: int) -> dict[str, int]:
        return {"draft_n": tokens, "draft_n_accepted": tokens // 2} if self.drafts else {}

    def metrics(self) -> str:
        drafted = self.drafted(self.made)
        values = {
            "prompt_tokens_total": self.asked * PROMPT_TOKENS,
            "tokens_predicted_total": self.made,
            "requests_processing": 0,
            "requests_deferred": 0,
            "spec_decode_num_drafts_total": drafted.get("draft_n", 0) // 2,
            "spec_decode_num_draft_tokens_total": drafted.get("draft_n", 0),
            "spec_decode_num_accepted_tokens_total": drafted.get("draft_n_accepted", 0),
        }
        return "".join(f"llamacpp:{name} {value}\n" for name, value in values.items())


ENGINE = Engine()


class Handler(BaseHTTPRequestHandler):
    """One client connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            return self.say({"status": "ok"})
        if self.headers.get("Authorization") != f"Bearer {ENGINE.key}":
            return self.say({"error": {"message": "Invalid API Key"}}, 401)
        if self.path == "/metrics":
            return self.say(ENGINE.metrics())
        if self.path == "/slots":
            return self.say([{"id": 0, "speculative": ENGINE.drafts}])
        return self.say({"data": [{"id": ENGINE.name}]}, 200 if self.path == "/v1/models" else 404)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != f"Bearer {ENGINE.key}":
            return self.say({"error": {"message": "Invalid API Key"}}, 401)
        if self.path != "/v1/chat/completions":
            return self.say({"error": {"message": "not found"}}, 404)
        tokens = int(asked.get("max_tokens") or 64)
        words = [f" w{number}" for number in range(tokens)]
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
        whole = {"model": ENGINE.name, "usage": usage}
        if not asked.get("stream"):
            time.sleep(tokens * ENGINE.tpot_s)
            message = {"role": "assistant", "content": "".join(words)}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            return self.say({**whole, "choices": [choice], "timings": ENGINE.counts(tokens)})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begun = time.monotonic()
        for number, word in enumerate(words, 1):
            time.sleep(max(0.0, begun + number * ENGINE.tpot_s - time.monotonic()))
            self.event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        self.event({**whole, "choices": [], "timings": ENGINE.counts(tokens)})
        self.chunk(b"data: [DONE]\n\n")
        return self.chunk(b"")

    def event(self, document: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def say(self, what: object, status: int = 200) -> None:
        data = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(what, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: Any) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", ENGINE.port), Handler).serve_forever()
