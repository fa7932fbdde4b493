"""The recipe of a Python environment, and the commands that install it. Standard library only, Python 3.10.

An entry is a requirement as pip reads it, on one line: name, exact version, and perhaps a marker and hashes.
"""

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

REQUIREMENTS = ".drafthouse-requirements-"  # prefix of the files of requirements with hashes; an index follows
# Raise this when the same recipe installs another environment than before: then all environments are made again.
RECIPE_VERSION = 1
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
#: An entry with an exact version: `pkg[extra]==1.2.3+cpu ; python_version < '3.12' --hash=sha256:...`
PINNED = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.!+_-]+(\s*;(?:(?!\s--).)+)?(\s+--hash=sha256:[0-9a-f]{64})*$"
)
# The fields of `EnvRecipe` that have a default; the module's arguments have the same names.
_OPTIONAL = (
    "packages", "no_deps_packages", "torch_backend", "metadata_stub", "extra_index_url", "prerelease", "unpinned",
    "source_packages", "build_packages", "hashes",
)  # fmt: skip


@dataclass(frozen=True)
class EnvRecipe:
    """The contents of an environment. Equal recipes have the same hash, and so the same stamp (`env_stamp`).

    If all pins of an install step have hashes, the installer must check them.
    """

    path: str  # of the environment
    packages: Sequence[str] = ()
    no_deps_packages: Sequence[str] = ()
    """Installed without their dependencies: a complete lock, or a package that requires too much."""
    python: str = sys.executable  # path of the base interpreter
    torch_backend: str | None = None  # `cpu`, or `auto`: uv detects the driver; None: the index decides
    metadata_stub: Mapping[str, str] | None = None
    """Name and version of a distribution whose code is installed under another name."""
    extra_index_url: str | None = None  # searched before the usual index
    prerelease: bool = False  # allow pre-releases
    unpinned: bool = False  # allow names without a version, for nightly builds
    source_packages: Sequence[str] = ()
    """Built last, without isolation: an isolated build would fetch its requirements anew, a second torch among them."""
    build_packages: Sequence[str] = ()  # requirements of that build
    hashes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """SHA-256 digests by pin, for pins that name none (`requirement_lines.hashes_by_pin`)."""

    @property
    def is_plain(self) -> bool:
        """True if the recipe has ``packages`` only, so that a container image may contain all of it already."""
        extras = (self.no_deps_packages, self.source_packages, self.build_packages, self.metadata_stub, self.unpinned)
        return bool(self.packages) and not any(extras)

    @classmethod
    def of(cls, given: Mapping[str, Any], python: str = sys.executable) -> EnvRecipe:
        """The recipe in the arguments of the Ansible module `drafthouse.core.python_env`; None counts as unset."""
        optional = {name: given[name] for name in _OPTIONAL if given.get(name) is not None}
        return cls(path=given["path"], python=given.get("python") or python, **optional)

    def sha256(self, python_version: str) -> str:
        """The hash of the recipe, 64 hex digits, for an interpreter of this version (``3.11``)."""
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
        optional: dict[str, Json] = {
            "extra_index_url": self.extra_index_url,
            "prerelease": self.prerelease,
            "unpinned": self.unpinned,
            "source_packages": list(self.source_packages),
            "build_packages": list(self.build_packages),
            "hashes": {pin: list(digests) for pin, digests in self.hashes.items()},
        }
        # Only those that are set, so that a new option leaves the hashes of recipes without it as they were.
        content.update({name: value for name, value in optional.items() if value})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def env_commands(
    recipe: EnvRecipe, uv: str | None, find_links: str | None, no_index: bool = False
) -> list[tuple[str, list[str]]]:
    """The install steps in order, each a name and an argv. Without ``uv`` (its path) they use venv and pip.

    ``find_links`` is a folder or a web page with wheels, None for none; with ``no_index`` it is the only source.
    """
    interpreter = f"{recipe.path}/bin/python"
    backend: list[str] = []
    if recipe.torch_backend and not no_index and not _has_torch(find_links):
        backend = _torch_options(recipe.path, recipe.torch_backend, uv)
    if uv:
        create = [uv, "venv", "--python", recipe.python, recipe.path]
        prerelease = ["--prerelease", "allow"]
        # pip compiles by default, uv only on request. It saves minutes at a first start (vLLM without it: 111 s).
        install = [uv, "pip", "install", "--compile-bytecode", "--python", interpreter]
    else:
        create = [recipe.python, "-m", "venv", recipe.path]
        prerelease = ["--pre"]
        # Each download is installed once, so a cache in the user's home would only take disk space.
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
    """The installer options that select the build of torch.

    uv knows all of them. pip can take the CPU's build from that build's index; for any other DrafthouseError is raised.
    """
    if uv:
        return ["--torch-backend", torch_backend]
    if torch_backend == "cpu":
        return ["--extra-index-url", TORCH_CPU_INDEX]
    found = f"torch_backend {torch_backend} without uv"
    needed = "uv, which selects the torch build for the driver"
    do = "make the box's environment first: it installs uv"
    raise one_problem("program-missing", found, needed, do, path)


