"""The GPUs that a site chooses, as a container gets them and as a process sees them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.container import arm_container, engine_words
from drafthouse.profiles.workspace import resolved_profile, site_from, site_of_inventory

PROFILE, LLAMACPP, UUID = "rtx6000-qwen-eagle3", "rtx4090-llama32-llamacpp-draft1b", "GPU-8932f937-d72c-4106"


def resolved(given: object, profile: str = PROFILE, inventory: str = "workstation", **more: Any) -> Any:
    variables = {f"drafthouse_{key}": value for key, value in {**site_of_inventory(inventory), **more}.items()}
    return resolved_profile(profile, site_from({**variables, "drafthouse_gpus": given}))


def scripts(found: Any) -> list[str]:
    return [arm["files"][0]["content"] for arm in found["arms"].values()]


def devices(found: Any) -> set[str]:
    """What the container definitions that `make render` shows ask for."""
    files = [yaml.safe_load(file["content"]) for file in found["extras"] if file["path"].endswith("compose.yaml")]
    asked = [file["services"]["engine"]["deploy"]["resources"]["reservations"]["devices"] for file in files]
    assert asked
    return {repr(one) for one in asked}


def requested(found: Any, arm: str = "baseline") -> Any:
    """What is asked of Docker for an arm's container."""
    return engine_words(arm_container(found, arm))["HostConfig"]["DeviceRequests"]


@pytest.mark.parametrize(
    ("given", "ids"),
    [([0, 1], ["0", "1"]), ("2,3", ["2", "3"]), (1, ["1"]), (0, ["0"]), ([UUID], [UUID]), (["0"], ["0"])],
)
def test_a_container_gets_these_and_no_others(given: object, ids: list[str]) -> None:
    found = resolved(given)
    assert found["site"]["gpus"] == ids
    for name, arm in found["arms"].items():
        assert arm["container"]["device_ids"] == ids
        (asked,) = requested(found, name)
        assert asked == {"Driver": "nvidia", "DeviceIDs": ids, "Count": 0, "Capabilities": [["gpu"]]}
    assert devices(found) == {repr([{"driver": "nvidia", "device_ids": ids, "capabilities": ["gpu"]}])}
    # Inside, they are counted from 0.
    assert not [text for text in scripts(found) if "CUDA" in text]


@pytest.mark.parametrize(("profile", "inventory"), [(PROFILE, "workstation"), (LLAMACPP, "vastai")])
def test_a_process_sees_these_and_no_others(profile: str, inventory: str) -> None:
    found = resolved([2, 0], profile, inventory, runtime="process")
    for text in scripts(found):
        assert "\nexport CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES=2,0\n" in text
        assert text.index("CUDA_VISIBLE_DEVICES") < text.index("\nexec ")
    # The same script in a container of its own still finds the GPUs that it names.
    if found["arms"]["baseline"]["container"]:
        assert devices(found) == {repr([{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}])}


@pytest.mark.parametrize("given", [None, [], ""])
@pytest.mark.parametrize("runtime", ["docker", "process"])
def test_without_a_choice_nothing_is_said(given: object, runtime: str) -> None:
    found = resolved(given, runtime=runtime)
    assert found == resolved_profile(PROFILE, {**site_of_inventory("workstation"), "runtime": runtime})
    assert "device_ids" not in str(found)
    assert "CUDA_VISIBLE_DEVICES" not in str(found)
    (asked,) = requested(found)
    assert asked == {"Driver": "nvidia", "Count": -1, "Capabilities": [["gpu"]]}


def test_a_profile_for_cpus_has_none_to_choose() -> None:
    found = resolved([0], "cpu-smollm2-ngram", "local")
    assert not [text for text in scripts(found) if "CUDA" in text]


@pytest.mark.parametrize("given", ["all", [-1], ["0; reboot"], [[0]], [True], {"a": 1}, 1.5, ["MIG-1"], "0,,1", [100]])
def test_what_names_no_gpu_is_refused(given: object) -> None:
    with pytest.raises(DrafthouseError) as caught:
        resolved(given)
    assert {problem.where for problem in caught.value.problems} <= {"site: gpus", "site: gpus[0]", "site: gpus[1]"}
