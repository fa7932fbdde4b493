"""TensorRT-LLM's YAML: the files of the article pass, and every way we know to spoil them is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from drafthouse.core.errors import Problem
from drafthouse.core.yaml_documents import yaml_of
from drafthouse.engines.trtllm_config import check_config, warnings_of
from drafthouse.engines.trtllm_speculation import DECODING_TYPES, SPECULATION

Data = dict[str, Any]

# The two files of the article (gpt-oss-120b on an RTX PRO 6000), as it has them.
LOW_LATENCY = """\
enable_attention_dp: false
cuda_graph_config:
    max_batch_size: 1
    enable_padding: true
moe_config:
    backend: CUTLASS
"""
SPECULATIVE = """\
enable_attention_dp: false
disable_overlap_scheduler: true
enable_autotuner: false
cuda_graph_config:
    max_batch_size: 1
    enable_padding: true
moe_config:
    backend: CUTLASS
speculative_config:
    decoding_type: Eagle
    max_draft_len: 3
    speculative_model_dir: /models/original/gpt-oss-120b-Eagle3-v2/
kv_cache_config:
    enable_block_reuse: false
"""
VERSIONS = ("1.2.0rc1", "1.2.0rc6.post3", "1.2.0", "1.2.1", "1.3.0rc14", "1.3.0rc24", "1.3.0rc29")


def problems_of(text: str, version: str, where: str = "f") -> list[Problem]:
    return check_config(yaml_of(text), version, where)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text", [LOW_LATENCY, SPECULATIVE])
def test_the_files_of_the_article_are_valid(text: str, version: str) -> None:
    assert not problems_of(text, version)


# --- mutations of the article's file: text -> text, and what is said -------------------------------


def swap(before: str, after: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        assert before in text
        return text.replace(before, after)

    return edit


MUTATIONS: dict[str, tuple[Callable[[str], str], str, str, str, str]] = {
    "a misspelt key": (swap("enable_autotuner", "enable_autotunner"), "enable_autotunner",
        "the unknown key 'enable_autotunner'", "keys of TensorRT-LLM 1.2.1", "write 'enable_autotuner'"),
    "a misspelt key below another": (swap("enable_padding", "enable_pading"), "cuda_graph_config.enable_pading",
        "the unknown key 'enable_pading'", "one of: batch_sizes, enable_padding, max_batch_size",
        "write 'enable_padding'"),
    "a wrong type": (swap("max_draft_len: 3", "max_draft_len: three"), "speculative_config.max_draft_len", "'three'",
        "a whole number", "correct"),
    "a number as text": (swap("max_batch_size: 1", "max_batch_size: '1'"), "cuda_graph_config.max_batch_size", "'1'",
        "a whole number", "correct"),
    "true as text": (swap("enable_attention_dp: false", "enable_attention_dp: 'false'"), "enable_attention_dp",
        "'false'", "true or false", "correct"),
    "an unknown decoding type": (swap("decoding_type: Eagle", "decoding_type: eagle"),
        "speculative_config.decoding_type", "'eagle'", "one of: AUTO, DraftTarget, Eagle, MTP, NGram, SaveState",
        "write 'Eagle'"),
    "no decoding type": (swap("    decoding_type: Eagle\n", ""), "speculative_config.decoding_type", "nothing", "Eagle",
        "add 'decoding_type:'"),
    "a key of another decoding type": (swap("max_draft_len: 3", "max_draft_len: 3\n    max_matching_ngram_size: 2"),
        "speculative_config.max_matching_ngram_size",
        "the key 'max_matching_ngram_size', which belongs to decoding_type NGram", "a key of Eagle: ",
        "remove it, or change the decoding_type"),
    "a draft of nothing": (swap("max_draft_len: 3", "max_draft_len: 0"), "speculative_config.max_draft_len", "0",
        "1 or more", "correct"),
    "no draft length": (swap("    max_draft_len: 3\n", ""), "speculative_config.max_draft_len", "nothing",
        "the key 'max_draft_len': Eagle has no default", "add 'max_draft_len:'"),
    "no draft model": (swap("    speculative_model_dir: /models/original/gpt-oss-120b-Eagle3-v2/\n", ""),
        "speculative_config.speculative_model_dir", "nothing", "the draft that Eagle runs",
        "add 'speculative_model_dir:'"),
    "the draft model twice": (swap("max_draft_len: 3", "max_draft_len: 3\n    speculative_model: /models/x"),
        "speculative_config", "speculative_model and speculative_model_dir", "two names of one key", "keep one"),
    "an unknown MoE backend": (swap("backend: CUTLASS", "backend: CUTLAS"), "moe_config.backend", "'CUTLAS'",
        "one of: CUTLASS, CUTEDSL", "write 'CUTLASS'"),
    "a MoE backend of a later version": (swap("backend: CUTLASS", "backend: AUTO"), "moe_config.backend", "'AUTO'",
        "TensorRT-LLM 1.3.0rc1 or later; this is 1.2.1", "use one of: CUTEDSL, CUTLASS"),
    "a nested key at the top": (swap("kv_cache_config:\n    enable_block_reuse", "enable_block_reuse"),
        "enable_block_reuse", "the unknown key 'enable_block_reuse'", "that key below 'kv_cache_config'",
        "move it below 'kv_cache_config'"),
    "a key of the top below another": (swap("enable_block_reuse: false", "disable_overlap_scheduler: true"),
        "kv_cache_config.disable_overlap_scheduler", "the unknown key 'disable_overlap_scheduler'",
        "that key at the top level", "move it to the top level"),
    "both CUDA graph sizes": (swap("max_batch_size: 1", "max_batch_size: 1\n    batch_sizes: [1]"), "cuda_graph_config",
        "max_batch_size and batch_sizes", "one of them", "keep one"),
    "a list of wrong sizes": (swap("max_batch_size: 1", "batch_sizes: [1, 0]"), "cuda_graph_config.batch_sizes[1]", "0",
        "1 or more", "correct"),
    "no mapping": (lambda text: "- " + text.splitlines()[0], "", "[", "keys with values", "a YAML mapping"),
    "nothing at all": (lambda text: "", "", "nothing", "keys with values", "a YAML mapping"),
    "a block that is no mapping": (swap("moe_config:\n    backend: CUTLASS", "moe_config: CUTLASS"), "moe_config",
        "'CUTLASS'", "keys with values", "a YAML mapping"),
    "an empty block": (swap("    enable_block_reuse: false\n", ""), "kv_cache_config", "nothing", "a value",
        "or remove the key"),
    "a fraction above 1": (swap("enable_block_reuse: false", "free_gpu_memory_fraction: 95"),
        "kv_cache_config.free_gpu_memory_fraction", "95", "1 or less", "correct"),
    "the old name of the sampler": (swap("enable_autotuner: false", "use_torch_sampler: true"), "use_torch_sampler",
        "the unknown key 'use_torch_sampler'", "", "write 'sampler_type: TorchSampler'"),
    "an unknown sampler": (swap("enable_autotuner: false", "sampler_type: torch"), "sampler_type", "'torch'",
        "one of: TRTLLMSampler, TorchSampler, auto", ""),
    "a key of another engine": (swap("enable_autotuner: false", "gpu_memory_utilization: 0.9"),
        "gpu_memory_utilization", "the unknown key", "one of the ", ""),
    "a type that needs Python": (swap("decoding_type: Eagle", "decoding_type: User_Provided"),
        "speculative_config.decoding_type", "'User_Provided': its drafter is a Python object", "one of: ",
        "choose another type"),
    "a type of TensorRT engines": (swap("decoding_type: Eagle", "decoding_type: Medusa"),
        "speculative_config.decoding_type", "'Medusa': the PyTorch backend does not have it", "one of: ",
        "choose another type"),
    "a dynamic tree without its width": (swap("max_draft_len: 3", "max_draft_len: 3\n    use_dynamic_tree: true"),
        "speculative_config.dynamic_tree_max_topK", "nothing", "the number of nodes", "add 'dynamic_tree_max_topK:'"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_spoilt_file_is_refused_with_path_found_needed_and_do(name: str) -> None:
    edit, path, found, needed, do = MUTATIONS[name]
    text = edit(SPECULATIVE)
    assert text != SPECULATIVE
    (problem,) = problems_of(text, "1.2.1", "low_latency_speculative.yaml")
    assert problem.where == ("low_latency_speculative.yaml" + (f": {path}" if path else ""))
    assert found in problem.found
    assert needed in problem.needed
    assert do in problem.do
    assert problem.found and problem.needed and problem.do


def test_everything_wrong_is_said_at_once() -> None:
    text = SPECULATIVE.replace("CUTLASS", "FAST").replace("max_draft_len: 3", "max_draft_len: 0") + "port: 8000\n"
    assert [problem.where for problem in problems_of(text, "1.2.1", "x.yaml")] == [
        "x.yaml: moe_config.backend",
        "x.yaml: speculative_config.max_draft_len",
        "x.yaml: port",
    ]


@pytest.mark.parametrize(
    "text",
    ["a: 2026-99-99", "1: 2", "null: 1", "speculative_config: [1]", "speculative_config: {decoding_type: [Eagle]}",
     "speculative_config: {decoding_type: null}", "cuda_graph_config: {batch_sizes: 3, max_batch_size: x}",
     "speculative_config: {1: 2, draft_len_schedule: {x: y}, decoding_type: NGram}"],
)  # fmt: skip
def test_no_text_ends_in_a_traceback(text: str) -> None:
    for version in VERSIONS:
        assert problems_of(text, version)


# --- versions --------------------------------------------------------------------------------------


def speculation(version: str, **keys: Any) -> list[tuple[str, str, str]]:
    problems = check_config({"speculative_config": keys}, version, "f")
    return [(p.where.removeprefix("f: speculative_config."), p.needed, p.do) for p in problems]


def test_the_draft_models_key_by_version() -> None:
    draft: Data = {"decoding_type": "Eagle", "max_draft_len": 3}
    assert speculation("1.2.1", **draft, speculative_model="x") == []
    assert speculation("1.3.0rc14", **draft, speculative_model="x") == []
    assert speculation("1.2.0rc1", **draft, speculative_model_dir="x") == []
    assert speculation("1.2.0rc1", **draft, speculative_model="x") == [
        (
            "speculative_model",
            "TensorRT-LLM 1.2.0 or later; this is 1.2.0rc1",
            "write 'speculative_model_dir', as it is called there",
        )
    ]
    draft["decoding_type"] = "Eagle3"
    assert speculation("1.4.0rc1", **draft, speculative_model="x") == []
    assert speculation("1.4.0rc1", **draft, speculative_model_dir="x") == [
        ("speculative_model_dir", "TensorRT-LLM 1.3 or earlier; this is 1.4.0rc1", "write 'speculative_model'")
    ]


@pytest.mark.parametrize(
    ("version", "reads", "not_read"),
    [
        ("1.2.0rc1", "num_nextn_predict_layers", "max_draft_len"),
        ("1.2.1", "num_nextn_predict_layers", "max_draft_len"),
        ("1.3.0rc14", "num_nextn_predict_layers", "max_draft_len"),
        ("1.3.0rc19", "max_draft_len", "num_nextn_predict_layers"),
        ("1.4.0rc1", "max_draft_len", "num_nextn_predict_layers"),
    ],
)
def test_how_many_tokens_mtp_drafts_has_another_name_by_version(version: str, reads: str, not_read: str) -> None:
    assert speculation(version, decoding_type="MTP", **{reads: 3}) == []
    ((where, _, do),) = speculation(version, decoding_type="MTP", **{not_read: 3})
    assert (where, do) == (not_read, f"write '{reads}'")


def test_what_1_4_has_of_its_own() -> None:
    draft: Data = {"decoding_type": "MTP", "max_draft_len": 3, "moe_backend": "CUTEDSL_FC12"}
    assert speculation("1.4.0rc1", **draft) == []
    assert [where for where, _, _ in speculation("1.3.0rc27", **draft)] == ["moe_backend"]
    tree: Data = {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "x", "eagle_choices": [[0]]}
    assert speculation("1.3.0rc27", **tree) == []
    assert [where for where, _, _ in speculation("1.4.0rc1", **tree)] == ["eagle_choices"]
    assert check_config({"moe_config": {"backend": "WIDEEP"}}, "1.3.0rc24") == []
    assert [one.found for one in check_config({"moe_config": {"backend": "WIDEEP"}}, "1.4.0rc1")] == ["'WIDEEP'"]


@pytest.mark.parametrize(
    ("name", "version", "do"),
    [
        ("DraftTarget", "1.2.1", None),
        ("DraftTarget", "1.3.0rc14", "write 'Draft_Target'"),
        ("Draft_Target", "1.2.1", "write 'DraftTarget'"),
        ("Draft_Target", "1.3.0rc14", None),
        ("Eagle3", "1.2.1", "write 'Eagle'"),
        ("Eagle3", "1.3.0rc14", None),
        ("Eagle", "1.3.0rc29", None),
        ("PARD", "1.3.0rc14", None),
        ("DFlash", "1.3.0rc24", None),
        ("DFlash", "1.3.0rc14", "use one of: AUTO, Draft_Target, Eagle, Eagle3, MTP, NGram, PARD, SaveState"),
        ("SA", "1.3.0rc29", None),
        ("DSpark", "1.3.0rc27", None),
    ],
)
def test_decoding_types_by_version(name: str, version: str, do: str | None) -> None:
    found = speculation(version, decoding_type=name, max_draft_len=3, speculative_model_dir="x")
    assert [one[2] for one in found] == ([do] if do else [])


@pytest.mark.parametrize("name", [name for name, kind in DECODING_TYPES.items() if not kind.refused])
def test_every_decoding_type_takes_its_own_keys_and_refuses_the_others(name: str) -> None:
    kind = DECODING_TYPES[name]
    version = kind.since or "1.2.1"
    base: Data = {"decoding_type": name, "max_draft_len": 3, "speculative_model_dir": "x", "output_directory": "y"}
    base = {key: value for key, value in base.items() if key in kind.needs or key == "decoding_type"}
    assert speculation(version, **base) == []
    for missing in kind.needs:
        rest = {key: value for key, value in base.items() if key != missing}
        assert [one[0] for one in speculation(version, **rest)] == [missing]
    for other in DECODING_TYPES.values():
        for key in set(other.keys) - set(kind.keys) - set(SPECULATION):
            assert key in [one[0] for one in speculation(version, **base, **{key: 1})]


@pytest.mark.parametrize(
    ("version", "schedule", "paths"),
    [
        ("1.2.1", {1: 3, 4: 2, 8: 0}, []),
        ("1.2.1", {4: 3, 8: 1}, ["draft_len_schedule"]),  # 1 is missing
        ("1.3.0rc24", {4: 3, 8: 1}, []),  # there a key is the last batch size, not the first
        ("1.2.1", {1: 2, 4: 1}, ["draft_len_schedule.1"]),  # not the full length for one request
        ("1.2.1", {1: 3, 4: 5}, ["draft_len_schedule.4"]),  # longer than max_draft_len
        ("1.2.1", {1: 3, 0: 3}, ["draft_len_schedule.0"]),
        ("1.2.1", {"1": 3}, ["draft_len_schedule.1"]),
        ("1.2.1", {1: -1}, ["draft_len_schedule.1"]),
        ("1.2.1", {}, ["draft_len_schedule"]),
        ("1.2.1", [3, 2], ["draft_len_schedule"]),
        ("1.2.0rc1", {1: 3}, ["draft_len_schedule"]),  # the version has no such key
    ],
)  # fmt: skip
def test_the_schedule_of_draft_lengths(version: str, schedule: Any, paths: list[str]) -> None:
    found = speculation(version, decoding_type="NGram", max_draft_len=3, draft_len_schedule=schedule)
    assert [one[0] for one in found] == paths


def test_a_schedule_and_a_largest_batch_are_one_too_many_in_1_3() -> None:
    keys: Data = {
        "decoding_type": "NGram",
        "max_draft_len": 3,
        "max_concurrency": 8,
        "draft_len_schedule": {1: 3},
    }
    assert speculation("1.2.1", **keys) == []
    assert len(speculation("1.3.0rc24", **keys)) == 1


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0rc0", "1.5.0rc0", "2.0", "latest", "", "nightly"])
def test_a_version_without_facts_is_refused(version: str) -> None:
    (problem,) = check_config(yaml.safe_load(LOW_LATENCY), version)
    assert problem.found == f"TensorRT-LLM {version}"
    assert "1.2.0rc1 to 1.4" in problem.needed


# --- hardware and warnings -------------------------------------------------------------------------


def test_what_the_engine_does_on_its_own_is_a_warning() -> None:
    ngram: Data = {"speculative_config": {"decoding_type": "NGram", "max_draft_len": 3}}
    (warning,) = warnings_of(ngram)
    assert "disable_overlap_scheduler: true" in warning
    assert warnings_of({**ngram, "disable_overlap_scheduler": True}) == []
    (greedy,) = warnings_of(yaml.safe_load(SPECULATIVE))
    assert "samples greedily" in greedy
    assert warnings_of(yaml.safe_load(LOW_LATENCY)) == []
