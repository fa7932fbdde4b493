"""Read `profiles/` and `profiles/catalog/` and check their shape (not yet whether they fit together).

The result is plain data. Reading and checking are apart from resolving, so that `resolve` stays pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import DrafthouseError, Problem, did_you_mean, one_problem
from ..core.forms import NAME, PROFILE_NAME, PROGRAM
from ..core.parsed_files import parsed_once
from ..core.places import own_models, own_profiles
from ..core.requirement_lines import hashes_by_pin, read_lock
from ..core.schema import Findings
from .catalog_files import checked, document, read_table
from .flag_lists import FLAG_LISTS
from .flag_lists import FOLDER as FLAG_FOLDER
from .heads import builtin_kinds
from .known_issue_schema import KNOWN_ISSUES
from .known_issues import FILE as KNOWN_ISSUES_FILE
from .known_issues import check_issues
from .own_models import add_own_models, dangling
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

    _Parts = tuple[
        dict[str, HardwareEntry],
        dict[str, ModelEntry],
        dict[str, EngineEntry],
        dict[str, Profile],
        dict[str, list[str]],
        dict[str, KnownIssue],
        PublishedFile,
        dict[str, dict[str, FlagList]],
        dict[str, list[Problem]],
        dict[str, list[Problem]],
    ]

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
    # The same of the user's own entries, by all names that they have, in small letters.
    broken_models: dict[str, list[Problem]] = field(default_factory=dict)


def profile_files(root: Path) -> dict[str, Path]:
    """Return all profiles by name, in order: those at ``root``; the user's own take the place of these."""
    folders = [root / "profiles", *own_profiles()]
    found = {path.stem: path for folder in folders for path in folder.glob("*.yml")}
    return dict(sorted(found.items()))


def load_house(root: Path) -> House:
    """Read and check the catalogue and the profiles of the clone at ``root``.

    Raises DrafthouseError with every problem of the catalogue. What is wrong with a profile is kept in ``broken``,
    with an entry of the user's own in ``broken_models``: it must not stop another one.
    """
    _require_clone(root)
    profiles = profile_files(root)
    engines, own = sorted((root / ENGINE_FOLDER).glob("*.yml")), sorted(own_models(root).glob("*.yml"))
    tables = (HARDWARE_FILE, MODELS_FILE, HASHES_FILE, KNOWN_ISSUES_FILE, PUBLISHED_FILE)
    flags = sorted((root / FLAG_FOLDER).glob("*.yml"))
    files = (*(root / name for name in tables), *engines, *flags, *own, *profiles.values())
    return House(*parsed_once(("house", root, files), files, lambda: _house_parts(root, profiles, own)))


def _house_parts(root: Path, files: Mapping[str, Path], own: Iterable[Path]) -> _Parts:
    """Return the fields of a `House`, in order."""
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
        flags = _flags(lists, engines)
        house = House(hardware, models, engines, {}, hashes, issues["issues"], published, flags)
        problems = [*_dangling(house), *check_issues(issues, engines).problems, *check_published(published).problems]
    if problems:
        raise DrafthouseError(problems)
    house.broken_models = add_own_models(root, own, house.models, builtin_kinds(engines))
    for name, path in files.items():
        where = str(path.relative_to(root) if path.is_relative_to(root) else path)
        profile, found = read_table(root, where, PROFILE)
        if not PROFILE_NAME.fits(name):
            found.append(Problem("wrong-format", "the file's name", PROFILE_NAME.needed, "rename it", where))
        if found:
            house.broken[name] = found
        house.profiles[name] = profile
    return (
        house.hardware,
        house.models,
        house.engines,
        house.profiles,
        house.hashes,
        house.issues,
        house.published,
        house.flags,
        house.broken,
        house.broken_models,
    )


def _require_clone(root: Path) -> None:
    """Raise DrafthouseError where the library is an installed collection's: that holds no data."""
    if not (root / "profiles").is_dir():
        raise one_problem(
            "clone-required",
            "the collection without a clone of Drafthouse",
            "a clone: catalogue, profiles and templates are not part of the collection",
            "clone Drafthouse and run ansible-playbook in its folder",
            str(root),
        )


