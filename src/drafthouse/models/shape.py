"""A model's shape by its config.json: what the memory plan and the pairing of target and draft need. Pure.

Key names are those of transformers' configurations; older families have their own words for the same thing.
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
#: What only configurations of layers with a state of one size have (Mamba, Gated DeltaNet, and their like).
_STATE_KEYS = ("mamba_d_state", "ssm_cfg", "ssm_state_size", "linear_num_key_heads")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
_EXPERTS_USED = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "experts_per_tok", "moe_topk", "moe_k"),
    *("top_k_experts", "moe_top_k", "num_selected_experts", "num_activated_experts"),
)
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
    """The part of a configuration that is about the language model."""
    for name in _TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping):
            return text_part(part)
    return config


def shape_of(config: Config, where: str) -> Shape:
    """Read a target's or draft's config.json. Raises NoShape with every key that is missing."""
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
        mtp_layers=_first(part, _MTP_LAYERS) or _first(config, _MTP_LAYERS) or 0,
        bits=_bits(config) or _bits(part),
        quantization=_quantization(config) or _quantization(part),
        tied=bool(part.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        traits=_traits(config, part, kept or []),
        unsure=tuple(_assumed(part, kept)),
    )


def _numbers(part: Config, where: str) -> dict[str, int]:
    """What `_NAMES` has, without what is not there; all but the KV heads must be. Raises NoShape."""
    numbers: dict[str, int] = {}
    missing = []
    for name, keys in _NAMES.items():
        value = _first(part, keys)
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
    """What decides how an engine runs the model, as the catalogue calls it."""
    found: dict[Trait, bool] = {
        "hybrid": Keeps.STATE in kept or any(map(part.get, _STATE_KEYS)),
        "moe": _experts(part) is not None,
        "multimodal": isinstance(config.get("vision_config"), Mapping)
        or isinstance(config.get("audio_config"), Mapping),
        "sliding-window": Keeps.WINDOW in kept,
    }
    return tuple(trait for trait in found if found[trait])


def _first(config: Config, names: Iterable[str]) -> int | None:
    for name in names:
        value = config.get(name)
        if type(value) is int and 0 < value <= CONFIG_NUMBER:
            return value
    return None


def _cache_of(part: Config, hidden: int, heads: int, kv_heads: int | None) -> tuple[int, int]:
    """KV heads and their size, such that 2 x heads x size values are what a layer keeps of a token."""
    latent, rope = part.get("kv_lora_rank"), part.get("qk_rope_head_dim")
    if type(latent) is int and type(rope) is int:
        # MLA keeps one latent vector and the shared rotary key, on every device: one "head" of half that size.
        return 1, (latent + rope + 1) // 2
    size = part.get("head_dim")
    if type(size) is not int:
        size = hidden // heads
    if kv_heads is None:
        kv_heads = 1 if part.get("multi_query") is True else heads
    values = part.get("v_head_dim")  # MiMo: shorter than the keys; both are cached
    if type(values) is int and values > 0:
        size = (size + values + 1) // 2
    # Gemma 4: its full-attention layers have heads of their own, and theirs is the cache that grows.
    return _first(part, ("num_global_key_value_heads",)) or kv_heads, _first(part, ("global_head_dim",)) or size


def _assumed(part: Config, kept: list[Keeps] | None) -> Iterator[str]:
    """Yield in sentences what the configuration leaves open; all of it makes the figures too large."""
    if kept is None and window_of(part) and part.get("use_sliding_window", True):
        yield "it has a sliding window but does not say in which layers: all are counted in full, which is too much"
    if kept is None and any(name in part for name in _STATE_KEYS):
        yield "it has layers without a growing cache but does not say which: all are counted, which is too many"
    if unknown := not_understood(part):
        yield f"its config.json has {listing(unknown)}, which nothing here reads: the figures are upper bounds"


def _window_bytes(part: Config, kept: list[Keeps] | None, kv_heads: int, head_dim: int) -> int:
    """The bytes of the KV cache, in 16 bits, of the layers that keep a window of tokens."""
    layers = kept.count(Keeps.WINDOW) if kept else 0
    heads = _first(part, ("swa_num_key_value_heads", *_NAMES["kv_heads"])) or kv_heads
    keys = _first(part, ("swa_head_dim", "head_dim")) or head_dim
    values = _first(part, ("swa_v_head_dim",)) or keys
    return layers * (window_of(part) or 0) * heads * (keys + values) * 2


def _experts(part: Config) -> tuple[int, int] | None:
    count, used = _most(part, _EXPERTS), _most(part, _EXPERTS_USED)
    if not count or not used or count <= used:
        return None
    return count, used


def _most(part: Config, names: Iterable[str]) -> int | None:
    """A number, or the largest of a list with one for each layer."""
    for name in names:
        value = part.get(name)
        if isinstance(value, list):
            value = max((one for one in value if type(one) is int), default=None)
        if found := _first({name: value}, (name,)):
            return found
    return None


def _bits(config: Config) -> int | None:
    """The bits of a quantised weight, None where the weights are as their dtype says.

    Of several groups those of the fewest bits: they hold the experts, and nearly all weights.
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
    widths = [_first(weights, ("num_bits",)) for weights in _groups(quantised)]
    fewest = min(filter(None, widths), default=None)
    if fewest is None and method.startswith("fp8"):
        return 8
    return fewest


def _groups(quantised: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """What each group of a quantisation does with its weights."""
    groups = quantised.get("config_groups")
    if not isinstance(groups, Mapping):
        return []
    found = []
    for group in groups.values():
        if isinstance(group, Mapping) and isinstance(weights := group.get("weights"), Mapping):
            found.append(weights)
    return found


#: compressed-tensors' word for how values are packed -> the catalogue's.
_FORMATS = {"nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4", "int-quantized": "int8"}


def _quantization(config: Config) -> str | None:
    """How the weights are stored: ``nvfp4``, ``fp8-block``, ``gptq``, ...; None for their dtype's own form."""
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return None
    method = str(quantised.get("quant_method") or quantised.get("quant_algo") or "").lower()
    algorithm = str(quantised.get("quant_algo") or "").lower()
    kinds = filter(None, map(_of_group, _groups(quantised)))
    narrowest = min(kinds, key=_narrow, default=None)
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


def _of_group(weights: Mapping[str, Json]) -> str | None:
    """How a group's weights are stored."""
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float" and bits == 4:
        return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
    if kind == "float" and bits == 8:
        return "fp8-block" if weights.get("strategy") == "block" else "fp8"
    if not kind or not bits:
        return None
    return f"{kind}{bits}"


def _narrow(name: str) -> bool:
    """Of several groups the one with fewer bits gives the checkpoint its name."""
    return not name.endswith("4")
