"""Pickled weights: files that run whatever code their maker wrote when an engine loads them.

A pickle is a program (https://docs.python.org/3/library/pickle.html says so in red); safetensors holds numbers alone.
Files are told by their names, before the first byte is fetched. Standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath

from ..core.errors import one_problem

SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
# Left beside weights by whoever trained them; no engine loads them (vLLM: filter_files_not_needed_for_inference).
_UNLOADED = (
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth"),
    "openvino_model*.bin",  # numbers alone, for another engine
)
_NAMES_MOST = 6  # in an error


def pickles(names: Iterable[str], allowed: Sequence[str] = ()) -> list[str]:
    """Those of ``names`` (paths in a repository) that are pickled weights and match none of ``allowed``."""
    found = []
    for name in names:
        if not name.lower().endswith(SUFFIXES):
            continue
        unloaded = any(fnmatch(PurePosixPath(name).name, pattern) for pattern in _UNLOADED)
        if not unloaded and not any(fnmatch(name, pattern) for pattern in allowed):
            found.append(name)
    return sorted(found)


def refuse_pickles(names: Sequence[str], allowed: Sequence[str], where: str) -> None:
    """Raise DrafthouseError where pickled weights are among ``names``, with what to take instead."""
    found = pickles(names, allowed)
    if not found:
        return
    safe = sorted(name for name in names if name.lower().endswith((".safetensors", ".gguf")))
    patterns = ", ".join(sorted({f'"*{PurePosixPath(name).suffix}"' for name in found}))
    instead = "take a repository (or a revision) that has them as safetensors"
    if safe:
        instead = f"add ignore: [{patterns}] to its source.hub: it also has {_listed(safe)}"
    raise one_problem(
        "pickled-weights",
        f"pickled weights: {_listed(found)}",
        "safetensors: loading a pickle runs code",
        f"{instead}; or allow them: allow_pickle: {{files: [{patterns}], reason: ...}} in the model's entry of"
        " profiles/catalog/models.yml",
        where,
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MOST} more" if len(names) > _NAMES_MOST else ""
    return ", ".join(names[:_NAMES_MOST]) + more
