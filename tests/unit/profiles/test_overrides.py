"""What is laid over a profile, and what a null does there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.profiles.overrides import laid_over, with_overrides

PROFILE: Any = {"title": "t", "speculation": {"method": "a", "draft": "d", "options": {"x": 1}}, "serve": {"k": [1]}}


BASE = {"title": "t", "serve": {"k": 1, "l": 2}}


@pytest.mark.parametrize(
    ("more", "kept", "applied"),
    [
        ({"title": "u"}, {**BASE, "title": "u"}, {**BASE, "title": "u"}),
        ({"title": None}, {**BASE, "title": None}, {"serve": {"k": 1, "l": 2}}),
        ({"serve": {"k": None}}, {**BASE, "serve": {"k": None, "l": 2}}, {**BASE, "serve": {"l": 2}}),
        ({"serve": 3}, {**BASE, "serve": 3}, {**BASE, "serve": 3}),
        # Below what is not there, or is no mapping, there is nothing to take away.
        ({"new": {"a": {"b": None}}}, {**BASE, "new": {"a": {"b": None}}}, {**BASE, "new": {"a": {}}}),
        ({"title": {"a": None, "b": 1}}, {**BASE, "title": {"a": None, "b": 1}}, {**BASE, "title": {"b": 1}}),
    ],
)
def test_a_null_stays_or_takes_the_key_away(more: Any, kept: Any, applied: Any) -> None:
    assert laid_over(BASE, more) == kept
    assert laid_over(BASE, more, nulls=False) == applied


def test_a_changed_profile_shares_nothing_with_the_one_it_was() -> None:
    before = copy.deepcopy(PROFILE)
    new: Any = with_overrides(PROFILE, {"speculation": {"draft": None, "method": "b"}})
    assert new["speculation"] == {"method": "b", "options": {"x": 1}}
    new["serve"]["k"].append(2)
    new["speculation"]["options"]["x"] = 3
    assert before == PROFILE
