"""Profiles and catalogue entries outside the clone, through every door that reads profiles."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.cli.profile_arguments import inventory_of
from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.own_folders import PROFILES_VARIABLE, profile_folders
from drafthouse.profiles.resolver import resolve
from drafthouse.profiles.workspace import (
    ROOT,
    catalog_for,
    folders_by_inventory,
    load_suites,
    resolved_profile,
    site_from,
    site_of_inventory,
)
from tests.support.catalogue import table
from tests.support.engines import OWN_PROFILES
from tests.support.made_models import own_folder
from tests.support.refusals import refuses
from tests.support.verb import called

KINDS = {name: list(suite["kinds"]) for name, suite in load_suites((), ROOT).items()}
SHIPPED = "cpu-smollm2-ngram"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A team's folder: the profile `mine`, with a model, hardware and an engine that only this folder has."""
    folder = tmp_path / "team"
    (folder / "catalog" / "engines").mkdir(parents=True)
    model = {**table("models")["smollm2-135m-f32"], "name": "team/Model", "source": {"path": "/models/team.gguf"}}
    profile = {**_shipped(), "title": "mine", "hardware": "team-cpu", "engine": "team-llama", "target": "team-model"}
    _write(folder / "catalog" / "models.yml", {"team-model": model})
    _write(folder / "catalog" / "hardware.yml", {"team-cpu": {**table("hardware")["cpu-small"], "name": "team's CPU"}})
    _write(folder / "catalog" / "engines" / "team-llama.yml", {"like": "llamacpp", "name": "the team's llama.cpp"})
    _write(folder / "mine.yml", profile)
    return folder


