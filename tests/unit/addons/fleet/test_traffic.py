"""How a box of a fleet is taken out and put back, and what it answers at /ready, against a little server."""

from __future__ import annotations

import fcntl
import http.server
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.fleet.ready import AGAIN_S, QUIET_S, Readiness, answering
from drafthouse.addons.fleet.traffic import FRONT_S, put_in, running_in, take_out
from drafthouse.addons.gateway_door import ready_socket
from drafthouse.core.errors import DrafthouseError
from drafthouse.serving.out_of_traffic import DRAIN, RUN, forget_run, out_file, reasons_out

KEY = "a-key-of-the-replica"


@dataclass
class Engine:
    """What the server says: its counters, and whether it answers a request."""

    running: list[int] = field(default_factory=lambda: [0])
    made: int = 0
    answers: bool = True
    health: int = 200
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
                return self.say(told.health, "{}")
            if self.headers.get("Authorization") != f"Bearer {KEY}":
                return self.say(401, "{}")
            if not told.counters:
                return self.say(404, "")
            running = told.running.pop(0) if len(told.running) > 1 else told.running[0]
            self.say(200, f"vllm:num_requests_running {running}\nvllm:generation_tokens_total {told.made}\n")

        def do_POST(self) -> None:
            told.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            told.made += told.answers
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
        "model": "m", "key_file": str(tmp_path / "key"),
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


def taken_out(home: Path, owner: str = DRAIN, wait_s: float = 60) -> Any:
    clock = Time()
    return take_out(home, owner, "a test", wait_s, clock, clock.sleep)


def test_a_box_is_out_once_nothing_runs_and_the_front_knows(home: Path, engine: Engine) -> None:
    engine.running = [2, 0, 1, 0, 0, 0, 0]
    done = taken_out(home)
    assert (done.changed, done.running, done.seconds) == (True, 0, FRONT_S)
    assert reasons_out(home) == ["drain: a test"]
    engine.running = [3, 3, 3, 3, 3, 3, 0, 0]
    done = taken_out(home)
    assert (done.changed, done.seconds) == (False, 8.0)
    assert put_in(home, DRAIN).changed
    assert not put_in(home, DRAIN).changed
    assert reasons_out(home) == []


def test_a_person_s_drain_that_takes_too_long_stays(home: Path, engine: Engine) -> None:
    engine.running = [3]
    with pytest.raises(DrafthouseError) as refused:
        taken_out(home, wait_s=10)
    assert refused.value.problems[0].code == "drain-timeout"
    assert "3 requests" in refused.value.problems[0].found
    assert out_file(home, DRAIN).exists()


def test_a_run_that_cannot_take_the_box_out_puts_it_back(home: Path, engine: Engine) -> None:
    engine.running = [3]
    with pytest.raises(DrafthouseError):
        taken_out(home, RUN, wait_s=10)
    assert reasons_out(home) == []


def test_nobody_takes_back_another_s_word(home: Path) -> None:
    taken_out(home, DRAIN)
    taken_out(home, RUN)
    assert reasons_out(home) == ["drain: a test", "run: a test"]
    assert put_in(home, RUN, lambda _: None).changed
    assert reasons_out(home) == ["drain: a test"]
    taken_out(home, RUN)
    forget_run(home)
    assert reasons_out(home) == ["drain: a test"]
    forget_run(home)


def test_a_run_puts_back_a_box_that_has_answered_and_no_other(home: Path, engine: Engine) -> None:
    taken_out(home, RUN)
    engine.answers = False
    with pytest.raises(DrafthouseError):
        put_in(home, RUN, lambda _: None)
    assert reasons_out(home) == ["run: a test"]
    engine.answers = True
    waited: list[float] = []
    put_in(home, RUN, waited.append)
    assert engine.asked[-1]["max_tokens"] == 1
    assert waited == [FRONT_S]
    assert reasons_out(home) == []


