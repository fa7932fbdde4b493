"""What makes a run of Ansible cheaper, set in its own process and so in the workers that it forks. Import it once.

- Ansible's importer of collections compiles every file below `module_utils` in each run. Python's own keeps what it has
  compiled (`__pycache__`), and sees by time and size when a source is another one.
- Python looks for garbage after every 700 new objects. Ansible holds half a million for the whole run, and parses all
  sources of a module to build it: half of that time went into looking for garbage, in every worker anew.
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
#: New objects between two looks for garbage: some tens of MB at most, were all of them garbage in circles.
_OBJECTS = 200_000


class _StandardImport(MetaPathFinder):
    """Finds what is below the library's own package; all else is left to the next finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_LIBRARY):
            return None
        specs = (_finder(folder).find_spec(fullname) for folder in path or ())
        return next((spec for spec in specs if spec), None)


@cache
def _finder(folder: str) -> FileFinder:
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


# Right before Ansible's own: what stands before that one has its reasons.
_own = (at for at, one in enumerate(sys.meta_path) if type(one).__module__.startswith("ansible."))
sys.meta_path.insert(next(_own, len(sys.meta_path)), _StandardImport())
gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
