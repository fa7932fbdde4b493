from __future__ import annotations

from typing import Any

import pytest

from drafthouse.profiles.expected_speed import Drafting, Target, mean_acceptance_length
from drafthouse.profiles.memory_fit import (
    GB,
    context_that_fits,
    decode_limit,
    fit_arm,
    kv_bytes_per_token,
)

QWEN: Any = {"weight_bytes": 65_524_000_000, "layers": 64, "kv_heads": 8, "head_dim": 128, "context": 40960}
HEAD = {"weight_bytes": 3_120_000_000, "layers": 1, "kv_heads": 8, "head_dim": 128, "context": 40960}


def test_kv_cache_of_qwen3_32b_as_published() -> None:
    assert kv_bytes_per_token(QWEN, 2) == 262_144


def arm(**changes: object) -> Any:
    given: dict[str, object] = {
        "memory": 100 * GB, "utilization": 0.9, "devices": 1, "draft_devices": 1, "target": QWEN, "draft": HEAD,
        "builtin": None, "overhead": 3 * GB, "bytes_per_value": 2, "context": 1000, "sequences": 2,
        "context_is_shared": False, "reserves_share": True, "drafted": 3,
    }  # fmt: skip
    return fit_arm(**{**given, **changes})  # type: ignore[arg-type]  # a test's own mixture


def test_what_is_left() -> None:
    fit = arm()
    per_token = 262_144 + 4_096
    assert fit["kv_per_token"] == per_token
    assert fit["kv_needed"] == 2000 * per_token
    assert fit["left"] == 90 * GB - 65_524_000_000 - 3_120_000_000 - 3 * GB - 2000 * per_token
    assert fit["longest_context"] == 40960
    assert fit["reserved"] == 90 * GB


def test_a_shared_context_is_counted_once() -> None:
    assert arm(context_is_shared=True)["kv_needed"] == 1000 * (262_144 + 4_096)


def test_two_devices_halve_weights_and_cache() -> None:
    fit = arm(devices=2, draft_devices=1)
    assert fit["weights"] == 32_762_000_000
    assert fit["draft"] == 3_120_000_000
    assert fit["kv_per_token"] == 131_072 + 4_096


def test_fewer_kv_heads_than_devices_are_on_several() -> None:
    target = {**QWEN, "kv_heads": 2, "window_bytes": 8000, "state_bytes": 4000}
    fit = arm(devices=4, draft=None, target=target)
    assert fit["kv_per_token"] == 65_536 // 2
    assert fit["kv_needed"] == 2 * (1000 * 65_536 // 2 + 8000 // 2 + 4000 * 4 // 4)
    # The latent of MLA counts as one head.
    assert arm(devices=4, draft=None, target={**QWEN, "kv_heads": 1})["kv_per_token"] == 32_768
    assert arm(devices=4, draft=None, target=target, by_layers=True)["kv_per_token"] == 65_536 // 4


def test_too_large_is_negative_and_no_context_fits() -> None:
    fit = arm(memory=60 * GB)
    assert isinstance(fit["left"], int)
    assert fit["left"] < 0
    assert fit["longest_context"] == 0


@pytest.mark.parametrize("shared", [True, False])
def test_the_context_that_fits_does_with_all_sequences_and_one_token_more_does_not(shared: bool) -> None:
    # Of 18.4 GB that 68,945 tokens fill, each of four sequences gets a fourth: more than a fourth of its longest.
    given: dict[str, object] = {"sequences": 4, "context": 200_000, "context_is_shared": shared}
    less = context_that_fits(arm(**given), shared=shared)
    assert less == (68_945 if shared else 17_236)
    assert arm(**{**given, "context": less})["left"] >= 0 > arm(**{**given, "context": less + 1})["left"]


def test_a_model_without_a_growing_cache_has_its_own_context() -> None:
    assert arm(target={**QWEN, "kv_layers": 0}, draft=None)["longest_context"] == QWEN["context"]


def test_the_decode_limit_is_bandwidth_over_bytes() -> None:
    assert decode_limit(65_524_000_000, 1792 * GB) == pytest.approx(27.35, abs=0.01)


@pytest.mark.parametrize(
    ("acceptance", "k", "cost", "speedup"),
    [
        (0.0, 3, 0.0, 1.0),  # nothing is accepted, and drafting is free
        (0.0, 5, 0.1, 1 / 1.5),  # ... and drafting is not free
        (1.0, 3, 0.0, 4.0),  # everything is
        (0.8, 5, 0.02, (1 - 0.8**6) / (0.2 * 1.1)),  # the formula as it is printed in the paper
    ],
)
def test_where_only_bytes_count_it_is_leviathans_formula(
    acceptance: float, k: int, cost: float, speedup: float
) -> None:
    length = mean_acceptance_length(acceptance, k)
    found = Target(GB, 0, 1000 * GB).speedup(Drafting(int(cost * GB)), 1, k, length)
    assert found == pytest.approx(speedup)


def test_a_mixture_of_experts_that_loses_in_between_pays_until_there() -> None:
    target = Target(2 * GB, 0, 1000 * GB, experts=100 * GB, used=1, of=100)
    gains = [target.speedup(Drafting(0), users, 10, 2.0) for users in (1, 16, 512)]
    assert gains[0] > 1 > gains[1]
    assert gains[2] > 1
    until = target.pays_until(Drafting(0), 10, 2.0)
    assert until is not None
    assert target.speedup(Drafting(0), until, 10, 2.0) > 1 >= target.speedup(Drafting(0), until + 1, 10, 2.0)
