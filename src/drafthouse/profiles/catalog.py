"""Read `profiles/` and `profiles/catalog/` and check their shape (not yet whether they fit together).

The result is plain data. Reading and checking are apart from resolving, so that `resolve` stays pure.
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
from .catalog_files import checked, document, read_table
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

HARDWARE_FILE, MODELS_FILE = "profiles/catalog/hardware.yml", "profiles/catalog/models.yml"
HASHES_FILE, ENGINE_FOLDER = "profiles/catalog/packages.txt", "profiles/catalog/engines"


@dataclass
class House:
    """All that is written down: the catalogue's three tables and every profile, as plain data."""

    hardware: dict[str, HardwareEntry]
    models: dict[str, ModelEntry]
    engines: dict[str, EngineEntry]
    profiles: dict[str, Profile]
    # Of the versions that the catalogue names without a lock: {name==version: [sha256:...]}.
    hashes: dict[str, list[str]] = field(default_factory=dict)
    # What users of the engines were hit by, by name.
    issues: dict[str, KnownIssue] = field(default_factory=dict)
    published: PublishedFile = field(default_factory=lambda: NOTHING)
    # The flags of each engine, by version, where they are known.
    flags: dict[str, dict[str, FlagList]] = field(default_factory=dict)
    # What was wrong in a profile's own file; only using that profile is an error.
    broken: dict[str, list[Problem]] = field(default_factory=dict)
    # The same of the user's own entries, by their names: of models by all that they have, in small letters.
    broken_hardware: dict[str, list[Problem]] = field(default_factory=dict)
    broken_engines: dict[str, list[Problem]] = field(default_factory=dict)
    broken_models: dict[str, list[Problem]] = field(default_factory=dict)
    # Each profile's file as errors name it; in place of several of the same name the last one is read.
    files: dict[str, list[str]] = field(default_factory=dict)

    def file(self, name: str) -> str:
        """The profile's file as errors name it; of a profile that is not there, where it would be looked for first."""
        return self.files.get(name, [f"profiles/{name}.yml"])[-1]

    def broken_entries(self) -> list[Problem]:
        """Everything that is wrong with the user's own entries, each problem once."""
        found: dict[Problem, None] = {}
        for broken in (self.broken_hardware, self.broken_engines, self.broken_models):
            for problems in broken.values():
                found |= dict.fromkeys(problems)
        return list(found)


def profile_files(root: Path, named: Sequence[str] = ()) -> dict[str, Path]:
    """The file of every profile by name, in order; ``named`` as for `load_house`."""
    return {name: paths[-1] for name, paths in _profile_paths(profile_folders(root, named)).items()}


