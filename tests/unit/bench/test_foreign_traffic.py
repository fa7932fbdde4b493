"""Somebody else's traffic, found from the counters of each engine; and clocks that do not run through."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from drafthouse.bench.client import ChatRequest, Endpoint, closed_loop, open_session, raw_request
from drafthouse.bench.foreign_traffic import Clocks, clock_jump, foreign_work, parse_traffic, read_clocks, settled
from drafthouse.bench.spec_metrics import read_counters, unreadable
from tests.fakes.crossover_server import PROMPT_TOKENS, crossover_server

pytestmark = pytest.mark.processes

VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3.0
vllm:request_success_created{engine="0",finished_reason="length",model_name="m"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 500.0
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 90.0
vllm:generation_tokens_total{engine="0",model_name="m"} 1200.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 1200.0
"""
LLAMACPP = """\
llamacpp:prompt_tokens_total 145
llamacpp:tokens_predicted_total 2712
llamacpp:tokens_predicted_seconds_total 6.1
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""


def snapshot(**traffic: float) -> Any:
    return {"dialect": "vllm", "error": None, "traffic": traffic}


def requests(number: int = 4, **fields: Any) -> list[Any]:
    return [{"status": "ok", "input_tokens": 50, "output_tokens": 100, **fields} for _ in range(number)]


# ---- what the engines write ----------------------------------------------------------------------


def test_each_engine_in_its_own_words() -> None:
    assert parse_traffic(VLLM) == {"requests": 10, "input_tokens": 500, "output_tokens": 1200, "running": 7}
    assert parse_traffic(LLAMACPP) == {"input_tokens": 145, "output_tokens": 2712, "running": 3}
    trtllm = 'trtllm_request_success_total{engine_type="trtllm",finished_reason="end_id"} 3.0\n'
    assert parse_traffic(trtllm) == parse_traffic(trtllm.replace("trtllm_r", "trtllm:r")) == {"requests": 3}


def test_what_is_no_counter_of_an_engine_is_passed_over() -> None:
    assert parse_traffic("") == {}
    assert parse_traffic("vllm:generation_tokens_total NaN\nother:generation_tokens_total 5\nrubbish\n") == {}
    assert parse_traffic("vllm:generation_tokens_total{a} x\n") == {}


def test_a_counter_in_both_spellings_is_one_counter() -> None:
    text = "vllm:generation_tokens_total 40\nvllm:generation_tokens 40\n"
    assert parse_traffic(text) == {"output_tokens": 40}


# ---- the judgement -------------------------------------------------------------------------------


def test_our_own_requests_are_nobody_elses() -> None:
    before = snapshot(requests=5, input_tokens=900, output_tokens=3000, running=0)
    after = snapshot(requests=9, input_tokens=1100, output_tokens=3400, running=0)
    assert foreign_work(before, after, requests(), 100) == {
        "requests": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "running_before": 0,
        "running_after": 0,
        "polluted": False,
        "said": None,
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"output_tokens": 500}, "500 output tokens more than the 400 that our requests account for"),
        ({"input_tokens": 4000}, "4,000 input tokens more than the 200"),
        ({"running": 2}, "2 of its requests were running after ours had ended"),
    ],
)
def test_more_than_ours_is_somebody_elses(more: dict[str, float], said: str) -> None:
    ours = {"requests": 4.0, "input_tokens": 200.0, "output_tokens": 400.0, "running": 0.0}
    found = foreign_work(
        snapshot(requests=0, input_tokens=0, output_tokens=0, running=0),
        snapshot(**{key: value + more.get(key, 0) for key, value in ours.items()}),
        requests(),
        100,
    )
    assert found is not None
    assert found["polluted"]
    assert said in (found["said"] or "")


def test_who_is_there_before_we_begin() -> None:
    found = foreign_work(snapshot(output_tokens=0, running=1), snapshot(output_tokens=400, running=0), requests(), 100)
    assert found is not None
    assert found["said"] == "another client used the server: 1 of its requests were running before we began"


def test_a_health_check_moves_no_median() -> None:
    before = snapshot(requests=0, input_tokens=0, output_tokens=0)
    probe = snapshot(requests=6, input_tokens=220, output_tokens=410)
    found = foreign_work(before, probe, requests(), 100)
    assert found is not None
    assert (found["requests"], found["output_tokens"], found["polluted"]) == (2, 10, False)


def test_requests_count_only_where_tokens_are_not_counted() -> None:
    before, after = snapshot(requests=10), snapshot(requests=16)
    found = foreign_work(before, after, requests(), 100)
    assert found is not None
    assert found["said"] == "another client used the server: 2 requests more than our 4"
    assert foreign_work(snapshot(), snapshot(requests=4), requests(), 100) == {
        "requests": 0,
        "input_tokens": None,
        "output_tokens": None,
        "running_before": None,
        "running_after": None,
        "polluted": False,
        "said": None,
    }


def test_what_we_broke_off_is_not_somebody_elses() -> None:
    stopped = requests(2, status="cut_off", output_tokens=None, input_tokens=None)
    after = snapshot(requests=4, input_tokens=200, output_tokens=400)
    before = snapshot(requests=0, input_tokens=0, output_tokens=0)
    found = foreign_work(before, after, [*requests(2), *stopped], 100)
    assert found is not None
    assert not found["polluted"]
    # With nothing known of any prompt there is no bound on the input, and nothing is said of it.
    blind = foreign_work(before, after, requests(4, output_tokens=None, input_tokens=None), 100)
    assert blind is not None
    assert (blind["input_tokens"], blind["polluted"]) == (None, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (unreadable("HTTP 404"), snapshot(output_tokens=9000)),
        (snapshot(output_tokens=9000), unreadable("HTTP 404")),
        (snapshot(), snapshot()),
        (snapshot(output_tokens=500), snapshot(output_tokens=40)),
        (snapshot(output_tokens=500), snapshot()),
    ],
)
def test_counters_that_cannot_tell(before: Any, after: Any) -> None:
    assert foreign_work(before, after, requests(), 100) is None


# ---- on a server ---------------------------------------------------------------------------------


def ask(number: int, tokens: int = 30) -> ChatRequest:
    messages: list[Any] = [{"role": "user", "content": f"prompt {number}"}]
    return ChatRequest("s", "chat", "chat", f"p{number}", messages, tokens)


async def measured(base_url: str, strangers: int) -> tuple[Any | None, list[Any]]:
    """Send eight requests, two at a time, beside so many of somebody else's."""
    endpoint = Endpoint("a", base_url, "clock")
    async with open_session(30) as session, open_session(30) as elsewhere:
        before = await settled(lambda: read_counters(session, endpoint))
        other = asyncio.create_task(closed_loop(elsewhere, endpoint, [ask(n) for n in range(strangers)], 2))
        records = await closed_loop(session, endpoint, [ask(number) for number in range(8)], 2)
        await other
        after = await settled(lambda: read_counters(session, endpoint))
    raw = [raw_request(record, endpoint, 0.0) for record in records]
    return foreign_work(before, after, raw, 30), raw


