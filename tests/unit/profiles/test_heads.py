"""Heads inside a target: which methods draft with them, what they cost, and what is refused."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.catalog import House, load_house
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
def house() -> House:
    """The catalogue, whose Qwen3-32B has a head inside, and a profile that drafts with it."""
    found = copy.deepcopy(load_house(ROOT))
    found.models[TARGET]["builtin_head"] = copy.deepcopy(HEAD)
    found.profiles[PROFILE]["speculation"] = {"method": "mtp", "num_speculative_tokens": 3}
    return found


def with_assistant(house: House) -> House:
    house.models[ASSISTANT] = copy.deepcopy(house.models["qwen3-32b-eagle3"])
    house.models[ASSISTANT]["head_method"] = "mtp"
    return house


def resolved(house: House, **overrides: Any) -> Any:
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    return resolve(house, PROFILE, dict(site_of_inventory("workstation")), kinds, overrides)


def test_it_names_no_model_fetches_nothing_and_is_counted_once(house: House) -> None:
    found = resolved(house)
    assert found["method"]["kind"] == "builtin"
    assert found["method"]["settings"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert (found["draft"], found["pair"]) == (None, None)
    assert [item["id"] for item in found["weights"]] == [TARGET]
    one, two = (found["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    whole = house.models[TARGET]["weight_bytes"]
    assert (one["weights"], one["draft"]) == (whole - HEAD["weight_bytes"], 0)
    assert two["weights"] + two["draft"] == whole
    assert two["kv_per_token"] - one["kv_per_token"] == PER_LAYER
    found["suites"] = load_suites([])
    assert "draft      the head inside the target (mtp, K=3)" in plan_text(found)


def test_a_head_whose_bytes_nobody_counted_stays_in_the_target(house: House) -> None:
    del house.models[TARGET]["builtin_head"]["weight_bytes"]
    fits = [arm["fit"] for arm in resolved(house)["arms"].values()]
    assert [(fit["weights"], fit["draft"]) for fit in fits] == [(house.models[TARGET]["weight_bytes"], 0)] * 2


def test_its_layers_cache_on_every_device_of_the_target(house: House) -> None:
    house.profiles[PROFILE]["hardware"] = "a100x4"
    house.profiles[PROFILE]["serve"]["tensor_parallel_size"] = 4
    one, two = (resolved(house)["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    assert two["kv_per_token"] - one["kv_per_token"] == PER_LAYER // 4
    assert two["draft"] == HEAD["weight_bytes"] // 4


def test_only_layers_with_a_cache_are_counted(house: House) -> None:
    house.models[TARGET]["kv_layers"] = 16
    assert resolved(house)["arms"]["baseline"]["fit"]["kv_per_token"] == 16 * PER_LAYER


def test_what_a_drafted_token_reads(house: House) -> None:
    target, head = house.models[TARGET], house.models[TARGET]["builtin_head"]
    output = 2 * target["vocab"] * target["hidden"]
    assert read_for_a_token(target) == target["weight_bytes"] - HEAD["weight_bytes"]
    assert read_for_a_draft(target, head) == HEAD["weight_bytes"] + output
    head["read_bytes"] = 5
    assert read_for_a_draft(target, head) == 5
    del head["read_bytes"], head["weight_bytes"]
    assert read_for_a_draft(target, head) == target["weight_bytes"] // target["layers"] + output
    expected = resolved(house)["expectation"]
    assert expected["draft_cost"] == pytest.approx(read_for_a_draft(target, head) / target["weight_bytes"])


def test_a_head_of_its_own_is_for_the_same_method(house: House) -> None:
    house = with_assistant(house)
    found = resolved(house, speculation={"draft": ASSISTANT})
    assert found["method"]["kind"] == "head"
    assert found["method"]["settings"]["model"].endswith(house.models[ASSISTANT]["folder"])
    assert found["arms"]["speculative"]["fit"]["draft"] == house.models[ASSISTANT]["weight_bytes"]
    assert found["pair"]["method"]["kind"] == "head"


def test_an_engine_may_call_the_method_otherwise(house: House) -> None:
    methods = house.engines["vllm"]["methods"]
    methods["draft-mtp"] = {**methods.pop("mtp"), "head": "mtp"}
    assert resolved(house, speculation={"method": "draft-mtp"})["method"]["kind"] == "builtin"
    assert resolved(with_assistant(house), speculation={"method": "draft-mtp", "draft": ASSISTANT})


def test_a_target_without_one_is_refused_and_the_export_that_has_it_named(house: House) -> None:
    for key, model in house.models.items():
        if key != TARGET:
            model.pop("builtin_head", None)  # the catalogue's own
    house.models["qwen3-32b-with-head"] = copy.deepcopy(house.models[TARGET])
    house.models["another-with-head"] = {**copy.deepcopy(house.models[TARGET]), "layers": 3}
    del house.models[TARGET]["builtin_head"]
    with refuses("no-builtin-head", match=r"do: choose a target that has one: qwen3-32b-with-head\n"):
        resolved(house)
    # No other export of it: then those that have one.
    del house.models["qwen3-32b-with-head"]
    with refuses("no-builtin-head", match="choose a target that has one: another-with-head"):
        resolved(house)
    del house.models["another-with-head"]
    with refuses("no-builtin-head", match="choose another method"):
        resolved(house)
    with refuses("no-builtin-head", match=f"add speculation.draft, one of: {ASSISTANT}"):
        resolved(with_assistant(house))


def test_a_head_of_another_kind_is_refused(house: House) -> None:
    house.models[TARGET]["builtin_head"]["kind"] = "dspark"
    with refuses("no-builtin-head", match="'qwen3-32b' with a head of the kind 'dspark'"):
        resolved(house)


def test_a_draft_beside_the_head_inside_is_refused(house: House) -> None:
    del house.engines["vllm"]["methods"]["mtp"]["or_head"]
    with refuses("draft-of-another-method", match="drafts with the head inside the target"):
        resolved(with_assistant(house), speculation={"draft": ASSISTANT})


@pytest.mark.parametrize(
    ("head", "tokens", "words"),
    [
        ({"max_tokens": 2}, 3, "2 or fewer: the head inside 'qwen3-32b'"),
        ({"n_predict": 2}, 3, "2 or fewer, or a multiple of it"),
        ({"n_predict": 4}, 7, "set it to 4"),
    ],
)
def test_k_is_what_the_head_allows(house: House, head: Any, tokens: int, words: str) -> None:
    house.models[TARGET]["builtin_head"].update(head)
    with refuses("draft-length", match=words):
        resolved(house, speculation={"num_speculative_tokens": tokens})


@pytest.mark.parametrize(("predicted", "tokens"), [(4, 3), (4, 4), (2, 6), (1, 5)])
def test_fewer_than_a_pass_or_whole_passes(house: House, predicted: int, tokens: int) -> None:
    house.models[TARGET]["builtin_head"]["n_predict"] = predicted
    assert resolved(house, speculation={"num_speculative_tokens": tokens})


def test_the_tuner_tries_the_head_inside_beside_others(house: House) -> None:
    house = with_assistant(house)
    house.models[TARGET]["builtin_head"]["max_tokens"] = 4
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    found = catalogue_space(house, PROFILE, dict(site_of_inventory("workstation")), kinds)
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
        load_house(tmp_path)


def test_only_who_drafts_with_it_asks_whether_the_targets_files_have_it(house: House) -> None:
    [item] = resolved(house)["weights"]
    assert item["builtin_head"] == HEAD
    house.profiles[PROFILE]["speculation"] = {"method": "ngram", "num_speculative_tokens": 3}
    assert ["builtin_head" in item for item in resolved(house)["weights"]] == [False]


def test_a_heads_own_repository_as_the_target_is_its_model_and_the_draft() -> None:
    house = copy.deepcopy(load_house(ROOT))
    plain: Any = resolved(house)
    house.profiles[PROFILE]["target"] = "RedHatAI/Qwen3-32B-speculator.eagle3"
    for draft in ({}, {"draft": "qwen3-32b-eagle3"}):
        spec: Any = {"method": "eagle3", "num_speculative_tokens": 3, **draft}
        house.profiles[PROFILE]["speculation"] = spec
        found = resolved(house)
        assert (found["target"], found["draft"]) == (plain["target"], plain["draft"])
        assert found["arms"]["baseline"]["flags"] == plain["arms"]["baseline"]["flags"]
        assert any("names its model: Qwen/Qwen3-32B" in warning for warning in found["warnings"])
    # Its model is looked for as any other is, and another method cannot draft with it.
    house.models["qwen3-32b-eagle3"]["speculators"] = {"target": "org/none", "tokens": 3}
    with refuses("unknown-value", match="drafthouse model add org/none"):
        resolved(house)
    house.models["qwen3-32b-eagle3"]["speculators"] = {"target": "Qwen/Qwen3-32B", "tokens": 3}
    house.profiles[PROFILE]["speculation"] = {"method": "ngram", "num_speculative_tokens": 3}
    with refuses("draft-of-another-method", "draft-of-another-method"):
        resolved(house)
    # A head that names no model is no target.
    del house.models["qwen3-32b-eagle3"]["speculators"]
    with refuses("target-is-a-draft"):
        resolved(house)
