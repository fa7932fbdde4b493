"""A step: what is sent to which arm, in which order, and what is noted around it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drafthouse.analysis.verdict import judge
from drafthouse.bench.client import ChatRequest, Endpoint, open_session, send
from drafthouse.bench.foreign_traffic import Clocks
from drafthouse.bench.groups import StepOptions, plan_groups
from drafthouse.bench.results import assemble, summary_lines
from drafthouse.bench.samples import disturbances
from drafthouse.bench.step import WARMUP_TOKENS, run_step
from drafthouse.core.errors import DrafthouseError
from drafthouse.prompts.suite_file import suites_file, suites_text
from tests.fakes.clock_server import Running, clock_server
from tests.fakes.crossover_server import crossover_server
from tests.support.builders import make_resolved

pytestmark = pytest.mark.processes

QUICK = {"ttft_ms": 3, "interval_ms": 1, "tokens": 6, "metrics": "vllm"}


def suite(name: str = "s", **kinds: int) -> Any:
    """A suite with so many prompts of each kind."""
    return {
        "name": name,
        "description": "for tests",
        "kinds": {
            kind: {
                "output_tokens": 10 + place,
                "prompts": [
                    {"id": f"{kind}-{number}", "messages": [{"role": "user", "content": f"{kind} {number}"}]}
                    for number in range(prompts)
                ],
            }
            for place, (kind, prompts) in enumerate(kinds.items())
        },
    }


def lay_suites(home: Path, **suites: dict[str, Any]) -> str:
    """Put suites where a run of ``home`` has them, and return the file."""
    file = Path(suites_file(str(home), suites))
    file.parent.mkdir(exist_ok=True)
    file.write_text(suites_text(suites))
    return str(file)


def order(servers: Mapping[str, Running]) -> list[tuple[str, str]]:
    """Which arm got which prompt, in the order of their arrival, warm-ups left out."""
    arrivals = [
        (entry["received_s"], arm, entry["request"]["messages"][0]["content"])
        for arm, server in servers.items()
        for entry in server.record()
    ]
    return [(arm, text) for _, arm, text in sorted(arrivals) if not text.startswith("Count")]


def measured(options: StepOptions, suites: list[Any], **arms: Running) -> tuple[Any, list[Any]]:
    events: list[Any] = []
    endpoints = [Endpoint(arm, server.base_url, "clock") for arm, server in arms.items()]
    return run_step(endpoints, suites, options, events.append), events


def test_the_plan_of_a_step() -> None:
    options = StepOptions(rounds=2, first_round=3, temperatures=(0.0, 0.7), seed=100)
    groups = plan_groups([suite("s", chat=2), suite("t", code=1)], options)
    assert [(group.round, group.place, group.key) for group in groups] == [
        (number, place, key) for number in (3, 4) for place, key in enumerate(["chat", "code", "chat@0.7", "code@0.7"])
    ]
    first, hot = groups[0].requests, groups[2].requests
    assert [(ask.suite, ask.kind, ask.prompt_id, ask.output_tokens, ask.temperature) for ask in first] == [
        ("s", "chat", "chat-0", 10, 0.0),
        ("s", "chat", "chat-1", 10, 0.0),
    ]
    assert [ask.temperature for ask in hot] == [0.7, 0.7]
    seeds = [ask.seed for group in groups for ask in group.requests if group.key == "chat@0.7"]
    assert len(set(seeds)) == len(seeds)
    assert {ask.seed for ask in plan_groups([suite(chat=2)], StepOptions(seed=None))[0].requests} == {None}


def test_chosen_kinds_and_kinds_that_are_not_there() -> None:
    suites = [suite("s", chat=1, code=1)]
    assert [group.key for group in plan_groups(suites, StepOptions(kinds=("code",)))] == ["code"]
    with pytest.raises(DrafthouseError, match="write 'code'"):
        plan_groups(suites, StepOptions(kinds=("cod",)))
    with pytest.raises(DrafthouseError, match="the kind 'chat' twice"):
        plan_groups([suite("s", chat=1), suite("t", chat=1)], StepOptions())


def test_one_server_alone() -> None:
    with clock_server(**QUICK, drafted=3) as server:
        step, events = measured(StepOptions(temperatures=(0.0, 0.7)), [suite(chat=2, code=1)], single=server)
        record = server.record()
    warmup, *requests = [entry["request"] for entry in record]
    assert warmup["max_tokens"] == WARMUP_TOKENS
    assert [(one["messages"][0]["content"], one["max_tokens"], one["temperature"]) for one in requests] == [
        ("chat 0", 10, 0),
        ("chat 1", 10, 0),
        ("code 0", 11, 0),
        ("chat 0", 10, 0.7),
        ("chat 1", 10, 0.7),
        ("code 0", 11, 0.7),
    ]
    arm = step["arms"]["single"]
    assert arm["warmup"] == {"sent": 1, "failed": 0, "error": None}
    assert [one["group"] for one in arm["requests"]] == [
        "chat",
        "chat",
        "code",
        "chat@0.7",
        "chat@0.7",
        "code@0.7",
    ]
    assert {one["status"] for one in arm["requests"]} == {"ok"}
    # Warm-up is outside the counters: 2 chunks a request, each a draft.
    deltas = [one["after"]["num_drafts"] - one["before"]["num_drafts"] for one in arm["counters"]]
    assert deltas == [4, 2, 4, 2]
    assert arm["counters"][0]["before"]["num_drafts"] == 2
    assert all(span["duration_s"] > 0 for span in arm["spans"])
    machine = step["machine"]
    assert [(one["round"], one["group"]) for one in machine["groups"]] == [
        (1, "chat"),
        (1, "code"),
        (1, "chat@0.7"),
        (1, "code@0.7"),
    ]
    assert machine["groups"][0]["between"]["seconds"] > 0
    assert {"before", "after"} <= set(machine)
    assert events[-1]["done"] == events[-1]["total"] == 6
    assert [event["done"] for event in events] == sorted(event["done"] for event in events)
    assert {event["phase"] for event in events} == {"warm-up", "measure"}
    assert set(events[-1]) == {"done", "total", "phase", "text", "eta_s"}
    json.dumps(step)


def test_two_arms_at_concurrency_1_swap_at_every_prompt_and_round() -> None:
    with clock_server(**QUICK) as one, clock_server(**QUICK) as two:
        step, _ = measured(StepOptions(rounds=2), [suite(chat=3)], a=one, b=two)
        got = order({"a": one, "b": two})
    first = [
        ("a", "chat 0"),
        ("b", "chat 0"),
        ("b", "chat 1"),
        ("a", "chat 1"),
        ("a", "chat 2"),
        ("b", "chat 2"),
    ]
    second = [
        ("b", "chat 0"),
        ("a", "chat 0"),
        ("a", "chat 1"),
        ("b", "chat 1"),
        ("b", "chat 2"),
        ("a", "chat 2"),
    ]
    assert got == first + second
    pairs = {arm: [(r["round"], r["group"], r["prompt_id"]) for r in step["arms"][arm]["requests"]] for arm in "ab"}
    assert pairs["a"] == pairs["b"]
    for arm in ("a", "b"):
        spans = step["arms"][arm]["spans"]
        times = [r["e2el_ms"] / 1000 for r in step["arms"][arm]["requests"] if r["round"] == 1]
        # The other arm's turns are not in this arm's time.
        assert sum(times) <= spans[0]["duration_s"] < sum(times) + 0.5


def test_two_arms_above_concurrency_1_swap_at_every_group_and_round() -> None:
    with clock_server(**QUICK) as one, clock_server(**QUICK) as two:
        step, _ = measured(StepOptions(concurrency=2, rounds=2), [suite(chat=4, code=4, math=4)], a=one, b=two)
        got = order({"a": one, "b": two})
        assert (one.most_running(), two.most_running()) == (2, 2)
    blocks = [(arm, text.split()[0]) for arm, text in got[::4]]
    assert blocks == [
        ("a", "chat"), ("b", "chat"), ("b", "code"), ("a", "code"), ("a", "math"), ("b", "math"),
        ("b", "chat"), ("a", "chat"), ("a", "code"), ("b", "code"), ("b", "math"), ("a", "math"),
    ]  # fmt: skip
    assert step["settings"]["interleaved"] is True
    assert step["arms"]["a"]["warmup"]["sent"] == 2


def test_both_arms_get_the_very_same_requests() -> None:
    with clock_server(**QUICK) as one, clock_server(**QUICK) as two:
        measured(StepOptions(temperatures=(0.7,), rounds=2), [suite(chat=3)], a=one, b=two)
        sent = [[entry["request"] for entry in server.record()] for server in (one, two)]
    assert sent[0] == sent[1]


def test_an_arm_that_answers_no_warm_up_stops_the_step() -> None:
    with clock_server(**QUICK) as good, clock_server(**QUICK, fail_every=1) as bad:
        with pytest.raises(DrafthouseError) as caught:
            measured(StepOptions(), [suite(chat=2)], a=good, b=bad)
        assert order({"a": good, "b": bad}) == []
    problem = caught.value.problems[0]
    assert problem.where.startswith("arm b: http://127.0.0.1:")
    assert problem.found == "HTTP 500: the server made this up"


def test_requests_that_fail_while_measuring_stop_nothing() -> None:
    with clock_server(**QUICK, fail_every=3) as server:
        step, events = measured(StepOptions(warmups=0), [suite(chat=6)], single=server)
    statuses = [request["status"] for request in step["arms"]["single"]["requests"]]
    assert statuses == ["ok", "ok", "failed", "ok", "ok", "failed"]
    assert events[-1]["done"] == 6
    assert step["arms"]["single"]["warmup"]["sent"] == 0


def test_a_long_request_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    from drafthouse.bench import step as measure

    monkeypatch.setattr(measure, "HEARTBEAT_S", 0.05)
    seen: list[Any] = []
    with clock_server(tokens=3, holds_from=1) as server:

        def told(event: Any) -> None:
            seen.append(event)
            if len(seen) == 5:
                server.release()

        step = run_step(
            [Endpoint("single", server.base_url, "clock")],
            [suite(chat=1)],
            StepOptions(warmups=0, timeout_s=60),
            told,
        )
    assert [request["status"] for request in step["arms"]["single"]["requests"]] == ["ok"]


# ---- what disturbs a step ------------------------------------------------------------------------

COUNTING = {"ttft_ms": 5, "tokens": 20, "fixed_ms": 2.0, "each_ms": 0.1}


@contextmanager
def stranger(server: Running) -> Iterator[None]:
    """Have somebody else ask the server all the time, from the first measured request on."""
    until = time.monotonic() + 120.0

    async def others() -> None:
        async with open_session(10) as session:
            while time.monotonic() < until:
                if any(not text.startswith("Count") for _, text in order({"x": server})):
                    ask = ChatRequest("x", "x", "x", "x", [{"role": "user", "content": "Count"}], 500)
                    await send(session, Endpoint("x", server.base_url, "clock"), ask)

    thread = threading.Thread(target=lambda: asyncio.run(others()))
    thread.start()
    try:
        yield
    finally:
        until = 0.0
        thread.join(120)


def disturbed(step: Any) -> dict[str, list[tuple[str, Any, str]]]:
    return {arm: disturbances(assemble([step], arm)) for arm in step["arms"]}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_two_arms_alone_on_their_servers_are_not_called_polluted(concurrency: int) -> None:
    with crossover_server(**COUNTING) as one, crossover_server(**COUNTING, drafted=2) as two:
        options = StepOptions(concurrency=concurrency, rounds=2)
        step, _ = measured(options, [suite(chat=6, code=6)], baseline=one, speculative=two)
    assert disturbed(step) == {"baseline": [], "speculative": []}
    for arm in step["arms"].values():
        assert [one["foreign"]["output_tokens"] for one in arm["counters"]] == [0] * 4
    assert [group["clock"] for group in step["machine"]["groups"]] == [None] * 4


def test_a_server_against_itself_is_not_somebody_elses_traffic() -> None:
    with crossover_server(**COUNTING) as server:
        step, _ = measured(StepOptions(), [suite(chat=6)], baseline=server, speculative=server)
    assert disturbed(step) == {"baseline": [], "speculative": []}


def test_an_engine_without_counters_tells_nothing_and_is_not_blamed() -> None:
    with clock_server(**{**QUICK, "metrics": "none"}) as server:
        step, _ = measured(StepOptions(), [suite(chat=2)], single=server)
    assert step["arms"]["single"]["counters"][0]["foreign"] is None
    assert disturbed(step) == {"single": []}


def test_a_stranger_in_the_turns_of_one_arm_is_found_and_the_verdict_says_whose() -> None:
    with crossover_server(**COUNTING) as one, crossover_server(**COUNTING, drafted=2) as two, stranger(one):
        step, _ = measured(StepOptions(rounds=2), [suite(chat=8)], baseline=one, speculative=two)
    found = disturbed(step)
    assert found["speculative"] == []
    assert found["baseline"]
    group, number, said = found["baseline"][0]
    assert (group, number) == ("chat", 1)
    assert said.startswith("another client used the server: ")
    base, spec = assemble([step], "baseline"), assemble([step], "speculative")
    verdict = judge(base, spec, make_resolved(kinds=["chat"]))
    assert verdict["word"] == "invalid"
    assert f"baseline: chat is polluted in round 1: {said}" in verdict["reasons"]
    assert summary_lines(base)[0] == f"Polluted: chat, round 1: {said}."


def test_a_machine_that_was_suspended_is_told_by_both_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    from drafthouse.bench import step as measure

    moments = iter([Clocks(1000.0, 10.0, 10.0), Clocks(1601.0, 11.0, 611.0)])
    monkeypatch.setattr(measure, "read_clocks", lambda: next(moments))
    with clock_server(**QUICK) as one, clock_server(**QUICK) as two:
        step, _ = measured(StepOptions(), [suite(chat=2)], baseline=one, speculative=two)
    said = "the machine was suspended for 600.0 s during the measurement"
    assert disturbed(step) == {arm: [("chat", 1, said)] for arm in ("baseline", "speculative")}


# ---- counts that are not true --------------------------------------------------------------------

COUNTED = {"ttft_ms": 5, "tokens": 20, "fixed_ms": 4.0, "each_ms": 0.1}


def judged(rounds: int = 2, **speculative: Any) -> tuple[Any, Any]:
    """Measure a server against one that drafts and is no faster, but for these options; return verdict and result."""
    work = [suite(chat=8)]
    work[0]["kinds"]["chat"]["output_tokens"] = 32  # more than the servers make: usage may lie without going above it
    with crossover_server(**COUNTED) as one, crossover_server(**COUNTED | {"drafted": 2} | speculative) as two:
        step, _ = measured(StepOptions(rounds=rounds), work, baseline=one, speculative=two)
    base, spec = (assemble([step], arm) for arm in ("baseline", "speculative"))
    return judge(base, spec, make_resolved(kinds=["chat"])), spec


def test_usage_of_one_arm_half_again_as_high_is_found_by_the_text_and_by_the_engines_counters() -> None:
    verdict, spec = judged(usage_factor=1.5)
    assert verdict["speedup"]["gain"] > 1.3
    assert verdict["word"] == "invalid"
    engine = (
        "usage and the engine's counters disagree on chat in round 1: 240 output tokens, but the engine generated 160"
    )
    text = (
        "usage and the text disagree: 16 answers with the same text in both arms were counted as 320 tokens in baseline"
    )
    for said in (engine, text):
        assert any(said in reason for reason in verdict["reasons"]), verdict["reasons"]
    assert any(line.startswith(f"Miscounted: {engine}") for line in summary_lines(spec))


@pytest.mark.parametrize("fault", [{"usage": "zero"}, {"usage_factor": 0.25}])
def test_usage_of_nothing_or_too_little_is_not_called_another_client(fault: Any) -> None:
    verdict, spec = judged(**fault)
    assert verdict["word"] == "invalid"
    assert disturbances(spec) == []
    assert not any("another client" in reason for reason in verdict["reasons"])
    said = {
        "usage": "16 of 16 requests without a token count (usage) (first chat-0, round 1: the server counted 0 output "
        "tokens (usage.completion_tokens), but 20 chunks contained tokens)",
        "usage_factor": "usage and the stream disagree: 5 output tokens, but 20 chunks with at least one each",
    }[next(iter(fault))]
    assert any(said in reason for reason in verdict["reasons"]), verdict["reasons"]


def test_the_engines_own_tokenizer_is_asked_about_a_few_answers_and_one_without_is_asked_once() -> None:
    verdict, spec = judged(tokenizer=True)
    asked = [request.get("tokenized") for request in spec["requests"]]
    assert asked == [*[20] * 3, *[None] * 5, *[20] * 3, *[None] * 5]
    assert spec["tokenizer"] == {"error": None}
    assert verdict["counts"]["speculative"] == dict.fromkeys(verdict["counts"]["speculative"])
    assert verdict["counts"]["baseline"]["the engine's tokenizer"] == "/tokenize: HTTP 404"
    assert not any("usage" in reason for reason in verdict["reasons"])
    verdict, _ = judged(rounds=1, tokenizer=True, usage_factor=1.5)
    assert any(
        said.startswith(
            "speculative: usage and the engine's tokenizer disagree: 90 output tokens, but 60 for the same 3"
        )
        for said in verdict["reasons"]
    ), verdict["reasons"]
