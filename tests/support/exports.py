"""Exports for the tests: of which profiles, for which tools, each made once."""

from __future__ import annotations

from functools import cache
from typing import Any

from drafthouse.export.order import Order, order_of
from drafthouse.export.targets import TARGETS, exported, replicas_of, site_of
from drafthouse.profiles.workspace import resolved_profile

#: vLLM with a head, with a draft over four GPUs, over two, with its own head, without a draft; two other engines.
VLLM = (
    "rtx6000-qwen-eagle3",
    "a100x4-llama3-draft8b",
    "rtx5090x2-muse-dflash",
    "rtx6000-qwen36-mtp",
    "h100-llama33-ngram",
)
OTHERS = ("h100-llama33-sglang-eagle3", "rtx4090-llama32-llamacpp-draft1b")
ARMS = ("baseline", "speculative")
#: The one that is looked at closely.
QWEN = VLLM[0]


def profiles_for(target: str) -> tuple[str, ...]:
    """The profiles that a target can run."""
    return VLLM if target == "production-stack" else (*VLLM, *OTHERS)


@cache
def resolved(profile: str, models_dir: str = "/models") -> Any:
    (target, *_) = [one for one in TARGETS.values() if one.models_dir == models_dir]
    return resolved_profile(profile, dict(site_of(target)))


def order(profile: str, target: str, arm: str = "speculative", **given: Any) -> Order:
    one = TARGETS[target]
    given.setdefault("replicas", replicas_of(None, one))
    return order_of(resolved(profile, one.models_dir), arm, keyed=one.keyed, **given)


@cache
def text(profile: str, target: str, arm: str = "speculative") -> str:
    return exported(TARGETS[target], order(profile, target, arm))
