"""The folders with profiles and catalogue entries: the shipped folder, and the user's own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import one_problem
from ..core.places import INSTALLED, WORK
from ..core.plain_text import printable

#: The environment variable with the user's own folders, separated as in PATH.
PROFILES_VARIABLE = "DRAFTHOUSE_PROFILES"


def profile_folders(root: Path, named: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> list[Path]:
    """The folders with profiles and catalogue entries, in the order in which they are read.

    First the shipped folder below ``root``; then, only for an installed wheel, the user's folder and that of the
    current directory; then the folders in DRAFTHOUSE_PROFILES; then ``named`` (an inventory's
    `drafthouse_profiles_dir`). A folder that is reached in two ways is read once. A later profile replaces an earlier
    one of its name. ``environ``: None for the process's environment. Raises DrafthouseError for a folder of the last
    two kinds that is not absolute or does not exist.
    """
    variables = os.environ if environ is None else environ
    folders = [root / "profiles"]
    if INSTALLED:
        folders += [own_folder(root, variables), WORK / "profiles"]
    sources = [(PROFILES_VARIABLE, text) for text in variables.get(PROFILES_VARIABLE, "").split(os.pathsep) if text]
    sources += [("drafthouse_profiles_dir", text) for text in named]
    for where, text in sources:
        folder = Path(text).expanduser()
        if not (folder.is_absolute() and folder.is_dir()):
            needed = "the absolute path of a folder with profiles"
            raise one_problem("no-such-file", f"'{printable(text)}'", needed, "correct it, or take it out", where)
        folders.append(folder)
    by_real_path: dict[Path, Path] = {}
    for folder in folders:
        by_real_path.setdefault(folder.resolve(), folder)
    return list(by_real_path.values())


def own_folder(root: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The folder for files of `drafthouse new` and `model add`: the clone's, or for a wheel one in the user's home."""
    if not INSTALLED:
        return root / "profiles"
    variables = os.environ if environ is None else environ
    return Path(variables.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "drafthouse" / "profiles"


def own_models(root: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The folder in which `drafthouse model add` writes a file for each entry."""
    return own_folder(root, environ) / "catalog" / "local"
