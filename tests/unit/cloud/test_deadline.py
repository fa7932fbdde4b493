"""The watch over a rented box's deadline: its clock, its order, and what it asks a server with the box's own key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drafthouse.cloud.deadline import deadline_of, onstart
from drafthouse.cloud.vast.body import LONGEST_ONSTART, onstart_of
from drafthouse.cloud.vast.client import VastClient
from drafthouse.core.procfs import clocks
from tests.fakes.vast_server import ALWAYS, Fault, Running, vast_server
from tests.support.deadline_box import DEADLINE, HOUR, URL, Box, armed, loaded, written

pytestmark = pytest.mark.processes

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def code(script: Path) -> ModuleType:
    return loaded(script)


@pytest.fixture
def box(code: ModuleType, tmp_path: Path) -> Box:
    return Box(code, tmp_path)


def test_without_an_order_nothing_is_ended(box: Box) -> None:
    assert box.once() == 10
    box.passes(1e6)
    box.once()
    assert box.asked == []


def test_it_ends_when_the_time_is_over_and_goes_on_asking(box: Box) -> None:
    assert box.order()
    box.once()
    box.passes(HOUR - 3)
    assert box.once() == pytest.approx(3)
    assert box.asked == []
    box.passes(3)
    assert box.once() == 60
    assert box.asked == ["DELETE"]
    # A box that lives on in spite of it is asked for again.
    box.passes(60)
    box.once()
    assert box.asked == ["DELETE", "DELETE"]
    assert box.journal == ["armed", "destroyed", "destroyed"]


@pytest.mark.parametrize("jump", [86400.0, -86400.0, 10 * 365 * 86400.0])
def test_a_wall_clock_that_is_set_moves_nothing(box: Box, jump: float) -> None:
    box.order()
    box.once()
    box.passes(10, wall=jump)
    box.once()
    assert box.asked == []
    assert box.left == pytest.approx(HOUR - 10)
    assert any("the clock jumped by" in line for line in box.journal)
    box.passes(HOUR - 10)
    box.once()
    assert box.asked == ["DELETE"]


@pytest.mark.parametrize("wrong", [-2 * 86400.0, 2 * 86400.0, 1800.0])
def test_a_wrong_wall_clock_does_not_touch_the_playbooks_order(box: Box, wrong: float) -> None:
    box.now["wall"] += wrong
    box.order()
    box.once()
    assert box.left == pytest.approx(HOUR)


def test_a_killed_watch_goes_on_where_it_was(box: Box, code: ModuleType) -> None:
    box.order()
    box.once()
    box.passes(1000)
    box.watch = code.Watch(str(box.folder))
    box.once()
    assert box.left == pytest.approx(HOUR - 1000)


def test_after_a_restart_of_the_machine_the_wall_clock_says_how_long_it_was_away(box: Box) -> None:
    box.order()
    box.once()
    box.machine_restarts(away=600)
    box.once()
    assert box.left == pytest.approx(HOUR - 600)
    assert box.journal == ["armed"]
    # A clock that stands before its own past says nothing.
    box.machine_restarts(away=-99999)
    box.once()
    assert box.left == pytest.approx(HOUR - 600)
    box.passes(HOUR - 600)
    box.once()
    assert box.asked == ["DELETE"]


@pytest.mark.parametrize(
    ("answers", "asked", "last", "wait"),
    [
        ([403, 200], ["DELETE", "PUT"], "stopped; its disk is still billed: make destroy", 60),
        ([404, 200], ["DELETE", "PUT"], "stopped; its disk is still billed: make destroy", 60),
        ([400, 200], ["DELETE", "PUT"], "stopped; its disk is still billed: make destroy", 60),
        ([401, 401], ["DELETE", "PUT"], "PUT: status 401", 10),
        ([500], ["DELETE"], "DELETE: status 500", 10),
        ([429], ["DELETE"], "DELETE: status 429", 10),
        ([0], ["DELETE"], "DELETE: no answer", 10),
    ],
)
def test_what_is_refused(box: Box, answers: list[int], asked: list[str], last: str, wait: float) -> None:
    box.order(left_s=0)
    box.answers = list(answers)
    assert box.once() == wait
    assert box.asked == asked
    assert box.journal[-1] == last


def test_a_disk_that_takes_nothing_does_not_keep_it_from_ending(box: Box) -> None:
    for name in ("clock.new", "journal.jsonl"):
        (box.folder / name).mkdir()  # as little can be written into it
    box.order()
    box.once()
    box.passes(HOUR - 5)
    assert box.once() == pytest.approx(5)
    box.passes(5)
    box.answers = [403, 200]
    assert box.once() == 60
    assert box.asked == ["DELETE", "PUT"]


def test_it_is_asked_ever_more_rarely_and_never_given_up(box: Box) -> None:
    box.order(left_s=0)
    box.answers = [0] * 8
    assert [box.once() for _ in range(9)] == [10, 20, 40, 60, 60, 60, 60, 60, 60]
    assert box.journal[-1] == "destroyed"


def test_a_new_deadline_is_taken_up(box: Box) -> None:
    box.order(left_s=5)
    box.once()
    assert box.order(left_s=2 * HOUR, deadline=DEADLINE + 3600)
    box.passes(6)
    box.once()
    assert box.asked == []
    assert box.left == pytest.approx(2 * HOUR - 6)


def test_the_same_order_twice_is_no_news(box: Box) -> None:
    assert box.order()
    assert not box.order()
    box.once()
    box.passes(500)
    box.once()
    assert not box.order(left_s=HOUR - 500 + 20)  # SSH took its time
    # The count and the controller disagree: the controller is right.
    assert box.order(left_s=HOUR - 900)
    box.machine_restarts(away=100)
    box.once()
    assert box.order(left_s=HOUR - 1000)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"deadline": 1}'])
def test_an_order_that_is_none_ends_nothing(box: Box, text: str) -> None:
    (box.folder / "arm.json").write_text(text)
    with_error = text == '{"deadline": 1}'
    try:
        box.once()
    except KeyError:
        assert with_error  # main() says it and looks again
    assert box.asked == []
    assert armed(box.folder, DEADLINE, HOUR, URL, clocks())


@pytest.mark.parametrize(("wall", "left"), [(-600.0, HOUR - 600), (5.0, HOUR), (-86400.0, HOUR), (86400.0, HOUR)])
def test_before_the_playbook_a_wall_clock_is_believed_that_can_be(
    code: ModuleType, box: Box, wall: float, left: float
) -> None:
    """Rented for an hour, and started within it: that is all the start script knows."""
    arm = {"deadline": DEADLINE, "life_s": HOUR, "url": URL}
    now = {**box.now, "wall": DEADLINE - HOUR - wall}
    assert code.left_of(arm, now) == pytest.approx(left)


@pytest.mark.parametrize(
    ("label", "deadline"),
    [
        ("drafthouse-q7w2e5r8t1-1800000000", DEADLINE),
        ("drafthouse-x-18", None),
        ("mine", None),
        (None, None),
        ("", None),
    ],
)
def test_the_deadline_in_a_label(label: str | None, deadline: int | None) -> None:
    assert deadline_of(label) == deadline


# --- the program itself, a real server, the box's own key ------------------------------------------------


@pytest.fixture
def vast() -> Iterator[Running]:
    with vast_server() as server:
        yield server


@pytest.fixture
def rented(vast: Running) -> int:
    body = {"client_id": "me", "image": "x", "disk": 10, "runtype": "ssh_direc ssh_proxy", "label": "ours"}
    return VastClient(vast.key, vast.url).create(8200002, body)


def inside(vast: Running, number: int) -> dict[str, str]:
    """What the platform gives the container."""
    key = vast.market.instances[number].container_key
    return {"PATH": os.environ["PATH"], "CONTAINER_ID": str(number), "CONTAINER_API_KEY": key}


def awaited(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.02)


@pytest.fixture
def run(script: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program as the box does."""
    started: list[subprocess.Popen[str]] = []

    def start(environment: dict[str, str], url: str, left_s: float = 0) -> subprocess.Popen[str]:
        armed(tmp_path, DEADLINE, left_s, url, clocks())
        words = [sys.executable, str(script), str(tmp_path)]
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(folder: Path) -> list[str]:
    file = folder / "journal.jsonl"
    return [json.loads(line)["what"] for line in file.read_text().splitlines()] if file.exists() else []


