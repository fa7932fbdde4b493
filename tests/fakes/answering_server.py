"""An OpenAI-compatible server that answers rightly without a model: JSON by schema, tool calls, needles, and text.

Two of them, one that drafts and one that does not, are the arms of a healthy experiment: the same prompt gets the
same answer from both. What a test wants to be wrong, it makes wrong (`breaking_proxy.py`, or an option here).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.fakes.in_thread import in_thread

WORDS = (
    "river", "stone", "lamp", "under", "seven", "quiet", "bridge", "letter", "morning", "salt", "green", "wheel",
    "paper", "north", "candle", "early", "window", "boat", "copper", "field", "winter", "door", "silver", "path",
    "under", "cloud", "music", "garden", "bell", "road", "harvest", "north", "glass", "thread", "tower",
)  # fmt: skip
#: Tokens of a block of the prefix cache: shorter prompts are never in it.
BLOCK = 64


@dataclass(frozen=True)
class Options:
    """What the server does."""

    # Slow enough that a crowded machine does not put a whole answer into one read.
    step_ms: float = 8.0
    drafted: int = 0  # draft tokens a step, all of them accepted; 0 is the baseline
    tools: bool = True  # otherwise it refuses them, as vLLM without a parser does
    schemas: bool = True
    wanders_every: int = 0  # one token in so many is another one, and so is all behind it: numerics
    restless: bool = False  # it wanders otherwise each time it is asked
    thinks: int = 0  # tokens of reasoning before the answer
    tells_hits: str = "usage"  # where it says what its prefix cache had: "usage", "counter" or "" for nowhere
    caches: bool = True
    # Faults that only a prompt shows that is asked more than once.
    stale_prefix: bool = False  # what it answers from its prefix cache follows from another text
    mixes_slots: bool = False  # so does what it answers while it answers the same prompt to somebody else
    loses_calls: bool = False  # a streamed call comes as text
    cuts_arguments: bool = False  # the last letter of the last text in streamed arguments is lost
    accepts_until: int = 1_000_000  # input tokens; of what it drafts behind a longer prompt nothing is accepted


@dataclass
class State:
    """What has happened so far."""

    options: Options
    asked: list[dict[str, Any]] = field(default_factory=list)
    drafts: int = 0
    accepted: int = 0
    hits: int = 0
    known: set[str] = field(default_factory=set)  # prompts that the prefix cache has
    running: Counter[str] = field(default_factory=Counter)

    def counters(self) -> str:
        """VLLM's counters of speculation; without drafting they do not exist."""
        drafted = self.options.drafted
        lines = [f'vllm:request_success_total{{model_name="answering"}} {len(self.asked)}']
        labels = 'engine="0",model_name="answering"'
        if self.options.tells_hits == "counter":
            lines.append(f"vllm:prefix_cache_hits_total{{{labels}}} {float(self.hits)}")
        if drafted:
            told = {"num_drafts": self.drafts, "num_draft_tokens": self.drafts * drafted}
            for name, value in {**told, "num_accepted_tokens": self.accepted}.items():
                lines.append(f"vllm:spec_decode_{name}_total{{{labels}}} {float(value)}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Said:
    """One answer: tokens of text, or of the arguments of a call."""

    tokens: list[str]
    tool: str | None = None


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big")


def _pieces(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def instance(schema: Mapping[str, Any]) -> Any:
    """A small value of a schema's form; of what a schema can say it knows what our suites use."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: instance(part) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [instance(schema["items"])] * max(1, schema.get("minItems", 1))
    return {"integer": schema.get("minimum", 3), "number": 2.5, "boolean": True}.get(kind, "word")


def answer(request: Mapping[str, Any], options: Options, turn: int, other: bool = False) -> Said:
    """The right answer to a request; free text is made of words that follow from the prompt.

    ``other`` is the answer to another prompt, whatever this one asks for.
    """
    prompt = str(request["messages"][-1]["content"]) + "'s neighbour" * other
    if request.get("tools"):
        functions = {tool["function"]["name"]: tool["function"] for tool in request["tools"]}
        name = next((name for name in functions if name in prompt), next(iter(functions)))
        return Said(_pieces(json.dumps(instance(functions[name].get("parameters", {})))), name)
    form = request.get("response_format") or {}
    if form.get("type") == "json_schema":
        return Said(_pieces(json.dumps(instance(form["json_schema"]["schema"]))))
    needle = re.search(r"\b(?:code|number) \S+ (?:\S+ ){0,6}is (\w+)", prompt)
    if needle and not other:
        return Said(["It", " is", f" {needle.group(1)}", "."])
    stream = 0
    tokens = []
    for place in range(int(request["max_tokens"])):
        if options.wanders_every:
            salt = turn if options.restless else options.drafted
            stream += _number(prompt, "wander", salt, place, stream) % options.wanders_every == 0
        tokens.append(f" {WORDS[_number(prompt, place, stream) % len(WORDS)]}")
    return Said(tokens)


def application(state: State) -> web.Application:
    """The server's pages."""
    options = state.options

    async def chat(request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        state.asked.append(asked)
        refused = ("tools", not options.tools), ("response_format", not options.schemas)
        for name, no in refused:
            if no and asked.get(name):
                error = {"error": {"message": f"{name} is not supported here"}}
                return web.json_response(error, status=400)
        whole = json.dumps(asked["messages"])
        prompt_tokens = len(whole) // 4
        warm = options.caches and whole in state.known and prompt_tokens > BLOCK
        cached = prompt_tokens - 16 if warm else 0
        state.hits += cached
        state.known.add(whole)
        state.running[whole] += 1
        try:
            other = (options.stale_prefix and warm) or (options.mixes_slots and state.running[whole] > 1)
            said = answer(asked, options, len(state.asked), other)
            usage: dict[str, Any] = {"prompt_tokens": prompt_tokens, "completion_tokens": 0}
            if options.tells_hits == "usage":
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            return await (tell if asked["stream"] else tell_whole)(request, asked, said, usage)
        finally:
            state.running[whole] -= 1

    async def tell_whole(request: web.Request, asked: Any, said: Said, usage: dict[str, Any]) -> web.StreamResponse:
        text = "".join(said.tokens[: int(asked["max_tokens"])])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if said.tool:
            # With spaces where the stream has none: the same arguments in another spelling.
            call = {"name": said.tool, "arguments": json.dumps(json.loads(text), indent=1)}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call-1", "function": call}]}
        finish = "tool_calls" if said.tool else "stop"
        usage["completion_tokens"] = len(said.tokens)
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({"choices": [choice], "usage": usage})

    async def tell(request: web.Request, asked: Any, said: Said, usage: dict[str, Any]) -> web.StreamResponse:
        accepted = options.drafted if usage["prompt_tokens"] <= options.accepts_until else 0
        if said.tool and options.cuts_arguments:
            said = Said(_pieces(re.sub(r'(\w)"}$', '"}', "".join(said.tokens))), said.tool)
        if options.loses_calls:
            said = Said(said.tokens)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def event(document: Any) -> None:
            await response.write(b"data: " + json.dumps(document).encode() + b"\n\n")

        tokens = said.tokens[: int(asked["max_tokens"])]
        thoughts = [f" thought{n}" for n in range(options.thinks)]
        each = 1 + accepted
        first = True
        for deltas, key in ((thoughts, "reasoning_content"), (tokens, "content")):
            for at in range(0, len(deltas), each):
                await asyncio.sleep(options.step_ms / 1000)
                state.drafts += bool(options.drafted)
                state.accepted += accepted
                text = "".join(deltas[at : at + each])
                delta: dict[str, Any] = {key: text}
                if key == "content" and said.tool:
                    function = {"name": said.tool, "arguments": text} if first else {"arguments": text}
                    delta = {"tool_calls": [{"index": 0, "function": function} | ({"id": "call-1"} if first else {})]}
                    first = False
                await event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        finish = "length" if len(tokens) == int(asked["max_tokens"]) else "tool_calls" if said.tool else "stop"
        await event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        total = len(tokens) + len(thoughts)
        await event({"choices": [], "usage": {**usage, "completion_tokens": total}})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=state.counters(), content_type="text/plain")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/metrics", metrics)
    return app


@dataclass(frozen=True)
class Running:
    """A server that runs, and what it saw."""

    base_url: str
    state: State


@contextmanager
def answering_server(**options: Any) -> Iterator[Running]:
    """Start a server with these `Options` on a free port of loopback, and stop it at the end."""
    state = State(Options(**options))
    with in_thread(application(state)) as base_url:
        yield Running(base_url, state)
