"""A key that a server repeats in its errors is in none that is kept, wherever the error is cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from aiohttp import web

from drafthouse.bench.client import ChatRequest, Endpoint, open_session, raw_request, send
from drafthouse.bench.outcome import MESSAGE_CHARACTERS
from tests.fakes.in_thread import in_thread

KEY = "sk-4f9a71c3e8d25b60"
ASK = ChatRequest("s", "chat", "chat", "p1", [{"role": "user", "content": "hello"}], 8)


def failed(status: int, kind: str, body: str) -> str:
    """The error that is kept of an answer with this body."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, content_type=kind, text=body)

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)

    async def once(endpoint: Endpoint) -> str:
        async with open_session(10) as session:
            raw = raw_request(await send(session, endpoint, ASK), endpoint, 0.0)
        assert raw["status"] == "failed"
        return str(raw["error"])

    with in_thread(application) as url:
        return asyncio.run(once(Endpoint("a", url, "m", KEY)))


@pytest.mark.parametrize("before", [MESSAGE_CHARACTERS - 8, MESSAGE_CHARACTERS - 36, 200 - 8, 200 - 17, 5])
@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (401, "application/json", lambda text: json.dumps({"error": {"message": text}})),
        (401, "text/plain", lambda text: text),
        (200, "text/plain", lambda text: text),
        (200, "text/event-stream", lambda text: f"data: {json.dumps({'error': {'message': text}})}\n\n"),
        (200, "text/event-stream", lambda text: f"data: {text}\n\n"),
        (200, "text/event-stream", lambda text: f"data: {json.dumps([text])}\n\n"),
        (200, "text/event-stream", lambda text: f"event: error\ndata: {json.dumps({'why': text})}\n\n"),
    ],
)
def test_no_part_of_the_key_is_kept(status: int, kind: str, body: Callable[[str], str], before: int) -> None:
    error = failed(status, kind, body("." * before + KEY + "." * 400))
    assert KEY[:5] not in error
    assert len(error) < MESSAGE_CHARACTERS + 60
