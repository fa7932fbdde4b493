"""Which levels of make test-gpu a box allows, on boxes made by hand: none of them is a recording of a real one."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.places import ROOT
from drafthouse.profiles.catalog import load_catalog
from tests.gpu.box import TARGET_FOLDER, Box, choose, hardware_of
from tests.gpu.lane import REAL, commands

HOUSE = load_catalog(ROOT)
ARTICLES = sorted({one["hardware"] for one in HOUSE.profiles.values() if one.get("article")})
H100: Any = {
    "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "driver": "580.95.05", "compute_capability": "9.0",
    "uuid": "GPU-1",
}  # fmt: skip
RTX4090: Any = {**H100, "name": "NVIDIA GeForce RTX 4090", "memory_mib": 24564, "compute_capability": "8.9"}


def box(*gpus: Any, **given: Any) -> Box:
    bare: Any = {
        "kind": "made", "gpus": list(gpus), "nvcc": "", "cublas": "/usr/include/cublas_v2.h", "cpp": "/usr/bin/g++",
        "python": "3.12.3", "packages": False,
        "hub": False, "vllm": "", "luggage": "", "models": [], "cores": 16,
    }  # fmt: skip
    return {**bare, **given}  # type: ignore[typeddict-item]


def chosen(found: Box) -> Any:
    return choose(found, HOUSE.hardware, ARTICLES)


def test_without_a_gpu_nothing_runs() -> None:
    found = chosen(box(packages=True, hub=True, vllm="0.32.0", nvcc="/usr/bin/nvcc"))
    assert found.levels == ()
    assert "no NVIDIA GPU" in found.why[0]


LENT = {"nvcc": "/usr/local/cuda/bin/nvcc", "luggage": "build/gpu-luggage.tar.xz"}
ONLINE = {"packages": True, "hub": True}


@pytest.mark.parametrize(
    ("found", "levels", "said"),
    [
        (box(H100), (0,), "level 1 not run: no nvcc, no luggage"),
        (box(H100, **LENT), (0, 1), "level 2 not run: no the Hub"),
        (box(H100, nvcc="/usr/bin/nvcc"), (0,), "level 1 not run: no luggage"),
        (box(H100, **LENT, cublas=""), (0,), "level 1 not run: no cuBLAS beside nvcc"),
        (box(H100, **LENT, models=[TARGET_FOLDER], vllm="0.32.0"), (0, 2), "level 2: weights on this box, vLLM 0.32.0"),
        (box(H100, **LENT, **ONLINE), (0, 2), "level 1 not run: level 2 proves the same"),
        (box(RTX4090, **ONLINE), (0, 2, 3), "level 3: the Hub"),
        (box({**RTX4090, "memory_mib": 16376}, **ONLINE), (0,), "level 2 not run: no 22000 MiB"),
        (
            box({**H100, "name": "NVIDIA Z9"}, **LENT),
            (0,),
            "no an entry for NVIDIA Z9 in profiles/",
        ),
        (box(RTX4090, packages=True, nvcc="/usr/bin/nvcc"), (0, 1), "level 1: nvcc, a package index"),
        (box(RTX4090, packages=True, nvcc="/usr/bin/nvcc", cpp=""), (0,), "level 1 not run: no g++"),
    ],
)
def test_the_fullest_level_that_it_can(found: Box, levels: tuple[int, ...], said: str) -> None:
    decided = chosen(found)
    if found["gpus"][0]["name"] == H100["name"] and found["hub"]:
        levels = (*levels, 3) if "h100" in ARTICLES else levels
    assert decided.levels == levels, decided.why
    assert said in "\n".join(decided.why)


def test_each_level_is_explained() -> None:
    for found in (box(H100), box(RTX4090, **ONLINE), box(H100, **LENT)):
        assert [line[:7] for line in chosen(found).why] == [f"level {number}" for number in range(4)]


def test_a_card_is_found_by_its_name() -> None:
    assert hardware_of("NVIDIA H100 80GB HBM3", HOUSE.hardware) == "h100"
    assert hardware_of("NVIDIA GeForce RTX 4090", HOUSE.hardware) == "rtx4090"
    assert hardware_of("Quadro", HOUSE.hardware) == ""


def test_levels_2_and_3_are_runs_of_profiles_that_are_there() -> None:
    found = commands(chosen(box(RTX4090, **ONLINE)), (0, 2, 3))
    names = [words[words.index("run") + 1] for words in found]
    assert set(names) <= set(HOUSE.profiles)
    assert names[:3] == list(REAL)
    assert "rtx4090-llama32-draft1b" in names
    assert commands(chosen(box(H100)), (0,)) == []
