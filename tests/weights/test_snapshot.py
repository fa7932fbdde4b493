"""Repositories in place: what is fetched, verified, resumed, swept, refused; and what lies there afterwards."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.retry import Patience
from drafthouse.weights import download as transfer
from drafthouse.weights import integrity as at_rest
from drafthouse.weights import layout as snapshot_layout
from drafthouse.weights import snapshot
from drafthouse.weights.download import Limits
from drafthouse.weights.hub_client import RemoteFile, Snapshot
from drafthouse.weights.integrity import all_as_verified, note_file, read_note
from drafthouse.weights.layout import PARTS, locked_parts
from drafthouse.weights.snapshot import Settings, Wish, place_snapshots
from tests.fakes.hub_contents import Content, Made, as_content, data_of, sha256_of
from tests.fakes.hub_server import ALWAYS, COMMIT, Fault, Hub, hub_server
from tests.support.refusals import refuses

NEWER = "c" * 40
SHARD = Made(2_000_000, 3)
FILES: dict[str, Content | bytes] = {"config.json": b"{}", "sub/model.safetensors": SHARD, "tokenizer.json": b"[1, 2]"}
SIZE = 2_000_008
SOON = Settings(limits=Limits(stall_s=20, patience=Patience(tries=3, first_s=0.01, longest_s=0.02)), margin=1 << 20)


def put(hub: Hub, path: Path, check_mode: bool = False, settings: Settings = SOON, **wish: Any) -> Any:
    given = {"repo": hub.repo, "revision": COMMIT, "path": path, "endpoint": hub.url, **wish}
    (done,) = place_snapshots([Wish(**given)], lambda event: None, settings, check_mode)
    return done


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


RIGHT = {name: bytes(data_of(as_content(content))) for name, content in FILES.items()}


def test_first_all_then_nothing(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        would = put(hub, tmp_path / "m", check_mode=True)
        assert (would["changed"], would["bytes_fetched"]) == (True, SIZE)
        assert "would fetch 2.0 MB of org/model" in would["notes"][0]
        assert list(tmp_path.iterdir()) == []
        done = put(hub, tmp_path / "m")
        assert (done["changed"], done["bytes_fetched"], done["bytes_skipped"], done["files"]) == (True, SIZE, 0, 3)
        assert done["commit"] == COMMIT
        assert done["rate"] > 0
        assert tree(tmp_path / "m") == RIGHT
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "m.drafthouse.json"]
        asked = len(hub.asked)
        for check_mode in (True, False):
            again = put(hub, tmp_path / "m", check_mode=check_mode)
            assert (again["changed"], again["bytes_fetched"], again["bytes_skipped"]) == (False, 0, SIZE)
        assert len(hub.asked) == asked  # a second run asks nobody
    note = read_note(tmp_path / "m")
    assert all_as_verified(note, tmp_path / "m")
    assert (note.repo, note.commit, note.asked) == ("org/model", COMMIT, COMMIT)


def test_it_is_read_again_when_that_is_asked_for(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m")
        sent = hub.sent
        done = put(hub, tmp_path / "m", verify=True)
        assert (done["changed"], done["bytes_skipped"], hub.sent) == (False, SIZE, sent)
        shard = tmp_path / "m/sub/model.safetensors"
        before = shard.stat()
        data = bytearray(shard.read_bytes())
        data[77] ^= 1
        with shard.open("r+b") as stream:
            stream.write(data)
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert put(hub, tmp_path / "m")["changed"] is False  # a disk that lies leaves size and time as they were
        done = put(hub, tmp_path / "m", verify=True)
    assert (done["changed"], done["bytes_fetched"]) == (True, SHARD.size)
    assert "sub/model.safetensors had sha256" in done["notes"][0]
    assert tree(tmp_path / "m") == RIGHT


def test_another_stamp_is_read_and_not_fetched(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m")
        sent, asked = hub.sent, len(hub.asked)
        os.utime(tmp_path / "m/sub/model.safetensors")
        assert put(hub, tmp_path / "m", check_mode=True)["changed"] is True  # it would be read
        assert put(hub, tmp_path / "m")["changed"] is False
        assert (hub.sent, len(hub.asked)) == (sent, asked)
        assert put(hub, tmp_path / "m", check_mode=True)["changed"] is False


def test_what_an_older_version_of_ours_fetched_is_verified_and_not_fetched(tmp_path: Path) -> None:
    for name, data in RIGHT.items():
        (tmp_path / "m" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "m" / name).write_bytes(data)
    stamps = {f"m/{name}": [len(data), 1] for name, data in RIGHT.items()}
    note_file(tmp_path / "m").write_text(json.dumps({"identity": "x", "files": stamps}))
    with hub_server(Hub(FILES)) as hub:
        done = put(hub, tmp_path / "m")
        assert (done["changed"], hub.sent, done["bytes_skipped"]) == (False, 0, SIZE)
        assert put(hub, tmp_path / "m", check_mode=True)["changed"] is False


# --- wrong bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sub/model.safetensors", "config.json"])
def test_wrong_bytes_twice_fail_with_both_hashes(tmp_path: Path, name: str) -> None:
    with hub_server(Hub(FILES, faults={name: [Fault(times=ALWAYS, wrong_at=1)]})) as hub:
        with pytest.raises(
            DrafthouseError, match=rf"{name} with (sha256|git blob id) [0-9a-f]+ and, fetched again"
        ) as raised:
            put(hub, tmp_path / "m")
        if name.startswith("sub"):
            assert f"needed: sha256 {sha256_of(SHARD)}" in str(raised.value)
        left = tree(tmp_path / "m")
        assert name not in left
        assert f"{name}.wrong" in left
        assert not read_note(tmp_path / "m").complete
        hub.faults.clear()
        put(hub, tmp_path / "m")
    assert tree(tmp_path / "m") == RIGHT


def test_a_wrong_file_under_a_right_name_is_moved_away_before_its_bytes_come(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").write_bytes(b"[]")
    with hub_server(Hub(FILES, faults={"config.json": [Fault(times=ALWAYS, status=503)]})) as hub:
        with pytest.raises(DrafthouseError, match="HTTP 503"):
            put(hub, tmp_path / "m")
        assert not (tmp_path / "m/config.json").exists()
        assert (tmp_path / "m/config.json.wrong").read_bytes() == b"[]"
        hub.faults.clear()
        put(hub, tmp_path / "m")
    assert tree(tmp_path / "m") == RIGHT


# --- going on, and sweeping -------------------------------------------------------------------------------------


def test_a_part_is_gone_on_with_and_orphans_are_swept(tmp_path: Path) -> None:
    parts = tmp_path / "m" / PARTS
    parts.mkdir(parents=True)
    (parts / f"{sha256_of(SHARD)}.part").write_bytes(RIGHT["sub/model.safetensors"][:1_500_000])
    (parts / ("0" * 64 + ".part")).write_bytes(b"x" * 1_000_000)  # of another revision
    cache = tmp_path / "m/.cache/huggingface/download/sub"
    cache.mkdir(parents=True)
    (cache / "abc.def.1234.incomplete").write_bytes(b"x" * 500_000)
    (cache / "model.safetensors.metadata").write_text("kept")
    with hub_server(Hub(FILES)) as hub:
        done = put(hub, tmp_path / "m")
        assert done["bytes_fetched"] == SIZE - 1_500_000 == hub.sent
    assert "removed 1.5 MB of unfinished downloads" in done["notes"][0]
    assert tree(tmp_path / "m") == {**RIGHT, ".cache/huggingface/download/sub/model.safetensors.metadata": b"kept"}


def test_orphans_are_not_looked_for_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other/huggingface/download").mkdir(parents=True)
    precious = tmp_path / "other/huggingface/download/x.incomplete"
    precious.write_bytes(b"x")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/.cache").symlink_to(tmp_path / "other")
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m")
    assert precious.exists()


def test_what_was_verified_before_a_failure_is_not_read_again(tmp_path: Path) -> None:
    with hub_server(Hub(FILES, faults={"tokenizer.json": [Fault(times=ALWAYS, status=503)]})) as hub:
        with pytest.raises(DrafthouseError, match="HTTP 503"):
            put(hub, tmp_path / "m")
        hub.faults.clear()
        done = put(hub, tmp_path / "m")
        assert done["bytes_fetched"] + done["bytes_skipped"] == SIZE
        assert hub.sent == SIZE
    assert tree(tmp_path / "m") == RIGHT


def test_the_same_bytes_under_two_names_are_fetched_once(tmp_path: Path) -> None:
    with hub_server(Hub({"a.safetensors": SHARD, "b.safetensors": SHARD})) as hub:
        done = put(hub, tmp_path / "m")
        assert hub.sent == done["bytes_fetched"] == SHARD.size
    assert len(tree(tmp_path / "m")) == 2
    assert (tmp_path / "m/a.safetensors").stat().st_ino != (tmp_path / "m/b.safetensors").stat().st_ino


def test_another_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        layout = snapshot_layout.folder_layout(tmp_path / "m")
        with locked_parts(layout), refuses("already-running"):
            put(hub, tmp_path / "m")
        put(hub, tmp_path / "m")
    assert tree(tmp_path / "m") == RIGHT


def test_who_is_refused_leaves_the_folder_to_the_one_that_holds_it(tmp_path: Path) -> None:
    layout = snapshot_layout.folder_layout(tmp_path / "m")
    with locked_parts(layout):
        with refuses("already-running"), locked_parts(layout):
            pass
        assert layout.parts.is_dir()
    assert not layout.parts.exists()


def test_a_lock_on_a_folder_that_was_removed_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that held it removed it between our opening it and our locking it."""
    layout = snapshot_layout.folder_layout(tmp_path / "m")
    lock, removed = fcntl.flock, list[Path]()

    def removed_first(handle: int, operation: int) -> None:
        if not removed:
            removed.append(layout.parts)
            layout.parts.rmdir()
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with locked_parts(layout):
        assert layout.parts.is_dir()
        with refuses("already-running"), locked_parts(layout):
            pass
    assert removed


