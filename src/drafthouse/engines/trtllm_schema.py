"""What TensorRT-LLM's PyTorch backend accepts in its YAML: keys, words and numbers, each with its versions.

For the versions 1.2.0rc1 to 1.3, as of 2026-11-21. `trtllm_config` checks a file against it.

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

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.schema import Anything, List, Shape, Table, Value

#: The day on which the sources above were read.
CHECKED = "2026-11-21"
#: The versions this schema knows.
OLDEST, NEWEST_LINE = "1.2.0rc1", (1, 3)

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
SPECULATION: Mapping[str, Key] = {
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


MODEL = "speculative_model_dir"
_NEEDS_PYTHON = "its drafter is a Python object, which a file cannot hold"
_ENGINE_ONLY = "the PyTorch backend does not have it, only the TensorRT engines (`supports_backend`)"
_NOT_COVERED = "late candidates of 1.3 have it, and its keys are not in this schema"

# Up to 1.2 `from_dict` chooses by the left names; since 1.3 a discriminated union chooses by the classes' own,
# which differ for two of them. On the PyTorch backend `Eagle` means EAGLE-3 in all of them.
DECODING_TYPES: Mapping[str, DecodingType] = {
    "Eagle": DecodingType(_EAGLE, ("max_draft_len", MODEL)),
    "Eagle3": DecodingType(_EAGLE, ("max_draft_len", MODEL), since=_NEXT, instead="write 'Eagle'"),
    "MTP": DecodingType(_MTP),
    "NGram": DecodingType(_NGRAM, ("max_draft_len",)),
    "DraftTarget": DecodingType({}, ("max_draft_len", MODEL), until=_LAST_12, instead="write 'Draft_Target'"),
    "Draft_Target": DecodingType({}, ("max_draft_len", MODEL), since=_NEXT, instead="write 'DraftTarget'"),
    "PARD": DecodingType({"mask_token_id": _MAYBE_WHOLE}, ("max_draft_len", MODEL), since=_NEXT),
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
NO_OVERLAP = ("NGram", "AUTO")

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
    "speculative_config": Key(Keys(SPECULATION), null=True),  # see _check_speculation
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
OTHER_NAMES = {
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
