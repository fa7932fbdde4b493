"""A ladder as it is measured: what is kept, an engine that dies, a stranger's requests, and a second run."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.bench.client import ChatRequest, Endpoint, open_session, send
from drafthouse.bench.sweep import run as module
from drafthouse.bench.sweep.plan import LadderPlan, Rung, heading
from drafthouse.bench.sweep.recovery import ServerWatch
from drafthouse.bench.sweep.run import run_ladder
from drafthouse.bench.sweep.stats import step_numbers
from drafthouse.bench.sweep.store import LadderFile, requests_file
from drafthouse.core.errors import DrafthouseError, Problem
from tests.fakes.clock_server import Running, clock_server
from tests.fakes.crossover_server import crossover_server
from tests.fakes.in_process import started
from tests.support.ports import free_port
from tests.support.refusals import refuses
from tests.unit.bench.sweep.test_plan import suite

pytestmark = pytest.mark.alone

QUICK = {"ttft_ms": 5, "interval_ms": 2, "tokens": 12, "metrics": "vllm"}
# 100 ms an answer: what a busy neighbour costs is little beside it.
SLOW = {"ttft_ms": 40, "interval_ms": 20, "tokens": 12, "metrics": "vllm"}
PLAN = LadderPlan("closed", (1, 2), ("chat",), seconds=0.4, narrow=None, drain_s=2.0)


class Calm:
    """A watch for servers that do not die."""

    async def died(self, arm: str) -> bool:
        return False

    async def why(self, arm: str) -> str:
        return ""

    async def bring_back(self, arm: str) -> str:
        raise AssertionError("nothing died")


def measured(path: Path, plan: LadderPlan, arms: Mapping[str, str], **more: Any) -> Any:
    """Measure a ladder of the arms at these addresses."""
    endpoints = [Endpoint(arm, url, "clock") for arm, url in arms.items()]
    file = LadderFile(path, heading(plan, "x", "key"))
    given: Any = {"watch": Calm(), **more}
    return run_ladder(endpoints, [suite("s", chat=3, code=3)], plan, file, **given)


def test_every_step_of_both_arms(tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    plan = LadderPlan("closed", (1, 3), ("chat", "code"), seconds=0.8, narrow=None, limits={"ttft_ms": 1000.0})
    events: list[Any] = []
    kept: list[Any] = []
    with clock_server(**SLOW) as one, clock_server(**SLOW, drafted=4) as two:
        arms = {"baseline": one.base_url, "speculative": two.base_url}
        got = measured(path, plan, arms, on_progress=events.append, on_step=kept.append)
        assert (one.most_running(), two.most_running()) == (3, 3)
    assert json.loads(path.read_text()) == got
    steps = got["steps"]
    assert [(one["level"], one["kind"], one["arm"]) for one in steps[:4]] == [
        (1, "chat", "baseline"), (1, "chat", "speculative"), (1, "code", "speculative"), (1, "code", "baseline"),
    ]  # fmt: skip
    assert len(steps) == len(kept) == 8
    for step in steps:
        assert (step["status"], step["ended_by"], step["restarted"]) == ("ok", "time", False)
        assert step["completed"] == step["num_prompts"] > 0
        assert step["failed"] == step["unfinished"] == 0
        assert 0 < step["output_throughput"] < 500
        assert step["goodput"] == pytest.approx(step["request_throughput"])
        assert set(step["tpot_by_prompt"]) <= {f"{step['kind']}-{number}" for number in range(3)}
        rung = Rung(step["level"], step["arm"], step["round"], step["kind"])
        lines = gzip.decompress(requests_file(path, rung).read_bytes()).splitlines()
        raw = [json.loads(line) for line in lines]
        assert len(raw) == step["num_prompts"]
        assert "text" not in raw[0]
    drafted = {step["arm"]: step["spec_decode_acceptance_rate"] for step in steps}
    assert drafted == {"baseline": None, "speculative": 50.0}
    # The middle ones: a machine that stands still for a moment meets one of them.
    three = sorted(one["output_throughput"] for one in steps if one["level"] == 3)
    alone = sorted(one["output_throughput"] for one in steps if one["level"] == 1)
    assert three[2] > 2 * alone[1]
    assert events[-1]["total"] == 8
    assert all(event["eta_s"] >= 0 for event in events)


def test_answers_in_one_chunk_are_told_and_in_no_time_per_token(tmp_path: Path) -> None:
    with clock_server(**{**QUICK, "tokens": 12, "tokens_per_chunk": 12}) as server:
        step, *_ = measured(tmp_path / "l.json", PLAN, {"a": server.base_url})["steps"]
    assert step["status"] == "ok"
    assert step["without_tpot"] == step["completed"] > 0
    assert (step["tpot_ms"]["median"], step["per_user_tok_s"], step["tpot_by_prompt"]) == (None, None, {})
    assert step["output_throughput"] > 0
    assert any("had no TPOT (one token, or all in one chunk)" in note for note in step["notes"])


def test_an_open_ladder(tmp_path: Path) -> None:
    plan = LadderPlan("open", (20.0,), ("chat",), seconds=1.0, narrow=None)
    with clock_server(**QUICK) as server:
        (step,) = measured(tmp_path / "l.json", plan, {"a": server.base_url})["steps"]
    assert step["level"] == 20.0
    assert 5 <= step["num_prompts"] <= 40
    assert step["late_ms"] is not None


def test_a_second_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "ladder.json"
    with clock_server(**QUICK) as server:
        first = measured(path, PLAN, {"a": server.base_url})
        # As a run leaves it that was killed while it measured the second step.
        kept = {**first, "steps": first["steps"][:1]}
        path.write_text(json.dumps(kept))
        server.reset()
        again = measured(path, PLAN, {"a": server.base_url})
        sent = [one["request"]["messages"][0]["content"] for one in server.record()]
        assert again["steps"][0] == first["steps"][0]
        assert [step["level"] for step in again["steps"]] == [1, 2]
        assert {text[:4] for text in sent if not text.startswith("Count")} == {"[1.2"}
        server.reset()
        assert measured(path, PLAN, {"a": server.base_url}) == again
        assert server.record() == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "Expecting"),
        ("[]", "another kind of file"),
        ('{"schema": "drafthouse.result/1"}', "another kind of file"),
        ('{"schema": "drafthouse.ladder/1", "key": "other", "steps": []}', "measured with other settings"),
    ],
)
def test_another_file_is_never_written_over(tmp_path: Path, text: str, found: str) -> None:
    path = tmp_path / "ladder.json"
    path.write_text(text)
    with pytest.raises(DrafthouseError, match=found):
        LadderFile(path, heading(PLAN, "x", "key"))
    assert path.read_text() == text


# ---- what goes wrong -----------------------------------------------------------------------------


def test_every_seventh_answer_is_an_error(tmp_path: Path) -> None:
    plan = replace(PLAN, seconds=1.2)  # more than seven on a slow machine, too
    with clock_server(**QUICK, fail_every=7) as server:
        steps = measured(tmp_path / "l.json", plan, {"a": server.base_url})["steps"]
    for step in steps:
        assert (step["status"], step["ended_by"]) == ("ok", "time")
        assert 0 < step["failed"] <= step["num_prompts"] / 6
        assert "did not succeed; the first: HTTP 500" in step["notes"][0]


@pytest.mark.parametrize("clock", [{"usage": "never"}, {"empty_every": 1}, {"error_every": 1}])
def test_answers_without_a_number_make_no_good_step(tmp_path: Path, clock: Any) -> None:
    with clock_server(**{**QUICK, **clock}) as server:
        steps = measured(tmp_path / "l.json", PLAN, {"a": server.base_url})["steps"]
    assert {(step["status"], step["completed"]) for step in steps} == {("broken", 0)}


@pytest.mark.parametrize("clock", [{"cut_every": 5}, {"role_chunk": True}, {"usage": "twice"}, {"stall_every": 9}])
def test_streams_with_faults(tmp_path: Path, clock: Any) -> None:
    with clock_server(**{**QUICK, **clock}) as server:
        steps = measured(tmp_path / "l.json", PLAN, {"a": server.base_url})["steps"]
    for step in steps:
        assert (step["status"], step["ended_by"]) == ("ok", "time")
        assert step["tpot_ms"]["median"] == pytest.approx(3 * 2 / 11, rel=3.0)
    assert sum(step["unfinished"] for step in steps) >= (1 if "stall_every" in clock else 0)


class Server:
    """A clock server that can be killed and comes back at the same port; its own watch."""

    def __init__(self, back: bool = True, deaths: int = 1) -> None:
        self.port, self.back, self.deaths = free_port(), back, deaths
        self.url = f"http://127.0.0.1:{self.port}"
        self.started = 0
        self.process = self.start()

    def start(self) -> subprocess.Popen[str]:
        self.started += 1
        return started("tests.fakes.clock_server", QUICK | {"tokens": 60}, self.port)[0]

    def kill_at(self, level: int) -> None:
        """Have it end itself when it is sent the fifth request of this level."""
        Running(self.url, self.process.pid).change(dies_at=5, dies_of=f"[1.{level}.")

    async def died(self, arm: str) -> bool:
        return self.process.poll() is not None

    async def why(self, arm: str) -> str:
        return ""

    async def bring_back(self, arm: str) -> str:
        if not self.back:
            raise DrafthouseError(Problem("server-unreachable", "it stays down", "a server", "start it"))
        self.process = await asyncio.to_thread(self.start)
        if self.started <= self.deaths:
            self.kill_at(2)
        return "started again"

    def end(self) -> None:
        self.process.kill()
        self.process.wait(120)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def mortal(**given: Any) -> Iterator[Server]:
    server = Server(**given)
    try:
        yield server
    finally:
        server.end()


def test_an_engine_that_dies_is_restarted_once_and_its_step_is_marked(tmp_path: Path) -> None:
    plan = LadderPlan("closed", (1, 2, 3), ("chat",), seconds=1.0, narrow=None, drain_s=2.0)
    with mortal() as server:
        server.kill_at(2)
        got = measured(tmp_path / "l.json", plan, {"a": server.url}, watch=server)
        assert server.started == 2
    assert [step["level"] for step in got["steps"]] == [1, 2, 3]
    broken = [step for step in got["steps"] if step["status"] == "broken"]
    assert [(step["ended_by"], step["restarted"]) for step in broken] == [("died", True)]
    assert broken[0]["notes"][-2:] == ["the engine died during this step", "started again"]
    # What was measured before it died is kept with it.
    assert 0 < broken[0]["completed"] < broken[0]["num_prompts"]
    last = got["steps"][-1]
    assert (last["status"], last["ended_by"]) == ("ok", "time")
    assert got["notes"] == []


def test_an_engine_that_dies_again_is_given_up_and_the_other_arm_goes_on(tmp_path: Path) -> None:
    plan = LadderPlan("closed", (1, 2, 3), ("chat",), seconds=1.0, narrow=None, drain_s=2.0)
    with mortal(deaths=9) as server, clock_server(**QUICK) as other:
        server.kill_at(1)

        class Both:
            async def died(self, arm: str) -> bool:
                return arm == "a" and await server.died(arm)

            async def why(self, arm: str) -> str:
                return ""

            async def bring_back(self, arm: str) -> str:
                return await server.bring_back(arm)

        got = measured(tmp_path / "l.json", plan, {"a": server.url, "b": other.base_url}, watch=Both())
        assert server.started == 2
    told = [(step["level"], step["status"], step["restarted"]) for step in got["steps"] if step["arm"] == "a"]
    assert told == [(1, "broken", True), (2, "broken", False)]
    assert [step["status"] for step in got["steps"] if step["arm"] == "b"] == ["ok"] * 3
    assert got["notes"] == [
        "a: the steps after '2, chat, a, round 1' were not measured: it died again after it was restarted"
    ]


def test_a_ladder_that_goes_on_drops_the_note_that_it_did_not(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    with mortal(back=False) as server:
        server.end()
        first = measured(path, PLAN, {"a": server.url}, watch=server)
        other = "a: the steps after '2, chat, a, round 7' were not measured: it did not start again: x"
        path.write_text(json.dumps({**first, "notes": [*first["notes"], other, "seen"]}))
        server.back = True
        server.process = server.start()
        got = measured(path, PLAN, {"a": server.url}, watch=server)
    assert len(first["notes"]) == 1
    assert [(step["level"], step["status"]) for step in got["steps"]] == [(1, "broken"), (2, "ok")]
    # What another round gave up is not measured by this run.
    assert got["notes"] == [other, "seen"]
    assert json.loads(path.read_text()) == got


def test_an_engine_that_does_not_come_back(tmp_path: Path) -> None:
    with mortal(back=False) as server:
        server.end()
        got = measured(tmp_path / "l.json", PLAN, {"a": server.url}, watch=server)
    (step,) = got["steps"]
    assert (step["status"], step["ended_by"], step["restarted"], step["completed"]) == ("broken", "died", False, 0)
    assert step["notes"][0].startswith("no warm-up request was answered: ")
    assert got["notes"][0].endswith("it did not start again: it stays down")


def test_a_server_of_somebody_else_is_waited_for() -> None:
    with mortal() as server:
        watch = ServerWatch([Endpoint("a", server.url, "clock")], away_s=120.0)
        assert not asyncio.run(watch.died("a"))
        server.end()
        assert asyncio.run(watch.died("a"))
        threading.Timer(1.0, lambda: setattr(server, "process", server.start())).start()
        assert asyncio.run(watch.bring_back("a")).startswith("the server answered again after ")
        server.end()
        with refuses("server-unreachable"):
            asyncio.run(ServerWatch([Endpoint("a", server.url, "clock")], away_s=0.1).bring_back("a"))


def test_a_key_that_is_refused_is_no_death() -> None:
    with clock_server(**QUICK, key="right") as server:
        watch = ServerWatch([Endpoint("a", server.base_url, "clock", "wrong")])
        assert not asyncio.run(watch.died("a"))


class Polluter:
    """Beside a step: says that somebody else used the server."""

    async def begin(self, session: Any, endpoint: Endpoint) -> None:
        return None

    async def end(self, session: Any, endpoint: Endpoint) -> None:
        return None

    def report(self, requests: Sequence[Any], unfinished: int) -> Any:
        assert requests
        assert unfinished == 0
        return {"power": {"mean_w": 5}, "notes": ["seen"], "status": "polluted"}


def test_what_is_read_beside_a_step_is_laid_over_it(tmp_path: Path) -> None:
    with clock_server(**QUICK) as server:
        good = measured(tmp_path / "l.json", PLAN, {"a": server.base_url}, readers=(Polluter,))["steps"]
    with clock_server(**QUICK, usage="never") as server:
        bad = measured(tmp_path / "m.json", PLAN, {"a": server.base_url}, readers=(Polluter,))["steps"]
    assert {(step["status"], step["power"]["mean_w"]) for step in good} == {("polluted", 5)}
    assert {step["status"] for step in bad} == {"broken"}
    assert all("seen" in step["notes"] for step in good + bad)


def test_the_meter_is_read_before_the_step_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Meter:
        async def begin(self, session: Any, endpoint: Endpoint) -> None:
            order.append("begin")

        async def end(self, session: Any, endpoint: Endpoint) -> None:
            order.append("end")

        def report(self, requests: Sequence[Any], unfinished: int) -> Any:
            order.append("report")
            return {}

    def numbers(*given: Any) -> Any:
        order.append("numbers")
        return step_numbers(*given)

    monkeypatch.setattr(module, "step_numbers", numbers)
    plan = LadderPlan("closed", (1,), ("chat",), seconds=0.3, narrow=None)
    with clock_server(**QUICK) as server:
        measured(tmp_path / "l.json", plan, {"a": server.base_url}, readers=(Meter,))
    assert order == ["begin", "end", "numbers", "report"]


def test_a_stranger_on_the_server_makes_the_step_polluted(tmp_path: Path) -> None:
    plan = LadderPlan("closed", (1,), ("chat",), seconds=1.0, narrow=None)
    counting = {"ttft_ms": 5.0, "tokens": 20, "fixed_ms": 2.0, "each_ms": 0.1}
    with crossover_server(**counting) as server:
        (alone,) = measured(tmp_path / "l.json", plan, {"a": server.base_url})["steps"]
        until = time.monotonic() + 120.0

        async def others() -> None:
            async with open_session(10) as session:
                while time.monotonic() < until:
                    ask = ChatRequest("x", "x", "x", "x", [{"role": "user", "content": "x"}], 500)
                    await send(session, Endpoint("x", server.base_url, "clock"), ask)

        thread = threading.Thread(target=lambda: asyncio.run(others()))
        thread.start()
        (shared,) = measured(tmp_path / "m.json", plan, {"a": server.base_url})["steps"]
        until = 0.0
        thread.join(120)
    assert (alone["status"], alone["foreign"]["polluted"]) == ("ok", False)
    assert (shared["status"], shared["ended_by"]) == ("polluted", "time")
    assert shared["foreign"]["output_tokens"] > 50
    assert shared["notes"][-1].startswith("another client used the server: ")


def test_a_clock_that_is_set_is_told_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drafthouse.bench.foreign_traffic import Clocks

    moments = iter([Clocks(1000.0, 10.0, 10.0), Clocks(400.0, 11.0, 11.0)])
    monkeypatch.setattr(module, "read_clocks", lambda: next(moments))
    plan = LadderPlan("closed", (1,), ("chat",), seconds=0.3, narrow=None)
    with clock_server(**QUICK) as server:
        (step,) = measured(tmp_path / "l.json", plan, {"a": server.base_url})["steps"]
    assert step["status"] == "ok"
    assert any("clock was set back by 601.0 s" in note for note in step["notes"]), step["notes"]
    assert 0.3 <= step["duration_s"] < 60
