"""Read a model's shape from its config.json: what the memory plan and the pairing of target and draft need. Pure.

Keys are those of transformers' configurations; older model families have other names for them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.bounded import CONFIG_NUMBER, LAYERS
from ..core.documents import Json
from ..core.errors import DrafthouseError, Problem
from ..core.format import listing
from .layers import Keeps, layer_count, layers_of, not_understood, repeated, window_of

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
    "kv_heads": (
        *("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num"),
        "num_attention_groups",
    ),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": (
        *("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"),
        "model_max_length",
    ),
}
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "head_size", "d_head")
#: Keys of models that have layers with a recurrent state of fixed size (Mamba, Gated DeltaNet and similar).
_STATE_KEYS = ("mamba_d_state", "ssm_cfg", "ssm_state_size", "linear_num_key_heads")
_EXPERTS = (
    *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts", "n_experts"),
    "num_moe_experts",
)
_EXPERTS_USED = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "experts_per_tok", "moe_topk", "moe_k"),
    *("top_k_experts", "moe_top_k", "num_selected_experts", "num_activated_experts", "num_active_experts"),
    *("n_activated_experts", "n_experts_per_tok"),
)
_MTP_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")


_READ = {*itertools.chain(*_KEYS.values()), *_HEAD_DIM, *_EXPERTS, *_EXPERTS_USED, *_MTP_LAYERS}


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
    may_be_more: bool = False  # what was assumed may make the figures too small as well as too large


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
    kept = layers_of(part, layers)
    kv_heads, head_dim = _largest_cache(part, kept, layers)
    model_type = str(part.get("model_type") or config.get("model_type") or "")
    cached_layers = kept.count(Keeps.ALL) if kept else layers
    if "LongcatFlash" in str(config.get("architectures")) and "num_hidden_layers" not in part:
        cached_layers *= 2  # two attentions in each of `num_layers`; `num_hidden_layers` would count them
    return Shape(
        model_type=model_type,
        hidden=hidden,
        layers=layers,
        cached_layers=cached_layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=numbers["vocab"],
        context=numbers["context"],
        window_bytes=_window_bytes(part, kept or []),
        experts=_experts(part),
        mtp_layers=_number_of(part, _MTP_LAYERS) or _number_of(config, _MTP_LAYERS) or 0,
        bits=_bits(config) or _bits(part),
        quantization=_quantization(config) or _quantization(part),
        tied=bool(part.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        traits=_traits(config, part, kept or []),
        unsure=tuple(_assumed(part, kept, layers)),
        may_be_more=bool(repeated(part)),
    )


def _numbers(part: Config, where: str) -> dict[str, int]:
    """The numbers of `_KEYS` that are set; all but the KV heads are required. Raises NoShape."""
    numbers: dict[str, int] = {}
    missing = []
    for name, keys in _KEYS.items():
        value = _number_of(part, keys)
        if value is None and name == "layers":
            value = layer_count(part)
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
                "write the entry manually (profiles/catalog/models.yml has examples)",
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


def _cache_of(part: Config) -> tuple[int, int]:
    """KV heads and their size, so that a layer caches 2 x heads x size values per token."""
    heads = _number_of(part, _KEYS["heads"]) or 1
    size = _number_of(part, _HEAD_DIM) or (_number_of(part, _KEYS["hidden"]) or heads) // heads
    latent = part.get("kv_lora_rank")
    if type(latent) is int:
        # MLA caches one latent vector and a shared rotary key: one "head" of half their size.
        return 1, (latent + (_number_of(part, ("qk_rope_head_dim",)) or 0) + _index_values(part) + 1) // 2
    kv_heads = _number_of(part, _KEYS["kv_heads"])
    if kv_heads is None:
        kv_heads = 1 if part.get("multi_query") is True else heads
    values = part.get("v_head_dim")  # MiMo: values are shorter than keys; the mean is used
    if type(values) is int and values > 0:
        size = (size + values + 1) // 2
    # Gemma 4: the full-attention layers, whose cache grows, have another number and size of KV heads.
    kv_heads = _number_of(part, ("num_global_key_value_heads",)) or kv_heads
    size = _number_of(part, ("global_head_dim",)) or size
    return kv_heads, size + math.ceil(_index_values(part) / (2 * kv_heads))


def _index_values(part: Config) -> int:
    """16-bit values of a token's key for the indexer of sparse attention (DeepSeek-V3.2, GLM-5, MiniMax-M3); 0 without.

    Engines keep it in FP8 with a scale of 4 bytes for 128 values. With `indexer_types` only some layers have one; the
    result is the mean over the layers.
    """
    sparse = part.get("sparse_attention_config")
    size = _number_of(part, ("index_head_dim",))
    if size is None and isinstance(sparse, Mapping):
        size = _number_of(sparse, ("sparse_index_dim",))
    if size is None:
        return 0
    values = (size + math.ceil(size / 128) * 4) / 2
    kinds = part.get("indexer_types")
    if isinstance(kinds, list) and kinds:
        values *= kinds.count("full") / len(kinds)
    return math.ceil(values)


def _layer_config(part: Config, layer: int) -> Config:
    """The configuration of one layer, from 0: the model's, with what `per_layer_config` says of this layer instead."""
    own = part.get("per_layer_config")
    if isinstance(own, Mapping):
        for key in (str(layer), f"{layer:02d}", f"{layer:03d}"):
            if isinstance(changes := own.get(key), Mapping):
                return {**part, **changes}
    return part


