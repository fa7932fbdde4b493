"""A model's shape by its config.json: what the memory plan and the pairing of target and draft need. Pure.

Key names are those of transformers' configurations; older families have their own words for the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.documents import Json
from ..core.errors import DrafthouseError, Problem

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import Trait

Config = Mapping[str, Json]
"""A config.json, whose keys are its family's own."""

#: Parts of a configuration of a model that also sees or hears: the language model's own keys are one level down.
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model", "model_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"),
}
#: Layers that keep a state of one size instead of a cache that grows (Gated DeltaNet, Mamba, and their like).
_STATE_LAYERS = ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "short_conv", "kda", "lightning")
#: What only configurations with such layers have.
_STATE_KEYS = (
    *("hybrid_override_pattern", "full_attention_interval", "attn_layer_period"),
    *("mamba_d_state", "ssm_cfg", "ssm_state_size", "linear_num_key_heads"),
)
#: Layers that keep the last tokens alone.
_SLIDING = "sliding_attention"
_MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")


@dataclass(frozen=True)
class Shape:
    """What a configuration says. ``cached_layers``: those whose KV cache grows with the context.

    ``window_bytes``: what a sequence takes in layers that look back a window, as KV cache in 16 bits.

    ``quantization`` is how the weights are stored, as the catalogue calls it, where that is not their dtype.

    ``experts`` is (all of a layer, those used for a token) of a mixture of experts. ``mtp_layers`` is what the
    configuration claims; only the tensors tell whether the head is there. ``unsure`` says in sentences what this
    reading had to assume.
    """

    model_type: str
    hidden: int
    layers: int
    cached_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    window_bytes: int = 0
    experts: tuple[int, int] | None = None
    mtp_layers: int = 0
    bits: int | None = None
    quantization: str | None = None
    tied: bool = False
    traits: tuple[Trait, ...] = ()
    unsure: tuple[str, ...] = field(default=())


class NoShape(DrafthouseError):
    """A configuration without what the memory plan needs."""


def text_part(config: Config) -> Config:
    """Return the part of a configuration that is about the language model."""
    for name in _TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping):
            return text_part(part)
    return config


