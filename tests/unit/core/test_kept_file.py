"""Files of what was measured: whole or as they were, and with room put aside. A real full disk: tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.kept_file import ROOM_BYTES, reserved_space, write_whole


def test_room_is_there_in_the_block_and_given_back_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "steps" / "01.json"
    with reserved_space(path):
        (room,) = path.parent.iterdir()
        assert room.stat().st_size == ROOM_BYTES
        assert room.stat().st_blocks * 512 >= ROOM_BYTES  # it is not a hole
        write_whole(path, "{}\n")
        assert [one.name for one in path.parent.iterdir()] == ["01.json"]
    with pytest.raises(RuntimeError), reserved_space(path):
        raise RuntimeError("the engine died")
    assert [one.name for one in path.parent.iterdir()] == ["01.json"]


def test_what_a_killed_run_put_aside_is_used_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "01.json"
    left = reserved_space(path)
    left.__enter__()
    with reserved_space(path):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("as it was")
    path = tmp_path / "file" / "01.json"
    for attempt in (lambda: write_whole(path, "{}"), lambda: reserved_space(path).__enter__()):
        with pytest.raises(DrafthouseError) as caught:
            attempt()
        (problem,) = caught.value.problems
        assert problem.where == str(path)
        assert "then run again: it continues with what is kept" in problem.do
    assert (tmp_path / "file").read_text() == "as it was"
    target = tmp_path / "02.json"
    target.mkdir()
    with pytest.raises(DrafthouseError):
        write_whole(target, "{}")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["02.json", "file"]
