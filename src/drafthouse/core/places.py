"""Where our data lies, where what a command makes goes, and what is kept: one folder in a clone, three for a wheel."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def _state_home() -> Path:
    """Where programs keep what lasts (XDG Base Directory); a relative XDG_STATE_HOME counts for nothing, as it says."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    return Path("~/.local/state").expanduser()


#: The library itself.
CODE = Path(__file__).resolve().parents[1]

#: The wheel carries what a clone has as package data: catalogue, profiles, suites, templates, playbooks, roles.
INSTALLED = (CODE / "data").is_dir()
#: The clone (src/drafthouse -> src -> clone), or the wheel's data.
ROOT = CODE.parents[1]
#: Where reports/, build/ and relative paths of a site lie: the clone, or the folder that the command is typed in.
WORK = ROOT
#: What must be found again from any folder (ledger, keys, pins): the clone, or for a wheel a folder in the home.
STATE = ROOT
#: The folder with site.yml. For a wheel a folder of links (cli/deployment.py), one for each place of installation:
#: modules work in it, and what they start must outlive uvx's cache.
PLAYS = ROOT
#: Caches, and the files that Ansible and uv need while they work.
CACHES = STATE / ".drafthouse"
if INSTALLED:
    ROOT = CODE / "data"
    WORK = Path.cwd()
    STATE = CACHES = _state_home() / "drafthouse"
    PLAYS = STATE / "ansible" / hashlib.sha256(str(CODE).encode()).hexdigest()[:12]
#: A variable of the environment: the file for a run's last lines, which are printed behind all that still follows.
CLOSING_FILE = "DRAFTHOUSE_CLOSING_FILE"
#: In the folder of a program beside the engine: what it reads at each look.
ORDER = "order.json"


def playbook(word: str) -> str:
    """A word of a command line that is given in `WORK`: of ``site.yml`` the whole path where a wheel has it."""
    if INSTALLED and word.endswith(".yml"):
        return str(PLAYS / word)
    return word


def phases(*names: str) -> tuple[str, ...]:
    """The words for ansible-playbook that run these phases of site.yml alone."""
    return ("site.yml", "--tags", ",".join(names))
