"""Check that a checkpoint has its built-in head (layers that draft tokens, such as MTP) in a usable precision.

Some exports leave out the head's tensors; others quantize its first matrix to 4 bits, and then almost no draft token is
accepted. The index and a few headers show this. A repository of the hub is therefore checked before the download, and
the files on disk are checked afterwards.
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
from .headers import FETCH_AGAIN, ByteReader, header_of
from .inspect import INDEX, and_more, no_weight_map, weight_map
from .integrity import digest

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import BuiltinHead
    from drafthouse.weights.fetch_plan import Plan
    from drafthouse.weights.hub_client import RemoteFile

# Limits in bytes for reading headers at the hub. A safetensors header has some 150 bytes per tensor, and a built-in
# head is in few shards. A GGUF header holds the vocabulary (11 MB for 248,320 tokens). The index is needed anyway.
_MAX_HEADER = 3 << 20  # of all safetensors headers of a model together
_MAX_GGUF = 48 << 20  # of all GGUF headers of a model together
_MAX_INDEX = 64 << 20
_FIRST_READ = 64 << 10  # bytes of the first request for a header
_GROWTH = 4  # each later request multiplies the bytes downloaded until then


@dataclass(frozen=True)
class ExpectedHead:
    """Built-in head that weights must contain."""

    wanted: BuiltinHead  # as the catalogue describes it
    file: str = ""  # name of the GGUF file that the engine loads; '' for a folder of safetensors

    @classmethod
    def of(cls, wanted: BuiltinHead, path: Path) -> ExpectedHead:
        """Built-in head of weights whose path is ``path``; the files may not exist yet."""
        return cls(wanted, path.name if path.suffix == ".gguf" else "")


@dataclass(frozen=True)
class Files:
    """Files of a model on disk or at the hub."""

    where: str  # path, or repository and commit, for messages
    sizes: Mapping[str, int]  # bytes by name
    opened: Callable[[str], AbstractContextManager[ByteReader]]  # opens the file of a name for reading


def check_head_on_disk(head: ExpectedHead, path: Path) -> list[Problem]:
    """Problems of the built-in head in the weights at ``path``, unreadable headers included; [] if it is right."""
    folder = path if path.is_dir() else path.parent
    try:
        sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
        return check_head(head, Files(str(path), sizes, lambda name: (folder / name).open("rb")))
    except (OSError, ValueError, struct.error) as error:
        return [Problem("weights-damaged", str(error), "readable headers", FETCH_AGAIN, str(path))]


def check_at_hub(head: ExpectedHead, plan: Plan, limits: Limits) -> list[str]:
    """Check before the download that a revision has its built-in head. Raises DrafthouseError if it does not.

    A line for the user if the headers cannot be read: the check is then made after the download. No lines if the head
    is right, or if there is nothing to save: nothing to download, or a list of files that came from a note on disk.
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


def check_head(head: ExpectedHead, files: Files) -> list[Problem]:
    """Problems of the built-in head in ``files``; [] if it is right.

    The headers are those of the GGUF file, or of the shards that hold the head's tensors according to the index, or,
    without an index, of all shards. Raises ValueError, struct.error or OSError for unreadable headers.
    """
    if head.file:
        return compare(head.wanted, _gguf_tensor_types(head.file, files), files.where)
    if INDEX not in files.sizes:
        # Subfolders hold copies of the model in other formats.
        shards = {name for name in files.sizes if re.fullmatch(r"[^/]+\.safetensors", name)}
    else:
        with files.opened(INDEX) as stream:
            shard_of = weight_map(stream.read(files.sizes[INDEX]))
        if shard_of is None:
            return [no_weight_map(f"{files.where}: {INDEX}")]
        shards = set()
        for pattern in _all_patterns(head.wanted):
            shards.update(shard_of[name] for name in _matching(shard_of, pattern))
        shards &= set(files.sizes)
    return compare(head.wanted, _shard_tensor_types(sorted(shards), files), files.where)


def compare(wanted: BuiltinHead, tensor_types: Mapping[str, str], where: str) -> list[Problem]:
    """Problems of a head, from the dtypes of its tensors by name; ``tensor_types`` may have other tensors too.

    Each of the patterns ``wanted["tensors"]`` must match a tensor. If only siblings, such as ``qweight``, match, the
    head was quantized, which is a problem of its precision; if nothing matches, it was not exported. Tensors that match
    a pattern of ``wanted["dtypes"]`` must have one of its dtypes.
    """
    missing: list[str] = []
    unusable: list[str] = []
    for pattern in wanted["tensors"]:
        if _matching(tensor_types, pattern):
            continue
        replacements = _matching(tensor_types, _sibling_pattern(pattern))
        if replacements:
            quantized = ", ".join(f"{name} ({tensor_types[name]})" for name in replacements)
            unusable.append(f"{quantized} and no {pattern}")
        else:
            missing.append(pattern)
    for pattern, dtypes in wanted.get("dtypes", {}).items():
        wrong = [name for name in _matching(tensor_types, pattern) if tensor_types[name] not in dtypes]
        if wrong:
            unusable.append(f"{wrong[0]}{and_more(wrong)} in {tensor_types[wrong[0]]}")
    complete_repo = wanted.get("has_it")
    export = f"{complete_repo}, which has it" if complete_repo else "an export that has it"
    do = f"use {export}, or a method without it"
    problems = []
    if missing:
        needed = f"the tensors of the built-in head that this method drafts with: {', '.join(wanted['tensors'])}"
        problems.append(Problem("builtin-head-not-exported", f"no tensor {', '.join(missing)}", needed, do, where))
    if unusable:
        forms = [f"{pattern} in {' or '.join(dtypes)}" for pattern, dtypes in wanted.get("dtypes", {}).items()]
        needed = f"a built-in head in its trained precision: {', '.join(forms or wanted['tensors'])}"
        problems.append(Problem("builtin-head-precision", "; ".join(unusable), needed, do, where))
    return problems


