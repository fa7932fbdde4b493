"""The schema of TensorRT-LLM's YAML for the PyTorch backend: keys, words and numbers, each with its versions.

It covers the versions 1.2.0rc1 to 1.4, as of 2026-11-27. `trtllm_config` checks a file against it, `trtllm_keys` has
the types of its keys, and `trtllm_speculation` the part below `speculative_config`.

Sources, all from github.com/NVIDIA/TensorRT-LLM:

- 1.2.0rc1: `tensorrt_llm/llmapi/llm_args.py` of autumn 2025 (before PR 8194); `DecodingBaseConfig.from_dict` has the
  decoding types, `TorchLlmArgs` the keys.
- Between 1.2.0rc1 and 1.2.1: the same file of 1.2.1, for `draft_len_schedule` (PR 8194, merged 2025-11-18, after
  1.2.0rc2) and `speculative_model` (PR 10099, merged 2026-01-14; `speculative_model_dir` remains as an alias).
- 1.3: the same file of early 1.3, and nvidia.github.io/TensorRT-LLM/1.3.0rc27/llm-api. Each release candidate of 1.3
  changes the keys. For simplicity, a key that is new in 1.3 is accepted from 1.3.0rc1 on, and a key that a late
  candidate removed is still accepted.
- 1.4: nvidia.github.io/TensorRT-LLM/1.4.0rc1/llm-api, whose new keys are accepted from 1.3.0rc28 on; and
  `tensorrt_llm/usage/llm_args_golden_manifest.json` of autumn 2026 (commit 00043967), which lists all keys for
  numbers, booleans and enumerations. A key counts as removed in 1.4 if both sources lack it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.schema import Anything, Value
from .trtllm_keys import (
    BLOCK,
    COUNT,
    FLAG,
    LAST_12,
    MAYBE_COUNT,
    MAYBE_POSITIVE,
    MAYBE_TEXT,
    MAYBE_WHOLE,
    MOE_BACKENDS,
    NEXT,
    POSITIVE,
    POSITIVES,
    SHARE,
    STABLE,
    TEXT,
    Key,
    Keys,
    new,
    words,
)
from .trtllm_speculation import SPECULATION

#: The day on which the sources above were read.
CHECKED = "2026-11-27"
#: The oldest version that the schema covers.
OLDEST = "1.2.0rc1"
#: The newest line (major, minor) that it covers.
NEWEST_LINE = (1, 4)

# `CudaGraphConfig`. Null instead of this block disables CUDA graphs.
_CUDA_GRAPH = Keys({"batch_sizes": Key(POSITIVES, null=True), "max_batch_size": COUNT, "enable_padding": FLAG})

# `MoeConfig`.
_MOE = Keys(
    {
        "backend": Key(MOE_BACKENDS),
        "max_num_tokens": MAYBE_WHOLE,
        "load_balancer": Key(Anything(), null=True),  # a path or a mapping
        "disable_finalize_fusion": FLAG,
        "use_low_precision_moe_combine": FLAG,
    }
)

# `KvCacheConfig`. It mirrors a C++ class, and its keys change with that class.
_KV_CACHE = Keys(
    {
        "enable_block_reuse": FLAG,
        "max_tokens": MAYBE_POSITIVE,
        "max_attention_window": Key(POSITIVES, null=True),
        "sink_token_length": MAYBE_COUNT,
        "free_gpu_memory_fraction": Key(SHARE, null=True),
        "host_cache_size": MAYBE_COUNT,
        "onboard_blocks": FLAG,
        "cross_kv_cache_fraction": Key(SHARE, null=True),
        "secondary_offload_min_priority": MAYBE_WHOLE,
        "event_buffer_max_size": COUNT,
        "attention_dp_events_gather_period_ms": COUNT,
        "enable_partial_reuse": FLAG,
        "copy_on_partial_reuse": FLAG,
        "use_uvm": FLAG,
        "max_gpu_total_bytes": COUNT,
        "dtype": TEXT,
        "mamba_ssm_cache_dtype": Key(words("auto", "float16", "bfloat16", "float32")),
        "tokens_per_block": POSITIVE,
        "use_kv_cache_manager_v2": Key(Anything(), since=NEXT),  # true, false or auto
        "max_util_for_resume": Key(SHARE, since=NEXT),
        "disk_cache_size": new(MAYBE_COUNT),
        "disk_cache_path": new(MAYBE_TEXT),
        "iteration_stats_interval": new(POSITIVE),
        "avg_seq_len": new(MAYBE_POSITIVE),
        "block_reuse_config": new(BLOCK),
        "kv_events_config": new(BLOCK),
        "mamba_ssm_stochastic_rounding": new(FLAG),
        "mamba_ssm_philox_rounds": new(POSITIVE),
        "mamba_state_cache_interval": new(MAYBE_COUNT),
        "mamba_state_config": new(BLOCK),
        "enable_swa_scratch_reuse": new(FLAG),
    }
)

# `BaseLlmArgs` and `TorchLlmArgs`.
TOP: Mapping[str, Key] = {
    "model": TEXT,
    "tokenizer": MAYBE_TEXT,
    "tokenizer_mode": Key(words("auto", "slow")),
    "skip_tokenizer_init": FLAG,
    "trust_remote_code": FLAG,
    "tensor_parallel_size": POSITIVE,
    "pipeline_parallel_size": POSITIVE,
    "context_parallel_size": POSITIVE,
    "gpus_per_node": MAYBE_POSITIVE,
    "moe_cluster_parallel_size": MAYBE_WHOLE,
    "moe_tensor_parallel_size": MAYBE_WHOLE,
    "moe_expert_parallel_size": MAYBE_WHOLE,
    "enable_attention_dp": FLAG,
    "enable_lm_head_tp_in_adp": FLAG,
    "cp_config": BLOCK,
    "dtype": TEXT,
    "revision": MAYBE_TEXT,
    "tokenizer_revision": MAYBE_TEXT,
    "load_format": Key(words("auto", "dummy", "vision_only", "AUTO", "DUMMY", "VISION_ONLY")),
    "fail_fast_on_attention_window_too_large": Key(Value(bool), until=LAST_12),
    "enable_lora": FLAG,
    "lora_config": BLOCK,
    "kv_cache_config": Key(_KV_CACHE),
    "enable_chunked_prefill": FLAG,
    "guided_decoding_backend": Key(words("xgrammar", "llguidance"), null=True),
    "iter_stats_max_iterations": MAYBE_COUNT,
    "request_stats_max_iterations": MAYBE_COUNT,
    "peft_cache_config": BLOCK,
    "scheduler_config": BLOCK,
    "cache_transceiver_config": BLOCK,
    "sparse_attention_config": BLOCK,
    "speculative_config": Key(Keys(SPECULATION), null=True),  # see `_check_speculation` of `trtllm_config`
    "max_batch_size": MAYBE_POSITIVE,
    "max_input_len": MAYBE_POSITIVE,
    "max_seq_len": MAYBE_POSITIVE,
    "max_beam_width": MAYBE_POSITIVE,
    "max_num_tokens": MAYBE_POSITIVE,
    "gather_generation_logits": FLAG,
    "num_postprocess_workers": COUNT,
    "postprocess_tokenizer_dir": MAYBE_TEXT,
    "reasoning_parser": MAYBE_TEXT,
    "otlp_traces_endpoint": MAYBE_TEXT,
    "backend": Key(words("pytorch"), null=True),
    "return_perf_metrics": FLAG,
    "perf_metrics_max_requests": COUNT,
    "garbage_collection_gen0_threshold": COUNT,
    "cuda_graph_config": Key(_CUDA_GRAPH, null=True),
    "attention_dp_config": Key(
        Keys({"enable_balance": FLAG, "timeout_iters": COUNT, "batching_wait_iters": COUNT}), null=True
    ),
    "disable_overlap_scheduler": FLAG,
    "moe_config": Key(_MOE),
    "attn_backend": TEXT,
    "sampler_type": Key(words("TRTLLMSampler", "TorchSampler", "auto")),
    "enable_iter_perf_stats": FLAG,
    "enable_iter_req_stats": FLAG,
    "print_iter_log": FLAG,
    "batch_wait_timeout_ms": Key(Value(float, low=0)),
    "batch_wait_timeout_iters": COUNT,
    "batch_wait_max_tokens_ratio": Key(SHARE),
    "torch_compile_config": Key(
        Keys(
            {
                "enable_fullgraph": FLAG,
                "enable_inductor": FLAG,
                "enable_piecewise_cuda_graph": FLAG,
                "capture_num_tokens": Key(POSITIVES, null=True),
                "enable_userbuffers": FLAG,
                "max_num_streams": POSITIVE,
            }
        ),
        null=True,
    ),
    "enable_autotuner": FLAG,
    "enable_layerwise_nvtx_marker": FLAG,
    "enable_min_latency": FLAG,
    "stream_interval": POSITIVE,
    "force_dynamic_quantization": FLAG,
    "allreduce_strategy": Key(
        words("AUTO", "NCCL", "UB", "MINLATENCY", "ONESHOT", "TWOSHOT", "LOWPRECISION", "MNNVL", "NCCL_SYMMETRIC"),
        null=True,
    ),
    "checkpoint_format": MAYBE_TEXT,
    "kv_connector_config": BLOCK,
    "mm_encoder_only": FLAG,
    "ray_worker_extension_cls": MAYBE_TEXT,
    # New between 1.2.0rc1 and 1.2.1.
    "pp_partition": Key(POSITIVES, null=True, since=STABLE),
    "custom_tokenizer": new(MAYBE_TEXT, STABLE),
    "model_kwargs": new(BLOCK, STABLE),
    "env_overrides": new(BLOCK, STABLE),
    "orchestrator_type": Key(words("rpc", "ray"), null=True, since=STABLE),
    # New in 1.3.
    "nvfp4_gemm_config": new(BLOCK),
    "layer_wise_benchmarks_config": new(BLOCK),
    "sampler_force_async_worker": new(FLAG),
    "use_cute_dsl_blockscaling_mm": new(FLAG),
    "use_cute_dsl_blockscaling_bmm": new(FLAG),
    "disable_flashinfer_sampling": new(FLAG),
    "max_stats_len": new(POSITIVE),
    "enable_sleep": new(FLAG),
    "post_processor_hook": new(MAYBE_TEXT),
    "generation_config": Key(words("auto", "trtllm"), since=NEXT),
    "num_serve_frontends": new(POSITIVE),
    "encoder_max_batch_size": new(MAYBE_POSITIVE),
    "encoder_max_num_tokens": new(MAYBE_POSITIVE),
    "prefill_cuda_graph_backend": Key(words("disabled", "piecewise", "breakable"), since=NEXT),
    "prefill_capture_num_tokens": Key(POSITIVES, null=True, since=NEXT),
    # Further keys that are new in 1.3: first switches, then blocks.
    **dict.fromkeys(
        (
            "disable_mm_encoder",
            "enable_early_first_token_response",
            "enable_energy_metrics",
            "enable_in_graph_sampling",
            "enable_low_latency_host_dispatch",
            "enable_resource_governor",
            "encode_only",
            "use_cute_dsl_bf16_bmm",
            "use_cute_dsl_bf16_gemm",
            "use_fine_grained_sync",
        ),
        new(FLAG),
    ),
    **dict.fromkeys(
        (
            "dwdp_config",
            "encoder_cuda_graph_config",
            "kv_cache_compression_config",
            "multimodal_config",
            "prometheus_metrics_config",
            "ray_placement_config",
            "reorder_policy_config",
            "telemetry_config",
        ),
        new(BLOCK),
    ),
}

# Names of these settings in older versions, in command-line flags or in other engines -> the advice for a message.
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
