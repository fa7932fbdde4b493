"""`drafthouse fleet-upgrade`: which boxes in which order, and what is made of what was seen of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import fleet, fleet_plays, fleet_upgrade
from drafthouse.cli.fleet_plays import WHY, Boxes, Seen, hosts_of
from drafthouse.core.errors import DrafthouseError
from drafthouse.operate.roll.judge import Judged
from drafthouse.operate.roll.steps import Box, State, Word

PROFILE = "cpu-smollm2-ngram"
INVENTORY = """\
all:
  children:
    big: {hosts: {box3: {}, box1: {}}}
    small: {hosts: {box2: {profile: another}}}
"""


def given(*words: str) -> Any:
    return fleet_upgrade.options().parse_args([PROFILE, *words])


@pytest.mark.parametrize(
    ("profiles", "words", "order"),
    [
        ({"a": PROFILE, "b": PROFILE}, (), (["a", "b"], [])),
        ({"a": PROFILE, "b": PROFILE, "c": PROFILE}, ("--canary", "b"), (["b", "a", "c"], [])),
        ({"a": PROFILE, "b": "another", "c": PROFILE}, (), (["a", "c"], ["b"])),
        # An inventory that names no profile is asked about the one that is given.
        ({"a": "", "b": ""}, (), (["a", "b"], [])),
    ],
)
def test_the_canary_comes_first_and_other_profiles_are_not_changed(
    profiles: dict[str, str], words: tuple[str, ...], order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_upgrade, "hosts_of", lambda _: profiles)
    assert fleet_upgrade.ordered(given(*words)) == order


@pytest.mark.parametrize(
    ("profiles", "words", "code", "where"),
    [
        ({"a": "another"}, (), "no-host", "fleet"),
        ({"a": PROFILE, "b": "another"}, ("--canary", "b"), "no-such-host", "--canary"),
        ({"a": PROFILE}, ("--canary", "c"), "no-such-host", "--canary"),
    ],
)
def test_what_cannot_be_rolled_out(
    profiles: dict[str, str], words: tuple[str, ...], code: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_upgrade, "hosts_of", lambda _: profiles)
    with pytest.raises(DrafthouseError) as caught:
        fleet_upgrade.ordered(given(*words))
    assert [(problem.code, problem.where) for problem in caught.value.problems] == [(code, where)]


def test_fleet_upgrade_is_also_said_as_two_words(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []

    def main(words: Any) -> int:
        heard.append(list(words))
        return 7

    monkeypatch.setattr(fleet_upgrade, "main", main)
    assert fleet.main(["upgrade", PROFILE, "2", "--list"]) == 7
    assert heard == [[PROFILE, "2", "--list"]]


@pytest.mark.processes
def test_the_boxes_of_an_inventory_with_the_profile_of_each(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "big.yml").write_text(f"profile: {PROFILE}\n")
    assert hosts_of(str(tmp_path)) == {"box3": PROFILE, "box1": PROFILE, "box2": "another"}
    (tmp_path / "hosts.yml").write_text("all: {hosts: {}}\n")
    with pytest.raises(DrafthouseError) as caught:
        hosts_of(str(tmp_path))
    assert [problem.code for problem in caught.value.problems] == ["no-host"]


def seen(state: str = "ready", why: str = "", *, same: bool = False) -> Seen:
    return {"state": state, "why": why, "same": same, "key": "new", "keys": ["old"]}


def test_what_is_seen_of_a_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the roll has drained itself is its own; a box in traffic with a report was judged when put back."""
    found = {
        "a": seen(same=True),
        "b": seen("drained", WHY, same=True),
        "c": seen("drained", "drained by hand"),
        "d": seen("sick", "it answers no probe"),
        "e": seen(),
        "z": seen("away"),
    }
    for host in "ab":
        folder = tmp_path / PROFILE / f"20261101-000000-{host}"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(f'{{"host": "{host}", "key": "new", "verdict": {{"word": "pays"}}}}')
    boxes = Boxes(given("--reports", str(tmp_path)), list("abcde"), ["z"])
    monkeypatch.setattr(boxes, "_looked", lambda hosts, release: {host: found[host] for host in hosts})
    monkeypatch.setattr(fleet_plays, "read", lambda folder: folder)
    monkeypatch.setattr(fleet_plays, "judge", lambda *_: Judged(Word.WORSE, ("as the test says",)))
    assert boxes.look() == [
        Box("a", State.READY, True, Word.FINE),
        Box("b", State.OURS, True, Word.WORSE),
        Box("c", State.OUT),
        Box("d", State.OUT),
        Box("e", State.READY),
        Box("z", State.OUT, rolled=False),
    ]
    # Measured again: what is kept from before this run does not count.
    boxes = Boxes(given("--reports", str(tmp_path), "--again"), ["a"], [])
    monkeypatch.setattr(boxes, "_looked", lambda hosts, release: {host: found[host] for host in hosts})
    assert boxes.look() == [Box("a", State.READY, True)]


def test_a_change_that_ends_behind_its_measurement_is_judged_by_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*_: Any) -> int:
        folder = tmp_path / PROFILE / "20261102-000000-a"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text('{"host": "a", "key": "new", "verdict": {"word": "cannot say"}}')
        return 2

    monkeypatch.setattr(fleet_plays, "play", play)
    monkeypatch.setattr(fleet_plays, "read", lambda folder: folder)
    monkeypatch.setattr(fleet_plays, "judge", lambda *_: Judged(Word.UNSURE, ("too noisy",)))
    boxes = Boxes(given("--reports", str(tmp_path), "--again"), ["a"], [])
    monkeypatch.setattr(boxes, "_looked", lambda hosts, release: {host: seen() for host in hosts})
    boxes.look()
    assert boxes.judged("a") is None
    assert not boxes.change("a")
    assert boxes.judged("a") == Judged(Word.UNSURE, ("too noisy",))


def test_what_is_played_for_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, Any, list[str]]] = []

    def play(playbooks: list[str], inventory: str, variables: Any, words: list[str]) -> int:
        played.append((playbooks[0], variables, words))
        return 0

    monkeypatch.setattr(fleet_plays, "play", play)
    options = ("--reports", str(tmp_path), "--set", "serve.context=2048", "--", "-e", "x=1")
    boxes = Boxes(given("2", *options), ["a"], ["z"])
    monkeypatch.setattr(boxes, "_looked", lambda hosts, release: {host: seen() for host in hosts})
    boxes.look()
    assert boxes.drain("a")
    assert boxes.change("a")
    assert boxes.back("a")
    assert boxes.put_back("z")
    release = {"profile": PROFILE, "overrides": {"serve": {"context": 2048}}, "engine_version": "2"}
    assert [(book, words) for book, _, words in played] == [
        ("playbooks/fleet_drain.yml", ["-e", "x=1", "--limit", "a"]),
        ("site.yml", ["-e", "x=1", "--limit", "a", "--skip-tags", "fleet"]),
        ("playbooks/rollback.yml", ["-e", "x=1", "--limit", "a"]),
        ("playbooks/fleet_drain.yml", ["-e", "x=1", "--limit", "z"]),
    ]
    variables = [given for _, given, _ in played]
    assert {name: variables[1][name] for name in release} == release
    assert (variables[0]["fleet_state"], variables[0]["drain_why"]) == ("drained", WHY)
    # A box of another profile is asked about its own.
    assert (variables[3]["fleet_state"], "profile" in variables[3]) == ("undrained", False)