def _sibling_pattern(pattern: str) -> str:
    """Pattern for tensors that quantizers store instead: ``mtp.fc.*`` (``mtp.fc.qweight``) for ``mtp.fc.weight``.

    A pattern whose last part has a ``*`` already stays as it is.
    """
    module, _, name = pattern.rpartition(".")
    return pattern if "*" in name else f"{module}.*"


def _all_patterns(wanted: BuiltinHead) -> list[str]:
    """Patterns of all tensors that `compare` looks at."""
    return [*wanted["tensors"], *wanted.get("dtypes", ()), *map(_sibling_pattern, wanted["tensors"])]


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """Names that match an fnmatch pattern, sorted."""
    return sorted(name for name in names if fnmatchcase(name, pattern))


# --- reading headers ----------------------------------------------------------------------------------------


def _gguf_tensor_types(name: str, files: Files) -> dict[str, str]:
    """Tensors (name -> type) of a GGUF model, of all its files if it was split. Raises ValueError."""
    tensor_types: dict[str, str] = {}
    parts = [part for part in split_names(name) if part in files.sizes]
    for part in parts or [name]:
        if part not in files.sizes:
            raise ValueError(f"no {part} among the files")
        with files.opened(part) as stream:
            tensors = gguf_head(stream, files.sizes[part]).tensors
        tensor_types |= {tensor: type_name(kind) for tensor, (kind, _, _) in tensors.items()}
    return tensor_types


def _shard_tensor_types(shards: Iterable[str], files: Files) -> dict[str, str]:
    """Tensors (name -> dtype) of safetensors files. Raises ValueError for a damaged header."""
    tensor_types: dict[str, str] = {}
    for shard in shards:
        with files.opened(shard) as stream:
            header = header_of(stream, files.sizes[shard], shard)
        if header.problems:
            raise ValueError(f"{shard}: {header.problems[0].found}")
        tensor_types |= {name: tensor.dtype for name, tensor in header.tensors.items()}
    return tensor_types


# --- at the hub ---------------------------------------------------------------------------------------------


def files_at_hub(listed: Iterable[RemoteFile], where: str, limits: Limits, header_bytes: int = _MAX_HEADER) -> Files:
    """Files at the hub, of which only the headers are downloaded, and the index as a whole.

    ``header_bytes`` limits the safetensors headers that are read of all files together.
    """
    by_name = {file.path: file for file in listed}
    safetensors_budget = _ByteBudget(header_bytes)
    gguf_budget = _ByteBudget(_MAX_GGUF)

    @contextmanager
    def opened(name: str) -> Iterator[ByteReader]:
        """Open a file; the bytes that are read come from the hub. Raises ValueError and DrafthouseError."""
        file = by_name[name]
        if name == INDEX:
            with _download_small(file, limits) as stream:
                yield stream
        else:
            with tempfile.TemporaryFile() as stream:
                budget = gguf_budget if name.endswith(".gguf") else safetensors_budget
                yield _HubFileStart(file, stream, limits, budget)

    return Files(where, {name: file.size for name, file in by_name.items()}, opened)


@contextmanager
def _download_small(file: RemoteFile, limits: Limits) -> Iterator[IO[bytes]]:
    """Download the index into a temporary file. Raises ValueError if it is too large or its hash is wrong."""
    if file.size > _MAX_INDEX:
        raise ValueError(f"{file.path} has {shown_bytes(file.size)}")
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part"
        fetch(file, part, limits, lambda count: None)
        if digest(part, git=file.sha256 is None) != file.key:
            raise ValueError(f"{file.path} came with wrong bytes")
        with part.open("rb") as stream:
            yield stream


@dataclass
class _ByteBudget:
    """Bytes that may still be downloaded, for all files that share the budget."""

    left: int


@dataclass
class _HubFileStart:
    """`ByteReader` of a file at the hub: the first bytes are downloaded into ``stream`` as they are read."""

    file: RemoteFile
    stream: IO[bytes]  # temporary file
    limits: Limits
    budget: _ByteBudget
    loaded: int = 0  # bytes downloaded
    position: int = 0  # bytes read

    def read(self, length: int, /) -> bytes:
        """Next bytes, fewer only at the end of the file. Raises ValueError if the budget is used up."""
        need = min(self.position + length, self.file.size)
        if need > self.loaded:
            # Growing by a factor keeps the requests few; the file and the budget limit the bytes.
            wanted = max(need, _FIRST_READ, self.loaded * _GROWTH)
            allowed = min(wanted, self.file.size, self.loaded + self.budget.left)
            if allowed < need:
                raise ValueError(f"a header of {shown_bytes(need)} or more, too large to be read before the download")
            fetch_start(self.file, allowed, self.stream.fileno(), self.limits)
            self.budget.left -= allowed - self.loaded
            self.loaded = allowed
        data = self.stream.read(length)
        self.position += len(data)
        return data

    def tell(self) -> int:
        """Number of bytes that were read."""
        return self.position