@pytest.mark.parametrize("strangers", [0, 4])
async def test_a_second_client_is_found(strangers: int) -> None:
    with crossover_server(fixed_ms=2, each_ms=0.1, ttft_ms=5, tokens=30) as server:
        found, raw = await measured(server.base_url, strangers)
    assert [request["status"] for request in raw] == ["ok"] * 8
    assert found is not None
    assert found["polluted"] == bool(strangers)
    assert found["output_tokens"] == 30 * strangers
    assert (found["requests"], found["input_tokens"]) == (strangers, PROMPT_TOKENS * strangers)


async def test_waiting_until_nothing_runs() -> None:
    with crossover_server(fixed_ms=10, each_ms=0, ttft_ms=5, tokens=30) as server:
        endpoint = Endpoint("a", server.base_url, "clock")
        async with open_session(30) as session, open_session(30) as elsewhere:
            number, running = 0, 0.0
            while not running and number < 10:  # on a machine that stalls it may be over before anybody looks
                number += 1
                other = asyncio.create_task(closed_loop(elsewhere, endpoint, [ask(1)], 1))
                while not running and not other.done():
                    seen = await settled(lambda: read_counters(session, endpoint), wait_s=0.0)
                    running = seen["traffic"]["running"]
            assert running == 1
            at_rest = await settled(lambda: read_counters(session, endpoint), wait_s=120.0)
            assert at_rest["traffic"] == {
                "requests": number, "input_tokens": 11 * number, "output_tokens": 30 * number, "running": 0
            }  # fmt: skip
            await other


async def test_a_server_that_tells_nothing_is_not_waited_for() -> None:
    async def nothing() -> Any:
        return unreadable("HTTP 404")

    began = time.monotonic()
    assert (await settled(nothing, wait_s=120.0))["error"] == "HTTP 404"
    assert time.monotonic() - began < 60


# ---- the clocks ----------------------------------------------------------------------------------

START = Clocks(unix_s=1_800_000_000.0, monotonic_s=100.0, boot_s=400.0)


def later(wall: float, ran: float, boot: float | None) -> Clocks:
    boot_s = None if boot is None else 400.0 + boot
    return Clocks(unix_s=START.unix_s + wall, monotonic_s=100.0 + ran, boot_s=boot_s)


@pytest.mark.parametrize(
    ("after", "jump_s", "suspended_s", "polluted", "said"),
    [
        (later(3630.0, 30.0, 30.0), 3600.0, 0.0, False, "set forward by 3600.0 s"),
        (later(-90.0, 30.0, 30.0), -120.0, 0.0, False, "set back by 120.0 s"),
        (later(630.0, 30.0, 630.0), 0.0, 600.0, True, "suspended for 600.0 s"),
        (later(640.0, 30.0, 630.0), 10.0, 600.0, True, "suspended for 600.0 s during the measurement; the machine's"),
        (later(40.0, 30.0, None), 10.0, 0.0, False, "set forward by 10.0 s"),
    ],
)
def test_a_jump_is_found(after: Clocks, jump_s: float, suspended_s: float, polluted: bool, said: str) -> None:
    found = clock_jump(START, after)
    assert found is not None
    assert (found["jump_s"], found["suspended_s"], found["polluted"]) == (jump_s, suspended_s, polluted)
    assert said in (found["said"] or "")


@pytest.mark.parametrize("after", [later(30.0, 30.0, 30.0), later(30.3, 30.0, 30.0), later(7203.0, 7200.0, 7200.0)])
def test_a_clock_that_is_slewed_has_not_jumped(after: Clocks) -> None:
    assert clock_jump(START, after) is None


def test_this_machine_runs_through() -> None:
    assert clock_jump(read_clocks(), read_clocks()) is None
