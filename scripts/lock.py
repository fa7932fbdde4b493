#!/usr/bin/env python3
"""Write all locks, with the hashes of each version's files: requirements*.txt and the locks of the roles.

A lock is made from the `.in` file beside it. Versions are kept while the `.in` file allows them; delete a lock to
resolve it from scratch. A line with hashes in an `.in` file is copied as it is: its wheels come from an index that may
not be reachable (torch for CPU).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomllib
from _clone import run
from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

from drafthouse.core.errors import one_problem
from drafthouse.core.exit_codes import DONE
from drafthouse.profiles.workspace import ROOT

_NEWEST = 14  # the newest minor version of Python 3 that wheels are kept for
_BOXES = ("manylinux", "linux")
_CONTROLLERS = (*_BOXES, "musllinux", "macosx")
#: A pin such as `name[extra]==1.2`: name and version.
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([A-Za-z0-9.!+_-]+)")
#: sha256 of files by name and version.
Hashes = Mapping[tuple[str, str], list[str]]


@dataclass(frozen=True)
class Lock:
    """A lock and its `.in` file."""

    source: str  # path of the `.in` file in the clone
    oldest: int  # minor version of the oldest Python 3 that it is for
    systems: tuple[str, ...] = _BOXES  # prefixes of wheel platforms
    resolved: bool = True  # False: the `.in` file lists all versions
    without: tuple[str, ...] = ()  # dependencies that our code never uses, left out

    @property
    def path(self) -> Path:
        """Path of the lock."""
        return (ROOT / self.source).with_suffix(".txt")


def locks() -> list[Lock]:
    """All locks of the clone."""
    folders = ("roles/engine/files/locks", "tests/real_engines/locks")
    parsers = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/fleet/locks").glob("*.in"))
    complete = sorted(path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).glob("*.in"))
    return [
        # The controller reads small files of the hub, which need no Xet.
        Lock("requirements.in", 11, _CONTROLLERS, without=("hf-xet",)),
        Lock("requirements-dev.in", 11, _CONTROLLERS),
        Lock("requirements-site.in", 11, _CONTROLLERS),
        Lock("roles/box_env/files/uv.in", 10, _CONTROLLERS, resolved=False),
        Lock("roles/box_env/files/requirements.in", 10),
        Lock("roles/program/files/vllm-router.in", 10),
        Lock("roles/gateway/files/caddy.in", 10),
        Lock("profiles/catalog/packages.in", 10, resolved=False),
        *(Lock(str(path), 11, resolved=False) for path in complete),
        *(Lock(str(path), 11) for path in parsers),
    ]


def written(lock: Lock) -> str:
    """Text of ``lock``. Raises DrafthouseError with uv's error output."""
    lines = (ROOT / lock.source).read_text("utf-8").splitlines()
    if lock.resolved:
        lines = _resolved(lock)
    pins = [line for line in lines if _PIN.match(line) and "--hash=" not in line]
    return "\n".join(_with_hashes(lines, _hashes(lock, pins))) + "\n"


def _resolved(lock: Lock) -> list[str]:
    """Lines with the lock's versions, without hashes; uv keeps versions of the present lock."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / lock.path.name
        if lock.path.exists():
            shutil.copy(lock.path, draft)
        source = Path(lock.source)
        left_out = [f"--no-emit-package={name}" for name in lock.without]
        _uv(lock, source.name, "--output-file", str(draft), *left_out, cwd=ROOT / source.parent)
        return draft.read_text("utf-8").splitlines()


def _hashes(lock: Lock, pins: Iterable[str]) -> Hashes:
    """Hashes of the files from which ``pins`` may be installed."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pins.txt"
        source.write_text("\n".join(pins), "utf-8")
        output = Path(folder) / "pylock.toml"
        _uv(lock, str(source), "--no-deps", "--format", "pylock.toml", "--output-file", str(output), cwd=ROOT)
        packages = tomllib.loads(output.read_text("utf-8"))["packages"]
    hashes: dict[tuple[str, str], list[str]] = {}
    for package in packages:
        wheels = package.get("wheels", [])
        files = [
            file for file in wheels if _fits(file, lock)
        ] or wheels  # no wheel fits if only another system needs it
        if "sdist" in package:
            files = [*files, package["sdist"]]
        known = hashes.setdefault((canonicalize_name(package["name"]), package["version"]), [])
        known += sorted({file["hashes"]["sha256"] for file in files})
    return hashes


def _fits(file: Mapping[str, str], lock: Lock) -> bool:
    """True if the wheel can be installed by a Python and on a system of ``lock``."""
    name = str(file.get("name") or file["url"].rsplit("/", 1)[-1])
    return any(_installs(tag, lock) for tag in parse_wheel_filename(name.replace("%2B", "+"))[3])


def _installs(tag: Tag, lock: Lock) -> bool:
    """True if a wheel's tag is for a Python and a system of ``lock``; free-threaded Pythons are left out."""
    python = re.fullmatch(r"(?:cp|py)3(\d*)", tag.interpreter)
    fits_processor = tag.platform.endswith(("x86_64", "aarch64", "arm64", "universal2"))
    fits_system = tag.platform == "any" or (tag.platform.startswith(lock.systems) and fits_processor)
    if python is None or not fits_system or tag.abi.endswith("t"):
        return False
    minor = int(python[1] or 0)
    return minor <= _NEWEST and (minor >= lock.oldest or tag.abi in ("abi3", "none"))


def _with_hashes(lines: Iterable[str], hashes: Hashes) -> Iterable[str]:
    """Lines with hashes added to pins that have none."""
    for line in lines:
        pin, *digests = re.split(r"\s+--hash=sha256:", line)
        match = _PIN.match(line)
        if match and not digests:
            digests = hashes[canonicalize_name(match[1]), match[2]]
        yield " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in digests)])


def _uv(lock: Lock, *words: str, cwd: Path) -> None:
    """Run `uv pip compile` for the lock's oldest Python. Raises DrafthouseError."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--universal", "--no-header"]
    command += ["--python-version", f"3.{lock.oldest}", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        found = done.stderr.strip() or f"status {done.returncode} without output"
        raise one_problem("program-failed", found, "access to a package index", "fix that, then run again", lock.source)


def main() -> int:
    """Write the locks, and print which of them changed."""
    for lock in locks():
        before = lock.path.read_text("utf-8") if lock.path.exists() else ""
        text = written(lock)
        if text != before:
            lock.path.write_text(text, "utf-8")
        print(f"{'as it was' if text == before else 'changed  '} {lock.path.relative_to(ROOT)}")
    return DONE


if __name__ == "__main__":
    run(main)
