"""Folders and files laid out in one go: what is there stays, what differs is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.files import lay_out, replace_file, sync


def wanted(folder: Path, content: str = "one\n", mode: str = "0750") -> list[dict[str, Any]]:
    return [
        {"path": str(folder / "a" / "b"), "mode": mode},
        {"path": str(folder / "a" / "b" / "file"), "mode": "0640", "content": content},
    ]


def test_it_is_there_and_the_second_time_nothing_changes(tmp_path: Path) -> None:
    assert lay_out(wanted(tmp_path)).changed == [str(tmp_path / "a/b"), str(tmp_path / "a/b/file")]
    file = tmp_path / "a/b/file"
    assert (file.read_text(), file.stat().st_mode & 0o7777) == ("one\n", 0o640)
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o750
    before = file.stat().st_ino
    assert lay_out(wanted(tmp_path)).changed == []
    assert file.stat().st_ino == before


def test_check_mode_says_the_same_and_does_nothing(tmp_path: Path) -> None:
    assert lay_out(wanted(tmp_path), check=True).changed == [str(tmp_path / "a/b"), str(tmp_path / "a/b/file")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "shown"),
    [({"content": "two\n"}, ("one\n", "two\n")), ({"mode": "0700"}, ("folder, mode 0750\n", "folder, mode 0700\n"))],
)
def test_what_differs_is_shown_and_mended(tmp_path: Path, change: dict[str, str], shown: tuple[str, str]) -> None:
    lay_out(wanted(tmp_path))
    done = lay_out(wanted(tmp_path, **change))
    assert [(entry["before"], entry["after"]) for entry in done.diff] == [shown]
    assert lay_out(wanted(tmp_path, **change)).changed == []


def test_modes_that_somebody_changed_come_back(tmp_path: Path) -> None:
    lay_out(wanted(tmp_path))
    (tmp_path / "a/b/file").chmod(0o666)
    done = lay_out(wanted(tmp_path))
    assert [(entry["before"], entry["after"]) for entry in done.diff] == [("mode 0666\n", "mode 0640\n")]
    assert (tmp_path / "a/b/file").stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("inside", [False, True])
def test_something_in_the_way_is_an_error_and_stays(tmp_path: Path, inside: bool) -> None:
    way = tmp_path / "a/b/file" if inside else tmp_path / "a"
    if inside:
        way.mkdir(parents=True)
    else:
        way.write_text("the user's")
    with pytest.raises(DrafthouseError) as caught:
        lay_out(wanted(tmp_path))
    assert caught.value.problems[0].where.startswith(str(way))
    assert way.is_dir() if inside else way.read_text() == "the user's"
    assert not list(tmp_path.rglob(".*"))


def test_a_file_that_cannot_be_written_is_named_and_not_the_unfinished_one(tmp_path: Path) -> None:
    (tmp_path / ".x.new").mkdir()
    with pytest.raises(OSError, match="x") as refused:
        replace_file(tmp_path / "x", "text")
    assert refused.value.filename == str(tmp_path / "x")


def test_sync_takes_files_and_folders(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    sync(file)
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "gone")


def test_an_unfinished_file_lies_where_it_is_told_to(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    # What is in the way there ends it, and the file beside it is not touched.
    (parts / ".file.new").mkdir()
    with pytest.raises(OSError):
        replace_file(tmp_path / "file", "new", by_way_of=parts)
    (parts / ".file.new").rmdir()
    replace_file(tmp_path / "file", "new", by_way_of=parts)
    assert (tmp_path / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "parts"] and not list(parts.iterdir())
