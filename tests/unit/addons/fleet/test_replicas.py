"""Which replicas a front has, and the table of a fleet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.addons.fleet.front import entry_of, kept_replicas, replicas_for
from drafthouse.addons.fleet.status import found_of, status_text
from drafthouse.core.errors import DrafthouseError


def entry(number: int, name: str = "m") -> Any:
    return {"address": f"10.0.0.{number}", "port": 8443, "certificate": f"cert {number}", "served_name": name}


def code(refused: Any) -> list[str]:
    return [problem.code for problem in refused.value.problems]


def test_a_box_that_failed_is_left_out_and_one_that_was_not_played_stays() -> None:
    kept = {"a": entry(1), "b": entry(2), "c": entry(3), "gone": entry(9)}
    played = {"a": entry(11), "b": None}
    assert replicas_for(["a", "b", "c", "d"], played, kept) == {"a": entry(11), "c": entry(3)}


def test_a_front_without_a_replica_stays_as_it_was() -> None:
    with pytest.raises(DrafthouseError) as refused:
        replicas_for(["a"], {"a": None}, {"a": entry(1)})
    assert code(refused) == ["no-replica"]


def test_two_names_are_no_fleet() -> None:
    with pytest.raises(DrafthouseError) as refused:
        replicas_for(["a", "b"], {"a": entry(1)}, {"b": entry(2, "other")})
    assert code(refused) == ["fleet-names-differ"]


def test_the_fronts_own_box_is_reached_on_loopback_by_its_own_port() -> None:
    found = {**entry(1), "port": 40443, "own_port": 8443}
    own, other = entry_of(found, own=True), entry_of(found, own=False)
    assert own is not None
    assert other is not None
    assert (own["address"], own["port"]) == ("127.0.0.1", 8443)
    assert (other["address"], other["port"]) == ("10.0.0.1", 40443)
    assert entry_of(None, own=False) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": {"address": "x"}}', '{"a": null}', '{"a": 3}'])
def test_a_file_that_is_none_keeps_nothing(text: str) -> None:
    assert kept_replicas(text) == {}
    assert kept_replicas(json.dumps({"a": entry(1)})) == {"a": entry(1)}


def test_the_table_says_which_take_requests_and_why_others_do_not() -> None:
    well = {
        "state": "ready",
        "why": "",
        "running": 3,
        "profile": "p",
        "arm": "speculative",
        "engine": "vllm",
        "version": "1",
    }
    fleet = {
        "a": found_of({"failed": False}, {"replica": well}),
        "b": found_of({"failed": False}, {"replica": {**well, "state": "drained", "why": "by hand", "running": None}}),
        "c": found_of({"unreachable": True, "msg": "no route\nmore"}, {"skipped": True}),
        "d": found_of({"failed": True, "msg": "no profile"}, None),
        "e": found_of(None, None),
    }
    assert [one["state"] for one in fleet.values()] == ["ready", "drained", "away", "away", "away"]
    text = status_text(fleet)
    assert "1 of 5 replicas ready" in text
    assert "no route" in text
    assert "more" not in text
    assert "vllm 1" in text
