"""Read `profiles/` and `profiles/catalog/` into a `Catalog`, and check the shape of each file.

The resolver, which reads no files itself, checks whether a profile's parts fit together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, did_you_mean, one_problem
from ..core.forms import NAME, PROFILE_NAME
from ..core.parsed_files import parsed_once
from ..core.requirement_lines import hashes_by_pin, read_lock
from ..core.schema import Findings
from .catalog_files import read_document, read_table, shape_problems
from .flag_lists import FLAG_LISTS
from .flag_lists import FOLDER as FLAG_FOLDER
from .heads import builtin_kinds
from .known_issue_schema import KNOWN_ISSUES
from .known_issues import FILE as KNOWN_ISSUES_FILE
from .known_issues import check_issues
from .own_entries import (
    OwnFiles,
    add_own_engines,
    add_own_hardware,
    add_own_models,
    engine_problems,
    like_another,
    model_problems,
    own_files,
    shown_path,
)
from .own_folders import profile_folders
from .published import FILE as PUBLISHED_FILE
from .published import NOTHING, check_published
from .published_schema import PUBLISHED
from .schemas import ENGINE, GPUS, HARDWARE, MODELS, PROFILE

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.engines.read_flags import FlagList
    from drafthouse.profiles.catalog_types import Gpus, HardwareEntry, ModelEntry
    from drafthouse.profiles.known_issue_schema import KnownIssue
    from drafthouse.profiles.profile_types import Profile
    from drafthouse.profiles.published_schema import PublishedFile

HARDWARE_FILE = "profiles/catalog/hardware.yml"
MODELS_FILE = "profiles/catalog/models.yml"
#: A lock file: hashes of packages that the catalogue names without a lock file of their own.
HASHES_FILE = "profiles/catalog/packages.txt"
ENGINE_FOLDER = "profiles/catalog/engines"


@dataclass
class Catalog:
    """All data of the clone and the user's own: the catalogue (hardware, models, engines and more) and the profiles."""

    # Checked entries by name; those of the user included.
    hardware: dict[str, HardwareEntry]
    models: dict[str, ModelEntry]
    engines: dict[str, EngineEntry]
    # All profiles by name, also those with problems (`broken`), whose shape may be any.
    profiles: dict[str, Profile]
    # Hashes of packages that the catalogue names without a lock file: {name==version: [sha256:...]}.
    hashes: dict[str, list[str]] = field(default_factory=dict)
    # Known issues: bugs of the engines that users reported.
    issues: dict[str, KnownIssue] = field(default_factory=dict)
    # Measurements that others published.
    published: PublishedFile = field(default_factory=lambda: NOTHING)
    # Flag lists by engine, then by version.
    flags: dict[str, dict[str, FlagList]] = field(default_factory=dict)
    # The problems of a profile's file; they are an error only if that profile is used.
    broken: dict[str, list[Problem]] = field(default_factory=dict)
    # The same for the user's own entries; models by each of their names in lower case.
    broken_hardware: dict[str, list[Problem]] = field(default_factory=dict)
    broken_engines: dict[str, list[Problem]] = field(default_factory=dict)
    broken_models: dict[str, list[Problem]] = field(default_factory=dict)
    # The files of each profile, as error messages name them; of several the last is read.
    files: dict[str, list[str]] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """A profile's file as error messages name it; for one that does not exist, its path in the shipped folder."""
        return self.files.get(name, [f"profiles/{name}.yml"])[-1]

    def broken_entries(self) -> list[Problem]:
        """All problems of the user's own entries, each once."""
        distinct: dict[Problem, None] = {}
        for broken in (self.broken_hardware, self.broken_engines, self.broken_models):
            for problems in broken.values():
                distinct |= dict.fromkeys(problems)
        return list(distinct)


