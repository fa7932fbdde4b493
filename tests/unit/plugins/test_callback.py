"""What a run says of rented boxes at its end: of those alone that did not get through it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.callback import house

from drafthouse.core.places import CLOSING_FILE


def failed(name: str) -> Any:
    """A task's failed result on a rented box, as Ansible hands it over."""
    host = SimpleNamespace(get_name=lambda: name, vars={"drafthouse_instance": 7})
    task = SimpleNamespace(get_name=lambda: "Fetch the weights", ignore_unreachable=False)
    return SimpleNamespace(_host=host, _task=task, _result={"msg": "no route to host"})


@pytest.mark.parametrize(("ended", "said"), [("failures", True), ("dark", True), ("rescued", False)])
def test_a_box_is_lost_where_nothing_rescued_it(
    ended: str, said: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(house, "_fate", lambda variables: f"instance {variables['drafthouse_instance']} runs")
    callback = house.CallbackModule()
    callback.v2_runner_on_failed(failed("box-1"))
    stats: dict[str, Any] = {"failures": {}, "dark": {}, "rescued": {}} | {ended: {"box-1": 1}}
    callback.v2_playbook_on_stats(SimpleNamespace(**stats))
    text = "box-1: lost in 'Fetch the weights' (no route to host); instance 7 runs"
    assert (text in capsys.readouterr().out) == said


def test_an_interim_verdict_is_said_when_it_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    callback = house.CallbackModule()
    host = SimpleNamespace(get_name=lambda: "box-1")
    text = "interim verdict after 2 rounds: does not pay\n  round 3 follows"
    callback.v2_runner_on_ok(SimpleNamespace(_host=host, _result={"drafthouse_interim": text}))
    said = capsys.readouterr().out
    assert "box-1: interim verdict after 2 rounds: does not pay\nbox-1:   round 3 follows\n" in said
    callback.v2_runner_on_ok(SimpleNamespace(_host=host, _result={"drafthouse_interim": ""}))
    assert capsys.readouterr().out == ""


DOCTOR = [
    {"status": "ok", "found": "all quiet", "id": "a", "name": "a"},
    {"status": "warn", "found": "hot", "needed": "cool", "do": "wait", "id": "b", "name": "b"},
    {"status": "not here", "found": "no GPU", "id": "c", "name": "c"},
]
NOBODY = SimpleNamespace(failures={}, dark={})


def ended(verbosity: int, monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """End a run in which these boxes were judged and looked at."""
    callback = house.CallbackModule()
    monkeypatch.setattr(callback._display, "verbosity", verbosity)
    for name in hosts:
        result = {
            "drafthouse_verdict": "the table",
            "drafthouse_closing": f"verdict: {name}",
            "drafthouse_doctor": DOCTOR,
        }
        callback.v2_runner_on_ok(
            SimpleNamespace(_host=SimpleNamespace(get_name=lambda name=name: name), _result=result)
        )
    callback.v2_playbook_on_stats(NOBODY)


def test_of_the_doctor_only_what_is_wrong_is_said_and_the_closing_lines_are_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(CLOSING_FILE, raising=False)
    ended(0, monkeypatch, "box")
    said = capsys.readouterr().out
    assert "hot; needed: cool; do: wait" in said
    assert "all quiet" not in said and "no GPU" not in said
    assert "\nbox: 1 ok, 1 warning, 1 skipped\n" in said
    assert said.startswith("the table\n")
    assert said.endswith("\n\nverdict: box\n")
    ended(1, monkeypatch, "box")
    said = capsys.readouterr().out
    assert "all quiet" in said and "no GPU" in said


def test_closing_lines_of_several_boxes_have_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(CLOSING_FILE, raising=False)
    ended(0, monkeypatch, "one", "two")
    assert capsys.readouterr().out.endswith("\none\nverdict: one\n\ntwo\nverdict: two\n")


def test_closing_lines_wait_for_who_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CLOSING_FILE, str(tmp_path / "closing"))
    ended(0, monkeypatch, "box")
    assert "verdict: box" not in capsys.readouterr().out
    assert (tmp_path / "closing").read_text() == "\nverdict: box\n"
