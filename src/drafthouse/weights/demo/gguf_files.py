"""Read a GGUF file and write another one from its tensors, atomically and with one tensor in memory at a time.

Runs on the box; the calling interpreter needs the packages gguf and numpy.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import DrafthouseError, Problem, one_problem

# Called with (bytes written, bytes in total); both are equal in the last call.
Progress = Callable[[int, int], None]
#: Values by metadata key.
Metadata = Mapping[str, Any]

# The tensors of a block whose output is added to the residual stream. If they are zero, the block adds
# nothing: x + W_o·attention(x) = x and x + W_down·ffn(x) = x, whatever the norms around them do.
RESIDUAL_WRITERS = frozenset({"attn_output", "ffn_down"})
# All tensors of a plain transformer block. Any other tensor could write to the residual stream too
# (state space models, experts, per-layer embeddings), so a model that has one is refused.
BLOCK_TENSORS = RESIDUAL_WRITERS | {
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_q_norm", "attn_k_norm",
    "post_attention_norm", "ffn_norm", "ffn_gate", "ffn_up", "post_ffw_norm",
}  # fmt: skip
PARTIAL_SUFFIX = ".partial"
CHUNK = 1 << 20  # bytes of one read


@dataclass(frozen=True)
class Written:
    """A file or folder that a recipe wrote."""

    path: str
    bytes: int  # of the file, or of all files in the folder
    sha256: str  # in hex; that of a folder covers its file names and their hashes


def file_sha256(path: Path) -> str:
    """The hex SHA-256 of a file, read in chunks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class Tensor:
    """One tensor to write."""

    name: str
    source: Any  # tensor of the reader (gguf.ReaderTensor) that gives the shape and the values
    target_type: Any  # gguf.GGMLQuantizationType to write
    zero: bool  # write the value 0 everywhere instead of the source's values


def libraries() -> tuple[Any, Any]:
    """The modules gguf and numpy. Raises DrafthouseError if one is missing.

    They are imported here because the controller, which uses only `recipes.recipe_key`, does not have them.
    """
    try:
        return importlib.import_module("gguf"), importlib.import_module("numpy")
    except ImportError as error:
        raise one_problem(
            code="package-missing",
            where="weights recipe",
            found=f"no Python package {error.name}",
            needed="gguf and numpy",
            do="add them to the environment that runs the recipe (role box_env)",
        ) from error


def require_gguf(src: str) -> None:
    """Raise DrafthouseError unless ``src`` is a readable file that starts with the GGUF magic number."""
    try:
        with Path(src).open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise one_problem(
            code="file-unreadable",
            where=f"weights recipe: {src}",
            found=error.strerror or str(error),
            needed="a readable GGUF file",
            do="check the path",
        ) from error
    if magic != b"GGUF":
        raise one_problem(
            code="weights-damaged",
            where=f"weights recipe: {src}",
            found=f"a file starting with {magic!r}",
            needed="a GGUF file",
            do="give the .gguf file itself, not an archive or a pointer to it",
        )


def open_gguf(gguf: Any, src: str) -> Any:
    """GGUFReader of ``src``. Raises DrafthouseError unless that is a complete little-endian model in one file."""
    require_gguf(src)
    try:
        reader = gguf.GGUFReader(src)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise one_problem(
            code="weights-damaged",
            where=f"weights recipe: {src}",
            found=f"a damaged GGUF ({error})",
            needed="a whole GGUF file",
            do="fetch the file again",
        ) from error
    found = None
    if reader.endianess != gguf.GGUFEndian.LITTLE:
        found = "a big-endian GGUF"
    elif "general.architecture" not in reader.fields:
        found = "a GGUF without general.architecture"
    elif not reader.tensors:
        found = "a GGUF without tensors (a vocabulary, or the first part of a split model)"
    if found:
        raise one_problem(
            code="gguf-unsupported",
            where=f"weights recipe: {src}",
            found=found,
            needed="a little-endian GGUF of a whole model",
            do="use another file; merge a split model with llama-gguf-split first",
        )
    return reader


def blocks_of(reader: Any, block_count: int, where: str) -> list[list[tuple[str, Any]]]:
    """(role, tensor) pairs of each block, from names ``blk.INDEX.ROLE``, such as ``blk.0.ffn_down.weight``.

    Raises DrafthouseError for roles that a plain block does not have, and for a block without ``RESIDUAL_WRITERS``.
    """
    by_block: list[list[tuple[str, Any]]] = [[] for _ in range(block_count)]
    unsupported: set[str] = set()
    for tensor in reader.tensors:
        prefix, _, rest = tensor.name.partition(".")
        if prefix != "blk":
            continue
        block_text, _, role = rest.partition(".")
        if not block_text.isdigit() or int(block_text) >= block_count or role.split(".")[0] not in BLOCK_TENSORS:
            unsupported.add(tensor.name)
        else:
            by_block[int(block_text)].append((role, tensor))
    problems = []
    if unsupported:
        problems.append(
            Problem(
                code="gguf-unsupported",
                where=where,
                found=f"tensors that are not part of a plain block: {', '.join(sorted(unsupported)[:3])}",
                needed="a dense transformer, where a block is attention and a feed-forward part",
                do="pad a dense model (Llama, Qwen, Gemma 2, SmolLM2)",
            )
        )
    for index, block in enumerate(by_block):
        missing = RESIDUAL_WRITERS - {role.split(".")[0] for role, _ in block}
        if missing:
            problems.append(
                Problem(
                    code="gguf-unsupported",
                    where=where,
                    found=f"block {index} has no {' and no '.join(sorted(missing))}",
                    needed="attn_output and ffn_down in every block",
                    do="use another GGUF",
                )
            )
            break
    if problems:
        raise DrafthouseError(problems)
    return by_block