def test_a_repository_that_cannot_be_had_leaves_nothing(tmp_path: Path) -> None:
    faults = {"*": [Fault(times=ALWAYS, status=503)]}
    with hub_server(Hub(FILES, faults=faults)) as hub, pytest.raises(DrafthouseError, match="HTTP 503"):
        put(hub, tmp_path / "m")
    # Parts that are empty, and a note that says of nothing that it was verified.
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size] == [
        "m.drafthouse.json"
    ]
    assert read_note(tmp_path / "m").files == {}


# --- revisions ------------------------------------------------------------------------------------------------


def test_an_unpinned_revision_is_resolved_once_and_stays(tmp_path: Path) -> None:
    hub = Hub(FILES, commits={NEWER: {"config.json": b"[]"}})
    with hub_server(hub):
        done = put(hub, tmp_path / "m", revision="unresolved")
        assert done["notes"] == [
            f"org/model is not pinned in the catalogue; to pin what this run used: revision: {COMMIT}"
        ]
        hub.refs["main"] = NEWER
        asked = len(hub.asked)
        again = put(hub, tmp_path / "m", revision="unresolved")
        assert (again["changed"], again["commit"], len(hub.asked)) == (False, COMMIT, asked)
        assert put(hub, tmp_path / "m")["changed"] is False  # the line was committed
        assert len(hub.asked) == asked


