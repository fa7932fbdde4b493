"""What an engine's entry can say that no engine of the catalogue needs alone: each on a changed entry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory

HOUSE = load_catalog(ROOT)
SUITES = {suite: list(data["kinds"]) for suite, data in load_suites([], ROOT).items()}
EAGLE, LLAMA = "rtx6000-qwen-eagle3", "cpu-smollm2-draft"


def resolved(name: str, change: Any, overrides: Any = None, runtime: str = "process", **more: Any) -> Any:
    """Resolve a profile whose engine's entry was changed by ``change``; ``more`` replaces tables of the catalog."""
    engine = HOUSE.profiles[name]["engine"]
    catalog = replace(HOUSE, engines={**HOUSE.engines, engine: {**HOUSE.engines[engine], **change}}, **more)
    site: Any = {**site_of_inventory(HOUSE.hardware[HOUSE.profiles[name]["hardware"]]["inventory"]), "runtime": runtime}
    return resolve(catalog, name, site, SUITES, overrides)


def entry(name: str) -> Any:
    return HOUSE.engines[HOUSE.profiles[name]["engine"]]


def test_a_key_that_only_a_template_hands_over_is_a_key_and_no_flag() -> None:
    launch = {key: value for key, value in entry(EAGLE)["launch"].items() if key != "key_environment"}
    found = resolved(EAGLE, {"launch": {**launch, "key_inside": "--secret-word"}}, runtime="docker")
    assert found["engine"]["has_key"]
    assert not any("has no authentication" in warning for warning in found["warnings"])
    assert f"{found['key_file']}:{found['key_file']}:ro" in found["arms"]["baseline"]["container"]["mounts"]
    assert "--secret-word" not in [words[0] for words in found["arms"]["baseline"]["flags"]]
    with pytest.raises(DrafthouseError, match="--secret-word"):
        resolved(
            EAGLE, {"launch": {**launch, "key_inside": "--secret-word"}}, {"serve": {"extra": ["--secret-word", "x"]}}
        )


def test_what_speculation_would_change_is_given_to_both_arms_unless_the_profile_says_it() -> None:
    options = {key: dict(option) for key, option in entry(EAGLE)["options"].items()}
    options["max_num_seqs"]["unless_said"] = 48
    options["max_num_batched_tokens"] |= {"unless_said": 4096, "since": "0.33.0"}  # the profile's version is older
    for overrides, wanted, planned in (
        (None, "48", 1),
        ({"serve": {"max_num_seqs": 16, "max_model_len": 4096}}, "16", 16),
    ):
        found = resolved(EAGLE, {"options": options}, overrides)
        for arm in ("baseline", "speculative"):
            flags = {words[0]: words[-1] for words in found["arms"][arm]["flags"]}
            assert flags["--max-num-seqs"] == wanted
            assert "--max-num-batched-tokens" not in flags
        assert found["arms"]["baseline"]["fit"]["sequences"] == planned


def test_a_setting_that_follows_from_the_number_of_tokens_moves_with_it() -> None:
    methods = {key: dict(method) for key, method in entry(LLAMA)["methods"].items()}
    methods["draft-simple"] |= {"always": {"--branches": 1}, "follows": {"--to-verify": 1}}
    for tokens in (2, 5):
        found = resolved(LLAMA, {"methods": methods}, {"speculation": {"num_speculative_tokens": tokens}})
        flags = found["arms"]["speculative"]["speculation_flags"]
        assert ["--spec-draft-n-max", str(tokens)] in flags
        assert flags[-2:] == [["--branches", "1"], ["--to-verify", str(tokens + 1)]]
    with pytest.raises(DrafthouseError, match="--to-verify, reserved for speculation"):
        resolved(LLAMA, {"methods": methods}, {"serve": {"extra": ["--to-verify", "3"]}})


def test_a_head_in_a_layout_that_an_engine_does_not_load_is_refused_with_those_that_load() -> None:
    other: Any = {**HOUSE.models["qwen3-32b-eagle3"], "name": "an-org/a-head"}
    del other["layout"]
    with pytest.raises(DrafthouseError) as caught:
        resolved(EAGLE, {"unread_layouts": ["speculators"]}, models={**HOUSE.models, "a-head": other})
    (problem,) = caught.value.problems
    assert (problem.code, problem.do) == ("weights-format", "use one of: a-head")
    assert "'qwen3-32b-eagle3', which is in the layout of speculators" in problem.found
    with pytest.raises(DrafthouseError, match="drafthouse model add"):
        resolved(EAGLE, {"unread_layouts": ["speculators"]})


def test_how_a_configuration_is_written_makes_no_other_result() -> None:
    found: Any = {**resolved(EAGLE, {}), "suites": {}}
    assert found["draft"]["layout"] == "speculators"
    without: Any = {**found, "draft": {key: value for key, value in found["draft"].items() if key != "layout"}}
    assert measured_key(without) == measured_key(found)
