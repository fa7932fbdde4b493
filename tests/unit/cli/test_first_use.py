"""Every verb that resolves a profile has the entries of its models first."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.cli import main, new, playbooks, profile_arguments, rent, tune
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT

PROFILE = "rtx6000-qwen-eagle3"


class Had(Exception):
    """Raised in place of the entries."""


@pytest.mark.parametrize(
    "words",
    [
        ["plan", PROFILE], ["render", PROFILE], ["run", PROFILE], ["weights", PROFILE],
        ["tune", PROFILE, "--budget", "30m"], ["rent", PROFILE, "--dry-run"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_entries_come_before_the_profile_is_resolved(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def have(profile: str, settings: list[str], inventory: str | None = None) -> None:
        raise Had(profile, settings)

    for module in (profile_arguments, playbooks, tune, rent):
        monkeypatch.setattr(module, "add_missing_entries", have)
    with pytest.raises(Had) as had:
        main.module_of(words[0]).main([*words[1:], "--set", "target=org/name"])
    assert had.value.args == (PROFILE, ["target=org/name"])


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ([], []),
        (["target=org/name"], ["org/name", "qwen3-32b-eagle3"]),
        (["speculation.draft=org/head"], ["qwen3-32b", "org/head"]),
        (["speculation=3", "target=org/name"], ["org/name", None]),
        (["target=qwen3-23b"], []),
    ],
)
def test_what_a_profile_names_in_the_end_is_looked_for(
    settings: list[str], asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    monkeypatch.setattr("drafthouse.models.first_use.add_missing", lambda *words, **more: found.extend(words[:2]))
    profile_arguments.add_missing_entries(PROFILE, settings)
    assert found == asked


def test_what_is_wrong_with_a_profile_is_left_to_the_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = copy.deepcopy(load_catalog(ROOT))
    catalog.broken["bad"], catalog.profiles["bad"] = [], {"target": "org/name"}  # type: ignore[typeddict-item]
    monkeypatch.setattr(profile_arguments, "catalog_for", lambda inventory: catalog)
    monkeypatch.setattr("drafthouse.models.first_use.add_missing", lambda *words, **more: pytest.fail("asked"))
    profile_arguments.add_missing_entries("bad", [])
    profile_arguments.add_missing_entries("no-such", [])


def test_a_new_profile_adds_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def have(target: object, draft: object, catalog: object) -> None:
        raise Had(target, draft)

    monkeypatch.setattr(new, "add_entries", have)
    with pytest.raises(Had) as had:
        new.main(["--target", "org/name", "--gpu", "h100", "--draft", "org/head"])
    assert had.value.args == ("org/name", "org/head")
