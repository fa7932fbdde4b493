"""A config.json against the shape that the memory plan needs."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.models.shape import NoShape, shape_of

DENSE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 100,
    "max_position_embeddings": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"kv_heads": 4, "head_dim": 16, "cached_layers": 8, "traits": ()}),
        ({"num_key_value_heads": 2}, {"kv_heads": 2}),
        ({"multi_query": True}, {"kv_heads": 1}),
        ({"head_dim": 32}, {"head_dim": 32}),
        # DeepSeek-V3: 512 + 64 values a layer and token, whatever the number of heads
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_key_value_heads": 4}, {"kv_heads": 1, "head_dim": 288}),
        # Qwen3-Next: three layers of Gated DeltaNet, then one of attention
        (
            {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2},
            {"cached_layers": 2, "traits": ("hybrid",)},
        ),
        # a window of 128 tokens in 4 layers, 2 x 4 heads x 16 values of 2 bytes each
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 128},
            {"cached_layers": 4, "window_bytes": 4 * 128 * 2 * 4 * 16 * 2},
        ),
        ({"layer_types": ["sliding_attention", "full_attention"] * 4}, {"cached_layers": 8, "window_bytes": 0}),
        ({"full_attention_interval": 4}, {"cached_layers": 2}),
        ({"hybrid_override_pattern": "M-M*-ME*"}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"attn_layer_period": 4, "attn_layer_offset": 1}, {"cached_layers": 2}),
        # Kimi-K3: layers counted from 1, experts by a key of its own
        ({"linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6, 7]}}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"linear_attn_config": {"full_attn_layers": [4, 8]}}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"num_experts": 896, "num_experts_per_token": 16}, {"experts": (896, 16), "traits": ("moe",)}),
        # MiMo-V2-Flash: 1 is a window, whose layers have heads of their own; keys are longer than values
        (
            {
                "hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 1],
                "sliding_window_size": 128,
                "num_key_value_heads": 4,
                "head_dim": 192,
                "v_head_dim": 128,
                "swa_num_key_value_heads": 8,
                "swa_head_dim": 192,
                "swa_v_head_dim": 128,
            },
            {
                "cached_layers": 2,
                "kv_heads": 4,
                "head_dim": 160,
                "window_bytes": 6 * 128 * 8 * (192 + 128) * 2,
                "traits": ("sliding-window",),
            },
        ),
        # MiniMax: 0 is lightning attention; Gemma 3: every sixth layer sees all; Qwen 2: the first ones do
        ({"attn_type_list": [0, 0, 0, 1] * 2}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"sliding_window_pattern": 4, "sliding_window": 16}, {"cached_layers": 2, "traits": ("sliding-window",)}),
        ({"max_window_layers": 6, "use_sliding_window": True, "sliding_window": 16}, {"cached_layers": 6}),
        ({"max_window_layers": 6, "use_sliding_window": False, "sliding_window": 16}, {"cached_layers": 8}),
        ({"block_types": ["recurrent", "recurrent", "attention"]}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"attn_layer_indices": [3, 7]}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"layer_types": ["full_attention"] * 8, "num_kv_shared_layers": 3}, {"cached_layers": 5}),
        # Llama 4: chunks are windows
        (
            {"layer_types": ["chunked_attention", "full_attention"] * 4, "attention_chunk_size": 16},
            {"cached_layers": 4, "traits": ("sliding-window",)},
        ),
        # a list of layers alone; a list with the MTP head's layers at its end; an MLA cache with a key for an indexer
        (
            {"num_hidden_layers": None, "layers_block_type": ["mamba", "moe", "attention", "moe"]},
            {"layers": 4, "cached_layers": 1},
        ),
        ({"layer_types": ["full_attention"] * 11}, {"cached_layers": 8, "unsure": ()}),
        (
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128},
            {"kv_heads": 1, "head_dim": (576 + 66) // 2},
        ),
        ({"num_key_value_heads": 2, "sparse_attention_config": {"sparse_index_dim": 128}}, {"head_dim": 16 + 17}),
        # Step 3.5 and Zamba 2: keys of their own for the heads
        ({"num_attention_groups": 2}, {"kv_heads": 2}),
        ({"attention_head_dim": 32}, {"head_dim": 32}),
        (
            {
                "layer_types": ["full_attention", "sliding_attention"] * 4,
                "sliding_window": 10,
                "num_attention_groups": 2,
                "attention_other_setting": {"num_attention_groups": 4, "head_dim": 32},
            },
            {"kv_heads": 2, "window_bytes": 4 * 10 * 2 * 4 * 32 * 2},
        ),
        # Gemma 4 by transformers: the numbers of layers with keys of their own
        (
            {
                "layer_types": ["sliding_attention", "full_attention"] * 4,
                "sliding_window": 10,
                "per_layer_config": {f"{layer:02d}": {"head_dim": 64} for layer in (1, 3, 5, 7)},
            },
            {"head_dim": 64, "window_bytes": 4 * 10 * 2 * 4 * 16 * 2},
        ),
        # Mistral Large 4: two layers share a cache
        (
            {"layer_types": ["full_attention"] * 8, "kv_source_layers": [0, 0, 2, 2, 4, 4, 6, 6]},
            {"cached_layers": 4},
        ),
        # LongCat: with the number of attentions, and with that of the layers, which have two
        ({"architectures": ["LongcatFlashForCausalLM"], "num_layers": 4}, {"cached_layers": 8}),
        ({"layer_types": ["hybrid_sliding"] * 7 + ["hybrid"], "sliding_window": 10}, {"cached_layers": 1}),
        ({"full_attention_layers": [3, 7]}, {"cached_layers": 2, "traits": ("hybrid",)}),
        ({"mixer_types": ["minicpm4", "lightning-attn"]}, {"cached_layers": 4}),
        ({"every_n_layers_global": 4, "sliding_window": 10}, {"cached_layers": 2}),
        (
            {
                "layer_types": ["sliding_attention", "indexed_attention"] * 4,
                "sliding_window_size": 10,
                "kv_lora_rank": 512,
                "swa_kv_lora_rank": 1024,
                "qk_rope_head_dim": 64,
            },
            {"kv_heads": 1, "head_dim": 288, "window_bytes": 4 * 10 * 1088 * 2},
        ),
        ({"local_layer_ids": [0, 1, 2, 4, 5, 6], "sliding_window_size": 10}, {"cached_layers": 2}),
        ({"no_rope_layer_interval": 4, "attention_chunk_size": 10}, {"cached_layers": 2}),
        ({"global_attn_every_n_layers": 4, "sliding_window": 10}, {"cached_layers": 2}),
        # one number a layer
        ({"moe_num_experts": [0, 64, 64], "moe_k": 6}, {"experts": (64, 6)}),
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, {"experts": (8, 2)}),
        ({"num_nextn_predict_layers": 1}, {"mtp_layers": 1}),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, {"bits": 4}),
        ({"quantization_config": {"quant_method": "mxfp4"}}, {"bits": 4}),
        ({"quantization_config": {"quant_method": "fp8"}}, {"bits": 8}),
        ({"quantization_config": {"config_groups": {"g": {"weights": {"num_bits": 4}}}}}, {"bits": 4}),
        # Nemotron 3 by ModelOpt: FP8 beside the experts' 4 bits
        (
            {
                "quantization_config": {
                    "quant_method": "modelopt",
                    "quant_algo": "MIXED_PRECISION",
                    "config_groups": {
                        "group_0": {"weights": {"num_bits": 8, "type": "float"}},
                        "group_1": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}},
                    },
                }
            },
            {"bits": 4, "quantization": "nvfp4"},
        ),
        # MiniMax-M3 by ModelOpt: by layer
        (
            {
                "quantization_config": {
                    "quant_method": "modelopt",
                    "quant_algo": "MIXED_PRECISION",
                    "quantized_layers": {"a": {"quant_algo": "MXFP8"}, "b": {"quant_algo": "NVFP4"}},
                }
            },
            {"quantization": "nvfp4"},
        ),
        # DeepSeek-V4: experts of 4 bits beside the others' 8
        ({"expert_dtype": "fp4", "quantization_config": {"quant_method": "fp8"}}, {"bits": 4}),
        ({"tie_word_embeddings": True}, {"tied": True}),
    ],
)
def test_what_families_say_in_their_own_way(more: dict[str, Any], expected: dict[str, Any]) -> None:
    shape = shape_of({**DENSE, **more}, "org/model")
    assert {name: getattr(shape, name) for name in expected} == expected


def test_of_a_model_that_sees_the_language_part_is_read() -> None:
    shape = shape_of({"text_config": DENSE, "vision_config": {"hidden_size": 9}, "model_type": "vl"}, "org/model")
    assert (shape.hidden, shape.traits) == (64, ("multimodal",))


def test_longcats_layers_have_two_attentions() -> None:
    config = {key: value for key, value in DENSE.items() if key != "num_hidden_layers"}
    longcat = {**config, "architectures": ["LongcatFlashNgramForCausalLM"], "num_layers": 4}
    assert shape_of(longcat, "org/model").cached_layers == 8


def test_an_unknown_mixture_of_layers_is_said() -> None:
    shape = shape_of({**DENSE, "mamba_d_state": 16}, "org/model")
    assert shape.cached_layers == 8
    assert "does not say which" in shape.unsure[0]


@pytest.mark.parametrize(
    "more",
    [
        {"compress_rates": {"heavily_compressed_attention": 128}},
        {"attention_pattern": "LLG"},
        {"expert_choice_k": 2},
        {"linear_attn_config": {"global_layer_every": 4}},
        {"block_configs": [{"attention": {"no_op": True}}]},
        {"cla_factor": 2},
        {"attention_sinks_by_depth": [4, 3, 2, 1, 4, 3, 2, 1]},
        {"hybrid_every": 4},
        {"loop_schedule": [1, 2]},
        {"n_mixture_blocks": 4},
        {"layer_types": ["full_attention"] * 7 + ["hyena"]},
        {"layer_types": ["full_attention"] * 7},
    ],
)
def test_a_key_that_may_be_about_layers_or_experts_and_is_not_known_is_named(more: dict[str, Any]) -> None:
    shape = shape_of({**DENSE, **more}, "org/model")
    (key,) = more
    assert key in shape.unsure[0]
    assert "upper bound" in shape.unsure[0]


def test_layers_that_run_several_times_are_counted_once_and_named() -> None:
    shape = shape_of({**DENSE, "loop_num_passes": 3}, "org/model")
    assert shape.may_be_more
    (sentence,) = shape.unsure
    assert "too little" in sentence


@pytest.mark.parametrize("more", [{"num_experts": 64, "n_activated": 8}, {"ffn_experts": 64, "num_experts_per_tok": 2}])
def test_experts_that_are_known_by_half_are_named(more: dict[str, Any]) -> None:
    shape = shape_of({**DENSE, **more}, "org/model")
    assert shape.experts is None
    assert "experts" in shape.unsure[0]


@pytest.mark.parametrize(
    "more",
    [
        {"layer_norm_eps": 1e-5, "n_group": 8, "topk_group": 4, "num_expert_group": 2, "moe_layer_freq": 1},
        {"first_k_dense_replace": 3, "shared_expert_intermediate_size": 8, "norm_topk_prob": True},
        {"mlp_only_layers": [], "decoder_sparse_step": 1, "attention_window": None, "num_shared_experts": 2},
        {"quantization_config": {"config_groups": {}}, "routed_expert_hidden_size": 8, "no_rope_layers": [1]},
        {"mlp_layer_types": ["dense"] + ["sparse"] * 7, "num_dense_layers": 1, "o_groups": 8, "expert_dtype": "fp4"},
        # Ling 2.6, Step 3.5 and MiniMax-M3
        {"layer_group_size": 4, "group_norm_size": 4, "max_window_layers": 20, "num_kv_heads_for_linear_attn": 32},
        {
            "layer_types": ["full_attention"] * 8,
            "attention_other_setting": {
                "attention_type": "sliding_attention",
                "num_attention_groups": 4,
                "head_dim": 16,
            },
            "swiglu_limits_shared": [0.0, 7.0] * 4,
            "yarn_only_types": ["full_attention"],
            "moe_layers_enum": "2,3,4,5,6,7",
            "share_expert_dims": 1280,
            "moe_num_experts": 288,
            "moe_top_k": 8,
        },
        {
            "sparse_attention_config": {
                "sparse_topk_blocks": 16,
                "sparse_block_size": 128,
                "sparse_attention_freq": [1] * 8,
            }
        },
        # LFM2, Falcon-H1 and others
        {
            "block_multiple_of": 256,
            "block_ff_dim": 12,
            "mamba_n_groups": 2,
            "image_token_index": 7,
            "swa_rotary_base": 5,
        },
        {"index_topk": 2048, "attn_res_block_size": 12, "block_size": 8, "chunk_size": 128, "num_hash_layers": 3},
    ],
)
def test_keys_that_change_neither_cache_nor_bytes_are_not_named(more: dict[str, Any]) -> None:
    assert shape_of({**DENSE, **more}, "org/model").unsure == ()


@pytest.mark.parametrize("value", [None, "64", 0, True, -1, 1.5])
def test_a_missing_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(NoShape) as error:
        shape_of({**DENSE, "hidden_size": value}, "org/model")
    (problem,) = error.value.problems
    assert problem.code == "model-shape-unknown"
    assert "hidden_size" in problem.found
