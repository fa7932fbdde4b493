"""Weights made from other weights: de-quantised, padded with identity blocks, converted for vLLM.

Runs on the box. The GGUF recipes need gguf and numpy in the interpreter that calls them; what makes a
Hugging Face folder runs in the vLLM engine's own environment. Every recipe writes beside its
destination and renames at the end, and the same input gives the same bytes in every run.
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

# general.file_type of llama.cpp's llama_ftype: what the file says of itself.
FILE_TYPES: dict[str, int] = {"F32": 0, "BF16": 32}


def recipe_key(recipe: str, params: Mapping[str, object], input_sha256s: Sequence[str]) -> str:
    """The hex key under which a derived file is kept: the recipe, its version, parameters, inputs.

    Raises DrafthouseError for a recipe that does not exist.
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
    """The hex SHA-256 over the sorted relative names and hashes of a folder's files."""
    digest = hashlib.sha256()
    for file in sorted(item for item in path.rglob("*") if item.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\0{file_sha256(file)}\n".encode())
    return digest.hexdigest()


def dequantize(src: str, dst: str, dtype: str = "BF16", progress: Progress | None = None) -> Written:
    """Write the GGUF ``src`` to ``dst`` with every matrix in ``dtype`` (``BF16`` or ``F32``).

    Vectors (norms, biases) become F32, as llama.cpp's own converter leaves them. Raises DrafthouseError.
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
        wanted = gguf.GGMLQuantizationType[dtype if len(tensor.shape) > 1 else "F32"]
        plan.append(Tensor(tensor.name, tensor, wanted, zero=False))
    # The version of a quantisation that is no longer there goes too.
    metadata = {"general.file_type": FILE_TYPES[dtype], "general.quantization_version": None}
    return write_gguf(reader, Path(dst), plan, metadata, progress)


def pad_blocks(src: str, dst: str, blocks: int, progress: Progress | None = None) -> Written:
    """Write the GGUF ``src`` to ``dst`` with identity blocks behind its own, ``blocks`` in all.

    An identity block is a copy of a real one, in turn, with ``attn_output`` and ``ffn_down`` at zero: it is
    read and computed at full price and adds nothing to the residual stream, so the model stays the same
    function and gets dearer. Synthetic; the file says so under ``drafthouse.synthetic``. Raises DrafthouseError.
    """
    where = f"weights recipe gguf_pad_blocks: {src}"
    reader, own = language_model(src, where)
    if blocks <= own:
        raise one_problem(
            code="out-of-range",
            where=f"{where}: blocks",
            found=str(blocks),
            needed=f"more than the model's own {own} blocks",
            do=f"write {own * 2} to make it about twice as expensive",
        )
    sources = [(block % own, block >= own) for block in range(blocks)]
    return restack(reader, own, sources, f"identity blocks: {own} -> {blocks}", dst, where, progress)


def gguf_to_hf(src: str, dst_dir: str, python: str) -> Written:
    """Convert the GGUF ``src`` to a Hugging Face folder (BF16 safetensors) that vLLM serves.

    ``python`` is the interpreter of the vLLM engine's environment; ``gguf-to-hf``, which the engine role
    installs beside it, does the work with the transformers of that very environment. A padded GGUF
    gives a padded folder. Takes tens of seconds, most of it imports. Raises DrafthouseError.
    """
    where = f"weights recipe gguf_to_hf: {src}"
    program = _engine_program(python, "gguf-to-hf", where)
    require_gguf(src)
    return _folder_by(python, program, src, Path(dst_dir), where, needed="a GGUF that its transformers can load")


def _engine_program(python: str, name: str, where: str) -> Path:
    """The program that the engine role installs beside ``python``. Raises DrafthouseError without it."""
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
    """Run ``python program src FOLDER`` and put the folder at ``final`` when it ended well."""
    partial = final.with_name(f".{final.name}{PARTIAL_SUFFIX}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = [python, str(program), src]
        done = subprocess.run([*command, str(partial)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise one_problem(
                code="program-failed",
                where=where,
                found=lines[-1] if lines else f"exit status {done.returncode} without output",
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
    """A reader of the GGUF ``src``, and its number of blocks. Raises DrafthouseError."""
    gguf, _numpy = libraries()
    reader = open_gguf(gguf, src)
    count = reader.fields.get(f"{reader.fields['general.architecture'].contents()}.block_count")
    if count is None:
        raise one_problem(
            code="gguf-unsupported",
            where=where,
            found="no block_count in the metadata",
            needed="a language model",
            do="use another GGUF",
        )
    return reader, int(count.contents())


def restack(
    reader: Any,
    own: int,
    sources: Sequence[tuple[int, bool]],
    synthetic: str,
    dst: str,
    where: str,
    progress: Progress | None,
) -> Written:
    """Write the model with other blocks: each of ``sources`` is the block it copies, and whether it adds nothing."""
    by_block = blocks_of(reader, own, where)
    plan = []
    for tensor in reader.tensors:
        if not tensor.name.startswith("blk."):
            plan.append(Tensor(tensor.name, tensor, tensor.tensor_type, zero=False))
    for block, (source, silent) in enumerate(sources):
        for role, tensor in by_block[source]:
            zero = silent and role.split(".")[0] in RESIDUAL_WRITERS
            plan.append(Tensor(f"blk.{block}.{role}", tensor, tensor.tensor_type, zero))
    architecture = str(reader.fields["general.architecture"].contents())
    metadata: dict[str, Any] = {
        f"{architecture}.block_count": len(sources),
        "general.size_label": None,
        "drafthouse.synthetic": synthetic,
    }
    for key, field in reader.fields.items():
        # A list with one value a block (heads, window pattern) must stay as long as there are blocks.
        if key.startswith(f"{architecture}.") and len(field.types) > 1 and len(field.data) == own:
            values = field.contents()
            metadata[key] = [values[source] for source, _silent in sources]
    return write_gguf(reader, Path(dst), plan, metadata, progress)
