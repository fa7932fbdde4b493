"""What is rendered for every profile, as it stands in review. `make golden` writes it anew.

What serves is kept of all profiles, a file each: the scripts and engine configurations of its arms. Everything else is
kept in the files of four that differ most, and looked at by its properties for all of them.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import rendered as profiles

FOLDER = Path(__file__).parent
WRITE = bool(os.environ.get("WRITE_GOLDEN"))
# llama.cpp as a process, vLLM in an image made of another one, vLLM as a process with a third arm, TensorRT-LLM.
WHOLE = ("cpu-smollm2-ngram", "rtx6000-gptoss-suffix", "rtx6000-gptoss-arctic", "rtx6000-gptoss-trtllm-eagle3")


@pytest.fixture(scope="module", params=profiles.PROFILES)
def resolved(request: pytest.FixtureRequest) -> Any:
    return profiles.resolved(request.param)


@pytest.fixture
def files(resolved: dict[str, Any]) -> dict[str, str]:
    return profiles.rendered(resolved["profile"])


def golden(profile: str) -> str:
    """The text that is kept of a profile: its files one behind the other, each under its path."""
    files = profiles.rendered(profile)
    kept = [path for path in files if path.endswith(("/serve.sh", ".yaml")) and not path.endswith("/compose.yaml")]
    if profile in WHOLE:
        kept += [path for path in files if path not in kept]
    return "\n".join(f"==> {path} <==\n{files[path]}" for path in kept)


@pytest.mark.parametrize("profile", profiles.PROFILES)
def test_as_in_review(profile: str) -> None:
    path, text = FOLDER / f"{profile}.txt", golden(profile)
    if WRITE:
        path.write_text(text, "utf-8")
    assert path.is_file(), f"{path.name} is new: make golden, and look at it"
    assert text == path.read_text("utf-8")


def test_nothing_is_kept_that_is_rendered_no_more() -> None:
    kept = {path.stem for path in FOLDER.glob("*.txt")}
    for name in kept - set(profiles.PROFILES) if WRITE else ():
        (FOLDER / f"{name}.txt").unlink()
        kept.remove(name)
    assert kept == set(profiles.PROFILES)


def test_every_file_is_one_of_its_kind(files: dict[str, str], resolved: dict[str, Any]) -> None:
    """Shell, Python and YAML that can be read, with nothing left of its template."""
    for path, text in files.items():
        assert not any(mark in text for mark in ("{{", "{%", "{#")), path
        assert text.endswith("\n") and "\r" not in text, path
        name = Path(path).name
        match name.rpartition(".")[2]:
            case "sh":
                done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
                assert (done.returncode, done.stderr) == (0, ""), path
                assert text.startswith("#!/usr/bin/env bash\n"), path
            case "py":
                compile(text, path, "exec")
            case "yaml" if name == "compose.yaml":
                contained(yaml.safe_load(text)["services"])
            case "yaml":
                assert isinstance(yaml.safe_load(text), dict), path
            case "txt":
                assert text.startswith(f"{resolved['profile']}: "), path
                assert [line for line in text.splitlines() if line.endswith(" arm")] == [
                    "baseline arm", "speculative arm",
                ]  # fmt: skip
            case _:
                # The image that another one is made of has the method's packages, each by its hash.
                assert path == "Containerfile", path
                assert text.startswith("FROM vllm/vllm-openai:v")
                assert "--require-hashes" in text


def contained(services: dict[str, Any]) -> None:
    """One engine, on loopback, that writes to its caches alone, of a version that is named."""
    (service,) = services.values()
    assert list(services) == ["engine"]
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert service["command"] == ["--host", "0.0.0.0"]
    assert ":latest" not in service["image"]
    assert all(mount.endswith(":ro") or "/cache/" in mount for mount in service["volumes"])


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
