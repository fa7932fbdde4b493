"""What may be tried, from the real catalogue; and what of a profile's `tunable` is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, resolved_profile, site_of_inventory
from drafthouse.tuning.search import tune
from drafthouse.tuning.space import MOST_TOKENS, CatalogueSpace, catalogue_space
from drafthouse.tuning.types import Space
from tests.fakes.known_box import KnownBox

KINDS = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog(ROOT)


def site_of(catalog: Catalog, name: str) -> Any:
    profile = catalog.profiles[name]
    inventory = catalog.hardware[profile["hardware"]]["inventory"]
    return site_of_inventory(inventory)


def reached(catalog: Catalog, name: str, overrides: dict[str, Any] | None = None) -> CatalogueSpace:
    return catalogue_space(catalog, name, site_of(catalog, name), KINDS, overrides)


@pytest.mark.parametrize("name", list(load_catalog(ROOT).profiles))
def test_every_profile_can_be_tuned_and_begins_with_itself(catalog: Catalog, name: str) -> None:
    found = reached(catalog, name)
    spec = catalog.profiles[name]["speculation"]
    own = found.families[0]
    assert own.first == spec["num_speculative_tokens"]
    assert own.id == " ".join(str(spec[key]) for key in ("method", "draft") if key in spec)
    resolved = resolve(catalog, name, site_of(catalog, name), KINDS)
    again = resolve(catalog, name, site_of(catalog, name), KINDS, own.candidate(own.first).overrides)
    assert again["arms"] == resolved["arms"]
    for family in found.families:
        assert family.first in family.tokens
        assert list(family.tokens) == sorted(set(family.tokens))
    assert len({family.id for family in found.families}) == len(found.families)


def test_a_profile_that_names_repositories_has_the_same_families(catalog: Catalog) -> None:
    name = "rtx6000-qwen-eagle3"
    wanted = [family.id for family in reached(catalog, name).families]
    spec, models = catalog.profiles[name]["speculation"], catalog.models
    spec["draft"] = models[spec["draft"]]["source"]["hub"]["repo"]
    catalog.profiles[name]["target"] = models[catalog.profiles[name]["target"]]["source"]["hub"]["repo"]
    assert [family.id for family in reached(catalog, name).families] == wanted


def test_another_method_leaves_the_own_draft_and_options_behind(catalog: Catalog) -> None:
    found = reached(catalog, "cpu-smollm2-draft")
    families = {family.id: family for family in found.families}
    assert next(iter(families)) == "draft-simple smollm2-135m-q4"
    assert {"ngram-simple", "ngram-map-k", "draft-simple smollm2-135m-bf16", "draft-simple smollm2-135m-f32"} <= set(
        families
    )
    candidate = families["ngram-simple"].candidate(6)
    resolved = resolve(catalog, "cpu-smollm2-draft", site_of(catalog, "cpu-smollm2-draft"), KINDS, candidate.overrides)
    assert resolved["draft"] is None
    flags = dict(flag for flag in resolved["arms"]["speculative"]["flags"] if len(flag) == 2)
    assert flags["--spec-ngram-simple-size-m"] == "6"
    assert "--spec-draft-model" not in flags


def test_k_stops_where_a_head_does(catalog: Catalog) -> None:
    found = reached(catalog, "rtx6000-llama31-medusa")
    limit = catalog.models[catalog.profiles["rtx6000-llama31-medusa"]["speculation"]["draft"]]["max_speculative_tokens"]
    # Medusa drafts with all of its heads: there is one K.
    assert found.families[0].tokens == (limit,)
    assert max(reached(catalog, "rtx6000-qwen-eagle3").families[0].tokens) == MOST_TOKENS["head"]


def test_what_cannot_be_tried_is_named_with_the_reason(catalog: Catalog) -> None:
    left_out = dict(reached(catalog, "rtx6000-qwen-eagle3", {"engine_version": "0.10.2"}).left_out)
    assert "does not have 'suffix'" in left_out["suffix"]
    assert all(why for why in left_out.values())


def test_a_profile_narrows_and_widens_the_search(catalog: Catalog) -> None:
    catalog.profiles["cpu-smollm2-draft"]["tunable"] = {
        "methods": ["draft-simple"],
        "drafts": ["smollm2-135m-bf16"],
        "num_speculative_tokens": [2, 6],
        "serve": {"threads": [1, 2], "parallel": [1]},
        "options": {"min_probability": [0.4, 0.9]},
    }
    found = reached(catalog, "cpu-smollm2-draft")
    assert [family.id for family in found.families] == [
        "draft-simple smollm2-135m-q4",
        "draft-simple smollm2-135m-bf16",
    ]
    # The profile's own K is always among them; a value that it has already is not tried.
    assert [family.tokens for family in found.families] == [(2, 4, 6), (2, 6)]
    assert found.options == (("serve.threads", (1, 2)), ("speculation.options.min_probability", (0.4, 0.9)))


@pytest.mark.parametrize(
    ("tunable", "where", "do"),
    [
        ({"serve": {"thread": [1]}}, "tunable.serve.thread", "write 'threads'"),
        ({"options": {"min_probabilty": [1]}}, "tunable.options.min_probabilty", "write 'min_probability'"),
        ({"methods": ["draft-simpel"]}, "tunable.methods[0]", "write 'draft-simple'"),
        ({"drafts": ["smollm2-135m-q5"]}, "tunable.drafts[0]", "write 'smollm2-135m-q4'"),
        ({"serve": {"threads": ["two"]}}, "tunable: serve.threads", "correct it"),
        ({"load": 1}, "tunable.load", "raise it, or remove it"),
    ],
)
def test_what_is_wrong_in_tunable_is_said(catalog: Catalog, tunable: Any, where: str, do: str) -> None:
    catalog.profiles["cpu-smollm2-draft"]["tunable"] = tunable
    with pytest.raises(DrafthouseError) as caught:
        reached(catalog, "cpu-smollm2-draft")
    assert [problem.where for problem in caught.value.problems] == [f"profiles/cpu-smollm2-draft.yml: {where}"]
    assert caught.value.problems[0].do == do


def test_all_of_it_at_once(catalog: Catalog) -> None:
    catalog.profiles["cpu-smollm2-draft"]["tunable"] = {"methods": ["x"], "serve": {"y": [1]}, "drafts": ["z"]}
    with pytest.raises(DrafthouseError) as caught:
        reached(catalog, "cpu-smollm2-draft")
    assert len(caught.value.problems) == 3


def test_a_null_in_the_overrides_takes_a_key_away(catalog: Catalog) -> None:
    name = "cpu-smollm2-ngram"
    overrides = {"speculation": {"options": None}, "experiment": {"once": None}}
    resolved = resolve(catalog, name, site_of(catalog, name), KINDS, overrides)
    assert resolved["experiment"]["once"] == []
    assert not any("size-n" in flag[0] for flag in resolved["arms"]["speculative"]["speculation_flags"])
    with pytest.raises(DrafthouseError, match="the key 'method'"):
        resolve(catalog, name, site_of(catalog, name), KINDS, {"speculation": {"method": None}})


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("cpu-smollm2-draft", ["speculation.options.min_probability"]),
        ("rtx6000-qwen-eagle3", ["serve.async_scheduling", "serve.kv_cache_dtype"]),
    ],
)
def test_the_options_of_a_shipped_profile_are_varied_and_belong_to_no_result(
    catalog: Catalog, name: str, paths: list[str]
) -> None:
    found = reached(catalog, name)
    assert [option for option, _ in found.options] == paths
    space = Space(found.families, 40, 20, options=found.options)
    own = found.families[0].id
    box = KnownBox(lambda candidate: 1.5 * (candidate.family == own) + 0.2 * bool(candidate.settings) or 1.0, 1)
    tuned = tune(space, box, 3600.0)
    tried = {setting for one in tuned.tried for setting in one.candidate.settings}
    assert tried == {(path, value) for path, values in found.options for value in values}
    assert tuned.winner.settings
    # What may be tuned changes nothing of what is measured.
    resolved = resolved_profile(name, site_of(catalog, name))
    assert "tunable" not in json.dumps(resolved, default=str)
