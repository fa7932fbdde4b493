"""A schema of our own for TensorRT-LLM's YAML (`trtllm-serve --extra_llm_api_options`, or `--config`).

TensorRT-LLM checks the file itself, but only after it has loaded its CUDA libraries and only where there is a
GPU; a misspelt key is then found minutes after the start. So what its PyTorch backend accepts stands here,
for the versions 1.2.0rc1 to 1.3, as of 2026-11-21. It is strict in the same places (its models forbid unknown
keys) and in a few more: numbers written as text, a key written twice, and a pair of keys of which the engine
would silently take one are refused.

Sources, all of github.com/NVIDIA/TensorRT-LLM:

- `tensorrt_llm/llmapi/llm_args.py` of autumn 2025 (before PR 8194) for 1.2.0rc1: `DecodingBaseConfig.from_dict`
  names the decoding types, `TorchLlmArgs` the keys.
- The same file of 1.2.1 for what came in between: `draft_len_schedule` (PR 8194, merged 2025-11-18, after
  1.2.0rc2) and `speculative_model` (PR 10099, merged 2026-01-14; `speculative_model_dir` stays as its alias).
- The same file of early 1.3 and nvidia.github.io/TensorRT-LLM/1.3.0rc27/llm-api for 1.3. That line moves with
  every candidate: a key that is new there is accepted from 1.3.0rc1 on, although the candidate that brought it
  may be a later one, and one that a late candidate dropped is still accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from .problems import HouseError, Problem, did_you_mean, nearest
from .shape import Anything, Findings, List, Shape, Table, Value, check
from .versions import is_version, known, number
from .wording import listing

#: The day on which the sources above were read.
CHECKED = "2026-11-21"
#: The versions this schema knows.
OLDEST, NEWEST_LINE = "1.2.0rc1", (1, 3)

WHERE = "the YAML of trtllm-serve"

# Version boundaries. ".99" stands for the last of a line, and is not shown to people.
_SCHEDULE = "1.2.0rc3"
_STABLE = "1.2.0"
_NEXT = "1.3.0rc1"
_LAST_12 = "1.2.99"


@dataclass(frozen=True)
class Words:
    """Text that must be one of some words, each with the versions that have it (``since``, ``until``)."""

    spans: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Keys:
    """A mapping of known keys."""

    keys: Mapping[str, Key]


@dataclass(frozen=True)
class Key:
    """One key: its shape, whether it may be null, the versions that have it, and what others write instead."""

    shape: Shape | Words | Keys
    null: bool = False
    since: str | None = None
    until: str | None = None
    instead: str = ""

    @property
    def span(self) -> dict[str, str | None]:
        """The versions that have this key, as `versions.known` reads them."""
        return {"since": self.since, "until": self.until}


_FLAG, _WHOLE, _TEXT = Key(Value(bool)), Key(Value(int)), Key(Value(str))
_COUNT, _POSITIVE = Key(Value(int, low=0)), Key(Value(int, low=1))
_MAYBE_FLAG, _MAYBE_WHOLE = Key(Value(bool), null=True), Key(Value(int), null=True)
_MAYBE_COUNT, _MAYBE_POSITIVE = Key(Value(int, low=0), null=True), Key(Value(int, low=1), null=True)
_MAYBE_TEXT, _MAYBE_NUMBER = Key(Value(str), null=True), Key(Value(float), null=True)
_SHARE = Value(float, low=0, high=1)
_WHOLES, _POSITIVES = List(Value(int)), List(Value(int, low=1))
# Blocks that no profile of ours sets: that they are mappings is all that is looked at.
_BLOCK = Key(Table(Anything()), null=True)


def _words(*always: str, **spans: Mapping[str, str]) -> Words:
    return Words({**{word: {} for word in always}, **spans})


def _new(key: Key, since: str = _NEXT, until: str | None = None) -> Key:
    return Key(key.shape, key.null, since, until, key.instead)


# `CudaGraphConfig`. Null instead of the whole block switches CUDA graphs off.
_CUDA_GRAPH = Keys({"batch_sizes": Key(_POSITIVES, null=True), "max_batch_size": _COUNT, "enable_padding": _FLAG})

# `MoeConfig`. AUTO came with PR 11074 (opened 2026-01-28); the last five words stand in the reference of 1.3.0rc27,
# which has no WIDEEP any more.
_MOE = Keys(
    {
        "backend": Key(
            _words(
                "CUTLASS",
                "CUTEDSL",
                "WIDEEP",
                "TRTLLM",
                "DEEPGEMM",
                "VANILLA",
                "TRITON",
                AUTO={"since": _NEXT},
                DENSEGEMM={"since": _NEXT},
                MARLIN={"since": _NEXT},
                MEGAMOE_DEEPGEMM={"since": _NEXT},
                MEGAMOE_CUTEDSL={"since": _NEXT},
            )
        ),
        "max_num_tokens": _MAYBE_WHOLE,
        "load_balancer": Key(Anything(), null=True),  # a path or a mapping
        "disable_finalize_fusion": _FLAG,
        "use_low_precision_moe_combine": _FLAG,
    }
)

# `KvCacheConfig`. It mirrors a compiled class, so its keys move with the C++ side.
_KV_CACHE = Keys(
    {
        "enable_block_reuse": _FLAG,
        "max_tokens": _MAYBE_POSITIVE,
        "max_attention_window": Key(_POSITIVES, null=True),
        "sink_token_length": _MAYBE_COUNT,
        "free_gpu_memory_fraction": Key(_SHARE, null=True),
        "host_cache_size": _MAYBE_COUNT,
        "onboard_blocks": _FLAG,
        "cross_kv_cache_fraction": Key(_SHARE, null=True),
        "secondary_offload_min_priority": _MAYBE_WHOLE,
        "event_buffer_max_size": _COUNT,
        "attention_dp_events_gather_period_ms": _COUNT,
        "enable_partial_reuse": _FLAG,
        "copy_on_partial_reuse": _FLAG,
        "use_uvm": _FLAG,
        "max_gpu_total_bytes": _COUNT,
        "dtype": _TEXT,
        "mamba_ssm_cache_dtype": Key(_words("auto", "float16", "bfloat16", "float32")),
        "tokens_per_block": _POSITIVE,
        "use_kv_cache_manager_v2": Key(Anything(), since=_NEXT),  # true, false or auto
        "max_util_for_resume": Key(_SHARE, since=_NEXT),
        "disk_cache_size": _new(_MAYBE_COUNT),
        "disk_cache_path": _new(_MAYBE_TEXT),
        "iteration_stats_interval": _new(_POSITIVE),
    }
)

# What every decoding type takes (`DecodingBaseConfig`).
_SPECULATION: Mapping[str, Key] = {
    "decoding_type": Key(Anything(), null=True),  # looked at by itself
    # The engine takes 0 where a type does not forbid it, and then drafts nothing.
    "max_draft_len": _POSITIVE,
    "max_total_draft_tokens": _MAYBE_POSITIVE,
    "speculative_model_dir": _MAYBE_TEXT,
    "speculative_model": Key(
        Value(str), True, _STABLE, instead="write 'speculative_model_dir', which every version takes"
    ),
    "max_concurrency": _MAYBE_COUNT,
    "draft_len_schedule": Key(Anything(), True, _SCHEDULE),  # looked at by itself
    "load_format": _MAYBE_TEXT,
    "acceptance_window": _MAYBE_COUNT,
    "acceptance_length_threshold": Key(Value(float, low=0), null=True),
    # The reference of 1.3.0rc27 has these two instead of the two above.
    "acceptance_rate_window_size": _new(_MAYBE_COUNT),
    "acceptance_rate_threshold": Key(_SHARE, True, _NEXT),
    "allow_advanced_sampling": _new(_FLAG),
    "use_rejection_sampling": _new(_FLAG),
}
_EAGLE: Mapping[str, Key] = {
    "eagle_choices": Key(Anything(), null=True),  # lists, or such lists written as text
    "greedy_sampling": _MAYBE_FLAG,
    "posterior_threshold": _MAYBE_NUMBER,
    "use_dynamic_tree": _MAYBE_FLAG,
    "dynamic_tree_max_topK": _MAYBE_POSITIVE,
    "num_eagle_layers": _MAYBE_POSITIVE,
    "max_non_leaves_per_layer": _MAYBE_POSITIVE,
    "eagle3_one_model": _MAYBE_FLAG,
    "eagle3_layers_to_capture": Key(_WHOLES, null=True),
    "eagle3_model_arch": Key(_words("llama3", "mistral_large3"), since=_STABLE),
}
_MTP: Mapping[str, Key] = {
    "num_nextn_predict_layers": _POSITIVE,
    "use_relaxed_acceptance_for_thinking": _FLAG,
    "relaxed_topk": _POSITIVE,
    "relaxed_delta": Key(Value(float, low=0)),
    "use_mtp_vanilla": _FLAG,
    "mtp_eagle_one_model": _FLAG,
    "begin_thinking_phase_token": _new(_WHOLE, _STABLE),
    "end_thinking_phase_token": _new(_WHOLE, _STABLE),
    "BEGIN_THINKING_PHASE_TOKEN": Key(Value(int), until="1.2.0rc99"),
    "END_THINKING_PHASE_TOKEN": Key(Value(int), until="1.2.0rc99"),
}
_NGRAM: Mapping[str, Key] = {
    "max_matching_ngram_size": _POSITIVE,
    "is_keep_all": _FLAG,
    "is_use_oldest": _FLAG,
    "is_public_pool": _FLAG,
}
_SAVE_STATE: Mapping[str, Key] = {
    "output_directory": _TEXT,
    "write_interval": _POSITIVE,
    "file_prefix": _TEXT,
    "eagle3_layers_to_capture": Key(_WHOLES, null=True),
}


@dataclass(frozen=True)
class DecodingType:
    """One way to speculate: its own keys, what it cannot do without, the versions that call it so.

    ``refused`` says why the PyTorch backend cannot be given this type in a file at all.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    refused: str = ""
    instead: str = ""

    @property
    def span(self) -> dict[str, str | None]:
        """The versions that have this name, as `versions.known` reads them."""
        return {"since": self.since, "until": self.until}