def test_an_engine_that_does_not_count_is_given_all_the_time(home: Path, engine: Engine) -> None:
    engine.counters = False
    done = taken_out(home, wait_s=10)
    assert (done.running, done.seconds) == (None, 10.0)


def test_an_engine_that_is_gone_runs_nothing(home: Path) -> None:
    gone = order(home)
    gone["base_url"] = "http://127.0.0.1:1"
    assert running_in(gone) == 0


def test_a_box_without_an_order_is_no_replica(tmp_path: Path) -> None:
    with pytest.raises(DrafthouseError) as refused:
        put_in(tmp_path, DRAIN)
    assert refused.value.problems[0].code == "not-a-replica"


def test_a_token_is_asked_after_ten_seconds_without_an_answer_and_two_failures_count(
    home: Path, engine: Engine
) -> None:
    clock = Time()
    readiness = Readiness(home, clock)
    readiness.look()
    assert engine.asked[0]["max_tokens"] == 1
    clock.sleep(QUIET_S - 1)
    readiness.look()
    assert (len(engine.asked), readiness.why_not()) == (1, "")
    engine.answers = False
    clock.sleep(1)
    readiness.look()
    assert (len(engine.asked), readiness.why_not()) == (2, "")
    clock.sleep(AGAIN_S)
    readiness.look()
    assert (len(engine.asked), "500" in readiness.why_not()) == (3, True)
    engine.answers = True
    clock.sleep(AGAIN_S)
    readiness.look()
    assert readiness.why_not() == ""


def test_an_engine_that_answers_people_is_asked_nothing(home: Path, engine: Engine) -> None:
    clock = Time()
    readiness = Readiness(home, clock)
    readiness.look()
    for made, asked in ((40, 1), (80, 1), (80, 2), (80, 3), (5, 4), (9, 4)):  # 5: it was started anew
        clock.sleep(QUIET_S)
        engine.made = made
        readiness.look()
        assert (len(engine.asked), readiness.why_not()) == (asked, ""), made


def test_a_late_answer_of_an_engine_that_works_is_no_failure(home: Path, engine: Engine) -> None:
    def late(_: Any) -> str:
        engine.made += 100
        return "nothing within 30 s"

    clock = Time()
    readiness = Readiness(home, clock, late)
    for _ in range(5):
        readiness.look()
        clock.sleep(QUIET_S)
    assert readiness.why_not() == ""


def test_out_of_traffic_nothing_is_asked_and_the_answer_says_who(home: Path, engine: Engine) -> None:
    taken_out(home, RUN)
    readiness = Readiness(home)
    readiness.look()
    assert (engine.asked, readiness.why_not()) == ([], "run: a test")


def test_the_lock_of_a_measurement_is_seen(home: Path, engine: Engine) -> None:
    readiness = Readiness(home)
    with (home / "benchmark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        readiness.look()
        assert (engine.asked, readiness.why_not()) == ([], "a measurement is under way")


def test_an_engine_that_is_not_well_or_not_there_is_not_ready(home: Path, engine: Engine) -> None:
    readiness = Readiness(home)
    engine.health = 503
    assert "503" in readiness.why_not()
    gone = {**order(home), "base_url": "http://127.0.0.1:1"}
    (home / "replica/order.json").write_text(json.dumps(gone))
    assert "does not answer" in readiness.why_not()


def test_the_socket_answers_with_a_status_and_the_reason(home: Path) -> None:
    def asked() -> bytes:
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(ready_socket(str(home)))
            one.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
            return one.makefile("rb").read()

    Path(ready_socket(str(home))).touch()  # what a killed one has left
    with answering(home, Readiness(home)):
        assert asked().startswith(b"HTTP/1.0 200 ")
        taken_out(home)
        answer = asked()
    assert answer.startswith(b"HTTP/1.0 503 ")
    assert answer.endswith(b"\r\n\r\ndrain: a test")
