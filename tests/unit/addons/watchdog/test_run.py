"""The program around the decisions: its files, its moments, and that it goes on where it was ended."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from drafthouse.addons.watchdog.decision import OFF, ON, TRIAL, Memory
from drafthouse.addons.watchdog.journal import (
    JOURNAL,
    Clocks,
    State,
    append_line,
    elapsed_s,
    read_state,
    write_state,
)
from drafthouse.addons.watchdog.run import Watchdog
from drafthouse.addons.watchdog.switch import CLOSED_MARKER, OPEN_LINK, Door, is_box_locked
from drafthouse.analysis.break_even import Point
from drafthouse.bench.foreign_traffic import parse_traffic
from drafthouse.bench.spec_metrics import parse_counters, unreadable
from drafthouse.core.box_archive import archive
from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.serving.history import SERVED, SWITCHED, add_event
from drafthouse.serving.runtimes import State as Running
from tests.support.watchdog import read_journal

pytestmark = pytest.mark.processes

K = 4
SERVER = {"release": "0001", "profile": "x", "engine": "llamacpp", "version": "1"}
RULES = {"look_s": 60, "patience_s": 60, "dwell_s": 100, "least_drafted": 100, "trial_after_s": 500}


class Box:
    """A box with an engine of the test's own: its counters, its arm, what runs on it, and its clocks."""

    def __init__(self, home: Path, mode: str = "restart", door: str = "") -> None:
        self.home, self.folder = home, home / "watchdog"
        self.folder.mkdir()
        self.clock: Clocks = {"wall": 1000.0, "up": 50.0, "boot": "first"}
        self.drafts = self.drafted = self.accepted = self.tokens = 0
        self.running = 0
        self.dead = False
        self.started = 1.0
        self.changes: list[str] = []
        self.refuses: list[Problem] = []
        self.closed_while_changed: list[bool] = []
        self.order: Any = {
            "mode": mode, "rules": RULES, "points": [asdict(Point(1, 0.2, 0.1, 0.3, 1))], "tokens": K, "every_s": 10,
            "drain_s": 0.01, "again_s": 20, "patience_s": 100, "runtime": "process", "door": door,
        }  # fmt: skip
        self.put_order()
        self.serves("speculative")
        self.watchdog = self.begin()

    def put_order(self) -> None:
        (self.folder / "order.json").write_text(json.dumps(self.order))

    def serves(self, arm: str, event: str = SERVED) -> None:
        add_event(self.home, event, **SERVER, arm=arm, why="test")
        self.arm, self.started = arm, self.started + 1

    def begin(self) -> Watchdog:
        watchdog = Watchdog(
            self.home, now=lambda: {**self.clock}, read=self.read, change=self.change, restore=self.restore,
            sleep=lambda _: None,
        )  # fmt: skip
        vars(watchdog)["runtime"] = lambda: self
        return watchdog

    def state(self, arm: str) -> Running:
        return Running(arm == self.arm and not self.dead, self.started)

    def read(self, order: Any) -> Any:
        if self.dead:
            return unreadable("nobody is there")
        lines = [
            f"llamacpp:tokens_predicted_total {self.tokens}",
            f"llamacpp:requests_processing {self.running}",
        ]
        if self.arm == "speculative":
            lines += [
                f"llamacpp:spec_decode_num_drafts_total {self.drafts}",
                f"llamacpp:spec_decode_num_draft_tokens_total {self.drafted}",
                f"llamacpp:spec_decode_num_accepted_tokens_total {self.accepted}",
            ]
        text = "\n".join(lines)
        return {**parse_counters(text), "traffic": parse_traffic(text)}

    def change(self, home: Path, phase: str, why: str) -> None:
        self.closed_while_changed.append(Door(self.order["door"]).is_closed)
        if self.refuses:
            raise DrafthouseError(self.refuses.pop())
        self.changes.append(phase)
        self.drafts = self.drafted = self.accepted = self.tokens = 0
        self.serves("baseline" if phase == OFF else "speculative", SWITCHED)

    def restore(self, home: Path) -> None:
        self.dead = False

    def goes_on(self, seconds: float, rate: float | None = 0.02) -> None:
        """Let time go by with traffic of this acceptance, a look every ten seconds; None is none."""
        for _ in range(int(seconds / 10)):
            self.clock = {**self.clock, "wall": self.clock["wall"] + 10, "up": self.clock["up"] + 10}
            if rate is not None:
                drafts = 50 if self.arm == "speculative" else 0
                accepted = round(drafts * K * rate)
                self.drafts, self.drafted = self.drafts + drafts, self.drafted + drafts * K
                self.accepted, self.tokens = self.accepted + accepted, self.tokens + 50 + accepted
            self.watchdog.once()

    def journal(self) -> list[tuple[str, str]]:
        return [(line["decision"], line["code"]) for line in read_journal(self.folder)]


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


