"""Read a model's shape from its config.json: what the memory plan and the pairing of target and draft need. Pure.

Keys are those of transformers' configurations; older model families have other names for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.bounded import CONFIG_NUMBER, LAYERS
from ..core.documents import Json
from ..core.errors import DrafthouseError, Problem
from ..core.format import listing
from .layers import Keeps, layers_of, not_understood, window_of

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import Trait

Config = Mapping[str, Json]
"""The content of a config.json."""

#: Keys of a multimodal model's configuration that contain the configuration of its language model.
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "model_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"),
}
#: Keys of models that have layers with a recurrent state of fixed size (Mamba, Gated DeltaNet and similar).
_STATE_KEYS = ("mamba_d_state", "ssm_cfg", "ssm_state_size", "linear_num_key_heads")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
_EXPERTS_USED = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "experts_per_tok", "moe_topk", "moe_k"),
    *("top_k_experts", "moe_top_k", "num_selected_experts", "num_activated_experts"),
)
_MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")


@dataclass(frozen=True)
class Shape:
    """A model's shape, as its configuration describes it."""

    model_type: str
    hidden: int  # values of a token's hidden state
    layers: int
    cached_layers: int  # layers whose KV cache grows with the context
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int  # tokens of the vocabulary
    context: int  # tokens
    window_bytes: int = 0  # KV cache of a sequence, in 16 bits, in all layers with a sliding window
    experts: tuple[int, int] | None = None  # experts of a layer, and those used for a token; None if dense
    mtp_layers: int = 0  # layers of an MTP head; the checkpoint may lack their tensors
    bits: int | None = None  # per weight; None if the weights are not quantised
    quantization: str | None = None  # the catalogue's name; None if the weights are not quantised
    tied: bool = False  # the output layer shares the embedding's weights
    traits: tuple[Trait, ...] = ()
    unsure: tuple[str, ...] = field(default=())  # sentences for the user on what was assumed


class NoShape(DrafthouseError):
    """Error for a configuration that lacks keys which the memory plan needs."""


def text_part(config: Config) -> Config:
    """The configuration of the language model: a part of a multimodal model's, else all of it."""
    for name in _TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping):
            return text_part(part)
    return config


