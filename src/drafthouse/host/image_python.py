"""Use the engine that a container image already contains, if it is the pinned version, instead of installing it.

A rented container often runs the engine's official image. Using its packages saves a download (vLLM for CUDA: several
GB, minutes of paid time). The environment's folder then holds only small scripts that start the image's Python and
the engine's programs, so the other modules use the folder like an environment that Drafthouse installed.
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

_QUERY_S = 30  # for the query below, which starts a Python
_EXACT_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([A-Za-z0-9.!+_-]+)$")
_ENTRY_POINT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$")
# Folders of Python interpreters in images that are not on PATH: vastai/vllm has /venv/main.
KNOWN_FOLDERS = ("/venv/main/bin", "/opt/venv/bin", "/usr/local/bin", "/usr/bin")
# Prints version and programs (as {name: "module:function"}) of each distribution in argv that is installed.
# It reads metadata and imports no distribution.
_QUERY_SCRIPT = """
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
# A console script as pip writes it. Without the guard a spawned worker process would start the program again.
_CONSOLE_SCRIPT = """\
import sys
from {module} import {first}
if __name__ == "__main__":
    sys.argv[0] = "{name}"
    sys.exit({function}())
"""


@dataclass(frozen=True)
class ImageEngine:
    """An image's Python with the pinned engine."""

    python: str  # path of the interpreter
    versions: Mapping[str, str]  # by distribution
    programs: Mapping[str, str]  # entry point ("module:function") by name

    def as_words(self) -> str:
        """The engine's versions and its Python, as text for messages."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items()) + f" of {self.python}"


def wanted_versions(packages: Iterable[str]) -> dict[str, str] | None:
    """Version by package name; None if any package has no exact version, or if there are no packages."""
    versions = {}
    for package in packages:
        match = _EXACT_PIN.match(package)
        if not match:
            return None
        versions[match[1]] = match[2]
    return versions or None


def find_engine(packages: Sequence[str], folders: Sequence[str]) -> ImageEngine | None:
    """The first Python in ``folders`` or `KNOWN_FOLDERS` that has all packages in their pinned versions, or None."""
    wanted = wanted_versions(packages)
    if not wanted:
        return None
    # Links are not resolved: Python recognises a virtual environment by the folder of its link.
    for folder in dict.fromkeys([*folders, *KNOWN_FOLDERS]):
        for python in (f"{folder}/python3", f"{folder}/python"):
            if os.access(python, os.X_OK) and (engine := engine_of(python, wanted)):
                return engine
    return None


def engine_of(python: str, wanted: Mapping[str, str]) -> ImageEngine | None:
    """The engine that ``python`` has; None if a distribution of ``wanted`` is missing or has another version."""
    environment = dict(os.environ)
    # With either variable that Python would find the packages of another one.
    environment.pop("PYTHONPATH", None)
    environment.pop("PYTHONHOME", None)
    try:
        done = subprocess.run(
            [python, "-c", _QUERY_SCRIPT, *wanted],
            capture_output=True, text=True, timeout=_QUERY_S, check=True, env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        installed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    versions = {}
    programs = {}
    for name, version in wanted.items():
        if name not in installed or not _same_version(installed[name]["version"], version):
            return None
        versions[name] = installed[name]["version"]
        programs.update(installed[name]["programs"])
    return ImageEngine(python, versions, programs)


def _same_version(installed: str, wanted: str) -> bool:
    """True if the versions are equal, apart from the build for a CUDA version: ``0.32.0+cu129`` is ``0.32.0``."""
    return installed == wanted or installed.partition("+")[0] == wanted


def write_scripts(home: Path, engine: ImageEngine) -> None:
    """Write scripts into ``home``/bin that start the image's Python and the engine's programs.

    They are scripts because a Python that starts through a link in another folder does not find its own
    environment. A program whose name or entry point could not stand in a script is left out.
    """
    folder = home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        _write_script(folder / name, f'#!/bin/sh\nexec {shlex.quote(engine.python)} "$@"\n')
    for name, entry_point in engine.programs.items():
        module, _, function = entry_point.partition("[")[0].strip().partition(":")
        if "/" in name or not _ENTRY_POINT.match(f"{module}.{function}"):
            continue
        body = _CONSOLE_SCRIPT.format(module=module, first=function.partition(".")[0], function=function, name=name)
        script = folder / f".{name}.py"
        script.write_text(body, "utf-8")
        _write_script(folder / name, f'#!/bin/sh\nexec {shlex.quote(engine.python)} {shlex.quote(str(script))} "$@"\n')


def _write_script(file: Path, text: str) -> None:
    """Write an executable file."""
    file.write_text(text, "utf-8")
    file.chmod(0o755)