# ---- what it does ----------------------------------------------------------------------------------


def test_it_switches_off_tries_and_comes_back(box: Box) -> None:
    box.goes_on(300, 0.8)
    box.goes_on(300, 0.02)
    assert (box.changes, box.arm) == ([OFF], "baseline")
    box.goes_on(800, 0.8)
    assert (box.changes, box.arm) == ([OFF, TRIAL], "speculative")
    told = [line for line in box.journal() if line[0] != "hold"]
    assert told == [
        (OFF, "does_not_pay"), (OFF, "changed"), (TRIAL, "time"), (TRIAL, "changed"), (ON, "pays"),
    ]  # fmt: skip
    numbers = next(line for line in read_journal(box.folder) if line["code"] == "does_not_pay")["numbers"]
    assert numbers["break_even"] == 0.2
    assert numbers["acceptance"] == pytest.approx(0.02)


def test_an_engine_that_counts_no_drafted_tokens_is_judged_by_k(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = box.read
    monkeypatch.setattr(box.watchdog, "read", lambda order: {**whole(order), "draft_tokens": None})
    box.goes_on(300, 0.8)
    box.goes_on(300, 0.02)
    numbers = next(line for line in read_journal(box.folder) if line["code"] == "does_not_pay")["numbers"]
    assert numbers["acceptance"] == pytest.approx(0.02)


def test_by_default_it_only_reports(tmp_path: Path) -> None:
    box = Box(tmp_path, mode="report")
    box.goes_on(600, 0.02)
    box.goes_on(600, 0.8)
    assert box.changes == []
    lines = [line for line in read_journal(box.folder) if line["decision"] != "hold"]
    assert [(line["decision"], line["acts"]) for line in lines] == [(OFF, False), (ON, False)]


def test_a_baseline_that_the_run_left_is_not_touched(box: Box) -> None:
    box.goes_on(100, 0.8)
    box.serves("baseline")
    box.goes_on(3000, 0.8)
    assert box.changes == []
    assert box.journal()[-1] == ("hold", "chosen")


def test_a_server_that_somebody_else_changed_is_left_alone_for_the_dwell_time(box: Box) -> None:
    box.goes_on(250, 0.8)
    box.serves("speculative")
    box.goes_on(100, 0.02)
    assert box.changes == []
    box.goes_on(100, 0.02)
    assert box.changes == [OFF]


def test_an_engine_that_is_away_or_says_nothing_changes_nothing(box: Box) -> None:
    box.goes_on(200, 0.02)
    box.changes.clear()
    box.dead = True
    box.goes_on(1000, None)
    assert box.changes == []
    assert box.journal()[-1] == ("hold", "unknown")


def test_alternating_traffic_makes_at_most_one_change_in_a_dwell_time(box: Box) -> None:
    for _ in range(40):
        box.goes_on(50, 0.02)
        box.goes_on(50, 0.9)
    assert len(box.changes) <= 4000 / RULES["dwell_s"]


# ---- the moment -----------------------------------------------------------------------------------


def test_without_a_door_it_waits_until_nothing_is_under_way(box: Box) -> None:
    box.running = 1
    box.goes_on(200)
    assert box.changes == []
    assert ("hold", "busy") in box.journal()
    box.running = 0
    box.goes_on(10)
    assert box.changes == [OFF]


def test_a_wish_without_a_moment_is_dropped_and_so_is_one_that_has_become_pointless(box: Box) -> None:
    box.running = 1
    box.goes_on(240)
    assert ("hold", "never_quiet") in box.journal()
    assert box.changes == []
    box.goes_on(130)
    assert box.watchdog.state.wish
    box.goes_on(60, 0.9)
    assert box.watchdog.state.wish is None
    box.running = 0
    box.goes_on(60, 0.9)
    assert box.changes == []


@contextmanager
def gate(folder: Path) -> Iterator[Path]:
    """The socket that a gateway with a door has made."""
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "pass.sock"))
        yield folder


