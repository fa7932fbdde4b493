"""The folders of data, results and state: all of them the clone, or several for an installed wheel (`INSTALLED`)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def _state_home() -> Path:
    """The user's folder for state (XDG Base Directory, by which a relative XDG_STATE_HOME is ignored)."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    return Path("~/.local/state").expanduser()


#: The folder of the package `drafthouse`.
CODE = Path(__file__).resolve().parents[1]

#: True for an installed wheel. Its package data are the other files of a clone: catalogue, profiles, playbooks, roles.
INSTALLED = (CODE / "data").is_dir()
#: The clone (two folders above src/drafthouse), or the wheel's package data.
ROOT = CODE.parents[1]
#: The base of reports/, build/ and relative paths of an inventory: the clone, or for a wheel the current folder.
WORK = ROOT
#: The ledger of rentals, API keys and pins: the clone, or for a wheel a folder in the home, found from everywhere.
STATE = ROOT
#: The folder with site.yml. For a wheel it holds links (cli/deployment.py), in a folder for each installed copy:
#: playbooks run in it, and programs that they start must survive when uvx cleans its cache.
PLAYS = ROOT
#: Caches, and temporary files of Ansible and uv.
CACHES = STATE / ".drafthouse"
if INSTALLED:
    ROOT = CODE / "data"
    WORK = Path.cwd()
    STATE = CACHES = _state_home() / "drafthouse"
    PLAYS = STATE / "ansible" / hashlib.sha256(str(CODE).encode()).hexdigest()[:12]
#: An environment variable with the path of a file: a run writes its last lines there, and the caller prints them last.
CLOSING_FILE = "DRAFTHOUSE_CLOSING_FILE"
#: The settings file of a program beside the engine, such as the watchdog, which reads it again in every cycle.
ORDER = "order.json"


def playbook(word: str) -> str:
    """A word of a command line that runs in `WORK`; for a wheel a playbook gets its full path in `PLAYS`."""
    if INSTALLED and word.endswith(".yml"):
        return str(PLAYS / word)
    return word


def phases(*names: str) -> tuple[str, ...]:
    """The words of an ansible-playbook command that run only these phases (tags) of site.yml."""
    return ("site.yml", "--tags", ",".join(names))
