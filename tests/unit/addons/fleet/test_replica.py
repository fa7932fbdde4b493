"""A replica's marks, its drain and its prober, against a little server in this process."""

from __future__ import annotations

import fcntl
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.fleet import prober as probing
from drafthouse.addons.fleet.prober import MEASURED, OVER_S, Prober, probe
from drafthouse.addons.fleet.replica import DRAINED, SICK, drain, mark, running_in, set_mark, state_of, undrain
from drafthouse.core.errors import DrafthouseError

KEY = "a-key-of-the-replica"


@dataclass
class Engine:
    """What the server says: its counters, and whether it answers a request."""

    running: list[int] = field(default_factory=lambda: [0])
    made: int = 0
    answers: bool = True
    asked: list[Any] = field(default_factory=list)
    port: int = 0
    counters: bool = True


@pytest.fixture
def engine() -> Iterator[Engine]:
    told = Engine()

    class Handler(http.server.BaseHTTPRequestHandler):
        def say(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            if self.path == "/health":
                return self.say(200, "{}")
            if self.headers.get("Authorization") != f"Bearer {KEY}":
                return self.say(401, "{}")
            if not told.counters:
                return self.say(404, "")
            running = told.running.pop(0) if len(told.running) > 1 else told.running[0]
            self.say(200, f"vllm:num_requests_running {running}\nvllm:generation_tokens_total {told.made}\n")

        def do_POST(self) -> None:
            told.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            told.made += 1
            if told.answers:
                self.say(200, json.dumps({"usage": {"completion_tokens": 1}}))
            else:
                self.say(500, "stuck")

        def log_message(self, *words: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield told
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def home(tmp_path: Path, engine: Engine) -> Path:
    (tmp_path / "replica").mkdir()
    (tmp_path / "gateway/data/door").mkdir(parents=True)
    (tmp_path / "key").write_text(KEY)
    order = {
        "base_url": f"http://127.0.0.1:{engine.port}", "health": "/health", "metrics_path": "/metrics",
        "model": "m", "key_file": str(tmp_path / "key"), "probe_s": 15.0,
    }  # fmt: skip
    (tmp_path / "replica/order.json").write_text(json.dumps(order))
    return tmp_path


class Time:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def order(home: Path) -> Any:
    return json.loads((home / "replica/order.json").read_text())


def test_a_drain_waits_until_nothing_runs_twice_in_a_row(home: Path, engine: Engine) -> None:
    engine.running = [2, 0, 1, 0, 0]
    clock = Time()
    done = drain(home, 60, "a test", clock, clock.sleep)
    assert (done.changed, done.running, done.seconds) == (True, 0, 5.0)
    assert mark(home, DRAINED).read_text() == "a test\n"
    assert state_of(home)["state"] == "drained"
    again = drain(home, 60, "a test", clock, clock.sleep)
    assert again.changed is False
    assert undrain(home)
    assert not undrain(home)
    assert state_of(home)["state"] == "ready"


def test_a_drain_that_takes_too_long_says_so_and_the_box_stays_drained(home: Path, engine: Engine) -> None:
    engine.running = [3]
    clock = Time()
    with pytest.raises(DrafthouseError) as refused:
        drain(home, 10, "a test", clock, clock.sleep)
    assert refused.value.problems[0].code == "drain-timeout"
    assert "3 requests" in refused.value.problems[0].found
    assert mark(home, DRAINED).exists()


def test_an_engine_that_does_not_count_is_given_all_the_time(home: Path, engine: Engine) -> None:
    engine.counters = False
    clock = Time()
    done = drain(home, 10, "a test", clock, clock.sleep)
    assert (done.running, done.seconds) == (None, 10.0)


def test_an_engine_that_is_gone_runs_nothing(home: Path) -> None:
    gone = order(home)
    gone["base_url"] = "http://127.0.0.1:1"
    assert running_in(gone) == 0


def test_a_box_without_an_order_is_no_replica(tmp_path: Path) -> None:
    for ask in (state_of, undrain):
        with pytest.raises(DrafthouseError) as refused:
            ask(tmp_path)
        assert refused.value.problems[0].code == "not-a-replica"


def test_a_stuck_engine_is_marked_and_unmarked_by_a_real_answer(home: Path, engine: Engine) -> None:
    clock = Time()
    prober = Prober(home, clock)
    prober.look()
    assert engine.asked[0]["max_tokens"] == 1
    assert not mark(home, SICK).exists()
    clock.sleep(14)
    prober.look()
    assert len(engine.asked) == 1
    engine.answers = False
    engine.counters = False
    clock.sleep(1)
    prober.look()
    assert "500" in state_of(home)["why"]
    assert state_of(home)["state"] == "sick"
    engine.answers = True
    clock.sleep(2)
    prober.look()
    assert state_of(home)["state"] == "ready"


def test_an_engine_that_answers_people_is_asked_nothing(home: Path, engine: Engine) -> None:
    clock = Time()
    prober = Prober(home, clock)
    prober.look()
    assert len(engine.asked) == 1
    for made, asked in ((40, 1), (80, 1), (80, 2), (80, 3), (5, 4), (9, 4)):  # 5: it was started anew
        clock.sleep(15)
        engine.made = made
        prober.look()
        assert len(engine.asked) == asked, made
        assert not mark(home, SICK).exists()


def test_a_full_engine_is_not_sick(home: Path, engine: Engine) -> None:
    """It makes tokens, and the probe waits in its queue."""
    engine.answers = False
    assert probe(order(home)) == ""
    engine.counters = False
    assert "500" in probe(order(home))


def test_while_a_measurement_is_under_way_it_takes_none_and_is_asked_nothing(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Time()
    prober = Prober(home, clock)
    monkeypatch.setattr(probing, "is_measured", lambda home: True)
    prober.look()
    assert mark(home, SICK).read_text().strip() == MEASURED
    assert not engine.asked
    monkeypatch.setattr(probing, "is_measured", lambda home: False)
    prober.look()  # between two steps
    assert mark(home, SICK).exists()
    clock.sleep(OVER_S)
    prober.look()
    assert not mark(home, SICK).exists()


def test_the_lock_of_a_measurement_is_seen(home: Path) -> None:
    with (home / "benchmark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Prober(home).look()
        assert mark(home, SICK).exists()


def test_a_mark_may_be_read_by_a_gateway_of_another_user(home: Path) -> None:
    assert set_mark(home, SICK, "a reason")
    assert not set_mark(home, SICK, "another")
    assert mark(home, SICK).read_text() == "another\n"
    assert mark(home, SICK).stat().st_mode & 0o777 == 0o644
