"""An OpenAI-compatible server whose every chunk is let go by the test, and which notices when its reader has gone.

It asks for no key, as trtllm-serve does: what reaches it has come past whatever stands in front.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.in_thread import in_thread

MODEL = "stepping"
_LONGEST_S = 120.0


@dataclass
class Stepping:
    """What the test holds: ``step`` lets one chunk go, ``gone`` is set when a reader went away before the end."""

    url: str = ""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # method, path, headers
    bodies: list[int] = field(default_factory=list)  # sizes
    step: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    began: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        """The port on loopback."""
        return int(self.url.rpartition(":")[2])

    def forget(self) -> None:
        """Forget what was asked until now."""
        self.asked.clear()
        self.bodies.clear()
        for event in (self.began, self.gone, self.finished):
            event.clear()


async def _let_go(step: threading.Semaphore) -> None:
    for _ in range(int(_LONGEST_S / 0.002)):
        if step.acquire(blocking=False):
            return
        await asyncio.sleep(0.002)


def application(state: Stepping) -> web.Application:
    """The server's pages."""

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        state.asked.append((request.method, request.raw_path, dict(request.headers)))
        try:
            answer: web.StreamResponse = await handler(request)
        except (asyncio.CancelledError, ConnectionError):
            state.gone.set()
            raise
        state.finished.set()
        return answer

    async def chat(request: web.Request) -> web.StreamResponse:
        content = await request.read()
        state.bodies.append(len(content))
        asked = json.loads(content)
        state.began.set()
        if not asked.get("stream"):
            await asyncio.sleep(float(asked.get("seconds", 0)))
            message = {"role": "assistant", "content": "yes"}
            return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(int(asked.get("chunks", 1))):
            if asked.get("stepped"):
                await _let_go(state.step)
            await response.write(b'data: {"n": %d}\n\n' % number)
        return response

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def health(request: web.Request) -> web.Response:
        return web.Response()

    async def anything(request: web.Request) -> web.Response:
        return web.Response(text="the engine's own page")

    app = web.Application(middlewares=[note], client_max_size=1 << 30)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    app.router.add_route("*", "/{rest:.*}", anything)
    return app


@contextmanager
def stepping_server() -> Iterator[Stepping]:
    """Serve on a free port of loopback until the block ends."""
    state = Stepping()
    with in_thread(application(state), handler_cancellation=True, shutdown_timeout=1) as url:
        state.url = url
        yield state
