"""Which layers of a model keep keys and values of every token, by its config.json. Pure.

Each family says it in its own way: a list of names, a list of numbers, every n-th layer, a text with a letter a layer.
`_FORMS` has them all. A configuration that says nothing of it has full attention in every layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drafthouse.models.shape import Config


class Keeps(Enum):
    """What a layer keeps of the tokens before."""

    ALL = "a KV cache that grows with the context"
    WINDOW = "the last tokens"
    STATE = "a state of one size"
    NOTHING = "nothing"


#: What reads a key's value: with its configuration and the number of layers, what each layer keeps; None: unreadable.
Reader = Callable[[object, "Config", int], list[Keeps] | None]
#: A layer by the word that `layer_types` and its older spellings have for it; any other word is full attention.
_WORDS = {
    **dict.fromkeys(("sliding_attention", "chunked_attention", "local", "local_attention", "swa"), Keeps.WINDOW),
    **dict.fromkeys(
        (
            *("linear_attention", "mamba", "mamba2", "recurrent", "conv", "short_conv", "kda", "lightning"),
            *("gated_deltanet", "rwkv", "ssm", "linear"),
        ),
        Keeps.STATE,
    ),
    **dict.fromkeys(("moe", "mlp", "ffn", "feed_forward"), Keeps.NOTHING),
}
#: Nemotron-H's letters: M Mamba, * attention, - feed-forward, E experts.
_LETTERS = {"M": Keeps.STATE, "*": Keeps.ALL, "-": Keeps.NOTHING, "E": Keeps.NOTHING}

_WINDOWS = ("sliding_window", "sliding_window_size", "attention_window_size", "window_size", "attention_chunk_size")


def layers_of(part: Config, count: int) -> list[Keeps] | None:
    """What each of ``count`` layers keeps; None where the configuration does not say it."""
    found = None
    for key, read in _FORMS:
        if (value := part.get(key)) is not None and (found := read(value, part, count)):
            break
    if found is None:
        return None
    shared = part.get("num_kv_shared_layers")  # Gemma 3n: the last layers use the cache of one before
    if type(shared) is int and 0 < shared < len(found):
        found = found[:-shared] + [Keeps.NOTHING] * shared
    if window_of(part) is None:
        return [Keeps.ALL if kept is Keeps.WINDOW else kept for kept in found]
    return found


def window_of(part: Config) -> int | None:
    """How many tokens its layers with a window look back."""
    for key in _WINDOWS:
        value = part.get(key)
        if type(value) is int and value > 0:
            return value
    return None


# --- how families say it ----------------------------------------------------------------------------------


def _words(value: object, part: Config, count: int) -> list[Keeps] | None:
    if not isinstance(value, list) or not value:
        return None
    return [_WORDS.get(str(word), Keeps.ALL) for word in value]


def _repeated(value: object, part: Config, count: int) -> list[Keeps] | None:
    """RecurrentGemma: a few words that are repeated over all layers."""
    words = _words(value, part, count)
    if not words:
        return None
    return [words[number % len(words)] for number in range(count)]


def _letters(value: object, part: Config, count: int) -> list[Keeps] | None:
    if not isinstance(value, str) or not value:
        return None
    return [_LETTERS.get(letter, Keeps.NOTHING) for letter in value]


def _linear_layers(value: object, part: Config, count: int) -> list[Keeps] | None:
    """Kimi Linear: the numbers of its layers with Kimi Delta Attention, counted from 1."""
    if not isinstance(value, Mapping):
        return None
    full, linear = _numbers(value.get("full_attn_layers")), _numbers(value.get("kda_layers"))
    if full is None and linear is None:
        return None
    if linear is not None:
        return _listed(linear, count, Keeps.STATE, Keeps.ALL, first=1)
    return _listed(full or [], count, Keeps.ALL, Keeps.STATE, first=1)


def _by_number(other: int, keeps: Keeps) -> Reader:
    """A number a layer: ``other`` for layers that keep ``keeps``, any other number for full attention."""

    def read(value: object, part: Config, count: int) -> list[Keeps] | None:
        numbers = _numbers(value)
        return _split(len(numbers), lambda layer: numbers[layer] == other, keeps, Keeps.ALL) if numbers else None

    return read


def _every(others: Keeps) -> Reader:
    """The last layer of each so many has full attention, the others keep ``others``."""

    def read(value: object, part: Config, count: int) -> list[Keeps] | None:
        if type(value) is not int or value < 1:
            return None
        return _split(count, lambda number: (number + 1) % value == 0, Keeps.ALL, others)

    return read


def _period(value: object, part: Config, count: int) -> list[Keeps] | None:
    """Jamba: attention in the layers offset, offset + period, and so on."""
    offset = part.get("attn_layer_offset", 0)
    if type(value) is not int or value < 1 or type(offset) is not int:
        return None
    return _split(count, lambda number: number % value == offset, Keeps.ALL, Keeps.STATE)


def _full_layers(value: object, part: Config, count: int) -> list[Keeps] | None:
    """Bamba, LFM2, Zamba: the numbers of the layers that have attention, counted from 0."""
    numbers = _numbers(value)
    return _listed(numbers, count, Keeps.ALL, Keeps.STATE, first=0) if numbers else None


def _window_layers(value: object, part: Config, count: int) -> list[Keeps] | None:
    """Qwen 2: the first layers have full attention, where windows are used at all."""
    if type(value) is not int or part.get("use_sliding_window") is not True:
        return None
    return _split(count, lambda number: number < value, Keeps.ALL, Keeps.WINDOW)


#: A key, and what reads its value; the first that can be read counts.
_FORMS: tuple[tuple[str, Reader], ...] = (
    ("layer_types", _words),
    ("layers_block_type", _words),
    ("block_types", _repeated),
    ("_block_types", _repeated),
    ("hybrid_override_pattern", _letters),
    ("linear_attn_config", _linear_layers),
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
    ("max_window_layers", _window_layers),
)


def _listed(numbers: Sequence[int], count: int, those: Keeps, others: Keeps, first: int) -> list[Keeps]:
    named = set(numbers)
    return _split(count, lambda number: number + first in named, those, others)


def _split(count: int, chosen: Callable[[int], bool], those: Keeps, others: Keeps) -> list[Keeps]:
    """``those`` for the layers, counted from 0, that are chosen, and ``others`` for the rest."""
    return [those if chosen(number) else others for number in range(count)]


def _numbers(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        return None
    return value


# --- keys that nobody here knows --------------------------------------------------------------------------

_LOOKS_LIKE_ONE = re.compile(r"expert|layer|window|pattern|ratio|group")
#: Of those the ones that `shape.py` reads, and the ones that change neither cache nor bytes.
_HARMLESS = re.compile(
    "|".join(
        (
            # how wide something is, how it is normalised, trained or quantised
            r"_hidden_size$|intermediate_size$|layer_?norm|group_?norm|norm_after|_eps$|_act$|_bias$|layer_?scale",
            r"layer_?drop|dropout|initiali[sz]er|loss|capacity|jitter|router|aux_|quant|mlp_ratio|rope",
            # how many, and which of them a token uses
            r"^(?:num|n)_(?:routed_|local_|shared_|moe_)?experts?(?:_per_(?:tok|token|group))?$|^experts_per_tok",
            r"^moe_num_(?:shared_)?experts$|^top_k_experts$|^num_(?:selected|activated)_experts$|^shared_expert",
            r"^(?:(?:num|n)_(?:expert_)?|top_?k_)groups?$|_per_layer_input$",
            r"^(?:num|n)_(?:hidden_|encoder_|decoder_|kv_shared_)?layers?$",
            r"^num_(?:nextn_predict|mtp)_layers$|^mtp_|^attn_layer_offset$|layer_ids$|^transformer_layer_config$",
            # which layers have experts
            r"^moe_layer|^expert_layer_|^mlp_only_layers$|^interleave_moe_layer_step$|^decoder_sparse|^first_k_dense",
            # windows, and layers that look at an image or leave positions out
            r"^(?:use_|attention_)?(?:sliding_)?window(?:_size|_non_causal)?$|^cross_attention|^no_rope_layer",
        )
    )
)


def not_understood(part: Config) -> list[str]:
    """The keys that look as if cache or bytes depended on them, and that nothing here reads."""
    readers = dict(_FORMS)
    found = []
    for key, value in _with_parts(part):
        plain = value in (None, False, 0, 1, "", [], {}) or key in readers
        if _LOOKS_LIKE_ONE.search(key) and not plain and not _HARMLESS.search(key):
            found.append(key)
    return found


def _with_parts(part: Config) -> Iterable[tuple[str, object]]:
    """The keys of a configuration, and those of the parts that are about attention."""
    for key, value in part.items():
        yield str(key), value
        if isinstance(value, Mapping) and "attn" in str(key):
            for inner, one in value.items():
                if inner not in ("kda_layers", "full_attn_layers"):
                    yield f"{key}.{inner}", one
