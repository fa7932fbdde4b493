"""What a box has served: history and releases, and what a kill, a full disk or a hand in the files makes of them."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.operate.prune import used_by_releases
from drafthouse.profiles.workspace import ROOT
from drafthouse.serving import history
from drafthouse.serving.history import add_event, events_of, put_ballast
from drafthouse.serving.releases import (
    damaged_releases,
    earlier_release,
    identity_of,
    keep_release,
    prune_releases,
    read_release,
    release_ids,
    weights_kept,
)
from tests.support.loosely import current_server, read_history

pytestmark = pytest.mark.processes

RUNNING: Any = {"configuration": "[supervisord]\n"}


def resolved(name: str = "one", version: str = "1", weights: str = "/models/a") -> Any:
    files = [{"path": "serve.sh", "mode": "0755", "content": f"#!/bin/sh\nexec {name}\n"}]
    return {
        "profile": "small", "title": "A title", "engine": {"id": "vllm", "version": version, "runtime": "process"},
        "site": {"home": "/h", "host": "127.0.0.1", "port": 8000, "runtime": "process"},
        "target": {"served_name": "m"}, "key_file": "/h/secrets/api_key",
        "weights": [{"path": weights, "details": {"revision": "r1"}}],
        "arms": {arm: {"files": files, "container": None, "environment": {}} for arm in ("baseline", "speculative")},
        "box": {"memory_available": 1}, "suites": {"long": "texts"},
    }  # fmt: skip


def served(home: Path, name: str, arm: str = "speculative", **more: str) -> str:
    release = keep_release(home, resolved(name, **more), arm, RUNNING)
    add_event(home, "served", **release.facts(arm), why="it pays")
    return release.id


# --- history ------------------------------------------------------------------------------------


def test_nothing_is_known_of_a_bare_box(tmp_path: Path) -> None:
    assert read_history(tmp_path) == []
    assert current_server(tmp_path) is None
    assert (release_ids(tmp_path), earlier_release(tmp_path), damaged_releases(tmp_path)) == ([], None, [])
    assert list(tmp_path.iterdir()) == []


def test_what_should_serve_follows_the_events(tmp_path: Path) -> None:
    first = served(tmp_path, "one")
    now = current_server(tmp_path)
    assert now is not None
    assert {key: value for key, value in now.items() if key != "at"} == {
        "release": first, "profile": "small", "arm": "speculative", "engine": "vllm", "version": "1",
    }  # fmt: skip
    add_event(tmp_path, "refused", profile="small", why="it died")
    assert current_server(tmp_path) == now
    add_event(tmp_path, "switched", release=first, arm="baseline", why="it does not pay")
    changed = current_server(tmp_path)
    assert changed is not None
    assert (changed["release"], changed["arm"], changed["version"]) == (first, "baseline", "1")
    add_event(tmp_path, "ended", release=first, why="make stop")
    assert current_server(tmp_path) is None
    # Nothing serves whose arm could change.
    add_event(tmp_path, "switched", arm="speculative")
    assert current_server(tmp_path) is None


@pytest.mark.parametrize("torn", ['{"at": 5, "event": "ended"}', '{"at": 5, "ev', "\0\0\0\0"])
def test_a_last_line_without_its_end_never_came_to_be(tmp_path: Path, torn: str) -> None:
    first = served(tmp_path, "one")
    path = tmp_path / "served" / "history.jsonl"
    with path.open("a") as stream:
        stream.write(torn)
    assert (current_server(tmp_path) or {})["release"] == first
    assert all(event is not None for _, event in events_of(path.read_text()))
    add_event(tmp_path, "switched", arm="baseline")
    assert [event["event"] for event in read_history(tmp_path)] == ["served", "switched"]
    assert torn not in path.read_text()


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"event": "served"}', '{"at": 1, "event": "made up"}'])
def test_a_line_that_is_no_event_is_named_and_stops_nothing(tmp_path: Path, line: str) -> None:
    first = served(tmp_path, "one")
    path = tmp_path / "served" / "history.jsonl"
    path.write_text(f"{line}\n{path.read_text()}")
    assert (current_server(tmp_path) or {})["release"] == first
    assert [number for number, event in events_of(path.read_text()) if event is None] == [1]


def test_an_unknown_event_is_a_mistake_of_ours(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'started' is none of"):
        add_event(tmp_path, "started")
    assert list(tmp_path.iterdir()) == []


def test_the_history_is_bounded_and_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LINES", 5)
    for number in range(23):
        add_event(tmp_path, "refused", number=number)
    numbers = [event["number"] for event in read_history(tmp_path)]
    assert 5 <= len(numbers) <= 10
    assert numbers == list(range(23))[-len(numbers) :]


def test_what_serves_is_known_however_much_came_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LINES", 5)
    first = served(tmp_path, "one")
    for number in range(31):
        add_event(tmp_path, "switched", release=first, arm=("baseline", "speculative")[number % 2], number=number)
    now = current_server(tmp_path)
    assert now is not None
    assert (now["release"], now["arm"], now["version"]) == (first, "baseline", "1")
    assert len(read_history(tmp_path)) <= 11
    add_event(tmp_path, "ended", release=first)
    for _ in range(21):
        add_event(tmp_path, "refused")
    assert current_server(tmp_path) is None
    assert earlier_release(tmp_path) is None


ADD_MANY = """
import sys
from drafthouse.serving.history import add_event
for number in range(20):
    add_event(sys.argv[1], "refused", writer=int(sys.argv[2]), number=number)