def shape_of(config: Config, where: str) -> Shape:
    """Read a target's or draft's config.json. Raises NoShape with every key that is missing."""
    part = text_part(config)
    numbers = {name: _first(part, keys) for name, keys in _NAMES.items()}
    missing = [_NAMES[name][0] for name, value in numbers.items() if value is None and name != "kv_heads"]
    if missing:
        raise NoShape(
            Problem(
                "model-shape-unknown",
                f"a config.json without {', '.join(missing)} (model_type {str(part.get('model_type'))!r})",
                "layers, heads, sizes, vocabulary and context of a language model",
                "write the entry manually (docs/models.md has an example)",
                where,
            )
        )
    hidden, layers, heads = (int(numbers[name] or 0) for name in ("hidden", "layers", "heads"))
    unsure: list[str] = []
    kv_heads, head_dim = _cache_of(part, hidden, heads, numbers["kv_heads"])
    return Shape(
        model_type=str(part.get("model_type") or config.get("model_type") or ""),
        hidden=hidden,
        layers=layers,
        cached_layers=_cached_layers(part, layers, unsure),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=int(numbers["vocab"] or 0),
        context=int(numbers["context"] or 0),
        window_bytes=_window_bytes(part, kv_heads, head_dim),
        experts=_experts(part),
        mtp_layers=_first(part, _MTP_LAYERS) or _first(config, _MTP_LAYERS) or 0,
        bits=_bits(config) or _bits(part),
        quantization=_quantization(config) or _quantization(part),
        tied=bool(part.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        traits=_traits(config, part),
        unsure=tuple(unsure),
    )


def _traits(config: Config, part: Config) -> tuple[Trait, ...]:
    """Return what decides how an engine runs the model, as the catalogue calls it."""
    found: dict[Trait, bool] = {
        "hybrid": any(kind in _STATE_LAYERS for kind in _kinds(part)) or any(part.get(name) for name in _STATE_KEYS),
        "moe": _experts(part) is not None,
        "multimodal": any(isinstance(config.get(name), Mapping) for name in ("vision_config", "audio_config")),
        "sliding-window": _SLIDING in _kinds(part),
    }
    return tuple(trait for trait in found if found[trait])


def _kinds(part: Config) -> list[str]:
    """Return the kind of each layer, where the configuration lists them."""
    kinds = part.get("layer_types") or part.get("layers_block_type")
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else []


def _first(config: Config, names: Iterable[str]) -> int | None:
    for name in names:
        value = config.get(name)
        if type(value) is int and value > 0:
            return value
    return None


def _cache_of(part: Config, hidden: int, heads: int, kv_heads: int | None) -> tuple[int, int]:
    """Return KV heads and their size, such that 2 x heads x size values are what a layer keeps of a token."""
    latent, rope = part.get("kv_lora_rank"), part.get("qk_rope_head_dim")
    if type(latent) is int and type(rope) is int:
        # MLA keeps one latent vector and the shared rotary key, on every device: one "head" of half that size.
        return 1, (latent + rope + 1) // 2
    size = part.get("head_dim")
    if type(size) is not int:
        size = hidden // heads
    if kv_heads is None:
        kv_heads = 1 if part.get("multi_query") is True else heads
    # Gemma 4: its full-attention layers have heads of their own, and theirs is the cache that grows.
    return _first(part, ("num_global_key_value_heads",)) or kv_heads, _first(part, ("global_head_dim",)) or size


def _cached_layers(part: Config, layers: int, unsure: list[str]) -> int:
    """Return how many layers keep keys and values of every token."""
    if kinds := _kinds(part):
        bounded = (*_STATE_LAYERS, "moe", "mlp", *([_SLIDING] if _window(part) else []))
        return sum(kind not in bounded for kind in kinds)
    pattern = part.get("hybrid_override_pattern")  # Nemotron-H: M Mamba, * attention, - feed-forward, E experts
    if isinstance(pattern, str):
        return pattern.count("*")
    interval = part.get("full_attention_interval")
    if type(interval) is int and interval > 0:
        return layers // interval
    period, offset = part.get("attn_layer_period"), part.get("attn_layer_offset", 0)
    if type(period) is int and period > 0 and type(offset) is int:
        return sum(number % period == offset for number in range(layers))
    if _window(part) and part.get("use_sliding_window", True):
        unsure.append(
            "it has a sliding window but does not say in which layers: all are counted in full, which is too much"
        )
    if any(name in part for name in _STATE_KEYS[3:]):
        unsure.append(
            "it has layers without a growing cache but does not say which: all are counted, which is too many"
        )
    return layers


def _window(part: Config) -> int | None:
    return _first(part, ("sliding_window", "sliding_window_size"))


def _window_bytes(part: Config, kv_heads: int, head_dim: int) -> int:
    """Return the bytes of the KV cache, in 16 bits, of the layers that keep a window of tokens."""
    window = _window(part)
    if not window:
        return 0
    heads = _first(part, _NAMES["kv_heads"]) or kv_heads
    size = _first(part, ("head_dim",)) or head_dim
    return _kinds(part).count(_SLIDING) * window * 2 * heads * size * 2


def _experts(part: Config) -> tuple[int, int] | None:
    count = _first(part, ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"))
    used = _first(part, ("num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k", "top_k_experts"))
    return (count, used) if count and used and count > used else None


def _bits(config: Config) -> int | None:
    """Return the bits of a quantised weight, None where the weights are as their dtype says."""
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return None
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    if method in ("mxfp4", "nvfp4"):
        return 4
    for name in ("bits", "w_bit", "num_bits"):
        if type(quantised.get(name)) is int:
            return int(str(quantised[name]))
    groups = quantised.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping) and type(weights.get("num_bits")) is int:
            return int(str(weights["num_bits"]))
    return 8 if method.startswith("fp8") else None


#: compressed-tensors' word for how values are packed -> the catalogue's.
_FORMATS = {"nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4", "int-quantized": "int8"}


def _quantization(config: Config) -> str | None:
    """Return how the weights are stored: ``nvfp4``, ``fp8-block``, ``gptq``, ...; None for their dtype's own form."""
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return None
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    groups = quantised.get("config_groups")
    kinds = [_of_group(group) for group in groups.values()] if isinstance(groups, Mapping) else []
    if method == "compressed-tensors":
        name = _FORMATS.get(str(quantised.get("format"))) or min(filter(None, kinds), key=_narrow, default=None)
    elif method == "modelopt":
        name = str(quantised.get("quant_algo") or "").lower()
    else:
        name = "fp8-block" if method == "fp8" and quantised.get("weight_block_size") else method
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or None if name else None


def _of_group(group: Json) -> str | None:
    """Return what a group of compressed-tensors does with its weights."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float" and bits == 4:
        return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
    if kind == "float" and bits == 8:
        return "fp8-block" if weights.get("strategy") == "block" else "fp8"
    return f"{kind}{bits}" if kind and bits else None


def _narrow(name: str) -> bool:
    """Of several groups the one with fewer bits gives the checkpoint its name."""
    return not name.endswith("4")
