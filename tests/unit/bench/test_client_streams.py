"""Streams that are not as they should be: one that never closes, one that is compressed, one behind a redirect."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from drafthouse.bench import client
from drafthouse.bench.client import ChatRequest, Endpoint, open_session, raw_request, send
from tests.fakes.in_thread import in_thread

ASK = ChatRequest("s", "chat", "chat", "p1", [{"role": "user", "content": "hello"}], 12)
HEAD = {"Content-Type": "text/event-stream"}
Handler = Callable[[web.Request], Any]


def event(document: Any) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return f"data: {text}\n\n".encode()


# Where the machine stands still, what was sent in pieces is read as one; a client that is wrong does so each time.
TRIES = 4


def token(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def tail(tokens: int = 6) -> bytes:
    return (
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        + event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}})
        + event("[DONE]")
    )


async def pieces(step_s: float = 0.01) -> AsyncIterator[bytes]:
    """Six tokens, then the end."""
    for number in range(6):
        yield token(f" w{number}")
        await asyncio.sleep(step_s)
    yield tail()


def asked(handler: Handler, timeout_s: float = 60.0, key: str | None = None, number: int = 1) -> list[Any]:
    """Send requests, one after the other, to a server that answers with ``handler``; return them raw."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", handler)

    async def all_of_them(endpoint: Endpoint) -> list[Any]:
        async with open_session(timeout_s) as session:
            records = [await send(session, endpoint, ASK) for _ in range(number)]
        return [raw_request(record, endpoint, 0.0) for record in records]

    with in_thread(application, shutdown_timeout=0.1) as url:
        return asyncio.run(all_of_them(Endpoint("a", url, "m", key)))