def test_with_a_door_it_is_closed_while_the_server_changes_and_open_afterwards(tmp_path: Path) -> None:
    with gate(tmp_path / "d") as folder:
        box = Box(tmp_path, door=str(folder))
        box.refuses = [Problem("engine-not-ready", "it does not answer", "an answer", "look")]
        box.goes_on(150)
        assert (box.closed_while_changed, Door(str(folder)).is_closed) == ([True], False)
        assert (OFF, "failed") in box.journal()
        box.goes_on(300)
        assert box.closed_while_changed == [True, True]
        assert (box.changes, Door(str(folder)).is_closed) == ([OFF], False)
        # Held requests find their way through the link, also those that come too late to see that it is open.
        assert (folder / OPEN_LINK).resolve() == folder / "pass.sock"


def test_what_does_not_end_in_time_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gate(tmp_path / "d") as folder:
        box = Box(tmp_path, door=str(folder))
        closed: list[float] = []
        close = Door.close

        def noted(door: Door) -> None:
            closed.append(box.clock["up"])
            close(door)

        monkeypatch.setattr(Door, "close", noted)
        box.running = 1
        box.goes_on(180)
        assert (box.changes, Door(str(folder)).is_closed) == ([], False)
        assert ("hold", "busy") in box.journal()
        # Who is held for nothing is so ever more seldom.
        assert [later - at for at, later in itertools.pairwise(closed)] == [20, 40]


def test_an_engine_that_does_not_say_what_runs_is_never_changed_and_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gate(tmp_path / "d") as folder:
        box = Box(tmp_path, door=str(folder))
        told: Any = box.read
        box.watchdog.read = lambda order: told(order) | {"traffic": {"requests": 5.0}}
        monkeypatch.setattr(Door, "close", lambda self: pytest.fail("it held requests"))
        box.goes_on(300)
        assert box.changes == []
        line = next(line for line in read_journal(box.folder) if line["code"] == "busy")
        assert line["why"] == "the engine does not report its running requests"


@pytest.mark.parametrize("another", ["order", "server"])
def test_after_two_changes_that_came_to_nothing_it_only_reports_until_something_is_another(
    box: Box, another: str
) -> None:
    problem = Problem("engine-not-ready", "it does not answer", "an answer", "look")
    box.refuses = [problem] * 9
    box.goes_on(2000)
    assert len(box.closed_while_changed) == 2
    assert len(box.refuses) == 7
    box.refuses.clear()
    if another == "order":
        box.order["every_s"] = 11
        box.put_order()
    else:
        box.serves("speculative")
    box.goes_on(300)
    assert box.changes == [OFF]


def test_what_a_measurement_asks_is_no_traffic_of_the_box_and_nothing_is_changed(box: Box) -> None:
    lock = box.home / "benchmark.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_box_locked(box.home)
        box.goes_on(250)
        assert box.changes == []
        assert read_journal(box.folder)[-1]["why"] == "a measurement or another change is in progress"
    assert not is_box_locked(box.home)
    box.goes_on(60)
    assert box.changes == []
    box.goes_on(60)
    assert box.changes == [OFF]
    inode = lock.stat().st_ino
    assert is_box_locked(box.home, f"1: FLOCK  ADVISORY  WRITE 99 08:01:{inode} 0 EOF\n")
    assert not is_box_locked(box.home, f"1: POSIX  ADVISORY  WRITE 99 08:01:{inode} 0 EOF\n")
    assert not is_box_locked(box.home, "")


