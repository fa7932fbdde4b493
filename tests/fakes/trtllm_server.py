"""A stand-in for trtllm-serve, in a thread of its own: what its answers and its two metrics pages look like.

Made, not recorded: no GPU was at hand. Written after TensorRT-LLM's own sources: `openai_server.py` (the paths,
the page of counters only with `return_perf_metrics`), `postprocess_handlers.py` (the average in the choice of every
chunk), `harmony_adapter.py` (gpt-oss: no average) and `metrics/collector.py` (the counters).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.in_thread import in_thread


@dataclass(frozen=True)
class Options:
    """What the server does; ``counters`` are those of a version and its configuration."""

    tokens: int = 12
    step_ms: float = 10.0
    drafted: int = 0  # draft tokens a step; 0 is the baseline
    accepted: int = 0  # of them
    average: bool = True  # avg_decoded_tokens_per_iter in the answers; gpt-oss's chat format leaves it out
    page: bool = True  # /prometheus/metrics: return_perf_metrics
    by_request: bool = False  # 1.3.0rc19 and later
    by_iteration: bool = False  # enable_iter_perf_stats


@dataclass
class State:
    """What has happened so far."""

    options: Options
    paths: list[str] = field(default_factory=list)
    iteration_stats: list[dict[str, Any]] = field(default_factory=list)
    requests: int = 0
    drafts: int = 0

    def page(self) -> str:
        """The counters; a line is there from its first increment on, as with labelled counters."""
        options, labels = self.options, 'engine_type="trtllm",model_name="fake"'
        lines = [f'trtllm_request_success_total{{{labels},finished_reason="end_id"}} {float(self.requests)}']
        if not self.requests:
            lines = []
        if self.drafts and options.by_request:
            for place in range(options.drafted):
                here = f'{labels},token_position="{place}"'
                lines.append(f"trtllm_spec_decode_drafted_tokens_total{{{here}}} {float(self.drafts)}")
                if place < options.accepted:
                    lines.append(f"trtllm_spec_decode_accepted_tokens_total{{{here}}} {float(self.drafts)}")
        if self.drafts and options.by_iteration:
            for name, each in (("draft", options.drafted), ("accepted", options.accepted)):
                if each:
                    moved = float(self.drafts * each)
                    lines.append(f"trtllm_spec_decode_num_{name}_tokens_total{{{labels}}} {moved}")
            lines.append(f"trtllm_spec_decode_acceptance_length{{{labels}}} {1.0 + options.accepted}")
        return "\n".join(lines) + "\n"


def application(state: State) -> web.Application:
    """The server's pages."""

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        state.paths.append(request.path)
        response: web.StreamResponse = await handler(request)
        return response

    async def chat(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def event(document: Any) -> None:
            await response.write(b"data: " + json.dumps(document).encode() + b"\n\n")

        options = state.options
        total = min(options.tokens, int(asked["max_tokens"]))
        done = steps = 0
        while done < total:
            await asyncio.sleep(options.step_ms / 1000)
            got = min(1 + options.accepted, total - done)
            words = "".join(f" w{number}" for number in range(done, done + got))
            done, steps = done + got, steps + 1
            state.drafts += bool(options.drafted)
            state.iteration_stats.append({"iter": steps, "specDecodingStats": {"numDraftTokens": options.drafted}})
            choice: dict[str, Any] = {"index": 0, "delta": {"content": words}}
            if options.average:
                choice["avg_decoded_tokens_per_iter"] = done / steps
            if done == total:
                choice["finish_reason"] = "length"
            await event({"object": "chat.completion.chunk", "model": "fake", "choices": [choice]})
        state.requests += 1
        usage = {"prompt_tokens": 7, "completion_tokens": total, "total_tokens": 7 + total}
        await event({"object": "chat.completion.chunk", "model": "fake", "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def iteration_stats(request: web.Request) -> web.Response:
        stats, state.iteration_stats = state.iteration_stats, []  # drained, as the real queue is
        return web.json_response(stats)

    async def counters(request: web.Request) -> web.Response:
        if not state.options.page:
            raise web.HTTPNotFound
        return web.Response(text=state.page(), content_type="text/plain")

    app = web.Application(middlewares=[note])
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/metrics", iteration_stats)
    app.router.add_get("/prometheus/metrics", counters)
    return app


@dataclass(frozen=True)
class Running:
    """A server that runs, and what it saw."""

    base_url: str
    state: State


@contextmanager
def trtllm_server(**options: Any) -> Iterator[Running]:
    """Start a server with these `Options` on a free port of loopback, and stop it at the end."""
    state = State(Options(**options))
    with in_thread(application(state)) as base_url:
        yield Running(base_url, state)
