"""Let Python keep the bytecode of the library, as for any other module.

Ansible's loader of collections compiles each file at every start, and again in each task's process that needs one more:
about a second of a run, and of each host. Python's own loader reads `__pycache__`, which the command shares.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

# Of the packages that Ansible finds, those below this one are plain Python.
_LIBRARY = f"{__name__.rpartition('.')[0].rpartition('.')[0]}.module_utils."


class _Library(MetaPathFinder):
    """Finds what lies below the library's package, whose folder Ansible has found; everything else is Ansible's."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of the library is."""
        if not fullname.startswith(_LIBRARY):
            return None
        for folder in path or ():
            if spec := FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname):
                return spec
        return None


def keep() -> None:
    """Look for the library's modules with Python's own loader first; to be called before any of them is imported."""
    if not any(isinstance(one, _Library) for one in sys.meta_path):
        sys.meta_path.insert(0, _Library())
