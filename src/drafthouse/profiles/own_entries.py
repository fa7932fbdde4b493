"""The user's own catalogue entries, beside the shipped ones. A broken entry stops only the profiles that name it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import Problem, did_you_mean
from ..core.forms import NAME, PROGRAM
from ..core.schema import Findings, Shape
from .catalog_files import read_document, read_table, shape_problems
from .heads import check_entry
from .schemas import ENGINE, HARDWARE, MODELS

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.catalog_types import HardwareEntry, ModelEntry
    from drafthouse.profiles.profile_types import Unchecked

#: A line that begins an entry, and a line with a model's repository or path, in a file that YAML cannot read.
_KEY = re.compile(r"(?m)^([A-Za-z0-9][A-Za-z0-9._-]*):")
_REPOSITORY = re.compile(r"(?m)^\s*(?:repo|path): *(\S+) *$")
#: The advice for a file that `drafthouse model add` wrote.
_AGAIN = "correct it, or remove it and run drafthouse model add again"

#: The problems of the user's broken entries, by every name that a profile may use for them.
Broken = dict[str, list[Problem]]


class OwnFiles(NamedTuple):
    """The files with the user's own catalogue entries, in the order in which they are read."""

    hardware: list[Path]
    engines: list[Path]
    models: list[Path]

    def all(self) -> list[Path]:
        """All files of the three kinds."""
        return [*self.hardware, *self.engines, *self.models]


def own_files(folders: Sequence[Path]) -> OwnFiles:
    """The user's files in ``folders``, which all have the layout of the first, the shipped `profiles/`.

    In the shipped folder, and in any other with a whole catalogue (another clone), these are `catalog/local/` only.
    """
    files = OwnFiles([], [], [])
    for index, folder in enumerate(folders):
        catalogue = folder / "catalog"
        if index > 0 and not (catalogue / "gpus.yml").is_file():
            files.hardware.extend(catalogue.glob("hardware.yml"))
            files.engines.extend(sorted(catalogue.glob("engines/*.yml")))
            files.models.extend(catalogue.glob("models.yml"))
        files.models.extend(sorted(catalogue.glob("local/*.yml")))
    return files


def shown_path(root: Path, path: Path) -> str:
    """A file's path in error messages: relative to the clone at ``root`` if it is inside, else absolute."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def add_own_hardware(root: Path, files: Iterable[Path], hardware: dict[str, HardwareEntry]) -> Broken:
    """Add the entries in ``files`` to ``hardware``; return the problems of the files that are wrong.

    One wrong entry excludes its whole file.
    """
    broken: Broken = {}
    for path in files:
        entries, problems = _read(root, path, hardware, HARDWARE)
        if problems:
            # Every name in the file stands for all of its problems.
            broken |= dict.fromkeys([*map(str, entries), *_keys_in(path)], problems)
        else:
            hardware |= entries
    return broken


def add_own_engines(root: Path, files: Iterable[Path], engines: dict[str, EngineEntry]) -> Broken:
    """Add the entries in ``files``, one each, to ``engines``; return the problems of those that are wrong."""
    broken: Broken = {}
    for path in files:
        where = shown_path(root, path)
        name = path.stem
        entry, problems = read_document(root, where, "correct it")
        if not problems:
            entry = like_another(entry, engines)
            problems = shape_problems(entry, ENGINE, where, versions=True)
        if name in engines:
            problems.append(_duplicate(name, where))
        if not NAME.fits(name):
            problems.append(Problem("wrong-format", "the file's name", NAME.needed, "rename it", where))
        problems = problems or engine_problems(entry, where)
        if problems:
            broken[name] = problems
        else:
            engines[name] = entry
    return broken


def add_own_models(root: Path, files: Iterable[Path], models: dict[str, ModelEntry], kinds: set[str]) -> Broken:
    """Add the entries in ``files`` to ``models``; return the problems of wrong files, by names in lower case.

    ``kinds``: the kinds of built-in heads with which some engine drafts. One wrong entry excludes its whole file.
    """
    entries_by_file: dict[str, dict[str, ModelEntry]] = {}
    broken: Broken = {}
    for path in files:
        where = shown_path(root, path)
        entries, problems = _read(root, path, models, MODELS, versions=True)
        if problems:
            names = _model_names(entries) if entries else _model_names_in(path)
            broken |= dict.fromkeys([path.stem.lower(), *names], problems)
        else:
            models |= entries
            entries_by_file[where] = entries
    # Another file's entry may be derived from one that is removed, so check again until none is wrong.
    while wrong := _wrong_files(entries_by_file, models, kinds):
        for where, problems in wrong.items():
            entries = entries_by_file.pop(where)
            broken |= dict.fromkeys([Path(where).stem.lower(), *_model_names(entries)], problems)
            for name in entries:
                del models[name]
    return broken


def _wrong_files(
    files: Mapping[str, Mapping[str, ModelEntry]], models: Mapping[str, ModelEntry], kinds: set[str]
) -> Broken:
    """By file, the problems that `model_problems` finds; a file without problems is left out."""
    wrong: Broken = {}
    for where, entries in files.items():
        if problems := model_problems(entries, models, kinds, where):
            wrong[where] = problems
    return wrong


def _read(
    root: Path, path: Path, taken: Collection[str], shape: Shape, *, versions: bool = False
) -> tuple[Any, list[Problem]]:
    """The entries of one file, and its problems; an entry must not have a name that is already ``taken``.

    ``versions``: also check that each version in it can be compared.
    """
    where = shown_path(root, path)
    do = _AGAIN if path.parent.name == "local" else "correct it"
    entries, problems = read_table(root, where, shape, versions=versions, do=do)
    problems += [_duplicate(name, where) for name in sorted(entries) if name in taken]
    return entries, problems


def _duplicate(name: str, where: str) -> Problem:
    """The problem of an entry whose name another entry has already."""
    found = f"the entry '{name}', which is already in the catalogue"
    return Problem("duplicate-name", found, "a unique name", "rename or remove the entry", where)


def like_another(entry: Any, engines: Mapping[str, Any]) -> Any:
    """An engine's entry, completed with the keys of the engine that it is ``like``.

    Unchanged if it is no mapping or names no engine; the check of its shape reports that.
    """
    if not isinstance(entry, dict) or not isinstance(engines.get(str(entry.get("like"))), dict):
        return entry
    merged = {**engines[entry["like"]], **entry, "family": entry["like"]}
    # A null removes the other engine's key.
    return {key: value for key, value in merged.items() if key != "like" and value is not None}


def engine_problems(engine: EngineEntry, file: str) -> list[Problem]:
    """The problems of an engine's entry in ``file`` beyond its shape, such as names that the entry lacks."""
    findings = Findings(file)
    program = next(iter(engine["launch"]["command"]), "")
    if not PROGRAM.fits(program):
        findings.add("wrong-format", "launch.command[0]", f"{program!r}", PROGRAM.needed, "correct it")
    if config := engine["launch"].get("config"):
        for arm in ("baseline", "speculative", "stock"):
            _check_name(findings, "launch.config.files", arm, config["files"])
    for name, method in engine["methods"].items():
        required = method.get("requires")
        for option in (required.get("serve") if required else None) or {}:
            _check_name(findings, f"methods.{name}.requires.serve", option, engine["options"])
    return findings.problems


