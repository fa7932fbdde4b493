"""The facts of a run: three of them, small, and the key under which results were kept before."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.drafthouse.core.plugins.action import resolve as resolve_action
from ansible_collections.drafthouse.core.plugins.action import suites as suites_action

from drafthouse.core.errors import DrafthouseError
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.profile_types import Site
from drafthouse.profiles.result_key import measured_key
from drafthouse.profiles.workspace import ROOT, resolved_profile, site_of_inventory
from drafthouse.prompts.suite_file import read_suites, suites_file, suites_text

INVENTORIES = ("local", "workstation", "vastai")
# Bytes: every task of a run carries the facts.
LARGEST = 21 * 1024
BOX: dict[str, Any] = {
    "hostname": "box", "machine": "x86_64", "cpu": "Xeon", "cores": 2, "memory_total": 1, "gpus": [],
    "first_process": None, "served": None,
}  # fmt: skip


HOSTS = {"hostvars": {"box": {}}, "inventory_hostname": "box"}


def facts_of(profile: str, site: Site, **box: Any) -> dict[str, Any]:
    """What the action sets for a profile of a site, on a box whose facts are `BOX`."""
    action = object.__new__(resolve_action.ActionModule)
    action._task = SimpleNamespace(args={}, check_mode=False)
    action._templar = SimpleNamespace(template=lambda value: value)
    action._loader = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        patch.setattr(resolve_action, "load_extra_vars", lambda loader: {})
        patch.setattr(action, "_look_at_the_box", lambda resolved, task_vars: {"box": {**BOX, **box}}, raising=False)
        variables = {f"drafthouse_{name}": value for name, value in site.items()}
        found = action.run(task_vars={"profile": profile, "ansible_connection": "ssh", **variables, **HOSTS})
    assert not found.get("failed"), found
    facts: dict[str, Any] = found["ansible_facts"]
    return facts


@pytest.mark.parametrize("profile", sorted(load_catalog(ROOT).profiles))
def test_the_facts_of_every_profile_are_small(profile: str) -> None:
    resolvable = 0
    for inventory in INVENTORIES:
        # A home of its own: how long the clone's path is says nothing about a profile.
        site = site_of_inventory(inventory)
        site["home"], site["models_dir"] = "/opt/drafthouse", "/opt/drafthouse/models"
        try:
            resolved_profile(profile, site)
        except DrafthouseError:
            continue
        resolvable += 1
        facts = facts_of(profile, site)
        assert set(facts) == {"drafthouse_profile", "drafthouse_box", "drafthouse_run"}
        sizes = {name: len(json.dumps(fact)) for name, fact in facts.items()}
        assert max(sizes.values()) < LARGEST, (profile, inventory, sizes)
        assert not {"suites", "extras", "box", "key"} & set(facts["drafthouse_profile"])
    assert resolvable


@pytest.mark.parametrize(
    ("profile", "inventory", "key"),
    [("cpu-smollm2-ngram", "local", "a1fcc7beba275903"), ("rtx6000-qwen-eagle3", "workstation", "4e722cfb22f94ae6")],
)
def test_the_key_of_kept_results_changes_only_with_what_is_measured(profile: str, inventory: str, key: str) -> None:
    """Written down when vLLM began to count an answer's drafts: who changes a key has old results measured anew."""
    site = {**site_of_inventory(inventory), "home": "/opt/drafthouse", "models_dir": "/opt/drafthouse/models"}
    then = {"suites": ["mixed", "articles"], "once": ["articles"], "prompts_per_kind": {"declared": 6, "others": 3}}
    more = {"experiment": then} if inventory == "local" else {}
    assert measured_key(resolved_profile(profile, site, more), {"hostname": "box"}) == key


