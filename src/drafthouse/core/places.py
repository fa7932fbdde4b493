"""Where our data lies and where what a command makes goes: one folder in a clone, two for an installed wheel."""

from __future__ import annotations

import os
from pathlib import Path

#: The library itself.
CODE = Path(__file__).resolve().parents[1]

#: The wheel carries catalogue, profiles, suites and templates as package data.
INSTALLED = (CODE / "data").is_dir()
#: The clone (src/drafthouse -> src -> clone), or the wheel's data.
ROOT = CODE / "data" if INSTALLED else CODE.parents[1]
#: Where reports/, build/ and relative paths of a site lie: the clone, or the folder that the command is typed in.
WORK = Path.cwd() if INSTALLED else ROOT
#: A variable of the environment: the file for a run's last lines, which are printed behind all that still follows.
CLOSING_FILE = "DRAFTHOUSE_CLOSING_FILE"


def own_profiles(environ: dict[str, str] | None = None) -> list[Path]:
    """Return the folders of the user's own profiles beside the wheel's, the later ones win. A clone has profiles/."""
    if not INSTALLED:
        return []
    return [_config(environ) / "drafthouse" / "profiles", WORK / "profiles"]


def own_models(root: Path, environ: dict[str, str] | None = None) -> Path:
    """Return the folder of the user's own catalogue entries, where `drafthouse model add` writes them.

    It is below the clone at ``root``; an installed wheel has it beside the user's profiles.
    """
    if not INSTALLED:
        return root / "profiles" / "catalog" / "local"
    return _config(environ) / "drafthouse" / "models"


def _config(environ: dict[str, str] | None) -> Path:
    given = dict(os.environ) if environ is None else environ
    return Path(given.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def phases(*names: str) -> tuple[str, ...]:
    """Return the words for ansible-playbook that run these phases of site.yml alone."""
    return ("site.yml", "--tags", ",".join(names))
