"""The folders with profiles and catalogue entries: the shipped one, and those of one's own beside it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import one_problem
from ..core.places import INSTALLED, WORK
from ..core.plain_text import printable

#: A variable of the environment: folders with profiles and catalogue entries of one's own, as PATH has its folders.
PROFILES_VARIABLE = "DRAFTHOUSE_PROFILES"


def profile_folders(root: Path, named: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> list[Path]:
    """The folders with profiles and catalogue entries, in the order in which they are read.

    First the shipped one at ``root``, then those of an installed wheel's user, those that DRAFTHOUSE_PROFILES names,
    and last ``named`` (an inventory's `drafthouse_profiles_dir`). A later profile takes the place of an earlier one of
    the same name. Raises DrafthouseError for a folder that is named and not there.
    """
    given = os.environ if environ is None else environ
    folders = [root / "profiles"]
    if INSTALLED:
        folders += [own_folder(root, given), WORK / "profiles"]
    words = [(PROFILES_VARIABLE, word) for word in given.get(PROFILES_VARIABLE, "").split(os.pathsep) if word]
    words += [("drafthouse_profiles_dir", word) for word in named]
    for where, word in words:
        folder = Path(word).expanduser()
        if not (folder.is_absolute() and folder.is_dir()):
            needed, do = "the absolute path of a folder with profiles", "correct it, or take it out"
            raise one_problem("no-such-file", f"'{printable(word)}'", needed, do, where)
        folders.append(folder)
    unlike: dict[Path, Path] = {}
    for folder in folders:
        unlike.setdefault(folder.resolve(), folder)
    return list(unlike.values())


def own_folder(root: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The folder to which `drafthouse new` and `model add` write: the clone's, or for a wheel one in the home."""
    if not INSTALLED:
        return root / "profiles"
    given = os.environ if environ is None else environ
    return Path(given.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "drafthouse" / "profiles"


def own_models(root: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The folder to which `drafthouse model add` writes a file for each entry."""
    return own_folder(root, environ) / "catalog" / "local"