def write_gguf(
    reader: Any,
    final: Path,
    plan: Sequence[Tensor],
    metadata: Metadata,
    progress: Progress | None,
) -> Written:
    """Write the planned tensors and the reader's metadata to ``final``, one tensor in memory at a time.

    ``metadata`` replaces values of the reader's keys, removes a key whose value is None, and adds new keys.
    ``progress``: None to report none. Raises DrafthouseError.
    """
    gguf, np = libraries()
    total = sum(_stored_bytes(gguf, planned.source.n_elements, planned.target_type) for planned in plan)
    with _replacing(final) as partial:
        writer = gguf.GGUFWriter(str(partial), arch=str(reader.fields["general.architecture"].contents()))
        writer.data_alignment = reader.alignment
        _add_metadata(gguf, writer, reader, metadata)
        for planned in plan:
            shape = [int(size) for size in reversed(planned.source.shape)]
            size = _stored_bytes(gguf, planned.source.n_elements, planned.target_type)
            writer.add_tensor_info(planned.name, shape, np.dtype(np.float32), size, planned.target_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        written_bytes = 0
        try:
            for planned in plan:
                array = _values(gguf, np, planned, str(final))
                writer.write_tensor_data(array)
                written_bytes += array.nbytes
                if progress:
                    progress(written_bytes, total)
        finally:
            writer.close()
    return Written(str(final), final.stat().st_size, file_sha256(final))


def _add_metadata(gguf: Any, writer: Any, reader: Any, metadata: Metadata) -> None:
    """Add the reader's metadata to the writer, changed by ``metadata`` as `write_gguf` says."""
    for key, field in reader.fields.items():
        value = metadata.get(key, field.contents())
        # The writer adds the GGUF keys and the architecture itself.
        if key.startswith("GGUF.") or key == "general.architecture" or value is None:
            continue
        # A list has two types: that of a list, and last that of its values.
        element_type = field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(key, value, field.types[0], element_type)
    for key, value in metadata.items():
        if key not in reader.fields and value is not None:
            writer.add_key_value(key, value, _value_type(gguf, value))


def _value_type(gguf: Any, value: object) -> Any:
    """GGUF type of the value of a new key: text, or else an unsigned number of 32 bits."""
    return gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.UINT32


def _stored_bytes(gguf: Any, elements: int, kind: Any) -> int:
    """Size in bytes of ``elements`` values in a tensor of the GGML type ``kind``."""
    values_per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    return int(elements) // int(values_per_block) * int(block_bytes)


def _values(gguf: Any, np: Any, planned: Tensor, where: str) -> Any:
    """Array to write for a tensor, converted to its GGML type. Raises DrafthouseError if that is not possible."""
    source = planned.source
    if planned.zero:
        # Zero bytes mean the value 0 in every GGML type, because the scales of a quantised block are 0 too.
        return np.zeros(_stored_bytes(gguf, source.n_elements, planned.target_type), dtype=np.uint8)
    if source.tensor_type == planned.target_type:
        return source.data
    try:
        values = gguf.quants.dequantize(source.data, source.tensor_type)
    except NotImplementedError as error:
        raise one_problem(
            code="gguf-unsupported",
            where=f"{where}: {source.name}",
            found=f"type {source.tensor_type.name}, which gguf-py cannot de-quantise",
            needed="a type gguf-py knows (F16, BF16, Q4_0 … Q8_0, K- and I-quants)",
            do="use another quantisation of the same model",
        ) from error
    return gguf.quants.quantize(values.astype(np.float32, copy=False), planned.target_type)


@contextmanager
def _replacing(final: Path) -> Iterator[Path]:
    """Yield the path of a temporary file; flush it to disk and rename it to ``final`` on success, else remove it.

    Raises DrafthouseError for an OSError, also one of the block.
    """
    # The name is fixed, so that the file of a killed run is overwritten by the next run.
    partial = final.with_name(f".{final.name}{PARTIAL_SUFFIX}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(final, error) from error
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(final)
    except OSError as error:
        raise cannot_write(final, error) from error
    finally:
        partial.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError) -> DrafthouseError:
    """Error for a derived file that cannot be written."""
    return one_problem(
        code="file-unwritable",
        where=str(path),
        found=error.strerror or str(error),
        needed="free space for the derived weights",
        do="free disk space, or choose another folder for the weights",
    )
