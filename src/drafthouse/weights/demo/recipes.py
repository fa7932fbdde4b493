"""Recipes that derive weights from other weights: de-quantise, pad with identity blocks, convert for vLLM.

Runs on the box. The GGUF recipes need gguf and numpy in the calling interpreter; the conversion to a
Hugging Face folder runs in the vLLM engine's environment. Every recipe writes to a temporary name
beside its destination and renames it at the end. The same input gives the same bytes in every run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import did_you_mean, one_problem
from ...profiles.recipe_versions import RECIPE_VERSIONS
from .gguf_files import (
    PARTIAL_SUFFIX,
    RESIDUAL_WRITERS,
    Progress,
    Tensor,
    Written,
    blocks_of,
    cannot_write,
    file_sha256,
    libraries,
    open_gguf,
    require_gguf,
    write_gguf,
)

# Values of the metadata key general.file_type, from llama.cpp's enum llama_ftype.
FILE_TYPES: dict[str, int] = {"F32": 0, "BF16": 32}


def recipe_key(recipe: str, params: Mapping[str, object], input_sha256s: Sequence[str]) -> str:
    """Hex hash that identifies derived weights: of the recipe, its version, its parameters and its inputs.

    ``input_sha256s`` may be any hashes that identify the inputs. Raises DrafthouseError for an unknown recipe.
    """
    if recipe not in RECIPE_VERSIONS:
        raise one_problem(
            code="unknown-value",
            where="weights recipe",
            found=recipe,
            needed="a known recipe",
            do=did_you_mean(recipe, RECIPE_VERSIONS),
        )
    content = {
        "recipe": recipe,
        "version": RECIPE_VERSIONS[recipe],
        "params": dict(params),
        "inputs": list(input_sha256s),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def folder_sha256(path: Path) -> str:
    """Hex SHA-256 over the sorted relative paths and hashes of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def dequantize(src: str, dst: str, dtype: str = "BF16", progress: Progress | None = None) -> Written:
    """Write the GGUF ``src`` to ``dst`` with every matrix in ``dtype`` (``BF16`` or ``F32``).

    Vectors (norms, biases) become F32, as in files of llama.cpp's converter. Raises DrafthouseError.
    """
    if dtype not in FILE_TYPES:
        raise one_problem(
            code="unknown-value",
            where="weights recipe gguf_dequantize: dtype",
            found=dtype,
            needed="one of BF16, F32",
            do=did_you_mean(dtype, FILE_TYPES),
        )
    gguf, _numpy = libraries()
    reader = open_gguf(gguf, src)
    plan: list[Tensor] = []
    for tensor in reader.tensors:
        target_type = gguf.GGMLQuantizationType[dtype if len(tensor.shape) > 1 else "F32"]
        plan.append(Tensor(tensor.name, tensor, target_type, zero=False))
    # None removes a key: the new file has no quantisation whose version it could name.
    metadata = {"general.file_type": FILE_TYPES[dtype], "general.quantization_version": None}
    return write_gguf(reader, Path(dst), plan, metadata, progress)


def pad_blocks(src: str, dst: str, blocks: int, progress: Progress | None = None) -> Written:
    """Append identity blocks to the blocks of the GGUF ``src``, up to ``blocks`` in total, and write it to ``dst``.

    An identity block is a copy of a block with ``attn_output`` and ``ffn_down`` set to zero. It costs as much
    time as any block but adds nothing to the residual stream, so the padded model gives the same answers more
    slowly. The key ``drafthouse.synthetic`` marks such a file. Raises DrafthouseError.
    """
    where = f"weights recipe gguf_pad_blocks: {src}"
    reader, block_count = language_model(src, where)
    if blocks <= block_count:
        raise one_problem(
            code="out-of-range",
            where=f"{where}: blocks",
            found=str(blocks),
            needed=f"more than the model's own {block_count} blocks",
            do=f"write {block_count * 2} to make it about twice as expensive",
        )
    # The new blocks copy the model's own blocks, from the first one on, as often as needed.
    sources = [(block % block_count, block >= block_count) for block in range(blocks)]
    return restack(
        reader,
        block_count=block_count,
        sources=sources,
        synthetic=f"identity blocks: {block_count} -> {blocks}",
        dst=dst,
        where=where,
        progress=progress,
    )


