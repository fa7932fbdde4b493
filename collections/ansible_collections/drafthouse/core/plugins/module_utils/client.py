"""Streaming chat requests with exact clocks: one request, or many in a closed or an open loop.

While streams run, only arrival times and raw bytes are kept; they are read after the whole loop has
ended. That is what keeps the clock true at hundreds of streams. Measured on one core: 512 requests of
200 tokens, 256 at a time (12,800 chunks a second), take 3 CPU seconds and 63 MB, and a TTFT of 500 ms
reads 505 ms.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import aiohttp

from .sse import Answer, read_answer, split_events

#: How long the server may take to accept a connection, in seconds.
CONNECT_TIMEOUT_S = 10.0
#: How much of a server's error message is kept.
MESSAGE_CHARACTERS = 300
#: How often an open loop asks whether it shall end, in seconds.
UNTIL_EVERY_S = 0.1

OK, FAILED, CUT_OFF, EMPTY, NO_USAGE = "ok", "failed", "cut_off", "empty", "no_usage"
#: How a request can end. Only "ok" is ever averaged.
STATUSES = (OK, FAILED, CUT_OFF, EMPTY, NO_USAGE)


@dataclass(frozen=True)
class Endpoint:
    """One server of an experiment. The key stays out of every output."""

    arm: str
    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    metrics_url: str | None = None
    metrics_path: str = "/metrics"
    """Where this engine has its counters. trtllm-serve's /metrics is JSON, and empty once read: never that one."""

    @property
    def root(self) -> str:
        """The address without `/v1`: both spellings of a base URL are common."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def chat_url(self) -> str:
        """Where chat requests go."""
        return f"{self.root}/v1/chat/completions"

    @property
    def counters_url(self) -> str:
        """Where the engine's counters stand."""
        return self.metrics_url or f"{self.root}{self.metrics_path}"

    @property
    def headers(self) -> dict[str, str]:
        """The header that carries the key, or none."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def without_key(self, text: str) -> str:
        """Return ``text`` with the key taken out: some gateways repeat it in their errors."""
        return text.replace(self.api_key, "(key)") if self.api_key else text


@dataclass(frozen=True)
class Ask:
    """One request to be sent."""

    suite: str
    kind: str
    group: str
    prompt_id: str
    messages: Sequence[Mapping[str, Any]]
    output_tokens: int
    temperature: float = 0.0
    round: int = 1
    seed: int | None = None
    ignore_eos: bool = False
    tools: Sequence[Mapping[str, Any]] | None = None
    response_format: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    """Further fields of the request: tool_choice, chat_template_kwargs, ..."""
    gate: Mapping[str, Any] | None = None
    """What the answer is checked for later; it is not sent."""

    def body(self, model: str) -> dict[str, Any]:
        """Return the request as the server reads it."""
        body: dict[str, Any] = {
            "model": model,
            "messages": list(self.messages),
            "max_tokens": self.output_tokens,
            "temperature": self.temperature,
            "stream": True,
            # Tokens are counted by the server: with speculation one chunk carries several.
            "stream_options": {"include_usage": True},
        }
        if self.seed is not None:
            body["seed"] = self.seed
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.tools:
            body["tools"] = list(self.tools)
        if self.response_format:
            body["response_format"] = dict(self.response_format)
        return {**body, **(self.extra or {})}


@dataclass
class Recording:
    """The raw trace of one request; times in seconds of ``time.perf_counter``."""

    ask: Ask
    began_s: float = 0.0
    sent_s: float | None = None
    due_s: float | None = None
    """When it was to be sent, in an open loop."""
    ended_s: float = 0.0
    http_status: int | None = None
    stream: bool = False
    error: str | None = None
    whole: bool = False
    body: bytearray = field(default_factory=bytearray)
    # Arrays and not lists: 12 bytes a read, and nothing for the garbage collector to walk over.
    times_s: array[float] = field(default_factory=lambda: array("d"))
    ends: array[int] = field(default_factory=lambda: array("Q"))


async def _note_sent(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestChunkSentParams
) -> None:
    """Start the clock: aiohttp calls this right before it hands the request to the socket."""
    context.trace_request_ctx.sent_s = time.perf_counter()


def open_session(timeout_s: float) -> aiohttp.ClientSession:
    """Return a session for `send`; ``timeout_s`` is for one whole request.

    Each request has a connection of its own: an idle one could be closed by the server just as it is
    reused (a failure that is not the engine's), and holds one of llama.cpp's few HTTP threads. Connecting
    is before the clock.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_note_sent)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        trace_configs=[trace],
        auto_decompress=False,
        # A proxy from the environment would be in the way of every number.
        trust_env=False,
    )


