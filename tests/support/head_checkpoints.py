"""Small checkpoints with a head inside, without it, and with one that an export broke."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead

MTP: BuiltinHead = {
    "kind": "mtp",
    "layers": 1,
    "tensors": ["mtp.fc.weight", "mtp.layers.0.*"],
    "dtypes": {"mtp.fc.weight": ["BF16"], "mtp.layers.0.*.weight": ["BF16", "F8_E4M3"]},
    "has_it": "org/whole",
}
NEXTN: BuiltinHead = {
    "kind": "mtp",
    "layers": 1,
    "tensors": ["blk.*.nextn.eh_proj.weight"],
    "dtypes": {"blk.*.nextn.eh_proj.weight": ["BF16", "F16", "F32", "Q8_0"]},
}
BODY = {"model.layers.0.mlp.up_proj.weight": "BF16", "lm_head.weight": "BF16"}
HEAD = {"mtp.fc.weight": "BF16", "mtp.layers.0.mlp.up_proj.weight": "BF16"}
BYTES = {"BF16": 2, "U8": 1, "I32": 4, "F16": 2, "F8_E4M3": 1}


def header(tensors: Mapping[str, str], values: int = 8) -> tuple[bytes, int]:
    """The start of a file with tensors of so many values, given as name -> dtype, and the bytes behind it."""
    entries, at = {}, 0
    for name, dtype in tensors.items():
        end = at + values * BYTES[dtype]
        entries[name] = {"dtype": dtype, "shape": [values], "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text, at


def safetensors(tensors: Mapping[str, str]) -> bytes:
    """A whole file."""
    start, size = header(tensors)
    return start + bytes(size)


def write_gguf(path: Path, tensors: Mapping[str, np.dtype[Any] | gguf.GGMLQuantizationType], tokens: int = 50) -> Path:
    """Write a file with tensors of 64 values; a type of ggml's own gets zeros in place of its blocks."""
    writer = gguf.GGUFWriter(str(path), "qwen35")
    writer.add_array("tokenizer.ggml.tokens", [f"t{number}" for number in range(tokens)])
    for name, kind in tensors.items():
        if isinstance(kind, gguf.GGMLQuantizationType):
            values, size = gguf.GGML_QUANT_SIZES[kind]
            writer.add_tensor(name, np.zeros((1, max(1, 64 // values) * size), np.uint8), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.zeros((2, 32), kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