def _largest_cache(part: Config, kept: list[Keeps] | None, layers: int) -> tuple[int, int]:
    """The largest KV heads and size (`_cache_of`) among the layers whose cache grows."""
    caches = [_cache_of(part)]
    if isinstance(part.get("per_layer_config"), Mapping):
        growing = [layer for layer in range(layers) if not kept or kept[layer] is Keeps.ALL]
        caches = [_cache_of(_layer_config(part, layer)) for layer in growing] or caches
    return max(caches, key=math.prod)


def _assumed(part: Config, kept: list[Keeps] | None, layers: int) -> Iterator[str]:
    """Yield sentences on what the configuration leaves open; all but the last make the figures too large."""
    if kept is None and window_of(part) and part.get("use_sliding_window", True):
        yield "it has a sliding window but does not say in which layers: all are counted in full, which is too much"
    if kept is None and any(name in part for name in _STATE_KEYS):
        yield "it has layers without a growing cache but does not say which: all are counted, which may be too many"
    if kept and part.get("compress_ratios"):
        yield "its compress_ratios: an entry serves as key and value and is counted as two, which is too much"
    if (_largest_number(part, _EXPERTS) or 0) > 1 and not _largest_number(part, _EXPERTS_USED):
        yield "it has experts but does not say how many a token uses: all are counted as read, which is too much"
    if unread_keys := not_understood(part, layers, _READ):
        yield f"its config.json has {listing(unread_keys)}, which nothing here reads: the figures are upper bounds"
    if runs := repeated(part):
        yield f"its config.json has {listing(runs)}: layers that run again are counted once, which is too little"


def _window_bytes(part: Config, kept: list[Keeps]) -> int:
    """Bytes of the KV cache, in 16 bits, of a sequence in all layers with a sliding window."""
    values = 0
    for layer, keeps in enumerate(kept):
        if keeps is Keeps.WINDOW:
            values += _window_values(_layer_config(part, layer))
    return values * (window_of(part) or 0) * 2


def _window_values(config: Config) -> int:
    """16-bit values per token of a layer with a sliding window, by the layer's configuration."""
    if latent := _number_of(config, ("swa_kv_lora_rank", "kv_lora_rank")):
        return latent + (_number_of(config, ("qk_rope_head_dim",)) or 0)  # an indexer is for full attention
    kv_heads, size = _cache_of(config)
    other = config.get("attention_other_setting")  # Step 3.5: the heads of these layers
    if isinstance(other, Mapping):
        config = {**config, **other}
    heads = _number_of(config, ("swa_num_key_value_heads", *_KEYS["kv_heads"])) or kv_heads
    keys = _number_of(config, ("swa_head_dim", "head_dim")) or size
    return heads * (keys + (_number_of(config, ("swa_v_head_dim",)) or keys))


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
    if config.get("expert_dtype") == "fp4":  # DeepSeek-V4: its `quantization_config` is of the other weights
        return 4
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
    kinds = filter(None, [*map(_group_quantization, _group_weights(quantised)), *_layer_quantizations(quantised)])
    narrowest = min(kinds, key=_is_wide, default=None)
    name: str | None = method
    if method == "compressed-tensors":
        name = _FORMATS.get(str(quantised.get("format"))) or narrowest
    elif algorithm == "mixed_precision" and narrowest:
        name = narrowest
    elif method == "modelopt":
        name = algorithm
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


def _layer_quantizations(quantised: Mapping[str, Json]) -> list[str]:
    """The quantisations that ModelOpt names for layers (`quantized_layers`) if they differ from layer to layer."""
    layers = quantised.get("quantized_layers")
    if not isinstance(layers, Mapping):
        return []
    return [str(layer.get("quant_algo")).lower() for layer in layers.values() if isinstance(layer, Mapping)]


def _is_wide(name: str) -> bool:
    """False for a format of 4 bits; the group with the fewest bits gives the checkpoint its name."""
    return not name.endswith("4")
