"""Models that a test makes and no product ships: SmolLM2 pruned, made dearer, and with heads of random weights.

They are described in a folder of one's own (docs/models.md): its profiles are in `tests/support/profiles/`, its entries
point at the files that are made here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from drafthouse.weights.demo.recipes import gguf_to_hf, language_model, pad_blocks, restack
from tests.support import random_heads
from tests.support.catalogue import table
from tests.support.engines import KEPT, OWN_PROFILES, engine_home, packaged_weights

#: Where the models are kept between runs of the tests.
MADE = KEPT.parent / "made"

_RANDOM = "the head's weights are random: it predicts nothing, and every step costs what a real head costs."
_HEAD: dict[str, Any] = {
    "kind": "head", "head_for": "smollm2-135m-hf", "format": "safetensors", "license": "Apache-2.0",
    "synthetic": _RANDOM, "layers": 1, "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "vocab": 49152,
    "context": 8192, "tokenizer": "smollm2",
}  # fmt: skip


def entries(made: Path = MADE) -> dict[str, Any]:
    """The catalogue's entries of the models that `made_model` makes below ``made``."""
    quantised, folder = (dict(table("models")[name]) for name in ("smollm2-135m-q4", "smollm2-135m-hf"))
    found: dict[str, Any] = {
        "smollm2-135m-q4-pruned": {
            **quantised,
            "name": "SmolLM2-135M-Instruct, Q4_1, 20 of its 30 blocks",
            "synthetic": "a third of its blocks taken out and no training after it: a draft that guesses badly.",
            "weight_bytes": 76192608,
            "parameters": 99114048,
            "layers": 20,
        },
        "smollm2-135m-hf-x3": {
            **folder,
            "name": "SmolLM2-135M-Instruct with identity blocks, 90 blocks instead of 30, as a BF16 folder",
            "served_name": "smollm2-135m-x3",
            "synthetic": "60 blocks inserted that compute nothing: the same answers, about three times the work.",
            "weight_bytes": 693900000,
            "parameters": 346927680,
            "layers": 90,
        },
        "smollm2-135m-eagle3-random": {
            **_HEAD,
            "name": "EAGLE-3 head with random weights for SmolLM2-135M-Instruct",
            "head_method": "eagle3",
            "since": {"vllm": "0.10.1"},  # the speculators format
            "weight_bytes": 19732400,
            "parameters": 9808128,
            "vocab": 8192,  # the head's own, the first of the target's
        },
        "smollm2-135m-dflash-random": {
            **_HEAD,
            "name": "DFlash head with random weights for SmolLM2-135M-Instruct",
            "head_method": "dflash",
            "max_speculative_tokens": 7,  # its blocks are of eight tokens, of which the first is known
            "weight_bytes": 9074800,
            "parameters": 4536704,
        },
        # A MiMo by its configuration: a Qwen2 with such a block inside, and a Qwen2 whose biases are zero is a Llama.
        "smollm2-135m-mtp-random": {
            **folder,
            "name": "SmolLM2-135M-Instruct with a block of random weights inside for multi-token prediction",
            "synthetic": "the weights of the block that predicts a token ahead are random: it predicts nothing.",
            "weight_bytes": 277542336,
            "parameters": 138750144,
            "builtin_head": {
                "kind": "mtp", "layers": 1, "n_predict": 1, "tensors": ["model.mtp_layers.0.*"],
                "weight_bytes": 8412672, "read_bytes": 65035776,  # and the output matrix
            },
        },
    }  # fmt: skip
    for name, entry in found.items():
        path = made / name
        entry.update(folder=name, source={"path": str(path / entry["file"] if "file" in entry else path)})
    return found


def own_folder(folder: Path, made: Path = MADE) -> Path:
    """Write profiles and entries of the made models into ``folder``, for DRAFTHOUSE_PROFILES; return it."""
    (folder / "catalog").mkdir(parents=True)
    for profile in OWN_PROFILES.glob("*.yml"):
        shutil.copy(profile, folder)
    (folder / "catalog" / "models.yml").write_text(yaml.safe_dump(entries(made), sort_keys=False), "utf-8")
    return folder


def made_model(name: str, made: Path = MADE) -> Path:
    """Make the model ``name`` of `entries` below ``made``, unless it is there; return its file or folder."""
    path = Path(entries(made)[name]["source"]["path"])
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _MAKERS[name](path)
    return path


def prune_blocks(source: Path, path: Path, blocks: int) -> None:
    """Write the GGUF ``source`` to ``path`` with ``blocks`` of its own blocks: as many of the first as of the last.

    A cheap draft that was never healed by training: the fewer blocks, the worse it guesses.
    """
    reader, own = language_model(str(source), str(source))
    first = (blocks + 1) // 2
    sources = [(block, False) for block in [*range(first), *range(own - blocks + first, own)]]
    mark = f"blocks taken out: {own} -> {blocks}"
    to = str(path)
    restack(reader, block_count=own, sources=sources, synthetic=mark, dst=to, where=to, progress=None)


def random_head(kind: str, target: Path, folder: Path) -> Path:
    """Make the head ``kind`` (of `random_heads.KINDS`) for the target's folder, whole or not at all; return it."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    random_heads.make(kind, target, partial)
    partial.rename(folder)
    return folder


def converted(path: Path, source: Path | None = None) -> Path:
    """Make the Hugging Face folder ``path`` of a GGUF, SmolLM2's own by default, unless it is there; return it."""
    if not path.exists():
        python = str(engine_home("vllm") / "bin" / "python")
        gguf_to_hf(str(source or packaged_weights("smollm2-135m-q4")), str(path), python)
    return path


def _pruned(path: Path) -> None:
    prune_blocks(packaged_weights("smollm2-135m-q4"), path, 20)


def _dearer(path: Path) -> None:
    padded = path.with_name(f"{path.name}.gguf")
    pad_blocks(str(packaged_weights("smollm2-135m-q4")), str(padded), 90)
    converted(path, padded)
    padded.unlink()


def _head(kind: str) -> Callable[[Path], object]:
    return lambda path: random_head(kind, converted(path.with_name("smollm2-135m-hf")), path)


_MAKERS: dict[str, Callable[[Path], object]] = {
    "smollm2-135m-q4-pruned": _pruned,
    "smollm2-135m-hf-x3": _dearer,
    **{f"smollm2-135m-{kind}-random": _head(kind) for kind in random_heads.KINDS},
}
