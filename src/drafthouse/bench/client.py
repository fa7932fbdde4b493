"""Send chat requests, streamed or not, with exact timing: one request, a closed loop or an open loop of requests.

A closed loop keeps a fixed number of requests running: when one ends, the next one starts. An open loop starts its
requests at given times, however many still run. While answers arrive, only arrival times and raw bytes are recorded.
They are parsed after the loop, so that parsing one answer does not delay the timing of another.

Measured on one core: 512 requests of 200 tokens, 256 at once (12,800 chunks per second), take 3 CPU seconds and 63 MB,
and a TTFT of 500 ms is measured as 505 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp

from ..core.bounded import CHAT_BYTES, CHAT_BYTES_PER_TOKEN, MIB
from ..core.plain_text import without_passwords
from ..core.retry import asked_to_wait
from .chat_request import ChatRequest
from .outcome import CUT_OFF, EMPTY, FAILED, NO_USAGE, OK, REDIRECTS, STATUSES
from .raw_request import raw_request
from .sse import says_done

#: Timeout of opening a connection, in seconds.
CONNECT_TIMEOUT_S = 10.0
#: The maximum time that a request waits in all for `Retry-After` of HTTP 429, in seconds.
MAX_RETRY_WAIT_S = 60.0
#: The minimum of a single wait for `Retry-After`, in seconds: endless `Retry-After: 0` would never reach the maximum.
MIN_RETRY_WAIT_S = 0.1
#: The time that a server has to close the connection after `[DONE]`, in seconds; then the client closes it.
CLOSE_GRACE_S = 0.2
#: Interval at which an open loop calls ``should_stop``, in seconds.
STOP_CHECK_S = 0.1

# The mark that ends a stream.
_DONE = b"[DONE]"
# The line `data: [DONE]` (12 bytes) may be split over two reads, so that neither has all of `[DONE]`. Its rest is
# shorter than this, so the end of the stream is looked for after each short read too.
_SHORT_BYTES = 24

# Names that other modules import from here, also those of the modules that this one builds on.
__all__ = [
    "CUT_OFF", "EMPTY", "FAILED", "NO_USAGE", "OK", "STATUSES",
    "ChatRequest", "Endpoint", "Recording", "closed_loop", "open_loop", "open_session", "raw_request", "send",
]  # fmt: skip


@dataclass(frozen=True)
class Endpoint:
    """A server under test. An arm is one of the compared servers, baseline or speculative."""

    arm: str
    base_url: str  # with or without a trailing `/v1`
    model: str  # the model's name in requests
    api_key: str | None = field(default=None, repr=False)  # None: the server needs none; never in any output
    metrics_url: str | None = None  # of the engine's Prometheus counters; None: ``metrics_path`` below the base URL
    metrics_path: str = "/metrics"  # trtllm-serve: /prometheus/metrics, as its /metrics is JSON and cleared by a read
    draft_fields: str = ""  # names, separated by spaces, of request fields that make answers report drafts
    ca_pem: str | None = field(default=None, repr=False)  # PEM certificates to trust instead of the system's

    @property
    def root(self) -> str:
        """The base URL without a trailing `/v1`; users write it with and without."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def chat_url(self) -> str:
        """URL of chat requests."""
        return f"{self.root}/v1/chat/completions"

    @property
    def counters_url(self) -> str:
        """URL of the engine's counters."""
        return self.metrics_url or f"{self.root}{self.metrics_path}"

    @property
    def headers(self) -> dict[str, str]:
        """The Authorization header with the API key; {} without a key."""
        if not self.api_key:
            return {}
        return {"Authorization": f"Bearer {self.api_key}"}

    def without_key(self, text: str) -> str:
        """``text`` without passwords in URLs and without the API key, which some gateways repeat in error messages."""
        if self.api_key:
            text = text.replace(self.api_key, "(key)")
        return without_passwords(text)


@dataclass
class Recording:
    """The raw trace of one request; times are seconds of ``time.perf_counter``.

    A request that was sent again after HTTP 429 has the answer and the times of its last attempt, except ``began_s``.
    """

    request: ChatRequest
    began_s: float = 0.0  # when `send` was called; connecting comes after it
    sent_s: float | None = None  # when the request was written to the socket; None: no connection
    due_s: float | None = None  # when an open loop was to send it; None: not from an open loop
    ended_s: float = 0.0  # when `[DONE]` arrived, else when the answer ended or failed
    http_status: int | None = None  # None: no response
    stream: bool = False  # True if the response was an event stream, whatever the request asked for
    error: str | None = None  # what went wrong, as the client saw it; None: nothing
    whole: bool = False  # True if the answer is complete: a stream up to its `[DONE]`, another body up to its end
    location: str | None = None  # the target of a redirect, which is not followed; None: no redirect
    encoding: str = ""  # the Content-Encoding of the body if this client does not support it; "" otherwise
    rate_limited: int = 0  # number of HTTP 429 answers after which the request was sent again
    rate_limited_s: float = 0.0  # sum of the waits after these, in seconds
    body: bytearray = field(default_factory=bytearray)
    # For each read from the socket: when it returned, and the length of ``body`` after it. Arrays take 16 bytes a read.
    times_s: array[float] = field(default_factory=lambda: array("d"))
    ends: array[int] = field(default_factory=lambda: array("Q"))


