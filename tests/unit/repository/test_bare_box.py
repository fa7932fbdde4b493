"""What Ansible runs on a box before our environment is there imports the standard library alone."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest

from drafthouse.core.box_archive import LIBRARY
from drafthouse.profiles.workspace import ROOT

MODULES = ROOT / "collections/ansible_collections/drafthouse/core/plugins/modules"
DOOR = "module_utils"
#: Run by the Python of our own environment on the box, which has what they import (`roles/box_env`).
IN_OUR_ENVIRONMENT = {"benchmark", "judge_rounds", "trial"}


@functools.cache
def imported(file: Path) -> tuple[list[Path], set[str]]:
    """The library's files and the packages of others that a file imports when it is imported itself."""
    ours: list[Path] = []
    others: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            others |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            others.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            words = (node.module or "").split(".")
            folder = LIBRARY.joinpath(*words[1:]) if words[0] == DOOR else file.parents[node.level - 1].joinpath(*words)
            module = folder.with_suffix(".py")
            ours += [module] if module.is_file() else [folder / f"{alias.name}.py" for alias in node.names]
    return ours, others


def packages_of(module: Path) -> dict[str, list[str]]:
    """The packages of others that importing a module of Ansible imports, with the files that import each."""
    found: dict[str, list[str]] = {}
    for file, others in reached_from(module).items():
        for name in others - set(sys.stdlib_module_names) - {"ansible"}:
            found.setdefault(name, []).append(file.name)
    return found


def reached_from(module: Path) -> dict[Path, set[str]]:
    """The library's files that importing a module of Ansible imports, each with the packages that it imports."""
    seen: dict[Path, set[str]] = {}
    waiting = [module]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        ours, seen[file] = imported(file)
        waiting += ours
    return seen


@pytest.mark.parametrize("module", sorted(MODULES.glob("*.py")), ids=lambda path: path.stem)
def test_a_bare_box_can_import_it(module: Path) -> None:
    packages = packages_of(module)
    assert bool(packages) == (module.stem in IN_OUR_ENVIRONMENT), packages


def test_the_watch_over_a_deadline_brings_little_along() -> None:
    """It is the first of ours on a rented box, over whatever line that has: the module itself, and seven files."""
    assert len(reached_from(MODULES / "deadline.py")) <= 1 + 7
