"""What the plan counts of targets with a head inside, against the sizes that others published of them."""

from __future__ import annotations

import pytest

from drafthouse.profiles.memory_fit import GB
from drafthouse.profiles.workspace import resolved_profile, site_of_inventory

GIB = 1024**3
RECIPE = "vllm-project/recipes 8959cf6, models/Qwen/Qwen3.8-27B.yaml"

# A target with a head inside; over how many cards; bytes that one of them holds, as published, and by whom.
PUBLISHED = [
    ("qwen38-27b", 1, 51.7 * GIB, f"{RECIPE}: variants.default"),
    ("qwen38-27b-fp8", 1, 28.7 * GIB, f"{RECIPE}: variants.fp8"),
    ("qwen38-27b-nvfp4", 1, 24.6 * GIB, f"{RECIPE}: variants.nvfp4"),
    # Loaded, and not only on the disk: of vLLM's own log, with the head.
    ("qwen38-27b-fp8", 2, 14.28 * GIB, f"{RECIPE}: 2x RTX 5090, weights/GPU"),
    ("qwen38-27b-nvfp4", 2, 12.02 * GIB, f"{RECIPE}: 2x RTX 5090, weights/GPU"),
    ("qwen38-27b-nvfp4-unsloth", 2, 10.64 * GIB, f"{RECIPE}: 2x RTX 5090, weights/GPU"),
    ("qwen36-27b-nvfp4", 1, 22 * GB, "vllm-project/recipes 8959cf6, models/Qwen/Qwen3.6-27B.yaml: NVFP4 on Blackwell"),
]


@pytest.mark.parametrize(("target", "devices", "published", "source"), PUBLISHED)
def test_weights_with_the_head_are_as_published(target: str, devices: int, published: float, source: str) -> None:
    changes = {
        "hardware": "rtx5090x2" if devices == 2 else "rtx6000",
        "target": target,
        "serve": {"tensor_parallel_size": devices, "max_model_len": 8192, "max_num_seqs": 1},
    }
    resolved = resolved_profile("rtx6000-qwen38-mtp", site_of_inventory("workstation"), changes)
    baseline, speculative = (resolved["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    counted = speculative["weights"] + speculative["draft"]
    assert counted == pytest.approx(published, rel=0.03), source
    # The head is part of them: counted once, and of the baseline only where nothing is known of its size.
    assert baseline["weights"] == speculative["weights"]
    assert baseline["draft"] == 0
    head = resolved["target"]["builtin_head"].get("weight_bytes", 0)
    assert speculative["draft"] == head // devices


def test_the_sizes_of_muse_glimmer_and_its_head_are_the_recipes() -> None:
    """vllm-project/recipes 8959cf6, models/meta-models/Muse-Glimmer-30B.yaml: 25.42 and 5.11 GB, over two cards."""
    fit = resolved_profile("rtx5090x2-muse-dflash", site_of_inventory("workstation"))["arms"]["speculative"]["fit"]
    assert fit["weights"] == pytest.approx(25.42 * GB / 2, rel=0.03)
    assert fit["draft"] == pytest.approx(5.11 * GB / 2, rel=0.03)


@pytest.mark.parametrize(
    ("profile", "per_token"),
    [
        # Keys and values of 16 of 64 layers, 4 heads of 256, in FP8; with the head's own layer 17.
        ("rtx6000-qwen38-mtp", (32_768, 34_816)),
        ("rtx5090-qwen36moe-mtp", (10_240, 11_264)),
        # Six of 52 layers; the draft's six look back a window.
        ("dgx-spark-nemotron35-dspark", (3_072, 3_072)),
        # 13 of 52 layers on two cards in 16 bits; the draft's five look back a window.
        ("rtx5090x2-muse-dflash", (6_656, 6_656)),
        # Ten of 60 layers; the assistant reads the target's.
        ("h100-gemma4-mtp", (81_920, 81_920)),
    ],
)
def test_only_layers_whose_cache_grows_count_by_the_token(profile: str, per_token: tuple[int, int]) -> None:
    arms = resolved_profile(profile, site_of_inventory("workstation"))["arms"]
    assert tuple(arms[arm]["fit"]["kv_per_token"] for arm in ("baseline", "speculative")) == per_token


def test_the_window_and_state_of_a_sequence_are_counted_beside_them() -> None:
    """vLLM 0.29.0 reserves 17,366,515,712 bytes for one sequence of 262,144 tokens, in 16 bits and without drafts.

    A third party's trace of it; its pages are rounded up (23 of 154 MB of state more).
    """
    changes = {"serve": {"max_model_len": 262_144, "max_num_seqs": 1, "kv_cache_dtype": "auto"}}
    resolved = resolved_profile("rtx6000-qwen38-mtp", site_of_inventory("workstation"), changes)
    baseline, speculative = (resolved["arms"][arm]["fit"] for arm in ("baseline", "speculative"))
    assert baseline["kv_needed"] == pytest.approx(17_366_515_712, rel=0.003)
    state = resolved["target"]["state_bytes"]
    assert baseline["kv_needed"] == 262_144 * baseline["kv_per_token"] + state
    # One more for each of three drafted tokens.
    assert speculative["kv_needed"] == 262_144 * speculative["kv_per_token"] + 4 * state
