"""The evidence of a lane, written anew after every step: a box that is taken away leaves what was found until then."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from drafthouse.core.documents import Json
from drafthouse.core.errors import DrafthouseError
from drafthouse.report.evidence import Evidence, Proven, read, write
from tests.gpu.level0 import masked

Found = TypeVar("Found")


class Keeper:
    """A folder of evidence that grows. ``wrong`` are the checks that failed, and the steps that did not end."""

    def __init__(self, folder: Path, facts: Evidence) -> None:
        self.folder, self.facts = folder, facts
        self.files: dict[str, Json] = {}
        self.wrong: list[str] = []
        #: Those of level 1, which its own file has.
        self.more_wrong: list[str] = []
        # That of an earlier run on this day: a file that this one does not write would be refused.
        shutil.rmtree(folder, ignore_errors=True)

    def step(self, name: str, work: Callable[[], Found]) -> Found | None:
        """Do a step; where it fails that is noted, and None is returned: the next ones may do."""
        try:
            return work()
        except DrafthouseError as error:
            print(error, flush=True)
            # What a compiler wrote has paths of the box; that stays here.
            self.wrong += [f"{name}: {problem.code}, needed: {problem.needed}" for problem in error.problems]
            return None

    def keep(self, files: Mapping[str, Json]) -> None:
        """Write what is there by now, with ``files``. What would be refused is said, and `proven` raises it."""
        self.files |= files
        said: Json = [masked(line) for line in self.wrong]
        level0 = self.files.get("level0.json")
        self.files["level0.json"] = {**(level0 if isinstance(level0, dict) else {}), "wrong": said}
        try:
            write(self.folder, self.facts, self.files)
        except DrafthouseError as error:
            print(error, flush=True)

    def proven(self) -> Proven:
        """Return the evidence as it is read back. Raises DrafthouseError where it is refused."""
        return read(self.folder)
