"""A prefix cache that one arm alone hits."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.analysis.asked_again import Hits, lost_prefix_cache, with_cache_hits

ANSWERS = "the answers' own figures"
HIT, COLD = Hits(46_000, 48_000, ANSWERS), Hits(0, 48_000, ANSWERS)
PASSED: Any = {"word": "passed", "said": "2 of 2 prompts right"}


def test_a_cache_that_speculation_alone_misses_is_lost() -> None:
    """vllm-project/vllm#54360: speculation switches the prefix cache of hybrids off."""
    judged = with_cache_hits(PASSED, {"baseline": HIT, "speculative": COLD})
    assert judged["word"] == "not measured"
    assert judged["said"].startswith("speculation costs the prefix cache: the baseline had 46,000 of 48,000")


@pytest.mark.parametrize(("ours", "theirs"), [(HIT, HIT), (COLD, COLD), (COLD, HIT), (None, COLD), (HIT, None)])
def test_anything_else_is_no_loss(ours: Hits | None, theirs: Hits | None) -> None:
    assert lost_prefix_cache(ours, theirs) is None
