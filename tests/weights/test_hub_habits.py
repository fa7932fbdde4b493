"""What the Hub's own client left on a machine: a cache that it made is used, a damaged one is not; its token."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.weights import hub_habits
from drafthouse.weights.fetch_plan import Wish, make_plan
from drafthouse.weights.hub_habits import client_cache, usual_token
from drafthouse.weights.snapshot import Settings, place_snapshots
from tests.fakes.hub_contents import data_of
from tests.fakes.hub_server import COMMIT, RIGHT, Hub, hub_server
from tests.weights.harness import FIRST, INDEX, OTHER, SECOND, Job, a_model, assert_right, clean_environment, total

MODEL = a_model()
BASE = "models--org--model"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server(Hub(MODEL)) as served:
        yield served


@pytest.fixture
def filled(hub: Hub, tmp_path: Path) -> Path:
    """Let the real client fill its cache; return the cache."""
    download(hub, tmp_path / "hf")
    assert hub.sent == total(MODEL)
    forget(hub)
    return tmp_path / "hf" / "hub"


def download(hub: Hub, home: Path, *words: str) -> None:
    environment = clean_environment(home) | {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
    command = [str(Path(sys.executable).with_name("hf")), "download", hub.repo, *words]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)


def forget(hub: Hub) -> None:
    hub.sent = 0
    for seen in (hub.sent_of, hub.asked, hub.cdn_asked):
        seen.clear()


def asked_for_bytes(hub: Hub) -> list[str]:
    """The requests for bytes of files; the rest asks what there is."""
    return [path for path in hub.asked if "/resolve" in path] + hub.cdn_asked


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_cache_that_the_client_made_is_used(hub: Hub, filled: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in filled.rglob("*") if path.is_file()}
    job = Job(hub, tmp_path / "m")
    would = Job(hub, tmp_path / "m", check_mode=True).run().result
    assert (would["changed"], would["bytes_fetched"]) == (True, 0)
    done = job.run()
    assert done.returned == 0, done.text
    assert_right(tmp_path / "m", MODEL)
    assert (done.result["bytes_fetched"], done.result["bytes_brought"]) == (0, total(MODEL))
    assert done.notes == [f"5.5 MB of org/model were found in {filled} and verified"]
    assert job.run().result["changed"] is False
    assert (asked_for_bytes(hub), hub.sent) == ([], 0)
    assert {path: path.read_bytes() for path in filled.rglob("*") if path.is_file()} == before
    assert not [path for path in (tmp_path / "m").rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:10])], ids=["bit", "cut"])
@pytest.mark.parametrize("name", [FIRST, "config.json"])
def test_a_damaged_file_is_passed_over_with_one_note(
    hub: Hub, filled: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(filled / BASE / "snapshots" / COMMIT / name)
    done = Job(hub, tmp_path / "m").run()
    assert done.returned == 0, done.text
    assert_right(tmp_path / "m", MODEL)
    assert dict(hub.sent_of) == {name: len(data_of(MODEL[name]))}
    assert len([line for line in done.notes if str(filled) in line and name in line]) == 1


def test_a_cache_of_another_commit_gives_the_files_that_stayed(hub: Hub, filled: Path, tmp_path: Path) -> None:
    hub.commits[OTHER] = {**MODEL, "config.json": b'{"model_type": "other"}\n'}
    done = Job(hub, tmp_path / "m", {"revision": OTHER}).run()
    assert done.returned == 0, done.text
    assert set(hub.sent_of) == {"config.json"}


def test_a_half_filled_cache_gives_what_it_has(hub: Hub, tmp_path: Path) -> None:
    download(hub, tmp_path / "hf", FIRST)
    forget(hub)
    done = Job(hub, tmp_path / "m").run()
    assert done.returned == 0, done.text
    assert set(hub.sent_of) == {"config.json", SECOND, INDEX, "original/params.json"}


@pytest.mark.parametrize(
    "named",
    [
        lambda home: {"HF_HUB_CACHE": str(home / "hub")},
        lambda home: {"XDG_CACHE_HOME": str(home.parent), "HF_HOME": ""},
        lambda home: {"HOME": str(home.parent.parent), "HF_HOME": ""},
    ],
    ids=["HF_HUB_CACHE", "XDG_CACHE_HOME", "HOME"],
)
def test_where_the_cache_is_looked_for(hub: Hub, tmp_path: Path, named: Callable[[Path], dict[str, str]]) -> None:
    home = tmp_path / "person" / ".cache" / "huggingface"
    download(hub, home)
    forget(hub)
    done = Job(hub, tmp_path / "m", environment=named(home)).run()
    assert (done.returned, asked_for_bytes(hub)) == (0, []), done.text


def test_a_small_file_is_copied_and_a_large_one_shares_its_place(
    hub: Hub, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room is asked for what is copied alone; a cache that is removed takes nothing away."""
    monkeypatch.setattr(hub_habits, "_COPIED_BELOW", 3_000_000)
    monkeypatch.setenv("HF_HUB_CACHE", str(filled))
    wish = Wish(hub.repo, COMMIT, tmp_path / "m", endpoint=hub.url, client_cache=client_cache())
    large = len(data_of(MODEL[FIRST]))
    assert make_plan(wish).need().bytes == total(MODEL) - large
    assert client_cache().linked_bytes(hub.repo, COMMIT, tmp_path / "not/yet") == large

    place_snapshots([wish], lambda event: None, Settings(margin=0))
    blob = (filled / BASE / "snapshots" / COMMIT / "config.json").resolve()
    with blob.open("r+b") as file:  # as a person edits it
        file.write(b"[")
    for path in filled.rglob("*"):
        if path.is_file() or path.is_symlink():
            path.unlink()
    assert_right(tmp_path / "m", MODEL)


