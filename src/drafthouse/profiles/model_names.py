"""The names of a model in a profile: its name in the catalogue, its repository on the Hub, or its folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, did_you_mean

if TYPE_CHECKING:
    from drafthouse.profiles.catalog import Catalog
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry

#: ORG/NAME, then optionally @REVISION, then optionally :FILE.gguf.
_REPOSITORY = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(?:@[A-Za-z0-9._/-]+)?(?::[A-Za-z0-9._/-]+\.gguf)?"
)


def find_model(word: str, models: Mapping[str, ModelEntry]) -> str | None:
    """The catalogue's name of the model ``word``: a name, ``org/name@revision:file.gguf`` or a folder.

    None if no entry fits, or if several entries do, such as the files of a repository if ``word`` names none of them.
    """
    if word in models:
        return word
    repo_at_revision, _, file = word.partition(":")
    repo, _, revision = repo_at_revision.partition("@")
    keys = []
    for key, model in models.items():
        hub = model["source"].get("hub")
        is_repo = hub and hub["repo"].lower() == repo.lower() and revision in ("", hub["revision"], hub.get("branch"))
        if (is_repo and file in ("", model.get("file"))) or model["source"].get("path") == word:
            keys.append(key)
    return keys[0] if len(keys) == 1 else None


def model_named(word: str, catalog: Catalog, where: str) -> str:
    """The catalogue's name of the model ``word``, as `find_model` finds it.

    Raises DrafthouseError for an unknown model or a broken entry; ``where`` is the place that names the model.
    """
    problems = broken_model(word, catalog.broken_models)
    key = find_model(word, catalog.models)
    if key and not problems:
        return key
    raise DrafthouseError(
        problems or Problem("unknown-value", f"'{word}'", *unknown_model(word, catalog.models), where)
    )


def broken_model(word: str, broken: Mapping[str, list[Problem]]) -> list[Problem]:
    """The problems of the user's own entry of that name; [] if there is none, or it is right."""
    # Such an entry is known by its bare names, without a revision or a file.
    lower_case = word.lower()
    return broken.get(lower_case) or broken.get(re.split("[@:]", lower_case)[0], [])


def is_outside(word: str) -> bool:
    """True if ``word`` can be a model without an entry: a repository of the Hub, or a folder of this machine."""
    return word.startswith("/") or _REPOSITORY.fullmatch(word) is not None


def names_of(model: CatalogModel) -> list[str]:
    """All names of a model: in the catalogue, for people, and its repository on the hub if it has one."""
    hub = model["source"].get("hub")
    return [model["id"], model["name"], *([hub["repo"]] if hub else [])]


def lacks_entry(word: object, catalog: Catalog) -> bool:
    """True if a profile's ``word`` can be a model and has no entry, not even a broken one."""
    if not isinstance(word, str) or not is_outside(word):
        return False
    return find_model(word, catalog.models) is None and not broken_model(word, catalog.broken_models)


def unknown_model(word: str, models: Mapping[str, ModelEntry]) -> tuple[str, str]:
    """The fields `needed` and `do` of the problem that no entry has the name ``word``."""
    if is_outside(word):
        kind = "repository" if not word.startswith("/") else "folder"
        return f"a catalogue entry for this {kind}", f"drafthouse model add {word}"
    return "a catalogue entry, or a repository of the Hub (org/name)", did_you_mean(word, models)
