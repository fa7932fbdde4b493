"""Which GPUs of a box are ours: the inventory's choice, else that of CUDA_VISIBLE_DEVICES, else all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drafthouse.host.box_facts import listed_gpus, read_box
from drafthouse.host.box_types import BoxFacts, Gpu
from drafthouse.host.gpu_choice import fitting_gpus

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box with GPUs 0 to 3; of 2 the driver tells no memory."""
    program = tmp_path / "nvidia-smi"
    lines = [f"NVIDIA L4, {'[N/A]' if n == 2 else 23034}, 580.95.05, 8.9, GPU-{n}{n}{n}{n}-aa, [N/A]" for n in range(4)]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def box(*gpus: str) -> BoxFacts:
    return read_box([], [], "none", gpus=gpus)


def names(found: BoxFacts) -> list[str]:
    return [gpu["uuid"] for gpu in found["gpus"]]


def test_without_a_choice_all_are_ours() -> None:
    found = box()
    assert names(found) == ["GPU-0000-aa", "GPU-1111-aa", "GPU-3333-aa"]
    assert "gpu_choice" not in found


@pytest.mark.parametrize(
    ("asked", "ids"), [(["3", "0"], ["3", "0"]), (["GPU-1111-aa"], ["GPU-1111-aa"]), (["GPU-11"], ["GPU-1111-aa"])]
)
def test_what_is_chosen(asked: list[str], ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = box(*asked)
    assert names(found) == [f"GPU-{word[-1] * 4 if word.isdigit() else '1111'}-aa" for word in ids]
    assert found["gpu_choice"] == {"by": "drafthouse_gpus", "ids": ids, "wrong": [], "listed": [0, 1, 3]}
    # The environment says the same, and less than the inventory.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(asked))
    again = box()
    assert again["gpus"] == found["gpus"]
    assert again["gpu_choice"] == {**found["gpu_choice"], "by": "CUDA_VISIBLE_DEVICES"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert box(*asked)["gpus"] == found["gpus"]
    assert len(listed_gpus()) == 3  # whoever asks about the driver is told of all


@pytest.mark.parametrize(
    ("variable", "ids", "wrong"),
    [("0,7", ["0"], ["7"]), ("", [], [""]), ("-1", [], ["-1"]), ("1,1", ["1"], ["1"]), ("2", [], ["2"]),
     ("GPU-", [], ["GPU-"]), ("0,GPU-0000-aa", ["0"], ["GPU-0000-aa"]), ("NoDevFiles", [], ["NoDevFiles"])],
)  # fmt: skip
def test_what_the_box_does_not_have(
    variable: str, ids: list[str], wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    choice = box()["gpu_choice"]
    assert (choice["ids"], choice["wrong"]) == (ids, wrong)


def test_a_part_of_a_gpu_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1111")
    assert "gpu_choice" not in box()


def test_a_gpu_that_shares_the_systems_memory_has_all_of_that(tmp_path: Path) -> None:
    """As a DGX Spark's nvidia-smi says it: no memory of the GPU's own."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, [N/A], 580.95.05, 12.1, GPU-0000-aa, [N/A]'\n")
    found = box()
    assert [(gpu["name"], gpu["memory_mib"]) for gpu in found["gpus"]] == [
        ("NVIDIA GB10", found["memory_total"] // (1024 * 1024))
    ]
    assert found["gpus"][0]["memory_mib"] > 0


def test_a_gpu_that_is_split_says_so(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559, 580.95.05, 9.0, GPU-0000-aa, Enabled'\n")
    assert [gpu["split"] for gpu in box()["gpus"]] == [True]


PRO = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"


def test_of_different_gpus_those_of_the_profile_are_chosen() -> None:
    def gpu(name: str, uuid: str) -> Gpu:
        return {"name": name, "uuid": uuid, "memory_mib": 1, "driver": "", "compute_capability": ""}

    rtx4090, pro1, pro2 = gpu("NVIDIA GeForce RTX 4090", "GPU-a"), gpu(PRO, "GPU-b"), gpu(PRO, "GPU-c")
    assert fitting_gpus([rtx4090, pro1], ["RTX PRO 6000"], 1) == ["GPU-b"]
    assert fitting_gpus([rtx4090, pro1, pro2], ["RTX PRO 6000"], 2) == ["GPU-b", "GPU-c"]
    for gpus, devices in (([pro1, pro2], 1), ([rtx4090], 1), ([rtx4090, pro1], 2)):
        assert fitting_gpus(gpus, ["RTX PRO 6000"], devices) == []