def _engines(root: Path) -> tuple[dict[str, EngineEntry], list[Problem]]:
    """Read and check the entry of every engine: `profiles/catalog/engines/<name>.yml`."""
    files = {path.stem: f"{ENGINE_FOLDER}/{path.name}" for path in sorted((root / ENGINE_FOLDER).glob("*.yml"))}
    if not files:
        return {}, [
            Problem(
                "catalogue-incomplete",
                "no engine",
                "a file for each",
                "restore it: git checkout -- profiles",
                ENGINE_FOLDER,
            )
        ]
    read = {name: document(root, file) for name, file in files.items()}
    entries = {name: data for name, (data, problems) in read.items() if not problems}
    found = [problem for _, problems in read.values() for problem in problems]
    engines: dict[str, EngineEntry] = {}
    for name, entry in entries.items():
        engines[name] = _like(entry, entries)
        found += checked(engines[name], ENGINE, files[name], versions=True)
        if not NAME.fits(name):
            found.append(Problem("wrong-format", "the file's name", NAME.needed, "rename it", files[name]))
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
    """Return the flags of each engine by version; an engine without a file has those of the one it is like."""
    found = {name: own.get(name) or own.get(engine.get("family", ""), {}) for name, engine in engines.items()}
    for name, engine in engines.items():
        plugin = engine.get("plugin")
        if plugin and "flags" in plugin:  # beside those of the engine that it patches
            more = plugin["flags"]
            found[name] = {
                version: {**flags, "none": [*flags["none"], *more["none"]], "one": [*flags["one"], *more["one"]]}
                for version, flags in found[name].items()
            }
    return found


def _hashes(root: Path) -> tuple[dict[str, list[str]], list[Problem]]:
    """Return what is known of the versions that the catalogue names without a lock."""
    relative = HASHES_FILE
    try:
        return dict(hashes_by_pin(read_lock((root / relative).read_text("utf-8")))), []
    except OSError as error:
        found, do = error.strerror or str(error), f"restore it: git checkout -- {relative}"
        return {}, [Problem("catalogue-incomplete", found, "the hashes of what the catalogue pins", do, relative)]


def _dangling(house: House) -> list[Problem]:
    """Return the words of the catalogue that name an entry which is not there."""
    findings: list[Findings] = []

    def look(file: str, path: str, word: object, words: Iterable[str]) -> None:
        known = sorted(words)
        if word not in known:
            one = Findings(f"profiles/catalog/{file}.yml")
            one.add(
                "unknown-value",
                path,
                f"{word!r}, which does not exist",
                f"one of: {', '.join(known)}",
                did_you_mean(word, known),
            )
            findings.append(one)

    for key, engine in house.engines.items():
        program = next(iter(engine["launch"]["command"]), "")
        if not PROGRAM.fits(program):
            one = Findings(f"{ENGINE_FOLDER}/{key}.yml")
            one.add("wrong-format", "launch.command[0]", f"{program!r}", PROGRAM.needed, "correct it")
            findings.append(one)
        if config := engine["launch"].get("config"):
            for arm in ("baseline", "speculative", "stock"):
                look(f"engines/{key}", "launch.config.files", arm, config["files"])
        for name, method in engine["methods"].items():
            required = method.get("requires")
            for option in (required.get("serve") if required else None) or {}:
                look(f"engines/{key}", f"methods.{name}.requires.serve", option, engine["options"])
    models = dangling(house.models, house.models, builtin_kinds(house.engines), MODELS_FILE)
    return models + [problem for one in findings for problem in one.problems]


def load_gpus(root: Path) -> Gpus:
    """Read and check the table of GPUs of the clone at ``root``; DrafthouseError holds every problem of it."""
    _require_clone(root)
    relative = "profiles/catalog/gpus.yml"
    read, problems = read_table(root, relative, GPUS)
    gpus: Gpus = read
    if not problems:
        findings = Findings(relative)
        named = [(f"cards.{name}", card["generation"]) for name, card in gpus["cards"].items()]
        named += [(f"ranges[{number}]", one["generation"]) for number, one in enumerate(gpus["ranges"])]
        for path, generation in named:
            if generation not in gpus["generations"]:
                found = f"the unknown generation '{generation}'"
                findings.add(
                    "unknown-value", path, found, "one of generations", did_you_mean(generation, gpus["generations"])
                )
        problems = findings.problems
    if problems:
        raise DrafthouseError(problems)
    return gpus


def _like(entry: Any, engines: Mapping[str, Any]) -> Any:
    """Return an engine's entry with what it does not say itself taken from the one it is ``like``."""
    if not isinstance(entry, dict) or not isinstance(engines.get(str(entry.get("like"))), dict):
        return entry
    merged = {**engines[entry["like"]], **entry, "family": entry["like"]}
    # Null takes away what the other one has.
    return {key: value for key, value in merged.items() if key != "like" and value is not None}
