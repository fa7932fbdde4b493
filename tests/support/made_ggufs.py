"""Small random models for llama.cpp's drafting: a target with a head inside, and heads made for the packaged target.

They are served as real ones are; what they draft is noise, and accepted only by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

Numbers = Mapping[str, int | float | list[int]]
Shapes = dict[str, tuple[int, ...]]

# Of the packaged target (SmolLM2-135M), whose vocabulary all of them have.
WIDTH, HEADS, KV_HEADS, HEAD, VOCABULARY = 576, 9, 3, 64, 49152
LAYERS_READ = [2, 15, 27]
_FEED = 128


def eagle3_head(path: Path, target: Path) -> Path:
    """Write an EAGLE-3 head for ``target`` to ``path``; return that."""
    # The first of them under the name of 2026.6, too.
    numbers = {**_head_numbers(), "target_hidden_size": WIDTH, "extract_layers": LAYERS_READ}
    shapes = _block(0, 2 * WIDTH) | {
        "blk.0.attn_norm_2.weight": (WIDTH,),
        "fc.weight": (WIDTH, len(LAYERS_READ) * WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (VOCABULARY, WIDTH),
    }
    return _write(path, "eagle3", numbers, shapes, target)


def dflash_head(path: Path, target: Path, block: int = 8) -> Path:
    """Write a DFlash head for ``target`` to ``path``, which drafts ``block`` tokens less one at most; return that."""
    shapes = _block(0, WIDTH) | {
        "blk.0.attn_q_norm.weight": (HEAD,),
        "blk.0.attn_k_norm.weight": (HEAD,),
        "fc.weight": (WIDTH, len(LAYERS_READ) * WIDTH),
        "enc.output_norm.weight": (WIDTH,),
        "output_norm.weight": (WIDTH,),
    }
    mask = {"tokenizer.ggml.mask_token_id": 0}
    return _write(path, "dflash", {**_head_numbers(), "block_size": block}, shapes, target, mask)


def mtp_target(path: Path, tokenizer: Path, with_head: bool = True) -> Path:
    """Write a Qwen3.5 of four layers, three of them recurrent, and with a fifth for MTP, to ``path``; return that."""
    width, heads, head, state, groups = 64, 2, 32, 32, 2
    inner = state * groups
    numbers: dict[str, int | float | list[int]] = {
        "block_count": 4 + with_head,
        "context_length": 2048,
        "embedding_length": width,
        "feed_forward_length": _FEED,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": head,
        "rope.dimension_sections": [8, 4, 4, 0],
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": groups,
        "ssm.group_count": groups,
        "full_attention_interval": 4,
    }
    if with_head:
        numbers["nextn_predict_layers"] = 1
    shapes: Shapes = {"token_embd.weight": (VOCABULARY, width), "output_norm.weight": (width,)}
    for layer in range(4 + with_head):
        name = f"blk.{layer}."
        shapes |= {f"{name}{norm}.weight": (width,) for norm in ("attn_norm", "post_attention_norm")}
        shapes |= _feed_forward(layer, width)
        if layer < 3:
            shapes |= {
                f"{name}attn_qkv.weight": (3 * inner, width),
                f"{name}attn_gate.weight": (inner, width),
                f"{name}ssm_conv1d.weight": (3 * inner, 4),
                f"{name}ssm_dt.bias": (groups,),
                f"{name}ssm_a": (groups,),
                f"{name}ssm_beta.weight": (groups, width),
                f"{name}ssm_alpha.weight": (groups, width),
                f"{name}ssm_norm.weight": (state,),
                f"{name}ssm_out.weight": (width, inner),
            }
        else:  # its queries come with a gate of their own size
            shapes |= _attention(layer, width, (2 * heads * head, head, heads * head))
            shapes |= {f"{name}attn_{each}_norm.weight": (head,) for each in "qk"}
    if with_head:
        shapes |= {f"blk.4.nextn.{norm}.weight": (width,) for norm in ("enorm", "hnorm", "shared_head_norm")}
        shapes["blk.4.nextn.eh_proj.weight"] = (width, 2 * width)
    return _write(path, "qwen35", numbers, shapes, tokenizer)


def _head_numbers() -> dict[str, int | float | list[int]]:
    return {
        "block_count": 1,
        "context_length": 8192,
        "embedding_length": WIDTH,
        "feed_forward_length": _FEED,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 100000.0,
        "target_layers": LAYERS_READ,
    }


def _block(layer: int, read: int) -> Shapes:
    """The shapes of a llama's block whose attention reads ``read`` values a token."""
    norms = {f"blk.{layer}.{norm}.weight": (WIDTH,) for norm in ("attn_norm", "ffn_norm")}
    sizes = (HEADS * HEAD, KV_HEADS * HEAD, HEADS * HEAD)
    return {**norms, **_attention(layer, read, sizes, WIDTH), **_feed_forward(layer, WIDTH)}


def _attention(layer: int, read: int, sizes: tuple[int, int, int], width: int = 0) -> Shapes:
    queries, keys, output = sizes
    name = f"blk.{layer}.attn_"
    return {
        f"{name}q.weight": (queries, read),
        f"{name}k.weight": (keys, read),
        f"{name}v.weight": (keys, read),
        f"{name}output.weight": (width or read, output),
    }


def _feed_forward(layer: int, width: int) -> Shapes:
    name = f"blk.{layer}.ffn_"
    return {
        f"{name}gate.weight": (_FEED, width),
        f"{name}up.weight": (_FEED, width),
        f"{name}down.weight": (width, _FEED),
    }


def _write(
    path: Path, arch: str, numbers: Numbers, shapes: Shapes, tokenizer: Path, more: Mapping[str, int] | None = None
) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    for field in gguf.GGUFReader(tokenizer).fields.values():
        if field.name.startswith("tokenizer."):
            is_list = field.types[0] == gguf.GGUFValueType.ARRAY
            writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1] if is_list else None)
    for key, value in numbers.items():
        _add(writer, f"{arch}.{key}", value)
    for key, number in (more or {}).items():
        _add(writer, key, number)
    random = np.random.default_rng(7)
    for name, shape in shapes.items():
        flat = len(shape) == 1
        values = np.ones(shape) if flat else random.standard_normal(shape) * 0.05
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: int | float | list[int]) -> None:
    if isinstance(value, list):
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)
    else:
        kind = gguf.GGUFValueType.UINT32 if isinstance(value, int) else gguf.GGUFValueType.FLOAT32
        writer.add_key_value(key, value, kind)
