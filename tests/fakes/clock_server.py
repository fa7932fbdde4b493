"""An OpenAI-compatible server of known clock, in a process of its own.

It answers every chat request with chunks at exact times after the request arrived, and keeps its own
record of when it really sent them, so that a client's readings can be compared with the truth.
A plain asyncio protocol: at 64 streams a web framework's own work would blur the clock.

Times are seconds of ``time.perf_counter``, which on Linux is one clock for all processes.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from tests.fakes.in_process import in_process, options_and_port, serve


@dataclass(frozen=True)
class Clock:
    """What the server does. Times in milliseconds; "every N" counts chat requests from 1, 0 is never."""

    ttft_ms: float = 200.0
    interval_ms: float = 40.0
    noise_sd: float = 0.0  # of each answer's interval, as a logarithm: an engine is no clock
    seed: int = 0  # of that noise
    tokens_per_chunk: int = 3
    tokens: int = 120
    role_chunk: bool = False  # an early chunk with the role and no token, as vLLM and llama.cpp send
    usage: str = "once"  # once | never | twice | zero
    usage_factor: float = 1.0  # what usage says, as a share of the tokens that were made
    hidden_tokens: int = 0  # tokens that usage counts and that are never sent
    tokenizer: bool = False  # has /tokenize
    one_piece_every: int = 0  # all chunks at once, at the time of the last
    reasoning_tokens: int = 0
    reasoning_field: str = "reasoning_content"
    tool_calls: bool = False
    finish_delay_ms: float = 0.0  # between the last token and the closing chunks
    fail_every: int = 0
    cut_every: int = 0
    quiet_cut_every: int = 0  # the stream ends in good form, but half-way and without [DONE]
    undone_every: int = 0  # all of it came, the finish_reason and usage too, but no [DONE]
    empty_every: int = 0
    stall_every: int = 0  # nothing more after half of the chunks, and the connection stays open
    error_every: int = 0  # an error inside a stream that began with 200
    plain: bool = False  # ignores "stream" and answers with one JSON document
    split_bytes: int = 0  # writes are cut into pieces of this size: no event arrives whole
    # What a test does at a certain request, so that no thread of its own has to be quick enough:
    holds_from: int = 0  # this one and all behind it wait for GET /release
    stops_at: int = 0  # the process stops itself (SIGSTOP)
    dies_at: int = 0  # the process ends itself (SIGKILL)
    dies_of: str = ""  # ... where only requests count that begin like this
    metrics: str = "none"  # none | vllm | llamacpp | other
    drafted: int = 0  # draft tokens a chunk; tokens_per_chunk - 1 of them are accepted
    timings: bool = False  # llama.cpp's timings in the last chunk
    avg_decoded: bool = False  # TensorRT-LLM's avg_decoded_tokens_per_iter in every choice
    spec_metrics: bool = False  # vLLM's per-request metrics in the usage chunk
    key: str = ""
    metrics_key: str = ""


@dataclass
class State:
    """What has happened so far."""

    clock: Clock
    record: list[dict[str, Any]] = field(default_factory=list)
    drafts: int = 0
    running: int = 0
    most_running: int = 0
    mortal: int = 0  # requests that begin as ``dies_of`` says
    held: list[Callable[[float], None]] = field(default_factory=list)

    def metrics(self) -> str:
        """The counters as the engine of that dialect writes them."""
        clock = self.clock
        accepted = min(clock.tokens_per_chunk - 1, clock.drafted)
        values = {
            "num_drafts": self.drafts,
            "num_draft_tokens": self.drafts * clock.drafted,
            "num_accepted_tokens": self.drafts * accepted,
        }
        labels = '{engine="0",model_name="clock"}' if clock.metrics == "vllm" else ""
        prefix = {"vllm": "vllm", "llamacpp": "llamacpp"}.get(clock.metrics, "other")
        lines = [f"# TYPE {prefix}:requests counter", f"{prefix}:requests_total{labels} {len(self.record)}"]
        if clock.drafted:
            lines += [f"{prefix}:spec_decode_{name}_total{labels} {value}" for name, value in values.items()]
            for position in range(clock.drafted):
                inner = f'engine="0",model_name="clock",position="{position}"' if labels else f'position="{position}"'
                moved = self.drafts if position < accepted else 0
                lines.append(f"{prefix}:spec_decode_num_accepted_tokens_per_pos_total{{{inner}}} {float(moved)}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Stream:
    """One answer under way: how many tokens each chunk has, when the first and the end are due, and how far apart."""

    entry: dict[str, Any]
    steps: list[int]
    total: int
    due: float
    end: float
    interval_s: float
    finish: Callable[[], None]


class Connection(asyncio.Protocol):
    """One client connection; requests one after the other."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.buffer = b""
        self.transport: asyncio.Transport
        self.timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.state.running -= 1

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        self.answer(first.split(" ")[1], headers, rest[:length], now)

    def answer(self, path: str, headers: dict[str, str], body: bytes, now: float) -> None:
        clock = self.state.clock
        given = headers.get("authorization", "")
        if path == "/record":
            document = {"requests": self.state.record, "most_running": self.state.most_running}
            return self.send(200, json.dumps(document), "application/json")
        if path == "/reset":
            self.state.record.clear()
            return self.send(200, "{}", "application/json")
        if path.startswith("/change?"):
            self.state.clock = replace(clock, **json.loads(unquote(path.partition("?")[2])))
            self.state.mortal = 0
            return self.send(200, "{}", "application/json")
        if path == "/release":
            self.state.clock = replace(clock, holds_from=0)
            for go_on in self.state.held:
                go_on(now)
            self.state.held.clear()
            return self.send(200, "{}", "application/json")
        if path == "/metrics":
            if clock.metrics == "none":
                return self.send(404, "{}", "application/json")
            if clock.metrics_key and given != f"Bearer {clock.metrics_key}":
                return self.send(401, '{"error":{"message":"Invalid API Key"}}', "application/json")
            return self.send(200, self.state.metrics(), "text/plain; version=0.0.4")
        if clock.key and given != f"Bearer {clock.key}":
            # As some gateways do: the message repeats the key it was given.
            message = json.dumps({"error": {"message": f"Incorrect API key provided: {given}"}})
            return self.send(401, message, "application/json")
        if path == "/v1/models":
            return self.send(200, json.dumps({"data": [{"id": "clock"}]}), "application/json")
        if path == "/v1/chat/completions":
            return self.chat(json.loads(body), headers, now)
        if path == "/tokenize" and clock.tokenizer:
            return self.send(200, json.dumps({"tokens": json.loads(body)["content"].split()}), "application/json")
        return self.send(404, "{}", "application/json")

    def send(self, status: int, text: str, kind: str) -> None:
        data = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.transport.write(head.encode() + data)

    def chat(self, request: dict[str, Any], headers: dict[str, str], now: float) -> None:
        clock = self.state.clock
        entry = {
            "received_s": now,
            "sent_s": [],
            "request": request,
            "connection": headers.get("connection", ""),
        }
        self.state.record.append(entry)
        number = len(self.state.record)
        self.state.mortal += str(request["messages"][0]["content"]).startswith(clock.dies_of)
        if clock.dies_at and self.state.mortal >= clock.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == clock.stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)
        if 0 < clock.holds_from <= number:
            self.state.held.append(partial(self.stream, request, entry, number))
        else:
            self.stream(request, entry, number, now)

    def stream(self, request: dict[str, Any], entry: dict[str, Any], number: int, now: float) -> None:
        clock = self.state.clock

        def turn(every: int) -> bool:
            return every > 0 and number % every == 0

        if turn(clock.fail_every):
            return self.send(500, '{"error":{"message":"the server made this up"}}', "application/json")
        if clock.plain:
            document = {"choices": [{"message": {"content": "all at once"}, "finish_reason": "stop"}]}
            return self.send(200, json.dumps(document), "application/json")
        total = min(self.length(request), int(request.get("max_tokens", clock.tokens)))
        counts = [clock.tokens_per_chunk] * (total // clock.tokens_per_chunk)
        noise = math.exp(random.Random(f"{clock.seed} {number}").gauss(0.0, clock.noise_sd))
        interval_s = clock.interval_ms / 1000 * noise * self.slowness(request)
        if turn(clock.one_piece_every):
            now, counts = now + len(counts) * interval_s, [total]
        elif total % clock.tokens_per_chunk:
            counts.append(total % clock.tokens_per_chunk)
        if turn(clock.empty_every):
            counts = []
        half = any(turn(e) for e in (clock.cut_every, clock.quiet_cut_every, clock.stall_every, clock.error_every))
        steps = counts[: len(counts) // 2] if half else counts
        self.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if clock.role_chunk:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        self.state.running += 1
        self.state.most_running = max(self.state.most_running, self.state.running)
        due = now + clock.ttft_ms / 1000
        end = due + max(len(steps) - 1, 0) * interval_s + clock.finish_delay_ms / 1000
        if turn(clock.cut_every):
            finish: Callable[[], None] = self.transport.abort
        elif turn(clock.quiet_cut_every):
            finish = self.end
        elif turn(clock.error_every):
            finish = self.break_off
        elif turn(clock.stall_every):
            finish = self.stall
        else:
            finish = partial(self.close_stream, total if counts else 0, len(counts), done=not turn(clock.undone_every))
        self.at(due, partial(self.step, Stream(entry, steps, total, due, end, interval_s, finish), 0))

    def at(self, when: float, what: Callable[[], None]) -> None:
        # The loop's clock and perf_counter are both CLOCK_MONOTONIC on Linux. One timer a stream, each
        # setting the next: setting all of them at once would itself delay the streams beside it.
        self.timer = asyncio.get_running_loop().call_at(when, what)

    def step(self, stream: Stream, number: int) -> None:
        clock = self.state.clock
        if number < len(stream.steps):
            self.tokens(stream.entry, number * clock.tokens_per_chunk, stream.steps[number], stream.total)
            number += 1
        if number < len(stream.steps):
            self.at(stream.due + number * stream.interval_s, partial(self.step, stream, number))
        elif clock.finish_delay_ms:
            self.at(stream.end, stream.finish)
        else:
            stream.finish()

    def tokens(self, entry: dict[str, Any], first: int, count: int, total: int) -> None:
        clock = self.state.clock
        words = self.text(entry["request"], first, count)
        delta: dict[str, Any] = {"content": words}
        if first < clock.reasoning_tokens:
            delta = {clock.reasoning_field: words}
        elif clock.tool_calls:
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": words}}]}
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        if clock.avg_decoded:
            choice["avg_decoded_tokens_per_iter"] = round(total / -(-total // clock.tokens_per_chunk), 4)
        entry["sent_s"].append(time.perf_counter())
        if clock.drafted:
            self.state.drafts += 1
        self.event({"id": "chatcmpl-clock", "object": "chat.completion.chunk", "model": "clock", "choices": [choice]})

    def length(self, request: dict[str, Any]) -> int:
        return self.state.clock.tokens

    def slowness(self, request: dict[str, Any]) -> float:
        return 1.0

    def text(self, request: dict[str, Any], first: int, count: int) -> str:
        return "".join(f" w{number}" for number in range(first, first + count))

    def stall(self) -> None:
        """Send nothing more and keep the connection open."""

    def break_off(self) -> None:
        self.event({"error": {"message": "the engine gave up", "code": 500}})
        self.end()

    def close_stream(self, total: int, steps: int, done: bool = True) -> None:
        clock = self.state.clock
        last: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
        accepted = min(clock.tokens_per_chunk - 1, clock.drafted)
        if clock.timings:
            last["timings"] = {"predicted_n": total, "prompt_n": 11}
            if clock.drafted:
                last["timings"] |= {"draft_n": steps * clock.drafted, "draft_n_accepted": steps * accepted}
        self.event(last)
        if clock.usage != "never":
            count = 0 if clock.usage == "zero" else round((total + clock.hidden_tokens) * clock.usage_factor)
            tail: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": count}}
            if clock.spec_metrics:
                histogram = [0] * (clock.drafted + 1)
                histogram[accepted] = steps
                tail["metrics"] = {
                    "speculative_decoding": {
                        "num_spec_steps": steps,
                        "num_draft_tokens": steps * clock.drafted,
                        "num_accepted_draft_tokens": steps * accepted,
                        "acceptance_histogram": histogram,
                    }
                }
            for _ in range(2 if clock.usage == "twice" else 1):
                self.event(tail)
        if done:
            self.chunk(b"data: [DONE]\n\n")
        self.end()

    def end(self) -> None:
        self.write(b"0\r\n\r\n")
        self.timer = None
        self.state.running -= 1

    def event(self, data: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        size = self.state.clock.split_bytes or len(data)
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            self.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


class Running:
    """A clock server that runs; ask it what it did."""

    def __init__(self, base_url: str, pid: int) -> None:
        self.base_url = base_url
        self.pid = pid

    def get(self, path: str) -> Any:
        with urlopen(Request(self.base_url + path), timeout=60) as answer:
            return json.load(answer)

    def record(self) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = self.get("/record")["requests"]
        return requests

    def most_running(self) -> int:
        return int(self.get("/record")["most_running"])

    def reset(self) -> None:
        self.get("/reset")

    def change(self, **options: Any) -> None:
        """Have it go on with these options of `Clock`."""
        self.get(f"/change?{quote(json.dumps(options))}")

    def release(self) -> None:
        """Let go what it holds, and hold nothing more."""
        self.get("/release")


@contextmanager
def clock_server(**options: Any) -> Iterator[Running]:
    """Start a server with these options of `Clock` on a free port of loopback, and stop it at the end."""
    with in_process("tests.fakes.clock_server", options) as (base_url, pid):
        yield Running(base_url, pid)


def main() -> None:
    """Read the options, and serve."""
    clock, port = options_and_port(Clock, __doc__)
    state = State(clock)
    asyncio.run(serve(lambda: Connection(state), port))


if __name__ == "__main__":
    main()