"""


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-c", ADD_MANY, str(tmp_path)]
    writers = [subprocess.Popen([*words, str(writer)], cwd=ROOT / "src") for writer in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    found = sorted((event["writer"], event["number"]) for event in read_history(tmp_path))
    assert found == [(writer, number) for writer in range(3) for number in range(20)]


# --- releases -----------------------------------------------------------------------------------


def test_a_release_is_all_that_is_needed_and_nothing_of_the_moment(tmp_path: Path) -> None:
    made = keep_release(tmp_path, resolved(), "speculative", RUNNING)
    again = read_release(tmp_path, made.id)
    assert again.running == {"speculative": RUNNING}
    assert again.resolved["arms"]["baseline"]["files"][0]["content"] == "#!/bin/sh\nexec one\n"
    assert not {"box", "suites"} & again.resolved.keys()
    script = tmp_path / "served" / "releases" / made.id / "baseline" / "serve.sh"
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("#!/bin/sh\nexec one\n", 0o755)


def test_the_same_files_are_the_same_release(tmp_path: Path) -> None:
    first = keep_release(tmp_path, resolved(), "speculative", RUNNING)
    other_title: Any = {**resolved(), "title": "Another title", "box": {"memory_available": 2}}
    assert keep_release(tmp_path, other_title, "baseline", {"configuration": "b"}).id == first.id
    assert read_release(tmp_path, first.id).running == {"speculative": RUNNING, "baseline": {"configuration": "b"}}
    assert keep_release(tmp_path, resolved(version="2"), "speculative", RUNNING).id != first.id


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"id": "vllm", "version": "2", "runtime": "process"}},
        {"site": {"home": "/h", "host": "127.0.0.1", "port": 8100, "runtime": "process"}},
        {"weights": [{"path": "/models/a", "details": {"revision": "r2"}}]},
        {"target": {"served_name": "other"}},
        {"arms": {"baseline": {"files": [], "container": {"image": "x"}, "environment": {}}}},
    ],
)
def test_what_is_put_on_the_box_makes_another_release(change: Any) -> None:
    changed: Any = {**resolved(), **change}
    assert identity_of(changed) != identity_of(resolved())


def test_a_release_that_was_half_written_is_none(tmp_path: Path) -> None:
    first = served(tmp_path, "one")
    half = tmp_path / "served" / "releases" / ".0002.new"
    half.mkdir()
    (half / "resolved.json").write_text("{")
    assert release_ids(tmp_path) == [first]
    assert served(tmp_path, "two") == "0002"
    assert damaged_releases(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("resolved.json", None, "No such file"),
        ("resolved.json", '{"profile"', "does not parse"),
        ("resolved.json", "[]", "a list"),
        ("resolved.json", '{"profile": "x", "engine": {}}', "no site, target, arms, key_file"),
        ("running-speculative.json", "", "does not parse"),
    ],
)
def test_a_bad_file_of_a_release_is_named(tmp_path: Path, name: str, text: str | None, found: str) -> None:
    release = served(tmp_path, "one")
    path = tmp_path / "served" / "releases" / release / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(DrafthouseError, match=found) as caught:
        read_release(tmp_path, release)
    assert caught.value.problems[0].where == str(path)
    assert [problem.where for problem in damaged_releases(tmp_path)] == [str(path)]
    # What it needs is not known: nothing may be pruned.
    with pytest.raises(DrafthouseError):
        used_by_releases(tmp_path, Path("/models"))


def test_the_last_ones_that_served_are_kept(tmp_path: Path) -> None:
    made = [served(tmp_path, f"n{number}") for number in range(6)]
    # Gone back to an old one: it is the last that served, whatever its number.
    add_event(tmp_path, "rolled_back", **read_release(tmp_path, made[0]).facts("speculative"), why="make rollback")
    assert sorted(prune_releases(tmp_path, keep=3)) == made[1:4]
    assert release_ids(tmp_path) == [made[0], *made[4:]]
    # An id is never given twice.
    assert served(tmp_path, "new") == "0007"


def test_one_that_was_refused_later_is_not_what_served_last(tmp_path: Path) -> None:
    made = [served(tmp_path, f"n{number}") for number in range(2)]
    add_event(tmp_path, "refused", release="none", why="it died")
    assert prune_releases(tmp_path, keep=0) == made[:1]


def test_back_means_the_one_that_served_before(tmp_path: Path) -> None:
    made = [served(tmp_path, f"n{number}") for number in range(3)]
    assert earlier_release(tmp_path) == made[1]
    add_event(tmp_path, "rolled_back", **read_release(tmp_path, made[1]).facts("speculative"))
    assert earlier_release(tmp_path) == made[0]
    add_event(tmp_path, "rolled_back", **read_release(tmp_path, made[0]).facts("speculative"))
    assert earlier_release(tmp_path) is None
    # It came back after it was away: that is no change.
    add_event(tmp_path, "served", **read_release(tmp_path, made[0]).facts("speculative"))
    assert earlier_release(tmp_path) is None
    # Those that were left by going back are no better for it.
    new = served(tmp_path, "new")
    assert earlier_release(tmp_path) == made[0]
    add_event(tmp_path, "refused", release=made[2])
    add_event(tmp_path, "switched", release=new, arm="baseline")
    add_event(tmp_path, "ended", **read_release(tmp_path, new).facts("baseline"))
    assert earlier_release(tmp_path) == made[0]
    # What is not kept any more is passed over.
    shutil.rmtree(tmp_path / "served" / "releases" / made[0])
    assert earlier_release(tmp_path) is None


def test_weights_of_kept_releases_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = tmp_path / "models"
    served(tmp_path, "one", weights=str(models / "a"))
    served(tmp_path, "two", weights=str(models / "b" / "x.gguf"))
    served(tmp_path, "three", weights="/elsewhere/c")
    assert weights_kept(tmp_path) == {str(models / "a"), str(models / "b" / "x.gguf"), "/elsewhere/c"}
    assert used_by_releases(tmp_path, models) == {"a", "b/x.gguf"}
    (tmp_path / "link").symlink_to(models)
    (models / "b").mkdir(parents=True)
    assert used_by_releases(tmp_path, tmp_path / "link") == {"a", "b/x.gguf"}
    served(tmp_path, "four", weights=str(tmp_path / "link" / "d"))
    assert used_by_releases(tmp_path, models) == {"a", "b/x.gguf", "d"}
    monkeypatch.chdir(tmp_path)
    assert used_by_releases(tmp_path, Path("models")) == {"a", "b/x.gguf", "d"}
    assert used_by_releases(tmp_path / "bare", models) == set()


# --- a full disk --------------------------------------------------------------------------------


def test_the_ballast_goes_when_the_disk_is_full(tmp_path: Path) -> None:
    add_event(tmp_path, "refused")
    put_ballast(tmp_path, size=4096)
    ballast = tmp_path / "served" / "ballast"
    assert ballast.stat().st_blocks * 512 >= 4096
    tried: list[bool] = []

    def write() -> None:
        tried.append(ballast.exists())
        if ballast.exists():
            raise OSError(errno.ENOSPC, "No space left on device")

    history.with_room(tmp_path, write)
    assert tried == [True, False]


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "served").write_text("a file where the folder should be")
    with pytest.raises(DrafthouseError) as caught:
        add_event(tmp_path, "refused")
    assert caught.value.problems[0].where == str(tmp_path / "served")


def test_an_event_is_plain_json(tmp_path: Path) -> None:
    served(tmp_path, "one")
    (line,) = (tmp_path / "served" / "history.jsonl").read_text().splitlines()
    assert json.loads(line)["why"] == "it pays"
