"""Every action of ours has documentation, which names what it cannot do without."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT

CORE = ROOT / "collections/ansible_collections/drafthouse/core/plugins"
ACTIONS = sorted(path.stem for path in (CORE / "action").glob("*.py"))


@pytest.mark.parametrize("name", ACTIONS)
def test_ansible_doc_knows_it(name: str) -> None:
    package = "ansible_collections.drafthouse.core.plugins"
    text = (CORE / "modules" / f"{name}.py").read_text("utf-8")
    about = yaml.safe_load(importlib.import_module(f"{package}.modules.{name}").DOCUMENTATION)
    assert about["module"] == name and about["short_description"] and about["description"]
    if "AnsibleModule(" in text:
        return  # it runs on the box, and checks its arguments itself
    action = importlib.import_module(f"{package}.action.{name}").ActionModule
    options = about.get("options", {})
    assert {key for key, option in options.items() if option.get("required")} <= set(action._NEEDED)
    if options and action._VALID_ARGS:
        assert set(options) == set(action._VALID_ARGS)


@pytest.mark.parametrize("path", sorted((CORE / "modules").glob("*.py")), ids=lambda path: path.stem)
def test_no_description_ends_at_a_comma(path: Path) -> None:
    """In `{description: One, two., type: str}` YAML reads the key "two." without a value: quotes are missing."""
    module = importlib.import_module(f"ansible_collections.drafthouse.core.plugins.modules.{path.stem}")
    for text in (module.DOCUMENTATION, getattr(module, "RETURN", "")):
        assert ": null" not in yaml.safe_dump(yaml.safe_load(text))


@pytest.mark.processes
def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    book = tmp_path / "book.yml"
    tasks = "".join(f"    - drafthouse.core.{call}\n      ignore_errors: true\n" for call in (
        "report: {folder: x}", "driver_choice: {step: pick}", "driver_choice: {}",
    ))  # fmt: skip
    book.write_text(f"- hosts: localhost\n  gather_facts: false\n  tasks:\n{tasks}")
    words = [str(Path(sys.executable).with_name("ansible-playbook")), str(book), "-i", "localhost,", "-c", "local"]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for missing in ("no resolved", "no plan and no versions", "no step"):
        assert f"found: {missing}" in said, said