def test_a_measurement_that_begins_while_it_waits_is_neither_disturbed_nor_ended(tmp_path: Path) -> None:
    with gate(tmp_path / "d") as folder, (tmp_path / "benchmark.lock").open("w") as held:
        box = Box(tmp_path, door=str(folder))
        held.write(str(os.getpid()))
        held.flush()
        box.watchdog.sleep = lambda _: fcntl.flock(held, fcntl.LOCK_EX)
        box.goes_on(300)
        assert (box.changes, Door(str(folder)).is_closed) == ([], False)
        assert any(line["why"] == "a measurement has started" for line in read_journal(box.folder))
        fcntl.flock(held, fcntl.LOCK_UN)
        box.watchdog.sleep = lambda _: None
        box.goes_on(50)
        assert box.changes == [OFF]


def test_a_wish_waits_while_another_server_than_the_recorded_one_runs(box: Box) -> None:
    box.running = 1
    box.goes_on(150)
    assert box.watchdog.state.wish
    box.arm, box.running = "baseline", 0  # as a run does between what it measures
    box.goes_on(100, None)
    assert box.changes == []


def test_a_gateway_that_cannot_hold_requests_is_said_and_none_of_them_cut_off(tmp_path: Path) -> None:
    box = Box(tmp_path, door=str(tmp_path / "d"))
    box.goes_on(400)
    assert box.changes == []
    line = next(line for line in read_journal(box.folder) if line["code"] == "busy")
    assert line["why"] == "the gateway in front cannot queue requests: run site.yml --tags gateway"


# ---- another order ----------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_who_only_reported_has_switched_nothing_off(tmp_path: Path, restarted: bool) -> None:
    box = Box(tmp_path, mode="report")
    box.goes_on(300, 0.02)
    assert box.watchdog.state.memory.phase == OFF
    box.order["mode"] = "restart"
    if restarted:
        box.watchdog.save()
        box.watchdog = box.begin()
    box.put_order()
    box.goes_on(10, 0.02)
    assert box.watchdog.state.memory.phase == ON
    box.goes_on(250, 0.02)
    assert box.changes == [OFF]


def test_what_a_new_measurement_chose_is_not_taken_back(box: Box) -> None:
    box.goes_on(200, 0.02)
    assert box.changes == [OFF]
    # A run, whose verdict leaves the very server that serves already.
    box.order["points"] = [asdict(Point(1, 0.25, 0.2, 0.3, 1))]
    box.put_order()
    box.goes_on(3000, 0.9)
    assert box.changes == [OFF]
    assert box.journal()[-1] == ("hold", "chosen")


def test_a_setting_alone_leaves_what_is_known(box: Box) -> None:
    box.goes_on(200, 0.02)
    box.order["every_s"] = 11
    box.put_order()
    box.goes_on(800, 0.9)
    assert box.changes == [OFF, TRIAL]


def test_reasons_that_take_turns_do_not_fill_the_journal(box: Box) -> None:
    for _ in range(300):
        box.goes_on(10, None)
        box.dead = not box.dead
    assert len(box.journal()) < 2 * 3000 / 300 + 5


# ---- it is ended, and begins again --------------------------------------------------------------


def test_a_killed_watchdog_goes_on_from_its_state(box: Box) -> None:
    box.goes_on(90, 0.02)
    before = box.watchdog.state.memory
    box.watchdog.save()
    box.watchdog = box.begin()
    assert box.watchdog.state.memory == before
    box.goes_on(60, 0.02)
    assert box.changes == [OFF]
    box.watchdog = box.begin()
    box.goes_on(350, 0.8)
    assert box.changes == [OFF]
    # The time before it was ended counts.
    box.goes_on(120, 0.8)
    assert box.changes == [OFF, TRIAL]


