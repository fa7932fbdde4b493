"""Break a real profile or the real catalogue in each of the ways that people do, and see the very message."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

Change = Callable[[Catalog], None]


def kinds() -> dict[str, list[str]]:
    return {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}


def problems_after(change: Change, profile: str) -> list[Problem]:
    catalog = copy.deepcopy(load_catalog(ROOT))
    change(catalog)
    with pytest.raises(DrafthouseError) as caught:
        resolve(catalog, profile, site_of_inventory("workstation"), kinds())
    return caught.value.problems


def put(table: str, path: str, value: Any) -> Change:
    """A change that writes ``value`` at ``path`` of a table of the catalog; None removes the key."""

    def change(catalog: Catalog) -> None:
        place = getattr(catalog, table)
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
SUFFIX = "rtx6000-gptoss-suffix"

CASES = [
    # id, profile, the key of the profile (or table: key), what is written there; where, found, needed, do
    ("unknown key", QWEN, "enginee", "vllm",
     "profiles/rtx6000-qwen-eagle3.yml: enginee", "unknown key 'enginee'", "engine", "write 'engine'"),
    ("unknown nested key", QWEN, "speculation/num_speculative_token", 3,
     "speculation.num_speculative_token", "unknown key", "num_speculative_tokens", "write 'num_speculative_tokens'"),
    ("unknown option of the engine", QWEN, "serve/max_model_length", 4096,
     "serve.max_model_length", "unknown key", "max_model_len", "write 'max_model_len'"),
    ("a word the option does not know", QWEN, "serve/reasoning_parser", "qwen_3",
     "serve.reasoning_parser", "'qwen_3'", "qwen3", "write 'qwen3'"),
    ("a number that is none", QWEN, "serve/max_model_len", "40q",
     "serve.max_model_len", "'40q'", "tokens, as 8192 or 32k, or auto", "correct it"),
    ("unknown hardware", QWEN, "hardware", "rtx600",
     "hardware", "'rtx600'", "rtx6000", "write 'rtx6000'"),
    ("unknown engine", QWEN, "engine", "vlm",
     "engine", "'vlm'", "vllm", "write 'vllm'"),
    ("unknown target", QWEN, "target", "qwen3-32",
     "target", "'qwen3-32'", "a catalogue entry", "write 'qwen3-32b'"),
    ("a version that does not exist", QWEN, "engine_version", "0.32.1",
     "engine_version", "vLLM 0.32.1, which does not exist", "0.33.0", "write '0.32.0'"),
    ("a method the engine cannot do", QWEN, "speculation/method", "eagle-3",
     "speculation.method", "'eagle-3', which vLLM does not support", "eagle3", "write 'eagle3'"),
    ("another engine's method", NGRAM, "speculation/method", "eagle3",
     "speculation.method", "llama.cpp server does not support", "ngram-simple", "write 'draft-eagle3'"),
    ("a method the version lacks", QWEN, "engines: vllm/methods/eagle3/since", "0.40.0",
     "speculation.method", "vLLM 0.32.0, which does not have 'eagle3'", "since 0.40.0", "choose another"),
    ("no draft", QWEN, "speculation/draft", None,
     "speculation.draft", "nothing", "a head for 'eagle3'", "qwen3-32b-eagle3"),
    ("a draft that is not wanted", NGRAM, "speculation/draft", "smollm2-135m-q4",
     "speculation.draft", "'smollm2-135m-q4'", "no draft", "remove the key"),
    ("a head where a model drafts", LLAMA, "speculation/draft", "qwen3-32b-eagle3",
     "speculation.draft", "which is a head", "a model", "choose another draft"),
    ("a draft with another vocabulary", LLAMA, "models: llama32-3b-fp8/tokenizer", "llama2",
     "speculation.draft", "the vocabulary of llama2", "the target's vocabulary (llama3)", "the target's own family"),
    ("a draft with a vocabulary of another size", LLAMA, "models: llama32-3b-fp8/vocab", 128000,
     "speculation.draft", "128000 entries", "128256 entries, at most 0 apart", "the target's own family"),
    ("llama.cpp's own rule for the size", DRAFT, "models: smollm2-135m-q4/vocab", 49152 - 129,
     "speculation.draft", "49023 entries", "at most 128 apart", "the target's own family"),
    ("a head of another target", QWEN, "models: qwen3-32b-eagle3/head_for", "qwen3-14b",
     "speculation.draft", "a head made for 'qwen3-14b'", "a head made for 'qwen3-32b'", "no head for this target"),
    ("a head for another method", QWEN, "models: qwen3-32b-eagle3/head_method", "mtp",
     "speculation.method", "a head for 'mtp'", "'mtp'", "set method: mtp"),
    ("a draft as large as its target", LLAMA, "models: llama32-3b-fp8/parameters", 70_550_000_000,
     "speculation.draft", "100% of the target's parameters", "smaller than its target", "choose a smaller draft"),
    ("a pair that does not fit", LLAMA, "hardware", "h100",
     "target", "speculative arm: weights 72.7 + draft 3.6", "at most 75.4 GB (90% of 83.8 GB", "larger hardware"),
    ("a context that does not fit", LLAMA, "serve/max_model_len", 16384,
     "target", "KV cache 7.2", "at most 84.6 GB", "shorten serve.max_model_len to 10844 or less"),
    ("a context beyond the model's", QWEN, "serve/max_model_len", 65536,
     "serve.max_model_len", "65536 tokens", "40960 or fewer", "choose a shorter context"),
    ("more devices than there are", QWEN, "serve/tensor_parallel_size", 2,
     "serve.tensor_parallel_size", "2 devices", "1: all that 'rtx6000' has", "lower it"),
    ("K of zero", QWEN, "speculation/num_speculative_tokens", 0,
     "speculation.num_speculative_tokens", "0", "1 or more", "correct the value"),
    ("weights the engine cannot read", QWEN, "engine", "llamacpp",
     "target", "weights in the format safetensors", "gguf", "choose another model"),
    ("a version that is none", QWEN, "engine_version", "latest",
     "engine_version", "vLLM latest, which does not exist", "0.8.5 to 0.33.0", "use one of: 0.8.5"),
    ("medusa after its end", MEDUSA, "engine_version", "0.33.0",
     "speculation.method", "vLLM 0.33.0, which does not have 'medusa' (removed in 0.33.0)",
     "since 0.9.0, until 0.32.0): 0.9.0 to 0.32.0", "set engine_version: 0.32.0"),
    ("an MLP speculator on the V1 engine", MLP, "engine_version", "0.10.0",
     "speculation.method", "vLLM 0.10.0, which does not have 'mlp_speculator' (MLP speculators ran on the V0 engine",
     "until 0.9.2): 0.8.5 to 0.9.2", "set engine_version: 0.9.2"),
    ("a draft model in the years without", LLAMA, "engine_version", "0.14.1",
     "speculation.method", "vLLM 0.14.1, which does not have 'draft_model' (the V1 engine refused",
     "not 0.10.0 to 0.14.1): 0.8.5 to 0.9.2, 0.15.0 to 0.33.0", "set engine_version: 0.33.0"),
    ("suffix decoding before it was there", SUFFIX, "engine_version", "0.11.0",
     "speculation.method", "which does not have 'suffix'", "since 0.11.1): 0.11.1 to 0.33.0", "set engine_version"),
    ("a head for a model that this Eagle does not take", GPTOSS, "engine_version", "0.10.2",
     "speculation.draft", "does not have nvidia/gpt-oss-120b-Eagle3-v3", "since 0.11.0", "engine_version: 0.33.0"),
    ("a parser that the version lacks", GPTOSS, "engine_version", "0.10.1",
     "serve.tool_call_parser", "does not have 'openai'", "since 0.10.2", "engine_version: 0.33.0"),
    ("two methods at once", QWEN, "speculation/method", "eagle3,ngram",
     "speculation.method", "'eagle3,ngram', more than one method", "which one paid", "keep one"),
    ("a list of methods", QWEN, "speculation/method", ["eagle3", "ngram"],
     "speculation.method", "['eagle3', 'ngram']", "text", "correct the value"),
    ("K beyond the head's limit", GPTOSS, "speculation/draft", "gpt-oss-120b-eagle3-throughput",
     "speculation.num_speculative_tokens", "3", "1 or fewer: 'gpt-oss-120b-eagle3-throughput'", "set it to 1"),
    ("K that leaves heads out", MEDUSA, "speculation/num_speculative_tokens", 3,
     "speculation.num_speculative_tokens", "3", "6: 'medusa' drafts a token with every head", "set it to 6"),
    ("TP that does not divide the heads", A100, "serve/tensor_parallel_size", 3,
     "serve.tensor_parallel_size", "3 devices for 64 attention heads", "divides them", "1, 2, 4, 8, 16"),
    ("a draft on two of four cards", A100, "speculation/options", {"draft_tensor_parallel_size": 2},
     "speculation.options.draft_tensor_parallel_size", "2", "1, or the target's own 4", "correct it"),
    ("a schedule that begins late", QWEN, "speculation/options", {"num_speculative_tokens_per_batch_size": [[2, 4, 3]]},
     "num_speculative_tokens_per_batch_size[0]", "[2, 4, 3]", "1 as the first batch size", "from 1 upwards"),
    ("a schedule beyond K", QWEN, "speculation/options", {"num_speculative_tokens_per_batch_size": [[1, 4, 9]]},
     "num_speculative_tokens_per_batch_size[0]", "K=9", "0 to 3 (num_speculative_tokens)", "correct K"),
    ("a schedule that overlaps",
     QWEN, "speculation/options/num_speculative_tokens_per_batch_size", [[1, 8, 3], [8, 9, 0]],
     "num_speculative_tokens_per_batch_size[1]", "[8, 9, 0]", "above 8", "make the rows consecutive"),
    ("a vLLM that the plugin does not patch", ARCTIC, "engine_version", "0.32.0",
     "engine_version", "vLLM with ArcticInference 0.32.0", "0.3.0 with 0.26.0, 0.2.0 with 0.18.0", "write"),
    ("a plugin for another vLLM", ARCTIC, "plugin_version", "0.2.0",
     "plugin_version", "arctic-inference 0.2.0 with vLLM with ArcticInference 0.26.0",
     "0.2.0 with 0.18.0", "set plugin_version: 0.3.0"),
    ("a plugin for an engine that has none", QWEN, "plugin_version", "0.2.0",
     "plugin_version", "0.2.0", "vLLM has no plugin", "remove the key"),
    ("kernels that this GPU cannot run", TRTLLM, "serve/moe_backend", "TRTLLM",
     "serve.moe_backend", "TRTLLM on NVIDIA RTX PRO 6000", "CUTLASS", "choose another"),
    ("an option that the method needs otherwise", TRTLLM, "serve/disable_overlap_scheduler", False,
     "serve.disable_overlap_scheduler", "False", "True: eagle3 needs it", "remove the key"),
    ("nightly builds where there are none", TRTLLM, "channel", "nightly",
     "channel", "nightly, which TensorRT-LLM does not have here", "nightly builds", "remove the key"),
    ("a version and nightly builds", MEDUSA, "channel", "nightly",
     "engine_version", "0.32.0 and channel: nightly", "one of the two", "remove one"),
    ("a runtime without an image", ARCTIC, "runtimes", ["docker"],
     "runtimes[0]", "docker, for vLLM with ArcticInference 0.26.0 on gpu", "process", "remove it"),
    ("a llama.cpp that does not exist", NGRAM, "engine_version", "2026.1.1",
     "engine_version", "llama.cpp server 2026.1.1, which does not exist", "2026.4.8929 to", "write '2026"),
    ("unknown suite", QWEN, "experiment/suites", ["mixd"],
     "experiment.suites[0]", "no suite 'mixd'", "mixed", "write 'mixed'"),
    ("unknown kind of work", QWEN, "experiment/kinds", ["cde"],
     "experiment.kinds[0]", "'cde', which no suite of this profile has", "code", "write 'code'"),
    ("too few rounds for the control", QWEN, "experiment/rounds", 1,
     "experiment.rounds", "1", "2 or more", "correct the value"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "place", "value", "where", "found", "needed", "do"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_the_very_message(profile: str, place: str, value: Any, where: str, found: str, needed: str, do: str) -> None:
    table, _, path = place.rpartition(": ")
    change = put(table, path, value) if table else put("profiles", f"{profile}/{path}", value)
    problems = problems_after(change, profile)
    matching = [problem for problem in problems if problem.where.endswith(where)]
    assert matching, [problem.lines() for problem in problems]
    problem = matching[0]
    assert problem.where.startswith(f"profiles/{profile}.yml: ")
    assert found in problem.found
    assert needed in problem.needed
    assert do in problem.do


def test_all_the_problems_come_at_once() -> None:
    def change(catalog: Catalog) -> None:
        catalog.profiles[QWEN]["serve"] = {"max_model_length": 1, "reasoning_parser": "x", "max_model_len": 50000}
        catalog.profiles[QWEN]["engine_version"] = "9.9.9"
        catalog.profiles[QWEN]["speculation"]["options"] = {"draft_tp": 1}
        catalog.profiles[QWEN]["experiment"]["suites"] = ["none"]
        catalog.models["qwen3-32b-eagle3"]["head_for"] = "qwen3-14b"

    places = {problem.where.split(": ")[1] for problem in problems_after(change, QWEN)}
    assert places == {
        "serve.max_model_length", "serve.reasoning_parser", "serve.max_model_len", "engine_version",
        "speculation.options.draft_tp", "speculation.draft",
        "experiment.suites[0]", "experiment.once[0]", "experiment.once[1]",
    }  # fmt: skip


def test_an_unknown_profile_names_the_nearest() -> None:
    (problem,) = problems_after(lambda catalog: None, "rtx6000-qwen-eagle")
    assert problem.found == "no profile 'rtx6000-qwen-eagle'"
    assert "write 'rtx6000-qwen-eagle3'" in problem.do


def test_a_draft_of_a_third_is_a_warning_only() -> None:
    catalog = copy.deepcopy(load_catalog(ROOT))
    catalog.models["llama32-3b-fp8"]["parameters"] = 30_000_000_000
    resolved = resolve(catalog, LLAMA, site_of_inventory("workstation"), kinds())
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
    with pytest.raises(DrafthouseError) as caught:
        resolve(load_catalog(ROOT), QWEN, site, kinds())
    (problem,) = caught.value.problems
    assert found in problem.found
    assert needed in problem.needed