@pytest.mark.parametrize("inventory", ["workstation", "vastai"])
def test_the_gpus_that_the_boxs_environment_chooses(inventory: str) -> None:
    profile, site = "rtx4090-llama32-draft1b", site_of_inventory(inventory)
    choice = {"by": "CUDA_VISIBLE_DEVICES", "ids": ["1"], "wrong": [], "listed": [0, 1]}
    found = facts_of(profile, site, gpu_choice=choice)
    chosen = resolved_profile(profile, {**site, "gpus": ["1"]})
    assert found["drafthouse_profile"]["arms"] == chosen["arms"]
    assert found["drafthouse_profile"]["site"]["gpus"] == ["1"]
    assert found["drafthouse_run"]["key"] != facts_of(profile, site)["drafthouse_run"]["key"]
    # What the inventory chooses goes before, and what preflight refuses is put nowhere.
    assert facts_of(profile, {**site, "gpus": ["0"]}, gpu_choice=choice)["drafthouse_profile"]["site"]["gpus"] == ["0"]
    wrong = facts_of(profile, site, gpu_choice={**choice, "wrong": ["7"]})
    assert wrong["drafthouse_profile"] == facts_of(profile, site)["drafthouse_profile"]


def test_the_prompts_are_the_file_that_its_hash_names(tmp_path: Path) -> None:
    suites = resolved_profile("cpu-smollm2-ngram", site_of_inventory("local"))["suites"]
    file = suites_file(str(tmp_path), suites)
    (tmp_path / "suites").mkdir()
    with pytest.raises(DrafthouseError, match="no prompts that can be read"):
        read_suites(file, suites)
    Path(file).write_text(suites_text(suites), "utf-8")
    assert read_suites(file, suites) == list(suites.values())
    Path(file).write_text(suites_text(suites) + " ", "utf-8")
    with pytest.raises(DrafthouseError, match="prompts that were changed"):
        read_suites(file, suites)


@pytest.mark.parametrize("profile", sorted(load_catalog(ROOT).profiles))
def test_the_prompts_are_asked_as_their_suites_say(profile: str, tmp_path: Path) -> None:
    """As text, which has an order: of kinds, and in a JSON schema or a tool, where the model sees it."""
    suites = resolved_profile(profile, site_of_inventory("workstation"))["suites"]
    file = Path(suites_file(str(tmp_path), suites))
    file.parent.mkdir()
    file.write_text(suites_text(suites), "utf-8")
    assert json.dumps(read_suites(str(file), suites)) == json.dumps(list(suites.values()))


def test_nothing_shows_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of("cpu-smollm2-ngram", site_of_inventory("workstation"))
    resolved = {**facts["drafthouse_profile"], **facts["drafthouse_run"]}
    entries: list[dict[str, Any]] = []

    def module(module_args: dict[str, Any], **_: Any) -> dict[str, Any]:
        entries.extend(module_args["entries"])
        shown = {"diff": [{"after": entries[-1]["content"]}], "invocation": {"module_args": module_args}}
        return {"changed": True, "paths": [entries[-1]["path"]], **shown}

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = object.__new__(suites_action.ActionModule)
    action._task = SimpleNamespace(args={"resolved": resolved}, check_mode=False)
    monkeypatch.setattr(action, "_execute_module", module, raising=False)
    assert action.run(task_vars={}) == {"changed": True, "paths": [resolved["suites_file"]]}
    folder, file = entries
    assert (folder["mode"], file["mode"]) == ("0700", "0600")
    assert json.loads(file["content"])["mixed"]["kinds"]


def test_the_facts_name_is_no_way_to_name_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = object.__new__(resolve_action.ActionModule)
    action._loader = None
    given = {"drafthouse_profile": "cpu-smollm2-ngram"}
    monkeypatch.setattr(resolve_action, "load_extra_vars", lambda loader: given)
    answer = action.run(task_vars=given)
    (problem,) = answer["problems"]
    assert answer["failed"]
    assert problem["code"] == "invalid-setting"
    assert "-e profile=cpu-smollm2-ngram" in problem["do"]
