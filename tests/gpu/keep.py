"""The evidence of a lane, written anew after every step: a box that is taken away leaves what was found until then."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from drafthouse.core.documents import Json
from drafthouse.core.errors import DrafthouseError
from drafthouse.report.evidence import CheckedEvidence, EvidenceFacts, read, write
from tests.gpu.level0 import masked

Found = TypeVar("Found")
#: What a step may fail with: a program's end, files of another form or none.
FAILS = (DrafthouseError, OSError, LookupError, ValueError, subprocess.SubprocessError)


def noted(name: str, error: Exception) -> list[str]:
    """Print why a step failed; return what the evidence says of it: no paths, and nothing that a compiler wrote."""
    print(f"{name}: {error}", flush=True)
    if isinstance(error, DrafthouseError):
        return [f"{name}: {problem.code}, needed: {problem.needed}" for problem in error.problems]
    return [f"{name}: {type(error).__name__}"]


class Keeper:
    """A folder of evidence that grows. ``wrong`` are the checks that failed, and the steps that did not end."""

    def __init__(self, folder: Path, facts: EvidenceFacts) -> None:
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
        except FAILS as error:
            self.wrong += noted(name, error)
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

    def proven(self) -> CheckedEvidence:
        """The evidence as it is read back. Raises DrafthouseError where it is refused."""
        return read(self.folder)
