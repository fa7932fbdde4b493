"""What a box has for `make test-gpu`, and which level that allows. `choose` is pure; `look` reads the box."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from drafthouse.host.box_facts import listed_gpus
from drafthouse.host.box_types import Gpu
from drafthouse.profiles.catalog_types import HardwareEntry

#: The folder of the target that level 2 serves, as the catalogue names it.
TARGET_FOLDER = "Qwen-Qwen3-8B"
#: MiB that Qwen3-8B in BF16 takes with a head and a small context.
_LEVEL_2_MIB = 22_000
_HUB = "https://huggingface.co/api/models/RedHatAI/Qwen3-8B-speculator.eagle3"
_PATIENCE_S = 10
_CUBLAS = ("local/cuda*/include/cublas_v2.h", "local/cuda*/targets/*/include/cublas_v2.h", "include/cublas_v2.h")


class Box(TypedDict):
    """A box. ``kind``: read by this program, or made by hand for a test. Empty texts: not there."""

    kind: Literal["recorded", "made"]
    gpus: list[Gpu]
    nvcc: str
    cublas: str
    cpp: str
    python: str
    packages: bool
    hub: bool
    vllm: str
    luggage: str
    models: list[str]
    cores: int


@dataclass(frozen=True)
class Chosen:
    """The levels that run, why, and what each level above them lacks. ``hardware``: the card in the catalogue."""

    levels: tuple[int, ...]
    hardware: str
    why: tuple[str, ...]


def choose(box: Box, hardware: Mapping[str, HardwareEntry], articles: Sequence[str] = ()) -> Chosen:
    """The levels that ``box`` can run; none without a GPU.

    ``articles``: the catalogue's hardware for which a profile has an article's own pairing.
    """
    if not box["gpus"]:
        return Chosen((), "", ("nvidia-smi shows no NVIDIA GPU",))
    gpu = box["gpus"][0]
    entry = hardware_of(gpu["name"], hardware)
    said = [f"level 0: {gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}"]
    levels = [0]
    weights = "the Hub" if box["hub"] else "weights on this box" if TARGET_FOLDER in box["models"] else ""
    vllm = f"vLLM {box['vllm']}" if box["vllm"] else "vLLM from the package index" if box["packages"] else ""
    lacking: dict[int, list[str]] = {
        1: [
            *([] if box["nvcc"] else ["nvcc"]),
            *([] if box["cublas"] or not box["nvcc"] else ["cuBLAS beside nvcc"]),
            *([] if box["cpp"] else ["g++"]),
            *([] if box["luggage"] or box["packages"] else ["luggage (python -m tests.gpu.luggage)"]),
            *([] if entry else [f"an entry for {gpu['name']} in profiles/catalog/hardware.yml"]),
        ],
        2: [
            *([] if weights else [f"the Hub, or {TARGET_FOLDER} in the models' folder"]),
            *([] if vllm else ["vLLM, or a package index"]),
            *([] if gpu["memory_mib"] >= _LEVEL_2_MIB else [f"{_LEVEL_2_MIB} MiB of GPU memory"]),
            *([] if entry else [f"an entry for {gpu['name']} in profiles/catalog/hardware.yml"]),
        ],
    }
    lacking[3] = [
        *(["level 2"] if lacking[2] else []),
        *([] if box["hub"] else ["the Hub"]),
        *([] if entry in articles else ["an article's pairing for this card among the profiles"]),
    ]
    # With the network and vLLM a real model proves more than random weights, whose place level 1 is.
    for level in (1, 2, 3):
        if lacking[level]:
            said.append(f"level {level} not run: no {', no '.join(lacking[level])}")
        elif level == 1 and not lacking[2]:
            said.append("level 1 not run: level 2 proves the same with a real model")
        else:
            levels.append(level)
            have = {
                1: f"nvcc, {'luggage' if box['luggage'] else 'a package index'}",
                2: f"{weights}, {vllm}",
                3: weights,
            }
            said.append(f"level {level}: {have[level]}")
    return Chosen(tuple(levels), entry, tuple(said))


def hardware_of(name: str, hardware: Mapping[str, HardwareEntry]) -> str:
    """The catalogue's entry of one card by nvidia-smi's name of it; '' where there is none."""
    return next(
        (
            key
            for key, entry in hardware.items()
            if entry["kind"] == "gpu"
            and entry["devices"] == 1
            and any(word in name for word in entry.get("gpu_names", []))
        ),
        "",
    )


def look(models_dir: Path, luggage: Path) -> Box:
    """What this box has."""
    gpus = [gpu for _, gpu in sorted(listed_gpus().items())]
    return {
        "kind": "recorded",
        "gpus": gpus,
        "nvcc": shutil.which("nvcc") or next((str(path) for path in Path("/usr/local").glob("cuda*/bin/nvcc")), ""),
        # llama.cpp's CUDA back end is linked with it, and an installation of CUDA's compiler alone lacks it.
        "cublas": next((str(path) for place in _CUBLAS for path in sorted(Path("/usr").glob(place))), ""),
        "cpp": shutil.which("g++") or "",
        "python": platform.python_version(),
        # Nothing is asked of a network for a box that will not use it.
        "packages": bool(gpus) and _packages(),
        "hub": bool(gpus) and _answers(_HUB),
        "vllm": _vllm(),
        "luggage": str(luggage) if luggage.is_file() else "",
        "models": sorted(path.name for path in models_dir.glob("*/")) if models_dir.is_dir() else [],
        "cores": len(os.sched_getaffinity(0)),
    }


def _packages() -> bool:
    """Whether pip reaches an index, whichever it is set up with."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "index",
        "versions",
        "ninja",
        "--disable-pip-version-check",
        "--retries",
        "0",
    ]
    try:
        return subprocess.run(command, capture_output=True, timeout=3 * _PATIENCE_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _vllm() -> str:
    """The version of a vLLM that the box's own Python has."""
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    for python in filter(None, (shutil.which("python3"), sys.executable)):
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return ""
