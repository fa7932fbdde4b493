"""Pickled weights: files that run any code of their author when an engine loads them.

A pickle is a program (https://docs.python.org/3/library/pickle.html warns of it); safetensors holds only numbers.
Pickles are recognised by their names, before any download. Standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath

from ..core.errors import one_problem

SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
# Files that training leaves beside weights; no engine loads them (vLLM: filter_files_not_needed_for_inference).
_UNLOADED = (
    *("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth"),
    "openvino_model*.bin",  # no pickles: weights for OpenVINO
)
_NAMES_MOST = 6  # file names listed in an error message


def pickled_files(names: Iterable[str], allowed: Sequence[str] = ()) -> list[str]:
    """The ``names`` (paths in a repository) of pickled weights that match no pattern of ``allowed``, sorted."""
    pickled = []
    for name in names:
        if not name.lower().endswith(SUFFIXES):
            continue
        unloaded = any(fnmatch(PurePosixPath(name).name, pattern) for pattern in _UNLOADED)
        if not unloaded and not any(fnmatch(name, pattern) for pattern in allowed):
            pickled.append(name)
    return sorted(pickled)


def refuse_pickles(names: Sequence[str], allowed: Sequence[str], where: str) -> None:
    """Raise DrafthouseError for pickled weights in ``names`` that are not ``allowed``, with what to use instead."""
    pickled = pickled_files(names, allowed)
    if not pickled:
        return
    safe = sorted(name for name in names if name.lower().endswith((".safetensors", ".gguf")))
    patterns = ", ".join(sorted({f'"*{PurePosixPath(name).suffix}"' for name in pickled}))
    instead = "take a repository (or a revision) that has them as safetensors"
    if safe:
        instead = f"add ignore: [{patterns}] to its source.hub: it also has {_listed(safe)}"
    raise one_problem(
        "pickled-weights",
        f"pickled weights: {_listed(pickled)}",
        "safetensors: loading a pickle runs code",
        f"{instead}; or allow them: allow_pickle: {{files: [{patterns}], reason: ...}} in the model's entry of"
        " profiles/catalog/models.yml",
        where,
    )


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMES_MOST} more" if len(names) > _NAMES_MOST else ""
    return ", ".join(names[:_NAMES_MOST]) + more