def test_a_branch_is_pinned_at_first_use_and_named_when_it_moves(tmp_path: Path) -> None:
    newer = {"config.json": b"[]", "tokenizer.json": b"[1, 2]"}
    hub = Hub(FILES, commits={NEWER: newer})
    with hub_server(hub):
        done = put(hub, tmp_path / "m", revision="main")
        assert done["notes"] == [f"org/model at main is commit {COMMIT}"]
        assert put(hub, tmp_path / "m", revision="main")["changed"] is False
        hub.refs["main"] = NEWER
        for check_mode in (True, False):
            kept = put(hub, tmp_path / "m", check_mode=check_mode, revision="main")
            assert (kept["commit"], kept["changed"]) == (COMMIT, False)
            assert kept["notes"] == [
                f"org/model: main has moved to {NEWER}; this run keeps {COMMIT}, pinned at first use"
                " (to take the new one: -e repin=true)"
            ]
        assert tree(tmp_path / "m") == RIGHT
        done = put(hub, tmp_path / "m", revision="main", repin=True)
    assert (done["commit"], done["bytes_fetched"]) == (NEWER, 2)
    # What only the earlier revision had is gone, and nothing is said of its files as if they were wrong.
    assert tree(tmp_path / "m") == newer
    assert done["notes"] == [f"org/model at main is commit {NEWER}"]
    note = read_note(tmp_path / "m")
    assert (note.commit, note.asked, sorted(note.files), note.left_over) == (NEWER, "main", sorted(newer), {})


