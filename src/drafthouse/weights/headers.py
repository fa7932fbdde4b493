"""Read and check the header of a safetensors file: the tensors that it lists must fill the file exactly.

The format (https://huggingface.co/docs/safetensors): a header length of 8 bytes, little-endian; the header in JSON;
then the tensors, one after the other, to the end of the file. No tensor is read. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..core.bounded import HEADER_COMMAS, TENSOR_DIMENSIONS, TENSOR_LENGTH
from ..core.errors import Problem

# Bytes; the limit of the safetensors library itself. The header of gpt-oss-120b has 0.1 MB.
HEADER_LIMIT = 100_000_000
# Bits per value, from the safetensors library. A tensor of any other dtype is checked for its offsets only.
DTYPE_BITS: Mapping[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_NAME_LENGTH = 120  # characters of a tensor name shown in a message
FETCH_AGAIN = "fetch it again; if it is still damaged, the publisher's file is broken"


class ByteReader(Protocol):
    """Source of a header, read from the first byte on: a file on disk, or one that is being downloaded."""

    def read(self, length: int, /) -> bytes:
        """Next ``length`` bytes, fewer only at the end."""

    def tell(self) -> int:
        """Number of bytes that were read."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file; ``begin`` and ``end`` are byte offsets from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Size in the file in bytes."""
        return self.end - self.begin


@dataclass
class Header:
    """Tensors that a safetensors file lists, by name, and the problems of the file."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_header(path: Path) -> Header:
    """Read the header of a safetensors file; its ``problems`` include read errors."""
    try:
        with path.open("rb") as stream:
            return header_of(stream, path.stat().st_size, str(path))
    except OSError as error:
        found = error.strerror or str(error)
        return Header(problems=[Problem("weights-damaged", found, "a readable file", FETCH_AGAIN, str(path))])


def header_of(stream: ByteReader, size: int, where: str) -> Header:
    """Header at the start of a file of ``size`` bytes; ``where`` names the file in ``problems``.

    Checked are, in this order: the header itself; for each tensor its entry, and its bytes against dtype and shape;
    and, if there is no problem until then, that the tensors fill the file. Raises errors of ``stream`` only.
    """
    header = Header()

    def add_problem(found: str, needed: str) -> None:
        header.problems.append(Problem("weights-damaged", found, needed, FETCH_AGAIN, where))

    try:
        entries, header_bytes = _header_json(stream, size)
    except ValueError as error:
        add_problem(str(error), "a safetensors header: 8 bytes of length, then JSON inside the file")
        return header
    data_start = 8 + header_bytes
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        tensor = _tensor(entry, data_start)
        shown = name[:_NAME_LENGTH]
        if tensor is None:
            add_problem(f"tensor '{shown}': {str(entry)[:200]}", "dtype, shape and data_offsets")
            continue
        header.tensors[name] = tensor
        bits = DTYPE_BITS.get(tensor.dtype)
        if bits is not None and _value_count(tensor.shape) * bits != tensor.size * 8:
            found = f"tensor '{shown}': {tensor.size} bytes for {tensor.dtype} {list(tensor.shape)}"
            add_problem(found, f"{_value_count(tensor.shape) * bits // 8} bytes")
    if not header.problems:
        for found in _layout_faults(header.tensors, data_start, size):
            add_problem(found, "contiguous tensors, from the header to the end of the file")
    return header


def _header_json(stream: ByteReader, size: int) -> tuple[dict[str, Any], int]:
    """JSON header (an entry for each tensor) and its length in bytes. Raises ValueError."""
    prefix = stream.read(8)
    if len(prefix) < 8:
        raise ValueError(f"a file of {size} bytes")
    length = int.from_bytes(prefix, "little")
    if length > HEADER_LIMIT:
        raise ValueError(f"first 8 bytes that declare a header of {length} bytes, in a file of {size}")
    if 8 + length > size:
        raise ValueError(f"a header of {length} bytes in a file of {size}: it was cut short")
    text = stream.read(length)
    if text.count(b",") > HEADER_COMMAS:
        raise ValueError(f"a header of more than {HEADER_COMMAS:,} values")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a header that is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise ValueError("a header that is not a JSON object")
    return data, length


def _tensor(entry: object, data_start: int) -> Tensor | None:
    """Tensor for an entry of the header, whose offsets count from ``data_start``; None if the entry is malformed."""
    if not isinstance(entry, dict):
        return None
    dtype = entry.get("dtype")
    shape = _integers(entry.get("shape"))
    offsets = _integers(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    begin, end = offsets
    if begin > end or len(shape) > TENSOR_DIMENSIONS or any(length > TENSOR_LENGTH for length in (*shape, end)):
        return None
    return Tensor(dtype, shape, data_start + begin, data_start + end)


def _integers(value: object) -> tuple[int, ...] | None:
    """List of whole numbers, none negative, as a tuple; None for anything else."""
    if isinstance(value, list) and all(type(entry) is int and entry >= 0 for entry in value):
        return tuple(value)
    return None


def _value_count(shape: tuple[int, ...]) -> int:
    """Number of values of a tensor; 1 for a scalar, whose shape is empty."""
    values = 1
    for length in shape:
        values *= length
    return values


def _layout_faults(tensors: Mapping[str, Tensor], start: int, size: int) -> Iterator[str]:
    """Yield a fault if the tensors leave a gap, overlap, or do not end at ``size``, the end of the file.

    Only the first gap or overlap is yielded: most of the later offsets are wrong because of it. ``start``: the offset
    of the first tensor.
    """
    offset = start
    previous = "the header"
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != offset:
            fault = "overlaps" if tensor.begin < offset else f"starts {tensor.begin - offset} bytes after"
            yield f"tensor '{name[:_NAME_LENGTH]}' {fault} {previous}"
            return
        offset = tensor.end
        previous = f"'{name[:_NAME_LENGTH]}'"
    if offset > size:
        yield f"tensors up to byte {offset} in a file of {size}: it was cut short"
    elif offset < size:
        yield f"{size - offset} bytes after the last tensor"
