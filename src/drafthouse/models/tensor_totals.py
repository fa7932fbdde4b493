"""Sums over a model's tensors: parameters, bytes read per token, and bytes of a built-in draft head. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ..weights.headers import DTYPE_BITS
from .shape import Shape

#: Tensors of a quantised checkpoint that are no parameters: scales, zero points, indexes.
_SCALES = re.compile(
    r"[._](?:scales?|scale_inv|weight_scale(?:_2|_inv)?|input_scale|[kv]_scale|weight_global_scale|input_global_scale"
    r"|qzeros|zero_point|weight_zero_point|g_idx|weight_g_idx|weight_shape|SCB|absmax|quant_map)$"
)
_PACKED = re.compile(r"[._](?:qweight|weight_packed|blocks)$")
_EXPERT = re.compile(r"\.experts\.|_experts\.|\.expert_|_exps\.")
_SHARED = re.compile(r"shared?_expert|shared_mlp")
_STATE = re.compile(r"\.(?:A_log|dt_bias|ssm_a|time_decay)$")
_EMBEDDING = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|token_embd|embeddings|embed)\.weight$"
)
#: Tables beside the embedding, of which a token reads a row each: Gemma's per layer, n-grams (LongCat, Qwen).
_TABLES = re.compile(r"embed_tokens_per_layer|per_layer_token_embd|n_?gram_embed\w*\.(?:embedders\.|weight)")
_OUTPUT = re.compile(r"(?:^|\.)(?:lm_head|output|embed_out|unembed)\.weight$|^head\.weight$")
_VISION_AUDIO = re.compile(
    r"(?:^|\.)(?:\w*(?:vision|visual|audio|image|video|speech|sound)\w*|mm_projector|multi_modal_projector|patch_merg\w*)\."
)


@dataclass(frozen=True)
class TensorKind:
    """A tensor's dtype, shape and size in bytes, from the header of its file."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Totals:
    """Sums over all tensors; ``read`` is the bytes read for a token, of experts only those it uses."""

    parameters: int
    read: int
    head: int
    """Bytes of the head inside the checkpoint, which are not in ``read``; 0 without a head."""


def head_tensors(tensors: Mapping[str, TensorKind], shape: Shape) -> list[str]:
    """The sorted names of the tensors of an MTP head inside a checkpoint.

    Qwen and MiMo name them `mtp.*`. DeepSeek, GLM and GGUF files have them as layers after the model's last layer;
    tensors like `eh_proj` or `nextn` distinguish these from ordinary layers.
    """
    in_layer = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,6})\.")
    layer: dict[str, int] = {}
    heads: set[int] = set()
    for name in tensors:
        match = in_layer.search(name)
        if match and int(match.group(1)) >= shape.layers:
            layer[name] = int(match.group(1))
            if re.search(r"eh_proj|enorm|nextn", name):
                heads.add(layer[name])
    return sorted(
        name for name in tensors if layer.get(name) in heads or re.search(r"(?:^|\.)(?:mtp|mtp_layers)\.", name)
    )


def unexplained(tensors: Mapping[str, TensorKind], shape: Shape) -> Iterator[str]:
    """Yield sentences on what the names of the tensors tell and the configuration does not; figures are too large."""
    if shape.experts is None and any(map(_EXPERT.search, tensors)):
        yield "its weights have experts, of which its config.json says nothing that is known: all are counted as read"
    if "hybrid" not in shape.traits and any(map(_STATE.search, tensors)):
        yield "its weights have recurrent states, of which its config.json says nothing that is known: all layers count"


def totals_of(tensors: Mapping[str, TensorKind], shape: Shape) -> Totals:
    """The totals of all tensors."""
    head = set(head_tensors(tensors, shape))
    # The output layer reads tied embeddings in full; otherwise a token reads one row of them.
    tied = shape.tied or not any(map(_OUTPUT.search, tensors))
    expert_share = shape.experts[1] / shape.experts[0] if shape.experts else 1.0
    parameters, read, head_bytes = 0, 0.0, 0
    for name, tensor in tensors.items():
        if not _SCALES.search(name):
            parameters += _weight_count(name, tensor, shape.bits)
        if name in head:
            head_bytes += tensor.size
        elif _VISION_AUDIO.search(name) or _TABLES.search(name) or (_EMBEDDING.search(name) and not tied):
            continue  # not read for a text token, or only one row of it
        elif _is_of_experts(name, tensor, shape):
            read += tensor.size * expert_share
        else:
            read += tensor.size
    return Totals(parameters, round(read), head_bytes)


def _is_of_experts(name: str, tensor: TensorKind, shape: Shape) -> bool:
    """True for weights of routed experts, by their name; or, if all are in one tensor, by its first dimension.

    Granite 4 (`block_sparse_moe.input_linear`) and Step 3.5 (`moe.up_proj`) do not name the experts.
    """
    if _SHARED.search(name):
        return False
    stacked = shape.experts is not None and len(tensor.shape) == 3 and tensor.shape[0] == shape.experts[0]
    return stacked or bool(_EXPERT.search(name))


def _weight_count(name: str, tensor: TensorKind, bits: int | None) -> int:
    """Number of weights in a tensor; quantised weights of ``bits`` bits are packed into wider values.

    Bytes hold two weights of 4 bits each, also if config.json says nothing of it, or has the 8 bits of other weights
    (hf_quant_config.json alone; the experts of DeepSeek-V4).
    """
    count = prod(tensor.shape)
    if tensor.dtype == "U8":
        return count * 8 // min(bits or 4, 4)
    if bits and (_PACKED.search(name) or (tensor.dtype == "I8" and bits < 8)):
        return count * DTYPE_BITS.get(tensor.dtype, 8) // bits
    return count