def test_what_the_clone_pinned_holds_on_a_box_that_has_nothing_yet(tmp_path: Path) -> None:
    hub = Hub(FILES, commits={NEWER: {"config.json": b"[]"}}, refs={"main": NEWER})
    with hub_server(hub):
        for revision in ("main", "unresolved"):
            done = put(hub, tmp_path / revision, revision=revision, pinned=COMMIT)
            assert (done["commit"], tree(tmp_path / revision)) == (COMMIT, RIGHT)
        cached = put(hub, tmp_path / "cache", revision="main", pinned=COMMIT, hub_cache=True)
        assert cached["commit"] == COMMIT
        # Nothing is asked of a hub where the weights are there, and a hub that is gone is no matter.
        asked = len(hub.asked)
        assert put(hub, tmp_path / "unresolved", revision="unresolved", pinned=COMMIT)["changed"] is False
        assert len(hub.asked) == asked


def test_a_branch_is_not_lost_with_the_hub(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m", revision="main")
    again = put(hub, tmp_path / "m", revision="main")
    assert (again["changed"], again["notes"]) == (False, [f"org/model at main is commit {COMMIT}"])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "sub/medusa_lm_head.pt", "a.pth", "a.ckpt", "A.BIN", "a.pkl"])
def test_pickled_weights_are_refused_before_the_first_byte(tmp_path: Path, name: str) -> None:
    with hub_server(Hub({**FILES, name: SHARD, "training_args.bin": b"not loaded by any engine"})) as hub:
        with pytest.raises(DrafthouseError) as error:
            put(hub, tmp_path / "m")
        (problem,) = error.value.problems
        assert problem.found == f"pickled weights: {name}"
        assert problem.code == "pickled-weights"
        assert "it also has sub/model.safetensors" in problem.do
        assert "allow_pickle" in problem.do
        assert (hub.sent, list(tmp_path.iterdir())) == (0, [])
        # What is not wanted is not refused, and what is named comes.
        assert put(hub, tmp_path / "m", ignore=(name,))["changed"]
        assert put(hub, tmp_path / "m", allow_pickle=("*" + Path(name).suffix,))["files"] == len(FILES) + 2


def test_a_repository_of_pickles_alone_has_nothing_instead(tmp_path: Path) -> None:
    with (
        hub_server(Hub({"config.json": b"{}", "pytorch_model.bin": SHARD})) as hub,
        pytest.raises(DrafthouseError) as error,
    ):
        put(hub, tmp_path / "m")
    assert "take a repository (or a revision) that has them as safetensors" in error.value.problems[0].do


