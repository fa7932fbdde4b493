"""Hashes and notes of real files: what is remembered, and what makes it be looked at again."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from drafthouse.weights.integrity import (
    EndedError,
    Note,
    all_as_verified,
    digest,
    note_entry,
    note_file,
    read_note,
    stamp_of,
    write_note,
)

pytestmark = pytest.mark.processes

DATA = os.urandom(9_000_001)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model" / "a.safetensors"
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


def noted(file: Path) -> Note:
    entry = note_entry(file, hashlib.sha256(DATA).hexdigest(), None)
    return Note("who", "org/model", "main", "a" * 40, complete=True, files={file.name: entry})


def test_the_two_hashes_of_the_hub(file: Path) -> None:
    seen: list[int] = []
    assert digest(file, tell=seen.append) == hashlib.sha256(DATA).hexdigest()
    assert sum(seen) == len(DATA)
    said = subprocess.run(["git", "hash-object", str(file)], capture_output=True, text=True, check=True)
    assert digest(file, git=True) == said.stdout.strip()


def test_reading_can_be_ended_and_follows_no_link(file: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(EndedError):
        digest(file, stop=stop)
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(OSError, match="symbolic links"):
        digest(link)
    assert stamp_of(link) is None


def test_a_note_comes_back_as_it_was_written(file: Path) -> None:
    note = noted(file)
    note.checked["files"] = True
    write_note(file.parent, note)
    assert read_note(file.parent) == note
    assert [path.name for path in file.parent.parent.iterdir()] == ["model", "model.drafthouse.json"]
    assert all_as_verified(note, file.parent)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"files": 3}',
        '{"files": {"a": {"size": 1}}}',
        '{"identity": "x", "files": {"a": {"size": 1, "mtime_ns": 2, "inode": 3}}}',
    ],
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    note_file(tmp_path / "model").write_text(text)
    assert read_note(tmp_path / "model") == Note()


def test_of_an_older_note_only_the_identity_is_known(file: Path) -> None:
    found = file.stat()
    old = {"identity": "who", "files": {"model/a.safetensors": [found.st_size, found.st_mtime_ns]}}
    note_file(file.parent).write_text(json.dumps(old))
    assert read_note(file.parent) == Note("who")
    assert not all_as_verified(read_note(file.parent), file.parent)


def test_whatever_changes_a_file_changes_its_stamp(file: Path) -> None:
    note = noted(file)
    before = file.stat()
    copy = file.with_name("copy")
    copy.write_bytes(DATA)
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    kept = file.with_name("kept")
    file.rename(kept)
    copy.rename(file)
    assert not all_as_verified(note, file.parent)  # the same size and time: another inode
    kept.replace(file)
    assert all_as_verified(note, file.parent)
    os.utime(file)
    assert not all_as_verified(note, file.parent)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert all_as_verified(note, file.parent)
    with file.open("ab") as stream:
        stream.write(b"x")
    assert not all_as_verified(note, file.parent)
    file.unlink()
    assert not all_as_verified(note, file.parent)


def test_nothing_noted_is_nothing_verified(file: Path) -> None:
    assert not all_as_verified(Note(), file.parent)
    note = noted(file)
    note.complete = False
    assert not all_as_verified(note, file.parent)


def test_two_hundred_large_files_cost_a_stat_each(tmp_path: Path) -> None:
    files = {}
    for number in range(200):
        path = tmp_path / f"{number}.safetensors"
        with path.open("wb") as stream:
            stream.truncate(300_000_000)
        files[path.name] = note_entry(path, "0" * 64, None)
    note = Note("who", complete=True, files=files)
    write_note(tmp_path, note)
    begun = time.monotonic()
    digest(tmp_path / "0.safetensors")
    one = time.monotonic() - begun
    begun = time.monotonic()
    assert all_as_verified(read_note(tmp_path), tmp_path)
    # Less than a tenth of what reading them all would take.
    assert time.monotonic() - begun < 20 * one
