"""What an environment consists of, and the commands that make it. Standard library only, Python 3.10."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import DrafthouseError, Problem, one_problem
from ..core.requirement_lines import all_have_hashes, with_hashes, without_hashes

if TYPE_CHECKING:
    from drafthouse.core.documents import Json

REQUIREMENTS = ".drafthouse-requirements-"  # and a number: what one step installs, with hashes
# Raise this when the same recipe would give another environment: all are then made again.
RECIPE_VERSION = 1
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# A name, extras, one exact version, an optional marker, and hashes: `pkg[extra]==1.2.3+cpu ; python_version < '3.12'`
PINNED = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.!+_-]+(\s*;(?:(?!\s--).)+)?(\s+--hash=sha256:[0-9a-f]{64})*$"
)
_OPTIONAL = (
    "packages", "no_deps_packages", "torch_backend", "metadata_stub", "extra_index_url", "prerelease", "unpinned",
    "source_packages", "build_packages", "hashes",
)  # fmt: skip


@dataclass(frozen=True)
class EnvRecipe:
    """What an environment consists of. Equal recipes give the same stamp.

    ``python``: the interpreter to build on, a path. ``no_deps_packages`` are installed as they are, without
    what they ask for: a complete lock, or a package whose metadata asks for too much. ``torch_backend``:
    ``cpu`` or ``auto`` (uv finds the driver). ``metadata_stub``: name and version of a distribution that
    is there in all but its metadata. ``extra_index_url``: asked before the usual index. ``unpinned`` allows
    names without a version, for nightly builds; with ``prerelease`` also versions that are none yet.
    ``source_packages`` are built here, last, with ``build_packages`` and all the rest at hand: an isolated build would
    fetch what it names as its requirements, a second torch among them. ``hashes``: of versions that are named without
    them (`requirement_lines.hashes_by_pin`). A step whose versions all have hashes takes nothing without one.
    """

    path: str
    packages: Sequence[str] = ()
    no_deps_packages: Sequence[str] = ()
    python: str = sys.executable
    torch_backend: str | None = None
    metadata_stub: Mapping[str, str] | None = None
    extra_index_url: str | None = None
    prerelease: bool = False
    unpinned: bool = False
    source_packages: Sequence[str] = ()
    build_packages: Sequence[str] = ()
    hashes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Tell whether it consists of packages alone: nothing that would have to be added to an image's own."""
        more = (self.no_deps_packages, self.source_packages, self.build_packages, self.metadata_stub, self.unpinned)
        return bool(self.packages) and not any(more)

    @classmethod
    def of(cls, given: Mapping[str, Any], python: str = sys.executable) -> EnvRecipe:
        """The recipe that the arguments of `drafthouse.core.python_env` ask for; what is left out is None."""
        optional = {name: given[name] for name in _OPTIONAL if given.get(name) is not None}
        return cls(path=given["path"], python=given.get("python") or python, **optional)

    def sha256(self, python_version: str) -> str:
        """The hex hash of the recipe for an interpreter of this version (``3.11``)."""
        content: dict[str, Json] = {
            "version": RECIPE_VERSION,
            "packages": list(self.packages),
            "no_deps_packages": list(self.no_deps_packages),
            "python": python_version,
            "torch_backend": self.torch_backend,
            "metadata_stub": None,
        }
        if self.metadata_stub:
            content["metadata_stub"] = dict(self.metadata_stub)
        where_set: dict[str, Json] = {
            "extra_index_url": self.extra_index_url,
            "prerelease": self.prerelease,
            "unpinned": self.unpinned,
            "source_packages": list(self.source_packages),
            "build_packages": list(self.build_packages),
            "hashes": {pin: list(digests) for pin, digests in self.hashes.items()},
        }
        content.update({name: value for name, value in where_set.items() if value})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def env_commands(
    recipe: EnvRecipe, uv: str | None, find_links: str | None, no_index: bool = False
) -> list[tuple[str, list[str]]]:
    """The steps (name, argv) that make the environment, in order."""
    interpreter = f"{recipe.path}/bin/python"
    backend: list[str] = []
    if recipe.torch_backend and not no_index and not _has_torch(find_links):
        backend = _torch_options(recipe.path, recipe.torch_backend, uv)
    if uv:
        create = [uv, "venv", "--python", recipe.python, recipe.path]
        prerelease = ["--prerelease", "allow"]
        # As pip does by itself: the first start of a big engine is minutes faster (vLLM: 111 s without).
        install = [uv, "pip", "install", "--compile-bytecode", "--python", interpreter]
    else:
        create = [recipe.python, "-m", "venv", recipe.path]
        prerelease = ["--pre"]
        # What it fetches is installed once: a cache in the user's home would only stay behind.
        install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
    if recipe.extra_index_url and not no_index:
        install += ["--extra-index-url", recipe.extra_index_url]
    if recipe.prerelease:
        install += prerelease
    links = []
    if no_index:
        links.append("--no-index")
    if find_links:
        links += ["--find-links", find_links]
    steps = [("environment", create)]
    for step in _steps(recipe):
        command = [*install, *step.options]
        if step.name.startswith("packages"):
            command += backend
        command += links
        if step.has_hashes:
            command += ["--require-hashes", "-r", step.file]
        else:
            command += step.plain
        steps.append((step.name, command))
    return steps