def model_problems(
    entries: Mapping[str, ModelEntry], models: Mapping[str, ModelEntry], kinds: set[str], file: str
) -> list[Problem]:
    """The problems of ``entries`` of ``file`` beyond their shape; ``models``: all entries of the catalogue."""
    findings = Findings(file)
    for key, model in entries.items():
        if model["kind"] == "model" and "served_name" not in model:
            findings.add("missing-key", f"{key}.served_name", "nothing", "the name it is served under", "add the key")
        if "derived" in model["source"]:
            _check_name(findings, f"{key}.source.derived.from", model["source"]["derived"]["from"], models)
        if head := model.get("builtin_head"):
            _check_name(findings, f"{key}.builtin_head.kind", head["kind"], kinds)
            check_entry(findings, key, model, head)
    return findings.problems


def _check_name(findings: Findings, path: str, word: str, names: Iterable[str]) -> None:
    """Add a problem if ``word``, the value at ``path``, is not among ``names``."""
    choices = sorted(names)
    if word not in choices:
        needed = f"one of: {', '.join(choices)}"
        findings.add("unknown-value", path, f"{word!r}, which does not exist", needed, did_you_mean(word, choices))


def _text(path: Path) -> str:
    """The text of a file, whatever its encoding; '' if it cannot be read."""
    with suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


def _keys_in(path: Path) -> list[str]:
    """The names of the entries of a file that is not valid YAML, guessed from its lines."""
    return _KEY.findall(_text(path))


def _model_names_in(path: Path) -> list[str]:
    """Every name for the models of a file that is not valid YAML, guessed from its lines, in lower case."""
    return [name.lower() for name in [*_keys_in(path), *_REPOSITORY.findall(_text(path))]]


def _model_names(entries: Unchecked) -> Iterator[str]:
    """Yield every name of a file's models, in lower case; ``entries`` may have any shape."""
    for key, entry in entries.items():
        yield str(key).lower()
        source = entry.get("source") if isinstance(entry, Mapping) else None
        if isinstance(source, Mapping):
            hub = source.get("hub")
            names = (hub.get("repo") if isinstance(hub, Mapping) else None, source.get("path"))
            yield from (name.lower() for name in names if isinstance(name, str))