def gguf_to_hf(src: str, dst_dir: str, python: str) -> Written:
    """Convert the GGUF ``src`` to a Hugging Face folder (BF16 safetensors) that vLLM can serve.

    ``python`` is the interpreter of the vLLM engine's environment. The program ``gguf-to-hf``, which the
    engine role installs beside it, converts with the transformers package of that environment. This takes
    tens of seconds, mostly for imports. Raises DrafthouseError.
    """
    where = f"weights recipe gguf_to_hf: {src}"
    program = _engine_program(python, "gguf-to-hf", where)
    require_gguf(src)
    return _folder_by(python, program, src, Path(dst_dir), where, needed="a GGUF that its transformers can load")


def _engine_program(python: str, name: str, where: str) -> Path:
    """Path of a program that the engine role installs beside ``python``. Raises DrafthouseError if it is missing."""
    program = Path(python).with_name(name)
    if not program.is_file():
        raise one_problem(
            code="program-missing",
            where=where,
            found=f"no {program}",
            needed="the vLLM engine's environment",
            do=f"install the engine first (role engine, with {name} among its tools)",
        )
    return program


def _folder_by(python: str, program: Path, src: str, final: Path, where: str, needed: str) -> Written:
    """Run ``python program src FOLDER`` and rename the folder to ``final`` if it succeeds.

    ``where`` and ``needed`` are texts for the problem of a program that fails. Raises DrafthouseError.
    """
    partial = final.with_name(f".{final.name}{PARTIAL_SUFFIX}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = [python, str(program), src]
        process = subprocess.run([*command, str(partial)], capture_output=True, text=True, check=False)
        if process.returncode != 0:
            lines = (process.stderr or process.stdout).strip().splitlines()
            raise one_problem(
                code="program-failed",
                where=where,
                found=lines[-1] if lines else f"exit status {process.returncode} without output",
                needed=needed,
                do=f"run it manually: {' '.join(command)} OUT",
            )
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
    except OSError as error:
        raise cannot_write(final, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum(file.stat().st_size for file in final.rglob("*") if file.is_file())
    return Written(str(final), size, folder_sha256(final))


def language_model(src: str, where: str) -> tuple[Any, int]:
    """Reader of the GGUF ``src``, and its number of transformer blocks. Raises DrafthouseError."""
    gguf, _numpy = libraries()
    reader = open_gguf(gguf, src)
    block_count = reader.fields.get(f"{reader.fields['general.architecture'].contents()}.block_count")
    if block_count is None:
        raise one_problem(
            code="gguf-unsupported",
            where=where,
            found="no block_count in the metadata",
            needed="a language model",
            do="use another GGUF",
        )
    return reader, int(block_count.contents())


def restack(
    reader: Any,
    *,
    block_count: int,
    sources: Sequence[tuple[int, bool]],
    synthetic: str,
    dst: str,
    where: str,
    progress: Progress | None,
) -> Written:
    """Write the model of ``reader``, which has ``block_count`` blocks, to ``dst`` with other blocks.

    ``sources`` has a pair for each new block: the index of the block to copy, and whether it becomes an identity block.
    ``synthetic``: value of the key ``drafthouse.synthetic``. Raises DrafthouseError, whose problems name ``where``.
    """
    by_block = blocks_of(reader, block_count, where)
    plan = []
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk."):
            plan.append(Tensor(tensor.name, tensor, tensor.tensor_type, zero=False))
    for block, (source, is_identity) in enumerate(sources):
        for role, tensor in by_block[source]:
            zero = is_identity and role.split(".")[0] in RESIDUAL_WRITERS
            plan.append(Tensor(f"blk.{block}.{role}", tensor, tensor.tensor_type, zero))
    architecture = str(reader.fields["general.architecture"].contents())
    metadata: dict[str, Any] = {
        f"{architecture}.block_count": len(sources),
        "general.size_label": None,  # removed: it names the size of the model without the new blocks
        "drafthouse.synthetic": synthetic,
    }
    for key, field in reader.fields.items():
        # A list with one value per block (heads, window pattern) must have as many values as the new blocks.
        if key.startswith(f"{architecture}.") and len(field.types) > 1 and len(field.data) == block_count:
            values = field.contents()
            metadata[key] = [values[source] for source, _is_identity in sources]
    return write_gguf(reader, Path(dst), plan, metadata, progress)
