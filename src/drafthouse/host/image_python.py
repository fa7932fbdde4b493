"""The engine that an image brings along: used where it is the pinned version, instead of another one beside it.

A rented container is often made from the engine's own image. Its Python and packages then need not be fetched again
(vLLM for CUDA: several GB, minutes of a paid hour). The engine's folder gets two kinds of small programs, which call
the image's own; everything else of ours finds the engine as it finds one that we installed.
Standard library only, Python 3.10.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ASK_S = 30
_EXACT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([A-Za-z0-9.!+_-]+)$")
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$")
# Where images are known to have one beside what their PATH names: vastai/vllm has /venv/main.
KNOWN_FOLDERS = ("/venv/main/bin", "/opt/venv/bin", "/usr/local/bin", "/usr/bin")
# Prints what there is of each distribution that is named: its version, and its programs as {name: module:function}.
# Imports none of them.
_ASK = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    programs = {point.name: point.value for point in distribution.entry_points if point.group == "console_scripts"}
    found[name] = {"version": distribution.version, "programs": programs}
print(json.dumps(found))
"""
# A program of a distribution, as pip writes it. Without the guard a worker that is spawned would start it again.
_PROGRAM = """\
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.argv[0] = "{name}"
    sys.exit({function}())
"""


@dataclass(frozen=True)
class ImageEngine:
    """A Python of the image that has the engine in the pinned version; ``versions`` as it names them itself."""

    python: str
    versions: Mapping[str, str]
    programs: Mapping[str, str]

    def as_words(self) -> str:
        """The engine's versions and its Python, for people."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items()) + f" of {self.python}"


def wanted_versions(packages: Iterable[str]) -> dict[str, str] | None:
    """Name and version of each package, or None where one of them is not an exact version."""
    versions = {}
    for package in packages:
        match = _EXACT.match(package)
        if not match:
            return None
        versions[match[1]] = match[2]
    return versions or None


def find_engine(packages: Sequence[str], folders: Sequence[str]) -> ImageEngine | None:
    """The first Python of ``folders`` (then of the known ones) that has exactly these versions."""
    wanted = wanted_versions(packages)
    if not wanted:
        return None
    # Not resolved: a virtual environment's python is a link, and the link's place is what makes it one.
    for folder in dict.fromkeys([*folders, *KNOWN_FOLDERS]):
        for python in (f"{folder}/python3", f"{folder}/python"):
            if os.access(python, os.X_OK) and (engine := engine_of(python, wanted)):
                return engine
    return None


def engine_of(python: str, wanted: Mapping[str, str]) -> ImageEngine | None:
    """The engine that ``python`` has; None where a distribution is missing or has another version."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    environment.pop("PYTHONHOME", None)
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *wanted],
            capture_output=True, text=True, timeout=_ASK_S, check=True, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    versions, programs = {}, {}
    for name, version in wanted.items():
        if name not in found or not _same(found[name]["version"], version):
            return None
        versions[name] = found[name]["version"]
        programs.update(found[name]["programs"])
    return ImageEngine(python, versions, programs)


def _same(found: str, wanted: str) -> bool:
    """Tell whether it is the version, whatever CUDA it was built for: ``0.32.0+cu129`` is ``0.32.0``."""
    return found == wanted or found.partition("+")[0] == wanted


def place(home: Path, engine: ImageEngine) -> None:
    """Make ``home``/bin with the image's Python and the engine's programs.

    Programs that call them, not links: a Python that is called through a link elsewhere does not find its own
    environment.
    """
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        _put(folder / name, f'#!/bin/sh\nexec {shlex.quote(engine.python)} "$@"\n')
    for name, value in engine.programs.items():
        module, _, function = value.partition("[")[0].strip().partition(":")
        if "/" in name or not _NAME.match(f"{module}.{function}"):
            continue
        body = _PROGRAM.format(module=module, first=function.partition(".")[0], function=function, name=name)
        script = folder / f".{name}.py"
        script.write_text(body, "utf-8")
        _put(folder / name, f'#!/bin/sh\nexec {shlex.quote(engine.python)} {shlex.quote(str(script))} "$@"\n')


def _put(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    file.chmod(0o755)