Run = Callable[..., "subprocess.Popen[str]"]


def test_it_destroys_itself_and_nothing_else(vast: Running, rented: int, run: Run, tmp_path: Path) -> None:
    run(inside(vast, rented), vast.url)
    awaited(lambda: not vast.ours, "end of the instance")
    assert sorted(vast.instances) == sorted(vast.others)
    awaited(lambda: "destroyed" in lines(tmp_path), "line of it")
    # Its own key, and the account's never.
    used = {asked.key for asked in vast.asked if asked.route == "destroy"}
    assert vast.key not in used
    assert len(used) == 1
    texts = "".join(path.read_text() for path in tmp_path.iterdir() if path.is_file())
    assert not used & set(re.findall(r"[\w-]+", texts))


def test_where_it_may_not_destroy_it_stops(vast: Running, rented: int, run: Run, tmp_path: Path) -> None:
    vast.market.container_may = {*vast.market.container_may} - {"destroy"}
    run(inside(vast, rented), vast.url)
    awaited(lambda: vast.instances[rented]["intended_status"] == "stopped", "stopped instance")
    awaited(lambda: any("still billed" in line for line in lines(tmp_path)), "line that says what it still costs")
    assert rented in vast.billing()


def test_a_no_in_a_good_answer_is_a_refusal(vast: Running, rented: int, run: Run) -> None:
    vast.faults.append(Fault("destroy", times=ALWAYS, body=b'{"success": false, "msg": "not with this key"}'))
    run(inside(vast, rented), vast.url)
    awaited(lambda: vast.instances[rented]["intended_status"] == "stopped", "stopped instance")