def test_what_another_user_owns_is_counted_and_copied(
    hub: Hub, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_habits, "_COPIED_BELOW", 0)
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    monkeypatch.setenv("HF_HUB_CACHE", str(filled))
    wish = Wish(hub.repo, COMMIT, tmp_path / "m", endpoint=hub.url, client_cache=client_cache())
    assert make_plan(wish).need().bytes == total(MODEL)


def test_a_disk_with_room_for_a_link_alone(
    hub: Hub, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(filled))
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=1_000, f_frsize=1_000, f_files=0))
    wish = Wish(hub.repo, COMMIT, tmp_path / "m", endpoint=hub.url, client_cache=client_cache())
    with pytest.raises(DrafthouseError, match="MB for org/model"):
        place_snapshots([wish], lambda event: None, Settings(margin=0), check_mode=True)
    monkeypatch.setattr(hub_habits, "_COPIED_BELOW", 1_000)
    assert place_snapshots([wish], lambda event: None, Settings(margin=0), check_mode=True)[0]["bytes_fetched"] == 0


# --- the token ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lies", "named"),
    [
        ("hf/token", {}),
        ("elsewhere", {"HF_TOKEN_PATH": "{}/elsewhere"}),
        (".cache/huggingface/token", {"HOME": "{}", "HF_HOME": ""}),
        ("", {"HF_TOKEN": RIGHT}),
        ("hf/token", {"HF_TOKEN": ""}),
    ],
)
def test_a_gated_repository_with_the_token_that_lies_there(tmp_path: Path, lies: str, named: dict[str, str]) -> None:
    if lies:
        (tmp_path / lies).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / lies).write_text(f"{RIGHT}\n")
    environment = {key: value.format(tmp_path) for key, value in named.items()}
    with hub_server(Hub(MODEL, gated=True)) as gated:
        done = Job(gated, tmp_path / "m", environment=environment).run()
        assert done.returned == 0, done.text
        assert gated.tokens_at_cdn == 0
    assert_right(tmp_path / "m", MODEL)
    assert RIGHT not in done.text
    holders = [path for path in tmp_path.rglob("*") if path.is_file() and RIGHT.encode() in path.read_bytes()]
    assert holders == ([tmp_path / lies] if lies else [])


def test_which_token_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert usual_token() is None
    (tmp_path / "token").write_text("hf_home\n")
    assert usual_token() == "hf_home"
    (tmp_path / "other").write_text("hf_path\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "other"))
    assert usual_token() == "hf_path"
    monkeypatch.setenv("HF_TOKEN", " hf_environment ")
    assert usual_token() == "hf_environment"
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert usual_token() is None


def test_a_token_that_may_not_be_read_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path))  # a folder
    assert usual_token() is None
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "binary"))
    assert usual_token() is None


def test_it_is_what_the_client_itself_reads(tmp_path: Path) -> None:
    """Both read the same settings, in a process each: the client does so when it is imported."""
    program = (
        "from huggingface_hub import constants, get_token; from drafthouse.weights.hub_habits import *;"
        "assert str(client_cache().folder) == constants.HF_HUB_CACHE, constants.HF_HUB_CACHE;"
        "assert usual_token() == get_token() == 'hf_x'"
    )
    settings: list[dict[str, Any]] = [
        {"HF_HOME": "{}/a"},
        {"HF_HUB_CACHE": "$HOME/c", "HF_TOKEN": "hf_x"},
        {"XDG_CACHE_HOME": "{}/x"},
        {"HF_HOME": "~/h", "HF_TOKEN_PATH": "~/t"},
        {},
    ]
    for name in ("a/token", "x/huggingface/token", "t", ".cache/huggingface/token"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("hf_x")
    for one in settings:
        environment = clean_environment(tmp_path) | {"HOME": str(tmp_path)}
        del environment["HF_HOME"]
        environment |= {key: value.format(tmp_path) for key, value in one.items()}
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=180)
