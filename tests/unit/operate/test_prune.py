"""What is listed and what is removed below a models folder of small files; what is not ours stays, whatever happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.cli import prune as cli_prune
from drafthouse.core.errors import Problem
from drafthouse.operate.prune import look, remove, used_by_profiles
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT
from tests.support.refusals import refuses

pytestmark = pytest.mark.processes


def put(path: Path, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    return path


def note(path: Path, *names: str) -> None:
    path.with_name(f"{path.name}.drafthouse.json").write_text(json.dumps({"files": {name: {} for name in names}}))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Weights in use, forgotten ones, half a download, and the user's own."""
    folder = tmp_path / "models"
    for name in ("in-use", "forgotten"):
        put(folder / name / "model.safetensors", 1000)
        put(folder / name / "sub" / "config.json")
        note(folder / name, "model.safetensors", "sub/config.json")
    put(folder / "forgotten" / "model.safetensors.wrong", 500)
    put(folder / "forgotten" / ".drafthouse-parts" / "abc.part", 7)
    for name in ("small.gguf", "old.gguf"):
        note(put(folder / "ggufs" / name, 100), name)
    put(folder / "ggufs" / "mine.gguf", 50)
    put(folder / "begun" / ".drafthouse-parts" / "abc.part", 300)
    put(folder / "users-own" / "model.safetensors", 2000)
    put(folder / "readme.txt")
    return folder


USED = ["in-use", "ggufs/small.gguf"]


def listed(models: Path, used: list[str] = USED) -> dict[str, tuple[str, int]]:
    """Path -> state and size; what is not ours beside what is has a line of its own."""
    return {
        f"{entry.path.relative_to(models)}{' (rest)' if entry.state == 'not ours' and entry.path.is_dir() else ''}": (
            entry.state,
            entry.size,
        )
        for entry in look(models, used)
    }


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file()}


def test_everything_is_listed_with_what_it_is(models: Path) -> None:
    assert listed(models) == {
        "begun": ("unfinished", 300),
        "forgotten": ("unused", 1510),
        "ggufs/old.gguf": ("unused", 100),
        "ggufs/small.gguf": ("used", 100),
        "ggufs (rest)": ("not ours", 50),
        "in-use": ("used", 1010),
        "readme.txt": ("not ours", 10),
        "users-own (rest)": ("not ours", 2000),
    }


def test_only_what_is_ours_and_unused_is_removed(models: Path) -> None:
    before = files(models)
    assert remove(look(models, USED)) == []
    assert before - files(models) == {
        "begun/.drafthouse-parts/abc.part",
        "forgotten.drafthouse.json",
        "forgotten/.drafthouse-parts/abc.part",
        "forgotten/model.safetensors",
        "forgotten/model.safetensors.wrong",
        "forgotten/sub/config.json",
        "ggufs/old.gguf",
        "ggufs/old.gguf.drafthouse.json",
    }
    assert not (models / "forgotten").exists()
    assert not (models / "begun").exists()
    assert {state for state, _ in listed(models).values()} == {"used", "not ours"}


def test_a_file_that_the_user_added_stays_with_its_folder(models: Path) -> None:
    put(models / "forgotten" / "lora" / "mine.safetensors")
    assert remove(look(models, USED)) == [models / "forgotten"]
    assert files(models / "forgotten") == {"lora/mine.safetensors"}
    assert listed(models)["forgotten (rest)"] == ("not ours", 10)


def test_nothing_is_removed_through_a_link_or_out_of_the_folder(models: Path, tmp_path: Path) -> None:
    precious = put(tmp_path / "elsewhere" / "precious")
    (models / "forgotten" / "link").symlink_to(precious.parent)
    (models / "forgotten" / "to-file").symlink_to(precious)
    note(
        models / "forgotten",
        "model.safetensors",
        "link/precious",
        "to-file",
        "../users-own/model.safetensors",
        str(precious),
    )
    (models / "cached").symlink_to(precious.parent)
    note(models / "cached", "precious")
    remove(look(models, USED))
    assert precious.exists()
    assert (models / "users-own" / "model.safetensors").exists()
    assert not (models / "cached").is_symlink()
    assert (models / "forgotten" / "link").is_symlink()


def test_a_note_that_cannot_be_read_removes_no_weights(models: Path) -> None:
    (models / "forgotten.drafthouse.json").write_text("[")
    remove(look(models, USED))
    assert (models / "forgotten" / "model.safetensors").exists()


def test_half_a_download_of_what_is_used_stays(models: Path) -> None:
    assert "begun" not in listed(models, [*USED, "begun"])
    put(models / "ggufs" / ".drafthouse-parts" / "small.gguf" / "abc.part", 5)
    assert listed(models)["ggufs (rest)"] == ("not ours", 50)


def test_last_used_is_the_newest_reading_or_writing(models: Path) -> None:
    for path in (models / "forgotten").rglob("*"):
        os.utime(path, (1_000_000, 900_000))
    os.utime(models / "forgotten" / "sub" / "config.json", (1_500_000, 900_000))
    (entry,) = [entry for entry in look(models, USED) if entry.path.name == "forgotten"]
    assert entry.last_used == 1_500_000


def test_what_profiles_use() -> None:
    catalog = load_catalog(ROOT)
    used = used_by_profiles(catalog.profiles, catalog.models)
    # The demo's target is made from a file that is fetched: both are needed.
    assert {"smollm2-135m/SmolLM2-135M-Instruct.F32.gguf", "smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"} <= used
    assert {"Qwen-Qwen3-32B", "RedHatAI-Qwen3-32B-speculator.eagle3"} <= used
    fewer = used_by_profiles({"one": catalog.profiles["rtx6000-qwen-eagle3"]}, catalog.models)
    assert fewer == {"Qwen-Qwen3-32B", "RedHatAI-Qwen3-32B-speculator.eagle3"}
    by_repository: Any = {"mine": {"target": "Qwen/Qwen3-32B", "speculation": {"method": "ngram"}}}
    assert used_by_profiles(by_repository, catalog.models) == {"Qwen-Qwen3-32B"}
    # A head as the target stands for the model that it names.
    head: Any = {"mine": {"target": "qwen3-32b-eagle3", "speculation": {"method": "eagle3"}}}
    assert used_by_profiles(head, catalog.models) == fewer
    broken: Any = {"broken": {"target": "no-such", "speculation": 1}}
    assert used_by_profiles(broken, catalog.models) == set()


def test_nothing_is_removed_while_an_entry_is_broken(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem("missing-key", "", "", "", "profiles/catalog/local/mine.yml")
    catalog = replace(load_catalog(ROOT), broken_models={"mine": [problem], "org/mine": [problem]})
    monkeypatch.setattr(cli_prune, "catalog_for", lambda inventory: catalog)
    with refuses("missing-key"):
        cli_prune.main(["--models-dir", str(models), "--remove"])


def test_no_such_folder(tmp_path: Path) -> None:
    with refuses("no-such-file"):
        look(tmp_path / "gone", [])


def script(*words: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / "drafthouse"), "prune", *words]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=180, check=True).stdout


def test_the_script_removes_only_when_told(models: Path) -> None:
    before = files(models)
    said = script("--models-dir", str(models))
    assert "forgotten" in said
    assert "drafthouse prune --remove" in said
    assert files(models) == before
    # No profile uses any of these.
    assert "removed 0.00 GB" in script("--models-dir", str(models), "--remove")
    assert files(models) == {"ggufs/mine.gguf", "readme.txt", "users-own/model.safetensors"}
    assert "nothing to remove" in script("--models-dir", str(models), "--remove")
