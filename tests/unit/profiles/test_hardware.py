"""What hardware asks of an engine, and what the plan refuses of it: environment, shared memory, another maker's GPU."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError, Problem
from drafthouse.profiles.catalog import load_catalog, load_gpus
from drafthouse.profiles.memory_fit import MIB
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory

SPARK = "dgx-spark-nemotron35-dspark"


def resolved(name: str, overrides: dict[str, Any]) -> Any:
    return resolved_profile(name, site_of_inventory("workstation"), overrides)


def refusal(name: str, overrides: dict[str, Any]) -> Problem:
    with pytest.raises(DrafthouseError) as caught:
        resolved(name, overrides)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("hardware", "target", "there"),
    [
        ("rtx6000", "qwen38-27b-fp8", True),
        ("dgx-spark", "qwen38-27b-fp8", True),
        ("h200", "qwen38-27b-fp8", False),
        ("b200", "qwen38-27b-fp8", False),
        ("rtx6000", "qwen38-27b-nvfp4", False),
    ],
)
def test_block_wise_fp8_runs_without_deepgemm_on_consumer_blackwell(hardware: str, target: str, there: bool) -> None:
    found = resolved("rtx6000-qwen38-mtp", {"hardware": hardware, "target": target})
    # A baseline in another environment would be no baseline.
    for arm in (*found["arms"].values(), found["stock"] or found["arms"]["baseline"]):
        assert ("VLLM_USE_DEEP_GEMM" in arm["environment"]) is there
        assert not there or arm["environment"]["VLLM_USE_DEEP_GEMM"] == "0"
        assert not there or "VLLM_MOE_USE_DEEP_GEMM=0" in arm["files"][0]["content"]


def test_of_memory_that_is_shared_the_system_keeps_its_part() -> None:
    fit = resolved(SPARK, {})["arms"]["speculative"]["fit"]
    spark = load_catalog(ROOT).hardware["dgx-spark"]
    assert fit["memory"] == spark["memory_mib"] * MIB  # as CUDA counts it, and so the engine's share of it
    assert fit["reserved"] == int(0.7 * fit["memory"])
    problem = refusal(SPARK, {"serve": {"gpu_memory_utilization": 0.95}})
    assert problem.code == "gpu-memory-too-small"
    assert problem.where.endswith(": serve.gpu_memory_utilization")
    assert "the system keeps 8.6 GB" in problem.needed
    assert problem.do == "set it to 0.93 or less"
    assert resolved(SPARK, {"serve": {"gpu_memory_utilization": 0.93}})


def test_an_engine_that_takes_a_share_of_what_is_free_leaves_the_system_its_part_too() -> None:
    name, on = "rtx6000-gptoss-trtllm-eagle3", {"hardware": "dgx-spark"}
    assert resolved(name, {**on, "serve": {"kv_cache_free_gpu_memory_fraction": 0.8}})
    problem = refusal(name, {**on, "serve": {"kv_cache_free_gpu_memory_fraction": 0.97}})
    assert problem.where.endswith(": serve.kv_cache_free_gpu_memory_fraction")
    most = float(problem.do.split()[3])
    assert 0.8 < most < 0.97
    assert resolved(name, {**on, "serve": {"kv_cache_free_gpu_memory_fraction": most}})


def test_a_gpu_of_amd_is_refused_by_every_engine() -> None:
    for name in ("rtx3090-qwen38-llamacpp-mtp", "rtx6000-qwen38-mtp", "rtx6000-gptoss-trtllm-eagle3"):
        problem = refusal(name, {"hardware": "strix-halo"})
        assert problem.code == "hardware-unsupported"
        assert "Strix Halo" in problem.found


def test_every_nvidia_gpu_of_the_catalogue_is_known_to_the_driver_role() -> None:
    cards = {card["name"] for card in load_gpus(ROOT)["cards"].values()}
    for key, hardware in load_catalog(ROOT).hardware.items():
        names = [name.removeprefix("NVIDIA ") for name in hardware.get("gpu_names", [])]
        assert hardware["kind"] != "gpu" or any(name in card for name in names for card in cards), key