_MODEL = "speculative_model_dir"
_NEEDS_PYTHON = "its drafter is a Python object, which a file cannot hold"
_ENGINE_ONLY = "the PyTorch backend does not have it, only the TensorRT engines (`supports_backend`)"
_NOT_COVERED = "late candidates of 1.3 have it, and its keys are not in this schema"

# Up to 1.2 `from_dict` chooses by the left names; since 1.3 a discriminated union chooses by the classes' own,
# which differ for two of them. On the PyTorch backend `Eagle` means EAGLE-3 in all of them.
DECODING_TYPES: Mapping[str, DecodingType] = {
    "Eagle": DecodingType(_EAGLE, ("max_draft_len", _MODEL)),
    "Eagle3": DecodingType(_EAGLE, ("max_draft_len", _MODEL), since=_NEXT, instead="write 'Eagle'"),
    "MTP": DecodingType(_MTP),
    "NGram": DecodingType(_NGRAM, ("max_draft_len",)),
    "DraftTarget": DecodingType({}, ("max_draft_len", _MODEL), until=_LAST_12, instead="write 'Draft_Target'"),
    "Draft_Target": DecodingType({}, ("max_draft_len", _MODEL), since=_NEXT, instead="write 'DraftTarget'"),
    "PARD": DecodingType({"mask_token_id": _MAYBE_WHOLE}, ("max_draft_len", _MODEL), since=_NEXT),
    "SaveState": DecodingType(_SAVE_STATE, ("output_directory",)),
    "AUTO": DecodingType(),
    "UserProvided": DecodingType(refused=_NEEDS_PYTHON),
    "User_Provided": DecodingType(refused=_NEEDS_PYTHON),
    "Medusa": DecodingType(refused=_ENGINE_ONLY),
    "Lookahead": DecodingType(refused=_ENGINE_ONLY),
    "SA": DecodingType(refused=_NOT_COVERED),
    "DFlash": DecodingType(refused=_NOT_COVERED),
    "DSpark": DecodingType(refused=_NOT_COVERED),
}
# `SpeculativeDecodingMode.support_overlap_scheduler`: drafting on the host between two steps leaves nothing to
# overlap. AUTO chooses n-gram lookup.
_NO_OVERLAP = ("NGram", "AUTO")