async def streamed(request: web.Request, parts: AsyncIterator[bytes], **headers: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={**HEAD, **headers})
    await response.prepare(request)
    async for part in parts:
        await response.write(part)
    return response


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [False, True])
def test_an_answer_ends_with_done_though_the_stream_stays_open(cut: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        async for part in pieces():
            if cut and part.endswith(event("[DONE]")):
                # [DONE] itself in two reads.
                yield part[:-6]
                await asyncio.sleep(0.02)
                yield part[-6:]
            else:
                yield part
        await asyncio.sleep(600)

    begun = time.perf_counter()
    (request,) = asked(lambda got: streamed(got, parts()), timeout_s=120.0)
    assert time.perf_counter() - begun < 60.0
    assert (request["status"], request["error"], request["output_tokens"]) == ("ok", None, 6)
    assert request["text"] == " w0 w1 w2 w3 w4 w5"


def test_the_time_of_a_request_ends_with_done_too() -> None:
    async def parts() -> AsyncIterator[bytes]:
        async for part in pieces():
            yield part
        await asyncio.sleep(60)

    async def handler(got: web.Request) -> web.StreamResponse:
        return await streamed(got, parts())

    application = web.Application()
    application.router.add_post("/v1/chat/completions", handler)

    async def once(url: str) -> float:
        async with open_session(60.0) as session:
            record = await send(session, Endpoint("a", url, "m"), ASK)
        assert record.sent_s is not None
        return record.ended_s - record.times_s[-1]

    with in_thread(application, shutdown_timeout=0.1) as url:
        # A busy machine lengthens one; whoever counts the wait behind it does so each time.
        assert min(asyncio.run(once(url)) for _ in range(TRIES)) < client.CLOSE_GRACE_S / 2


def test_done_inside_a_text_is_no_end() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield token("data: [DONE]")
        yield token("\n\ndata: [DONE]\n\n")
        await asyncio.sleep(0.05)
        async for part in pieces():
            yield part

    (request,) = asked(lambda got: streamed(got, parts()))
    assert (request["status"], request["chunks"]) == ("ok", 8)
    assert request["text"].endswith("[DONE]\n\n w0 w1 w2 w3 w4 w5")


# ---- pieces --------------------------------------------------------------------------------------


@pytest.mark.alone  # six writes in a row are one read on a machine that has time
@pytest.mark.parametrize("writes", [1, 2, 6])
def test_an_answer_that_comes_at_once_has_no_time_per_token(writes: int) -> None:
    async def parts() -> AsyncIterator[bytes]:
        await asyncio.sleep(0.05)
        each = 6 // writes
        for at in range(0, 6, each):
            yield b"".join(token(f" w{number}") for number in range(at, at + each))
        yield tail()

    (request,) = asked(lambda got: streamed(got, parts()))
    assert request["status"] == "ok"
    assert request["ttft_ms"] >= 50
    assert request["tpot_ms"] is None


def test_two_tokens_in_two_pieces_have_one() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield token(" a")
        await asyncio.sleep(0.02)
        yield token(" b") + tail(2)

    for _ in range(TRIES):
        (request,) = asked(lambda got: streamed(got, parts()))
        # A busy machine may read the first piece late.
        if (request["tpot_ms"] or 0) >= 19:
            break
    assert request["tpot_ms"] >= 19


# ---- what a proxy does to it -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "wbits"), [("gzip", 31), ("deflate", 15), ("x-gzip", 31)])
def test_a_compressed_stream_is_read_as_it_comes(name: str, wbits: int) -> None:
    async def parts() -> AsyncIterator[bytes]:
        packer = zlib.compressobj(wbits=wbits)
        async for part in pieces(0.02):
            yield packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
        yield packer.flush()

    for _ in range(TRIES):
        (request,) = asked(lambda got: streamed(got, parts(), **{"Content-Encoding": name}))
        assert (request["status"], request["text"]) == ("ok", " w0 w1 w2 w3 w4 w5")
        if (request["tpot_ms"] or 0) >= 19:
            break
    assert request["tpot_ms"] >= 19


def test_a_compression_that_python_does_not_know_is_named() -> None:
    (request,) = asked(lambda got: streamed(got, pieces(), **{"Content-Encoding": "br"}))
    assert request["status"] == "failed"
    assert request["error"] == (
        "the answer is compressed (Content-Encoding: br) but was requested uncompressed; turn compression off in the "
        "server or in the proxy before it"
    )


def test_a_broken_compression_and_a_compressed_error() -> None:
    async def broken(got: web.Request) -> web.StreamResponse:
        return await streamed(got, pieces(), **{"Content-Encoding": "gzip"})

    async def refused(got: web.Request) -> web.Response:
        body = gzip.compress(b'{"error": {"message": "no such model"}}')
        return web.Response(status=404, body=body, headers={"Content-Encoding": "gzip"})

    assert "incorrect header check" in asked(broken)[0]["error"]
    assert asked(refused)[0]["error"] == "HTTP 404: no such model"


def test_a_byte_order_mark_is_no_token_and_takes_none() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"\xef\xbb\xbf"
        async for part in pieces():
            yield part

    (request,) = asked(lambda got: streamed(got, parts()))
    assert (request["status"], request["text"], request["chunks"]) == ("ok", " w0 w1 w2 w3 w4 w5", 6)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_named_and_the_key_does_not_go_there(status: int) -> None:
    went = []

    async def elsewhere(got: web.Request) -> web.Response:
        went.append(got.headers.get("Authorization"))
        return web.Response()

    async def handler(got: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": f"{other}/v1/chat/completions?key=sk-secret"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", elsewhere)
    with in_thread(application) as other:
        (request,) = asked(handler, key="sk-secret")
    assert not went
    assert request["status"] == "failed"
    assert request["error"] == (
        f"HTTP {status}: the server redirects to {other}/v1/chat/completions?key=(key); "
        "use that address as the base URL"
    )


# ---- 429 -----------------------------------------------------------------------------------------


def busy(times: int, retry_after: str) -> Handler:
    """Say 429 so often, then answer."""
    left = [times]

    async def handler(got: web.Request) -> web.StreamResponse:
        if left[0]:
            left[0] -= 1
            headers = {"Retry-After": retry_after} if retry_after else {}
            return web.json_response({"error": {"message": "too many requests"}}, status=429, headers=headers)
        return await streamed(got, pieces())

    return handler


def test_a_server_that_says_when_to_come_back_is_asked_then() -> None:
    begun = time.perf_counter()
    first, second = asked(busy(2, "1"), number=2)
    took_s = time.perf_counter() - begun
    assert took_s > 2.0
    assert [first["status"], second["status"]] == ["ok", "ok"]
    assert (first["throttled"], first["throttled_s"], second["throttled"]) == (2, 2.0, 0)
    # The clock is that of the request that was answered, without the two waits.
    assert first["ttft_ms"] / 1000 < took_s - first["throttled_s"]


@pytest.mark.parametrize(
    ("retry_after", "said"),
    [
        ("", "HTTP 429: too many requests"),
        ("soon", "HTTP 429: too many requests"),
        ("3600", "HTTP 429: too many requests; the server asked for a retry in 3,600 s; the limit is 60 s"),
    ],
)
def test_what_is_not_waited_for(retry_after: str, said: str) -> None:
    (request,) = asked(busy(1, retry_after))
    assert (request["status"], request["error"], request["throttled"]) == ("failed", said, 0)


def test_a_second_try_without_an_answer_has_nothing_of_the_first() -> None:
    left = [1]

    async def handler(got: web.Request) -> web.StreamResponse:
        if left[0]:
            left[0] = 0
            return web.json_response({}, status=429, headers={"Retry-After": "0"})
        assert got.transport
        got.transport.abort()
        return web.Response()

    (request,) = asked(handler)
    assert (request["status"], request["http_status"], request["throttled"]) == ("failed", None, 1)
    assert "HTTP 429" not in request["error"]


def test_a_server_that_says_so_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_RETRY_WAIT_S", 0.5)
    (request,) = asked(busy(1000, "0"))
    assert request["status"] == "failed"
    assert 3 <= request["throttled"] <= 5
