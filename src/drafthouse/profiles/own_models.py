"""The user's own entries beside the catalogue's. A broken one stops the profiles that name it, no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import Problem, did_you_mean
from ..core.schema import Findings
from .catalog_files import read_table
from .heads import check_entry
from .schemas import MODELS

if TYPE_CHECKING:
    from drafthouse.profiles.catalog_types import ModelEntry
    from drafthouse.profiles.profile_types import Unchecked

_REPOSITORY = re.compile(r"(?m)^\s*(?:repo|path): *(\S+) *$")
_AGAIN = "correct it, or remove it and run drafthouse model add again"


def add_own_models(
    root: Path, files: Iterable[Path], models: dict[str, ModelEntry], kinds: set[str]
) -> dict[str, list[Problem]]:
    """Add the entries that `drafthouse model add` wrote to ``models``; return what is wrong by the others' names.

    ``kinds`` are the heads inside a target that an engine drafts with. A file counts as a whole.
    """
    right: dict[str, dict[str, ModelEntry]] = {}
    broken: dict[str, list[Problem]] = {}
    for path in files:
        where = str(path.relative_to(root) if path.is_relative_to(root) else path)
        own, found = read_table(root, where, MODELS, versions=True, do=_AGAIN)
        for name in sorted(own.keys() & models.keys()):
            taken = f"the entry '{name}', which is already in the catalogue"
            found.append(Problem("duplicate-name", taken, "a unique name", "rename or remove the file", where))
        if found:
            names = _names(own) if own else _names_in(path)
            broken |= dict.fromkeys([path.stem.lower(), *names], found)
        else:
            models |= own
            right[where] = own
    # One that is taken out may be what another is made from.
    while wrong := {where: found for where, own in right.items() if (found := dangling(own, models, kinds, where))}:
        for where, found in wrong.items():
            own = right.pop(where)
            broken |= dict.fromkeys([Path(where).stem.lower(), *_names(own)], found)
            for name in own:
                del models[name]
    return broken


def dangling(
    entries: Mapping[str, ModelEntry], models: Mapping[str, ModelEntry], kinds: set[str], file: str
) -> list[Problem]:
    """Return the words in ``entries`` of ``file`` that name what is not there; ``models`` are all that are known."""
    findings = Findings(file)

    def look(path: str, word: str, known: Iterable[str]) -> None:
        words = sorted(known)
        if word not in words:
            needed = f"one of: {', '.join(words)}"
            findings.add("unknown-value", path, f"{word!r}, which does not exist", needed, did_you_mean(word, words))

    for key, model in entries.items():
        if "derived" in model["source"]:
            look(f"{key}.source.derived.from", model["source"]["derived"]["from"], models)
        if head := model.get("builtin_head"):
            look(f"{key}.builtin_head.kind", head["kind"], kinds)
            check_entry(findings, key, model, head)
    return findings.problems


def _names_in(path: Path) -> list[str]:
    """Return the same of a file that is no YAML, as far as its lines tell."""
    with suppress(OSError):
        return [name.lower() for name in _REPOSITORY.findall(path.read_text("utf-8", "replace"))]
    return []


def _names(own: Unchecked) -> Iterator[str]:
    """Yield what profiles may call the entries of a file, of which anything may be wrong, in small letters."""
    for key, entry in own.items():
        yield str(key).lower()
        source = entry.get("source") if isinstance(entry, Mapping) else None
        if isinstance(source, Mapping):
            hub = source.get("hub")
            named = (hub.get("repo") if isinstance(hub, Mapping) else None, source.get("path"))
            yield from (name.lower() for name in named if isinstance(name, str))
