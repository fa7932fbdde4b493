"""A proxy in front of the speculative arm that makes its answers wrong on purpose, each in one way.

It reads the whole stream, changes it, and plays it back with the gaps it came in: the time per token stays what it
was, the time to the first token doubles. Counters and everything else pass through.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
from aiohttp import web

from tests.fakes.in_thread import in_thread

Document = dict[str, Any]
Fault = Callable[[str, Mapping[str, Any]], str]
TokenFault = Callable[[list[int], Mapping[str, Any]], list[int]]
#: The exclamation mark in SmolLM2's vocabulary.
GARBAGE = 17


def _garbled(text: str, request: Mapping[str, Any]) -> str:
    """Every fourth word is another one."""
    words = text.split(" ")
    return " ".join("zebra" if place % 4 == 3 else word for place, word in enumerate(words))


def _half(text: str, request: Mapping[str, Any]) -> str:
    return text[: len(text) // 2]


def _quotes(text: str, request: Mapping[str, Any]) -> str:
    return text.replace('"', "'")


def _numbers_as_text(text: str, request: Mapping[str, Any]) -> str:
    """Numbers and truth values become text: it is JSON still, and not of the schema's form."""
    return re.sub(r"(?<=[:\[,])\s*(-?\d+(?:\.\d+)?|true|false)(?=\s*[,}\]])", r' "\1"', text)


def _other_numbers(text: str, request: Mapping[str, Any]) -> str:
    return re.sub(r"\d", lambda digit: str(9 - int(digit.group())), text)


def _same(text: str, request: Mapping[str, Any]) -> str:
    return text


#: What is done to text and to the arguments of calls, and to the names of tools.
FAULTS: dict[str, tuple[Fault, Fault, Fault]] = {
    "nothing": (_same, _same, _same),
    "garbled words": (_garbled, _same, _same),
    "half of every answer": (_half, _same, _same),
    "no JSON": (_quotes, _same, _same),
    "JSON of another form": (_numbers_as_text, _same, _same),
    "another tool": (_same, _same, lambda name, request: f"{name}_v2"),
    "arguments of other types": (_same, _numbers_as_text, _same),
    "arguments cut off": (_same, _half, _same),
    "another needle": (_other_numbers, _same, _same),
}


def _one_in_eight(ids: list[int], request: Mapping[str, Any]) -> list[int]:
    return [GARBAGE if place % 8 == 7 else token for place, token in enumerate(ids)]


def _from_token_4(ids: list[int], request: Mapping[str, Any]) -> list[int]:
    return ids[:4] + [GARBAGE] * len(ids[4:])


def _when_warm(ids: list[int], request: Mapping[str, Any]) -> list[int]:
    return ids[:1] + [GARBAGE] * len(ids[1:]) if request["temperature"] else ids


#: What is done to tokens, where a server sends their ids; the text becomes what the server makes of the new ones.
TOKEN_FAULTS: dict[str, TokenFault] = {
    "one token in eight": _one_in_eight,
    "garbage from token 4": _from_token_4,
    "garbage at temperature 0.6": _when_warm,
}


async def break_tokens(documents: list[Document], request: Mapping[str, Any], fault: str, upstream: str) -> None:
    """Change the tokens of one answer in place, ids and text."""
    choices = [choice for document in documents for choice in document.get("choices") or []]
    carrying = [choice for choice in choices if choice.get("token_ids")]
    sizes = [len(choice["token_ids"]) for choice in carrying]
    if not carrying:
        # The server was not asked for ids: what it says can be garbage all the same.
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        tokens = TOKEN_FAULTS[fault](list(range(100, 100 + max(1, len(text) // 4))), request)
        spoiled = "".join("!" if token == GARBAGE else text[4 * n : 4 * n + 4] for n, token in enumerate(tokens))
        carrying, sizes = [choice for choice in choices if choice["delta"].get("content")], []
    else:
        tokens = TOKEN_FAULTS[fault]([token for choice in carrying for token in choice["token_ids"]], request)
        for choice, end in zip(carrying, itertools.accumulate(sizes), strict=True):
            choice["token_ids"] = tokens[end - len(choice["token_ids"]) : end]
        body = {"model": request["model"], "tokens": tokens}
        async with aiohttp.ClientSession() as session, session.post(f"{upstream}/detokenize", json=body) as answer:
            spoiled = str((await answer.json())["prompt"]).removesuffix("<|im_end|>")
    for choice, piece in zip(carrying, _spread(spoiled, len(carrying) or 1), strict=False):
        choice["delta"]["content"] = piece


def _spread(text: str, count: int) -> list[str]:
    """Cut a text into so many pieces of about one size."""
    edges = [len(text) * place // count for place in range(count + 1)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def break_answer(documents: list[Document], request: Mapping[str, Any], fault: str) -> None:
    """Change the events of one answer in place."""
    in_text, in_arguments, in_name = FAULTS[fault]
    choices = [choice for document in documents for choice in document.get("choices") or []]
    deltas = [choice["delta"] for choice in choices if "delta" in choice]
    texts = [delta for delta in deltas if delta.get("content")]
    for delta, piece in zip(
        texts, _spread(in_text("".join(d["content"] for d in texts), request), len(texts) or 1), strict=False
    ):
        delta["content"] = piece
    functions = [call["function"] for delta in deltas for call in delta.get("tool_calls") or [] if "function" in call]
    whole = "".join(function.get("arguments") or "" for function in functions)
    for function, piece in zip(functions, _spread(in_arguments(whole, request), len(functions) or 1), strict=False):
        function["arguments"] = piece
        if function.get("name"):
            function["name"] = in_name(function["name"], request)


def application(upstream: str, fault: str) -> web.Application:
    """The proxy's pages."""

    async def chat(request: web.Request) -> web.StreamResponse:
        asked, headers = await request.json(), {"Authorization": request.headers.get("Authorization", "")}
        events: list[tuple[float, Any]] = []
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as session,
            session.post(f"{upstream}/v1/chat/completions", json=asked, headers=headers) as answer,
        ):
            if answer.content_type != "text/event-stream":
                return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)
            async for line in answer.content:
                data = line.decode().strip().removeprefix("data: ")
                if data:
                    events.append((time.perf_counter(), data if data == "[DONE]" else json.loads(data)))
        documents = [data for _, data in events if isinstance(data, dict)]
        if fault in TOKEN_FAULTS:
            await break_tokens(documents, asked, fault, upstream)
        else:
            break_answer(documents, asked, fault)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        begun = time.perf_counter()
        for came_s, data in events:
            await asyncio.sleep(max(0.0, came_s - events[0][0] - (time.perf_counter() - begun)))
            text = data if isinstance(data, str) else json.dumps(data)
            await response.write(f"data: {text}\n\n".encode())
        return response

    async def through(request: web.Request) -> web.Response:
        headers = {"Authorization": request.headers.get("Authorization", "")}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{upstream}{request.path}", headers=headers) as answer,
        ):
            return web.Response(body=await answer.read(), status=answer.status, content_type=answer.content_type)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/{path:.*}", through)
    return app


@contextmanager
def breaking_proxy(upstream: str, fault: str) -> Iterator[str]:
    """Put a proxy with a fault (`FAULTS`, `TOKEN_FAULTS`) before a server until the block ends; yields its base URL."""
    with in_thread(application(upstream, fault)) as base_url:
        yield base_url
