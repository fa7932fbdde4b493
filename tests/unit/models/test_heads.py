"""What a head's own configuration says of how many tokens it drafts."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.models.heads import most_tokens


def _proposes(tokens: int) -> dict[str, Any]:
    return {"speculators_config": {"proposal_methods": [{"speculative_tokens": tokens}]}}


@pytest.mark.parametrize(
    ("method", "config", "most"),
    [
        ("dflash", {"block_size": 16}, 15),
        ("dspark", {"block_size": 8}, 8),
        ("dspark", {"block_size": 8, "sample_from_anchor": False}, 7),
        # Kimi-K3's: the anchor's place drafts too
        ("dspark", {"block_size": 8, "sample_from_anchor": True, **_proposes(8)}, 8),
        # what the head itself says is never overruled by its block
        ("dspark", {"block_size": 8, **_proposes(8)}, 8),
        ("dspark", {"block_size": 8, **_proposes(3)}, 8),
        ("eagle3", {"block_size": 8, **_proposes(3)}, None),
        ("medusa", {"num_heads": 5}, 5),
        ("arctic", {"n_predict": "3"}, 3),
    ],
)
def test_the_most_tokens_of_one_step(method: str, config: dict[str, Any], most: int | None) -> None:
    assert most_tokens(config, method) == most