# `BaseLlmArgs` and `TorchLlmArgs`.
TOP: Mapping[str, Key] = {
    "model": _TEXT,
    "tokenizer": _MAYBE_TEXT,
    "tokenizer_mode": Key(_words("auto", "slow")),
    "skip_tokenizer_init": _FLAG,
    "trust_remote_code": _FLAG,
    "tensor_parallel_size": _POSITIVE,
    "pipeline_parallel_size": _POSITIVE,
    "context_parallel_size": _POSITIVE,
    "gpus_per_node": _MAYBE_POSITIVE,
    "moe_cluster_parallel_size": _MAYBE_WHOLE,
    "moe_tensor_parallel_size": _MAYBE_WHOLE,
    "moe_expert_parallel_size": _MAYBE_WHOLE,
    "enable_attention_dp": _FLAG,
    "enable_lm_head_tp_in_adp": _FLAG,
    "cp_config": _BLOCK,
    "dtype": _TEXT,
    "revision": _MAYBE_TEXT,
    "tokenizer_revision": _MAYBE_TEXT,
    "load_format": Key(_words("auto", "dummy", "vision_only", "AUTO", "DUMMY", "VISION_ONLY")),
    "fail_fast_on_attention_window_too_large": Key(Value(bool), until=_LAST_12),
    "enable_lora": _FLAG,
    "lora_config": _BLOCK,
    "kv_cache_config": Key(_KV_CACHE),
    "enable_chunked_prefill": _FLAG,
    "guided_decoding_backend": Key(_words("xgrammar", "llguidance"), null=True),
    "iter_stats_max_iterations": _MAYBE_COUNT,
    "request_stats_max_iterations": _MAYBE_COUNT,
    "peft_cache_config": _BLOCK,
    "scheduler_config": _BLOCK,
    "cache_transceiver_config": _BLOCK,
    "sparse_attention_config": _BLOCK,
    "speculative_config": Key(Keys(_SPECULATION), null=True),  # see _check_speculation
    "max_batch_size": _MAYBE_POSITIVE,
    "max_input_len": _MAYBE_POSITIVE,
    "max_seq_len": _MAYBE_POSITIVE,
    "max_beam_width": _MAYBE_POSITIVE,
    "max_num_tokens": _MAYBE_POSITIVE,
    "gather_generation_logits": _FLAG,
    "num_postprocess_workers": _COUNT,
    "postprocess_tokenizer_dir": _MAYBE_TEXT,
    "reasoning_parser": _MAYBE_TEXT,
    "otlp_traces_endpoint": _MAYBE_TEXT,
    "backend": Key(_words("pytorch"), null=True),
    "return_perf_metrics": _FLAG,
    "perf_metrics_max_requests": _COUNT,
    "garbage_collection_gen0_threshold": _COUNT,
    "cuda_graph_config": Key(_CUDA_GRAPH, null=True),
    "attention_dp_config": Key(
        Keys({"enable_balance": _FLAG, "timeout_iters": _COUNT, "batching_wait_iters": _COUNT}), null=True
    ),
    "disable_overlap_scheduler": _FLAG,
    "moe_config": Key(_MOE),
    "attn_backend": _TEXT,
    "sampler_type": Key(_words("TRTLLMSampler", "TorchSampler", "auto")),
    "enable_iter_perf_stats": _FLAG,
    "enable_iter_req_stats": _FLAG,
    "print_iter_log": _FLAG,
    "batch_wait_timeout_ms": Key(Value(float, low=0)),
    "batch_wait_timeout_iters": _COUNT,
    "batch_wait_max_tokens_ratio": Key(_SHARE),
    "torch_compile_config": Key(
        Keys(
            {
                "enable_fullgraph": _FLAG,
                "enable_inductor": _FLAG,
                "enable_piecewise_cuda_graph": _FLAG,
                "capture_num_tokens": Key(_POSITIVES, null=True),
                "enable_userbuffers": _FLAG,
                "max_num_streams": _POSITIVE,
            }
        ),
        null=True,
    ),
    "enable_autotuner": _FLAG,
    "enable_layerwise_nvtx_marker": _FLAG,
    "enable_min_latency": _FLAG,
    "stream_interval": _POSITIVE,
    "force_dynamic_quantization": _FLAG,
    "allreduce_strategy": Key(
        _words("AUTO", "NCCL", "UB", "MINLATENCY", "ONESHOT", "TWOSHOT", "LOWPRECISION", "MNNVL", "NCCL_SYMMETRIC"),
        null=True,
    ),
    "checkpoint_format": _MAYBE_TEXT,
    "kv_connector_config": _BLOCK,
    "mm_encoder_only": _FLAG,
    "ray_worker_extension_cls": _MAYBE_TEXT,
    # Between 1.2.0rc1 and 1.2.1.
    "pp_partition": Key(_POSITIVES, True, _STABLE),
    "custom_tokenizer": _new(_MAYBE_TEXT, _STABLE),
    "model_kwargs": _new(_BLOCK, _STABLE),
    "env_overrides": _new(_BLOCK, _STABLE),
    "orchestrator_type": Key(_words("rpc", "ray"), True, _STABLE),
    # Seen in 1.3.
    "nvfp4_gemm_config": _new(_BLOCK),
    "layer_wise_benchmarks_config": _new(_BLOCK),
    "sampler_force_async_worker": _new(_FLAG),
    "use_cute_dsl_blockscaling_mm": _new(_FLAG),
    "use_cute_dsl_blockscaling_bmm": _new(_FLAG),
    "disable_flashinfer_sampling": _new(_FLAG),
    "max_stats_len": _new(_POSITIVE),
    "enable_sleep": _new(_FLAG),
}

