"""Which runtime a profile gets: the inventory's, its only one, or a refusal of what the command line asks for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.experiment.plan_text import plan_text
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, resolved_profile, site_of_inventory
from tests.support.refusals import refuses

NOTE = "runtime: process (the only one this profile has; the inventory says docker)"


def resolved(name: str, overrides: dict[str, Any] | None = None, **site: Any) -> Any:
    return resolved_profile(name, {**site_of_inventory("workstation"), **site}, overrides)


def test_the_only_runtime_is_chosen_and_said() -> None:
    found = resolved("rtx6000-gptoss-arctic")
    assert found["site"]["runtime"] == found["engine"]["runtime"] == "process"
    assert NOTE in found["warnings"]
    assert NOTE in plan_text(found)
    assert found["derived_image"] is None


def test_what_the_command_line_asks_for_is_refused() -> None:
    with pytest.raises(DrafthouseError) as caught:
        resolved("rtx6000-gptoss-arctic", runtime_asked=True)
    (problem,) = caught.value.problems
    assert problem.found.startswith("docker, ")
    assert "process is chosen automatically" in problem.do


def test_whether_it_was_asked_for_changes_nothing_else() -> None:
    assert resolved("rtx6000-qwen-eagle3", runtime_asked=True) == resolved("rtx6000-qwen-eagle3")


def test_suffix_decoding_runs_in_an_image_of_two_lines() -> None:
    found = resolved("rtx6000-gptoss-suffix")
    image = found["derived_image"]
    assert found["site"]["runtime"] == "docker"
    assert {arm["container"]["image"] for arm in found["arms"].values()} == {image["name"], found["engine"]["image"]}
    first, second = image["containerfile"].splitlines()
    assert first == "FROM vllm/vllm-openai:v0.32.0"
    assert "arctic-inference==0.1.1 --hash=sha256:" in second
    assert {file["path"]: file["content"] for file in found["extras"]}["Containerfile"] == image["containerfile"]
    assert NOTE not in found["warnings"]


def test_its_name_is_made_of_its_content() -> None:
    found = [resolved("rtx6000-gptoss-suffix") for _ in range(2)]
    found.append(resolved("rtx6000-gptoss-suffix", engine_image="registry.example/vllm:v0.32.0"))
    names = {one["derived_image"]["name"] for one in found}
    assert len(names) == 2
    assert all(name.startswith("localhost/drafthouse-vllm:0.32.0-suffix-") for name in names)


def test_a_rented_box_is_made_from_an_image_that_can_be_fetched() -> None:
    assert resolved("rtx6000-gptoss-suffix")["rental"]["image"] == "vllm/vllm-openai:v0.32.0"


def test_a_target_may_bring_the_image_that_serves_it() -> None:
    catalog: Any = copy.deepcopy(load_catalog(ROOT))
    image = f"vllm/vllm-openai:qwen38-flash-next@sha256:{'5' * 64}"
    catalog.models["qwen3-32b"]["images"] = {"vllm": image}
    catalog.profiles["rtx6000-qwen-eagle3"]["runtimes"] = ["docker"]
    kinds = {name: list(suite["kinds"]) for name, suite in load_suites([]).items()}
    site: Any = site_of_inventory("workstation")
    found: Any = resolve(catalog, "rtx6000-qwen-eagle3", dict(site), kinds)
    assert {arm["container"]["image"] for arm in found["arms"].values()} == {image}
    assert found["rental"]["image"] == image
    with refuses("runtime-unavailable", match="docker"):
        resolve(catalog, "rtx6000-qwen-eagle3", {**site, "runtime": "process", "runtime_asked": True}, kinds)
