"""The tensors of a checkpoint by its configuration, as transformers names and shapes them; headers only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from drafthouse.models.tensor_totals import TensorKind

_BYTES = {"BF16": 2, "U8": 1, "I32": 4, "F32": 4, "F8_E4M3": 1}


def tensor(*shape: int, dtype: str = "BF16") -> TensorKind:
    """One tensor of that shape."""
    return TensorKind(dtype, shape, prod(shape) * _BYTES[dtype])


def llama_like(config: Mapping[str, Any], *, mtp: bool = False) -> dict[str, TensorKind]:
    """The tensors of a dense Llama, Qwen2 or Qwen3 in BF16; with ``mtp`` a head of Qwen's kind too."""
    tensors = dict(_layers(config))
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    tensors["model.embed_tokens.weight"] = tensor(vocab, hidden)
    tensors["model.norm.weight"] = tensor(hidden)
    if not config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = tensor(vocab, hidden)
    if mtp:
        tensors["mtp.fc.weight"] = tensor(hidden, 2 * hidden)
        block = _layers({**config, "num_hidden_layers": 1})
        tensors |= {name.replace("model.", "mtp.", 1): one for name, one in block}
    return tensors


def _layers(config: Mapping[str, Any]) -> Iterator[tuple[str, TensorKind]]:
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    size = config.get("head_dim", hidden // heads)
    for number in range(config["num_hidden_layers"]):
        at = f"model.layers.{number}."
        yield at + "self_attn.q_proj.weight", tensor(heads * size, hidden)
        yield at + "self_attn.k_proj.weight", tensor(kv_heads * size, hidden)
        yield at + "self_attn.v_proj.weight", tensor(kv_heads * size, hidden)
        yield at + "self_attn.o_proj.weight", tensor(hidden, heads * size)
        if str(config.get("model_type")) == "qwen3":
            yield at + "self_attn.q_norm.weight", tensor(size)
            yield at + "self_attn.k_norm.weight", tensor(size)
        yield at + "mlp.gate_proj.weight", tensor(inner, hidden)
        yield at + "mlp.up_proj.weight", tensor(inner, hidden)
        yield at + "mlp.down_proj.weight", tensor(hidden, inner)
        yield at + "input_layernorm.weight", tensor(hidden)
        yield at + "post_attention_layernorm.weight", tensor(hidden)
