"""What each layer of a model caches (KV cache, window, recurrent state or nothing), by its config.json. Pure.

Model families write this differently: a list of names, a list of numbers, every n-th layer, a text with a letter per
layer. `_FORMS` has the keys and their readers. Without any of these keys every layer has full attention.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.models.shape import Config


class Keeps(Enum):
    """What a layer caches of earlier tokens."""

    ALL = "a KV cache that grows with the context"
    WINDOW = "the last tokens"
    STATE = "a state of one size"
    NOTHING = "nothing"


#: A function of a key's value, the configuration and the number of layers: what each layer keeps, None if unreadable.
Reader = Callable[[object, "Config", int], list[Keeps] | None]
#: What a layer keeps, by its word in `layer_types` and older keys; any other word is counted as full attention, and
#: named (`not_understood`). A hybrid layer has attention beside a state of fixed size (Falcon-H1, Zamba 2, ZAYA1).
_WORDS = {
    **dict.fromkeys(
        (
            *("full_attention", "attention", "global", "global_attention", "full", "hybrid", "indexed_attention"),
            *("deepseek_sparse_attention", "minimax_m3_sparse"),
        ),
        Keeps.ALL,
    ),
    **dict.fromkeys(
        ("sliding_attention", "chunked_attention", "local", "local_attention", "swa", "hybrid_sliding"), Keeps.WINDOW
    ),
    **dict.fromkeys(
        (
            *(
                "linear_attention",
                "mamba",
                "mamba2",
                "recurrent",
                "conv",
                "short_conv",
                "kda",
                "lightning",
                "lightning-attn",
            ),
            *("gated_deltanet", "rwkv", "ssm", "linear"),
        ),
        Keeps.STATE,
    ),
    **dict.fromkeys(("moe", "mlp", "ffn", "feed_forward"), Keeps.NOTHING),
}
#: Nemotron-H's letters: M Mamba, * attention, - feed-forward, E experts.
_LETTERS = {"M": Keeps.STATE, "*": Keeps.ALL, "-": Keeps.NOTHING, "E": Keeps.NOTHING}

_WINDOWS = ("sliding_window", "sliding_window_size", "attention_window_size", "window_size", "attention_chunk_size")


def layers_of(config: Config, count: int) -> list[Keeps] | None:
    """What each of ``count`` layers keeps; None if the configuration has no readable key for it."""
    kept = None
    for key, read in _FORMS:
        if (value := config.get(key)) is not None and (kept := read(value, config, count)):
            break
    if kept is None:
        return None
    # The layers of an MTP head may stand after the model's own (Step 3.5, DeepSeek-V4).
    kept = kept[:count] + [Keeps.ALL] * (count - len(kept))
    shared = config.get("num_kv_shared_layers")  # Gemma 3n: the last layers use an earlier layer's cache
    if type(shared) is int and 0 < shared < len(kept):
        kept = kept[:-shared] + [Keeps.NOTHING] * shared
    for layer, source in enumerate((_integer_list(config.get("kv_source_layers")) or [])[:count]):
        if source != layer:  # Mistral Large 4: this layer reads the cache of the layer ``source``
            kept[layer] = Keeps.NOTHING
    if window_of(config) is None:
        return [Keeps.ALL if layer_keeps is Keeps.WINDOW else layer_keeps for layer_keeps in kept]
    return kept


def layer_count(config: Config) -> int | None:
    """The number of layers by a list with one entry each (Nemotron 3 Ultra has nothing else); None without one."""
    for key in _BY_LAYER:
        value = config.get(key)
        if isinstance(value, (list, str)) and value:
            return len(value)
    return None


def window_of(config: Config) -> int | None:
    """The window of sliding-window attention, in tokens; None without one."""
    for key in _WINDOWS:
        value = config.get(key)
        if type(value) is int and value > 0:
            return value
    return None


# --- readers of the families' keys ------------------------------------------------------------------------


def _from_words(value: object, config: Config, count: int) -> list[Keeps] | None:
    if not isinstance(value, list) or not value:
        return None
    return [_WORDS.get(str(word), Keeps.ALL) for word in value]


def _from_repeated_words(value: object, config: Config, count: int) -> list[Keeps] | None:
    """RecurrentGemma: a few words, repeated over all layers."""
    pattern = _from_words(value, config, count)
    if not pattern:
        return None
    return [pattern[layer % len(pattern)] for layer in range(count)]


def _from_letters(value: object, config: Config, count: int) -> list[Keeps] | None:
    if not isinstance(value, str) or not value:
        return None
    return [_LETTERS.get(letter, Keeps.NOTHING) for letter in value]


def _from_linear_layers(value: object, config: Config, count: int) -> list[Keeps] | None:
    """Kimi Linear: the numbers of the layers with Kimi Delta Attention, from 1."""
    if not isinstance(value, Mapping):
        return None
    full, linear = _integer_list(value.get("full_attn_layers")), _integer_list(value.get("kda_layers"))
    if full is None and linear is None:
        return None
    if linear is not None:
        return _split_by_numbers(linear, count, Keeps.STATE, Keeps.ALL, first=1)
    return _split_by_numbers(full or [], count, Keeps.ALL, Keeps.STATE, first=1)


def _by_number(code: int, keeps: Keeps) -> Reader:
    """The reader of a list with a number per layer: ``code`` means ``keeps``, any other number full attention."""

    def read(value: object, config: Config, count: int) -> list[Keeps] | None:
        numbers = _integer_list(value)
        return _split(len(numbers), lambda layer: numbers[layer] == code, keeps, Keeps.ALL) if numbers else None

    return read


def _every(others: Keeps) -> Reader:
    """The reader of a number n: every n-th layer has full attention, the other layers keep ``others``."""

    def read(value: object, config: Config, count: int) -> list[Keeps] | None:
        if type(value) is not int or value < 1:
            return None
        return _split(count, lambda layer: (layer + 1) % value == 0, Keeps.ALL, others)

    return read


def _period(value: object, config: Config, count: int) -> list[Keeps] | None:
    """Jamba: full attention in every ``value``-th layer, from the layer `attn_layer_offset` on."""
    offset = config.get("attn_layer_offset", 0)
    if type(value) is not int or value < 1 or type(offset) is not int:
        return None
    return _split(count, lambda layer: layer % value == offset, Keeps.ALL, Keeps.STATE)


def _full_layers(value: object, config: Config, count: int) -> list[Keeps] | None:
    """Bamba, LFM2, Zamba: the numbers of the layers with attention, from 0."""
    numbers = _integer_list(value)
    return _split_by_numbers(numbers, count, Keeps.ALL, Keeps.STATE, first=0) if numbers else None


def _local_layers(value: object, config: Config, count: int) -> list[Keeps] | None:
    """Inkling: the numbers of the layers with a window, from 0."""
    numbers = _integer_list(value)
    return _split_by_numbers(numbers, count, Keeps.WINDOW, Keeps.ALL, first=0) if numbers else None


def _window_layers(value: object, config: Config, count: int) -> list[Keeps] | None:
    """Qwen 2: with `use_sliding_window` the first ``value`` layers have full attention, the others a window."""
    if type(value) is not int or config.get("use_sliding_window") is not True:
        return None
    return _split(count, lambda layer: layer < value, Keeps.ALL, Keeps.WINDOW)


def _compressed(value: object, config: Config, count: int) -> list[Keeps] | None:
    """DeepSeek-V4: a layer keeps a window and, with a ratio r, one entry for r tokens; ratio 0 is the window alone.

    Many such layers hold as much as a few with full attention. Only their number counts in a memory plan, so those few
    stand first. An entry serves as key and value, which is counted as two: the result is an upper bound.
    """
    ratios = _integer_list(value)
    if not ratios:
        return None
    full = math.ceil(sum(1 / ratio for ratio in ratios[:count] if ratio > 0))
    return _split(count, lambda layer: layer < full, Keeps.ALL, Keeps.WINDOW)


#: Keys with a word or letter for each layer.
_BY_LAYER = ("layer_types", "layers_block_type", "hybrid_override_pattern")
#: Keys with their readers; the first key that can be read decides.
_FORMS: tuple[tuple[str, Reader], ...] = (
    ("layer_types", _from_words),
    ("layers_block_type", _from_words),
    ("layer_types_with_mtp", _from_words),
    ("mixer_types", _from_repeated_words),  # MiniCPM
    ("block_types", _from_repeated_words),
    ("_block_types", _from_repeated_words),
    ("hybrid_override_pattern", _from_letters),
    ("linear_attn_config", _from_linear_layers),
    ("hybrid_layer_pattern", _by_number(1, Keeps.WINDOW)),  # MiMo
    ("attn_type_list", _by_number(0, Keeps.STATE)),  # MiniMax, whose 0 is lightning attention
    ("full_attention_interval", _every(Keeps.STATE)),
    ("layer_group_size", _every(Keeps.STATE)),
    ("sliding_window_pattern", _every(Keeps.WINDOW)),
    ("_sliding_window_pattern", _every(Keeps.WINDOW)),
    ("attn_layer_period", _period),
    ("attn_layer_indices", _full_layers),
    ("full_attn_idxs", _full_layers),
    ("hybrid_layer_ids", _full_layers),
    ("full_attention_layers", _full_layers),  # GigaChat
    ("local_layer_ids", _local_layers),
    ("max_window_layers", _window_layers),
    # 1 is a layer with positions, which sees a chunk (Llama 4); without a chunk or window all are full attention.
    ("no_rope_layers", _by_number(1, Keeps.WINDOW)),
    ("no_rope_layer_interval", _every(Keeps.WINDOW)),
    ("global_attn_every_n_layers", _every(Keeps.WINDOW)),
    ("every_n_layers_global", _every(Keeps.WINDOW)),
    ("compress_ratios", _compressed),
)


def _split_by_numbers(numbers: Sequence[int], count: int, those: Keeps, others: Keeps, first: int) -> list[Keeps]:
    chosen = set(numbers)
    return _split(count, lambda layer: layer + first in chosen, those, others)


def _split(count: int, chosen: Callable[[int], bool], those: Keeps, others: Keeps) -> list[Keeps]:
    """``those`` for each layer (from 0) for which ``chosen`` is true, and ``others`` for the rest."""
    return [those if chosen(layer) else others for layer in range(count)]


def _integer_list(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        return None
    return value


# --- keys without a reader --------------------------------------------------------------------------------

_RELEVANT = re.compile(
    "expert|layer|window|pattern|ratio|group|block|shar|loop|recurren|every|interval|period|stride|sparse|hybrid|compress"
    "|global|local|chunk|cla_|index|swa_|kv_|types$|pass(?:es)?$"
)
#: Relevant keys that need no reader: `shape.py` reads them, or they change neither the cache nor the bytes.
_HARMLESS = re.compile(
    "|".join(
        (
            # widths, normalisation, training, quantisation
            r"_hidden_size$|intermediate_size$|layer_?norm|group_?norm|norm_after|_eps$|_act$|_bias$|layer_?scale",
            r"layer_?drop|dropout|initiali[sz]er|loss|capacity|jitter|router|aux_|quant|mlp_ratio|rope|_dims?$|_fn$|^yarn",
            r"^activation|^swiglu|rotary|nope$|gate_type$|_index$|_stride$|^block_(?:auto|dim|ff|mlp|multiple|norm|out|use)",
            r"^mamba_n_?groups$|tuning_layers$|expert_dtype$|_strategy$|chunk_size|_res_block|^block_size$|^o_groups$|_cache_dtype$|^_?attn_implementation",
            # numbers of experts, groups, heads and layers
            r"^(?:num|n|moe_num)_shared_experts?$|^shared_expert|^num_experts_per_group$",
            r"^(?:(?:num|n)_(?:expert_)?|top_?k_)groups?$|_per_layer_input$|(?:key_value|attention)_heads",
            r"^num_(?:encoder_|decoder_|kv_shared_)layers?$|^mtp_|^attn_layer_offset$",
            r"(?:target|state|ple)_layer_ids$|^transformer_layer_config$|linear_attn$",
            # which layers have experts, and how a token finds them
            r"^moe_(?:layer|every)|^expert_layer_|^mlp_(?:only_layers|layer_types)$|^interleave_moe_layer_step$|^decoder_sparse",
            r"^first_k_dense|^num_(?:dense|hash)_layers$|^moe_shared_expert",
            # windows, latent vectors and their indexes, and layers with cross-attention
            r"^(?:use_|attention_)?(?:sliding_)?window(?:_size|_non_causal)?$|^cross_attention|^kv_lora_rank$",
            r"^index(?:er)?_|^sparse_|^per_layer_config$|^kv_source_layers$|^use_sparse_attention",
        )
    )
)
#: Keys of layers that run more than once for a token: each run may keep a cache of its own.
_REPEATED = re.compile(r"loop|recurrent_(?:layers|depth)|num_passes")


def not_understood(config: Config, count: int, known: Collection[str]) -> list[str]:
    """Keys that may change the cache or the bytes by their names or values, and that have no reader.

    A list with an entry for each of ``count`` layers is about layers, whatever its name; numbers with a fraction are
    limits and factors. ``known``: keys that are read elsewhere.
    """
    readers = {*dict(_FORMS), *known, *repeated(config)}
    keys = []
    for key, value in _with_parts(config):
        name = key.rpartition(".")[2]
        is_ignored = value in (None, False, 0, 1, "", [], {}) or name in readers or _HARMLESS.search(name)
        by_layer = isinstance(value, list) and 2 < len(value) == count and not isinstance(value[0], float)
        if (_RELEVANT.search(name) or by_layer) and not is_ignored:
            keys.append(key)
    for key in _BY_LAYER:
        words = config.get(key)
        if isinstance(words, list):
            keys += [f"{key} {word}" for word in sorted(set(map(str, words)) - set(_WORDS))]
        if isinstance(words, (list, str)) and 0 < len(words) < count:
            keys.append(f"{key} of {len(words)} layers")
    return keys


def repeated(config: Config) -> list[str]:
    """The keys that say that layers run more than once for a token."""
    return [key for key, value in config.items() if _REPEATED.search(key) and type(value) is int and value > 1]


def _with_parts(config: Config) -> Iterable[tuple[str, object]]:
    """Yield the keys and values of a configuration, and those of its parts about attention as `part.key`."""
    for key, value in config.items():
        yield str(key), value
        if isinstance(value, Mapping) and re.search("attn|attention", str(key)):
            for inner_key, inner_value in value.items():
                if inner_key not in ("kda_layers", "full_attn_layers"):
                    yield f"{key}.{inner_key}", inner_value
