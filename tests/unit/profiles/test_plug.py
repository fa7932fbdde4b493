"""What an engine's entry can say that no engine of the catalogue needs alone: each on a changed entry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

HOUSE = load_house(ROOT)
SUITES = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
EAGLE, LLAMA = "rtx6000-qwen-eagle3", "cpu-smollm2-draft"


def resolved(name: str, change: Any, overrides: Any = None, runtime: str = "process") -> Any:
    """Resolve a profile whose engine's entry was changed by ``change``."""
    engine = HOUSE.profiles[name]["engine"]
    house = replace(HOUSE, engines={**HOUSE.engines, engine: {**HOUSE.engines[engine], **change}})
    site: Any = {**site_of_inventory(HOUSE.hardware[HOUSE.profiles[name]["hardware"]]["inventory"]), "runtime": runtime}
    return resolve(house, name, site, SUITES, overrides)


def entry(name: str) -> Any:
    return HOUSE.engines[HOUSE.profiles[name]["engine"]]


def test_a_key_that_only_a_template_hands_over_is_a_key_and_no_flag() -> None:
    launch = {key: value for key, value in entry(EAGLE)["launch"].items() if key != "key_environment"}
    found = resolved(EAGLE, {"launch": {**launch, "key_inside": "--secret-word"}}, runtime="docker")
    assert found["engine"]["has_key"]
    assert not any("asks nobody for a key" in warning for warning in found["warnings"])
    assert f"{found['key_file']}:{found['key_file']}:ro" in found["arms"]["baseline"]["container"]["mounts"]
    assert "--secret-word" not in [words[0] for words in found["arms"]["baseline"]["flags"]]
    with pytest.raises(DrafthouseError, match="--secret-word"):
        resolved(
            EAGLE, {"launch": {**launch, "key_inside": "--secret-word"}}, {"serve": {"extra": ["--secret-word", "x"]}}
        )