async def send(session: aiohttp.ClientSession, endpoint: Endpoint, ask: Ask) -> Recording:
    """Send one request and record its stream. Never raises, except when it is cancelled."""
    record = Recording(ask, began_s=time.perf_counter())
    clock, note_time, note_end, body = (
        time.perf_counter,
        record.times_s.append,
        record.ends.append,
        record.body,
    )
    try:
        async with session.post(
            endpoint.chat_url,
            data=json.dumps(ask.body(endpoint.model)).encode(),
            headers={
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                **endpoint.headers,
            },
            trace_request_ctx=record,
        ) as response:
            record.http_status = response.status
            record.stream = response.content_type == "text/event-stream"
            content = response.content
            while data := await content.readany():
                note_time(clock())
                body += data
                note_end(len(body))
            record.whole = True
    except asyncio.TimeoutError:  # a class of its own on Python 3.10, which boxes may run
        record.error = "the time for the request was up"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        record.error = f"{type(error).__name__}: {error}"
    record.ended_s = clock()
    return record


def _never() -> bool:
    return False


async def closed_loop(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    asks: Iterable[Ask],
    max_concurrency: int,
    on_done: Callable[[Recording], None] = lambda record: None,
    until: Callable[[], bool] = _never,
) -> list[Recording]:
    """Send all requests, never more than ``max_concurrency`` at once; the next starts as one ends.

    ``asks`` may be without end: once ``until`` says so, no further request begins, and those that run are
    finished. The recordings come in the order of ``asks``. ``on_done`` is called as each request ends: it runs
    between the streams, so it has to be quick, and so has ``until``.
    """
    waiting = enumerate(asks)
    done: dict[int, Recording] = {}

    async def worker() -> None:
        while not until() and (numbered := next(waiting, None)) is not None:
            number, ask = numbered
            done[number] = await send(session, endpoint, ask)
            on_done(done[number])

    await asyncio.gather(*(worker() for _ in range(max_concurrency)))
    return [done[number] for number in sorted(done)]


