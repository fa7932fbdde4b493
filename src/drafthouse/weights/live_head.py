"""Whether a checkpoint still has the head that it drafts with, in a precision in which that works.

Exports lose it in two ways: its tensors were left out, or its first matrix went to 4 bits, and then next to no token
is accepted. An index and a few headers tell, so a repository of the hub is asked before the first big file comes, and
files that are there are read again afterwards.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem
from ..core.format import shown_bytes
from .download import Limits, fetch, fetch_start
from .gguf_header import gguf_head, split_names, type_name
from .headers import AGAIN, Reading, header_of
from .inspect import INDEX, and_more, no_weight_map, weight_map
from .integrity import digest

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead
    from drafthouse.weights.fetch_plan import Plan
    from drafthouse.weights.hub_client import RemoteFile

# Bytes read of the hub's files. A header of safetensors has some 150 bytes a tensor, and a head lies in few shards; the
# head of a GGUF file holds the vocabulary (11 MB with 248,320 tokens). The index is a file that is fetched anyway.
_HEADERS_MOST, _GGUF_MOST, _INDEX_MOST = 3 << 20, 48 << 20, 64 << 20
_FIRST, _GROWTH = 64 << 10, 4  # bytes asked for first, and how many times as many next


@dataclass(frozen=True)
class LiveHead:
    """What the catalogue says of a head inside a target. ``file``: the GGUF file that the engine is given, or ''."""

    wanted: BuiltinHead
    file: str = ""

    @classmethod
    def of(cls, wanted: BuiltinHead, path: Path) -> LiveHead:
        """The head of the weights that are to lie at ``path``."""
        return cls(wanted, path.name if path.suffix == ".gguf" else "")


@dataclass(frozen=True)
class Files:
    """Files of a model, here or at the hub: ``sizes`` (bytes) by name, and how one is read from its first byte."""

    where: str
    sizes: Mapping[str, int]
    opened: Callable[[str], AbstractContextManager[Reading]]


def check_place(head: LiveHead, path: Path) -> list[Problem]:
    """What is wrong with the head in the weights that lie at ``path``."""
    folder = path if path.is_dir() else path.parent
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
        return check_head(head, Files(str(path), sizes, lambda name: (folder / name).open("rb")))
    except (OSError, ValueError, struct.error) as error:
        return [Problem("weights-damaged", str(error), "readable headers", AGAIN, str(path))]


def check_at_hub(head: LiveHead, plan: Plan, limits: Limits) -> list[str]:
    """See that a revision has its head before it is fetched; return lines for a person. Raises DrafthouseError.

    What cannot be told from unverified bytes is told from the verified ones, once they are there.
    """
    if not (plan.snapshot.from_hub and plan.to_fetch()):
        return []
    repo = plan.snapshot.repo
    try:
        problems = check_head(head, files_at_hub(plan.snapshot.files, f"{repo} at {plan.snapshot.commit}", limits))
    except (OSError, ValueError, struct.error) as error:
        return [f"{repo}: its built-in head will be checked after the download, not before: {error}"]
    if problems:
        raise DrafthouseError(problems)
    return []


def check_head(head: LiveHead, files: Files) -> list[Problem]:
    """What is wrong with the head in ``files``. ValueError (struct.error, OSError): a header cannot be read."""
    if head.file:
        return compare(head.wanted, _of_gguf(head.file, files), files.where)
    if INDEX not in files.sizes:
        # Not below: a subfolder is another copy in another format.
        shards = {name for name in files.sizes if re.fullmatch(r"[^/]+\.safetensors", name)}
    else:
        with files.opened(INDEX) as stream:
            names = weight_map(stream.read(files.sizes[INDEX]))
        if names is None:
            return [no_weight_map(f"{files.where}: {INDEX}")]
        # An engine loads what the index names, and the headers say whether that is there.
        shards = set()
        for pattern in _about(head.wanted):
            shards.update(names[name] for name in _matching(names, pattern))
        shards &= set(files.sizes)
    return compare(head.wanted, _of_shards(sorted(shards), files), files.where)


def compare(wanted: BuiltinHead, held: Mapping[str, str], where: str) -> list[Problem]:
    """Compare what a head must consist of with the tensors ``held`` (name -> dtype); those of other parts may lack."""
    lost, odd = list[str](), list[str]()
    for pattern in wanted["tensors"]:
        if _matching(held, pattern):
            continue
        beside = _matching(held, _beside(pattern))
        if beside:
            quantized = ", ".join(f"{name} ({held[name]})" for name in beside)
            odd.append(f"{quantized} and no {pattern}")
        else:
            lost.append(pattern)
    for pattern, dtypes in wanted.get("dtypes", {}).items():
        wrong = [name for name in _matching(held, pattern) if held[name] not in dtypes]
        if wrong:
            odd.append(f"{wrong[0]}{and_more(wrong)} in {held[wrong[0]]}")
    other = wanted.get("has_it")
    export = f"{other}, which has it" if other else "an export that has it"
    do = f"use {export}, or a method without it"
    problems = []
    if lost:
        needed = f"the tensors of the built-in head that this method drafts with: {', '.join(wanted['tensors'])}"
        problems.append(Problem("builtin-head-not-exported", f"no tensor {', '.join(lost)}", needed, do, where))
    if odd:
        forms = [f"{pattern} in {' or '.join(dtypes)}" for pattern, dtypes in wanted.get("dtypes", {}).items()]
        needed = f"a built-in head in its trained precision: {', '.join(forms or wanted['tensors'])}"
        problems.append(Problem("builtin-head-precision", "; ".join(odd), needed, do, where))
    return problems


def _beside(pattern: str) -> str:
    """A pattern for what quantizers put in a tensor's place: ``mtp.fc.qweight`` for ``mtp.fc.weight``."""
    module, _, name = pattern.rpartition(".")
    return pattern if "*" in name else f"{module}.*"


