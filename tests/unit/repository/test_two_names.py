"""No process holds a part of the library under both of its names: a class imported twice is two classes.

The tests themselves make one name of the two (tests/support/one_name.py), so each case is a process without that.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from drafthouse.profiles.workspace import ROOT

BIN = Path(sys.executable).parent
DOOR = "ansible_collections.drafthouse.core.plugins.module_utils"
LIBRARY = ROOT / "src" / "drafthouse"
PLUGINS = ROOT / "collections" / "ansible_collections" / "drafthouse" / "core" / "plugins"
#: Kinds of plugins that run in a process of the controller's.
KINDS = ("action", "callback", "filter", "inventory", "lookup")

EVERY_PLUGIN = """
import json, sys
from ansible.plugins import loader
loader.init_plugin_loader([sys.argv[1]])
for kind, names in json.loads(sys.argv[2]).items():
    for name in names:
        found = getattr(loader, f"{kind}_loader").get(f"drafthouse.core.{name}", class_only=True)
        assert found is not None, (kind, name)
print(json.dumps(sorted(sys.modules)))
"""

EVERY_MODULE = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""

# Runs actions as their own tasks do, in the process that Ansible has made for a task, and tells what that holds then.
ACTION = """
import sys
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        for name in ("hosts_named", "resolve"):
            action = self._shared_loader_obj.action_loader.get(
                f"drafthouse.core.{name}", task=self._task, connection=self._connection, loader=self._loader,
                play_context=self._play_context, templar=self._templar, shared_loader_obj=self._shared_loader_obj)
            done = action.run(task_vars=task_vars)
            if done.get("failed"):
                return done
        return {"held": sorted(sys.modules)}
"""
# Where every result is shown, in the controller's own process.
CALLBACK = """
import json, os, sys
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "aggregate", "held"

    def v2_runner_on_ok(self, result):
        self.task = result._result.get("held")

    def v2_playbook_on_stats(self, stats):
        with open(os.environ["HELD"], "w") as file:
            json.dump([self.task, sorted(sys.modules)], file)
"""


def twice(held: Collection[str]) -> set[str]:
    """The parts of the library that stand under both names."""
    theirs = {name.removeprefix(DOOR) for name in held if name.startswith(f"{DOOR}.")}
    return {f"drafthouse{part}" for part in theirs} & set(held)


def under_door(held: Collection[str]) -> int:
    return sum(name.startswith(f"{DOOR}.") for name in held)


def python(text: str, *words: str) -> list[str]:
    """What a Python of its own holds in the end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(
        [sys.executable, "-c", text, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    held: list[str] = json.loads(done.stdout.splitlines()[-1])
    return held


def test_one_that_stands_twice_is_found() -> None:
    assert twice(["drafthouse.core.errors", f"{DOOR}.core.errors"]) == {"drafthouse.core.errors"}
    assert not twice(["drafthouse.core.errors", f"{DOOR}.core.files"])


@pytest.mark.processes
def test_all_plugins_of_the_controller_in_one_process() -> None:
    plugins = {kind: [path.stem for path in sorted((PLUGINS / kind).glob("*.py"))] for kind in KINDS}
    held = python(EVERY_PLUGIN, str(ROOT / "collections"), json.dumps(plugins))
    assert under_door(held) > 100
    assert twice(held) == set()


@pytest.mark.processes
def test_all_of_the_library_in_one_process() -> None:
    names = [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in sorted(LIBRARY.rglob("*.py"))
        if path.name != "__init__.py"
    ]
    held = python(EVERY_MODULE, json.dumps(names))
    assert set(names) <= set(held)
    assert under_door(held) == 0


@pytest.mark.processes
def test_a_run_of_ansible_playbook(tmp_path: Path) -> None:
    for folder, text in (("action_plugins", ACTION), ("callbacks", CALLBACK)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "held.py").write_text(text)
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"held": {}}]}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    words = ["ansible-playbook", "-i", "inventory/local", str(tmp_path / "play.yml")]
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_CALLBACK_PLUGINS": str(tmp_path / "callbacks"),
        "HELD": str(tmp_path / "held.json"),
        "LC_ALL": "C.UTF-8",
    }
    words += ["-e", "profile=cpu-smollm2-ngram", "-e", f"drafthouse_home={tmp_path}"]
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:]], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    task, controller = json.loads((tmp_path / "held.json").read_text())
    assert under_door(task) > 50 and under_door(controller) > 5
    assert twice(task) == twice(controller) == set()


def test_each_side_imports_by_its_own_name() -> None:
    wrong = []
    for folder, other in ((LIBRARY, "ansible_collections"), (PLUGINS, "drafthouse")):
        for path in sorted(folder.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                wrong += [f"{path}: {name}" for name in names if name.partition(".")[0] == other]
    assert wrong == []


def test_a_package_says_nothing() -> None:
    """Whoever imports one file of a room must not import others by it: a box has but a part of them."""
    inits = sorted((ROOT / "src").rglob("__init__.py"))
    folders = {path.parent for path in LIBRARY.rglob("*.py")}
    assert {path.parent for path in inits} == folders
    assert [str(path) for path in inits if path.read_bytes()] == []
