"""The commands of head and follower, by vLLM's own parser and engine configuration: a split model, and copies."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.profiles.workspace import resolved_profile, site_of_inventory
from tests.real_engines.test_check_commands import Command, checker, config_of, exec_words

PROFILE = "h100-llama33-eagle3"
PIN, OLDEST = "0.32.0", "0.15.1"
SHAPES = {"split": {"tensor_parallel_size": 2}, "copies": {"data_parallel_size": 2}}


def placed(shape: str, rank: int, arm: str, version: str) -> Command:
    """The command of a host's arm, without the program that the head's stands behind."""
    span = {
        "replica": "one",
        "rank": rank,
        "names": ["one", "two"],
        "addresses": ["127.0.0.1", "127.0.0.2"],
        "interface": "lo",
        "infiniband": [],
    }
    site: dict[str, Any] = {
        **site_of_inventory("workstation"),
        "runtime": "process",
        "hosts_per_replica": 2,
        "private_subnet": "127.0.0.0/8",
        "span": span,
    }
    resolved = resolved_profile(PROFILE, site, {"engine_version": version, "serve": SHAPES[shape]})
    (script,) = [file["content"] for file in resolved["arms"][arm]["files"] if file["path"] == "serve.sh"]
    words = exec_words(script)
    models = [model for model in (resolved["target"], resolved["draft"]) if model]
    return {
        "name": f"{shape} {rank} {arm}",
        "argv": words[words.index("vllm") :],
        "environment": resolved["arms"][arm]["environment"],
        "model_configs": {model["path"]: config_of(model) for model in models},
    }


@pytest.mark.parametrize("version", [PIN, pytest.param(OLDEST, marks=pytest.mark.soak)])
def test_every_hosts_command_is_read_by_the_engines_own_parser(version: str) -> None:
    asked = [
        placed(shape, rank, arm, version) for shape in SHAPES for rank in (0, 1) for arm in ("baseline", "speculative")
    ]
    for verdict in checker(version)(asked):
        assert (verdict["parser"], verdict["engine_config"]) == ("ok", "ok"), verdict


def test_hosts_that_cannot_share_are_refused_by_the_engine_too() -> None:
    odd = placed("split", 0, "baseline", PIN)
    place = odd["argv"].index("--nnodes") + 1
    odd["argv"][place] = "3"
    (verdict,) = checker(PIN)([odd])
    assert verdict["parser"] == "ok"
    assert verdict["engine_config"] != "ok"