# What older versions, other places of the command line, or other engines call it.
_OTHER_NAMES = {
    "use_torch_sampler": "write 'sampler_type: TorchSampler' (true) or 'sampler_type: TRTLLMSampler' (false)",
    "enable_trtllm_sampler": "write 'sampler_type: TRTLLMSampler'",
    "use_cuda_graph": "write 'cuda_graph_config:' with its keys below it, or null for no CUDA graphs",
    "cuda_graph_batch_sizes": "write 'batch_sizes' below 'cuda_graph_config'",
    "cuda_graph_max_batch_size": "write 'max_batch_size' below 'cuda_graph_config'",
    "cuda_graph_padding": "write 'enable_padding' below 'cuda_graph_config'",
    "cuda_graph_padding_enabled": "write 'enable_padding' below 'cuda_graph_config'",
    "moe_backend": "write 'backend' below 'moe_config'",
    "kv_cache_dtype": "write 'dtype' below 'kv_cache_config'",
    "kv_cache_free_gpu_memory_fraction": "write 'free_gpu_memory_fraction' below 'kv_cache_config'",
    "pytorch_backend_config": "move the keys below it to the top level",
    "tp_size": "write 'tensor_parallel_size', or give --tp_size on the command line",
    "pp_size": "write 'pipeline_parallel_size', or give --pp_size on the command line",
    "ep_size": "write 'moe_expert_parallel_size', or give --ep_size on the command line",
    "num_speculative_tokens": "write 'max_draft_len'",
    "method": "write 'decoding_type'",
    "build_config": "remove it: it is for TensorRT engines, and the PyTorch backend does not read it",
}


