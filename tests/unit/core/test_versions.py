"""The same profile for another version of its engine: the words of that version, and nothing that it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from drafthouse.core.versions import having, ranges, releases, spelled, supports
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from tests.support.catalogue import table


def rendered(profile: str, runtime: str = "process", **overrides: Any) -> Any:
    return resolved_profile(profile, {**site_of_inventory("workstation"), "runtime": runtime}, overrides)


def words(resolved: dict[str, Any], arm: str = "speculative") -> list[str]:
    return [str(word) for flag in resolved["arms"][arm]["flags"] for word in flag]


def test_bounds_are_inclusive_and_a_gap_is_a_gap() -> None:
    entry = {"since": "0.9.0", "until": "0.32.0", "except": {"since": "0.10.0", "until": "0.14.1"}}
    versions = ["0.8.5", "0.9.0", "0.10.0", "0.14.1", "0.15.0", "0.32.0", "0.33.0", "nightly"]
    assert having(versions, entry) == ["0.9.0", "0.15.0", "0.32.0"]
    assert supports("nightly", {"since": "0.15.0"})
    assert not supports("nightly", {"until": "0.32.0"})
    assert spelled("1.0", "new", [{"as": "old", "until": "1.0"}]) == "old"
    assert spelled("1.1", "new", [{"as": "old", "until": "1.0"}]) == "new"
    assert ranges(["0.9.0", "0.15.0", "0.32.0"], versions) == "0.9.0, 0.15.0 to 0.32.0"


def test_release_lists_are_in_order_and_hold_the_pins() -> None:
    for name, engine in load_catalog(ROOT).engines.items():
        assert engine["default_version"] in releases(engine), name
        assert set(engine["versions"]) <= set(releases(engine)), name


@pytest.mark.parametrize(("version", "name"), [("0.10.1.1", "GptOss"), ("0.10.2", "openai_gptoss")])
def test_a_parser_that_was_renamed(version: str, name: str) -> None:
    resolved = rendered("rtx6000-gptoss-ngram", engine_version=version, serve={"tool_call_parser": "hermes"})
    found = words(resolved, "baseline")
    assert found[found.index("--reasoning-parser") + 1] == name


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2026.10.11549", ["--spec-type", "draft-simple", "--spec-draft-model", "DRAFT", "--spec-draft-n-max", "5"]),
        ("2026.4.8929", ["--model-draft", "DRAFT", "--draft-max", "5", "--gpu-layers-draft", "99"]),
    ],
)
def test_the_flags_of_llama_cpp_before_and_after_they_changed(version: str, expected: list[str]) -> None:
    resolved = rendered("rtx4090-llama32-llamacpp-draft1b", engine_version=version)
    flags = [str(word) for flag in resolved["arms"]["speculative"]["speculation_flags"] for word in flag]
    assert [word.replace(resolved["draft"]["path"], "DRAFT") for word in flags][: len(expected)] == expected


def test_draft_target_is_written_as_each_line_of_tensorrt_llm_reads_it() -> None:
    catalog = load_catalog(ROOT)
    method = catalog.engines["trtllm"]["methods"]["draft_target"]
    assert spelled("1.2.1", method["value"], method["spelled"]["value"]) == "DraftTarget"
    assert spelled("1.3.0rc24", method["value"], method["spelled"]["value"]) == "Draft_Target"


def test_counters_are_switched_on_where_the_version_has_them() -> None:
    old = rendered("rtx6000-gptoss-trtllm-eagle3", "docker")
    new = rendered("rtx6000-gptoss-trtllm-eagle3", "docker", engine_version="1.3.0rc24")
    for arm in ("baseline", "speculative"):
        assert "return_perf_metrics" not in old["arms"][arm]["config"]["data"]
        assert new["arms"][arm]["config"]["data"]["return_perf_metrics"] is True


def test_the_method_is_always_written_out() -> None:
    catalog = load_catalog(ROOT)
    for name, profile in catalog.profiles.items():
        resolved = rendered(name, profile.get("runtimes", ["process"])[-1])
        method = catalog.engines[profile["engine"]]["methods"][profile["speculation"]["method"]]
        assert method.get("value", profile["speculation"]["method"]) in resolved["method"]["settings"].values(), name


def test_nightly_builds_are_no_pin_and_say_so() -> None:
    resolved = rendered("rtx6000-qwen-eagle3", channel="nightly")
    assert resolved["engine"]["version"] == "nightly"
    assert resolved["engine"]["install"]["extra_index_url"] == "https://wheels.vllm.ai/nightly"
    assert resolved["engine"]["image"] == "vllm/vllm-openai:nightly"
    assert "another version every day" in resolved["unpinned"]
    assert any(warning.startswith("unpinned: ") for warning in resolved["warnings"])
    assert rendered("rtx6000-qwen-eagle3")["unpinned"] is None


def test_a_digest_is_part_of_the_image() -> None:
    image = table("engines")["vllm"]["image"]
    from drafthouse.profiles.engine_version import _image

    engine: Any = {"versions": {}, "image": {**image, "digest": "sha256:abc"}}
    assert _image(engine, "0.32.0", None, "gpu") == "vllm/vllm-openai:v0.32.0@sha256:abc"
    assert _image(engine, "0.32.0", None, "cpu") is None


def test_the_stock_arm_is_the_engine_without_what_the_method_needs() -> None:
    resolved = rendered("rtx6000-gptoss-trtllm-eagle3", "docker")
    stock = resolved["stock"]["config"]["data"]
    baseline = dict(resolved["arms"]["baseline"]["config"]["data"])
    for key in ("disable_overlap_scheduler", "enable_autotuner", "kv_cache_config"):
        del baseline[key]
    assert stock == baseline
    assert "stock" not in resolved["arms"]
    measured = rendered("rtx6000-gptoss-trtllm-eagle3", "docker", experiment={"stock": True})
    assert list(measured["arms"]) == ["baseline", "speculative", "stock"]
    assert {arm for step in measured["experiment"]["steps"] for arm in step["arms"]} == set(measured["arms"])


def test_a_method_that_adds_a_package_has_an_environment_of_its_own() -> None:
    plain, suffix = rendered("rtx6000-gptoss-ngram"), rendered("rtx6000-gptoss-suffix")
    assert suffix["engine"]["home"] == f"{plain['engine']['home']}-suffix"
    assert suffix["engine"]["install"]["source_packages"] == ["arctic-inference==0.1.1"]
    assert "source_packages" not in plain["engine"]["install"]
