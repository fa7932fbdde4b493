"""Where our data lies, where what a command makes goes, and what is kept: one folder in a clone, three for a wheel."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def _state_home() -> Path:
    """Where programs keep what lasts (XDG Base Directory); a relative XDG_STATE_HOME counts for nothing, as it says."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return named if named.is_absolute() else Path("~/.local/state").expanduser()


#: The library itself.
CODE = Path(__file__).resolve().parents[1]

#: The wheel carries what a clone has as package data: catalogue, profiles, suites, templates, playbooks, roles.
INSTALLED = (CODE / "data").is_dir()
#: The clone (src/drafthouse -> src -> clone), or the wheel's data.
ROOT = CODE / "data" if INSTALLED else CODE.parents[1]
#: Where reports/, build/ and relative paths of a site lie: the clone, or the folder that the command is typed in.
WORK = Path.cwd() if INSTALLED else ROOT
#: What must be found again from any folder (ledger, keys, pins): the clone, or for a wheel a folder in the home.
STATE = _state_home() / "drafthouse" if INSTALLED else ROOT
#: The folder with site.yml. For a wheel a folder of links (cli/deployment.py), one for each place of installation:
#: modules work in it, and what they start must outlive uvx's cache.
PLAYS = STATE / "ansible" / hashlib.sha256(str(CODE).encode()).hexdigest()[:12] if INSTALLED else ROOT
#: Caches, and the files that Ansible and uv need while they work.
CACHES = STATE if INSTALLED else STATE / ".drafthouse"
#: A variable of the environment: the file for a run's last lines, which are printed behind all that still follows.
CLOSING_FILE = "DRAFTHOUSE_CLOSING_FILE"
#: In the folder of a program beside the engine: what it reads at each look.
ORDER = "order.json"


def playbook(word: str) -> str:
    """A word of a command line that is given in `WORK`: of ``site.yml`` the whole path where a wheel has it."""
    return str(PLAYS / word) if INSTALLED and word.endswith(".yml") else word


def phases(*names: str) -> tuple[str, ...]:
    """The words for ansible-playbook that run these phases of site.yml alone."""
    return ("site.yml", "--tags", ",".join(names))
