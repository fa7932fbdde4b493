"""The loops of load: who is sent when, what ends a step, and what it leaves when it is stopped."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from drafthouse.bench.client import (
    ChatRequest,
    Endpoint,
    Recording,
    closed_loop,
    open_loop,
    open_session,
    raw_request,
    send,
)
from drafthouse.bench.samples import measured_tpot
from drafthouse.bench.sweep.level import IN_A_ROW, PIECE, LoadOptions, LoadRun, arrivals, quick_tpot
from drafthouse.prompts.load_levels import CLOSED, OPEN
from tests.fakes.clock_server import Running, clock_server

pytestmark = pytest.mark.alone

QUICK = {"ttft_ms": 5, "interval_ms": 2, "tokens": 12}
# A busy neighbour meets one try; a wrong client is late each time.
TRIES = 4


def asks(prompts: int = 4) -> Iterator[ChatRequest]:
    """Requests without end, over so many prompts."""
    for number in itertools.count():
        name = f"p{number % prompts}"
        yield ChatRequest("s", "chat", "chat", name, [{"role": "user", "content": f"{number}"}], output_tokens=120)


def options(**given: Any) -> LoadOptions:
    return LoadOptions(**{"load": CLOSED, "level": 2, "prompts": 4, "seconds": 0.6, "narrow": None, **given})


def load(
    server: Running, given: LoadOptions, source: Iterator[ChatRequest] | None = None, timeout_s: float = 30
) -> LoadRun:
    run = LoadRun(Endpoint("a", server.base_url, "clock"), source or asks(), given)

    async def one() -> None:
        async with open_session(timeout_s) as session:
            await run.run(session)

    asyncio.run(one())
    return run


# ---- the loops -----------------------------------------------------------------------------------


async def test_a_closed_loop_of_endless_requests_ends_when_told_and_finishes_what_runs() -> None:
    done: list[Recording] = []
    with clock_server(**QUICK) as server:
        async with open_session(30) as session:
            endpoint = Endpoint("a", server.base_url, "clock")
            got = await closed_loop(session, endpoint, asks(), 3, done.append, lambda: len(done) >= 7)
        assert server.most_running() == 3
        assert len(server.record()) == len(got)
    # Told at the seventh: the two others that ran then are finished, and nothing new is begun.
    assert 7 <= len(got) <= 9
    assert all(record.whole for record in got)
    assert [record.request.messages[0]["content"] for record in got] == [str(number) for number in range(len(got))]


async def test_an_open_loop_sends_at_its_moments_however_slow_the_server_is() -> None:
    gaps = [0.03] * 12
    with clock_server(ttft_ms=500, tokens=3) as server:
        for _ in range(TRIES):
            async with open_session(30) as session:
                began = time.perf_counter()
                got = await open_loop(session, Endpoint("a", server.base_url, "clock"), asks(), gaps)
            due = [record.due_s - began for record in got if record.due_s is not None]
            late = [record.sent_s - record.due_s for record in got if record.sent_s and record.due_s]
            assert len(late) == 12
            planned = due == pytest.approx([0.03 * number for number in range(1, 13)], abs=0.01)
            if planned and statistics.median(late) < 0.05:
                break
        assert server.most_running() == 12
    assert planned
    assert statistics.median(late) < 0.05


async def test_an_open_loop_ends_in_a_long_gap_and_when_its_requests_do() -> None:
    with clock_server(**QUICK) as server:
        endpoint = Endpoint("a", server.base_url, "clock")
        async with open_session(30) as session:
            began = time.perf_counter()
            got = await open_loop(
                session, endpoint, asks(), [0.01, 60.0], should_stop=lambda: time.perf_counter() > began + 0.3
            )
            assert len(got) == 1
            assert time.perf_counter() - began < 30
            assert len(await open_loop(session, endpoint, itertools.islice(asks(), 2), [0.01] * 9)) == 2
            assert await open_loop(session, endpoint, asks(), []) == []


async def test_cancelling_an_open_loop_ends_its_requests() -> None:
    with clock_server(ttft_ms=60_000) as server:
        async with open_session(60) as session:
            endpoint = Endpoint("a", server.base_url, "clock")
            task = asyncio.create_task(open_loop(session, endpoint, asks(), itertools.repeat(0.01)))
            while len(await asyncio.to_thread(server.record)) < 3:
                assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
            await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 60)


def test_gaps_are_those_of_a_poisson_process_and_the_same_for_both_arms() -> None:
    gaps = list(itertools.islice(arrivals(4.0, seed=3), 20_000))
    assert gaps == list(itertools.islice(arrivals(4.0, seed=3), 20_000))
    assert gaps[:50] != list(itertools.islice(arrivals(4.0, seed=4), 50))
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.03)
    # Exponential: the deviation is the mean, and a share 1/e is longer than it.
    assert statistics.pstdev(gaps) == pytest.approx(0.25, rel=0.03)
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.015)


# ---- what ends a step ----------------------------------------------------------------------------


def test_time_is_up() -> None:
    with clock_server(ttft_ms=20, interval_ms=10, tokens=12) as server:
        run = load(server, options())
    assert run.ended_by == "time"
    assert 0.6 <= run.window[1] < 60
    assert run.unfinished == 0
    assert len(run.records) == run.begun > 2


def test_sharp_enough() -> None:
    with clock_server(ttft_ms=5, interval_ms=5, tokens=12) as server:
        run = load(server, options(seconds=300, narrow=0.5, level=4))
    assert run.ended_by == "narrow"
    counts = [sum(record.request.prompt_id == f"p{number}" for record in run.records) for number in range(4)]
    assert min(counts) >= 2


def test_narrower_than_the_noise_is_never_reached() -> None:
    with clock_server(ttft_ms=5, interval_ms=5, tokens=12) as server:
        run = load(server, options(seconds=2.0, narrow=0.0001, level=4))
    assert run.ended_by == "time"


def test_a_prompt_that_was_never_asked_twice_is_not_sharp() -> None:
    with clock_server(ttft_ms=5, interval_ms=5, tokens=12) as server:
        run = load(server, options(seconds=1.5, narrow=0.5, prompts=500), asks(500))
    assert run.ended_by == "time"


def test_no_more_prompts() -> None:
    with clock_server(**QUICK) as server:
        run = load(server, options(seconds=60), itertools.islice(asks(), 5))
    assert (run.ended_by, len(run.records), run.begun) == ("prompts", 5, 5)


@pytest.mark.parametrize("clock", [{"fail_every": 1}, {"cut_every": 1}])
def test_failures_in_a_row_end_it_at_once(clock: dict[str, int]) -> None:
    with clock_server(**QUICK, **clock) as server:
        run = load(server, options(seconds=60, level=1))
    assert (run.ended_by, len(run.records)) == ("failed", IN_A_ROW)


def test_every_seventh_that_fails_ends_nothing() -> None:
    with clock_server(**QUICK, fail_every=7) as server:
        run = load(server, options(level=3, seconds=1.2))
    assert run.ended_by == "time"
    failed = sum(record.http_status == 500 for record in run.records)
    assert failed == len(run.records) // 7 > 0


def test_a_server_that_is_gone_ends_it_at_once() -> None:
    with clock_server() as server:
        pass
    began = time.monotonic()
    run = load(server, options(seconds=300, level=4))
    assert run.ended_by == "failed"
    assert time.monotonic() - began < 60


def test_a_server_that_hangs_does_not_hold_the_step() -> None:
    with clock_server(ttft_ms=60_000) as server:
        began = time.monotonic()
        run = load(server, options(level=3, drain_s=0.5))
    assert (run.ended_by, run.unfinished, run.records) == ("time", 3, [])
    assert time.monotonic() - began < 30  # half of what one answer takes


def test_an_open_loop_that_the_server_cannot_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    from drafthouse.bench.sweep import level as module

    monkeypatch.setattr(module, "MOST_RUNNING", 20)
    with clock_server(ttft_ms=1500, tokens=3) as server:
        run = load(server, options(load=OPEN, level=100.0, seconds=60, drain_s=120))
    assert run.ended_by == "overload"
    assert run.begun >= 20
    assert run.unfinished == 0


def test_an_open_loop_keeps_its_rate(figure: Callable[[str], None]) -> None:
    with clock_server(**QUICK) as server:
        run = load(server, options(load=OPEN, level=60.0, seconds=2.0))
    figure(f"open loop: {len(run.records)} requests in {run.window[1]:.2f} s, asked for 60 a second")
    # Poisson: 120 +- 3 * 11.
    assert 85 <= len(run.records) <= 155
    assert len(run.late_s()) == len(run.records)


async def test_stopped_in_the_middle_keeps_what_is_done() -> None:
    with clock_server(ttft_ms=20, interval_ms=5, tokens=12) as server:
        run = LoadRun(Endpoint("a", server.base_url, "clock"), asks(), options(seconds=60, level=2))
        async with open_session(30) as session:
            task = asyncio.create_task(run.run(session))
            while len(run.records) < 4:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert run.ended_by == "stopped"
    assert len(run.records) >= 4
    assert run.window[1] > 0


def test_a_clock_that_is_set_back_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    real, began = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: real() - (86_400 if time.monotonic() - began > 0.3 else 0))
    with clock_server(ttft_ms=20, interval_ms=10, tokens=12) as server:
        run = load(server, options())
    assert run.ended_by == "time"
    assert 0.6 <= run.window[1] < 60


# ---- the quick reading ---------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [12, 600])
@pytest.mark.parametrize("clock", [{}, {"role_chunk": True}, {"usage": "twice"}, {"split_bytes": 50}])
async def test_both_ends_of_an_answer_tell_the_same_as_all_of_it(tokens: int, clock: dict[str, Any]) -> None:
    with clock_server(ttft_ms=5, interval_ms=1, tokens=tokens, **clock) as server:
        endpoint = Endpoint("a", server.base_url, "clock")
        async with open_session(30) as session:
            record = await send(
                session, endpoint, ChatRequest("s", "k", "k", "p", [{"role": "user", "content": "x"}], 1000)
            )
    assert (len(record.body) > 2 * PIECE) == (tokens == 600)
    # On a busy machine twelve tokens may come in one piece: then neither tells anything.
    assert quick_tpot(record) == pytest.approx(measured_tpot(raw_request(record, endpoint, 0.0)))


@pytest.mark.parametrize(
    "clock",
    [
        {"usage": "never"},
        {"tokens": 1, "tokens_per_chunk": 1},
        {"tokens": 12, "tokens_per_chunk": 12},
        {"fail_every": 1},
        {"one_piece_every": 1},
        {"one_piece_every": 1, "tokens": 3000},
    ],
)
async def test_an_answer_that_does_not_tell_is_left_out(clock: dict[str, Any]) -> None:
    with clock_server(**{**QUICK, **clock}) as server:
        endpoint = Endpoint("a", server.base_url, "clock")
        async with open_session(30) as session:
            record = await send(
                session, endpoint, ChatRequest("s", "k", "k", "p", [{"role": "user", "content": "x"}], 100)
            )
    assert quick_tpot(record) is None