async def _note_sent(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceRequestChunkSentParams
) -> None:
    """Record the send time: aiohttp calls this right before it writes the request to the socket."""
    context.trace_request_ctx.sent_s = time.perf_counter()


def open_session(timeout_s: float, ca_pem: str | None = None) -> aiohttp.ClientSession:
    """A session for `send`. ``timeout_s`` limits a whole request; ``ca_pem`` replaces the system's certificates.

    Each request opens a new connection. The server might close a reused one just then, which would look like a failure
    of the engine, and an idle one occupies one of llama.cpp's few HTTP threads. Connecting is not part of the times.
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
        # A proxy from the environment would distort every measured time.
        trust_env=False,
    )


async def send(session: aiohttp.ClientSession, endpoint: Endpoint, request: ChatRequest) -> Recording:
    """Send one request and record its answer. Raises nothing except CancelledError; failures are in the recording.

    A stream ends with `[DONE]`, whether or not the server then closes the connection. After HTTP 429 with `Retry-After`
    (RFC 9110) the request is sent again, while the waits sum up to at most `MAX_RETRY_WAIT_S`. Redirects are not
    followed: they would forward the API key, and the numbers would belong to another server.
    """
    record = Recording(request, began_s=time.perf_counter())
    body = request.body(endpoint.model)
    for name in endpoint.draft_fields.split():
        body[name] = True
    payload = json.dumps(body).encode()
    try:
        while (wait_s := await _post(session, endpoint, payload, record)) is not None:
            # A new recording, which has nothing of the 429 answer but the wait.
            record = Recording(
                request,
                began_s=record.began_s,
                rate_limited=record.rate_limited + 1,
                rate_limited_s=record.rate_limited_s + wait_s,
            )
            await asyncio.sleep(wait_s)
    except asyncio.TimeoutError:  # not the builtin TimeoutError on Python 3.10, which servers may run
        record.error = "the request timed out"
    except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
        record.error = f"{type(error).__name__}: {error}"
    record.ended_s = record.ended_s or time.perf_counter()
    return record


async def _post(session: aiohttp.ClientSession, endpoint: Endpoint, payload: bytes, record: Recording) -> float | None:
    """Send the request once and record its answer; return the seconds to wait before a retry, None for no retry.

    A retry is due if the server asks for one (HTTP 429) and `_retry_wait_s` allows it. ``record.error`` is set if it
    does not allow it, or if the answer was too long.
    """
    async with session.post(
        endpoint.chat_url,
        data=payload,
        headers={
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if record.request.stream else "application/json",
            "Accept-Encoding": "identity",
            **endpoint.headers,
        },
        allow_redirects=False,
        trace_request_ctx=record,
    ) as response:
        record.http_status = response.status
        record.stream = response.content_type == "text/event-stream"
        record.location = response.headers.get("Location") if response.status in REDIRECTS else None
        closed_by_client = await _read_body(response, record)
        if closed_by_client or response.status != 429:
            return None
        return _retry_wait_s(response, record)


async def _read_body(response: aiohttp.ClientResponse, record: Recording) -> bool:
    """Record the response's body and the time of each read.

    The result is True if the client ended the response: after the `[DONE]` of a stream, or because the body is longer
    than an answer to this request can be (``record.error``). It is False if the server ended it.
    """
    # Local names, because a lookup at every chunk would make this loop slower, and with it all measured times.
    clock = time.perf_counter
    note_time = record.times_s.append
    note_end = record.ends.append
    body = record.body
    content = response.content
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    max_bytes = CHAT_BYTES + CHAT_BYTES_PER_TOKEN * record.request.output_tokens
    decompress = _decompressor(encoding, max_bytes)
    record.encoding = "" if decompress else encoding.replace("identity", "")  # identity means: not compressed
    while data := await content.readany():
        if decompress is not None and not (data := decompress(data)):
            continue
        note_time(clock())
        body += data
        note_end(len(body))
        if len(body) > max_bytes:
            # An endless answer: readany() returns without yielding, so the timeout would never fire.
            record.error = f"an answer of more than {max_bytes / MIB:.0f} MiB to a request of that length"
            response.close()
            return True
        if (_DONE in data or len(data) < _SHORT_BYTES) and record.stream and says_done(body, len(data)):
            record.ended_s = clock()
            record.whole = True
            await _drain(content)
            response.close()
            return True
    # Only `[DONE]` completes a stream. A clean close before it means that a proxy or the engine cut the stream.
    record.whole = not record.stream or says_done(body, len(body))
    return False


def _retry_wait_s(response: aiohttp.ClientResponse, record: Recording) -> float | None:
    """Seconds to wait before the request is sent again, after an HTTP 429.

    None: the server names no time (`Retry-After`), or all waits together would exceed `MAX_RETRY_WAIT_S`, which is then
    the ``record.error``.
    """
    wait_s = asked_to_wait(response.headers)
    if wait_s is None:
        return None
    wait_s = max(wait_s, MIN_RETRY_WAIT_S)
    if record.rate_limited_s + wait_s <= MAX_RETRY_WAIT_S:
        return wait_s
    record.error = f"the server asked for a retry in {wait_s:,.0f} s; the limit is {MAX_RETRY_WAIT_S:.0f} s"
    return None


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read the rest of the response for at most `CLOSE_GRACE_S`; some servers never close the connection.

    Errors are ignored, because the answer is already complete.
    """

    async def rest() -> None:
        while await content.readany():
            pass

    if not content.at_eof():
        with contextlib.suppress(asyncio.TimeoutError, aiohttp.ClientError, OSError):
            await asyncio.wait_for(rest(), CLOSE_GRACE_S)


