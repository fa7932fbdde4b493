"""Read the header of a GGUF file, and check that all tensors it lists lie inside the file. Standard library only.

The header ("head") holds metadata keys, the vocabulary among them, and the list of tensors. The ``gguf`` package reads
it element by element and needs seconds for a vocabulary of 128,000 tokens; this reader needs a tenth of a second.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from ..core.bounded import GGUF_BYTES, GGUF_DEPTH, GGUF_KEYS, GGUF_TENSORS, GGUF_VALUES
from ..core.errors import Problem
from .headers import ByteReader

# Type of a metadata value -> struct format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9
# ggml type -> name, values per block, bytes per block (from enum ggml_type and the blocks of ggml-common.h). The size
# of a tensor of any other type is not checked.
_TENSOR_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 30: ("BF16", 1, 2), 28: ("F64", 1, 8),
    2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
}  # fmt: skip
_SPLIT_NAME = re.compile(r"(.+-)(\d{5})-of-(\d{5})\.gguf")
_MAX_FILES = 999  # of a split model; a name that claims more is taken for an ordinary file


@dataclass
class GgufHead:
    """Header of a GGUF file."""

    keys: dict[str, Any] = field(default_factory=dict)  # metadata values by key
    # By tensor name: ggml type, shape, and offset in bytes from ``data``.
    tensors: dict[str, tuple[int, tuple[int, ...], int]] = field(default_factory=dict)
    data: int = 0  # offset in bytes of the first tensor


def read_gguf(path: Path) -> GgufHead:
    """Read the metadata keys and the list of tensors. Raises ValueError if the header is malformed, and OSError."""
    with path.open("rb") as stream:
        return gguf_head(stream, path.stat().st_size)


def gguf_head(stream: ByteReader, size: int) -> GgufHead:
    """Read the header at the start of a file of ``size`` bytes. Raises ValueError if it is malformed."""
    return _Reader(stream, size).head()


def split_names(name: str) -> list[str]:
    """File names of a model split by gguf-split, given one of them; only ``name`` itself for any other file."""
    split = _SPLIT_NAME.fullmatch(name)
    if not split or not 0 < int(split[3]) <= _MAX_FILES:
        return [name]
    return [f"{split[1]}{index:05}-of-{split[3]}.gguf" for index in range(1, int(split[3]) + 1)]


def type_name(kind: int) -> str:
    """Name of a ggml tensor type, such as ``Q4_K``."""
    return _TENSOR_TYPES[kind][0] if kind in _TENSOR_TYPES else f"type {kind}"


def tensor_bytes(kind: int, shape: Iterable[int]) -> int:
    """Size in the file, in bytes, of a tensor of the ggml type ``kind``; 0 for an unknown type."""
    _, per_block, block_bytes = _TENSOR_TYPES.get(kind, ("", 1, 0))
    return prod(shape) // per_block * block_bytes


def check_gguf(path: Path) -> list[Problem]:
    """The first problem of a GGUF file: a header that cannot be read, or a tensor beyond the end of the file."""
    fetch_again = "fetch it again; if it is still damaged, the publisher's file is broken"
    try:
        head = read_gguf(path)
        size = path.stat().st_size
    except (ValueError, struct.error) as error:
        return [Problem("weights-damaged", str(error), "a GGUF file, version 2 or 3", fetch_again, str(path))]
    except OSError as error:
        return [Problem("weights-damaged", error.strerror or str(error), "a readable file", fetch_again, str(path))]
    for name, (kind, shape, offset) in head.tensors.items():
        end = head.data + offset + tensor_bytes(kind, shape)
        if end > size:
            found = f"tensor '{name[:120]}' up to byte {end} in a file of {size}: it was cut short"
            return [Problem("weights-damaged", found, "every tensor inside the file", fetch_again, str(path))]
    return []


class _Reader:
    """Parser of the header; it enforces the limits of `core.bounded` and the size of the file."""

    def __init__(self, stream: ByteReader, size: int) -> None:
        self._stream = stream
        self._size = size  # bytes of the whole file
        self._array_values = 0  # values of all arrays until now
        self._read_bytes = 0

    def head(self) -> GgufHead:
        """The whole header. Raises ValueError if it is malformed or beyond a limit."""
        magic = self._stream.read(4)
        if magic != b"GGUF":
            raise ValueError(f"a file starting with {magic!r}")
        (version,) = self._unpack("I")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}")
        tensor_count = self._count(GGUF_TENSORS)
        key_count = self._count(GGUF_KEYS)
        header = GgufHead()
        for _ in range(key_count):
            name = self._text()
            (kind,) = self._unpack("I")
            header.keys[name] = self._value(kind)
        for _ in range(tensor_count):
            name = self._text()
            (dimensions,) = self._unpack("I")
            if dimensions > 8:  # ggml's own limit is 4
                raise ValueError(f"tensor '{name[:120]}' with {dimensions} dimensions")
            shape = self._unpack(f"{dimensions}Q")
            kind, offset = self._unpack("IQ")
            header.tensors[name] = (kind, tuple(shape), offset)
        alignment = header.keys.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ValueError(f"general.alignment {alignment}")
        header_end = self._stream.tell()
        # The tensors begin at the next multiple of the alignment.
        header.data = header_end + -header_end % alignment
        return header

    def _value(self, kind: int, depth: int = 0) -> Any:
        """Value of the type ``kind``: a scalar, a text, or a list; ``depth``: number of arrays around it.

        Raises ValueError.
        """
        if kind in _SCALARS:
            (scalar,) = self._unpack(_SCALARS[kind])
            return scalar
        if kind == _STRING:
            return self._text()
        if kind != _ARRAY:
            raise ValueError(f"a value of type {kind}")
        (element_kind,) = self._unpack("I")
        length = self._count()
        self._array_values += length
        if self._array_values > GGUF_VALUES:
            raise ValueError(f"arrays of more than {GGUF_VALUES:,} values in its header")
        if depth >= GGUF_DEPTH:
            raise ValueError("arrays too deep in each other in its header")
        if element_kind in _SCALARS:
            return list(self._unpack(f"{length}{_SCALARS[element_kind]}"))
        return [self._value(element_kind, depth + 1) for _ in range(length)]

    def _text(self) -> str:
        """Text: its length in bytes, then UTF-8, of which invalid bytes are replaced."""
        return self._bytes(self._count()).decode("utf-8", "replace")

    def _count(self, limit: int = GGUF_BYTES) -> int:
        """Number of 8 bytes that counts something. Raises ValueError above ``limit``."""
        (count,) = self._unpack("Q")
        if count > limit:
            raise ValueError(f"a count of {count} in its header")
        return int(count)

    def _unpack(self, form: str) -> tuple[Any, ...]:
        """Little-endian values in the struct format ``form``."""
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))

    def _bytes(self, length: int) -> bytes:
        """Next ``length`` bytes. Raises ValueError beyond the limit of a header or the end of the file."""
        if length > self._size:
            raise ValueError(f"a header of {length} bytes in a file of {self._size}: it was cut short")
        self._read_bytes += length
        if self._read_bytes > GGUF_BYTES:
            raise ValueError(f"a header of more than {GGUF_BYTES:,} bytes")
        data = self._stream.read(length)
        if len(data) < length:
            raise ValueError(f"a header beyond the end of a file of {self._size} bytes: it was cut short")
        return data
