"""The rendered files of every profile, as they stand in review. `make golden` writes them anew."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from drafthouse.profiles.catalog import load_house, profile_files
from drafthouse.profiles.workspace import (ROOT, resolved_profile, site_of_inventory)
from drafthouse.experiment.plan_text import (plan_text)

FOLDER = Path(__file__).parent
WRITE = bool(os.environ.get("WRITE_GOLDEN"))
# One site for all, and none of this machine's paths.
SITE = site_of_inventory("workstation")
PROFILES = list(profile_files(ROOT))


def compare(path: Path, text: str) -> None:
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert path.is_file(), f"{path.name} is new: make golden, and look at it"
    assert text == path.read_text("utf-8")


@pytest.fixture(scope="module", params=PROFILES)
def resolved(request: pytest.FixtureRequest) -> Any:
    return resolved_profile(request.param, SITE)


def test_files_as_in_review(resolved: dict[str, Any]) -> None:
    for arm, data in resolved["arms"].items():
        for file in data["files"]:
            compare(FOLDER / resolved["profile"] / arm / file["path"], file["content"])
    for file in resolved["extras"]:
        compare(FOLDER / resolved["profile"] / file["path"], file["content"])


def test_plan_as_in_review(resolved: Any) -> None:
    compare(FOLDER / resolved["profile"] / "plan.txt", plan_text(resolved) + "\n")


def test_the_arms_differ_in_the_speculation_flags_only(resolved: dict[str, Any]) -> None:
    scripts = {arm: file_of(data, "serve.sh") for arm, data in resolved["arms"].items()}
    configs = {arm: data["config"]["file"] if data["config"] else "" for arm, data in resolved["arms"].items()}
    baseline, speculative = scripts["baseline"].splitlines(), scripts["speculative"].splitlines()
    if configs["baseline"]:
        # The YAML's name says which arm it is; what it holds is compared below.
        baseline = [line.replace(configs["baseline"], configs["speculative"]) for line in baseline]
    added = [line for line in speculative if line not in baseline]
    assert [line for line in speculative if line in baseline] == baseline
    words = [shlex.split(line.removesuffix("\\")) for line in added]
    assert words == [[str(word) for word in flag] for flag in resolved["arms"]["speculative"]["speculation_flags"]]
    assert words or configs["speculative"]


def test_the_arms_yaml_differs_in_speculation_only(resolved: dict[str, Any]) -> None:
    loaded = {
        arm: yaml.safe_load(file_of(data, data["config"]["file"]))
        for arm, data in resolved["arms"].items()
        if data["config"]
    }
    if not loaded:
        return
    assert loaded["speculative"].pop("speculative_config")["speculative_model_dir"] == resolved["draft"]["path"]
    assert loaded["speculative"] == loaded["baseline"]


def file_of(arm: dict[str, Any], path: str) -> str:
    (content,) = [file["content"] for file in arm["files"] if file["path"] == path]
    return str(content)


def test_one_flag_a_line_and_the_user_has_the_last_word(resolved: dict[str, Any]) -> None:
    for data in resolved["arms"].values():
        script = file_of(data, "serve.sh")
        command = script[script.index("\nexec ") :].strip().splitlines()
        assert command[-1].strip() == '"$@"'
        assert all(line.endswith(" \\") for line in command[:-1])
        for line in command[1:-1]:
            words = shlex.split(line.removesuffix("\\"))
            assert 1 <= len(words) <= 2
            assert len([word for word in words if word.startswith("--")]) <= 1


def test_no_golden_file_of_a_profile_that_is_gone() -> None:
    assert sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0] not in "._") == PROFILES