def check_config(data: object, version: str, where: str = WHERE) -> list[Problem]:
    """Return all that TensorRT-LLM ``version`` would refuse in ``data`` (read from YAML), and our own rules.

    ``where`` is the file that the problems name. Nothing is returned for what the engine accepts with a warning:
    see `warnings_of`. What depends on the GPU stands in the catalogue (`refused_on` of an option).
    """
    findings = Findings(where)
    if not is_version(version) or not _in_range(version):
        findings.add(
            "",
            f"TensorRT-LLM {version}",
            f"a version that this schema knows: {OLDEST} to 1.3 (its facts are of {CHECKED})",
            "choose one of them, or add what that version accepts",
        )
        return findings.problems
    if not isinstance(data, Mapping):
        check(data, Table(Anything()), findings)
        return findings.problems
    _check_keys(data, TOP, version, "", findings)
    _check_cuda_graph(data, findings)
    return findings.problems


def load_config(text: str, version: str, where: str = WHERE) -> dict[str, Any]:
    """Return the YAML in ``text`` as data; raise HouseError with all that is wrong with it for ``version``."""
    findings = Findings(where)
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader, below)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        findings.add(
            _place(error, text),
            f"text that is not YAML ({_reason(error)})",
            "one YAML mapping, as `trtllm-serve --extra_llm_api_options` reads it",
            "correct that line",
        )
        raise HouseError(findings.problems) from error
    problems = check_config(data, version, where)
    if problems:
        raise HouseError(problems)
    result: dict[str, Any] = data
    return result


