"""What changes between two runs, at the hub or on the disk; progress and streams as a run shows them; two at once.

What a repository in place is otherwise (check mode, offline, the hub's cache) is in test_snapshot.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.fakes.hub_contents import Content, Made, data_of
from tests.fakes.hub_server import ALWAYS, COMMIT, Fault, Hub, hub_server
from tests.weights.cases import BIG
from tests.weights.harness import (
    FIRST,
    OTHER,
    SECOND,
    Job,
    a_model,
    assert_never_wrong,
    assert_right,
    done,
    in_words,
    note_of,
    safetensors,
    total,
)

Row = Callable[[str, str, str], None]
NEWER: dict[str, Content | bytes] = {**a_model(), FIRST: safetensors("a", 4_000_000, 99), "new.json": b"{}\n"}
del NEWER["original/params.json"]


def test_a_branch_that_moved(tmp_path: Path, row: Row) -> None:
    """Only what differs is fetched, what is gone is removed, and no mixture of two commits is ever noted as whole."""
    dest = tmp_path / "m"
    with hub_server(Hub(a_model(), commits={OTHER: NEWER})) as hub:
        assert Job(hub, dest, {"revision": "main"}).run().returned == 0
        assert_right(dest, a_model())
        hub.refs["main"] = OTHER
        before = hub.sent
        kept = Job(hub, dest, {"revision": "main"}).run()
        assert (kept.result["commit"], kept.result["changed"]) == (COMMIT, False)
        assert f"main has moved to {OTHER}" in said(kept.notes)
        hub.faults[FIRST] = [Fault(ALWAYS, cut_at=BIG // 2)]
        half = Job(hub, dest, {"revision": "main", "repin": True}).run()
        assert half.returned == 1
        assert note_of(dest)["complete"] is False
        assert_never_wrong(dest, a_model(), NEWER)
        hub.faults.clear()
        moved = Job(hub, dest, {"revision": "main", "repin": True}).run()
        assert moved.returned == 0, moved.text
        assert (moved.result["commit"], moved.result["changed"]) == (OTHER, True)
        assert_right(dest, NEWER)
        assert hub.sent - before <= BIG + len(b"{}\n")
        left = in_words(dest, NEWER)
        row("a file that changes between runs (a branch that moved)", said(moved.notes), f"{left} of the new commit")
        back = Job(hub, dest, {"revision": COMMIT}).run()  # and a pinned one stays what it is
        assert back.returned == 0, back.text
        assert_right(dest, a_model())


def test_a_file_changed_on_the_disk(tmp_path: Path, row: Row) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        job = Job(hub, dest)
        assert job.run().returned == 0
        asked = len(hub.asked)
        same = job.run()
        assert same.result["changed"] is False
        assert len(hub.asked) == asked  # what is verified asks nobody
        flip(dest / FIRST)
        mended = job.run()
        assert mended.returned == 0, mended.text
        assert mended.result["changed"] is True
        assert hub.sent == total(hub.files) + BIG
        assert_right(dest, a_model())
        row("a file changed on the disk after it was verified", said(mended.notes), in_words(dest, a_model()))


def test_a_file_that_was_lost(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        assert Job(hub, dest).run().returned == 0
        (dest / SECOND).unlink()
        before = hub.sent
        assert Job(hub, dest).run().returned == 0
        assert hub.sent - before == len(data_of(a_model()[SECOND]))
        assert_right(dest, a_model())


def test_progress_and_the_number_of_streams(tmp_path: Path) -> None:
    files: dict[str, Content | bytes] = {f"model-{number}.gguf": Made(1_000_000, number) for number in range(9)}
    told = tmp_path / "progress"
    with hub_server(Hub(files, rate=4_000_000)) as hub:
        run = Job(hub, tmp_path / "m", {"max_workers": 3, "progress_file": str(told)}).run()
        assert run.returned == 0, run.text
        assert hub.most_streams == 3
    events = [json.loads(line) for line in told.read_text().splitlines()]
    counted = [event["done"] for event in events if event.get("unit") == "bytes"]
    assert len(counted) >= 2
    assert counted == sorted(counted)
    assert all(event["total"] == 9_000_000 for event in events if "total" in event)
    assert any(event.get("eta_s", 0) > 0 for event in events)


def test_two_at_once_do_not_spoil_each_other(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model(), rate=4_000_000)) as hub:
        begun = time.monotonic()
        both = [Job(hub, dest).start() for _ in range(2)]
        ended = [done(child, begun) for child in both]
        assert 0 in [one.returned for one in ended]
        for one in ended:
            assert one.returned == 0 or "another run is downloading into the same folder" in one.problems
        assert_right(dest, a_model())


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    with path.open("r+b") as file:
        file.seek(BIG // 2)
        [byte] = file.read(1)
        file.seek(BIG // 2)
        file.write(bytes([byte ^ 1]))


def said(notes: list[str]) -> str:
    return "<br>".join(["the right files", *notes])
