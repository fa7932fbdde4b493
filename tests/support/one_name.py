"""One name for the library in a process of tests: plugins reach it as `module_utils`, everything else as `drafthouse`.

Imported under both it would be there twice, and an error raised by one half is not the error the other half knows.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

DOOR = "ansible_collections.drafthouse.core.plugins.module_utils"
LIBRARY = "drafthouse"


class _Same(Loader):
    """Gives the library's own module for one that is asked for through the collection's door."""

    def __init__(self) -> None:
        self._kept: dict[str, ModuleSpec | None] = {}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(LIBRARY + spec.name.removeprefix(DOOR))
        self._kept[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has given it the door's specification meanwhile: its own comes back.
        module.__spec__ = self._kept[DOOR + module.__name__.removeprefix(LIBRARY)]


class _Door(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the door and what lies behind it, and for nothing else."""
        if fullname != DOOR and not fullname.startswith(f"{DOOR}."):
            return None
        return ModuleSpec(fullname, _Same(), is_package=True)


def install() -> None:
    """Have the collection's plugins import the library under its own name, from now on."""
    if not any(isinstance(finder, _Door) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Door())
