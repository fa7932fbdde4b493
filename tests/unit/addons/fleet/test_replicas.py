"""Which replicas a front has, and which host has the front."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.addons.fleet.front import front_host, kept_replicas, replicas_for
from tests.support.refusals import refuses


def entry(number: int, name: str = "m") -> Any:
    return {"address": f"10.0.0.{number}", "port": 8443, "certificate": f"cert {number}", "served_name": name}


def test_a_box_that_failed_is_left_out_and_one_that_was_not_played_stays() -> None:
    kept = {"a": entry(1), "b": entry(2), "c": entry(3), "gone": entry(9)}
    played = {"a": entry(11), "b": None}
    assert replicas_for(["a", "b", "c", "d"], played, kept) == {"a": entry(11), "c": entry(3)}


def test_a_front_without_a_replica_stays_as_it_was() -> None:
    with refuses("no-replica"):
        replicas_for(["a"], {"a": None}, {"a": entry(1)})


def test_two_names_are_no_fleet() -> None:
    with refuses("fleet-names-differ"):
        replicas_for(["a", "b"], {"a": entry(1)}, {"b": entry(2, "other")})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": {"address": "x"}}', '{"a": null}', '{"a": 3}'])
def test_a_file_that_is_none_keeps_nothing(text: str) -> None:
    assert kept_replicas(text) == {}
    assert kept_replicas(json.dumps({"a": entry(1)})) == {"a": entry(1)}


def test_the_front_is_the_first_host_of_the_fleet() -> None:
    assert front_host("", ["f1", "f3"]) == "f1"
    assert front_host("f3", ["f1", "f3"]) == "f3"
    with refuses("no-such-host"):
        front_host("web1", ["f1", "f3"])
