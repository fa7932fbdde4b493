"""Convert the keys of a GGUF file into a configuration with transformers' keys. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.models.shape import Config
    from drafthouse.weights.gguf_header import GgufHead

#: GGUF's key, without the architecture before it, by transformers' key
#: (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
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

#: transformers' word for a layer with KV heads, and for one without.
_ATTENTION = {True: "full_attention", False: "linear_attention"}


def config_of_gguf(head: GgufHead) -> tuple[Config, str | None]:
    """The configuration, and the sha256 of the vocabulary (its tokens in order), None without a vocabulary."""
    keys = head.keys
    family = str(keys.get("general.architecture"))
    config: dict[str, str | int | list[str]] = {"model_type": family}
    for name, gguf_key in _KEYS.items():
        value = keys.get(f"{family}.{gguf_key}")
        if isinstance(value, list):  # a number of KV heads per layer; 0 for a layer without attention
            counts = [count for count in value if isinstance(count, int)]
            config["layer_types"] = [_ATTENTION[bool(count)] for count in counts]
            value = max(counts, default=None)
        if value is not None:
            config[name] = value
    head_layers = config.get("num_nextn_predict_layers")
    if isinstance(head_layers, int) and isinstance(keys.get(f"{family}.block_count"), int):
        # block_count includes the MTP head's blocks.
        layers = config["num_hidden_layers"] = _integer(keys[f"{family}.block_count"]) - head_layers
        if isinstance(layer_types := config.get("layer_types"), list):
            config["layer_types"] = layer_types[:layers]
    if f"{family}.attention.key_length_mla" in keys:
        # MLA caches one latent vector per token; the head count and length do not describe the cache.
        config["qk_rope_head_dim"] = _integer(keys.get(f"{family}.rope.dimension_count"))
    else:
        # A file of before llama.cpp's latent cache: it caches whole keys and values of ``head_dim``.
        config.pop("kv_lora_rank", None)
    tokens = keys.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        return config, None
    config.setdefault("vocab_size", len(tokens))
    return config, hashlib.sha256("\0".join(map(str, tokens)).encode()).hexdigest()


def _integer(value: object) -> int:
    """A key's whole number; 0 for any other value."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value
