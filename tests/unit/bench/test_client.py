"""The client against a server of known clock: the figures, and every way in which a request can end."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drafthouse.bench.client import STATUSES, ChatRequest, Endpoint, closed_loop, open_session, raw_request, send
from tests.fakes.clock_server import Running, clock_server

pytestmark = pytest.mark.processes

#: A stream that is over soon.
QUICK = {"ttft_ms": 5, "interval_ms": 2, "tokens": 12}


def ask(number: int = 1, **fields: Any) -> ChatRequest:
    given: dict[str, Any] = {
        "suite": "s",
        "kind": "chat",
        "group": "chat",
        "prompt_id": f"p{number}",
        "messages": [{"role": "user", "content": f"prompt {number}"}],
        "output_tokens": 120,
    }
    return ChatRequest(**given | fields)


def run(
    base_url: str, asks: list[ChatRequest], concurrency: int = 1, timeout_s: float = 60, key: str | None = None
) -> list[Any]:
    """Send the requests in a closed loop and return them raw."""
    endpoint = Endpoint("a", base_url, "clock", key)
    zero = time.perf_counter()

    async def all_of_them() -> list[Any]:
        async with open_session(timeout_s) as session:
            return await closed_loop(session, endpoint, asks, concurrency)

    return [raw_request(record, endpoint, zero) for record in asyncio.run(all_of_them())]


def one(timeout_s: float = 60, **clock: Any) -> dict[str, Any]:
    """Send one request to a server with these options and return it raw."""
    with clock_server(**QUICK | clock) as server:
        request: dict[str, Any] = run(server.base_url, [ask()], 1, timeout_s)[0]
    return request


# ---- the figures ---------------------------------------------------------------------------------

# A busy neighbour can delay the server, the client, or both, and always in one direction. A client that
# reads its clock wrongly does so every time, so the best of a few tries shows it and a neighbour does not.
TRIES = 6


def figures(server: Running, streams: int, requests: int) -> dict[str, float]:
    """Measure, and return what the client read and how far that is from the server's own record (ms)."""
    server.reset()
    got = run(server.base_url, [ask(number) for number in range(requests)], streams)
    assert [request["status"] for request in got] == ["ok"] * requests
    record = server.record()
    tokens = sum(request["output_tokens"] for request in got)
    wall_s = max(r["started_s"] + r["e2el_ms"] / 1000 for r in got) - min(r["started_s"] for r in got)
    return {
        "ttft_ms": statistics.median(request["ttft_ms"] for request in got),
        "tpot_ms": statistics.median(request["tpot_ms"] for request in got),
        "tok_s": tokens / wall_s,
        "own_ttft_ms": 1000 * statistics.median(entry["sent_s"][0] - entry["received_s"] for entry in record),
        "own_tok_s": tokens
        / (max(entry["sent_s"][-1] for entry in record) - min(entry["received_s"] for entry in record)),
        "own_span_ms": 1000 * statistics.median(entry["sent_s"][-1] - entry["sent_s"][0] for entry in record),
        "most_running": float(server.most_running()),
    }


def off(read: float, true: float) -> float:
    """The relative error in percent."""
    return 100 * abs(read - true) / true


@pytest.mark.alone
@pytest.mark.parametrize(("streams", "requests"), [(1, 3), (4, 8)])
def test_ttft_within_3_percent_and_tpot_and_throughput_within_1(
    streams: int, requests: int, figure: Callable[[str], None]
) -> None:
    # 200 ms, then 3 tokens every 40 ms, 120 tokens: 40 chunks, so TPOT = 39 * 40 / 119. The truth is the server's own
    # record: where its machine is late, so is the server.
    seen = []
    with clock_server(ttft_ms=200, interval_ms=40, tokens_per_chunk=3, tokens=120, role_chunk=True) as server:
        for _ in range(TRIES):
            got = figures(server, streams, requests)
            assert got["own_ttft_ms"] >= 200
            tpot_ms = got["own_span_ms"] / 119
            errors = (
                off(got["ttft_ms"], got["own_ttft_ms"]),
                off(got["tpot_ms"], tpot_ms),
                off(got["tok_s"], got["own_tok_s"]),
            )
            seen.append(f"{streams} streams: {got} errors in %: {[round(error, 2) for error in errors]}")
            figure(seen[-1])
            assert got["most_running"] == streams
            if errors[0] < 3 and errors[1] < 1 and errors[2] < 1:
                return
    pytest.fail("\n".join(seen))


