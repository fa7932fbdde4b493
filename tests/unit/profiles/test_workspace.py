from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import DEFAULTS, ROOT, resolved_profile, site_from, site_of_inventory
from tests.support.refusals import refuses

# The profiles of this file are for a CPU and for GPUs: all of them have the process runtime.
SITE = {**site_of_inventory("workstation"), "runtime": "process"}


def resolved(profile: str, **overrides: Any) -> Any:
    return resolved_profile(profile, SITE, overrides)


def test_the_site_comes_out_of_an_inventorys_variables() -> None:
    site = site_from(
        {"drafthouse_home": ".drafthouse", "drafthouse_models_dir": "/models", "drafthouse_port": "8100", "other": 1},
        Path("/clone"),
    )
    assert site == {**DEFAULTS, "home": "/clone/.drafthouse", "models_dir": "/models", "port": 8100}


def test_a_box_without_a_network_takes_wheels_and_weights_from_the_folders_that_the_site_names() -> None:
    given = {"drafthouse_offline": "true", "drafthouse_find_links": "/mnt/wheels", "drafthouse_weights_from": "/mnt"}
    found = resolved_profile("cpu-smollm2-ngram", {**site_of_inventory("local"), **site_from(given)})
    assert (found["site"]["offline"], found["site"]["find_links"]) == (True, "/mnt/wheels")
    assert found["elsewhere"] == {"folder": "/mnt", "models_dir": found["site"]["models_dir"]}
    with refuses("wrong-type"):
        resolved_profile("cpu-smollm2-ngram", {**SITE, "offline": "perhaps"})


@pytest.mark.parametrize("name", ["local", "workstation", "vastai"])
def test_every_inventory_names_a_whole_site_and_a_profile(name: str) -> None:
    import yaml

    variables = yaml.safe_load((ROOT / "inventory" / name / "group_vars" / "all.yml").read_text())
    assert resolved_profile(variables["drafthouse_profile"], site_of_inventory(name))["site"]["host"] == "127.0.0.1"


def test_a_hidden_character_is_told_with_the_inventorys_file(tmp_path: Path) -> None:
    file = tmp_path / "inventory" / "mine" / "group_vars" / "all.yml"
    file.parent.mkdir(parents=True)
    good = (ROOT / "inventory" / "local" / "group_vars" / "all.yml").read_text()
    file.write_text(good.replace("models_dir: .drafthouse/models", 'models_dir: "a\\u202Eb"'))
    with refuses("control-character") as error:
        site_of_inventory("mine", tmp_path)
    (problem,) = error.value.problems
    assert problem.where == "inventory/mine/group_vars/all.yml: drafthouse_models_dir"


def test_no_such_inventory() -> None:
    with pytest.raises(DrafthouseError, match="one of: fleet, local, vastai, workstation"):
        site_of_inventory("laptop")


@pytest.mark.parametrize("name", ["a" * 300, "../mixed", ""])
def test_a_suite_that_there_is_not(name: str) -> None:
    with pytest.raises(DrafthouseError, match="needed: one of: agents, articles"):
        resolved("cpu-smollm2-ngram", experiment={"suites": [name]})


@pytest.mark.parametrize(
    ("wishes", "where"),
    [
        ({"suites": []}, "profiles/cpu-smollm2-ngram.yml: experiment.suites"),
        ({"suites": [{"title": "no name"}]}, "profiles/cpu-smollm2-ngram.yml: experiment.suites[0]"),
        ({"suites": ["0.7"]}, "profiles/cpu-smollm2-ngram.yml: experiment.suites: prompt file 0.7"),
    ],
)
def test_what_is_wrong_with_suites_names_the_profile(wishes: dict[str, Any], where: str) -> None:
    with pytest.raises(DrafthouseError) as error:
        resolved("cpu-smollm2-ngram", experiment=wishes)
    assert [problem.where for problem in error.value.problems][:1] == [where]


def test_small_models_run_side_by_side_and_large_ones_in_turns() -> None:
    steps = resolved("cpu-smollm2-ngram")["experiment"]["steps"]
    assert [(step["round"], step["arms"]) for step in steps] == [
        (1, {"baseline": 8000, "speculative": 8001}),
        (2, {"baseline": 8000, "speculative": 8001}),
    ]
    asks = {"anchors": 4, "others": 1, "gates_at_once": 1}
    assert [(step["suites"], step["prompts"]) for step in steps] == [
        (["mixed"], {**asks, "fresh": [4, 4]}), (["mixed"], {**asks, "fresh": [4, 4]}),
    ]  # fmt: skip
    steps = resolved("rtx6000-qwen-eagle3")["experiment"]["steps"]
    assert [(step["round"], list(step["arms"])) for step in steps] == [
        (1, ["baseline"]), (1, ["speculative"]), (2, ["speculative"]), (2, ["baseline"]),
    ]  # fmt: skip
    assert [step["number"] for step in steps] == [1, 2, 3, 4]
    assert {port for step in steps for port in step["arms"].values()} == {8000}


def test_the_models_own_temperature_is_measured_beside_zero() -> None:
    assert resolved("rtx6000-qwen-eagle3")["experiment"]["temperatures"] == [0.0, 0.6]
    assert resolved("rtx6000-qwen-eagle3", temperature=0.0)["experiment"]["temperatures"] == [0.0]
    assert resolved("cpu-smollm2-ngram")["experiment"]["temperatures"] == [0.0]


def test_an_experiment_may_ask_less_of_each_kind() -> None:
    kinds = resolved("cpu-smollm2-ngram")["suites"]["mixed"]["kinds"]
    assert {name: len(kind["prompts"]) for name, kind in kinds.items()} == {
        **dict.fromkeys(("code", "chat", "summarise", "creative"), 1), "copy-edit": len(kinds["copy-edit"]["prompts"]),
    }  # fmt: skip
    assert max(kind["output_tokens"] for kind in kinds.values()) == 64


def test_the_last_layer_lies_over_the_profile() -> None:
    other = resolved("rtx6000-qwen-eagle3", speculation={"num_speculative_tokens": 5})
    assert '"num_speculative_tokens": 5' in other["arms"]["speculative"]["files"][0]["content"]
    assert other["method"]["id"] == "eagle3"


@pytest.mark.parametrize(
    ("part", "same"),
    [
        (("title",), True),
        (("site", "price_per_hour"), True),
        (("arms", "speculative", "files", 0, "content"), False),
        (("suites", "mixed", "kinds", "chat", "prompts", 0, "messages", 0, "content"), False),
        (("engine", "version"), False),
        (("experiment", "rounds"), False),
        (("experiment", "budget"), True),
        (("experiment", "most_rounds"), True),
    ],
)
def test_a_results_key_follows_what_changes_the_measurement(part: tuple[Any, ...], same: bool) -> None:
    one = resolved("rtx6000-qwen-eagle3")
    other = copy.deepcopy(one)
    place: Any = other
    for step in part[:-1]:
        place = place[step]
    place[part[-1]] = "changed"
    assert (measured_key(one, "box") == measured_key(other, "box")) is same
    assert measured_key(one, "box") != measured_key(one, "another box")
