"""What a profile may call a model: its name in the catalogue, its repository on the Hub, or its folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..core.errors import DrafthouseError, Problem, did_you_mean

if TYPE_CHECKING:
    from drafthouse.profiles.catalog import House
    from drafthouse.profiles.catalog_types import CatalogModel, ModelEntry

_REPOSITORY = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(?:@[A-Za-z0-9._/-]+)?(?::[A-Za-z0-9._/-]+\.gguf)?"
)


def find_model(word: str, models: Mapping[str, ModelEntry]) -> str | None:
    """The catalogue's name of a model: its own, its repository (``org/name@revision:file.gguf``) or its folder.

    None also where a repository has several files here and the word names none of them.
    """
    if word in models:
        return word
    rest, _, file = word.partition(":")
    repo, _, revision = rest.partition("@")
    found = []
    for key, model in models.items():
        hub = model["source"].get("hub")
        named = hub and hub["repo"].lower() == repo.lower() and revision in ("", hub["revision"], hub.get("branch"))
        if (named and file in ("", model.get("file"))) or model["source"].get("path") == word:
            found.append(key)
    return found[0] if len(found) == 1 else None


def model_named(word: str, house: House, where: str) -> str:
    """The same for a word that stands at ``where``. Raises DrafthouseError."""
    problems = broken_model(word, house.broken_models)
    key = find_model(word, house.models)
    if key and not problems:
        return key
    raise DrafthouseError(problems or Problem("unknown-value", f"'{word}'", *unknown_model(word, house.models), where))


def broken_model(word: str, broken: Mapping[str, list[Problem]]) -> list[Problem]:
    """What is wrong with the user's own entry of that name, if there is such a one."""
    low = word.lower()
    return broken.get(low) or broken.get(re.split("[@:]", low)[0], [])


def is_outside(word: str) -> bool:
    """Tell whether a word can be a model that has no entry: a repository of the Hub, or a folder of this machine."""
    return word.startswith("/") or _REPOSITORY.fullmatch(word) is not None


def names_of(model: CatalogModel) -> list[str]:
    """All names of a model: here, to people, and on the hub."""
    hub = model["source"].get("hub")
    return [model["id"], model["name"], *([hub["repo"]] if hub else [])]


def lacks_entry(word: object, house: House) -> bool:
    """Tell whether a word of a profile can be a model, and has no entry: neither a right nor a broken one."""
    if not isinstance(word, str) or not is_outside(word):
        return False
    return find_model(word, house.models) is None and not broken_model(word, house.broken_models)


def unknown_model(word: str, models: Mapping[str, ModelEntry]) -> tuple[str, str]:
    """What is needed and what to do where no entry is called ``word``."""
    if is_outside(word):
        what = "repository" if not word.startswith("/") else "folder"
        return f"a catalogue entry for this {what}", f"drafthouse model add {word}"
    return "a catalogue entry, or a repository of the Hub (org/name)", did_you_mean(word, models)
