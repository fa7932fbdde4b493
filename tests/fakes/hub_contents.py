"""Files as the hub holds them: bytes, made on the fly, or lying on this disk; with the hub's own hashes.

The hub knows a large file by the sha256 of its bytes (git LFS) and a small one by its git blob id, the
sha1 of ``blob <size>\\0`` and the bytes. A large file that is made on the fly costs neither disk nor memory.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

#: Files with these endings are in LFS on the hub (its .gitattributes), and so is anything above 1 MB here.
LFS_ENDINGS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".model")
#: A prime number of bytes: a piece that lands at a wrong offset, round as those are, shows in the hash.
BLOCK = 1_048_573


class Content(Hashable, Protocol):
    """What a file is made of."""

    @property
    def size(self) -> int:
        """The file's size in bytes."""

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        """Yield the bytes from ``begin`` to before ``end``."""


@dataclass(frozen=True)
class Given:
    """Bytes of a test."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        view = memoryview(self.data)
        for at in range(begin, end, BLOCK):
            yield view[at : min(at + BLOCK, end)]


@functools.cache
def _block(seed: int) -> bytes:
    return random.Random(seed).randbytes(BLOCK)


@dataclass(frozen=True)
class Made:
    """``bytes_`` bytes from a seed, made when they are asked for: one block after another, the same each time."""

    bytes_: int
    seed: int

    @property
    def size(self) -> int:
        return self.bytes_

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        view = memoryview(_block(self.seed))
        while begin < end:
            inside = begin % BLOCK
            piece = view[inside : inside + end - begin]
            yield piece
            begin += len(piece)


@dataclass(frozen=True)
class Zeros:
    """Nothing but zeros, as a sparse file holds them."""

    bytes_: int

    @property
    def size(self) -> int:
        return self.bytes_

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        zeros = memoryview(bytes(BLOCK))
        for at in range(begin, end, BLOCK):
            yield zeros[: min(BLOCK, end - at)]


@dataclass(frozen=True)
class OnDisk:
    """A file of this machine; the server lets the kernel copy it (sendfile), so that it is not the bottleneck."""

    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        with self.path.open("rb") as file:
            file.seek(begin)
            while begin < end and (piece := file.read(min(BLOCK, end - begin))):
                yield piece
                begin += len(piece)


@dataclass(frozen=True)
class Begun:
    """A file that begins with ``start`` and goes on with zeros, as large as a model's; nobody can fetch all of it.

    The hash that the hub knows it by is not its own: it would take minutes.
    """

    start: bytes
    bytes_: int

    @property
    def size(self) -> int:
        return self.bytes_

    def pieces(self, begin: int, end: int) -> Iterator[bytes | memoryview]:
        known = len(self.start)
        yield from Given(self.start).pieces(begin, min(end, known))
        yield from Zeros(self.bytes_).pieces(max(begin, known), end)


def as_content(data: Content | bytes) -> Content:
    """``data`` as what the server serves."""
    return Given(data) if isinstance(data, bytes) else data


def data_of(content: Content | bytes) -> bytes:
    """All bytes of a file; for small ones."""
    content = as_content(content)
    return b"".join(bytes(piece) for piece in content.pieces(0, content.size))


@functools.cache
def sha256_of(content: Content) -> str:
    """The sha256 by which LFS knows the file."""
    digest = hashlib.sha256()
    for piece in content.pieces(0, len(content.start) if isinstance(content, Begun) else content.size):
        digest.update(piece)
    return digest.hexdigest()


def git_sha1_of(data: bytes) -> str:
    """The id of the git blob that holds ``data``."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def pointer_of(content: Content) -> bytes:
    """The text that git holds in place of a file in LFS."""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (
        sha256_of(content).encode(),
        content.size,
    )


def in_lfs(name: str, content: Content) -> bool:
    """Tell whether the hub holds the file in LFS."""
    return name.endswith(LFS_ENDINGS) or content.size > 1_000_000


def entry_of(name: str, content: Content | bytes, xet_hash: str | None = None) -> dict[str, object]:
    """The file's line in the listing of ``/tree``."""
    content = as_content(content)
    if not in_lfs(name, content):
        return {"type": "file", "path": name, "size": content.size, "oid": git_sha1_of(data_of(content))}
    pointer = pointer_of(content)
    lfs = {"oid": sha256_of(content), "size": content.size, "pointerSize": len(pointer)}
    entry = {"type": "file", "path": name, "size": content.size, "oid": git_sha1_of(pointer), "lfs": lfs}
    return {**entry, "xetHash": xet_hash} if xet_hash else entry


def etag_of(name: str, content: Content | bytes) -> str:
    """What the hub calls the file's content: its sha256 in LFS, otherwise the git blob's id."""
    content = as_content(content)
    return sha256_of(content) if in_lfs(name, content) else git_sha1_of(data_of(content))