def _decompressor(encoding: str, max_bytes: int) -> Callable[[bytes], bytes] | None:
    """A function that decompresses the body's pieces in their order; None if ``encoding`` is neither gzip nor deflate.

    A piece may give no bytes, while the decompressor waits for more input. It gives at most ``max_bytes`` + 1 bytes: a
    few compressed bytes could otherwise fill the memory, and one byte too many is enough for the caller to break off.
    """
    if encoding not in ("gzip", "x-gzip", "deflate"):
        return None
    # wbits above 32 detect a gzip or zlib header automatically (zlib.decompressobj).
    decoder = zlib.decompressobj(32 + zlib.MAX_WBITS)
    return lambda data: decoder.decompress(data, max_bytes + 1)


def _never() -> bool:
    return False


async def closed_loop(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    requests: Iterable[ChatRequest],
    max_concurrency: int,
    on_done: Callable[[Recording], None] = lambda record: None,
    should_stop: Callable[[], bool] = _never,
) -> list[Recording]:
    """Send the requests, at most ``max_concurrency`` at once; the recordings are in the order of ``requests``.

    ``requests`` may be endless: once ``should_stop`` returns True, no further request starts, and the running ones are
    finished. ``on_done`` gets the recording of each request when it ends. ``on_done`` and ``should_stop`` run between
    the reads of the answers on the same thread, so they have to return quickly.
    """
    waiting = enumerate(requests)
    recordings: dict[int, Recording] = {}  # by index of the request in ``requests``

    async def worker() -> None:
        while not should_stop() and (indexed := next(waiting, None)) is not None:
            index, request = indexed
            recordings[index] = await send(session, endpoint, request)
            on_done(recordings[index])

    await asyncio.gather(*(worker() for _ in range(max_concurrency)))
    return _in_order(recordings)


def _in_order(recordings: Mapping[int, Recording]) -> list[Recording]:
    """The recordings in the order in which their requests were given."""
    return [recordings[index] for index in sorted(recordings)]


async def open_loop(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    requests: Iterable[ChatRequest],
    intervals_s: Iterable[float],
    on_done: Callable[[Recording], None] = lambda record: None,
    should_stop: Callable[[], bool] = _never,
) -> list[Recording]:
    """Start a request after each interval (seconds), however many still run, and wait for all answers.

    No request starts once ``requests`` or ``intervals_s`` is exhausted or ``should_stop`` returns True. While it waits
    for the next start, the loop calls ``should_stop`` every `STOP_CHECK_S`. Each interval counts from the time at
    which the previous request was due, not from when it was sent, so that a delay does not reduce the load.

    The recordings are in the order of sending, each with ``due_s``.
    """
    waiting = iter(requests)
    recordings: dict[int, Recording] = {}  # by index of the request
    running: set[asyncio.Task[None]] = set()

    async def send_due(index: int, request: ChatRequest, due_s: float) -> None:
        record = await send(session, endpoint, request)
        record.due_s = due_s
        recordings[index] = record
        on_done(record)

    due_s = time.perf_counter()
    try:
        for index, interval_s in enumerate(intervals_s):
            due_s += interval_s
            while not should_stop() and (left_s := due_s - time.perf_counter()) > 0:
                await asyncio.sleep(min(left_s, STOP_CHECK_S))
            if should_stop() or (request := next(waiting, None)) is None:
                break
            task = asyncio.create_task(send_due(index, request, due_s))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
    return _in_order(recordings)
