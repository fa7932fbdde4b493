"""Make a run of Ansible faster, by an import of this file in its process, whose forked workers inherit the effect.

- Ansible's importer of collections compiles every file below `module_utils` in each run. Python's own importer keeps
  compiled files (`__pycache__`), and notices a changed source by its time and size.
- Python collects garbage after every 700 new objects. Ansible holds half a million for the whole run, and parses all
  sources of a module to build it: half of that time went into garbage collection, in every worker again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

_LIBRARY = f"{(__package__ or '').removesuffix('.plugin_utils')}.module_utils."
#: New objects between two collections; if all were garbage in cycles, they would take some tens of MB.
_OBJECTS = 200_000


class _StandardImport(MetaPathFinder):
    """Finds modules of our library, with Python's standard finder; leaves all others to the next finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_LIBRARY):
            return None
        for folder in path or ():
            if spec := _finder(folder).find_spec(fullname):
                return spec
        return None


@cache
def _finder(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


# Directly before Ansible's finder; finders before that one keep their place.
_ansible = (index for index, finder in enumerate(sys.meta_path) if type(finder).__module__.startswith("ansible."))
sys.meta_path.insert(next(_ansible, len(sys.meta_path)), _StandardImport())
gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