@pytest.mark.parametrize("fault", [{"status": 500}, {"cut": True}, {"reset": True}, {"half": True}])
def test_a_server_that_fails_is_asked_again(
    vast: Running, rented: int, run: Run, tmp_path: Path, script: Path, fault: dict[str, Any]
) -> None:
    quick = script.read_text().replace("self.wait * 2", "0.1")
    script = tmp_path / "quick.py"
    script.write_text(quick)
    vast.faults.append(Fault("destroy", times=2, **fault))
    armed(tmp_path, DEADLINE, 0, vast.url, clocks())
    words = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.Popen(words, env=inside(vast, rented))
    try:
        awaited(lambda: not vast.ours, "end of the instance")
    finally:
        process.kill()
        process.wait()


def test_it_waits_for_its_time(vast: Running, rented: int, run: Run) -> None:
    began = time.monotonic()
    run(inside(vast, rented), vast.url, left_s=2)
    awaited(lambda: not vast.ours, "end of the instance")
    assert time.monotonic() - began >= 2


def test_without_a_key_it_says_so_and_lives(vast: Running, run: Run, tmp_path: Path) -> None:
    process = run({"PATH": os.environ["PATH"], "CONTAINER_ID": "", "CONTAINER_API_KEY": ""}, vast.url)
    awaited(lambda: "PUT: status 401" in lines(tmp_path), "line of it")
    assert process.poll() is None
    assert not vast.asked


def test_one_watches_and_the_other_waits(vast: Running, rented: int, run: Run, tmp_path: Path) -> None:
    vast.faults.append(Fault("destroy", times=ALWAYS, status=500))
    first = run(inside(vast, rented), vast.url, left_s=3600)
    awaited(lambda: lines(tmp_path).count("watching") == 1, "watch")
    run(inside(vast, rented), vast.url, left_s=3600)
    time.sleep(0.3)
    assert lines(tmp_path).count("watching") == 1
    first.kill()
    awaited(lambda: lines(tmp_path).count("watching") == 2, "second watch")


@pytest.mark.parametrize("there", [True, False])
def test_the_start_script_fits_and_works(vast: Running, rented: int, tmp_path: Path, there: bool) -> None:
    text = onstart(int(time.time()) + 3600, 1.0, vast.url)
    whole = onstart_of(DEADLINE, 1000.0, "https://a-proxy-before-the-console.example.com", f"/{'workspace/' * 10}")
    assert len(whole) < LONGEST_ONSTART - 100  # 4048, with what else the start script does
    text = text.replace("/var/lib/drafthouse/deadline", str(tmp_path))
    order = tmp_path / "arm.json"
    if there:
        armed(tmp_path, DEADLINE, 0, vast.url, clocks())
    before = order.read_text() if there else ""
    process = subprocess.Popen(["bash", "-c", f"{text}\nwait"], env=inside(vast, rented), start_new_session=True)
    try:
        if there:  # an order of the playbook's stays, also when the container starts again
            awaited(lambda: not vast.ours, "end of the instance")
        else:
            awaited(lambda: "armed" in lines(tmp_path), "watch")
            assert vast.ours
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    assert not there or order.read_text() == before
