"""Catalogue entries of one's own beside the shipped ones. A broken one stops the profiles that name it, no others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import Problem, did_you_mean
from ..core.forms import NAME, PROGRAM
from ..core.schema import Findings, Shape
from .catalog_files import checked, document, read_table
from .heads import check_entry
from .schemas import ENGINE, HARDWARE, MODELS

if TYPE_CHECKING:
    from drafthouse.engines.entry_types import EngineEntry
    from drafthouse.profiles.catalog_types import HardwareEntry, ModelEntry
    from drafthouse.profiles.profile_types import Unchecked

_KEY = re.compile(r"(?m)^([A-Za-z0-9][A-Za-z0-9._-]*):")
_REPOSITORY = re.compile(r"(?m)^\s*(?:repo|path): *(\S+) *$")
_AGAIN = "correct it, or remove it and run drafthouse model add again"

#: What is wrong with entries of one's own, by all names that a profile may call them.
Broken = dict[str, list[Problem]]


class OwnFiles(NamedTuple):
    """The files with catalogue entries of one's own, in the order in which they are read."""

    hardware: list[Path]
    engines: list[Path]
    models: list[Path]

    def all(self) -> list[Path]:
        """Every file of them."""
        return [*self.hardware, *self.engines, *self.models]


def own_files(folders: Sequence[Path]) -> OwnFiles:
    """The files with entries in ``folders``, of which the first is the shipped `profiles/` and all are laid out so.

    Of the shipped folder, and of one with a whole catalogue as another clone has, only `catalog/local/`.
    """
    found = OwnFiles([], [], [])
    for place, folder in enumerate(folders):
        catalogue = folder / "catalog"
        if place > 0 and not (catalogue / "gpus.yml").is_file():
            found.hardware.extend(catalogue.glob("hardware.yml"))
            found.engines.extend(sorted(catalogue.glob("engines/*.yml")))
            found.models.extend(catalogue.glob("models.yml"))
        found.models.extend(sorted(catalogue.glob("local/*.yml")))
    return found


def shown_path(root: Path, path: Path) -> str:
    """A file as errors name it: below the clone at ``root``, otherwise its whole path."""
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def add_own_hardware(root: Path, files: Iterable[Path], hardware: dict[str, HardwareEntry]) -> Broken:
    """Add the entries in ``files`` to ``hardware``; return what is wrong with the others."""
    broken: Broken = {}
    for path in files:
        own, found = _read(root, path, hardware, HARDWARE)
        if found:
            broken |= dict.fromkeys([*map(str, own), *_keys_in(path)], found)
        else:
            hardware |= own
    return broken


def add_own_engines(root: Path, files: Iterable[Path], engines: dict[str, EngineEntry]) -> Broken:
    """Add the entries in ``files`` to ``engines``; return what is wrong with the others."""
    broken: Broken = {}
    for path in files:
        where, name = shown_path(root, path), path.stem
        entry, found = document(root, where, "correct it")
        if not found:
            entry = like_another(entry, engines)
            found = checked(entry, ENGINE, where, versions=True)
        if name in engines:
            found.append(_taken(name, where))
        if not NAME.fits(name):
            found.append(Problem("wrong-format", "the file's name", NAME.needed, "rename it", where))
        found = found or engine_problems(entry, where)
        if found:
            broken[name] = found
        else:
            engines[name] = entry
    return broken


def add_own_models(root: Path, files: Iterable[Path], models: dict[str, ModelEntry], kinds: set[str]) -> Broken:
    """Add the entries in ``files`` to ``models``; return what is wrong with the others, by names in small letters.

    ``kinds`` are the heads inside a target that an engine drafts with. A file counts as a whole.
    """
    right: dict[str, dict[str, ModelEntry]] = {}
    broken: Broken = {}
    for path in files:
        where = shown_path(root, path)
        own, found = _read(root, path, models, MODELS, versions=True)
        if found:
            names = _names(own) if own else _names_in(path)
            broken |= dict.fromkeys([path.stem.lower(), *names], found)
        else:
            models |= own
            right[where] = own
    # One that is taken out may be what another is made from.
    while wrong := _wrong_files(right, models, kinds):
        for where, found in wrong.items():
            own = right.pop(where)
            broken |= dict.fromkeys([Path(where).stem.lower(), *_names(own)], found)
            for name in own:
                del models[name]
    return broken