def shape_of(config: Config, where: str) -> Shape:
    """The shape of a target or draft by its config.json, whose path is ``where``. Raises NoShape with missing keys."""
    part = text_part(config)
    numbers = _numbers(part, where)
    hidden, layers, heads = numbers["hidden"], numbers["layers"], numbers["heads"]
    kv_heads, head_dim = _cache_of(part, hidden, heads, numbers.get("kv_heads"))
    kept = layers_of(part, layers)
    return Shape(
        model_type=str(part.get("model_type") or config.get("model_type") or ""),
        hidden=hidden,
        layers=layers,
        cached_layers=kept.count(Keeps.ALL) if kept else layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=numbers["vocab"],
        context=numbers["context"],
        window_bytes=_window_bytes(part, kept, kv_heads, head_dim),
        experts=_experts(part),
        mtp_layers=_number_of(part, _MTP_LAYERS) or _number_of(config, _MTP_LAYERS) or 0,
        bits=_bits(config) or _bits(part),
        quantization=_quantization(config) or _quantization(part),
        tied=bool(part.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        traits=_traits(config, part, kept or []),
        unsure=tuple(_assumed(part, kept)),
    )


def _numbers(part: Config, where: str) -> dict[str, int]:
    """The numbers of `_KEYS` that are set; all but the KV heads are required. Raises NoShape."""
    numbers: dict[str, int] = {}
    missing = []
    for name, keys in _KEYS.items():
        value = _number_of(part, keys)
        if value and (name != "layers" or value <= LAYERS):
            numbers[name] = value
        elif name != "kv_heads":
            missing.append(keys[0])
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
    return numbers


def _traits(config: Config, part: Config, kept: list[Keeps]) -> tuple[Trait, ...]:
    """The catalogue's names for features that decide how an engine runs the model."""
    has_trait: dict[Trait, bool] = {
        "hybrid": Keeps.STATE in kept or any(map(part.get, _STATE_KEYS)),
        "moe": _experts(part) is not None,
        "multimodal": isinstance(config.get("vision_config"), Mapping)
        or isinstance(config.get("audio_config"), Mapping),
        "sliding-window": Keeps.WINDOW in kept,
    }
    return tuple(trait for trait in has_trait if has_trait[trait])


def _number_of(config: Config, names: Iterable[str]) -> int | None:
    for name in names:
        value = config.get(name)
        if type(value) is int and 0 < value <= CONFIG_NUMBER:
            return value
    return None


def _cache_of(part: Config, hidden: int, heads: int, kv_heads: int | None) -> tuple[int, int]:
    """KV heads and their size, so that a layer caches 2 x heads x size values per token."""
    latent, rope = part.get("kv_lora_rank"), part.get("qk_rope_head_dim")
    if type(latent) is int and type(rope) is int:
        # MLA caches one latent vector and a shared rotary key: one "head" of half their size.
        return 1, (latent + rope + 1) // 2
    size = part.get("head_dim")
    if type(size) is not int:
        size = hidden // heads
    if kv_heads is None:
        kv_heads = 1 if part.get("multi_query") is True else heads
    values = part.get("v_head_dim")  # MiMo: values are shorter than keys; the mean is used
    if type(values) is int and values > 0:
        size = (size + values + 1) // 2
    # Gemma 4: the full-attention layers, whose cache grows, have another number and size of KV heads.
    return _number_of(part, ("num_global_key_value_heads",)) or kv_heads, _number_of(part, ("global_head_dim",)) or size


def _assumed(part: Config, kept: list[Keeps] | None) -> Iterator[str]:
    """Yield sentences on what the configuration leaves open; each of these makes the figures too large."""
    if kept is None and window_of(part) and part.get("use_sliding_window", True):
        yield "it has a sliding window but does not say in which layers: all are counted in full, which is too much"
    if kept is None and any(name in part for name in _STATE_KEYS):
        yield "it has layers without a growing cache but does not say which: all are counted, which is too many"
    if unread_keys := not_understood(part):
        yield f"its config.json has {listing(unread_keys)}, which nothing here reads: the figures are upper bounds"


def _window_bytes(part: Config, kept: list[Keeps] | None, kv_heads: int, head_dim: int) -> int:
    """Bytes of the KV cache, in 16 bits, of a sequence in all layers with a sliding window."""
    layers = kept.count(Keeps.WINDOW) if kept else 0
    heads = _number_of(part, ("swa_num_key_value_heads", *_KEYS["kv_heads"])) or kv_heads
    keys = _number_of(part, ("swa_head_dim", "head_dim")) or head_dim
    values = _number_of(part, ("swa_v_head_dim",)) or keys
    return layers * (window_of(part) or 0) * heads * (keys + values) * 2


def _experts(part: Config) -> tuple[int, int] | None:
    count, used = _largest_number(part, _EXPERTS), _largest_number(part, _EXPERTS_USED)
    if not count or not used or count <= used:
        return None
    return count, used


def _largest_number(part: Config, names: Iterable[str]) -> int | None:
    """The first of the keys ``names`` with a number, or with a list of numbers per layer, of which the largest."""
    for name in names:
        value = part.get(name)
        if isinstance(value, list):
            value = max((number for number in value if type(number) is int), default=None)
        if largest := _number_of({name: value}, (name,)):
            return largest
    return None


def _bits(config: Config) -> int | None:
    """Bits per quantised weight; None if the weights are not quantised or the configuration does not say.

    With several groups of weights it is the fewest bits: that group has the experts, and so most weights.
    """
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return None
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    if method in ("mxfp4", "nvfp4"):
        return 4
    for name in ("bits", "w_bit", "num_bits"):
        if type(quantised.get(name)) is int:
            return int(str(quantised[name]))
    widths = [_number_of(weights, ("num_bits",)) for weights in _group_weights(quantised)]
    fewest = min(filter(None, widths), default=None)
    if fewest is None and method.startswith("fp8"):
        return 8
    return fewest


def _group_weights(quantised: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """The settings for weights of each group of a quantisation (compressed-tensors' `config_groups`)."""
    groups = quantised.get("config_groups")
    if not isinstance(groups, Mapping):
        return []
    weights_of_groups = []
    for group in groups.values():
        if isinstance(group, Mapping) and isinstance(weights := group.get("weights"), Mapping):
            weights_of_groups.append(weights)
    return weights_of_groups


#: The catalogue's quantization by compressed-tensors' name of the packing.
_FORMATS = {"nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4", "int-quantized": "int8"}


def _quantization(config: Config) -> str | None:
    """The quantisation of the weights: ``nvfp4``, ``fp8-block``, ``gptq``, ...; None if there is none."""
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return None
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    algorithm = str(quantised.get("quant_algo") or "").lower()
    kinds = filter(None, map(_group_quantization, _group_weights(quantised)))
    narrowest = min(kinds, key=_is_wide, default=None)
    name: str | None = method
    if method == "compressed-tensors":
        name = _FORMATS.get(str(quantised.get("format"))) or narrowest
    elif method == "modelopt":
        name = algorithm
        if algorithm == "mixed_precision" and narrowest:
            name = narrowest
    elif method == "fp8" and quantised.get("weight_block_size"):
        name = "fp8-block"
    if not name:
        return None
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-") or None


def _group_quantization(weights: Mapping[str, Json]) -> str | None:
    """The quantisation of a group's weights; None if its settings do not say it."""
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float" and bits == 4:
        return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
    if kind == "float" and bits == 8:
        return "fp8-block" if weights.get("strategy") == "block" else "fp8"
    if not kind or not bits:
        return None
    return f"{kind}{bits}"


def _is_wide(name: str) -> bool:
    """False for a format of 4 bits; the group with the fewest bits gives the checkpoint its name."""
    return not name.endswith("4")