def warnings_of(data: Mapping[str, Any]) -> list[str]:
    """Return what the engine accepts but does not do as written, a sentence each; ``data`` has passed the checks.

    Eagle runs with the overlap scheduler, in one model and in two; n-gram lookup does not, and the engine then
    switches it off by itself and only says so in its log (`tensorrt_llm/_torch/pyexecutor/py_executor_creator.py`).
    A baseline without that key would keep it, and differ in more than speculation.
    """
    speculation = data.get("speculative_config") or {}
    kind = speculation.get("decoding_type")
    found = []
    if kind in _NO_OVERLAP and not data.get("disable_overlap_scheduler"):
        found.append(
            f"decoding_type {kind} cannot run with the overlap scheduler: the engine switches it off by itself; "
            "write 'disable_overlap_scheduler: true' into both arms, or they differ in that as well"
        )
    if kind == "Eagle" and not speculation.get("allow_advanced_sampling"):
        found.append(
            "up to early 1.3, Eagle in one model samples greedily whatever a request asks for, unless the version "
            "has 'allow_advanced_sampling' and it is true: compare the arms at temperature 0"
        )
    return found


# --- keys -----------------------------------------------------------------------------------------


def _in_range(version: str) -> bool:
    found = number(version)
    return found >= number(OLDEST) and found.release[:2] <= NEWEST_LINE


def _check_keys(data: object, keys: Mapping[str, Key], version: str, path: str, findings: Findings) -> None:
    """Check one mapping of known keys, and what is below them."""
    if not isinstance(data, Mapping):
        check(data, Table(Anything()), findings, path)
        return
    for name, value in data.items():
        here = f"{path}.{name}" if path else str(name)
        key = keys.get(name) if isinstance(name, str) else None
        if key is None:
            findings.add(here, f"the unknown key '{name}'", *_advice(name, keys, version, path))
        elif not known(version, key.span):
            findings.add(
                here,
                f"the key '{name}'",
                f"TensorRT-LLM {_spoken(key.span)}; this is {version}",
                key.instead or "remove it, or choose a version that has it",
            )
        elif value is None:
            if not key.null:
                findings.add(here, "nothing", "a value: null is none here", "give it a value, or remove the key")
        elif here == "speculative_config":
            _check_speculation(value, version, findings)
        elif isinstance(key.shape, Keys):
            _check_keys(value, key.shape.keys, version, here, findings)
        elif isinstance(key.shape, Words):
            _check_word(value, key.shape, version, here, findings)
        else:
            check(value, key.shape, findings, here)


def _check_word(value: object, words: Words, version: str, path: str, findings: Findings) -> None:
    valid = tuple(word for word, span in words.spans.items() if known(version, span))
    if isinstance(value, str) and value in words.spans and value not in valid:
        findings.add(
            path,
            f"{value!r}",
            f"TensorRT-LLM {_spoken(words.spans[value])}; this is {version}",
            f"use one of: {', '.join(sorted(valid))}",
        )
    else:
        check(value, Value(str, choices=valid), findings, path)


def _spoken(span: Mapping[str, str | None]) -> str:
    """Return the versions of a span in words: ``1.2.0 or later``, ``1.2 or earlier``."""
    since, until = span.get("since"), span.get("until")
    parts = [f"{since} or later"] if since else []
    parts += [f"{until.removesuffix('.99').removesuffix('.0rc99')} or earlier"] if until else []
    return " and ".join(parts)