@dataclass(frozen=True)
class _Step:
    """One call of the installer."""

    name: str  # for messages
    entries: list[str]  # with any known hashes
    options: Sequence[str]
    file: str  # where the entries are written if all have hashes

    @property
    def has_hashes(self) -> bool:
        """True if every entry has a hash."""
        return all_have_hashes(self.entries)

    @property
    def plain(self) -> list[str]:
        """The entries without hashes, for a command line: installers accept hashes in a file only."""
        return [without_hashes(entry) for entry in self.entries]


def _steps(recipe: EnvRecipe) -> list[_Step]:
    """The calls of the installer in order; a group of packages that is empty has none."""
    # The known hashes are those of the usual index. Another index serves other files under the same versions.
    package_hashes = {} if recipe.extra_index_url else recipe.hashes
    groups: tuple[tuple[str, Sequence[str], Sequence[str], Mapping[str, Sequence[str]]], ...] = (
        ("packages", recipe.packages, (), package_hashes),
        ("packages as they are", recipe.no_deps_packages, ("--no-deps",), recipe.hashes),
        ("what the build needs", recipe.build_packages, ("--no-deps",), recipe.hashes),
        ("building", recipe.source_packages, ("--no-deps", "--no-build-isolation"), recipe.hashes),
    )
    steps = []
    for index, (name, entries, options, hashes) in enumerate(groups):
        if entries:
            file = f"{recipe.path}/{REQUIREMENTS}{index}.txt"
            steps.append(_Step(name, with_hashes(entries, hashes), options, file))
    return steps


def requirement_files(recipe: EnvRecipe) -> dict[str, str]:
    """Text by path of the requirement files that `env_commands` refers to; write them before the installs."""
    return {step.file: "\n".join(step.entries) + "\n" for step in _steps(recipe) if step.has_hashes}


def unhashed(recipe: EnvRecipe) -> list[str]:
    """The requirements that are installed without hash checks, because their step has an entry without hash."""
    versions = []
    for step in _steps(recipe):
        if not step.has_hashes:
            versions += step.plain
    return versions


def _has_torch(find_links: str | None) -> bool:
    """True if ``find_links`` has a torch wheel. A web page is not read: it is assumed to have one."""
    if not find_links:
        return False
    folder = Path(find_links)
    if folder.is_dir():
        return any(folder.glob("torch-*.whl"))
    return "://" in find_links


def _unpinned_problems(where: str, entries: Iterable[str]) -> list[Problem]:
    """A problem for each entry without an exact version."""
    problems = []
    for entry in entries:
        if not PINNED.match(entry):
            found = repr(entry)
            needed = "an exact version: name==1.2.3"
            do = "pin it; an environment that can change by itself proves nothing"
            problems.append(Problem("package-not-pinned", found, needed, do, where))
    return problems


def require_pins(recipe: EnvRecipe) -> None:
    """Raise DrafthouseError for every entry without an exact version, and for a recipe without packages."""
    problems = []
    if not recipe.unpinned:
        for option in ("packages", "no_deps_packages", "source_packages", "build_packages"):
            problems += _unpinned_problems(f"{recipe.path}: {option}", getattr(recipe, option))
    if not recipe.packages and not recipe.no_deps_packages:
        found = "no packages"
        needed = "the list of packages for the environment"
        do = "add it to the engine's `install` in profiles/catalog/engines"
        problems.append(Problem("empty-value", found, needed, do, recipe.path))
    if problems:
        raise DrafthouseError(problems)
