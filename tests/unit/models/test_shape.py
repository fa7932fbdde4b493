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
            {"layer_types": ["linear_attention"] * 3 + ["full_attention"]},
            {"cached_layers": 1, "traits": ("hybrid",)},
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
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, {"experts": (8, 2)}),
        ({"num_nextn_predict_layers": 1}, {"mtp_layers": 1}),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, {"bits": 4}),
        ({"quantization_config": {"quant_method": "mxfp4"}}, {"bits": 4}),
        ({"quantization_config": {"quant_method": "fp8"}}, {"bits": 8}),
        ({"quantization_config": {"config_groups": {"g": {"weights": {"num_bits": 4}}}}}, {"bits": 4}),
        ({"tie_word_embeddings": True}, {"tied": True}),
    ],
)
def test_what_families_say_in_their_own_way(more: dict[str, Any], expected: dict[str, Any]) -> None:
    shape = shape_of({**DENSE, **more}, "org/model")
    assert {name: getattr(shape, name) for name in expected} == expected


def test_of_a_model_that_sees_the_language_part_is_read() -> None:
    shape = shape_of({"text_config": DENSE, "vision_config": {"hidden_size": 9}, "model_type": "vl"}, "org/model")
    assert (shape.hidden, shape.traits) == (64, ("multimodal",))


def test_an_unknown_mixture_of_layers_is_said() -> None:
    shape = shape_of({**DENSE, "mamba_d_state": 16}, "org/model")
    assert shape.cached_layers == 8
    assert "does not say which" in shape.unsure[0]


@pytest.mark.parametrize("value", [None, "64", 0, True, -1, 1.5])
def test_a_missing_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(NoShape) as error:
        shape_of({**DENSE, "hidden_size": value}, "org/model")
    (problem,) = error.value.problems
    assert problem.code == "model-shape-unknown"
    assert "hidden_size" in problem.found
