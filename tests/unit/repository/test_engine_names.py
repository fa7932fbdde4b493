"""An engine is named in its own file, its entry and its template, and nowhere else (docs/add-an-engine.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drafthouse.engines.registry import DIALECTS, ENGINES
from drafthouse.profiles.catalog import load_catalog
from drafthouse.profiles.workspace import ROOT

# A client that was published under its engine's name, and a chart that starts this one engine.
CLIENTS = {"src/drafthouse/export/production_stack.py": {"vllm"}}
# What modules document, and show in examples.
DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
WORDS = {word for one in ENGINES for word in (one.name, *one.programs, *one.python_modules)}
SERIES = re.compile("|".join(rf"(?<![\w:]){re.escape(prefix)}" for one in DIALECTS.values() for prefix in one.prefixes))


def sources() -> list[Path]:
    folders = ("src/drafthouse", "scripts", "collections/ansible_collections/drafthouse/core/plugins")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return [path for path in files if "module_utils" not in path.parts and "engines" not in path.parts]


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings that a program works with: no docstring, no module's documentation."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            passed.add(id(node.value))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in DOCUMENTS:
            passed.add(id(node.value))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.lineno, node.value


def named(text: str) -> list[str]:
    """Where a source names an engine."""
    return [
        f"line {line}: {value!r}" for line, value in literals(ast.parse(text)) if value in WORDS or SERIES.search(value)
    ]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_names_an_engine(path: Path) -> None:
    known = CLIENTS.get(str(path.relative_to(ROOT)), set())
    found = [one for one in named(path.read_text("utf-8")) if not any(f"'{word}'" in one for word in known)]
    assert found == [], (
        "ask the engine's class or entry; a new engine that is called by an ordinary word needs another name"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "templates/monitoring").iterdir()), ids=lambda path: path.name)
def test_no_template_of_the_monitoring_names_what_an_engine_counts(path: Path) -> None:
    assert not SERIES.search(path.read_text("utf-8"))


@pytest.mark.parametrize("text", ['if engine == "vllm": pass', 'X = {"trtllm-serve": 1}', 'f"llamacpp:{name}_total"'])
def test_a_name_is_found(text: str) -> None:
    assert named(text)
    assert not named(f"def f() -> None:\n    '''It is {text!r}.'''\n".replace('"""', ""))


def test_each_file_of_the_folder_is_in_the_registry() -> None:
    files = {path.stem for path in (ROOT / "src/drafthouse/engines").glob("*.py")}
    others = {"__init__", "base", "entry_types", "install_types", "pasted", "read_flags", "registry", "vllm_ray"}
    own = {type(one).__module__.rpartition(".")[2] for one in ENGINES}
    assert own == {name for name in files - others if not name.startswith("trtllm_")}
    assert len({one.name for one in ENGINES}) == len(ENGINES)


def test_the_catalogue_and_the_registry_know_the_same() -> None:
    assert set(load_catalog(ROOT).engines) == {one.name for one in ENGINES}
