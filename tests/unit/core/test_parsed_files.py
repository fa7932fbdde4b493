"""What was parsed is kept while the file stays as it is, and nobody can change it for others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.parsed_files import MOST_BYTES, SETTLED_NS, parsed_once
from drafthouse.core.yaml_documents import read_yaml


def settle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so much time go by that a file's stamp tells whether it changed."""
    stat = path.stat()
    later = max(stat.st_mtime_ns, stat.st_ctime_ns) + SETTLED_NS + 1
    monkeypatch.setattr("drafthouse.core.parsed_files.time.time_ns", lambda: later)


class Parser:
    """Reads lines of a file, and counts how often."""

    def __init__(self, path: Path) -> None:
        self.path, self.times = path, 0

    def __call__(self) -> dict[str, list[str]]:
        self.times += 1
        return {"lines": self.path.read_text().split()}

    def once(self) -> dict[str, list[str]]:
        return parsed_once(("lines", self.path), [self.path], self)


def test_a_file_that_stays_is_parsed_once_and_each_caller_has_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("one two")
    settle(path, monkeypatch)
    parser = Parser(path)
    for _ in range(3):
        found = parser.once()
        assert found == {"lines": ["one", "two"]}
        found["lines"].append("mine")
        found["other"] = []
    assert parser.times == 1


@pytest.mark.parametrize("same_time", [False, True])
def test_a_file_that_changed_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, same_time: bool
) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    settle(path, monkeypatch)
    parser = Parser(path)
    parser.once()
    before = path.stat()
    path.write_text("two")  # as long as before
    if same_time:  # as rsync, tar and git leave it
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    settle(path, monkeypatch)
    assert parser.once() == {"lines": ["two"]}
    path.unlink()
    with pytest.raises(FileNotFoundError):
        parser.once()


def test_what_was_written_just_now_or_is_huge_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    stat = path.stat()
    monkeypatch.setattr("drafthouse.core.parsed_files.time.time_ns", lambda: stat.st_ctime_ns)
    parser = Parser(path)
    parser.once()
    parser.once()
    assert parser.times == 2
    path.write_text("x" * (MOST_BYTES + 1))
    settle(path, monkeypatch)
    parser.once()
    parser.once()
    assert parser.times == 4


def test_yaml_is_the_callers_own_and_a_refusal_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yml"
    path.write_text("a: &a [1]\nb: *a\n")
    settle(path, monkeypatch)
    read_yaml(path, "n", "d")["a"].append(2)
    assert read_yaml(path, "n", "d") == {"a": [1], "b": [1]}
    path.write_text("a: [")
    settle(path, monkeypatch)
    for where in ("first", "second"):
        with pytest.raises(DrafthouseError, match=where):
            read_yaml(path, "n", "d", where=where)
