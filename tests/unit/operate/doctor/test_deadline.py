"""What the doctor says of a rented box's deadline."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from drafthouse.operate.checks.box import deadline
from drafthouse.operate.checks.finding import FAIL, OK
from drafthouse.operate.doctor.deadline import read_watch
from tests.support.deadline_box import Box, loaded, written


def look(box: Box) -> Any:
    """What the doctor finds on the box; the profile says nothing of it."""
    resolved: Any = {}
    return deadline(resolved, {"deadline": read_watch(box.folder, box.clocks)})


@pytest.fixture
def box(tmp_path: Path) -> Box:
    (tmp_path / "program").mkdir()
    (tmp_path / "watch").mkdir()
    return Box(loaded(written(tmp_path / "program")), tmp_path / "watch")


def test_a_box_without_a_deadline_has_no_such_check(tmp_path: Path) -> None:
    assert read_watch(tmp_path / "none") is None
    (tmp_path / "arm.json").write_text("{")
    assert read_watch(tmp_path) is None


def test_one_that_is_watched_says_how_long_it_has(box: Box) -> None:
    box.order(left_s=7200)
    box.once()
    box.passes(600)
    with (box.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check = look(box)
        assert (check.status, check.found) == (OK, "this box destroys itself in 1.8 h")
        box.passes(3600)
        check = look(box)
        assert (check.status, check.found) == (OK, "this box destroys itself in 50 minutes")
        box.machine_restarts(60)
        check = look(box)
        assert (check.status, check.found) == (OK, "the deadline watch has not started counting")
    check = look(box)
    assert (check.status, check.found) == (FAIL, "the deadline watch is not running")


@pytest.mark.processes
def test_one_that_could_not_end_itself_says_what_it_was_answered(box: Box) -> None:
    box.order(left_s=0)
    box.always = 500
    (box.folder / "power_off.py").write_text("print('stopped what served: 3 processes, 0 containers')\n")
    for _ in range(8):
        box.passes(box.once())
    box.passes(180)
    check = look(box)
    assert check.status == FAIL
    assert check.found.startswith(
        "10 min past, and this box still exists (DELETE: status 500; PUT: status 500; stopped"
    )
    assert check.do == "make destroy: it is still billed"
    (box.folder / "journal.jsonl").write_text(json.dumps([1]))
    check = look(box)
    assert "no deadline was recorded" in check.found
