"""What changes between two runs, at the hub or on the disk; and other ways to ask: check mode, offline, two at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.fakes.hub_contents import Content, Made, data_of
from tests.fakes.hub_server import ALWAYS, COMMIT, Fault, Hub, hub_server
from tests.weights.cases import BIG
from tests.weights.harness import (
    FIRST,
    OTHER,
    ROOT,
    SECOND,
    Job,
    a_model,
    assert_never_wrong,
    assert_right,
    clean_environment,
    done,
    in_words,
    lying,
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


def test_every_byte_is_read_when_told_to(tmp_path: Path) -> None:
    """A bit that fell over changes no stamp: only reading finds it."""
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        assert Job(hub, dest).run().returned == 0
        found = (dest / FIRST).stat()
        flip(dest / FIRST)
        os.utime(dest / FIRST, ns=(found.st_atime_ns, found.st_mtime_ns))
        assert Job(hub, dest).run().result["changed"] is False
        read = Job(hub, dest, {"verify": True}).run()
        assert read.returned == 0, read.text
        assert read.result["changed"] is True
        assert_right(dest, a_model())


def test_a_file_that_was_lost(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        assert Job(hub, dest).run().returned == 0
        (dest / SECOND).unlink()
        before = hub.sent
        assert Job(hub, dest).run().returned == 0
        assert hub.sent - before == len(data_of(a_model()[SECOND]))
        assert_right(dest, a_model())


def test_check_mode_tells_and_touches_nothing(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        told = Job(hub, dest, {"ignore": ["original/*"]}, check_mode=True).run()
        assert told.returned == 0, told.text
        assert told.result["changed"] is True
        assert told.result["bytes_fetched"] == total(a_model()) - 3
        assert "would fetch 5.5 MB of org/model" in said(told.notes)
        assert not dest.exists()
        assert hub.sent == 0


def test_what_is_counted(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        result = Job(hub, dest, {"revision": "unresolved", "allow": ["*.safetensors"]}).run().result
        assert lying(dest) == {FIRST, SECOND}
        assert result["commit"] == COMMIT
        assert result["bytes_fetched"] == hub.sent
        assert result["bytes_skipped"] == 0
        assert f"revision: {COMMIT}" in said(result["notes"])
        assert result["rate"] > 0
        assert result["seconds"] > 0
        more = Job(hub, dest).run().result
        assert more["bytes_skipped"] == result["bytes_fetched"]
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


def test_offline(tmp_path: Path) -> None:
    dest = tmp_path / "m"
    with hub_server(Hub(a_model())) as hub:
        nothing = Job(hub, dest, {"offline": True}).run()
        assert nothing.returned == 1
        assert "offline, and nothing verified as" in nothing.problems
        assert Job(hub, dest).run().returned == 0
        asked = len(hub.asked)
        there = Job(hub, dest, {"offline": True}).run()
        assert (there.returned, there.result["changed"]) == (0, False)
        (dest / SECOND).unlink()
        missing = Job(hub, dest, {"offline": True}).run()
        assert missing.returned == 1
        assert f"is missing {SECOND}" in missing.problems
        assert len(hub.asked) == asked


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


def test_the_hubs_own_cache(tmp_path: Path) -> None:
    """Other tools find it there: the library itself, offline."""
    cache = tmp_path / "hub"
    with hub_server(Hub(a_model())) as hub:
        placed = Job(hub, cache, {"hub_cache": True, "revision": "main"}).run()
        assert placed.returned == 0, placed.text
        assert Job(hub, cache, {"hub_cache": True, "revision": "main"}).run().result["changed"] is False
        text = "import sys, huggingface_hub as h; print(h.snapshot_download('org/model', cache_dir=sys.argv[1]))"
        environment = clean_environment(tmp_path / "hf") | {"HF_HUB_OFFLINE": "1"}
        found = subprocess.run(
            [sys.executable, "-c", text, str(cache)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        assert found.returncode == 0, found.stderr
        snapshot = Path(found.stdout.strip())
        assert snapshot.name == COMMIT
        assert_never_wrong(snapshot, a_model())
        for name, content in a_model().items():
            assert (snapshot / name).read_bytes() == data_of(content)


def test_a_planted_cache_folder_is_not_swept(tmp_path: Path) -> None:
    """What another tool of this user has under way elsewhere is none of ours."""
    theirs = tmp_path / "theirs" / "huggingface" / "download"
    theirs.mkdir(parents=True)
    (theirs / "x.incomplete").write_bytes(b"keep\n")
    dest = tmp_path / "m"
    dest.mkdir()
    (dest / ".cache").symlink_to(tmp_path / "theirs")
    with hub_server(Hub(a_model())) as hub:
        Job(hub, dest).run()
    assert (theirs / "x.incomplete").read_bytes() == b"keep\n"


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    with path.open("r+b") as file:
        file.seek(BIG // 2)
        [byte] = file.read(1)
        file.seek(BIG // 2)
        file.write(bytes([byte ^ 1]))


def said(notes: list[str]) -> str:
    return "<br>".join(["the right files", *notes])