@pytest.mark.alone
def test_at_64_streams_of_50_chunks_a_second_ttft_is_within_10_percent(figure: Callable[[str], None]) -> None:
    seen = []
    with clock_server(ttft_ms=200, interval_ms=20, tokens_per_chunk=1, tokens=100) as server:
        for _ in range(TRIES):
            got = figures(server, 64, 64)
            errors = off(got["ttft_ms"], got["own_ttft_ms"]), off(got["tpot_ms"], got["own_span_ms"] / 99)
            seen.append(f"64 streams: {got} errors in %: {[round(error, 2) for error in errors]}")
            figure(seen[-1])
            assert got["most_running"] == 64
            if errors[0] < 10 and errors[1] < 1:
                return
    pytest.fail("\n".join(seen))


@pytest.mark.alone
def test_the_clock_starts_when_the_request_is_sent_and_stops_at_the_last_token() -> None:
    # The server's own record of the same request, on the same clock: nothing may be outside it.
    with clock_server(ttft_ms=60, interval_ms=10, tokens_per_chunk=2, tokens=20, finish_delay_ms=300) as server:
        for _ in range(TRIES):
            server.reset()
            request = run(server.base_url, [ask()])[0]
            entry = server.record()[0]
            ttft_ms = 1000 * (entry["sent_s"][0] - entry["received_s"])
            e2el_ms = 1000 * (entry["sent_s"][-1] - entry["received_s"])
            assert ttft_ms <= request["ttft_ms"]
            assert e2el_ms <= request["e2el_ms"]
            assert request["tpot_ms"] == pytest.approx((request["e2el_ms"] - request["ttft_ms"]) / 19)
            if request["e2el_ms"] < e2el_ms + 250:
                break
    # The closing chunks come 300 ms after the last token, and are not in the answer's time.
    assert request["e2el_ms"] < e2el_ms + 250


# ---- what is read --------------------------------------------------------------------------------


def test_a_request_as_raw_data() -> None:
    with clock_server(**QUICK, role_chunk=True, timings=True, drafted=4, avg_decoded=True) as server:
        endpoint_asks = [ask(7, temperature=0.7, round=2, seed=11, ignore_eos=True, group="chat@0.7")]
        request = run(server.base_url + "/v1/", endpoint_asks)[0]
        sent = server.record()[0]["request"]
    assert sent == {
        "model": "clock",
        "messages": [{"role": "user", "content": "prompt 7"}],
        "max_tokens": 120,
        "temperature": 0.7,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 11,
        "ignore_eos": True,
    }
    assert request["status"] == "ok"
    assert (request["prompt_id"], request["kind"], request["group"]) == ("p7", "chat", "chat@0.7")
    assert (request["suite"], request["round"], request["temperature"]) == ("s", 2, 0.7)
    assert (request["http_status"], request["error"]) == (200, None)
    # 12 tokens in 4 chunks: counted by the server, never by chunks.
    assert (request["input_tokens"], request["output_tokens"], request["chunks"]) == (11, 12, 4)
    assert len(request["itls_ms"]) == 3
    assert request["finish_reason"] == "length"
    assert request["text"] == "".join(f" w{number}" for number in range(12))
    assert request["timings"] == {"predicted_n": 12, "prompt_n": 11, "draft_n": 16, "draft_n_accepted": 8}
    assert request["avg_decoded_tokens_per_iter"] == 3.0
    assert request["ttfat_ms"] == request["ttft_ms"]
    assert 0 < request["started_s"] < 60


@pytest.mark.alone
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_the_first_token_and_the_answer_comes_later(name: str) -> None:
    request = one(reasoning_tokens=6, reasoning_field=name, interval_ms=30)
    assert request["reasoning_text"] == " w0 w1 w2 w3 w4 w5"
    assert request["text"] == " w6 w7 w8 w9 w10 w11"
    assert request["ttfat_ms"] - request["ttft_ms"] > 40
    assert request["chunks"] == 4


def test_tool_calls_are_tokens() -> None:
    request = one(tool_calls=True)
    assert (request["status"], request["chunks"], request["text"]) == ("ok", 4, "")
    assert request["ttfat_ms"] == request["ttft_ms"]


def test_events_that_never_arrive_whole() -> None:
    request = one(split_bytes=7)
    assert (request["status"], request["chunks"], request["output_tokens"]) == ("ok", 4, 12)


def test_usage_sent_twice_is_counted_once() -> None:
    request = one(usage="twice")
    assert (request["status"], request["output_tokens"]) == ("ok", 12)


