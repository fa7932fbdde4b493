from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.locks import locked_file, only_one, take_lock
from drafthouse.core.progress import Progress, shown, shown_together
from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes


def test_progress_is_thinned_out_but_not_what_is_important(tmp_path: Path) -> None:
    tell = Progress(str(tmp_path / "p.jsonl"), every_s=3600)
    for number in range(5):
        tell({"text": "n", "done": number, "total": 5})
    tell({"text": "end"}, important=True)
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["n", "end"]


def test_the_modules_arguments_go_once_it_runs(tmp_path: Path) -> None:
    """Ansible's copy of the module has the hub's token in clear text; a run that is killed would leave it there."""
    sent, other = tmp_path / "AnsiballZ_weights.py", tmp_path / "async_wrapper.py"
    for file in (sent, other):
        file.write_text('{"hub_token": "hf_token"}')
    Progress(str(tmp_path / "progress.jsonl"))
    assert not sent.exists()
    assert other.exists()


def test_each_item_is_thinned_out_for_itself(tmp_path: Path) -> None:
    tell = Progress(str(tmp_path / "p.jsonl"), every_s=3600)
    for item in ("target", "draft", "target", "draft"):
        tell({"text": item, "item": item})
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 2


def test_several_items_are_one_line() -> None:
    events = [
        {"text": "fetching the package p"},
        {"text": "fetching target", "item": "target", "done": 1e6, "total": 4e6, "unit": "bytes"},
        {"text": "fetching draft", "item": "draft", "done": 1e6, "total": 2e6, "unit": "bytes"},
        {"text": "fetching target", "item": "target", "done": 2e6, "total": 4e6, "unit": "bytes"},
    ]
    line = shown_together(json.dumps(event) for event in events)
    assert line == "fetching target, 2 of 4 MB (50%); fetching draft, 1 of 2 MB (50%)"
    assert shown_together([json.dumps(events[0])]) == "fetching the package p"


def test_without_a_file_nothing_is_written() -> None:
    Progress(None)({"text": "x"}, important=True)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"text": "waiting"}, "waiting"),
        ({"text": "round 1", "done": 3, "total": 12, "eta_s": 9.4}, "round 1, 3 of 12 (25%), about 9 s left"),
        (
            {"text": "fetching x", "done": 5e8, "total": 2e9, "unit": "bytes"},
            "fetching x, 500 of 2,000 MB (25%)",
        ),
        ({"text": "t", "done": 0, "total": 0}, "t"),
        (
            {"text": "fetching x", "done": 5e9, "total": 65e9, "unit": "bytes", "rate": 112.4e6, "eta_s": 534},
            "fetching x, 5,000 of 65,000 MB (8%), 112 MB/s, about 9 min left",
        ),
        ({"text": "t", "eta_s": 99.6}, "t, about 100 s left"),
        ({"text": "t", "eta_s": 3 * 3600 + 125}, "t, about 3 h 02 min left"),
    ],
)
def test_what_a_person_reads(event: Any, line: str) -> None:
    assert shown(event) == line


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from drafthouse.core.locks import only_one
with only_one(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_orphan_is_ended_and_the_lock_taken(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    words = [sys.executable, "-c", HOLDER, str(ROOT / "src"), str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as orphan:
        assert orphan.stdout
        assert orphan.stdout.readline() == "held\n"
        with only_one(lock):
            assert orphan.wait(timeout=120) == -signal.SIGTERM
        # What Ansible then reads as the module's result, where the older run still has somebody to tell.
        said = json.loads(orphan.stdout.read())
        assert said["failed"] and not said["changed"]
        (problem,) = said["problems"]
        assert "newer run" in problem["found"]
        assert problem["needed"] and "let the other run finish" in problem["do"]


def test_the_signal_has_its_own_meaning_again_afterwards(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with only_one(tmp_path / "lock"):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_lock_is_refused_after_its_time(tmp_path: Path) -> None:
    told: list[str] = []
    with locked_file(tmp_path / "lock"), (tmp_path / "lock").open() as other:
        assert not take_lock(other, 0, lambda: told.append("now"))
        assert told == []
        begun = time.monotonic()
        assert not take_lock(other, 0.3, lambda: told.append("waiting"))
        assert time.monotonic() - begun >= 0.3
        assert told == ["waiting"]
        assert not take_lock(other, 0, shared=True)
    with (tmp_path / "lock").open() as one, (tmp_path / "lock").open() as other:
        assert take_lock(one, 0, shared=True)
        assert take_lock(other, 0, shared=True)


def test_who_waits_says_so_once_and_gets_it(tmp_path: Path) -> None:
    told, got = threading.Event(), threading.Event()

    def wait() -> None:
        with locked_file(tmp_path / "lock", told.set) as file:
            file.write("mine")
            got.set()

    with locked_file(tmp_path / "lock"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert told.wait(120)
        assert not got.wait(0.1)
    waiter.join(120)
    assert (tmp_path / "lock").read_text() == "mine"


def test_a_child_that_inherited_it_holds_it_on_and_a_dead_holder_does_not(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("a") as file:
        assert take_lock(file, 0)
        child = subprocess.Popen(["sleep", "60"], pass_fds=[file.fileno()])
    with child, (tmp_path / "lock").open() as other:
        assert not take_lock(other, 0)
        child.kill()
        child.wait()
        assert take_lock(other, 0)
