"""What vLLM's versions have of heads: the method's word, the options of a draft, and what is refused beside them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from tests.support.refusals import refuses

PROFILE, TARGET, HEAD, DRAFT = "rtx6000-qwen-eagle3", "qwen3-32b", "qwen3-32b-eagle3", "qwen3-8b"


@pytest.fixture
def catalog() -> Catalog:
    """The catalogue, whose Qwen3-32B has a head of every kind."""
    found = copy.deepcopy(load_catalog(ROOT))
    for kind in ("peagle", "dflash", "dspark"):
        found.models[kind] = {**found.models[HEAD], "head_method": kind, "folder": kind}
    found.profiles[PROFILE]["serve"]["max_model_len"] = 8192  # with room for a draft model
    return found


def speculation(catalog: Catalog, method: str, draft: str | None, version: str = "0.32.0", **options: Any) -> Any:
    """Resolve the profile with another speculation; return it as vLLM gets it."""
    found = resolved(catalog, method, draft, version, **options)
    (flag, words) = found["arms"]["speculative"]["speculation_flags"][0]
    assert flag == "--speculative-config"
    return json.loads(words)


def resolved(catalog: Catalog, method: str, draft: str | None, version: str = "0.32.0", **options: Any) -> Any:
    catalog.profiles[PROFILE]["engine_version"] = version
    catalog.profiles[PROFILE]["speculation"] = {"method": method, "num_speculative_tokens": 3, "options": options}
    if draft:
        catalog.profiles[PROFILE]["speculation"]["draft"] = draft
    else:
        head: Any = {"kind": method, "layers": 1, "tensors": ["mtp.*"]}
        catalog.models[TARGET]["builtin_head"] = head
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    return resolve(catalog, PROFILE, dict(site_of_inventory("workstation")), kinds)


@pytest.mark.parametrize("method", ["mtp", "dspark"])
def test_a_head_inside_is_named_by_the_method_alone(catalog: Catalog, method: str) -> None:
    assert speculation(catalog, method, None) == {"method": method, "num_speculative_tokens": 3}


@pytest.mark.parametrize("method", ["dflash", "dspark"])
def test_a_head_of_its_own(catalog: Catalog, method: str) -> None:
    said = speculation(catalog, method, method)
    assert said.pop("model").endswith(f"/{method}")
    assert said == {"method": method, "num_speculative_tokens": 3}


def test_a_parallel_head_gets_parallel_drafting_and_others_do_not(catalog: Catalog) -> None:
    said = speculation(catalog, "peagle", "peagle")
    assert (said["method"], said["parallel_drafting"]) == ("eagle3", True)
    assert "parallel_drafting" not in speculation(catalog, "eagle3", HEAD)
    with refuses("draft-of-another-method", match="set method: peagle"):
        speculation(catalog, "eagle3", "peagle")
    with refuses("draft-of-another-method", match="set method: eagle3"):
        speculation(catalog, "peagle", HEAD)
    with refuses("unknown-key", match="parallel_drafting"):
        speculation(catalog, "eagle3", HEAD, parallel_drafting=True)


def test_a_parallel_draft_model_gets_parallel_drafting(catalog: Catalog) -> None:
    with refuses("draft-of-another-method", match="trained for 'pard'"):
        speculation(catalog, "pard", DRAFT)
    with refuses("draft-missing", match="the catalogue has none for"):
        speculation(catalog, "pard", None)
    with refuses("draft-missing", match="add one of: .*qwen3-8b"):
        speculation(catalog, "draft_model", None)
    catalog.models[DRAFT]["head_method"] = "pard"
    said = speculation(catalog, "pard", DRAFT)
    assert (said["method"], said["parallel_drafting"]) == ("draft_model", True)
    assert "Qwen3-8B" in said["model"]


@pytest.mark.parametrize(("version", "asked"), [("0.32.0", True), ("0.28.0", False)])
def test_the_speculative_arm_counts_the_drafts_of_each_answer(catalog: Catalog, version: str, asked: bool) -> None:
    arms, flag = resolved(catalog, "eagle3", HEAD, version)["arms"], ["--per-request-spec-decode-metrics", "summary"]
    assert (flag in arms["speculative"]["speculation_flags"]) == asked
    # Without speculation vLLM refuses it.
    assert flag[0] not in str(arms["baseline"])


@pytest.mark.parametrize(("method", "draft"), [("peagle", "peagle"), ("pard", DRAFT), ("suffix", None)])
def test_both_arms_run_on_the_runner_that_has_the_method(catalog: Catalog, method: str, draft: str | None) -> None:
    catalog.models[DRAFT]["head_method"] = "pard"
    arms = resolved(catalog, method, draft)["arms"]
    assert {arm["environment"]["VLLM_USE_V2_MODEL_RUNNER"] for arm in arms.values()} == {"0"}


@pytest.mark.parametrize(
    ("method", "first", "before"),
    [
        ("mtp", "0.11.0", "0.10.2"),
        ("peagle", "0.18.0", "0.17.1"),
        ("dflash", "0.20.0", "0.19.1"),
        ("dspark", "0.25.0", "0.24.0"),
        ("pard", "0.16.0", "0.15.1"),
        ("ngram_gpu", "0.18.0", "0.17.1"),
    ],
)
def test_the_first_version_with_a_method(catalog: Catalog, method: str, first: str, before: str) -> None:
    catalog.models[DRAFT]["head_method"] = "pard"
    draft = {"mtp": None, "ngram_gpu": None, "pard": DRAFT}.get(method, method)
    assert speculation(catalog, method, draft, first)
    with refuses("option-not-in-version", match=f"since {first}"):
        speculation(catalog, method, draft, before)


@pytest.mark.parametrize(
    ("option", "value", "first", "before"),
    [
        ("moe_backend", "triton", "0.19.0", "0.18.1"),
        ("attention_backend", "FLASH_ATTN", "0.21.0", "0.20.2"),
        ("kv_cache_dtype", "auto", "0.26.0", "0.25.1"),
        ("draft_sample_method", "greedy", "0.21.0", "0.20.2"),
        ("rejection_sample_method", "standard", "0.21.0", "0.20.2"),
        ("rejection_sample_method", "block", "0.25.0", "0.24.0"),
    ],
)
def test_the_first_version_with_an_option_of_a_draft(
    catalog: Catalog, option: str, value: str, first: str, before: str
) -> None:
    given: Any = {option: value}
    assert speculation(catalog, "eagle3", HEAD, first, **given)[option] == value
    with refuses("option-not-in-version"):
        speculation(catalog, "eagle3", HEAD, before, **given)


def test_options_that_every_version_has(catalog: Catalog) -> None:
    said = speculation(catalog, "eagle3", HEAD, "0.10.2", quantization="fp8", max_model_len=4096)
    assert (said["quantization"], said["max_model_len"]) == ("fp8", 4096)


def test_one_version_has_another_word_for_sampled_drafts(catalog: Catalog) -> None:
    for version, word in (("0.21.0", "gumbel"), ("0.22.0", "probabilistic")):
        said = speculation(catalog, "eagle3", HEAD, version, draft_sample_method="probabilistic")
        assert said["draft_sample_method"] == word


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("draft_sample_method", "gumbel", "unknown-value"),
        ("rejection_sample_method", "synthetic", "lossy-verification"),
        ("rejection_sample_method", "fly", "lossy-verification"),
        ("fly_window_size", 4, "lossy-verification"),
        ("synthetic_acceptance_length", 2.5, "lossy-verification"),
        ("max_model_len", 10**6, "context-too-long"),
        ("enable_adaptive_verification", True, "unknown-key"),
    ],
)
def test_what_a_draft_may_not_be_told(catalog: Catalog, option: str, value: object, code: str) -> None:
    given: Any = {option: value}
    with refuses(code):
        speculation(catalog, "eagle3", HEAD, **given)


def test_a_pipeline_is_refused_beside_any_method(catalog: Catalog) -> None:
    catalog.profiles[PROFILE]["serve"]["pipeline_parallel_size"] = 1
    assert speculation(catalog, "eagle3", HEAD)
    catalog.profiles[PROFILE]["serve"]["pipeline_parallel_size"] = 2
    with refuses("method-needs-option", match="1 with speculation"):
        speculation(catalog, "eagle3", HEAD)
    with refuses("method-needs-option", match="serve.pipeline_parallel_size"):
        speculation(catalog, "mtp", None)