def _profile_paths(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of every profile by its name, each list in the order of ``folders``."""
    paths: dict[str, list[Path]] = {}
    for folder in folders:
        for path in folder.glob("*.yml"):
            paths.setdefault(path.stem, []).append(path)
    return dict(sorted(paths.items()))


def load_catalog(root: Path, named: Sequence[str] = ()) -> Catalog:
    """Read and check the catalogue and the profiles of the clone at ``root``, and the user's own.

    ``named``: folders of the user besides those that the environment names (`profile_folders`). Raises DrafthouseError
    with every problem of the shipped catalogue. Problems of profiles and of the user's entries are kept in the result,
    so that they stop only what uses them.
    """
    _require_clone(root)
    folders = profile_folders(root, named)
    profiles = _profile_paths(folders)
    own = own_files(folders)
    engines = sorted((root / ENGINE_FOLDER).glob("*.yml"))
    tables = (HARDWARE_FILE, MODELS_FILE, HASHES_FILE, KNOWN_ISSUES_FILE, PUBLISHED_FILE)
    flags = sorted((root / FLAG_FOLDER).glob("*.yml"))
    files = [*map(root.joinpath, tables), *engines, *flags, *own.all()]
    for paths in profiles.values():
        files += paths
    return Catalog(
        **parsed_once(("catalog", root, tuple(files)), files, lambda: vars(_read_catalog(root, profiles, own)))
    )


def _read_catalog(root: Path, paths: Mapping[str, Sequence[Path]], own: OwnFiles) -> Catalog:
    """As `load_catalog`, but always read from disk. ``paths``: each profile's files; ``own``: the user's entries."""
    hardware, problems = read_table(root, HARDWARE_FILE, HARDWARE)
    models, new_problems = read_table(root, MODELS_FILE, MODELS, versions=True)
    problems += new_problems
    engines, new_problems = _engines(root)
    problems += new_problems
    hashes, new_problems = _hashes(root)
    problems += new_problems
    issues, new_problems = read_table(root, KNOWN_ISSUES_FILE, KNOWN_ISSUES)
    problems += new_problems
    published, new_problems = read_table(root, PUBLISHED_FILE, PUBLISHED)
    problems += new_problems
    lists, new_problems = _flag_lists(root)
    problems += new_problems
    if not problems:
        for name, engine in engines.items():
            problems += engine_problems(engine, f"{ENGINE_FOLDER}/{name}.yml")
        problems += model_problems(models, models, builtin_kinds(engines), MODELS_FILE)
        problems += [*check_issues(issues, engines).problems, *check_published(published).problems]
    if problems:
        raise DrafthouseError(problems)
    broken_hardware = add_own_hardware(root, own.hardware, hardware)
    broken_engines = add_own_engines(root, own.engines, engines)
    broken_models = add_own_models(root, own.models, models, builtin_kinds(engines))
    catalog = Catalog(
        hardware=hardware,
        models=models,
        engines=engines,
        profiles={},
        hashes=hashes,
        issues=issues["issues"],
        published=published,
        flags=_flags(lists, engines),
        broken_hardware=broken_hardware,
        broken_engines=broken_engines,
        broken_models=broken_models,
    )
    _read_profiles(root, paths, catalog)
    return catalog


def _read_profiles(root: Path, paths: Mapping[str, Sequence[Path]], catalog: Catalog) -> None:
    """Add the profiles to ``catalog``, and the problems of their files; of several files of a name the last is read."""
    for name, profile_paths in paths.items():
        shown = [shown_path(root, path) for path in profile_paths]
        catalog.files[name] = shown
        catalog.profiles[name], problems = read_table(root, shown[-1], PROFILE)
        if not PROFILE_NAME.fits(name):
            problems.append(Problem("wrong-format", "the file's name", PROFILE_NAME.needed, "rename it", shown[-1]))
        if problems:
            catalog.broken[name] = problems


def _require_clone(root: Path) -> None:
    """Raise DrafthouseError if the library is part of an installed collection, which has no data."""
    if not (root / "profiles" / "catalog" / "hardware.yml").exists():
        raise one_problem(
            "clone-required",
            "the collection without a clone of Drafthouse",
            "a clone: catalogue, profiles and templates are not part of the collection",
            "clone Drafthouse and run ansible-playbook in its folder",
            str(root),
        )


def _engines(root: Path) -> tuple[dict[str, EngineEntry], list[Problem]]:
    """The checked entry of every engine, from `profiles/catalog/engines/<name>.yml`, and the problems."""
    paths = sorted((root / ENGINE_FOLDER).glob("*.yml"))
    if not paths:
        do = "restore it: git checkout -- profiles"
        return {}, [Problem("catalogue-incomplete", "no engine", "a file for each", do, ENGINE_FOLDER)]
    entries = {}
    problems: list[Problem] = []
    for path in paths:
        data, file_problems = read_document(root, f"{ENGINE_FOLDER}/{path.name}")
        if file_problems:
            problems += file_problems
        else:
            entries[path.stem] = data
    engines: dict[str, EngineEntry] = {}
    for name, entry in entries.items():
        file = f"{ENGINE_FOLDER}/{name}.yml"
        engines[name] = like_another(entry, entries)
        problems += shape_problems(engines[name], ENGINE, file, versions=True)
        if not NAME.fits(name):
            problems.append(Problem("wrong-format", "the file's name", NAME.needed, "rename it", file))
    return engines, problems


def _flag_lists(root: Path) -> tuple[dict[str, dict[str, FlagList]], list[Problem]]:
    """The flag lists of every engine by version, from `profiles/catalog/flags/<name>.yml`, and the problems."""
    lists: dict[str, dict[str, FlagList]] = {}
    problems: list[Problem] = []
    for path in sorted((root / FLAG_FOLDER).glob("*.yml")):
        read, file_problems = read_table(root, f"{FLAG_FOLDER}/{path.name}", FLAG_LISTS)
        lists[path.stem] = read.get("versions", {})
        problems += file_problems
    return lists, problems


def _flags(
    lists: Mapping[str, dict[str, FlagList]], engines: Mapping[str, EngineEntry]
) -> dict[str, dict[str, FlagList]]:
    """The flag lists of each engine by version, with the flags that its plugin adds.

    An engine without a file has the lists of its family, the engine that it is like.
    """
    by_engine = {name: lists.get(name) or lists.get(engine.get("family", ""), {}) for name, engine in engines.items()}
    for name, engine in engines.items():
        plugin = engine.get("plugin")
        if not plugin or "flags" not in plugin:
            continue
        # A plugin adds its flags to those of every engine version. New dictionaries: engines may share the old ones.
        plugin_flags = plugin["flags"]
        with_plugin: dict[str, FlagList] = {}
        for version, flags in by_engine[name].items():
            none = [*flags["none"], *plugin_flags["none"]]
            one = [*flags["one"], *plugin_flags["one"]]
            with_plugin[version] = {**flags, "none": none, "one": one}
        by_engine[name] = with_plugin
    return by_engine


def _hashes(root: Path) -> tuple[dict[str, list[str]], list[Problem]]:
    """The hashes of packages that the catalogue names without a lock file, and the problems."""
    try:
        return dict(hashes_by_pin(read_lock((root / HASHES_FILE).read_text("utf-8")))), []
    except OSError as error:
        found = error.strerror or str(error)
        do = f"restore it: git checkout -- {HASHES_FILE}"
        return {}, [Problem("catalogue-incomplete", found, "the hashes of what the catalogue pins", do, HASHES_FILE)]


def load_gpus(root: Path) -> Gpus:
    """Read and check the GPU table of the clone at ``root``. Raises DrafthouseError with every problem."""
    relative = "profiles/catalog/gpus.yml"
    table, problems = read_table(root, relative, GPUS)
    gpus: Gpus = table
    if not problems:
        findings = Findings(relative)
        generation_at = {f"cards.{name}": card["generation"] for name, card in gpus["cards"].items()}
        generation_at |= {f"ranges[{index}]": pci_range["generation"] for index, pci_range in enumerate(gpus["ranges"])}
        for path, generation in generation_at.items():
            if generation not in gpus["generations"]:
                found = f"the unknown generation '{generation}'"
                findings.add(
                    "unknown-value", path, found, "one of generations", did_you_mean(generation, gpus["generations"])
                )
        problems = findings.problems
    if problems:
        raise DrafthouseError(problems)
    return gpus
