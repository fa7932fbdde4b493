"""Entries of one's own: written once, found by name, repository and folder, and refused where they clash."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.models.entry import Found, Made, made_entry
from drafthouse.models.local_entries import write_entry
from drafthouse.profiles.catalog import load_house
from drafthouse.profiles.model_names import find_model
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from tests.support.checkpoints import llama_like

KINDS = {name: list(suite["kinds"]) for name, suite in load_suites((), ROOT).items()}
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 4096,
}  # fmt: skip
COMMIT = "a" * 40


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of what a resolver reads."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.rmtree(tmp_path / "profiles" / "catalog" / "local", ignore_errors=True)
    return tmp_path


@pytest.fixture
def made(clone: Path) -> Made:
    tensors = llama_like(CONFIG)
    files = {"model.safetensors": sum(one.size for one in tensors.values())}
    return made_entry(Found("org/Little-1B", COMMIT, CONFIG, files, tensors), load_house(clone).models)


def test_an_entry_is_written_once_and_a_profile_may_name_its_repository(clone: Path, made: Made) -> None:
    house = load_house(clone)
    path, changed = write_entry(made, house, clone, "drafthouse model add org/Little-1B")
    assert (path, changed) == (clone / "profiles/catalog/local/little-1b.yml", True)
    again = load_house(clone)
    assert write_entry(made, again, clone, "drafthouse model add org/Little-1B") == (path, False)
    assert again.models["little-1b"] == made.entry
    for word in ("little-1b", "org/Little-1B", "org/little-1b", f"org/Little-1B@{COMMIT}"):
        assert find_model(word, again.models) == "little-1b"
    profile: Any = {**again.profiles["h100-llama33-ngram"], "target": "org/Little-1B", "serve": {}}
    named: Any = replace(again, profiles={"mine": profile})
    resolved = resolve(named, "mine", site_of_inventory("vastai"), KINDS)
    assert resolved["target"]["id"] == "little-1b"
    assert resolved["weights"][0]["details"]["revision"] == COMMIT
    # Its vocabulary is taken for that of as many entries, and that is said.
    assert made.entry["tokenizer"] == "qwen3"
    assert "compared one by one" in path.read_text("utf-8")


@pytest.mark.parametrize(
    ("word", "do"),
    [
        ("org/nobody", "drafthouse model add org/nobody"),
        ("org/nobody@main", "drafthouse model add org/nobody@main"),
        ("/models/mine", "drafthouse model add /models/mine"),
        ("qwen3-23b", "write 'qwen3-32b'"),
    ],
)
def test_an_unknown_model_is_refused_with_the_command_that_adds_it(clone: Path, word: str, do: str) -> None:
    house = load_house(clone)
    profile: Any = {**house.profiles["h100-llama33-ngram"], "target": word}
    named: Any = replace(house, profiles={"mine": profile})
    with pytest.raises(DrafthouseError) as error:
        resolve(named, "mine", site_of_inventory("vastai"), KINDS)
    assert [problem.do for problem in error.value.problems] == [do]


def test_what_would_stop_the_catalogue_is_not_written(clone: Path, made: Made) -> None:
    odd = replace(made, entry={**made.entry, "license": "one\ntwo"})
    with pytest.raises(DrafthouseError, match="control-character"):
        write_entry(odd, load_house(clone), clone, "")
    assert not (clone / "profiles/catalog/local").exists()


def test_a_name_of_the_catalogue_is_not_taken(clone: Path, made: Made) -> None:
    taken = replace(made, id="qwen3-32b")
    with pytest.raises(DrafthouseError) as error:
        write_entry(taken, load_house(clone), clone, "")
    assert error.value.problems[0].code == "duplicate-name"
    write_entry(made, load_house(clone), clone, "")
    with pytest.raises(DrafthouseError, match="little-1b"):
        write_entry(replace(made, entry={**made.entry, "name": "another/Little-1B"}), load_house(clone), clone, "")
    path = clone / "profiles" / "catalog" / "local" / "mine.yml"
    path.write_text((clone / "profiles/catalog/models.yml").read_text("utf-8"), "utf-8")
    with pytest.raises(DrafthouseError) as found:
        load_house(clone)
    assert {problem.code for problem in found.value.problems} == {"duplicate-name"}
    assert {problem.where for problem in found.value.problems} == {"profiles/catalog/local/mine.yml"}
