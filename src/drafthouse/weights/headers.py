"""The header of a safetensors file: what tensors it says it has, and whether they can be there.

The format (https://huggingface.co/docs/safetensors): a little-endian length of 8 bytes, JSON, then the tensors one
after the other to the end of the file. No tensor is read here. Standard library only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..core.bounded import HEADER_COMMAS, TENSOR_DIMENSIONS, TENSOR_LENGTH
from ..core.errors import Problem

# The limit of the safetensors library itself; a header of gpt-oss-120b has 0.1 MB.
HEADER_LIMIT = 100_000_000
# Bits a value, as the safetensors library knows them; another dtype is only checked for its place in the file.
DTYPE_BITS: Mapping[str, int] = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_SHOWN = 120  # characters of a tensor's name in a message
AGAIN = "fetch it again; if it is still damaged, the publisher's file is broken"


class Reading(Protocol):
    """What a header is read from, first byte first: a file, or what comes of one that lies elsewhere."""

    def read(self, length: int, /) -> bytes:
        """The next bytes, fewer only at the end."""

    def tell(self) -> int:
        """How many bytes were read."""


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors file; ``begin`` and ``end`` are bytes from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.end - self.begin


@dataclass
class Header:
    """A safetensors file without its tensors' values, and what is wrong with it."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_header(path: Path) -> Header:
    """Read the header of a safetensors file; every fault of it is in ``problems``."""
    try:
        with path.open("rb") as stream:
            return header_of(stream, path.stat().st_size, str(path))
    except OSError as error:
        found = error.strerror or str(error)
        return Header(problems=[Problem("weights-damaged", found, "a readable file", AGAIN, str(path))])


def header_of(stream: Reading, size: int, where: str) -> Header:
    """Read the header at the start of ``stream``, which has ``size`` bytes; every fault of it is in ``problems``."""
    header = Header()

    def wrong(found: str, needed: str) -> None:
        header.problems.append(Problem("weights-damaged", found, needed, AGAIN, where))

    try:
        data = _header_json(stream, size)
    except ValueError as error:
        wrong(str(error), "a safetensors header: 8 bytes of length, then JSON inside the file")
        return header
    start = 8 + data[1]
    for name, entry in data[0].items():
        if name == "__metadata__":
            continue
        tensor = _tensor(entry, start)
        shown = name[:_SHOWN]
        if tensor is None:
            wrong(f"tensor '{shown}': {str(entry)[:200]}", "dtype, shape and data_offsets")
            continue
        header.tensors[name] = tensor
        bits = DTYPE_BITS.get(tensor.dtype)
        if bits is not None and _count(tensor.shape) * bits != tensor.size * 8:
            found = f"tensor '{shown}': {tensor.size} bytes for {tensor.dtype} {list(tensor.shape)}"
            wrong(found, f"{_count(tensor.shape) * bits // 8} bytes")
    if not header.problems:
        for found in _places(header.tensors, start, size):
            wrong(found, "contiguous tensors, from the header to the end of the file")
    return header


def _header_json(stream: Reading, size: int) -> tuple[dict[str, Any], int]:
    """The header and its length in bytes; ValueError says what is there instead."""
    first = stream.read(8)
    if len(first) < 8:
        raise ValueError(f"a file of {size} bytes")
    length = int(struct.unpack("<Q", first)[0])
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


def _tensor(entry: object, start: int) -> Tensor | None:
    if not isinstance(entry, dict):
        return None
    dtype, shape, offsets = entry.get("dtype"), _numbers(entry.get("shape")), _numbers(entry.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        return None
    begin, end = offsets
    if begin > end or len(shape) > TENSOR_DIMENSIONS or any(length > TENSOR_LENGTH for length in (*shape, end)):
        return None
    return Tensor(dtype, shape, start + begin, start + end)


def _numbers(value: object) -> tuple[int, ...] | None:
    """A list of whole numbers as a tuple, None for anything else."""
    if isinstance(value, list) and all(type(number) is int and number >= 0 for number in value):
        return tuple(value)
    return None


def _count(shape: tuple[int, ...]) -> int:
    values = 1
    for length in shape:
        values *= length
    return values


def _places(tensors: Mapping[str, Tensor], start: int, size: int) -> Iterator[str]:
    """Yield where the tensors do not follow each other from ``start`` to ``size``."""
    place, before = start, "the header"
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != place:
            what = "overlaps" if tensor.begin < place else f"starts {tensor.begin - place} bytes after"
            yield f"tensor '{name[:_SHOWN]}' {what} {before}"
            return
        place, before = tensor.end, f"'{name[:_SHOWN]}'"
    if place > size:
        yield f"tensors up to byte {place} in a file of {size}: it was cut short"
    elif place < size:
        yield f"{size - place} bytes after the last tensor"
