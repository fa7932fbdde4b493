"""Entries of one's own: written once, found by name, repository and folder, and refused where they clash."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.cli import profiles
from drafthouse.core.errors import DrafthouseError
from drafthouse.models.entry import Facts, NewEntry, made_entry
from drafthouse.models.local_entries import write_entry
from drafthouse.profiles.catalog import Catalog, load_catalog
from drafthouse.profiles.heads import builtin_kinds
from drafthouse.profiles.model_names import find_model
from drafthouse.profiles.own_entries import add_own_models
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import ROOT, load_suites, site_of_inventory
from tests.support.checkpoints import llama_like
from tests.support.refusals import refuses

KINDS = {name: list(suite["kinds"]) for name, suite in load_suites((), ROOT).items()}
HOUSE = load_catalog(ROOT)
CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 4096,
}  # fmt: skip
COMMIT = "a" * 40


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of what a resolver reads."""
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    shutil.rmtree(tmp_path / "profiles" / "catalog" / "local", ignore_errors=True)
    return tmp_path


@pytest.fixture
def made(clone: Path) -> NewEntry:
    tensors = llama_like(CONFIG)
    files = {"model.safetensors": sum(one.size for one in tensors.values())}
    return made_entry(Facts("org/Little-1B", COMMIT, CONFIG, files, tensors), load_catalog(clone).models)


def test_an_entry_is_written_once_and_a_profile_may_name_its_repository(clone: Path, made: NewEntry) -> None:
    catalog = load_catalog(clone)
    path, changed = write_entry(made, catalog, clone, "drafthouse model add org/Little-1B")
    assert (path, changed) == (clone / "profiles/catalog/local/little-1b.yml", True)
    again = load_catalog(clone)
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
    catalog = load_catalog(clone)
    profile: Any = {**catalog.profiles["h100-llama33-ngram"], "target": word}
    named: Any = replace(catalog, profiles={"mine": profile})
    with pytest.raises(DrafthouseError) as error:
        resolve(named, "mine", site_of_inventory("vastai"), KINDS)
    assert [problem.do for problem in error.value.problems] == [do]


def test_what_would_stop_the_catalogue_is_not_written(clone: Path, made: NewEntry) -> None:
    odd = replace(made, entry={**made.entry, "license": "one\ntwo"})
    with pytest.raises(DrafthouseError, match="control-character"):
        write_entry(odd, load_catalog(clone), clone, "")
    assert not (clone / "profiles/catalog/local").exists()


def test_a_name_of_the_catalogue_is_not_taken(clone: Path, made: NewEntry) -> None:
    taken = replace(made, id="qwen3-32b")
    with pytest.raises(DrafthouseError) as error:
        write_entry(taken, load_catalog(clone), clone, "")
    assert error.value.problems[0].code == "duplicate-name"
    write_entry(made, load_catalog(clone), clone, "")
    with pytest.raises(DrafthouseError, match="little-1b"):
        write_entry(replace(made, entry={**made.entry, "name": "another/Little-1B"}), load_catalog(clone), clone, "")


def _own(folder: Path, name: str, text: str) -> Path:
    path = folder / "profiles" / "catalog" / "local" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def _with_own(root: Path, *files: Path) -> Catalog:
    """The catalogue with these entries, without reading the rest of it again."""
    models = {**HOUSE.models}
    broken = add_own_models(root, files, models, builtin_kinds(HOUSE.engines))
    return replace(HOUSE, models=models, broken_models=broken)


def _target_of(catalog: Catalog, target: str) -> str:
    """The model that a profile is for whose ``target`` is this word."""
    profile: Any = {**catalog.profiles["h100-llama33-ngram"], "target": target, "serve": {"max_model_len": 4096}}
    return resolve(replace(catalog, profiles={"one": profile}), "one", site_of_inventory("vastai"), KINDS)["target"][
        "id"
    ]


def _text(entry: Any, **more: object) -> str:
    return yaml.safe_dump({"little-1b": {**entry, **more}})


LITTLE: Any = {**HOUSE.models["qwen3-32b"], "name": "org/Little-1B",
               "source": {"hub": {"repo": "org/Little-1B", "revision": COMMIT}}}  # fmt: skip
BY_REPOSITORY = ("little-1b", "org/little-1B@main")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("little-1b: {\n", "file-malformed", ("little-1b",)),
        ("little-1b:\n  source:\n    hub:\n      repo: org/Little-1B\n  x: [\n", "file-malformed", BY_REPOSITORY),
        ("- 1\n", "wrong-type", ("little-1b",)),
        (_text(LITTLE, layers="many"), "wrong-type", BY_REPOSITORY),
        (_text(LITTLE, source={"hub": {"repo": "org/Little-1B"}}), "missing-key", BY_REPOSITORY),
        (_text(LITTLE, builtin_head={"kind": "x", "layers": 1, "tensors": ["y"]}), "unknown-value", BY_REPOSITORY),
        (yaml.safe_dump({"qwen3-32b": LITTLE}), "duplicate-name", ("little-1b", "qwen3-32b")),
    ],
)
def test_a_broken_entry_stops_nobody_but_the_profiles_that_name_it(
    tmp_path: Path, text: str, code: str, words: tuple[str, ...]
) -> None:
    broken = _own(tmp_path, "little-1b.yml", text)
    other = _own(tmp_path, "other.yml", yaml.safe_dump({"other-1b": {**LITTLE, "source": {"path": "/models/other"}}}))
    catalog = _with_own(tmp_path, broken, other)
    assert _target_of(catalog, "other-1b") == "other-1b"
    assert _target_of(catalog, "llama33-70b-fp8") == "llama33-70b-fp8"
    for word in words:
        with refuses(code) as refused:
            _target_of(catalog, word)
        assert refused.value.problems[0].where.startswith("profiles/catalog/local/little-1b.yml")


def test_what_is_made_from_a_broken_entry_is_broken_too(tmp_path: Path) -> None:
    made: list[Path] = []
    for name, start in (("a", "b"), ("b", "gone")):
        source = {"derived": {"from": start, "recipe": "gguf_to_hf"}}
        made.append(_own(tmp_path, f"{name}.yml", yaml.safe_dump({name: {**LITTLE, "source": source}})))
    catalog = _with_own(tmp_path, *made)
    assert catalog.models == HOUSE.models
    assert {name: problems[0].where for name, problems in catalog.broken_models.items()} == {
        name: f"profiles/catalog/local/{name}.yml: {name}.source.derived.from" for name in ("a", "b")
    }


def test_a_clone_with_a_broken_entry_loads_and_the_entry_is_written_anew(
    clone: Path, made: NewEntry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _own(clone, "little-1b.yml", "little-1b: {\n")
    _own(clone, "other-1b.yml", "other-1b: {\n")
    catalog = load_catalog(clone)
    monkeypatch.setattr(profiles, "catalog_for", lambda: catalog)
    assert profiles.main([]) == 0
    said = capsys.readouterr().out
    assert [said.count(words) for words in ("little-1b.yml", "other-1b.yml", "entries of yours")] == [1, 1, 1]
    (clone / "profiles/catalog/local/other-1b.yml").unlink()
    assert write_entry(made, catalog, clone, "")[1]
    assert load_catalog(clone).broken_models == {}