def _wrong_files(
    files: Mapping[str, Mapping[str, ModelEntry]], models: Mapping[str, ModelEntry], kinds: set[str]
) -> Broken:
    """The problems of each file's entries beside their shape; a file with none is left out."""
    wrong: Broken = {}
    for where, entries in files.items():
        if found := model_problems(entries, models, kinds, where):
            wrong[where] = found
    return wrong


def _read(
    root: Path, path: Path, known: Collection[str], shape: Shape, *, versions: bool = False
) -> tuple[Any, list[Problem]]:
    """The entries of one file, and what is wrong with it; an entry may not have a name that is ``known``."""
    where = shown_path(root, path)
    do = _AGAIN if path.parent.name == "local" else "correct it"
    own, found = read_table(root, where, shape, versions=versions, do=do)
    found += [_taken(name, where) for name in sorted(own) if name in known]
    return own, found


def _taken(name: str, where: str) -> Problem:
    found = f"the entry '{name}', which is already in the catalogue"
    return Problem("duplicate-name", found, "a unique name", "rename or remove the entry", where)


def like_another(entry: Any, engines: Mapping[str, Any]) -> Any:
    """An engine's entry with what it does not say itself taken from the one it is ``like``."""
    if not isinstance(entry, dict) or not isinstance(engines.get(str(entry.get("like"))), dict):
        return entry
    merged = {**engines[entry["like"]], **entry, "family": entry["like"]}
    # Null takes away what the other one has.
    return {key: value for key, value in merged.items() if key != "like" and value is not None}


def engine_problems(engine: EngineEntry, file: str) -> list[Problem]:
    """The words of an engine's entry in ``file`` that name what the same entry does not have."""
    findings = Findings(file)
    program = next(iter(engine["launch"]["command"]), "")
    if not PROGRAM.fits(program):
        findings.add("wrong-format", "launch.command[0]", f"{program!r}", PROGRAM.needed, "correct it")
    if config := engine["launch"].get("config"):
        for arm in ("baseline", "speculative", "stock"):
            _look(findings, "launch.config.files", arm, config["files"])
    for name, method in engine["methods"].items():
        required = method.get("requires")
        for option in (required.get("serve") if required else None) or {}:
            _look(findings, f"methods.{name}.requires.serve", option, engine["options"])
    return findings.problems


def model_problems(
    entries: Mapping[str, ModelEntry], models: Mapping[str, ModelEntry], kinds: set[str], file: str
) -> list[Problem]:
    """What is wrong with ``entries`` of ``file`` beside their shape; ``models`` are all that are known."""
    findings = Findings(file)
    for key, model in entries.items():
        if model["kind"] == "model" and "served_name" not in model:
            findings.add("missing-key", f"{key}.served_name", "nothing", "the name it is served under", "add the key")
        if "derived" in model["source"]:
            _look(findings, f"{key}.source.derived.from", model["source"]["derived"]["from"], models)
        if head := model.get("builtin_head"):
            _look(findings, f"{key}.builtin_head.kind", head["kind"], kinds)
            check_entry(findings, key, model, head)
    return findings.problems


def _look(findings: Findings, path: str, word: str, known: Iterable[str]) -> None:
    """Add a problem where ``word``, which stands at ``path``, is not ``known``."""
    words = sorted(known)
    if word not in words:
        needed = f"one of: {', '.join(words)}"
        findings.add("unknown-value", path, f"{word!r}, which does not exist", needed, did_you_mean(word, words))


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""


def _keys_in(path: Path) -> list[str]:
    """The names of the entries of a file that is no YAML, as far as its lines tell."""
    return _KEY.findall(_text(path))


def _names_in(path: Path) -> list[str]:
    """What profiles may call the models of a file that is no YAML, as far as its lines tell, in small letters."""
    return [name.lower() for name in [*_keys_in(path), *_REPOSITORY.findall(_text(path))]]


def _names(own: Unchecked) -> Iterator[str]:
    """Yield what profiles may call the entries of a file, of which anything may be wrong, in small letters."""
    for key, entry in own.items():
        yield str(key).lower()
        source = entry.get("source") if isinstance(entry, Mapping) else None
        if isinstance(source, Mapping):
            hub = source.get("hub")
            named = (hub.get("repo") if isinstance(hub, Mapping) else None, source.get("path"))
            yield from (name.lower() for name in named if isinstance(name, str))
