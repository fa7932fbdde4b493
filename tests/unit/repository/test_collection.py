"""The collection as a file of its own: it builds, installs and works in a folder without the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drafthouse.profiles.workspace import ROOT

pytestmark = pytest.mark.processes
BIN = Path(sys.executable).parent
GPUS = "plugins/module_utils/data/profiles/catalog/gpus.yml"
ROLES = ("nvidia_driver", "container_engine", "firewall", "box_env")
CALLBACK = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "as_json"

    def v2_runner_on_ok(self, result):
        print(json.dumps([result._task.action, result._result], default=str))

    def v2_runner_on_failed(self, result, ignore_errors=False):
        print(json.dumps([result._task.action, {**result._result, "failed": True}], default=str))
"""


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible's in a folder as somebody does who has nothing of ours but what is installed there."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE", "PYTHON", "DRAFT"))}
    settings = {
        "HOME": str(folder),
        "PATH": f"{BIN}:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_CALLBACK_PLUGINS": str(folder / "callbacks"),
        "ANSIBLE_STDOUT_CALLBACK": "as_json",
    }
    return subprocess.run(
        [str(BIN / program), *words], cwd=folder, env=theirs | settings, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [sys.executable, str(ROOT / "scripts" / "collection.py"), "--to", str(tmp_path_factory.mktemp("built"))]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which there is the collection, and a way to see what its tasks return."""
    folder = tmp_path_factory.mktemp("elsewhere")
    done = run(folder, "ansible-galaxy", "collection", "install", "--offline", str(tarball), "-p", "collections")
    assert done.returncode == 0, done.stderr
    (folder / "callbacks").mkdir()
    (folder / "callbacks" / "as_json.py").write_text(CALLBACK)
    return folder


@pytest.fixture(scope="module")
def answers(installed: Path) -> dict[str, dict[str, Any]]:
    """What a module and actions say there by their names, from one playbook that goes on after a failure."""
    gone = str(installed / "gone")
    report = {"invalid": True, "reasons": ["nothing was measured"], "directory": "reports/one"}
    asked: dict[str, dict[str, Any]] = {
        "box_facts": {"paths": ["/"], "ports": [1], "supervisor_pidfile": gone, "present": ["/", gone]},
        "hosts_named": {},
        "valid": {"report": report, "profile": "one"},
        "resolve": {},
    }
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "ignore_errors": True,
        "vars": {"profile": "cpu-smollm2-ngram"},
        "tasks": [{f"drafthouse.core.{plugin}": arguments} for plugin, arguments in asked.items()],
    }
    # JSON is YAML.
    (installed / "play.yml").write_text(json.dumps([play]))
    done = run(installed, "ansible-playbook", "-i", "box,", "play.yml")
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    answers = {action.removeprefix("drafthouse.core."): answer for action, answer in said}
    assert list(answers) == list(asked), done.stdout + done.stderr
    return answers


def test_the_library_is_in_it_and_no_link(tarball: Path) -> None:
    with tarfile.open(tarball) as packed:
        members = packed.getmembers()
    names = {member.name for member in members}
    library = {path.relative_to(ROOT / "src" / "drafthouse") for path in (ROOT / "src").rglob("*.py")}
    assert {f"plugins/module_utils/{path}" for path in library} <= names
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert not [name for name in names if "__pycache__" in name]
    # Of the catalogue the one table that a role reads, and nothing of what users added.
    assert [name for name in names if "catalog/" in name and name.endswith(".yml")] == [GPUS]


def test_a_module_runs_without_the_clone(answers: Mapping[str, Any]) -> None:
    assert answers["box_facts"]["box"]["present"] == ["/"]
    assert not answers["box_facts"]["changed"]


def test_an_action_runs_without_the_clone(answers: Mapping[str, Any]) -> None:
    assert not answers["hosts_named"].get("failed")
    assert answers["valid"]["failed"]
    assert "nothing was measured" in json.dumps(answers["valid"])


def test_one_that_needs_the_clone_says_so(answers: Mapping[str, Any]) -> None:
    assert answers["resolve"]["failed"]
    (problem,) = answers["resolve"]["problems"]
    assert "without a clone" in problem["found"]
    assert problem["needed"] and problem["do"]


def test_the_roles_that_prepare_a_box_are_found_by_their_full_names(installed: Path) -> None:
    tasks = [{"import_role": {"name": f"drafthouse.core.{name}"}, "vars": {"box_env_home": "/opt/a"}} for name in ROLES]
    (installed / "roles.yml").write_text(json.dumps([{"hosts": "all", "tasks": tasks}]))
    listed = run(installed, "ansible-playbook", "-i", "box,", "roles.yml", "--list-tasks")
    assert listed.returncode == 0, listed.stderr
    for task in ("Install the packages and hold them", "Configure daemon.json", "Remove our chains", "Install uv"):
        assert task in listed.stdout


def test_the_driver_s_role_reads_the_table_of_gpus_that_came_with_it(installed: Path) -> None:
    empty = installed / "no_gpu"
    empty.mkdir(exist_ok=True)
    variables = {"nvidia_driver_sys": str(empty), "nvidia_driver_proc": str(empty)}
    tasks = [{"import_role": {"name": "drafthouse.core.nvidia_driver"}, "vars": variables}]
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "tasks": tasks}
    (installed / "driver.yml").write_text(json.dumps([play]))
    done = run(installed, "ansible-playbook", "-i", "box,", "driver.yml", "--check")
    (said,) = [json.loads(line)[1] for line in done.stdout.splitlines() if "driver_choice" in line]
    assert [problem["code"] for problem in said["problems"]] == ["no-gpu"], done.stdout
