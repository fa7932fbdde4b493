"""What a run says of rented boxes at its end: of those alone that did not get through it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.callback import house


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
