"""What a model's tensors add up to: parameters, the bytes that a token reads, a head that lies among them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ..weights.headers import DTYPE_BITS
from .shape import Shape

#: What a quantised checkpoint keeps beside its weights: no parameters of the model.
_SCALES = re.compile(
    r"[._](?:scales?|scale_inv|weight_scale(?:_2|_inv)?|input_scale|[kv]_scale|weight_global_scale|input_global_scale"
    r"|qzeros|zero_point|weight_zero_point|g_idx|weight_g_idx|weight_shape|SCB|absmax|quant_map)$"
)
_PACKED = re.compile(r"[._](?:qweight|weight_packed|blocks)$")
_EXPERT = re.compile(r"\.experts\.|_experts\.|\.expert_|_exps\.")
_SHARED = re.compile(r"shared_expert")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|tok_embeddings|token_embd)\.weight$")
_OUTPUT = re.compile(r"(?:^|\.)(?:lm_head|output|embed_out)\.weight$")
_OTHER_SENSES = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_embed_tokens|audio_tower|mm_projector)\."
)


@dataclass(frozen=True)
class TensorKind:
    """A tensor by its header: dtype, shape, and its bytes in the file."""

    dtype: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Totals:
    """Sums over all tensors. ``read`` is bytes for one token of one sequence: of experts, those that it uses."""

    parameters: int
    read: int
    head: int
    """Bytes of the head inside the checkpoint, 0 without one; `read` is without them."""


def head_tensors(tensors: Mapping[str, TensorKind], shape: Shape) -> list[str]:
    """The names of the tensors of an MTP head inside a checkpoint, in order.

    Qwen and MiMo put it below `mtp.`; DeepSeek, GLM and GGUF files as layers behind the model's last one, where
    `eh_proj` or `nextn` tells them from an ordinary layer.
    """
    behind = re.compile(r"(?:^|\.)(?:layers|blk)\.(\d{1,6})\.")
    layer: dict[str, int] = {}
    heads: set[int] = set()
    for name in tensors:
        place = behind.search(name)
        if place and int(place.group(1)) >= shape.layers:
            layer[name] = int(place.group(1))
            if re.search(r"eh_proj|enorm|nextn", name):
                heads.add(layer[name])
    return sorted(
        name for name in tensors if layer.get(name) in heads or re.search(r"(?:^|\.)(?:mtp|mtp_layers)\.", name)
    )


def totals_of(tensors: Mapping[str, TensorKind], shape: Shape) -> Totals:
    """Add up the tensors of all files."""
    head = set(head_tensors(tensors, shape))
    tied = shape.tied or not any(map(_OUTPUT.search, tensors))
    share = shape.experts[1] / shape.experts[0] if shape.experts else 1.0
    parameters, read, in_head = 0, 0.0, 0
    for name, tensor in tensors.items():
        if not _SCALES.search(name):
            parameters += _values(name, tensor, shape.bits)
        if name in head:
            in_head += tensor.size
        elif _OTHER_SENSES.search(name) or (_EMBEDDING.search(name) and not tied):
            continue  # an image is no token; of the embedding a token reads one row
        elif _EXPERT.search(name) and not _SHARED.search(name):
            read += tensor.size * share
        else:
            read += tensor.size
    return Totals(parameters, round(read), in_head)


def _values(name: str, tensor: TensorKind, bits: int | None) -> int:
    """How many weights a tensor holds; several are packed into one value where they are quantised."""
    count = prod(tensor.shape)
    if bits and (_PACKED.search(name) or (tensor.dtype == "U8" and bits < 8)):
        return count * DTYPE_BITS.get(tensor.dtype, 8) // bits
    return count
