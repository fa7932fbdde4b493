"""A removed name is refused where it stood, and CHANGELOG.md says the same words."""

from __future__ import annotations

import runpy

import pytest

from drafthouse.cli.main import VERBS
from drafthouse.cli.main import main as drafthouse
from drafthouse.core.errors import DrafthouseError
from drafthouse.core.removed import REMOVED, Removed
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_from, site_of_inventory

CHANGES = " ".join(ROOT.joinpath("CHANGELOG.md").read_text("utf-8").partition("### Removed")[2].split())


@pytest.mark.parametrize("row", REMOVED, ids=lambda row: f"{row.place} {row.name}")
def test_the_changelog_names_what_was_removed_in_the_same_words(row: Removed) -> None:
    assert f"{row.place} `{row.name}`: {row.instead}." in CHANGES


def test_no_name_is_removed_twice_and_no_verb_that_exists() -> None:
    names = [(row.place, row.name) for row in REMOVED]
    assert len(names) == len(set(names))
    assert not {name for place, name in names if place == "verb"} & set(VERBS)


@pytest.mark.parametrize("row", [row for row in REMOVED if row.place == "verb"], ids=lambda row: row.name)
def test_a_removed_verb_says_what_replaced_it(row: Removed) -> None:
    with pytest.raises(DrafthouseError) as refused:
        drafthouse([row.name])
    assert [(problem.code, problem.do) for problem in refused.value.problems] == [("removed", row.instead)]


@pytest.mark.parametrize("row", [row for row in REMOVED if row.place == "variable"], ids=lambda row: row.name)
def test_a_removed_variable_of_an_inventory_says_what_replaced_it(row: Removed) -> None:
    with pytest.raises(DrafthouseError) as refused:
        site_from({row.name: "x"})
    assert [(problem.code, problem.do) for problem in refused.value.problems] == [("removed", row.instead)]


@pytest.mark.parametrize(
    "row", [row for row in REMOVED if row.place in ("target", "profile", "make variable")], ids=lambda row: row.name
)
def test_make_says_what_replaced_it(row: Removed) -> None:
    word = f"{row.name}=" if row.place == "make variable" else row.name
    refused = runpy.run_path(str(ROOT / "scripts" / "targets.py"))["refusal"](word)
    assert (refused.code, refused.do) == ("removed", row.instead)


def test_a_removed_value_says_what_replaced_it() -> None:
    site = site_of_inventory("local") | {"watchdog": {"mode": "schedule"}}
    with pytest.raises(DrafthouseError) as refused:
        resolved_profile("cpu-smollm2-ngram", site)
    assert [(problem.code, problem.do) for problem in refused.value.problems] == [
        ("removed", "report or restart; give the engine's own option by batch size in speculation.options")
    ]