def test_after_a_restart_of_the_machine_it_still_knows_that_it_is_off(box: Box) -> None:
    box.goes_on(200, 0.02)
    assert box.changes == [OFF]
    box.clock = {"wall": box.clock["wall"] + 120, "up": 5.0, "boot": "second"}
    box.started += 1  # the engine came back with the machine
    box.watchdog = box.begin()
    box.goes_on(60, 0.8)
    assert box.watchdog.state.memory.phase == OFF
    assert box.changes == [OFF]
    box.goes_on(700, 0.8)
    assert box.changes == [OFF, TRIAL]


@pytest.mark.parametrize("recorded", [False, True])
def test_killed_in_the_middle_of_a_change_what_is_recorded_serves_and_the_door_opens(
    tmp_path: Path, recorded: bool
) -> None:
    with gate(tmp_path / "d") as folder:
        box = Box(tmp_path, door=str(folder))
        box.goes_on(60, 0.02)
        state = box.watchdog.state.with_(under_way={"to": OFF, "why": "test"})
        write_state(box.folder, state)
        Door(str(folder)).close()
        box.dead = True
        if recorded:
            box.serves("baseline", SWITCHED)
        box.watchdog = box.begin()
        box.goes_on(10, None)
        assert (box.dead, Door(str(folder)).is_closed) == (False, False)
        assert box.watchdog.state.under_way is None
        assert box.watchdog.state.memory.phase == (OFF if recorded else ON)
        assert ("hold", "resumed") in box.journal()
        box.goes_on(90, 0.02)
        assert box.changes == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "other"}', '{"schema": "drafthouse.watchdog/1"}'])
def test_a_state_that_is_none_is_a_new_beginning(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    assert read_state(tmp_path) is None


def test_the_state_is_whole_or_the_old_one(tmp_path: Path) -> None:
    state = State(Memory(phase=OFF, seen=(1.0, 2.0, 3.0)), {"wall": 1.0, "up": 1.0, "boot": "x"}, arm="baseline")
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_the_journal_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[append_line.__module__]
    monkeypatch.setattr(module, "JOURNAL_BYTES", 500)
    for number in range(60):
        line: Any = {"number": number, "why": "x" * 20}
        append_line(tmp_path, line)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1300
    with (tmp_path / JOURNAL).open("a") as stream:
        stream.write('{"number": 60, "wh')
    kept: list[Any] = read_journal(tmp_path)
    assert kept[-1]["number"] == 59
    line = {"number": 61}
    append_line(tmp_path, line)
    after: list[Any] = read_journal(tmp_path)
    numbers = [one["number"] for one in after]
    assert numbers[-2:] == [59, 61]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("before", "now", "seconds"),
    [
        ({"wall": 10.0, "up": 5.0, "boot": "a"}, {"wall": 9_999.0, "up": 8.0, "boot": "a"}, 3.0),
        ({"wall": 10.0, "up": 5.0, "boot": "a"}, {"wall": 70.0, "up": 1.0, "boot": "b"}, 60.0),
        ({"wall": 10.0, "up": 5.0, "boot": "a"}, {"wall": 1.0, "up": 1.0, "boot": "b"}, 0.0),
    ],
)
def test_a_wall_clock_that_is_set_shortens_nothing(before: Any, now: Any, seconds: float) -> None:
    assert elapsed_s(before, now) == seconds


# ---- as it lies on a box --------------------------------------------------------------------------


def test_its_program_runs_from_what_travels_alone(tmp_path: Path) -> None:
    name, data = archive()
    (tmp_path / name).write_bytes(data)
    code = "import drafthouse.addons.watchdog.run as one, sys; print(sorted(sys.modules), one.__file__)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / name)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ansible" not in done.stdout
    assert "numpy" not in done.stdout
    assert name in done.stdout


def test_a_door_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    for folder in ("", str(tmp_path)):
        assert not Door(folder).exists
    Door("").close()
    Door("").open()
    assert not (tmp_path / CLOSED_MARKER).exists()