def _advice(name: object, keys: Mapping[str, Key], version: str, path: str) -> tuple[str, str]:
    """Return what was needed instead of an unknown key, and what to do about it."""
    valid = sorted(key for key, entry in keys.items() if known(version, entry.span))
    homes = [home for home, block in _BLOCKS.items() if home != path and name in block]
    if homes:
        place = " or ".join(f"below '{home}'" if home else "to the top level" for home in homes)
        return f"that key {place.replace('to the', 'at the')}", f"move it {place}"
    few = len(valid) <= _MOST_NAMED
    needed = f"one of: {', '.join(valid)}" if few else f"one of the {len(valid)} keys of TensorRT-LLM {version}"
    if name in _OTHER_NAMES:
        return needed, _OTHER_NAMES[str(name)]
    if few or nearest(name, valid):
        return needed, did_you_mean(name, valid)
    return needed, "remove it, or look it up: nvidia.github.io/TensorRT-LLM, API reference, TorchLlmArgs"


# A longer list of keys helps nobody.
_MOST_NAMED = 40
_BLOCKS: Mapping[str, frozenset[str]] = {
    # Its own types' keys are told apart by _check_speculation.
    "speculative_config": frozenset(_SPECULATION).union(*(kind.keys for kind in DECODING_TYPES.values())),
    **{
        name: frozenset(key.shape.keys)
        for name, key in TOP.items()
        if isinstance(key.shape, Keys) and name != "speculative_config"
    },
    "": frozenset(TOP),
}


# --- rules over several keys ----------------------------------------------------------------------


def _check_speculation(data: object, version: str, findings: Findings) -> None:
    """Check `speculative_config`, whose keys depend on its decoding type."""
    path = "speculative_config"
    if not isinstance(data, Mapping):
        check(data, Table(Anything()), findings, path)
        return
    name = data.get("decoding_type")
    usable = sorted(word for word, kind in DECODING_TYPES.items() if not kind.refused and known(version, kind.span))
    if "decoding_type" not in data:
        findings.add(f"{path}.decoding_type", "nothing", f"one of: {', '.join(usable)}", "add 'decoding_type:' here")
    kind = DECODING_TYPES.get(name) if isinstance(name, str) else None
    here = f"{path}.decoding_type"
    if kind is None:
        if "decoding_type" in data:
            found = "nothing" if name is None else f"{name!r}"
            findings.add(here, found, f"one of: {', '.join(usable)}", did_you_mean(name, usable))
    elif kind.refused:
        findings.add(here, f"{name!r}: {kind.refused}", f"one of: {', '.join(usable)}", "choose another type")
    elif not known(version, kind.span):
        findings.add(
            here,
            f"{name!r}",
            f"TensorRT-LLM {_spoken(kind.span)}; this is {version}",
            kind.instead or f"use one of: {', '.join(usable)}",
        )
    if kind is None or kind.refused:
        # Which keys belong is not known then; those of all types are let through.
        keys = {
            **{key: entry for other in DECODING_TYPES.values() for key, entry in other.keys.items()},
            **_SPECULATION,
        }
        _check_keys(data, keys, version, path, findings)
        return
    foreign = {
        key: [word for word, other in DECODING_TYPES.items() if key in other.keys and known(version, other.span)]
        for key in data
        if isinstance(key, str) and key not in _SPECULATION and key not in kind.keys
    }
    for key, owners in foreign.items():
        if owners:
            findings.add(
                f"{path}.{key}",
                f"the key '{key}', which belongs to decoding_type {listing(owners)}",
                f"a key of {name}: {', '.join(sorted({*_SPECULATION, *kind.keys}))}",
                "remove it, or change the decoding_type",
            )
    own = {key: value for key, value in data.items() if not (isinstance(key, str) and foreign.get(key))}
    _check_keys(own, {**_SPECULATION, **kind.keys}, version, path, findings)
    _check_needs(data, str(name), kind, findings)
    _check_schedule(data, version, findings)


def _check_needs(data: Mapping[str, Any], name: str, kind: DecodingType, findings: Findings) -> None:
    path = "speculative_config"
    models = [key for key in ("speculative_model_dir", "speculative_model") if data.get(key) is not None]
    for key in kind.needs:
        if key == _MODEL and not models:
            findings.add(f"{path}.{key}", "nothing", f"the draft that {name} runs", f"add '{key}:' with its folder")
        elif key != _MODEL and key not in data:
            findings.add(
                f"{path}.{key}", "nothing", f"the key '{key}': {name} has no default for it", f"add '{key}:' here"
            )
    if len(models) == 2:
        findings.add(
            path,
            "speculative_model and speculative_model_dir",
            "one of them: they are two names of one key",
            "keep one",
        )
    if data.get("use_dynamic_tree") is True:
        if data.get("eagle_choices") is not None:
            findings.add(path, "use_dynamic_tree and eagle_choices", "one way to make the tree", "keep one")
        if data.get("dynamic_tree_max_topK") is None:
            findings.add(
                f"{path}.dynamic_tree_max_topK",
                "nothing",
                "the number of nodes that a dynamic tree expands",
                "add 'dynamic_tree_max_topK:' here",
            )


