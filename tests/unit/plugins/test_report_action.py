"""Which arm a verdict leaves serving."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.drafthouse.core.plugins.action.report import arm_to_serve

SAME = {"release": "0002", "arm": "speculative", "same": True}


@pytest.mark.parametrize(
    ("word", "served", "arm"),
    [
        ("pays", None, "speculative"),
        ("does not pay", SAME, "baseline"),
        ("invalid", SAME, "baseline"),
        # Nobody can say: what serves goes on, and on a new box there is no draft without a reason.
        ("cannot say", SAME, "speculative"),
        ("cannot say", {**SAME, "arm": "baseline"}, "baseline"),
        ("cannot say", {**SAME, "same": False}, "baseline"),
        ("cannot say", None, "baseline"),
        ("cannot say", {}, "baseline"),
    ],
)
def test_the_arm_that_is_left_serving(word: str, served: dict[str, Any] | None, arm: str) -> None:
    assert arm_to_serve(word, served) == arm
