from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    return tmp_path


def test_text_that_is_no_yaml(clone: Path) -> None:
    (clone / "profiles/catalog/models.yml").write_text("a: 1\nb: c: d\n")
    with pytest.raises(DrafthouseError) as caught:
        load_catalog(clone)
    (problem,) = caught.value.problems
    assert problem.where == "profiles/catalog/models.yml: line 2, column 5"
    assert "not YAML" in problem.found


def test_a_key_that_is_written_twice(clone: Path) -> None:
    path = clone / "profiles/catalog/hardware.yml"
    path.write_text(path.read_text() + "\nrtx6000:\n  name: again\n")
    with pytest.raises(DrafthouseError, match="the key 'rtx6000' is written twice"):
        load_catalog(clone)


@pytest.mark.parametrize(
    "text",
    ["a: &x {p: 1, p: 2}", "a: {<<: &x {p: 1, p: 2}}", "a: &x {q: 1}\nb: {<<: *x, p: 1, p: 2}"],
)
def test_a_key_that_is_written_twice_near_a_merge_key(clone: Path, text: str) -> None:
    (clone / "profiles/catalog/models.yml").write_text(text + "\n")
    with pytest.raises(DrafthouseError, match="the key 'p' is written twice"):
        load_catalog(clone)


def test_a_key_may_replace_a_merged_one(clone: Path) -> None:
    models = load_catalog(clone).models
    assert models["smollm2-135m-bf16"]["file"] != models["smollm2-135m-q4"]["file"]
    assert models["smollm2-135m-bf16"]["layers"] == models["smollm2-135m-q4"]["layers"] == 30


def test_a_catalogue_file_that_is_gone(clone: Path) -> None:
    (clone / "profiles/catalog/models.yml").unlink()
    with pytest.raises(DrafthouseError, match=r"profiles/catalog/models.yml\nfound: no such file"):
        load_catalog(clone)


def test_no_engine_at_all(clone: Path) -> None:
    shutil.rmtree(clone / "profiles/catalog/engines")
    with pytest.raises(DrafthouseError, match=r"profiles/catalog/engines\nfound: no engine"):
        load_catalog(clone)


@pytest.mark.parametrize(
    "text", ["- a\n", "a\n", "versions: [1]\n", "versions: {1.0: {none: a}}\n", "plugin: {flags: 1}\n"]
)
@pytest.mark.parametrize("file", ["flags/vllm.yml", "engines/vllm.yml", "engines/vllm-arctic.yml", "known-issues.yml"])
def test_a_file_that_is_something_else_is_refused_by_its_name(clone: Path, file: str, text: str) -> None:
    (clone / "profiles/catalog" / file).write_text(text)
    with pytest.raises(DrafthouseError) as caught:
        load_catalog(clone)
    assert any(f"profiles/catalog/{file}" in problem.where for problem in caught.value.problems)


def test_an_engines_file_with_a_name_that_is_none(clone: Path) -> None:
    folder = clone / "profiles/catalog/engines"
    (folder / "llamacpp.yml").rename(folder / "llama cpp.yml")
    with pytest.raises(DrafthouseError, match=r"engines/llama cpp.yml\nfound: the file's name"):
        load_catalog(clone)


def test_a_broken_profile_does_not_stop_another(clone: Path) -> None:
    (clone / "profiles/mine.yml").write_text("title: 3\n")
    catalog = load_catalog(clone)
    assert "mine" in catalog.broken
    assert "rtx6000-qwen-eagle3" not in catalog.broken


def test_two_sources_are_one_too_many(clone: Path) -> None:
    path = clone / "profiles/catalog/models.yml"
    path.write_text(
        path.read_text().replace("    hub: {repo: Qwen/Qwen3-32B,", "    path: /x\n    hub: {repo: Qwen/Qwen3-32B,")
    )
    with pytest.raises(DrafthouseError, match=r"qwen3-32b.source\nfound: 2 of them \(path, hub\)"):
        load_catalog(clone)


def test_every_number_of_the_catalogue_is_sane() -> None:
    catalog = load_catalog(ROOT)
    for name, model in catalog.models.items():
        if model["kind"] == "model":
            # Half a byte to four bytes for each parameter: anything else is a slip of the pen.
            assert 0.5 < model["weight_bytes"] / model["parameters"] < 4.1, name
        source = model["source"]
        revision = source.get("hub", {}).get("revision")
        assert revision is None or revision == "unresolved" or len(revision) == 40, name
        if "derived" in source:
            assert source["derived"]["from"] in catalog.models
    for engine in catalog.engines.values():
        assert engine["default_version"] in engine["versions"]
        assert (ROOT / "templates" / engine["template"]).is_file()


def test_each_program_that_an_environment_gets_is_a_file() -> None:
    """Nothing looks for it before a box's environment has been made."""
    for engine, entry in load_catalog(ROOT).engines.items():
        for install in entry["install"].values():
            for name in filter(None, (install.get("launcher"), *install.get("tools", ()))):
                assert (ROOT / "roles/engine/files" / name).is_file(), f"{engine}: {name}"


def test_a_house_that_a_caller_changes_is_only_its_own() -> None:
    first = load_catalog(ROOT)
    first.models.clear()
    next(iter(first.engines.values()))["options"].clear()
    first.broken["x"] = []
    second = load_catalog(ROOT)
    assert second.models
    assert next(iter(second.engines.values()))["options"]
    assert second.broken == {}
