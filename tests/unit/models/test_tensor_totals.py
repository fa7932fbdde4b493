"""What tensors add up to, against the catalogue's own figures and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.models.shape import shape_of
from drafthouse.models.tensor_totals import TensorKind, head_tensors, totals_of
from tests.support.checkpoints import llama_like, tensor

LITTLE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 10, "max_position_embeddings": 100,
}  # fmt: skip


def test_a_token_reads_all_but_the_embedding() -> None:
    tensors = llama_like(LITTLE)
    every = sum(one.size for one in tensors.values())
    assert totals_of(tensors, shape_of(LITTLE, "")).read == every - 10 * 8 * 2
    tied = {**LITTLE, "tie_word_embeddings": True}
    assert totals_of(llama_like(tied), shape_of(tied, "")).read == every - 10 * 8 * 2


def test_of_experts_a_token_reads_those_it_uses_and_what_all_share() -> None:
    shape = shape_of({**LITTLE, "num_experts": 8, "num_experts_per_tok": 2}, "")
    routed = {f"model.layers.0.mlp.experts.{number}.up_proj.weight": tensor(10, 10) for number in range(8)}
    shared = {"model.layers.0.mlp.shared_expert.up_proj.weight": tensor(10, 10)}
    assert totals_of({**routed, **shared}, shape).read == 2 * 200 + 200


@pytest.mark.parametrize("name", ["block_sparse_moe.input_linear.weight", "moe.up_proj.weight"])
def test_experts_in_one_tensor_are_known_by_its_first_dimension(name: str) -> None:
    """Granite 4 and Step 3.5, whose names do not say it; 8 is no expert where the model has 16."""
    stacked = {f"model.layers.0.{name}": tensor(8, 10, 10)}
    for count, read in ((8, 2 * 200), (16, 8 * 200)):
        shape = shape_of({**LITTLE, "num_experts": count, "num_experts_per_tok": 2}, "")
        assert totals_of(stacked, shape).read == read


def test_of_tables_a_token_reads_a_row() -> None:
    names = ["language_model.embed_tokens_per_layer", "ngram_embeddings.embedders.3", "ple.1.ngram_embedding", "embed"]
    tensors = {f"model.{name}.weight": tensor(10, 10) for name in names} | {"head.weight": tensor(5, 5)}
    assert totals_of(tensors, shape_of(LITTLE, "")).read == 50


def test_packed_weights_are_counted_and_their_scales_are_not() -> None:
    shape = shape_of({**LITTLE, "quantization_config": {"quant_method": "gptq", "bits": 4}}, "")
    tensors = {
        "model.layers.0.mlp.up_proj.qweight": tensor(8, 16, dtype="I32"),
        "model.layers.0.mlp.up_proj.scales": tensor(1, 16),
        "model.layers.0.mlp.up_proj.g_idx": tensor(64, dtype="I32"),
    }
    assert totals_of(tensors, shape).parameters == 8 * 16 * 8


def test_an_image_is_no_token() -> None:
    towers = ("visual", "model.vision_tower", "vision_encoder", "audio_encoder.layers", "multi_modal_projector")
    tensors = {f"{tower}.0.weight": tensor(10, 10) for tower in towers}
    tensors["model.layers.0.mlp.up_proj.weight"] = tensor(5, 5)
    totals = totals_of(tensors, shape_of(LITTLE, ""))
    assert (totals.read, totals.parameters) == (50, 525)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"], 2),
        (["model.mtp_layers.0.input_proj.weight"], 1),
        # DeepSeek and GLM: a layer behind the last one
        (["model.layers.2.eh_proj.weight", "model.layers.2.self_attn.q_proj.weight", "model.layers.1.norm.weight"], 2),
        # a layer behind the last one that is no head of theirs
        (["model.layers.2.self_attn.q_proj.weight"], 0),
        (["model.layers.1.eh_proj.weight"], 0),
    ],
)
def test_a_head_inside_is_found_by_its_names(names: list[str], found: int) -> None:
    tensors: dict[str, TensorKind] = {name: tensor(2, 2) for name in names}
    assert len(head_tensors(tensors, shape_of(LITTLE, ""))) == found


def test_the_heads_bytes_are_told_apart() -> None:
    with_head, without = llama_like(LITTLE, mtp=True), llama_like(LITTLE)
    shape = shape_of(LITTLE, "")
    assert totals_of(with_head, shape).read == totals_of(without, shape).read
    extra = sum(one.size for one in with_head.values()) - sum(one.size for one in without.values())
    assert totals_of(with_head, shape).head == extra
