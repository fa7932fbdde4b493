"""Heads inside a target: which methods draft with them, what they cost, and what is refused."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.memory_fit import read_for_a_draft, read_for_a_token
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from drafthouse.tuning.space import catalogue_space
from tests.support.catalogue import table, write
from tests.support.refusals import refuses

PROFILE, TARGET = "rtx6000-qwen-eagle3", "qwen3-32b"
HEAD: Any = {"kind": "mtp", "layers": 1, "tensors": ["mtp.fc.weight", "mtp.layers.0.*"], "weight_bytes": 850_000_000}
ASSISTANT = "qwen3-32b-assistant"
PER_LAYER = 2 * 8 * 128 * 2


@pytest.fixture
def catalog() -> Catalog:
    """The catalogue, whose Qwen3-32B has a head inside, and a profile that drafts with it."""
    found = copy.deepcopy(load_catalog(ROOT))
    found.models[TARGET]["builtin_head"] = copy.deepcopy(HEAD)
    found.profiles[PROFILE]["speculation"] = {"method": "mtp", "num_speculative_tokens": 3}
    return found


def with_assistant(catalog: Catalog) -> Catalog:
    catalog.models[ASSISTANT] = copy.deepcopy(catalog.models["qwen3-32b-eagle3"])
    catalog.models[ASSISTANT]["head_method"] = "mtp"
    return catalog


def resolved(catalog: Catalog, **overrides: Any) -> Any:
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    return resolve(catalog, PROFILE, dict(site_of_inventory("workstation")), kinds, overrides)


def test_it_names_no_model_fetches_nothing_and_is_counted_once(catalog: Catalog) -> None:
    found = resolved(catalog)
    assert found["method"]["kind"] == "builtin"
    assert found["method"]["settings"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert (found["draft"], found["pair"]) == (None, None)
    assert [item["id"] for item in found["weights"]] == [TARGET]
    one, two = (found["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    whole = catalog.models[TARGET]["weight_bytes"]
    assert (one["weights"], one["draft"]) == (whole - HEAD["weight_bytes"], 0)
    assert two["weights"] + two["draft"] == whole
    assert two["kv_per_token"] - one["kv_per_token"] == PER_LAYER
    found["suites"] = load_suites([])
    assert "draft      the head inside the target (mtp, K=3)" in plan_text(found)


def test_a_head_whose_bytes_nobody_counted_stays_in_the_target(catalog: Catalog) -> None:
    del catalog.models[TARGET]["builtin_head"]["weight_bytes"]
    fits = [arm["fit"] for arm in resolved(catalog)["arms"].values()]
    assert [(fit["weights"], fit["draft"]) for fit in fits] == [(catalog.models[TARGET]["weight_bytes"], 0)] * 2


def test_its_layers_cache_on_every_device_of_the_target(catalog: Catalog) -> None:
    catalog.profiles[PROFILE]["hardware"] = "a100x4"
    catalog.profiles[PROFILE]["serve"]["tensor_parallel_size"] = 4
    one, two = (resolved(catalog)["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    assert two["kv_per_token"] - one["kv_per_token"] == PER_LAYER // 4
    assert two["draft"] == HEAD["weight_bytes"] // 4


def test_only_layers_with_a_cache_are_counted(catalog: Catalog) -> None:
    catalog.models[TARGET]["kv_layers"] = 16
    assert resolved(catalog)["arms"]["baseline"]["fit"]["kv_per_token"] == 16 * PER_LAYER


def test_what_a_drafted_token_reads(catalog: Catalog) -> None:
    target, head = catalog.models[TARGET], catalog.models[TARGET]["builtin_head"]
    output = 2 * target["vocab"] * target["hidden"]
    assert read_for_a_token(target) == target["weight_bytes"] - HEAD["weight_bytes"]
    assert read_for_a_draft(target, head) == HEAD["weight_bytes"] + output
    head["read_bytes"] = 5
    assert read_for_a_draft(target, head) == 5
    del head["read_bytes"], head["weight_bytes"]
    assert read_for_a_draft(target, head) == target["weight_bytes"] // target["layers"] + output
    expected = resolved(catalog)["expectation"]
    assert expected["draft_cost"] == pytest.approx(read_for_a_draft(target, head) / target["weight_bytes"])


def test_a_head_of_its_own_is_for_the_same_method(catalog: Catalog) -> None:
    catalog = with_assistant(catalog)
    found = resolved(catalog, speculation={"draft": ASSISTANT})
    assert found["method"]["kind"] == "head"
    assert found["method"]["settings"]["model"].endswith(catalog.models[ASSISTANT]["folder"])
    assert found["arms"]["speculative"]["fit"]["draft"] == catalog.models[ASSISTANT]["weight_bytes"]
    assert found["pair"]["method"]["kind"] == "head"


def test_an_engine_may_call_the_method_otherwise(catalog: Catalog) -> None:
    methods = catalog.engines["vllm"]["methods"]
    methods["draft-mtp"] = {**methods.pop("mtp"), "head": "mtp"}
    assert resolved(catalog, speculation={"method": "draft-mtp"})["method"]["kind"] == "builtin"
    assert resolved(with_assistant(catalog), speculation={"method": "draft-mtp", "draft": ASSISTANT})


def test_a_target_without_one_is_refused_and_the_export_that_has_it_named(catalog: Catalog) -> None:
    for key, model in catalog.models.items():
        if key != TARGET:
            model.pop("builtin_head", None)  # the catalogue's own
    catalog.models["qwen3-32b-with-head"] = copy.deepcopy(catalog.models[TARGET])
    catalog.models["another-with-head"] = {**copy.deepcopy(catalog.models[TARGET]), "layers": 3}
    del catalog.models[TARGET]["builtin_head"]
    with refuses("no-builtin-head", match=r"do: choose a target that has one: qwen3-32b-with-head\n"):
        resolved(catalog)
    # No other export of it: then those that have one.
    del catalog.models["qwen3-32b-with-head"]
    with refuses("no-builtin-head", match="choose a target that has one: another-with-head"):
        resolved(catalog)
    del catalog.models["another-with-head"]
    with refuses("no-builtin-head", match="choose another method"):
        resolved(catalog)
    with refuses("no-builtin-head", match=f"add speculation.draft, one of: {ASSISTANT}"):
        resolved(with_assistant(catalog))


def test_a_head_of_another_kind_is_refused(catalog: Catalog) -> None:
    catalog.models[TARGET]["builtin_head"]["kind"] = "dspark"
    with refuses("no-builtin-head", match="'qwen3-32b' with a head of the kind 'dspark'"):
        resolved(catalog)


def test_a_draft_beside_the_head_inside_is_refused(catalog: Catalog) -> None:
    del catalog.engines["vllm"]["methods"]["mtp"]["or_head"]
    with refuses("draft-of-another-method", match="drafts with the head inside the target"):
        resolved(with_assistant(catalog), speculation={"draft": ASSISTANT})


@pytest.mark.parametrize(
    ("head", "tokens", "words"),
    [
        ({"max_tokens": 2}, 3, "2 or fewer: the head inside 'qwen3-32b'"),
        ({"n_predict": 2}, 3, "2 or fewer, or a multiple of it"),
        ({"n_predict": 4}, 7, "set it to 4"),
    ],
)
def test_k_is_what_the_head_allows(catalog: Catalog, head: Any, tokens: int, words: str) -> None:
    catalog.models[TARGET]["builtin_head"].update(head)
    with refuses("draft-length", match=words):
        resolved(catalog, speculation={"num_speculative_tokens": tokens})


@pytest.mark.parametrize(("predicted", "tokens"), [(4, 3), (4, 4), (2, 6), (1, 5)])
def test_fewer_than_a_pass_or_whole_passes(catalog: Catalog, predicted: int, tokens: int) -> None:
    catalog.models[TARGET]["builtin_head"]["n_predict"] = predicted
    assert resolved(catalog, speculation={"num_speculative_tokens": tokens})


def test_the_tuner_tries_the_head_inside_beside_others(catalog: Catalog) -> None:
    catalog = with_assistant(catalog)
    catalog.models[TARGET]["builtin_head"]["max_tokens"] = 4
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    found = catalogue_space(catalog, PROFILE, dict(site_of_inventory("workstation")), kinds)
    families = {family.id: family.tokens for family in found.families}
    assert families["mtp"] == (1, 2, 3, 4)
    assert f"mtp {ASSISTANT}" in families
    assert "eagle3 qwen3-32b-eagle3" in families


@pytest.mark.parametrize(
    ("entry", "codes"),
    [
        ({"kind": "head"}, ["conflicting-keys"]),
        ({"builtin_head": {**HEAD, "weight_bytes": 10**15}}, ["conflicting-keys"]),
        ({"builtin_head": {**HEAD, "kind": "mpt"}}, ["unknown-value"]),
        ({"builtin_head": {**HEAD, "layers": 0}}, ["out-of-range"]),
        ({"builtin_head": {"kind": "mtp", "layers": 1}}, ["missing-key"]),
    ],
)
def test_the_catalogue_is_checked(tmp_path: Path, entry: Any, codes: list[str]) -> None:
    shutil.copytree(ROOT / "profiles/catalog", tmp_path / "profiles/catalog")
    models = copy.deepcopy(table("models"))
    models[TARGET] |= {"builtin_head": HEAD, **entry}
    write(tmp_path, "models", models, yaml.safe_dump)
    with refuses(*codes):
        load_catalog(tmp_path)


def test_only_who_drafts_with_it_asks_whether_the_targets_files_have_it(catalog: Catalog) -> None:
    [item] = resolved(catalog)["weights"]
    assert item["builtin_head"] == HEAD
    catalog.profiles[PROFILE]["speculation"] = {"method": "ngram", "num_speculative_tokens": 3}
    assert ["builtin_head" in item for item in resolved(catalog)["weights"]] == [False]


def test_a_heads_own_repository_as_the_target_is_its_model_and_the_draft() -> None:
    catalog = copy.deepcopy(load_catalog(ROOT))
    plain: Any = resolved(catalog)
    catalog.profiles[PROFILE]["target"] = "RedHatAI/Qwen3-32B-speculator.eagle3"
    for draft in ({}, {"draft": "qwen3-32b-eagle3"}):
        spec: Any = {"method": "eagle3", "num_speculative_tokens": 3, **draft}
        catalog.profiles[PROFILE]["speculation"] = spec
        found = resolved(catalog)
        assert (found["target"], found["draft"]) == (plain["target"], plain["draft"])
        assert found["arms"]["baseline"]["flags"] == plain["arms"]["baseline"]["flags"]
        assert any("names its model: Qwen/Qwen3-32B" in warning for warning in found["warnings"])
    # Its model is looked for as any other is, and another method cannot draft with it.
    catalog.models["qwen3-32b-eagle3"]["speculators"] = {"target": "org/none", "tokens": 3}
    with refuses("unknown-value", match="drafthouse model add org/none"):
        resolved(catalog)
    catalog.models["qwen3-32b-eagle3"]["speculators"] = {"target": "Qwen/Qwen3-32B", "tokens": 3}
    catalog.profiles[PROFILE]["speculation"] = {"method": "ngram", "num_speculative_tokens": 3}
    with refuses("draft-of-another-method", "draft-of-another-method"):
        resolved(catalog)
    # A head that names no model is no target.
    del catalog.models["qwen3-32b-eagle3"]["speculators"]
    with refuses("target-is-a-draft"):
        resolved(catalog)
