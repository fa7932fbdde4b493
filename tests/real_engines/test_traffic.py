"""A stranger's requests on the real llama.cpp, found from its own counters; ours alone are never taken for one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from drafthouse.bench.client import ChatRequest, Endpoint, closed_loop, open_session, raw_request, send
from drafthouse.bench.foreign_traffic import foreign_work, settled, token_sums
from drafthouse.bench.spec_metrics import count_tokens, read_counters
from drafthouse.bench.usage_check import SLACK_TOKENS, arm_contradictions
from tests.support.engines import engine_home, llama_server, packaged_weights

pytestmark = pytest.mark.alone

TOKENS = 24


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    model = str(packaged_weights("smollm2-135m-q4"))
    # One thread: on a busy machine two of them wait for each other at every layer.
    flags = ("-m", model, "-c", "2048", "-np", "4", "-t", "1", "--metrics", "--host", "127.0.0.1")
    with llama_server(engine_home("llamacpp"), *flags) as server:
        yield server.base


def ask(number: int, tokens: int = TOKENS) -> ChatRequest:
    text = f"Write {number} sentences about rivers, and after them one about bridges."
    return ChatRequest("s", "chat", "chat", f"p{number}", [{"role": "user", "content": text}], tokens)


async def measured(base_url: str, strangers: int, give_up: bool = False) -> Any:
    """Send six requests, two at a time, beside so many of somebody else's; give another one up half-way."""
    endpoint = Endpoint("a", base_url, "smol")
    async with open_session(120) as session, open_session(120) as elsewhere:
        before = await settled(lambda: read_counters(session, endpoint), wait_s=60.0)
        other = asyncio.create_task(closed_loop(elsewhere, endpoint, [ask(9 + n) for n in range(strangers)], 2))
        records = await closed_loop(session, endpoint, [ask(number) for number in range(2, 8)], 2)
        lost: list[Any] = []
        if give_up:
            task = asyncio.create_task(send(session, endpoint, ask(20, 400)))
            while not (await read_counters(elsewhere, endpoint))["traffic"].get("running"):
                assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            lost = [{}]
        await other
        after = await settled(lambda: read_counters(session, endpoint), wait_s=60.0)
    raw = [raw_request(record, endpoint, 0.0) for record in records]
    assert [request["status"] for request in raw] == ["ok"] * 6
    found = foreign_work(before, after, [*raw, *lost], 400 if give_up else TOKENS)
    assert found is not None
    return found


@pytest.mark.parametrize("give_up", [False, True])
async def test_ours_alone(base_url: str, give_up: bool) -> None:
    found = await measured(base_url, 0, give_up)
    assert not found["polluted"], found["said"]
    assert (found["output_tokens"], found["running_before"], found["running_after"]) == (0, 0, 0)


async def test_a_stranger_is_found(base_url: str) -> None:
    found = await measured(base_url, 3)
    assert found["polluted"]
    assert found["output_tokens"] == pytest.approx(3 * TOKENS, abs=3)
    assert "output tokens more than the" in found["said"]


async def test_the_real_engines_counts_agree_with_each_other(base_url: str) -> None:
    endpoint = Endpoint("a", base_url, "smol")
    async with open_session(120) as session:
        before = await settled(lambda: read_counters(session, endpoint), wait_s=60.0)
        # Some of them end by themselves: the token that ends an answer is where counts differ.
        records = await closed_loop(session, endpoint, [ask(number, 120) for number in range(1, 5)], 2)
        after = await settled(lambda: read_counters(session, endpoint), wait_s=60.0)
        requests = [raw_request(record, endpoint, 0.0) for record in records]
        for request in requests:
            request["tokenized"], error = await count_tokens(session, endpoint, request["text"])
            assert error is None
    told = token_sums(before, after, requests)
    assert told is not None
    assert told["engine"] == pytest.approx(told["usage"], abs=SLACK_TOKENS * len(requests))
    counters = [{"group": "chat", "round": 1, "counted": told}]
    kept: Any = {"requests": requests, "counters": counters, "tokenizer": {"error": None}}
    assert arm_contradictions(kept) == []
    # And with half as many again it is found by each source that the engine has.
    lied = [request | {"output_tokens": round(1.5 * (request["output_tokens"] or 0))} for request in requests]
    counters = [{"group": "chat", "round": 1, "counted": token_sums(before, after, lied)}]
    kept = {"requests": lied, "counters": counters}
    found = arm_contradictions(kept)
    for source in ("max_tokens", "timings", "tokenizer", "counters"):
        assert any(f"{source} disagree" in said for said in found), (source, found)
