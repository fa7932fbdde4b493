"""How long an arm's start took is kept for its result, by whoever waits for it first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.serving.readiness import read_ready, ready_file, start_facts, wait_until_ready
from drafthouse.serving.runtimes import State
from tests.fakes.clock_server import clock_server

pytestmark = pytest.mark.processes


class Started:
    """A runtime whose arm was started at some moment."""

    def __init__(self, started: float | None, running: bool = True) -> None:
        self.started, self.running = started, running

    def state(self, arm: str) -> State:
        return State(self.running, self.started, "exit status 1")

    def start(self, arm: str) -> None:
        raise AssertionError("whoever waits starts nothing")

    def stop(self, arm: str) -> None:
        raise AssertionError("whoever waits stops nothing")

    def ending(self, arm: str) -> str:
        return ""

    def log_name(self, arm: str) -> str:
        return "the log"

    def mark(self, arm: str) -> str:
        return ""

    def printed(self, arm: str, since: str = "") -> str:
        return ""

    def tail(self, arm: str, lines: int) -> str:
        return ""


def waited(runtime: Started, base_url: str, keep: Path, on_look: Callable[[Any], None] = lambda event: None) -> float:
    return wait_until_ready(
        runtime, name="baseline", base_url=base_url, health="/v1/models", model="clock", key="", timeout_s=60,
        progress=on_look, keep=keep,
    )  # fmt: skip


def test_a_start_that_was_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "drafthouse.serving.readiness._is_healthy"
    looks: list[str] = []

    def third_time(url: str) -> bool:
        looks.append(url)
        return len(looks) > 2

    monkeypatch.setattr(module, third_time)
    keep = ready_file(tmp_path, "baseline")
    with clock_server() as server:
        began = time.monotonic()
        seconds = waited(Started(time.time() - 4), server.base_url, keep)
        took = time.monotonic() - began
    assert dict(start_facts(tmp_path, "baseline")) == {"ready_s": pytest.approx(seconds, abs=0.01)}
    assert 4.3 < seconds < 4.1 + took
    assert [path.name for path in keep.parent.iterdir()] == ["baseline.ready.json"]


def test_a_later_look_at_the_same_start_changes_nothing(tmp_path: Path) -> None:
    keep, started = ready_file(tmp_path, "baseline"), time.time() - 3
    with clock_server() as server:
        waited(Started(started), server.base_url, keep)
        first = keep.read_text()
        # Hours later a play looks again whether it serves: no start took that long.
        time.sleep(0.05)
        waited(Started(started), server.base_url, keep)
        assert keep.read_text() == first
        waited(Started(started + 1), server.base_url, keep)
    assert read_ready(keep)["started"] == started + 1


def test_one_that_was_ready_at_the_first_look_is_a_bound(tmp_path: Path) -> None:
    with clock_server() as server:
        began = time.monotonic()
        waited(Started(time.time() - 2), server.base_url, ready_file(tmp_path, "baseline"))
        took = time.monotonic() - began
    told = dict(start_facts(tmp_path, "baseline"))
    assert 1.9 < cast(float, told.pop("ready_s")) < 2.1 + took
    assert told == {"ready_at_most": True}


def test_nothing_is_kept_of_a_start_that_failed(tmp_path: Path) -> None:
    keep = ready_file(tmp_path, "baseline")
    with clock_server() as server, pytest.raises(DrafthouseError, match="died"):
        waited(Started(None, running=False), server.base_url, keep)
    assert start_facts(tmp_path, "baseline") == {}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", json.dumps({"started": 1})])
def test_a_file_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    keep = ready_file(tmp_path, "baseline")
    keep.parent.mkdir(parents=True)
    keep.write_text(text)
    assert start_facts(tmp_path, "baseline") == {}


def test_a_home_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    with clock_server() as server:
        assert waited(Started(time.time()), server.base_url, ready_file(tmp_path, "baseline")) >= 0