def _about(wanted: BuiltinHead) -> list[str]:
    """Patterns of all tensors that `compare` looks at."""
    return [*wanted["tensors"], *wanted.get("dtypes", ()), *map(_beside, wanted["tensors"])]


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    return sorted(name for name in names if fnmatchcase(name, pattern))


# --- what the files say -------------------------------------------------------------------------------------


def _of_gguf(name: str, files: Files) -> dict[str, str]:
    """The tensors (name -> type) of a GGUF file, and of the others where it was split."""
    held: dict[str, str] = {}
    parts = [part for part in split_names(name) if part in files.sizes]
    for part in parts or [name]:
        if part not in files.sizes:
            raise ValueError(f"no {part} among the files")
        with files.opened(part) as stream:
            tensors = gguf_head(stream, files.sizes[part]).tensors
        held |= {tensor: type_name(kind) for tensor, (kind, _, _) in tensors.items()}
    return held


def _of_shards(shards: Iterable[str], files: Files) -> dict[str, str]:
    held: dict[str, str] = {}
    for shard in shards:
        with files.opened(shard) as stream:
            header = header_of(stream, files.sizes[shard], shard)
        if header.problems:
            raise ValueError(f"{shard}: {header.problems[0].found}")
        held |= {name: tensor.dtype for name, tensor in header.tensors.items()}
    return held


# --- at the hub ---------------------------------------------------------------------------------------------


def files_at_hub(listed: Iterable[RemoteFile], where: str, limits: Limits, headers_most: int = _HEADERS_MOST) -> Files:
    """Files of the hub, read as far as somebody reads; ``headers_most``: bytes of safetensors headers."""
    by_name = {file.path: file for file in listed}
    headers, gguf = _Allowance(headers_most), _Allowance(_GGUF_MOST)

    @contextmanager
    def opened(name: str) -> Iterator[Reading]:
        file = by_name[name]
        if name == INDEX:
            with _fetched(file, limits) as stream:
                yield stream
        else:
            with tempfile.TemporaryFile() as stream:
                yield _Start(file, stream, limits, gguf if name.endswith(".gguf") else headers)

    return Files(where, {name: file.size for name, file in by_name.items()}, opened)


@contextmanager
def _fetched(file: RemoteFile, limits: Limits) -> Iterator[IO[bytes]]:
    """Fetch a small file. ValueError: it came with wrong bytes, which the download will mend or tell."""
    if file.size > _INDEX_MOST:
        raise ValueError(f"{file.path} has {shown_bytes(file.size)}")
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part"
        fetch(file, part, limits, lambda count: None)
        if digest(part, git=file.sha256 is None) != file.key:
            raise ValueError(f"{file.path} came with wrong bytes")
        with part.open("rb") as stream:
            yield stream


@dataclass
class _Allowance:
    """Bytes that may still be read."""

    left: int


@dataclass
class _Start:
    """The first bytes of a file of the hub, which come as they are read: `Reading`."""

    file: RemoteFile
    stream: IO[bytes]
    limits: Limits
    allowance: _Allowance
    have: int = 0
    at: int = 0

    def read(self, length: int, /) -> bytes:
        """The next bytes, fewer only at the end. Raises ValueError where that would be too many."""
        need = min(self.at + length, self.file.size)
        if need > self.have:
            more = min(max(need, _FIRST, self.have * _GROWTH), self.file.size, self.have + self.allowance.left)
            if more < need:
                raise ValueError(f"a header of {shown_bytes(need)} or more, too large to be read before the download")
            fetch_start(self.file, more, self.stream.fileno(), self.limits)
            self.allowance.left -= more - self.have
            self.have = more
        data = self.stream.read(length)
        self.at += len(data)
        return data

    def tell(self) -> int:
        """How many bytes were read."""
        return self.at
