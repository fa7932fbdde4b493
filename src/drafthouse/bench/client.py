"""Streaming chat requests with exact clocks: one request, or many in a closed or an open loop.

While streams run, only arrival times and raw bytes are kept; they are read after the whole loop has
ended. That is what keeps the clock true at hundreds of streams. Measured on one core: 512 requests of
200 tokens, 256 at a time (12,800 chunks a second), take 3 CPU seconds and 63 MB, and a TTFT of 500 ms
reads 505 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
import zlib
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp

from ..core.bounded import CHAT_BYTES, CHAT_BYTES_PER_TOKEN, MIB
from ..core.plain_text import without_passwords
from ..core.retry import asked_to_wait
from .ask import Ask
from .outcome import CUT_OFF, EMPTY, FAILED, NO_USAGE, OK, REDIRECTS, STATUSES
from .raw_request import raw_request
from .sse import says_done

#: How long the server may take to accept a connection, in seconds.
CONNECT_TIMEOUT_S = 10.0
#: How long one request waits, all its 429 together, when the server says when to come back; and at least, each time.
RETRY_AFTER_S, LEAST_RETRY_S = 60.0, 0.1
#: How long a server may take to end its answer after `[DONE]`, in seconds; the connection is closed then.
GRACE_S = 0.2
#: How often an open loop asks whether it shall end, in seconds.
UNTIL_EVERY_S = 0.1

_DONE, _SHORT = b"[DONE]", 24

# What others read from here.
__all__ = [
    "CUT_OFF", "EMPTY", "FAILED", "NO_USAGE", "OK", "STATUSES",
    "Ask", "Endpoint", "Recording", "closed_loop", "open_loop", "open_session", "raw_request", "send",
]  # fmt: skip


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
    asks: str = ""
    """The field of a request with which this engine tells of drafting in its answer."""
    ca_pem: str | None = field(default=None, repr=False)
    """The certificates that are trusted, in place of the system's: of a server that signed its own."""

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
        if not self.api_key:
            return {}
        return {"Authorization": f"Bearer {self.api_key}"}

    def without_key(self, text: str) -> str:
        """``text`` without the key, which some gateways repeat in their errors, and without passwords of URLs."""
        if self.api_key:
            text = text.replace(self.api_key, "(key)")
        return without_passwords(text)


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
    """Whether the answer came to its end: a stream to its `[DONE]`."""
    location: str | None = None
    """Where the server redirects to."""
    encoding: str = ""
    """How the body is compressed, where that was not asked for and cannot be undone here."""
    throttled: int = 0
    """How often the server said 429 and when to come back; the clock is that of the last attempt."""
    throttled_s: float = 0.0
    """How long was waited for that, in all."""
    body: bytearray = field(default_factory=bytearray)
    # Arrays and not lists: 16 bytes a read, and nothing for the garbage collector to walk over.
    times_s: array[float] = field(default_factory=lambda: array("d"))
    ends: array[int] = field(default_factory=lambda: array("Q"))


async def _note_sent(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestChunkSentParams
) -> None:
    """Start the clock: aiohttp calls this right before it hands the request to the socket."""
    context.trace_request_ctx.sent_s = time.perf_counter()


