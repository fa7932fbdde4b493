"""The engines' own options that stop drafting above a batch size, given in `speculation.options` of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.support.refusals import refuses

ROWS = "num_speculative_tokens_per_batch_size"


def resolved(profile: str, option: str, value: object, **overrides: Any) -> Any:
    return resolved_profile(
        profile, site_of_inventory("workstation"), {"speculation": {"options": {option: value}}, **overrides}
    )


@pytest.mark.parametrize(
    ("profile", "option", "value"),
    [
        ("rtx6000-qwen-eagle3", ROWS, [[1, 11, 3], [12, 64, 0]]),
        ("rtx6000-gptoss-trtllm-eagle3", "max_concurrency", 8),
        ("rtx6000-gptoss-arctic", "disable_by_batch_size", 8),
    ],
)
def test_the_option_is_the_speculative_arm_s_alone(profile: str, option: str, value: object) -> None:
    found = resolved(profile, option, value)
    assert found["method"]["settings"][option] == value
    written = {arm: str(found["arms"][arm]["files"]) for arm in ("baseline", "speculative")}
    assert option in written["speculative"]
    assert option not in written["baseline"]
    plain = resolved_profile(profile, site_of_inventory("workstation"))
    assert found["arms"]["baseline"]["files"] == plain["arms"]["baseline"]["files"]


def test_a_version_without_the_option_is_told() -> None:
    with refuses("option-not-in-version", match=r"since 0\.24\.0"):
        resolved("rtx6000-qwen-eagle3", ROWS, [[1, 11, 3], [12, 64, 0]], engine_version="0.23.0")


def test_rows_beyond_k_are_told() -> None:
    with refuses("draft-length-schedule"):
        resolved("rtx6000-qwen-eagle3", ROWS, [[1, 11, 99]])