@pytest.fixture
def named(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same folder, named by the environment."""
    monkeypatch.setenv(PROFILES_VARIABLE, str(own))
    return own


def _shipped() -> dict[str, Any]:
    profile: dict[str, Any] = yaml.safe_load((ROOT / "profiles" / f"{SHIPPED}.yml").read_text("utf-8"))
    return profile


def _write(path: Path, data: object) -> None:
    path.write_text(yaml.safe_dump(data, sort_keys=False), "utf-8")


def _clone(folder: Path) -> Path:
    """A clone with nothing but what `load_catalog` and inventories need."""
    shutil.copytree(ROOT / "profiles", folder / "profiles", ignore=shutil.ignore_patterns("local"))
    shutil.copytree(ROOT / "inventory" / "local", folder / "inventory" / "local")
    return folder


def _of_inventory(clone: Path, inventory: str, *lines: str) -> None:
    variables = clone / "inventory" / inventory / "group_vars" / "all.yml"
    variables.parent.mkdir(parents=True, exist_ok=True)
    before = (ROOT / "inventory" / "local" / "group_vars" / "all.yml").read_text("utf-8")
    variables.write_text("\n".join([before, *lines, ""]), "utf-8")


# --- which folders, in which order ------------------------------------------------------------------------------------


def test_the_shipped_folder_is_first_and_the_inventorys_last(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("a", "b with a space", "c"))
    for folder in (first, second, third):
        folder.mkdir()
    environment = {PROFILES_VARIABLE: os.pathsep.join([str(first), "", str(second), str(first)])}
    found = profile_folders(ROOT, [str(third), str(ROOT / "profiles")], environment)
    assert found == [ROOT / "profiles", first, second, third]
    assert profile_folders(ROOT, environ={}) == [ROOT / "profiles"]


@pytest.mark.parametrize("word", ["relative/folder", "/nowhere/at/all", str(Path(__file__))])
def test_what_is_named_and_no_folder_is_refused_by_who_named_it(word: str) -> None:
    for named, where in (([], PROFILES_VARIABLE), ([word], "drafthouse_profiles_dir")):
        environment = {} if named else {PROFILES_VARIABLE: word}
        with pytest.raises(DrafthouseError) as refused:
            profile_folders(ROOT, named, environment)
        assert [(one.code, one.where) for one in refused.value.problems] == [("no-such-file", where)]
        assert word in refused.value.problems[0].found


def test_an_installed_wheel_reads_the_home_and_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drafthouse.profiles.own_folders.INSTALLED", True)
    monkeypatch.setattr("drafthouse.profiles.own_folders.WORK", tmp_path)
    found = profile_folders(ROOT, [], {"XDG_CONFIG_HOME": "/home/me/.config"})
    assert found == [ROOT / "profiles", Path("/home/me/.config/drafthouse/profiles"), tmp_path / "profiles"]


@pytest.mark.parametrize("given", [7, {"a": "b"}, ["/a", 7]])
def test_a_profiles_dir_that_is_no_folder_is_refused(given: object) -> None:
    with refuses("wrong-type", match="drafthouse_profiles_dir"):
        resolved_profile(SHIPPED, site_from({"drafthouse_profiles_dir": given}))


def test_a_relative_folder_of_an_inventory_is_below_the_clone() -> None:
    one = site_from({"drafthouse_profiles_dir": "a"}, Path("/clone"))
    several = site_from({"drafthouse_profiles_dir": ["/b", "~/c"]}, Path("/clone"))
    assert one["profiles_dir"] == ["/clone/a"]
    assert several["profiles_dir"] == ["/b", str(Path("~/c").expanduser())]


# --- what is read, and what a broken file stops -----------------------------------------------------------------------


def test_a_profile_and_its_entries_resolve_as_shipped_ones_do(named: Path) -> None:
    resolved = resolved_profile("mine", site_of_inventory("local"))
    assert (resolved["target"]["id"], resolved["target"]["name"]) == ("team-model", "team/Model")
    assert resolved["hardware"]["name"] == "team's CPU"
    assert (resolved["engine"]["id"], resolved["engine"]["name"]) == ("team-llama", "the team's llama.cpp")
    assert resolved["weights"][0]["source"] == "path"
    assert resolved["arms"]["speculative"]["files"]
    assert not [line for line in resolved["warnings"] if line.startswith("profile:")]
    # As an engine that is like another, it has the other's flags.
    assert load_catalog(ROOT).flags["team-llama"] == load_catalog(ROOT).flags["llamacpp"]


def test_a_profile_in_place_of_a_shipped_one_is_said_in_the_plan(named: Path) -> None:
    _write(named / f"{SHIPPED}.yml", {**_shipped(), "title": "ours"})
    done = called("plan", SHIPPED)
    assert done.stdout.startswith(f"{SHIPPED}: ours\n")
    assert f"profile: {named}/{SHIPPED}.yml, in place of profiles/{SHIPPED}.yml" in " ".join(done.stdout.split())
    assert load_catalog(ROOT).file(SHIPPED) == str(named / f"{SHIPPED}.yml")


def test_of_several_the_last_folder_wins(named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nearer = tmp_path / "nearer"
    nearer.mkdir()
    _write(nearer / "mine.yml", {**_shipped(), "title": "nearer"})
    monkeypatch.setenv(PROFILES_VARIABLE, f"{named}{os.pathsep}{nearer}")
    assert load_catalog(ROOT).profiles["mine"]["title"] == "nearer"
    assert load_catalog(ROOT, [str(named)]).profiles["mine"]["title"] == "nearer"  # named twice: its first place counts
    site = {**site_of_inventory("local"), "profiles_dir": [str(tmp_path / "last")]}
    shutil.copytree(named, tmp_path / "last")
    shutil.rmtree(tmp_path / "last" / "catalog")
    assert resolved_profile("mine", site)["title"] == "mine"


def test_errors_have_the_files_own_path(named: Path) -> None:
    _write(named / "mine.yml", {**_shipped(), "serve": {"context": "many"}})
    _write(named / "other.yml", {**_shipped(), "titel": "x"})
    _write(named / "asks.yml", {**_shipped(), "experiment": {"suites": ["none"]}})
    for name, where in (("mine", "serve.context"), ("other", "titel"), ("asks", "experiment.suites")):
        with pytest.raises(DrafthouseError) as refused:
            resolved_profile(name, site_of_inventory("local"))
        assert refused.value.problems[0].where.startswith(f"{named}/{name}.yml: {where}")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("catalog/models.yml", "team-model: {name: [\n"),
        ("catalog/models.yml", "team-model: {name: x}\n"),
        ("catalog/hardware.yml", "team-cpu: {name: [\n"),
        ("catalog/hardware.yml", "team-cpu: {name: x}\n"),
        ("catalog/engines/team-llama.yml", "like: llamacpp\nname: [\n"),
        ("catalog/engines/team-llama.yml", "like: llamacpp\nnam: x\n"),
        ("catalog/engines/team-llama.yml", "like: llamacpp\nlaunch: {command: ['no program']}\n"),
        ("mine.yml", "title: 3\n"),
    ],
)
def test_a_broken_file_stops_only_the_profiles_that_name_it(named: Path, file: str, text: str) -> None:
    (named / file).write_text(text, "utf-8")
    _write(named / "right.yml", {**_shipped(), "title": "right"})
    for name in ("right", SHIPPED):
        assert resolved_profile(name, site_of_inventory("local"))["profile"] == name
    with pytest.raises(DrafthouseError) as refused:
        resolved_profile("mine", site_of_inventory("local"))
    assert {problem.where.partition(": ")[0].partition(":")[0] for problem in refused.value.problems} == {
        str(named / file)
    }
    listed = called("profiles")
    assert str(named / file) in listed.stdout
    assert str(named / file) in called("prune", "--models-dir", named, "--home", named).stderr


@pytest.mark.parametrize(
    ("file", "data", "key"),
    [
        ("catalog/models.yml", {"qwen3-32b": table("models")["qwen3-32b"]}, "qwen3-32b"),
        ("catalog/hardware.yml", {"rtx6000": table("hardware")["rtx6000"]}, "rtx6000"),
        ("catalog/engines/vllm.yml", {"like": "vllm", "name": "x"}, "vllm"),
    ],
)
def test_an_entry_with_a_name_of_the_catalogue_is_refused(named: Path, file: str, data: object, key: str) -> None:
    _write(named / file, data)
    catalog = load_catalog(ROOT)
    assert f"'{key}', which is already in the catalogue" in catalog.broken_entries()[0].found
    with refuses("duplicate-name"):
        resolve(catalog, "rtx6000-qwen-eagle3", site_of_inventory("workstation"), KINDS)


def test_of_another_clone_its_profiles_are_read_and_not_its_catalogue(named: Path, tmp_path: Path) -> None:
    other = _clone(tmp_path / "other") / "profiles"
    _write(other / "theirs.yml", {**_shipped(), "title": "theirs"})
    catalog = load_catalog(ROOT, [str(other)])
    assert catalog.broken_entries() == []
    assert catalog.profiles["theirs"]["title"] == "theirs"
    assert {"mine", "rtx6000-qwen-eagle3"} <= set(catalog.profiles)


@pytest.mark.parametrize("path", sorted(OWN_PROFILES.glob("*.yml")), ids=lambda path: path.stem)
def test_the_profiles_of_models_that_tests_make_resolve(path: Path, tmp_path: Path) -> None:
    site = {**site_of_inventory("local"), "profiles_dir": [str(own_folder(tmp_path / "own", tmp_path / "made"))]}
    resolved = resolved_profile(path.stem, site)
    assert resolved["profile"] == path.stem
    assert bool(resolved["synthetic"]) is (path.stem != "cpu-smollm2-vllm-suffix")
    made = [item for item in resolved["weights"] if item["source"] == "path"]
    assert all(item["path"].startswith(f"{tmp_path}/made/") for item in made)
    assert bool(made) is bool(resolved["synthetic"])


# --- the doors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("profiles",), "mine "),
        (("plan", "mine"), "team/Model"),
        (("render", "mine"), "speculative/serve.sh"),
        (("tune", "mine", "--list"), "prompts to search with"),
        (("drafts", "team-model"), "no draft for team-model"),
        (("fits", "team-model", "--gpu", "rtx6000"), "team/Model"),
        (("new", "--target", "team-model", "--gpu", "team-cpu", "--engine", "team-llama", "--print"), "team-llama"),
        (("export", "mine", "--to", "compose"), "no image of the team's llama.cpp"),
        (("upgrade", "mine", "2026.10.11549", "--list"), "2026.10.11549 twice"),
        (("rent", "mine", "--dry-run", "--max-price", "1"), "hardware-not-rentable"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_verb_knows_it(named: Path, words: tuple[str, ...], says: str) -> None:
    done = called(*words, VAST_API_KEY="none")
    assert says in done.stdout + done.stderr
    assert "no-such-profile" not in done.stderr
    shutil.rmtree(ROOT / "build" / "mine", ignore_errors=True)


def test_an_export_knows_what_an_inventory_names(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "drafthouse.cli.profile_arguments.catalog_for", lambda inventory: load_catalog(ROOT, [str(own)])
    )
    monkeypatch.setattr("drafthouse.cli.export.every_own_folder", lambda: [str(own)])
    assert "no image of the team's llama.cpp" in called("export", "mine", "--to", "compose").stderr


def test_what_tune_writes_is_beside_the_profile(named: Path) -> None:
    (named / "mine-tuned.yml").write_text("title: by hand\n", "utf-8")
    done = called("tune", "mine", "--list")
    assert f"where: {named}/mine-tuned.yml\nfound: a profile that the tuner did not write" in done.stderr


@pytest.mark.processes
def test_make_knows_it(named: Path) -> None:
    help_text = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.split() for line in help_text.splitlines() if line.startswith("mine ")] == [
        ["mine", "team-cpu", "team-model", "ngram-simple", "team-llama"]
    ]
    runs = subprocess.run(["make", "-n", "mine"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "scripts/drafthouse run mine" in runs
    typo = subprocess.run(["make", "mien"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "do: make mine" in typo.stderr


@pytest.mark.processes
@pytest.mark.parametrize("by", ["environment", "variable"])
def test_a_playbook_knows_it(own: Path, by: str) -> None:
    given = {"profile": "mine", **({"drafthouse_profiles_dir": str(own)} if by == "variable" else {})}
    environment = {**os.environ, **({PROFILES_VARIABLE: str(own)} if by == "environment" else {})}
    play = ROOT / ".venv/bin/ansible-playbook"
    words = [str(play), "site.yml", "-i", "inventory/local", "-e", json.dumps(given), "--tags", "none"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout


def test_an_inventory_names_folders_for_its_commands(own: Path, tmp_path: Path) -> None:
    clone = _clone(tmp_path / "clone")
    _of_inventory(clone, "team", f"drafthouse_profiles_dir: {own}")
    assert folders_by_inventory(clone) == {"team": [str(own)]}
    assert "mine" in catalog_for("team", clone).profiles
    assert "mine" in catalog_for(None, clone).profiles
    assert "mine" not in catalog_for("local", clone).profiles
    assert load_catalog(clone, site_of_inventory("team", clone)["profiles_dir"]).profiles["mine"]["title"] == "mine"


def test_a_profile_of_an_inventorys_folder_is_for_that_inventory(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = _clone(tmp_path / "clone")
    _of_inventory(clone, "team", f"drafthouse_profiles_dir: [{own}]")
    replaced: list[tuple[str, Callable[..., object]]] = [
        ("load_catalog", lambda root: load_catalog(clone)),
        ("folders_by_inventory", lambda: folders_by_inventory(clone)),
        ("catalog_for", lambda name=None: catalog_for(name, clone)),
    ]
    for name, instead in replaced:
        monkeypatch.setattr(f"drafthouse.cli.profile_arguments.{name}", instead)
    assert inventory_of("mine") == "team"
    assert inventory_of("mine", "team") == "team"
    assert inventory_of(SHIPPED) == "local"
    with refuses("no-such-profile"):
        inventory_of("mine", "local")