# ---- how a request can end -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "status", "error"),
    [
        ({"fail_every": 1}, "failed", "HTTP 500: the server made this up"),
        ({"key": "other"}, "failed", "HTTP 401: Incorrect API key provided"),
        ({"plain": True}, "failed", "the answer is not an event stream"),
        ({"error_every": 1}, "failed", "an error inside the stream: the engine gave up"),
        ({"cut_every": 1}, "cut_off", ""),
        ({"quiet_cut_every": 1}, "cut_off", "the stream ended without [DONE] and without a finish_reason"),
        ({"undone_every": 1}, "cut_off", "the stream ended without [DONE]"),
        ({"empty_every": 1}, "empty", "the answer contains no tokens"),
        ({"usage": "never"}, "no_usage", "the server counted None output tokens"),
        ({"usage": "zero"}, "no_usage", "the server counted 0 output tokens"),
    ],
)
def test_failures_are_told_apart(clock: dict[str, Any], status: str, error: str) -> None:
    request = one(**clock)
    assert request["status"] == status
    assert request["status"] in STATUSES
    assert request["error"].startswith(error)


def test_what_a_cut_stream_said_is_kept() -> None:
    request = one(cut_every=1)
    assert (request["text"], request["output_tokens"], request["tpot_ms"]) == (
        " w0 w1 w2 w3 w4 w5",
        None,
        None,
    )
    assert request["ttft_ms"] > 0


def test_a_stalled_stream_is_cut_off_when_its_time_is_up() -> None:
    request = one(stall_every=1, timeout_s=1.0)
    assert (request["status"], request["error"]) == ("cut_off", "the request timed out")


def test_a_server_that_never_answers_fails_when_the_time_is_up() -> None:
    request = one(ttft_ms=60_000, timeout_s=0.5)
    assert (request["status"], request["error"]) == ("failed", "the request timed out")


def test_no_server_and_no_address() -> None:
    with clock_server() as server:
        gone = server.base_url
    for base_url in (gone, "not an address"):
        request = run(base_url, [ask()])[0]
        assert (request["status"], request["http_status"], request["ttft_ms"]) == ("failed", None, None)
        assert request["error"]


def test_the_key_is_sent_and_never_told() -> None:
    with clock_server(**QUICK, key="right") as server:
        good = run(server.base_url, [ask()], key="right")[0]
        bad = run(server.base_url, [ask()], key="wrong-secret")[0]
    assert good["status"] == "ok"
    assert bad["error"] == "HTTP 401: Incorrect API key provided: Bearer (key)"
    assert "secret" not in repr(Endpoint("a", "http://x", "m", "secret"))


def test_a_field_with_which_an_engine_tells_of_drafting_is_sent_beside_the_request() -> None:
    with clock_server(**QUICK) as server:
        endpoint = Endpoint("a", server.base_url, "clock", draft_fields="tell_of_drafts")

        async def both() -> None:
            async with open_session(60) as session:
                await send(session, endpoint, ask())
                await send(session, Endpoint("a", server.base_url, "clock"), ask())

        asyncio.run(both())
        asked, plain = (entry["request"] for entry in server.record())
    assert asked == {**plain, "tell_of_drafts": True}


# ---- the closed loop -----------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Running]:
    with clock_server(**QUICK, fail_every=3) as running:
        yield running


def test_every_third_request_fails_and_the_others_are_measured(server: Running) -> None:
    got = run(server.base_url, [ask(number) for number in range(12)], 1)
    assert [request["status"] for request in got] == ["ok", "ok", "failed"] * 4
    assert [request["prompt_id"] for request in got] == [f"p{number}" for number in range(12)]


def test_never_more_than_the_limit_and_always_as_many() -> None:
    with clock_server(ttft_ms=500) as slow:  # longer than a busy machine keeps the fifth one waiting
        run(slow.base_url, [ask(number) for number in range(20)], 5)
        assert slow.most_running() == 5
        assert len(slow.record()) == 20


def test_more_streams_than_requests_and_none_at_all(server: Running) -> None:
    assert len(run(server.base_url, [ask(1), ask(2)], 50)) == 2
    assert run(server.base_url, [], 4) == []


def test_each_request_has_a_connection_of_its_own(server: Running) -> None:
    run(server.base_url, [ask(1), ask(2)])
    assert [entry["connection"] for entry in server.record()] == ["close", "close"]


async def test_cancelling_is_not_swallowed() -> None:
    with clock_server(ttft_ms=60_000) as slow:
        async with open_session(60) as session:
            task = asyncio.create_task(send(session, Endpoint("a", slow.base_url, "clock"), ask()))
            while not await asyncio.to_thread(slow.record):
                assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
