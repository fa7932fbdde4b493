"""A GGUF file's keys as the configuration that transformers would have for the same model. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.models.shape import Config
    from drafthouse.weights.gguf_header import GgufHead

#: transformers' key -> the end of GGUF's (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
_KEYS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length",
    "vocab_size": "vocab_size",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "num_nextn_predict_layers": "nextn_predict_layers",
    "kv_lora_rank": "attention.kv_lora_rank",
    "full_attention_interval": "full_attention_interval",
}


#: A layer's kind in transformers' words, by whether it has KV heads.
_ATTENTION = {True: "full_attention", False: "linear_attention"}


def config_of_gguf(head: GgufHead) -> tuple[Config, str | None]:
    """The configuration, and the sha256 of the vocabulary (its texts in their order)."""
    keys = head.keys
    family = str(keys.get("general.architecture"))
    config: dict[str, str | int | list[str]] = {"model_type": family}
    for name, end in _KEYS.items():
        value = keys.get(f"{family}.{end}")
        if isinstance(value, list):  # one for each layer; 0 where a layer has no attention
            counts = [count for count in value if isinstance(count, int)]
            config["layer_types"] = [_ATTENTION[bool(count)] for count in counts]
            value = max(counts, default=None)
        if value is not None:
            config[name] = value
    inside = config.get("num_nextn_predict_layers")
    if isinstance(inside, int) and isinstance(keys.get(f"{family}.block_count"), int):
        # block_count counts the head's own blocks too.
        layers = config["num_hidden_layers"] = _whole(keys[f"{family}.block_count"]) - inside
        if isinstance(kinds := config.get("layer_types"), list):
            config["layer_types"] = kinds[:layers]
    if f"{family}.attention.key_length_mla" in keys:
        # One latent vector a token is cached; what the head count and length say is how attention runs over it.
        config["qk_rope_head_dim"] = _whole(keys.get(f"{family}.rope.dimension_count"))
    tokens = keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return config, None
    config.setdefault("vocab_size", len(tokens))
    return config, hashlib.sha256("\0".join(map(str, tokens)).encode()).hexdigest()


def _whole(value: object) -> int:
    """A key's whole number, 0 where it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value
