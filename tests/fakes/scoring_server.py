"""An OpenAI-compatible server with a language model of 64 words that can be computed by hand, and scores texts.

Each token's distribution follows from the one before it. It streams token ids where they are asked for and answers
`prompt_logprobs` as vLLM does; ``spoil`` changes what it decoded, ids and text.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from aiohttp import web

from tests.fakes.in_thread import in_thread

MODEL = "words"
VOCABULARY = 64
#: The token that is no word: what a broken arm says.
GARBAGE = 0

Spoil = Callable[[list[int], float], list[int]]


@cache
def logits(last: int) -> tuple[float, ...]:
    """The logits after a token; garbage is the least likely of all."""
    chance = random.Random(last)
    return (-12.0, *(chance.gauss(0.0, 2.5) for _ in range(VOCABULARY - 1)))


@cache
def logprobs(last: int) -> tuple[float, ...]:
    """The log-probabilities after a token, in nats."""
    total = math.log(math.fsum(math.exp(one) for one in logits(last)))
    return tuple(one - total for one in logits(last))


def word(token: int) -> str:
    """A token's text."""
    return "!" if token == GARBAGE else f" {'bcdfghjklmnprstvz'[token % 17]}{'aeiou'[token % 5]}{token:02d}"


def prompt_ids(messages: Sequence[Any]) -> list[int]:
    """The token ids of a prompt."""
    chance = random.Random(json.dumps(messages))
    return [chance.randrange(1, VOCABULARY) for _ in range(5)]


def decode(prompt: Sequence[int], tokens: int, temperature: float, chance: random.Random) -> list[int]:
    """What the model says: the likeliest token at temperature 0, a drawn one above it."""
    found: list[int] = []
    last = prompt[-1]
    for _ in range(tokens):
        scores = logits(last)
        if temperature:
            last = chance.choices(range(VOCABULARY), [math.exp(one / temperature) for one in scores])[0]
        else:
            last = max(range(VOCABULARY), key=lambda token: scores[token])
        found.append(last)
    return found


def application(arm: str, spoil: Spoil, with_ids: bool, asked: list[dict[str, Any]]) -> web.Application:
    """The server's pages; every request for scores is noted in ``asked``."""

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, warm = prompt_ids(body["messages"]), float(body["temperature"])
        seed = f"{arm} {body.get('seed')} {body['messages']}"
        tokens = spoil(decode(prompt, body["max_tokens"], warm, random.Random(seed)), warm)
        ids = bool(body.get("return_token_ids")) and with_ids
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def say(document: dict[str, Any]) -> None:
            await response.write(f"data: {json.dumps(document)}\n\n".encode())

        await say({"choices": [{"delta": {"role": "assistant"}}], **({"prompt_token_ids": prompt} if ids else {})})
        for token in tokens:
            await say({"choices": [{"delta": {"content": word(token)}, **({"token_ids": [token]} if ids else {})}]})
        await say({"choices": [{"delta": {}, "finish_reason": "length"}]})
        await say({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def completions(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append(body)
        told: list[Any] = [None]
        for last, token in zip(body["prompt"], body["prompt"][1:], strict=False):
            scores = logprobs(last)
            best = max(range(VOCABULARY), key=lambda one: scores[one])
            told.append({str(one): {"logprob": scores[one], "decoded_token": word(one)} for one in (best, token)})
        return web.json_response({"choices": [{"text": "", "prompt_logprobs": told}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/v1/completions", completions)
    return app


@contextmanager
def scoring_server(
    arm: str, spoil: Spoil = lambda ids, temperature: ids, with_ids: bool = True
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve until the block ends; yields the base URL, and the requests for scores as they come."""
    asked: list[dict[str, Any]] = []
    with in_thread(application(arm, spoil, with_ids, asked)) as base_url:
        yield base_url, asked
