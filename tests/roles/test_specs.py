"""Every role: one schema, defaults that agree with it, a table of contents, tags, a README made from it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from drafthouse.profiles.workspace import ROOT

ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
TYPES = {"str": str, "path": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture(params=ROLES, ids=lambda role: role.name)
def role(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def options(role: Path) -> dict[str, Any]:
    return dict(read(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"])


def test_defaults_agree_with_the_schema(role: Path) -> None:
    defaults = read(role / "defaults/main.yml") or {}
    specs = options(role)
    assert {name for name, spec in specs.items() if not spec.get("required")} == set(defaults)
    for name, value in defaults.items():
        assert specs[name]["default"] == value, name
        assert isinstance(value, TYPES[specs[name]["type"]]), name
        assert value in specs[name].get("choices", [value]), name


def test_names_begin_with_the_roles_own(role: Path) -> None:
    for name in options(role):
        assert name.startswith(f"{role.name}_")
    for name in read(role / "vars/main.yml") if (role / "vars/main.yml").exists() else {}:
        assert name.startswith(f"_{role.name}_")
    for path in (role / "tasks").glob("*.yml"):
        for registered in re.findall(r"register: (\S+)", path.read_text()):
            assert registered.startswith(f"__{role.name}"), path


def test_no_role_reads_anothers_variables(role: Path) -> None:
    others = [other.name for other in ROLES if other != role]
    for path in [*(role / "tasks").glob("*.yml"), *(role / "vars").glob("*.yml")]:
        given: list[str] = []
        # What is handed to another role is named in its words: that is the interface.
        for task in read(path) if path.parent.name == "tasks" else []:
            if "ansible.builtin.include_role" in task:
                given += task.get("vars", {})
        text = path.read_text()
        for name in re.findall(r"\b_{0,2}([a-z]+(?:_[a-z]+)+)\b", text):
            owner = next((other for other in others if name.startswith(f"{other}_")), None)
            # Our modules and their options have names of their own.
            assert owner is None or name in given or f"core.{name}" in text or f"{name}:" in text, (
                path,
                name,
            )


def test_tasks_are_a_table_of_contents(role: Path) -> None:
    tasks = read(role / "tasks/main.yml")
    assert 1 <= len(tasks) <= 5
    for task in tasks:
        assert task["name"]
        # Phases have tags (site.yml); a role's tasks run whenever it is asked for.
        assert "tags" not in task


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