def _profile_paths(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """The files of every profile by name, in the order of ``folders``."""
    found: dict[str, list[Path]] = {}
    for folder in folders:
        for path in folder.glob("*.yml"):
            found.setdefault(path.stem, []).append(path)
    return dict(sorted(found.items()))


def load_house(root: Path, named: Sequence[str] = ()) -> House:
    """Read and check the catalogue and the profiles of the clone at ``root``, and those of one's own beside them.

    ``named`` are folders of one's own beside those that the environment names (`profile_folders`).
    Raises DrafthouseError with every problem of the shipped catalogue. What is wrong with a profile is kept in
    ``broken``, with an entry of the user's own in ``broken_models`` and its like: it must not stop another one.
    """
    _require_clone(root)
    folders = profile_folders(root, named)
    profiles, own = _profile_paths(folders), own_files(folders)
    engines = sorted((root / ENGINE_FOLDER).glob("*.yml"))
    tables = (HARDWARE_FILE, MODELS_FILE, HASHES_FILE, KNOWN_ISSUES_FILE, PUBLISHED_FILE)
    flags = sorted((root / FLAG_FOLDER).glob("*.yml"))
    files = [*map(root.joinpath, tables), *engines, *flags, *own.all()]
    for paths in profiles.values():
        files += paths
    return House(**parsed_once(("house", root, tuple(files)), files, lambda: vars(_read_house(root, profiles, own))))


def _read_house(root: Path, paths: Mapping[str, Sequence[Path]], own: OwnFiles) -> House:
    """The catalogue and the profiles of the clone at ``root``, read now; ``paths`` are the files of each profile."""
    hardware, problems = read_table(root, HARDWARE_FILE, HARDWARE)
    models, found = read_table(root, MODELS_FILE, MODELS, versions=True)
    problems += found
    engines, found = _engines(root)
    problems += found
    hashes, found = _hashes(root)
    problems += found
    issues, found = read_table(root, KNOWN_ISSUES_FILE, KNOWN_ISSUES)
    problems += found
    published, found = read_table(root, PUBLISHED_FILE, PUBLISHED)
    problems += found
    lists, found = _flag_lists(root)
    problems += found
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
    profiles: dict[str, Profile] = {}
    broken: dict[str, list[Problem]] = {}
    files: dict[str, list[str]] = {}
    for name, own_paths in paths.items():
        places = files[name] = [shown_path(root, path) for path in own_paths]
        profiles[name], found = read_table(root, places[-1], PROFILE)
        if not PROFILE_NAME.fits(name):
            found.append(Problem("wrong-format", "the file's name", PROFILE_NAME.needed, "rename it", places[-1]))
        if found:
            broken[name] = found
    return House(
        hardware=hardware,
        models=models,
        engines=engines,
        profiles=profiles,
        hashes=hashes,
        issues=issues["issues"],
        published=published,
        flags=_flags(lists, engines),
        broken=broken,
        broken_hardware=broken_hardware,
        broken_engines=broken_engines,
        broken_models=broken_models,
        files=files,
    )


def _require_clone(root: Path) -> None:
    """Raise DrafthouseError where the library is an installed collection's: that holds no data."""
    if not (root / "profiles" / "catalog" / "hardware.yml").exists():
        raise one_problem(
            "clone-required",
            "the collection without a clone of Drafthouse",
            "a clone: catalogue, profiles and templates are not part of the collection",
            "clone Drafthouse and run ansible-playbook in its folder",
            str(root),
        )


def _engines(root: Path) -> tuple[dict[str, EngineEntry], list[Problem]]:
    """Read and check the entry of every engine: `profiles/catalog/engines/<name>.yml`."""
    paths = sorted((root / ENGINE_FOLDER).glob("*.yml"))
    if not paths:
        do = "restore it: git checkout -- profiles"
        return {}, [Problem("catalogue-incomplete", "no engine", "a file for each", do, ENGINE_FOLDER)]
    entries, found = {}, []
    for path in paths:
        data, problems = document(root, f"{ENGINE_FOLDER}/{path.name}")
        if problems:
            found += problems
        else:
            entries[path.stem] = data
    engines: dict[str, EngineEntry] = {}
    for name, entry in entries.items():
        file = f"{ENGINE_FOLDER}/{name}.yml"
        engines[name] = like_another(entry, entries)
        found += checked(engines[name], ENGINE, file, versions=True)
        if not NAME.fits(name):
            found.append(Problem("wrong-format", "the file's name", NAME.needed, "rename it", file))
    return engines, found


def _flag_lists(root: Path) -> tuple[dict[str, dict[str, FlagList]], list[Problem]]:
    """Read and check the flags of every engine: `profiles/catalog/flags/<name>.yml`."""
    lists: dict[str, dict[str, FlagList]] = {}
    problems: list[Problem] = []
    for path in sorted((root / FLAG_FOLDER).glob("*.yml")):
        read, wrong = read_table(root, f"{FLAG_FOLDER}/{path.name}", FLAG_LISTS)
        lists[path.stem] = read.get("versions", {})
        problems += wrong
    return lists, problems


def _flags(
    own: Mapping[str, dict[str, FlagList]], engines: Mapping[str, EngineEntry]
) -> dict[str, dict[str, FlagList]]:
    """The flags of each engine by version; an engine without a file has those of the one it is like."""
    found = {name: own.get(name) or own.get(engine.get("family", ""), {}) for name, engine in engines.items()}
    for name, engine in engines.items():
        plugin = engine.get("plugin")
        if not plugin or "flags" not in plugin:
            continue
        more, found[name] = plugin["flags"], dict(found[name])  # another engine may have the first ones
        for version, flags in found[name].items():
            none, one = [*flags["none"], *more["none"]], [*flags["one"], *more["one"]]
            found[name][version] = {**flags, "none": none, "one": one}
    return found


def _hashes(root: Path) -> tuple[dict[str, list[str]], list[Problem]]:
    """What is known of the versions that the catalogue names without a lock."""
    relative = HASHES_FILE
    try:
        return dict(hashes_by_pin(read_lock((root / relative).read_text("utf-8")))), []
    except OSError as error:
        found, do = error.strerror or str(error), f"restore it: git checkout -- {relative}"
        return {}, [Problem("catalogue-incomplete", found, "the hashes of what the catalogue pins", do, relative)]


def load_gpus(root: Path) -> Gpus:
    """Read and check the table of GPUs of the clone at ``root``; DrafthouseError holds every problem of it."""
    relative = "profiles/catalog/gpus.yml"
    read, problems = read_table(root, relative, GPUS)
    gpus: Gpus = read
    if not problems:
        findings = Findings(relative)
        named = {f"cards.{name}": card["generation"] for name, card in gpus["cards"].items()}
        named |= {f"ranges[{number}]": part["generation"] for number, part in enumerate(gpus["ranges"])}
        for path, generation in named.items():
            if generation not in gpus["generations"]:
                found = f"the unknown generation '{generation}'"
                findings.add(
                    "unknown-value", path, found, "one of generations", did_you_mean(generation, gpus["generations"])
                )
        problems = findings.problems
    if problems:
        raise DrafthouseError(problems)
    return gpus
