"""Break a real profile or the real catalogue in each of the ways that people do, and see the very message."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.catalog import House, load_house
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

Change = Callable[[House], None]


def problems_after(change: Change, profile: str, **overrides: Any) -> list[Problem]:
    house = copy.deepcopy(load_house(ROOT))
    change(house)
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    with pytest.raises(DrafthouseError) as caught:
        resolve(house, profile, site_for(house, profile), kinds, overrides)
    return caught.value.problems


def site_for(house: House, profile: str) -> Any:
    """Return the workstation with a runtime that the profile has."""
    return site_of_inventory("workstation")


def put(table: str, path: str, value: Any) -> Change:
    """Return a change that writes ``value`` at the dotted ``path``; None removes the key."""

    def change(house: House) -> None:
        place = getattr(house, table)
        *parents, last = path.split("/")
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


QWEN, LLAMA, NGRAM = "rtx6000-qwen-eagle3", "h100-llama33-draft3b", "cpu-smollm2-ngram"
DRAFT = "cpu-smollm2-draft"
GPTOSS, ARCTIC, TRTLLM = "rtx6000-gptoss-eagle3", "rtx6000-gptoss-arctic", "rtx6000-gptoss-trtllm-eagle3"
MLP, MEDUSA, A100 = "h100-llama33-mlp", "rtx6000-llama31-medusa", "a100x4-llama3-draft8b"
SUFFIX, LLAMACPP = "rtx6000-gptoss-suffix", "rtx4090-llama32-llamacpp-draft1b"

CASES = [
    # what is broken, profile, where, found, needed, do
    pytest.param(
        put("profiles", f"{QWEN}/enginee", "vllm"), QWEN,
        "profiles/rtx6000-qwen-eagle3.yml: enginee", "unknown key 'enginee'", "engine", "write 'engine'",
        id="unknown key",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/num_speculative_token", 3), QWEN,
        "speculation.num_speculative_token", "unknown key", "num_speculative_tokens", "write 'num_speculative_tokens'",
        id="unknown nested key",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/serve/max_model_length", 4096), QWEN,
        "serve.max_model_length", "unknown key", "max_model_len", "write 'max_model_len'",
        id="unknown option of the engine",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/serve/reasoning_parser", "qwen_3"), QWEN,
        "serve.reasoning_parser", "'qwen_3'", "qwen3", "write 'qwen3'",
        id="a word the option does not know",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/serve/max_model_len", "40q"), QWEN,
        "serve.max_model_len", "'40q'", "tokens, as 8192 or 32k, or auto", "correct it",
        id="a number that is none",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/hardware", "rtx600"), QWEN,
        "hardware", "'rtx600'", "rtx6000", "write 'rtx6000'",
        id="unknown hardware",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/engine", "vlm"), QWEN, "engine", "'vlm'", "vllm", "write 'vllm'",
        id="unknown engine",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/target", "qwen3-32"), QWEN,
        "target", "'qwen3-32'", "a catalogue entry", "write 'qwen3-32b'",
        id="unknown target",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/engine_version", "0.32.1"), QWEN,
        "engine_version", "vLLM 0.32.1, which does not exist", "0.33.0", "write '0.32.0'",
        id="a version that does not exist",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/method", "eagle-3"), QWEN,
        "speculation.method", "'eagle-3', which vLLM does not support", "eagle3", "write 'eagle3'",
        id="a method the engine cannot do",
    ),
    pytest.param(
        put("profiles", f"{NGRAM}/speculation/method", "eagle3"), NGRAM,
        "speculation.method", "llama.cpp server does not support", "ngram-simple", "write 'draft-eagle3'",
        id="another engine's method",
    ),
    pytest.param(
        put("engines", "vllm/methods/eagle3/since", "0.40.0"), QWEN,
        "speculation.method", "vLLM 0.32.0, which does not have 'eagle3'", "since 0.40.0", "choose another",
        id="a method the version lacks",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/draft", None), QWEN,
        "speculation.draft", "nothing", "a head for 'eagle3'", "qwen3-32b-eagle3",
        id="no draft",
    ),
    pytest.param(
        put("profiles", f"{NGRAM}/speculation/draft", "smollm2-135m-q4"), NGRAM,
        "speculation.draft", "'smollm2-135m-q4'", "no draft", "remove the key",
        id="a draft that is not wanted",
    ),
    pytest.param(
        put("profiles", f"{LLAMA}/speculation/draft", "qwen3-32b-eagle3"), LLAMA,
        "speculation.draft", "which is a head", "a model", "choose another draft",
        id="a head where a model drafts",
    ),
    pytest.param(
        put("models", "llama32-3b-fp8/tokenizer", "llama2"), LLAMA,
        "speculation.draft", "the vocabulary of llama2", "the target's vocabulary (llama3)", "the target's own family",
        id="a draft with another vocabulary",
    ),
    pytest.param(
        put("models", "llama32-3b-fp8/vocab", 128000), LLAMA,
        "speculation.draft", "128000 entries", "128256 entries, at most 0 apart", "the target's own family",
        id="a draft with a vocabulary of another size",
    ),
    pytest.param(
        put("models", "smollm2-135m-q4/vocab", 49152 - 129), DRAFT,
        "speculation.draft", "49023 entries", "at most 128 apart", "the target's own family",
        id="llama.cpp's own rule for the size",
    ),
    pytest.param(
        put("models", "qwen3-32b-eagle3/head_for", "qwen3-14b"), QWEN,
        "speculation.draft", "a head made for 'qwen3-14b'", "a head made for 'qwen3-32b'", "no head for this target",
        id="a head of another target",
    ),
    pytest.param(
        put("models", "qwen3-32b-eagle3/head_method", "mtp"), QWEN,
        "speculation.method", "a head for 'mtp'", "'mtp'", "set method: mtp",
        id="a head for another method",
    ),
    pytest.param(
        put("models", "llama32-3b-fp8/parameters", 70_550_000_000), LLAMA,
        "speculation.draft", "100% of the target's parameters", "smaller than its target", "choose a smaller draft",
        id="a draft as large as its target",
    ),
    pytest.param(
        put("profiles", f"{LLAMA}/hardware", "h100"), LLAMA,
        "target", "speculative arm: weights 72.7 + draft 3.6", "at most 75.4 GB (90% of 83.8 GB", "larger hardware",
        id="a pair that does not fit",
    ),
    pytest.param(
        put("profiles", f"{LLAMA}/serve/max_model_len", 16384), LLAMA,
        "target", "KV cache 7.2", "at most 84.6 GB", "shorten serve.max_model_len to 10844 or less",
        id="a context that does not fit",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/serve/max_model_len", 65536), QWEN,
        "serve.max_model_len", "65536 tokens", "40960 or fewer", "choose a shorter context",
        id="a context beyond the model's",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/serve/tensor_parallel_size", 2), QWEN,
        "serve.tensor_parallel_size", "2 devices", "1: all that 'rtx6000' has", "lower it",
        id="more devices than there are",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/num_speculative_tokens", 0), QWEN,
        "speculation.num_speculative_tokens", "0", "1 or more", "correct the value",
        id="K of zero",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/engine", "llamacpp"), QWEN,
        "target", "weights in the format safetensors", "gguf", "choose another model",
        id="weights the engine cannot read",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/engine_version", "latest"), QWEN,
        "engine_version", "vLLM latest, which does not exist", "0.8.5 to 0.33.0", "use one of: 0.8.5",
        id="a version that is none",
    ),
    pytest.param(
        put("profiles", f"{MEDUSA}/engine_version", "0.33.0"), MEDUSA,
        "speculation.method", "vLLM 0.33.0, which does not have 'medusa' (removed in 0.33.0)",
        "since 0.9.0, until 0.32.0): 0.9.0 to 0.32.0", "set engine_version: 0.32.0",
        id="medusa after its end",
    ),
    pytest.param(
        put("profiles", f"{MLP}/engine_version", "0.10.0"), MLP,
        "speculation.method", "vLLM 0.10.0, which does not have 'mlp_speculator' (MLP speculators ran on the V0 engine",
        "until 0.9.2): 0.8.5 to 0.9.2", "set engine_version: 0.9.2",
        id="an MLP speculator on the V1 engine",
    ),
    pytest.param(
        put("profiles", f"{LLAMA}/engine_version", "0.14.1"), LLAMA,
        "speculation.method", "vLLM 0.14.1, which does not have 'draft_model' (the V1 engine refused",
        "not 0.10.0 to 0.14.1): 0.8.5 to 0.9.2, 0.15.0 to 0.33.0", "set engine_version: 0.33.0",
        id="a draft model in the years without",
    ),
    pytest.param(
        put("profiles", f"{SUFFIX}/engine_version", "0.11.0"), SUFFIX,
        "speculation.method", "which does not have 'suffix'", "since 0.11.1): 0.11.1 to 0.33.0", "set engine_version",
        id="suffix decoding before it was there",
    ),
    pytest.param(
        put("profiles", f"{GPTOSS}/engine_version", "0.10.2"), GPTOSS,
        "speculation.draft", "does not have nvidia/gpt-oss-120b-Eagle3-v3", "since 0.11.0", "engine_version: 0.33.0",
        id="a head for a model that this Eagle does not take",
    ),
    pytest.param(
        put("profiles", f"{GPTOSS}/engine_version", "0.10.1"), GPTOSS,
        "serve.tool_call_parser", "does not have 'openai'", "since 0.10.2", "engine_version: 0.33.0",
        id="a parser that the version lacks",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/method", "eagle3,ngram"), QWEN,
        "speculation.method", "'eagle3,ngram', more than one method", "which one paid", "keep one",
        id="two methods at once",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/method", ["eagle3", "ngram"]), QWEN,
        "speculation.method", "['eagle3', 'ngram']", "text", "correct the value",
        id="a list of methods",
    ),
    pytest.param(
        put("profiles", f"{GPTOSS}/speculation/draft", "gpt-oss-120b-eagle3-throughput"), GPTOSS,
        "speculation.num_speculative_tokens", "3", "1 or fewer: 'gpt-oss-120b-eagle3-throughput'", "set it to 1",
        id="K beyond the head's limit",
    ),
    pytest.param(
        put("profiles", f"{MEDUSA}/speculation/num_speculative_tokens", 3), MEDUSA,
        "speculation.num_speculative_tokens", "3", "6: 'medusa' drafts a token with every head", "set it to 6",
        id="K that leaves heads out",
    ),
    pytest.param(
        put("profiles", f"{A100}/serve/tensor_parallel_size", 3), A100,
        "serve.tensor_parallel_size", "3 devices for 64 attention heads", "divides them", "1, 2, 4, 8, 16",
        id="TP that does not divide the heads",
    ),
    pytest.param(
        put("profiles", f"{A100}/speculation/options", {"draft_tensor_parallel_size": 2}), A100,
        "speculation.options.draft_tensor_parallel_size", "2", "1, or the target's own 4", "correct it",
        id="a draft on two of four cards",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/options", {"num_speculative_tokens_per_batch_size": [[2, 4, 3]]}), QWEN,
        "num_speculative_tokens_per_batch_size[0]", "[2, 4, 3]", "1 as the first batch size", "from 1 upwards",
        id="a schedule that begins late",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/options", {"num_speculative_tokens_per_batch_size": [[1, 4, 9]]}), QWEN,
        "num_speculative_tokens_per_batch_size[0]", "K=9", "0 to 3 (num_speculative_tokens)", "correct K",
        id="a schedule beyond K",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/speculation/options/num_speculative_tokens_per_batch_size", [[1, 8, 3], [8, 9, 0]]),
        QWEN,
        "num_speculative_tokens_per_batch_size[1]", "[8, 9, 0]", "above 8", "make the rows consecutive",
        id="a schedule that overlaps",
    ),
    pytest.param(
        put("profiles", f"{ARCTIC}/engine_version", "0.32.0"), ARCTIC,
        "engine_version", "vLLM with ArcticInference 0.32.0", "0.3.0 with 0.26.0, 0.2.0 with 0.18.0", "write",
        id="a vLLM that the plugin does not patch",
    ),
    pytest.param(
        put("profiles", f"{ARCTIC}/plugin_version", "0.2.0"), ARCTIC,
        "plugin_version", "arctic-inference 0.2.0 with vLLM with ArcticInference 0.26.0", "0.2.0 with 0.18.0",
        "set plugin_version: 0.3.0",
        id="a plugin for another vLLM",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/plugin_version", "0.2.0"), QWEN,
        "plugin_version", "0.2.0", "vLLM has no plugin", "remove the key",
        id="a plugin for an engine that has none",
    ),
    pytest.param(
        put("profiles", f"{TRTLLM}/serve/moe_backend", "TRTLLM"), TRTLLM,
        "serve.moe_backend", "TRTLLM on NVIDIA RTX PRO 6000", "CUTLASS", "choose another",
        id="kernels that this GPU cannot run",
    ),
    pytest.param(
        put("profiles", f"{TRTLLM}/serve/disable_overlap_scheduler", False), TRTLLM,
        "serve.disable_overlap_scheduler", "False", "True: eagle3 needs it", "remove the key",
        id="an option that the method needs otherwise",
    ),
    pytest.param(
        put("profiles", f"{TRTLLM}/channel", "nightly"), TRTLLM,
        "channel", "nightly, which TensorRT-LLM does not have here", "nightly builds", "remove the key",
        id="nightly builds where there are none",
    ),
    pytest.param(
        put("profiles", f"{MEDUSA}/channel", "nightly"), MEDUSA,
        "engine_version", "0.32.0 and channel: nightly", "one of the two", "remove one",
        id="a version and nightly builds",
    ),
    pytest.param(
        put("profiles", f"{ARCTIC}/runtimes", ["docker"]), ARCTIC,
        "runtimes[0]", "docker, for vLLM with ArcticInference 0.26.0 on gpu", "process", "remove it",
        id="a runtime without an image",
    ),
    pytest.param(
        put("profiles", f"{NGRAM}/engine_version", "2026.1.1"), NGRAM,
        "engine_version", "llama.cpp server 2026.1.1, which does not exist", "2026.4.8929 to", "write '2026",
        id="a llama.cpp that does not exist",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/experiment/suites", ["mixd"]), QWEN,
        "experiment.suites[0]", "no suite 'mixd'", "mixed", "write 'mixed'",
        id="unknown suite",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/experiment/kinds", ["cde"]), QWEN,
        "experiment.kinds[0]", "'cde', which no suite of this profile has", "code", "write 'code'",
        id="unknown kind of work",
    ),
    pytest.param(
        put("profiles", f"{QWEN}/experiment/rounds", 1), QWEN,
        "experiment.rounds", "1", "2 or more", "correct the value",
        id="too few rounds for the control",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "profile", "where", "found", "needed", "do"), CASES)
def test_the_very_message(change: Change, profile: str, where: str, found: str, needed: str, do: str) -> None:
    problems = problems_after(change, profile)
    matching = [problem for problem in problems if problem.where.endswith(where)]
    assert matching, [problem.lines() for problem in problems]
    problem = matching[0]
    assert problem.where.startswith(f"profiles/{profile}.yml: ")
    assert found in problem.found
    assert needed in problem.needed
    assert do in problem.do


def test_all_the_problems_come_at_once() -> None:
    def change(house: House) -> None:
        house.profiles[QWEN]["serve"] = {"max_model_length": 1, "reasoning_parser": "x", "max_model_len": 50000}
        house.profiles[QWEN]["engine_version"] = "9.9.9"
        house.profiles[QWEN]["speculation"]["options"] = {"draft_tp": 1}
        house.profiles[QWEN]["experiment"]["suites"] = ["none"]
        house.models["qwen3-32b-eagle3"]["head_for"] = "qwen3-14b"

    places = {problem.where.split(": ")[1] for problem in problems_after(change, QWEN)}
    assert places == {
        "serve.max_model_length", "serve.reasoning_parser", "serve.max_model_len", "engine_version",
        "speculation.options.draft_tp", "speculation.draft",
        "experiment.suites[0]", "experiment.once[0]", "experiment.once[1]",
    }  # fmt: skip


def test_an_unknown_profile_names_the_nearest() -> None:
    (problem,) = problems_after(lambda house: None, "rtx6000-qwen-eagle")
    assert problem.found == "no profile 'rtx6000-qwen-eagle'"
    assert "write 'rtx6000-qwen-eagle3'" in problem.do


def test_a_draft_of_a_third_is_a_warning_only() -> None:
    house = copy.deepcopy(load_house(ROOT))
    house.models["llama32-3b-fp8"]["parameters"] = 30_000_000_000
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    resolved = resolve(house, LLAMA, site_for(house, LLAMA), kinds)
    assert any("43% of the target's parameters" in warning for warning in resolved["warnings"])


@pytest.mark.parametrize(
    ("key", "value", "found", "needed"),
    [
        ("runtime", "podman", "'podman'", "one of: docker, process"),
        ("manage_host", "laptop", "'laptop'", "true or false"),
        ("port", 0, "0", "1 or more"),
    ],
)
def test_a_wrong_site(key: str, value: Any, found: str, needed: str) -> None:
    site = {**site_of_inventory("workstation"), key: value}
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    with pytest.raises(DrafthouseError) as caught:
        resolve(load_house(ROOT), QWEN, site, kinds)
    (problem,) = caught.value.problems
    assert found in problem.found
    assert needed in problem.needed