def open_session(timeout_s: float, ca_pem: str | None = None) -> aiohttp.ClientSession:
    """A session for `send`; ``timeout_s`` is for one whole request, ``ca_pem`` what alone is trusted.

    Each request has a connection of its own: an idle one could be closed by the server just as it is
    reused (a failure that is not the engine's), and holds one of llama.cpp's few HTTP threads. Connecting
    is before the clock.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(_note_sent)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, force_close=True, ssl=ssl.create_default_context(cadata=ca_pem) if ca_pem else True
        ),
        timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S),
        trace_configs=[trace],
        auto_decompress=False,
        # A proxy from the environment would be in the way of every number.
        trust_env=False,
    )


async def send(session: aiohttp.ClientSession, endpoint: Endpoint, ask: Ask) -> Recording:
    """Send one request and record its stream. Never raises, except when it is cancelled.

    The answer ends with `[DONE]`, whether or not the server closes the connection then. A server that says 429 and when
    to come back is asked again then (RFC 9110, `Retry-After`), while that is no more than `RETRY_AFTER_S` in all. A
    redirect is not followed: the key would go with it, and the numbers would be another server's.
    """
    record = Recording(ask, began_s=time.perf_counter())
    sent = json.dumps({**ask.body(endpoint.model), **dict.fromkeys(endpoint.asks.split(), True)}).encode()
    try:
        while (wait_s := await _exchange(session, endpoint, sent, record)) is not None:
            record.throttled += 1
            record.throttled_s += wait_s
            await asyncio.sleep(wait_s)
            record.body, record.times_s, record.ends = bytearray(), array("d"), array("Q")
    except asyncio.TimeoutError:  # a class of its own on Python 3.10, which boxes may run
        record.error = "the request timed out"
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
        record.error = f"{type(error).__name__}: {error}"
    record.ended_s = record.ended_s or time.perf_counter()
    return record


async def _exchange(session: aiohttp.ClientSession, endpoint: Endpoint, sent: bytes, record: Recording) -> float | None:
    """Send the request once; return after how many seconds to send it again, None where this was the answer."""
    clock, note_time, note_end, body = time.perf_counter, record.times_s.append, record.ends.append, record.body
    async with session.post(
        endpoint.chat_url,
        data=sent,
        headers={
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if record.ask.stream else "application/json",
            "Accept-Encoding": "identity",
            **endpoint.headers,
        },
        allow_redirects=False,
        trace_request_ctx=record,
    ) as response:
        record.http_status = response.status
        record.stream = response.content_type == "text/event-stream"
        record.location = response.headers.get("Location") if response.status in REDIRECTS else None
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        most = CHAT_BYTES + CHAT_BYTES_PER_TOKEN * record.ask.output_tokens
        unpack = _unpacker(encoding, most)
        record.encoding = "" if unpack else encoding.replace("identity", "")
        content = response.content
        while data := await content.readany():
            if unpack is not None and not (data := unpack(data)):
                continue
            note_time(clock())
            body += data
            note_end(len(body))
            if len(body) > most:
                # It would never end, and readany without a pause leaves the time-out no chance.
                record.error = f"an answer of more than {most / MIB:.0f} MiB to a request of that length"
                response.close()
                return None
            # A read as short as that may be the rest of it.
            if (_DONE in data or len(data) < _SHORT) and record.stream and says_done(body, len(data)):
                record.ended_s = clock()
                record.whole = True
                await _drain(content)
                response.close()
                return None
        # Only `[DONE]` ends a stream: what closes in good form before it was given up by a proxy, or by its engine.
        record.whole = not record.stream or says_done(body, len(body))
        wait_s = asked_to_wait(response.headers) if response.status == 429 else None
        if wait_s is not None:
            wait_s = max(wait_s, LEAST_RETRY_S)
            if record.throttled_s + wait_s <= RETRY_AFTER_S:
                return wait_s
            record.error = f"the server asked for a retry in {wait_s:,.0f} s; the limit is {RETRY_AFTER_S:.0f} s"
    return None


async def _drain(content: aiohttp.StreamReader) -> None:
    """Let the server end its answer in good form, for a moment: some never do."""

    async def rest() -> None:
        while await content.readany():
            pass

    if not content.at_eof():
        with contextlib.suppress(asyncio.TimeoutError, aiohttp.ClientError, OSError):
            await asyncio.wait_for(rest(), GRACE_S)


def _unpacker(encoding: str, most: int) -> Callable[[bytes], bytes] | None:
    """What undoes a compression as the stream comes, a piece to just more than ``most`` bytes; None for none known."""
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    # 32: the header says whether it is gzip's or zlib's (zlib.decompressobj).
    packed = zlib.decompressobj(32 + zlib.MAX_WBITS)
    return lambda data: packed.decompress(data, most + 1)


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