async def open_loop(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    asks: Iterable[Ask],
    gaps_s: Iterable[float],
    on_done: Callable[[Recording], None] = lambda record: None,
    until: Callable[[], bool] = _never,
) -> list[Recording]:
    """Begin a request after each gap (seconds), however many still run; finish all of them.

    It ends with ``asks``, with ``gaps_s``, or when ``until`` says so, which is asked at least every 0.1 s. A
    moment that was missed is not waited for again: the next gap counts from when the request was due, so that
    a slow server does not slow its own load down. The recordings come in the order of their beginning, each
    with ``due_s``.
    """
    waiting = iter(asks)
    done: dict[int, Recording] = {}
    running: set[asyncio.Task[None]] = set()

    async def one(number: int, ask: Ask, due_s: float) -> None:
        record = await send(session, endpoint, ask)
        record.due_s = due_s
        done[number] = record
        on_done(record)

    due_s = time.perf_counter()
    try:
        for number, gap_s in enumerate(gaps_s):
            due_s += gap_s
            while not until() and (left_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(min(left_s, UNTIL_EVERY_S))
            if until() or (ask := next(waiting, None)) is None:
                break
            task = asyncio.create_task(one(number, ask, due_s))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
    return [done[number] for number in sorted(done)]


def raw_request(record: Recording, endpoint: Endpoint, zero_s: float) -> dict[str, Any]:
    """Return what happened in one request, as plain data.

    ``zero_s`` is the run's start on the client's clock. With t_n the arrival of the n-th chunk that
    carried tokens and N the server's own count of output tokens:
    TTFT = t_first - sent; E2E = t_last - sent; TPOT = (E2E - TTFT) / (N - 1); ITL = the gaps between
    chunks with tokens (vLLM's definitions, `vllm/benchmarks/serve.py`; with speculation a chunk carries
    several tokens, so ITL is not TPOT). Each is None where it is not known.
    """
    events = split_events(bytes(record.body), record.times_s, record.ends) if record.stream else []
    answer = read_answer(events)
    status, error = _outcome(record, answer, endpoint)
    sent_s = record.sent_s if record.sent_s is not None else record.began_s
    times = answer.token_times_s
    ttft = (times[0] - sent_s) * 1000 if times else None
    e2el = (times[-1] - sent_s) * 1000 if times else None
    tpot = None
    if ttft is not None and e2el is not None and answer.output_tokens and answer.output_tokens > 1:
        tpot = (e2el - ttft) / (answer.output_tokens - 1)
    ask = record.ask
    return {
        "prompt_id": ask.prompt_id,
        "kind": ask.kind,
        "suite": ask.suite,
        "group": ask.group,
        "round": ask.round,
        "temperature": ask.temperature,
        "status": status,
        "error": endpoint.without_key(error) if error else None,
        "http_status": record.http_status,
        "started_s": round(sent_s - zero_s, 6),
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "cached_tokens": answer.cached_tokens,
        "ttft_ms": ttft,
        "ttfat_ms": (answer.first_answer_s - sent_s) * 1000 if answer.first_answer_s is not None else None,
        "e2el_ms": e2el,
        "tpot_ms": tpot,
        "itls_ms": [round((after - before) * 1000, 4) for before, after in itertools.pairwise(times)],
        "chunks": len(times),
        "finish_reason": answer.finish_reason,
        "text": answer.text,
        "reasoning_text": answer.reasoning_text,
        "tool_calls": answer.tool_calls or None,
        # Characters of each piece: without speculation a piece is a token.
        "pieces": answer.reasoning_pieces + answer.text_pieces,
        "gate": dict(ask.gate) if ask.gate else None,
        "timings": answer.timings,
        "avg_decoded_tokens_per_iter": answer.avg_decoded_tokens_per_iter,
        "spec_metrics": answer.spec_metrics,
    }


def _outcome(record: Recording, answer: Answer, endpoint: Endpoint) -> tuple[str, str | None]:
    """Return how the request ended, and why when it did not end well."""

    def said() -> str:
        return _cut(_message(bytes(record.body)), endpoint) or record.error or "no text"

    if record.http_status is None:
        return FAILED, record.error or "no answer"
    if record.http_status != 200:
        return (
            FAILED,
            f"HTTP {record.http_status}: {said()}",
        )
    if not record.stream:
        return (
            FAILED,
            f"the answer is no event stream: {said()}",
        )
    if answer.error:
        return FAILED, f"an error inside the stream: {_cut(answer.error, endpoint)}"
    if not record.whole and not record.body:
        return FAILED, record.error
    if not record.whole and not answer.done:
        return CUT_OFF, record.error
    if not answer.done and answer.finish_reason is None:
        return CUT_OFF, "the stream ended without [DONE] and without a finish_reason"
    if not answer.token_times_s:
        return EMPTY, "the answer holds no token"
    if not answer.output_tokens:
        return NO_USAGE, f"the server counted {answer.output_tokens} output tokens (usage.completion_tokens)"
    return OK, None


def _message(body: bytes) -> str:
    """Return the readable part of an error document."""
    text = body.decode("utf-8", "replace").strip()
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if isinstance(document, dict):
        problem = document.get("error", document)
        message = problem.get("message") if isinstance(problem, dict) else problem
        text = str(message or text)
    return text


def _cut(text: str, endpoint: Endpoint) -> str:
    """Return as much of a server's message as is kept; the key goes first, for half of one would not be found."""
    return endpoint.without_key(text)[:MESSAGE_CHARACTERS]