def _check_schedule(data: Mapping[str, Any], version: str, findings: Findings) -> None:
    """Check `draft_len_schedule`: draft length by batch size.

    Up to 1.2 an entry holds from its batch size on, and there must be one for 1. In 1.3 (PR 10860) it holds up
    to its batch size, and the smallest one, whatever it is, must have the full length.
    """
    schedule, most = data.get("draft_len_schedule"), data.get("max_draft_len")
    path = "speculative_config.draft_len_schedule"
    if schedule is None or not known(version, _SPECULATION["draft_len_schedule"].span):
        return
    if not isinstance(schedule, Mapping) or not schedule:
        findings.add(path, f"{schedule!r}", "batch sizes with the draft length for each", "write it as {1: 3, 4: 2}")
        return
    good = True
    for size, length in schedule.items():
        if not (_is_whole(size) and _is_whole(length)) or size < 1 or length < 0:
            good = False
            findings.add(
                f"{path}.{size}",
                f"{size!r}: {length!r}",
                "a batch size of 1 or more with a draft length of 0 or more, both whole numbers",
                "correct the entry",
            )
        elif _is_whole(most) and length > most:
            good = False
            findings.add(f"{path}.{size}", f"{length}", f"{most} or less, the max_draft_len", "correct the value")
    if not good:
        return
    first = min(schedule)
    if first != 1 and version_line(version) == (1, 2):
        findings.add(
            path,
            f"no entry for batch size 1 (the smallest is {first})",
            "the key 1: every server meets it",
            f"add '1: {most}'",
        )
    elif _is_whole(most) and schedule[first] != most:
        findings.add(
            f"{path}.{first}",
            f"{schedule[first]}",
            f"{most}, the max_draft_len, for the smallest batch",
            f"write {most}, or change max_draft_len",
        )
    if version_line(version) >= (1, 3) and data.get("max_concurrency") is not None:
        findings.add(
            "speculative_config",
            "max_concurrency and draft_len_schedule",
            "one of them: in 1.3 a schedule ends speculation above its last batch size",
            "keep one",
        )


def version_line(version: str) -> tuple[int, int]:
    """Return the line a version belongs to: ``(1, 2)`` for 1.2.0rc1 and for 1.2.1."""
    major, minor, *_ = (*number(version).release, 0)
    return major, minor


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_cuda_graph(data: Mapping[str, Any], findings: Findings) -> None:
    """Refuse both ways to say for which batch sizes graphs are made.

    The engine takes both where they agree (1.2: where the list is the one it would make itself), and stops
    otherwise: "Please don't set both".
    """
    block = data.get("cuda_graph_config")
    if isinstance(block, Mapping) and block.get("batch_sizes") and block.get("max_batch_size"):
        findings.add(
            "cuda_graph_config",
            "max_batch_size and batch_sizes",
            "one of them: the list already says which is the largest",
            "keep one",
        )


# --- reading --------------------------------------------------------------------------------------


def _place(error: Exception, text: str) -> str:
    """Return line and column of what the reader stumbled over, as far as it says."""
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}"
    position = getattr(error, "position", None)
    if isinstance(position, int):
        before = text[:position]
        return f"line {before.count(chr(10)) + 1}, column {position - before.rfind(chr(10))}"
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).splitlines()[0]


class _Loader(yaml.SafeLoader):
    """The loader of the engine itself (`yaml.safe_load`), which also refuses a key that is written twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build one mapping; raise on a repeated key (YAML would keep the last)."""
        seen: set[Sequence[object]] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if (key_node.tag, key_node.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key_node.value}' is written twice", key_node.start_mark
                    )
                seen.add((key_node.tag, key_node.value))
        result: dict[Any, Any] = super().construct_mapping(node, deep)
        return result
