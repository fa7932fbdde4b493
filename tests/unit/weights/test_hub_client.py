"""Asking the hub: a revision's files and hashes, and everything that is refused before the first byte."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.core.retry import Patience
from drafthouse.weights.hub_client import RemoteFile, Snapshot, _remote_file, look_up
from tests.fakes.hub_contents import Zeros, git_sha1_of
from tests.fakes.hub_server import ALWAYS, COMMIT, RIGHT, STRANGER, Fault, Hub, hub_server
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes

SHARD = b"w" * 3000
FILES = {"config.json": b"{}", "model.safetensors": SHARD, "original/model.safetensors": b"o" * 5000}
SOON = Patience(tries=3, first_s=0.01, longest_s=0.02, longest_wait_s=3)


def ask(hub: Hub, revision: str = COMMIT, **options: Any) -> Snapshot:
    return look_up(options.pop("repo", hub.repo), revision, endpoint=hub.url, patience=SOON, **options)


def test_files_with_sizes_and_the_hash_that_each_is_known_by() -> None:
    with hub_server(Hub(FILES)) as hub:
        found = ask(hub)
    config, shard, _ = found.files
    assert (found.commit, found.size) == (COMMIT, 8002)
    assert (config.sha256, config.git_sha1) == (None, git_sha1_of(b"{}"))
    assert (shard.sha256, shard.git_sha1) == (hashlib.sha256(SHARD).hexdigest(), None)
    assert shard.url == f"{hub.url}/org/model/resolve/{COMMIT}/model.safetensors"
    assert shard.source == (hub.url, "org/model", COMMIT)
    assert not shard.xet


def test_patterns_choose() -> None:
    with hub_server(Hub(FILES)) as hub:
        assert [f.path for f in ask(hub, ignore=["original/*"]).files] == ["config.json", "model.safetensors"]
        assert [f.path for f in ask(hub, allow=["*.json"]).files] == ["config.json"]
        with pytest.raises(DrafthouseError, match=r"none of the 3 files of org/model.*\n.*allow \['\*\.gguf'\]"):
            ask(hub, allow=["*.gguf"])


def test_a_long_listing_comes_in_pages_all_of_them_from_the_hub() -> None:
    with hub_server(Hub({f"f{n}.json": b"{}" for n in range(25)}, page=10)) as hub:
        assert len(ask(hub).files) == 25
    assert len([path for path in hub.asked if "/tree/" in path]) == 3


@pytest.mark.parametrize("revision", ["unresolved", "main", "release/v1"])
def test_what_is_no_commit_becomes_the_one_that_it_is(revision: str) -> None:
    with hub_server(Hub(FILES, commits={"c" * 40: FILES}, refs={"main": COMMIT, "release/v1": "c" * 40})) as hub:
        found = ask(hub, revision)
    assert found.asked == revision
    assert found.commit == ("c" * 40 if revision == "release/v1" else COMMIT)


@pytest.mark.parametrize(
    ("changes", "options", "found", "do"),
    [
        ({"gated": True}, {}, "is gated", "accept it at http.*/org/model, then export HF_TOKEN"),
        ({"gated": True}, {"token": STRANGER}, "is gated", "accept it at"),
        ({}, {"token": "hf_other"}, "does not accept the token", "settings/tokens"),
        ({"gated": True}, {"token": "hf_other"}, "does not accept the token", "settings/tokens"),
        ({}, {"repo": "org/other"}, "no repository org/other", "correct source.hub.repo"),
        ({}, {"revision": "b" * 40}, "org/model at b{40}: .*the revision does not", "correct source.hub.revision"),
        ({}, {"revision": "nightly"}, "the revision does not", "correct source.hub.revision"),
    ],
)
def test_what_the_hub_refuses(changes: dict[str, Any], options: dict[str, Any], found: str, do: str) -> None:
    with hub_server(Hub(FILES, **changes)) as hub, pytest.raises(DrafthouseError, match=f"found: .*{found}") as raised:
        ask(hub, **options)
    assert re.search(do, str(raised.value))
    assert "hf_" not in str(raised.value)
    assert not any(problem.where == "" for problem in raised.value.problems)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../b.json",
        "a//b.json",
        "./a.json",
        "a\\b.json",
        "a\nb.json",
        "a\x1b[2Jb.json",
        "a\x7f.json",
        ".drafthouse-parts/x.json",
        "config.json/x.json",
        "",
    ],
)
def test_names_that_leave_the_folder_or_hide_something(name: str) -> None:
    files = {"config.json": b"{}", name: b"{}"}
    with hub_server(Hub(files)) as hub, pytest.raises(DrafthouseError, match="in the listing\n"):
        ask(hub)


RIGHT_ENTRY = {"type": "file", "path": "a", "size": 1, "oid": "0" * 40}


@pytest.mark.parametrize(
    "change",
    [
        {"size": -1},
        {"size": "1"},
        {"size": True},
        {"path": 3},
        {"oid": "../../../x"},
        {"oid": "A" * 40},
        {"lfs": {"oid": "0" * 40, "size": 1}},
        {"lfs": {"oid": "0" * 64, "size": None}},
        {"xetHash": "../x"},
    ],
)
def test_an_entry_that_cannot_be_trusted(change: dict[str, Any]) -> None:
    assert isinstance(_remote_file(RIGHT_ENTRY, "org/model", COMMIT, "http://h"), RemoteFile)
    with pytest.raises(DrafthouseError, match="in the listing of org/model"):
        _remote_file({**RIGHT_ENTRY, **change}, "org/model", COMMIT, "http://h")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_that_passes(status: int) -> None:
    with hub_server(Hub(FILES, faults={"api": [Fault(times=2, status=status)]})) as hub:
        assert len(ask(hub).files) == 3


def test_a_pause_too_long_is_not_waited_for() -> None:
    with hub_server(Hub(FILES, faults={"api": [Fault(times=ALWAYS, status=429, retry_after="3600")]})) as hub:
        with pytest.raises(DrafthouseError, match="HTTP 429, retry after 3600 s"):
            ask(hub)
        assert len(hub.asked) == 1


def test_trouble_that_does_not_pass() -> None:
    with hub_server(Hub(FILES, faults={"api": [Fault(times=ALWAYS, status=503)]})) as hub:
        with pytest.raises(DrafthouseError, match=r"no answer about org/model from http.*: HTTP 503, 3 times"):
            ask(hub)
        assert len(hub.asked) == 3


def test_no_hub_in_reach() -> None:
    with pytest.raises(
        DrafthouseError, match=r"ConnectError.*\n.*\ndo: check the network \(HF_ENDPOINT names a mirror\)"
    ):
        ask(Hub(FILES, url="http://127.0.0.1:9"))


def test_no_token_that_lies_on_the_box_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", RIGHT)
    with hub_server(Hub({"a.gguf": Zeros(10)}, gated=True)) as hub, refuses("hub-gated"):
        ask(hub)
