"""Commands of today's recipes, whose draft is a head: inside the target, of its own, or one that drafts in parallel."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from drafthouse.translate.flags import load_flags
from drafthouse.translate.translator import Translation, translate

TARGET = "Qwen/Qwen3-32B"
HOUSE = copy.deepcopy(load_catalog(ROOT))
HOUSE.models["qwen3-32b"]["builtin_head"] = {"kind": "mtp", "layers": 1, "tensors": ["mtp.*"]}
FLAGS = load_flags(ROOT)


def translated(speculation: dict[str, Any] | None, *words: str) -> Translation:
    given = ["--speculative-config", f"'{json.dumps(speculation)}'"] if speculation else []
    (found,) = translate(" ".join(["vllm serve", TARGET, *words, *given]), HOUSE, FLAGS, lambda name: None)[0]
    return found


def command(found: Translation) -> Any:
    return next(json.loads(flag[1]) for flag in found.command if flag[0] == "--speculative-config")


@pytest.mark.parametrize("method", ["mtp", "qwen3_next_mtp", "deepseek_mtp", "qwen3_5_mtp"])
def test_every_word_for_the_head_inside(method: str) -> None:
    found = translated({"method": method, "num_speculative_tokens": 3})
    assert found.profile["speculation"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert command(found) == {"method": "mtp", "num_speculative_tokens": 3}
    renamed = [(change.became, change.version) for change in found.changes if change.what == f"method {method}"]
    assert renamed == ([] if method == "mtp" else [("method: mtp", "0.11.0")])


def test_a_command_that_names_the_target_again() -> None:
    found = translated({"method": "ernie_mtp", "model": TARGET, "num_speculative_tokens": 1})
    assert found.profile["speculation"] == {"method": "mtp", "num_speculative_tokens": 1}
    assert command(found) == {"method": "mtp", "num_speculative_tokens": 1}


def test_options_of_the_draft_are_the_profiles_own() -> None:
    options = {"moe_backend": "triton", "attention_backend": "FLASH_ATTN", "draft_sample_method": "probabilistic"}
    found = translated({"method": "mtp", "num_speculative_tokens": 3, **options})
    assert found.profile["speculation"]["options"] == options
    assert found.left_out == []


def test_a_command_without_speculation_gets_the_targets_own_head() -> None:
    catalog = copy.deepcopy(HOUSE)
    catalog.profiles.clear()
    (found,) = translate(f"vllm serve {TARGET}", catalog, FLAGS, lambda name: None)[0]
    assert found.profile["speculation"] == {"method": "mtp", "num_speculative_tokens": 3}


def test_a_head_that_drafts_in_parallel() -> None:
    draft = "RedHatAI/Qwen3-32B-speculator.peagle"
    given = {"method": "eagle3", "model": draft, "num_speculative_tokens": 7, "parallel_drafting": True}
    found = translated(given)
    assert found.profile["speculation"] == {"method": "peagle", "draft": draft, "num_speculative_tokens": 7}
    assert command(found) == given
    assert found.left_out == []
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in found.environment


@pytest.mark.parametrize(
    ("draft", "method"),
    [
        ("z-lab/Qwen3-32B-DFlash", "dflash"),
        ("RedHatAI/Qwen3-32B-speculator.dspark", "dspark"),
        ("google/gemma-4-12B-it-assistant", "mtp"),
    ],
)
def test_the_method_of_a_head_that_a_command_only_names(draft: str, method: str) -> None:
    found = translated({"model": draft, "num_speculative_tokens": 4})
    assert found.profile["speculation"] == {"method": method, "draft": draft, "num_speculative_tokens": 4}


def test_a_pipeline_is_kept_for_the_resolver_to_refuse() -> None:
    found = translated({"method": "mtp", "num_speculative_tokens": 3}, "-pp", "2")
    assert found.profile["serve"]["pipeline_parallel_size"] == 2