def test_other_patterns_fetch_what_is_new_alone(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m", ignore=("sub/*",))
        assert hub.sent == 8
        done = put(hub, tmp_path / "m")
        assert done["bytes_fetched"] == SHARD.size
        put(hub, tmp_path / "m", ignore=("sub/*",))
        # What the same revision has stays, though it is not wanted now: `make prune` is for that.
        assert tree(tmp_path / "m") == RIGHT


# --- offline, and elsewhere -------------------------------------------------------------------------------------


def test_offline_uses_what_was_verified_and_names_what_is_missing(tmp_path: Path) -> None:
    with hub_server(Hub(FILES)) as hub:
        with pytest.raises(DrafthouseError, match=r"offline, and nothing verified as org/model"):
            put(hub, tmp_path / "m", offline=True)
        put(hub, tmp_path / "m", revision="main")
        asked = len(hub.asked)
        assert put(hub, tmp_path / "m", revision="main", offline=True)["changed"] is False
        assert put(hub, tmp_path / "m", offline=True)["changed"] is False
        os.utime(tmp_path / "m/config.json")
        assert put(hub, tmp_path / "m", offline=True)["changed"] is False  # read, and right
        (tmp_path / "m/config.json").unlink()
        with pytest.raises(DrafthouseError, match=r"offline, and org/model is missing config\.json"):
            put(hub, tmp_path / "m", offline=True)
        (tmp_path / "m/config.json").write_bytes(b"[]")
        with pytest.raises(
            DrafthouseError, match=r"offline, and config\.json of org/model is not there, or not with the right"
        ):
            put(hub, tmp_path / "m", offline=True)
        assert len(hub.asked) == asked


def test_what_is_brought_from_elsewhere_is_not_asked_of_the_hub(tmp_path: Path) -> None:
    def listing(identity: Callable[[str], str]) -> Snapshot:
        assert len(identity(COMMIT)) == 64
        config, shard = RemoteFile("config.json", 2, None, "9e26dfeeb6e641a33dae4961196235bdb965b21b"), SHARD
        both = (config, RemoteFile("sub/model.safetensors", shard.size, sha256_of(shard), None))
        return Snapshot("org/model", COMMIT, COMMIT, both)

    def bring(file: RemoteFile, part: Path, tell: Any) -> bool:
        if file.path == "config.json":
            return False
        part.write_bytes(RIGHT[file.path])
        tell(file.size)
        return True

    with hub_server(Hub(FILES)) as hub:
        done = put(hub, tmp_path / "m", listing=listing, fill_part=bring)
        assert (done["changed"], done["bytes_fetched"], done["bytes_brought"]) == (True, 2, SHARD.size)
        assert not [path for path in hub.asked if path.startswith("/api/models/org/model")]
    assert sorted(tree(tmp_path / "m")) == ["config.json", "sub/model.safetensors"]


# --- room, and links --------------------------------------------------------------------------------------------


def test_a_disk_without_room_is_named_before_the_first_byte(tmp_path: Path) -> None:
    need = snapshot_layout.Need(tmp_path / "m" / PARTS, 10**15, 1, "org/model")
    with pytest.raises(
        DrafthouseError, match=r"found: [\d.,]+ [GM]B free at .*\nneeded: 1,000,000\.0 GB for org/model"
    ):
        snapshot_layout.check_room([need], 1 << 20)


def test_two_that_fit_alone_and_not_together(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    needs = [snapshot_layout.Need(tmp_path / name, int(free * 0.6), 1, name) for name in ("target", "draft")]
    snapshot_layout.check_room(needs[:1], 0)
    with pytest.raises(DrafthouseError, match="for target and draft"):
        snapshot_layout.check_room(needs, 0)


def test_inodes_are_counted(tmp_path: Path) -> None:
    if not os.statvfs(tmp_path).f_files:
        pytest.skip("a file system without a table of inodes")
    with refuses("disk-full", match="free inodes at"):
        snapshot_layout.check_room([snapshot_layout.Need(tmp_path, 0, 1 << 60, "x")], 0)


@pytest.mark.parametrize("way", ["m", "m/sub", "m/config.json", f"m/{PARTS}", "m/sub/model.safetensors"])
def test_a_link_that_was_planted_is_refused(tmp_path: Path, way: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / way).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / way).symlink_to(tmp_path / "elsewhere")
    with hub_server(Hub(FILES)) as hub:
        with pytest.raises(DrafthouseError, match="found: a symbolic link") as raised:
            put(hub, tmp_path / "m")
        assert str(tmp_path / way) in str(raised.value)
        assert hub.sent == 0
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m/config.json").mkdir(parents=True)
    with hub_server(Hub(FILES)) as hub, pytest.raises(DrafthouseError, match="something else where a file"):
        put(hub, tmp_path / "m")


def test_one_file_lies_beside_others(tmp_path: Path) -> None:
    with hub_server(Hub({"a.gguf": SHARD, "b.gguf": Made(1_000_000, 9)})) as hub:
        (tmp_path / "m").mkdir()
        (tmp_path / "m/mine.txt").write_bytes(b"mine")
        for name in ("a.gguf", "b.gguf"):
            done = put(hub, tmp_path / "m" / name, one_file=True, allow=(name,))
            assert done["path"] == str(tmp_path / "m" / name)
            assert put(hub, tmp_path / "m" / name, one_file=True, allow=(name,))["changed"] is False
        with pytest.raises(DrafthouseError, match=r"no c\.gguf among the selected files"):
            put(hub, tmp_path / "m/c.gguf", one_file=True, allow=("a.gguf",))
    names = ["a.gguf", "a.gguf.drafthouse.json", "b.gguf", "b.gguf.drafthouse.json", "mine.txt"]
    assert sorted(tree(tmp_path / "m")) == names


# --- the hub's cache, and several at once -----------------------------------------------------------------------


def test_the_hubs_cache_is_found_by_its_own_client(tmp_path: Path) -> None:
    from huggingface_hub import scan_cache_dir, snapshot_download

    with hub_server(Hub(FILES)) as hub:
        done = put(hub, tmp_path, revision="main", hub_cache=True)
        assert put(hub, tmp_path, hub_cache=True)["changed"] is False
        sent = hub.sent
        found = snapshot_download(hub.repo, revision="main", cache_dir=tmp_path, endpoint=hub.url)
        assert (found, hub.sent) == (done["path"], sent)
        assert snapshot_download(hub.repo, cache_dir=tmp_path, local_files_only=True) == done["path"]
    assert (Path(done["path"]) / "sub/model.safetensors").read_bytes() == RIGHT["sub/model.safetensors"]
    assert scan_cache_dir(tmp_path).warnings == []


def test_two_repositories_share_the_streams(tmp_path: Path) -> None:
    target = Hub({f"{n}.safetensors": Made(400_000, n) for n in range(6)}, repo="org/target", rate=4_000_000)
    draft = Hub({f"{n}.safetensors": Made(400_000, 10 + n) for n in range(6)}, repo="org/draft", rate=4_000_000)
    seen: list[dict[str, Any]] = []
    with hub_server(target, draft):
        wishes = [Wish(hub.repo, COMMIT, tmp_path / hub.repo, endpoint=hub.url) for hub in (target, draft)]
        place_snapshots(wishes, lambda event: seen.append(dict(event)), SOON)
    assert 1 < target.most_streams + draft.most_streams <= 16
    assert target.most_streams
    assert draft.most_streams
    assert all(len(tree(tmp_path / hub.repo)) == 6 for hub in (target, draft))


def test_the_first_that_fails_ends_the_others(tmp_path: Path) -> None:
    slow = Hub({"a.safetensors": Made(20_000_000, 1)}, repo="org/slow", rate=2_000_000)
    bad = Hub({"b.safetensors": SHARD}, repo="org/bad", faults={"*": [Fault(times=ALWAYS, status=503)]})
    with hub_server(slow, bad):
        wishes = [Wish(hub.repo, COMMIT, tmp_path / hub.repo, endpoint=hub.url) for hub in (slow, bad)]
        with pytest.raises(DrafthouseError, match=r"b\.safetensors: HTTP 503"):
            place_snapshots(wishes, lambda event: None, SOON)
    assert slow.sent < 20_000_000
    assert list((tmp_path / "org/slow" / PARTS).iterdir())  # what came is gone on with


def test_progress_says_which_how_far_how_fast_and_how_long(tmp_path: Path) -> None:
    for number in range(3):  # a machine that stands still for a moment is slow in one of them
        seen: list[dict[str, Any]] = []
        with hub_server(Hub({"a.safetensors": Made(4_000_000, 1)}, rate=1_000_000)) as hub:
            wish = Wish(hub.repo, COMMIT, tmp_path / f"m{number}", item="Some model", endpoint=hub.url)
            place_snapshots([wish], lambda event, seen=seen: seen.append(dict(event)), SOON)  # type: ignore[misc]
        # The very last word may be of the hash: what was read may be behind what came.
        last = [event for event in seen if event["text"] == "fetching Some model"][-1]
        if 500_000 < last["rate"] < 2_000_000 and last["eta_s"] < 4:
            break
    assert (last["item"], last["total"], last["unit"]) == ("Some model", 4_000_000, "bytes")
    assert 0 < last["done"] <= 4_000_000
    assert 500_000 < last["rate"] < 2_000_000
    assert last["eta_s"] < 4


def test_hashing_can_be_left_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    lock = threading.Lock()

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            with lock:
                order.append(name)
            return call(*args, **options)

        return wrapped

    monkeypatch.setattr(snapshot, "fetch", noted("fetch", transfer.fetch))
    monkeypatch.setattr(snapshot, "digest", noted("digest", at_rest.digest))
    with hub_server(Hub(FILES)) as hub:
        put(hub, tmp_path / "m", settings=Settings(hash_apart=True, margin=0))
    assert order[:3] == ["fetch"] * 3
    assert order.count("digest") == 3
