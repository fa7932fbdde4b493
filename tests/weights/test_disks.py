"""Disks that are too small, fill up, run out of inodes or cannot be written; on small file systems in memory."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.fakes.hub_contents import Content
from tests.fakes.hub_server import ALWAYS, Fault, Hub, hub_server
from tests.support.waiting import until
from tests.weights.cases import BIG
from tests.weights.harness import (
    FIRST,
    Done,
    Job,
    a_model,
    assert_never_wrong,
    assert_right,
    done,
    in_words,
    note_of,
    total,
)

SMALL_MARGIN = {"margin_mb": 1}  # these disks have no 256 MB to stay free
SmallDisk = Callable[[str], Path]
Row = Callable[[str, str, str], None]


def assert_clear(ended: Done, dest: Path, files: Mapping[str, Content | bytes] | None = None) -> None:
    """It ended in an error that says what to do, and nothing wrong lies there or is noted as whole."""
    assert ended.returned == 1, ended.text
    for word in ("found: ", "needed: ", "do: "):
        assert word in ended.problems
    assert_never_wrong(dest, files or a_model())
    assert note_of(dest).get("complete") is not True


def test_too_small_is_said_before_the_first_byte(small_disk: SmallDisk, row: Row) -> None:
    dest = small_disk("size=5m") / "m"
    with hub_server(Hub(a_model())) as hub:
        ended = Job(hub, dest, SMALL_MARGIN).run()
        assert_clear(ended, dest)
        assert hub.sent == 0
        assert "free" in ended.problems
        row("a disk that is too small", ended.problems, in_words(dest, a_model()))


def test_what_lies_there_already_needs_no_room(small_disk: SmallDisk) -> None:
    """A part counts: what is missing has to fit, not all of it once more."""
    room = small_disk("size=16m")
    with hub_server(Hub(a_model(first=6_000_000, second=1_000_000))) as hub:
        hub.faults[FIRST] = [Fault(ALWAYS, cut_at=5_900_000)]
        first = Job(hub, room / "m", SMALL_MARGIN).run()
        assert first.returned == 1
        (room / "filler").write_bytes(bytes(8_000_000))
        hub.faults.clear()
        second = Job(hub, room / "m", SMALL_MARGIN).run()
        assert second.returned == 0, second.problems
        assert hub.sent < total(hub.files) + 200_000


def test_a_disk_that_fills_up_meanwhile(small_disk: SmallDisk, row: Row) -> None:
    room = small_disk("size=24m")
    dest, filler = room / "m", room / "filler"
    with hub_server(Hub(a_model())) as hub:
        hub.faults[FIRST] = [Fault(ALWAYS, rate=BIG / 4)]
        begun = time.monotonic()
        child = Job(hub, dest, SMALL_MARGIN).start()
        until(lambda: hub.sent_of[FIRST] > BIG // 8, "first bytes", 120, 0.01)
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        ended = done(child, begun)
        assert_clear(ended, dest)
        row("a disk that fills up meanwhile", ended.in_short, in_words(dest, a_model()))
        filler.unlink()
        hub.faults.clear()
        assert Job(hub, dest, SMALL_MARGIN).run().returned == 0
        assert_right(dest, a_model())


def many(count: int) -> dict[str, Content | bytes]:
    return {f"part-{number:03}.txt": b"%3d\n" % number * 50 for number in range(count)}


def test_a_full_inode_table(small_disk: SmallDisk, row: Row) -> None:
    room = small_disk("size=64m,nr_inodes=30")
    with hub_server(Hub(many(60))) as hub:
        ended = Job(hub, room / "m", SMALL_MARGIN).run()
        assert_clear(ended, room / "m")
        assert "inode" in ended.problems
        assert hub.sent == 0
        row("a full inode table", ended.problems, in_words(room / "m", many(60)))


def test_an_inode_table_that_fills_up_meanwhile(small_disk: SmallDisk, row: Row) -> None:
    room = small_disk("size=64m,nr_inodes=200")
    dest = room / "m"
    with hub_server(Hub(many(60))) as hub:
        hub.faults["*"] = [Fault(ALWAYS, rate=200)]  # a second for each, eight at a time
        begun = time.monotonic()
        child = Job(hub, dest, SMALL_MARGIN).start()
        until(lambda: hub.streams > 0, "first stream", 120, 0.01)
        with pytest.raises(OSError, match="No space"):
            for number in range(300):
                (room / f"filler{number}").touch()
        hub.faults.clear()
        ended = done(child, begun)
        assert_clear(ended, dest, many(60))
        assert "inode" in ended.problems
        row("an inode table that fills up meanwhile", ended.in_short, in_words(dest, many(60)))
        for filler in room.glob("filler*"):
            filler.unlink()
        assert Job(hub, dest, SMALL_MARGIN).run().returned == 0
        assert_right(dest, many(60))


def test_a_read_only_folder(small_disk: SmallDisk, row: Row) -> None:
    """As root a mode does not keep anybody out: a file system that is mounted read-only does."""
    room = small_disk("size=64m")
    with hub_server(Hub(a_model())) as hub:
        subprocess.run(["mount", "-o", "remount,ro", str(room)], check=True)
        ended = Job(hub, room / "m", SMALL_MARGIN).run()
        assert_clear(ended, room / "m")
        assert hub.sent == 0
        row("a read-only folder", ended.problems, in_words(room / "m", a_model()))
