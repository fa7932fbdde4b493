"""A folder that has weights already: what is taken, verified, resumed, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from drafthouse.weights.nearby_copies import NearbyFolder, nearby_folder_of

COMMIT = "0123456789" * 4
DATA = bytes(range(256)) * 40_000  # ten megabytes: several pieces
SHA256 = hashlib.sha256(DATA).hexdigest()
GIT_SHA1 = hashlib.sha1(b"blob %d\0" % len(DATA) + DATA).hexdigest()
NAME = "org-model/model.safetensors"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there" / "org-model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(DATA)
    return folder.parent


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "models" / "org-model" / ".drafthouse-parts" / f"{SHA256}.part"


def folder_place(there: Path) -> NearbyFolder:
    place = nearby_folder_of({"folder": str(there), "models_dir": "/models"})
    assert place
    return place


class Told:
    """Adds up what was told: the bytes that lie in the part by it."""

    def __init__(self) -> None:
        self.sum, self.most = 0, 0

    def __call__(self, count: int) -> None:
        self.sum += count
        self.most = max(self.most, self.sum)


def bring(
    place: NearbyFolder, part: Path, sha256: str | None = SHA256, git: str | None = None, size: int | None = len(DATA)
) -> bool:
    return place.fill_part(NAME, part, size=size, sha256=sha256, git_sha1=git, on_bytes=Told())


def test_no_settings_no_place() -> None:
    assert nearby_folder_of(None) is None
    assert nearby_folder_of({}) is None


def test_a_file_is_brought_by_either_hash(there: Path, part: Path) -> None:
    told = Told()
    assert folder_place(there).fill_part(NAME, part, size=len(DATA), sha256=SHA256, git_sha1=None, on_bytes=told)
    assert part.read_bytes() == DATA
    assert told.sum == len(DATA)
    part.unlink()
    assert bring(folder_place(there), part, None, GIT_SHA1)
    assert bring(folder_place(there), part, None, GIT_SHA1)  # it lies there whole: once more costs a look
    part.unlink()
    assert bring(folder_place(there), part, size=None)


def test_what_was_begun_is_gone_on_with(there: Path, part: Path) -> None:
    part.parent.mkdir(parents=True)
    part.write_bytes(DATA[:7_000_001])
    told = Told()
    assert folder_place(there).fill_part(NAME, part, size=len(DATA), sha256=SHA256, git_sha1=None, on_bytes=told)
    assert part.read_bytes() == DATA
    assert told.most == len(DATA) - 7_000_001


@pytest.mark.parametrize("begun", [b"x" * 5_000, DATA + b"x"], ids=["wrong", "too long"])
def test_a_wrong_beginning_is_thrown_away(there: Path, part: Path, begun: bytes) -> None:
    part.parent.mkdir(parents=True)
    part.write_bytes(begun)
    told = Told()
    assert folder_place(there).fill_part(NAME, part, size=len(DATA), sha256=SHA256, git_sha1=None, on_bytes=told)
    assert part.read_bytes() == DATA
    assert told.sum == len(DATA) - len(begun)


def test_wrong_bytes_of_the_right_size_are_not_taken(there: Path, part: Path) -> None:
    (there / NAME).write_bytes(b"x" + DATA[1:])
    place = folder_place(there)
    assert not bring(place, part)
    assert not part.exists()
    assert any("wrong bytes" in line for line in place.remarks)
    assert (there / NAME).read_bytes() == b"x" + DATA[1:]


def test_another_size_is_not_read(there: Path, part: Path) -> None:
    place = folder_place(there)
    assert not bring(place, part, size=len(DATA) + 1)
    assert place.remarks == [f"{there}: {NAME} has {len(DATA)} bytes instead of {len(DATA) + 1}; using the hub"]


def test_what_is_not_there(there: Path, part: Path) -> None:
    (there / NAME).unlink()
    place = folder_place(there)
    assert not bring(place, part)
    assert place.remarks == []


def test_on_one_file_system_no_byte_is_written_twice(there: Path, part: Path) -> None:
    assert bring(folder_place(there), part)
    # A second name of the same file, or (btrfs, XFS) blocks that the two share.
    assert part.stat().st_ino == (there / NAME).stat().st_ino or part.stat().st_nlink == 1
    # What is wrong never becomes a second name.
    part.unlink()
    (there / NAME).write_bytes(b"x" + DATA[1:])
    assert not bring(folder_place(there), part)
    assert (there / NAME).stat().st_nlink == 1


def test_on_another_file_system_it_is_copied(there: Path) -> None:
    shared = Path("/dev/shm")
    assert shared.stat().st_dev != there.stat().st_dev, "two file systems are needed"
    part = shared / f"drafthouse-test-{os.getpid()}" / "x.part"
    try:
        assert bring(folder_place(there), part)
        assert part.read_bytes() == DATA
    finally:
        part.unlink(missing_ok=True)
        part.parent.rmdir()


def test_a_planted_link_is_not_written_through(there: Path, part: Path, tmp_path: Path) -> None:
    part.parent.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    part.symlink_to(victim)
    assert not bring(folder_place(there), part)
    assert victim.read_bytes() == b"mine"


# --- the note beside the weights ------------------------------------------------------------------------


def identity_of(commit: str) -> str:
    return f"these patterns of {commit}"


def write_note(there: Path, **change: Any) -> None:
    entry = {"size": len(DATA), "mtime_ns": 1, "inode": 1, "sha256": SHA256, "git_sha1": None}
    note = {
        "identity": identity_of(COMMIT), "repo": "org/model", "asked": COMMIT, "commit": COMMIT, "complete": True,
        "files": {"model.safetensors": entry, "config.json": {"size": 2, "sha256": None, "git_sha1": "e" * 40}},
    }  # fmt: skip
    (there / "org-model.drafthouse.json").write_text(json.dumps({**note, **change}))


@pytest.mark.parametrize("revision", [COMMIT, "unresolved"])
def test_a_note_says_what_the_revision_consists_of(there: Path, revision: str) -> None:
    write_note(there, asked=revision)
    listing = folder_place(there).listing("org-model", "org/model", revision, identity_of)
    assert listing is not None
    assert (listing.repo, listing.asked, listing.commit) == ("org/model", revision, COMMIT)
    assert {file.path: (file.size, file.sha256, file.git_sha1) for file in listing.files} == {
        "config.json": (2, None, "e" * 40),
        "model.safetensors": (len(DATA), SHA256, None),
    }


@pytest.mark.parametrize(
    "change",
    [
        {"commit": "f" * 40},
        {"commit": "f" * 40, "identity": identity_of("f" * 40)},
        {"identity": "other patterns"},
        {"commit": None},
        {"repo": "org/other"},
        {"complete": False},
        {"complete": "yes"},
        {"files": {"../x": {"size": 1, "sha256": SHA256}}},
        {"files": {"x": {"size": 1}}},
        {"files": {"x": 1}},
        {"files": None},
    ],
)
def test_a_note_of_something_else_says_nothing(there: Path, change: dict[str, Any]) -> None:
    write_note(there, **change)
    assert folder_place(there).listing("org-model", "org/model", COMMIT, identity_of) is None


def test_a_note_that_is_none_says_nothing(there: Path) -> None:
    assert folder_place(there).listing("org-model", "org/model", COMMIT, identity_of) is None
    (there / "org-model.drafthouse.json").write_text("[")
    assert folder_place(there).listing("org-model", "org/model", COMMIT, identity_of) is None


def test_what_the_place_calls_a_path(there: Path) -> None:
    assert folder_place(there).relative_path_of(Path("/models/a/b.gguf")) == "a/b.gguf"
