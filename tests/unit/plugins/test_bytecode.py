"""The library under Ansible's name comes with its bytecode, and everything else as Ansible finds it."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader

import pytest
from ansible_collections.drafthouse.core.plugins.plugin_utils import bytecode

from drafthouse.profiles.workspace import ROOT

OURS = "ansible_collections.drafthouse.core.plugins"


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> bytecode._Library:
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, bytecode._Library)])
    bytecode.keep()
    bytecode.keep()
    (found,) = (one for one in sys.meta_path if isinstance(one, bytecode._Library))
    assert sys.meta_path[0] is found
    return found


@pytest.mark.parametrize("name", ["core", "core.table", "profiles.catalog"])
def test_the_library_is_read_by_python_s_own_loader(finder: bytecode._Library, name: str) -> None:
    folder = ROOT / "src" / "drafthouse" / "/".join(name.split(".")[:-1])
    spec = finder.find_spec(f"{OURS}.module_utils.{name}", [str(folder)])
    assert spec and isinstance(spec.loader, SourceFileLoader)
    assert spec.cached and "__pycache__" in spec.cached
    assert (spec.submodule_search_locations is not None) == (name == "core")


@pytest.mark.parametrize(
    "name",
    [
        f"{OURS}.module_utils",
        f"{OURS}.action.resolve",
        "ansible_collections.ansible.posix.plugins.modules.mount",
        "json",
    ],
)
def test_all_else_is_left_to_others(finder: bytecode._Library, name: str) -> None:
    assert finder.find_spec(name, [str(ROOT / "src")]) is None


def test_what_is_not_there_is_not_found(finder: bytecode._Library) -> None:
    assert finder.find_spec(f"{OURS}.module_utils.nothing", [str(ROOT / "src" / "drafthouse")]) is None
    assert finder.find_spec(f"{OURS}.module_utils.core", None) is None