def _torch_options(path: str, torch_backend: str, uv: str | None) -> list[str]:
    """The installer's options that select the build of torch. Raises DrafthouseError where pip has none."""
    if uv:
        return ["--torch-backend", torch_backend]
    if torch_backend == "cpu":
        return ["--extra-index-url", TORCH_CPU_INDEX]
    raise one_problem(
        code="program-missing",
        where=path,
        found=f"torch_backend {torch_backend} without uv",
        needed="uv, which selects the torch build for the driver",
        do="make the box's environment first: it installs uv",
    )


@dataclass(frozen=True)
class _Step:
    """What one call of the installer installs: ``entries`` with the hashes that are known, and the file they go to."""

    name: str
    entries: list[str]
    options: Sequence[str]
    file: str

    @property
    def has_hashes(self) -> bool:
        """Whether the hash of each entry is known."""
        return all_have_hashes(self.entries)

    @property
    def plain(self) -> list[str]:
        """The entries as a command line takes them: a hash may stand in a file only."""
        return [without_hashes(entry) for entry in self.entries]


def _steps(recipe: EnvRecipe) -> list[_Step]:
    # What another index serves under a version is another file than the usual index's, whose hashes are known.
    package_hashes = {} if recipe.extra_index_url else recipe.hashes
    parts: tuple[tuple[str, Sequence[str], Sequence[str], Mapping[str, Sequence[str]]], ...] = (
        ("packages", recipe.packages, (), package_hashes),
        ("packages as they are", recipe.no_deps_packages, ("--no-deps",), recipe.hashes),
        ("what the build needs", recipe.build_packages, ("--no-deps",), recipe.hashes),
        ("building", recipe.source_packages, ("--no-deps", "--no-build-isolation"), recipe.hashes),
    )
    steps = []
    for number, (name, entries, options, hashes) in enumerate(parts):
        if entries:
            file = f"{recipe.path}/{REQUIREMENTS}{number}.txt"
            steps.append(_Step(name, with_hashes(entries, hashes), options, file))
    return steps


def requirement_files(recipe: EnvRecipe) -> dict[str, str]:
    """Path and text of the files that the commands of ``recipe`` read: hashes go by no command line."""
    return {step.file: "\n".join(step.entries) + "\n" for step in _steps(recipe) if step.has_hashes}


def unhashed(recipe: EnvRecipe) -> list[str]:
    """The versions that are installed without a look at their hashes: no lock knows all that they bring."""
    versions = []
    for step in _steps(recipe):
        if not step.has_hashes:
            versions += step.plain
    return versions


def _has_torch(find_links: str | None) -> bool:
    """Tell whether torch itself comes from find_links. A page on the net cannot be looked into: believed."""
    if not find_links:
        return False
    folder = Path(find_links)
    if folder.is_dir():
        return any(folder.glob("torch-*.whl"))
    return "://" in find_links


def _unpinned(where: str, entries: Iterable[str]) -> list[Problem]:
    problems = []
    for entry in entries:
        if not PINNED.match(entry):
            problems.append(
                Problem(
                    code="package-not-pinned",
                    where=where,
                    found=repr(entry),
                    needed="an exact version: name==1.2.3",
                    do="pin it; an environment that can change by itself proves nothing",
                )
            )
    return problems


def require_pins(recipe: EnvRecipe) -> None:
    """Raise DrafthouseError for all the entries that are not one exact version."""
    problems = []
    if not recipe.unpinned:
        for option in ("packages", "no_deps_packages", "source_packages", "build_packages"):
            problems += _unpinned(f"{recipe.path}: {option}", getattr(recipe, option))
    if not recipe.packages and not recipe.no_deps_packages:
        problems.append(
            Problem(
                code="empty-value",
                where=recipe.path,
                found="no packages",
                needed="the list of packages for the environment",
                do="add it to the engine's `install` in profiles/catalog/engines",
            )
        )
    if problems:
        raise DrafthouseError(problems)
