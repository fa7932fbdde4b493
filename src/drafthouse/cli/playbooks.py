"""How a verb runs our playbooks: the inventory, the program, the words of its command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from ..core.places import CACHES, WORK, playbook
from ..profiles.profile_types import Unchecked
from ..profiles.workspace import inventory_path
from .deployment import ansible_config
from .parser import Parser, parser_of
from .profile_arguments import have_entries, inventory_of, overrides, set_option
from .rented import run_rented
from .stoppable import run_stoppable


class Variables(TypedDict, total=False):
    """What a verb tells its playbooks; empty values are left to the inventory."""

    profile: str | None
    overrides: Unchecked
    release: str | None
    verify: bool
    doctor_parts: list[str]
    doctor_from: str | None
    doctor_stops: bool
    replica: str
    traffic: str
    fleet_serial: int
    drain_s: float
    engine_version: str
    report_folder: str
    remeasure: bool
    rollback_why: str


def inventory_for(given: argparse.Namespace) -> str:
    """The inventory that was named, else the one that the profile is for, else this machine's."""
    if given.profile and not given.inventory:
        return inventory_of(given.profile)
    return given.inventory or "local"


def environment() -> dict[str, str]:
    """What the Makefile exports: our configuration and programs, and the UTF-8 that Ansible wants.

    `cli.main` sets it once, before a verb that plays.
    """
    ours = {
        "ANSIBLE_CONFIG": str(ansible_config()),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONDONTWRITEBYTECODE": "",
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(CACHES / "cache" / "pip"),
        "UV_CACHE_DIR": _uv_cache(),
    }
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "C")
    if locale.upper().replace("-", "").endswith("UTF8"):
        return {**os.environ, **ours}
    return {**os.environ, **ours, "LC_ALL": "C.UTF-8"}


def _uv_cache() -> str:
    """Uv's own cache, which clones share, or one in the clone where the home may not be written to."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or WORK, ".cache"))
    shared = Path(os.environ.get("UV_CACHE_DIR") or cache / "uv")
    with contextlib.suppress(OSError):
        shared.mkdir(parents=True, exist_ok=True)
        if os.access(shared, os.W_OK):
            return str(shared)
    return str(CACHES / "cache" / "uv")


def command(playbooks: Sequence[str], inventory: str, variables: Variables, words: Sequence[str]) -> list[str]:
    """The command line that plays ``playbooks``; ``words`` are a person's own, and come last."""
    given = {name: value for name, value in variables.items() if value not in (None, "", {})}
    line = ["ansible-playbook", *map(playbook, playbooks), "-i", str(inventory_path(inventory))]
    if given:
        line += ["-e", json.dumps(given)]
    return [*line, *words]


def play(playbooks: Sequence[str], inventory: str, variables: Variables, words: Sequence[str]) -> int:
    """Play them, shown as they go; the exit status is Ansible's."""
    line = command(playbooks, inventory, variables, words)
    return subprocess.run(line, cwd=WORK, check=False).returncode


def on_inventory(doc: str | None, verb: str, default: str = "local") -> Parser:
    """The parser of a verb that plays on an inventory."""
    parser = parser_of(doc, verb, takes_words=True)
    parser.add_argument("--inventory", default=default, help="inventory name, or a path (default: %(default)s)")
    return parser


def for_profile(doc: str | None, verb: str) -> Parser:
    """The parser of a verb that plays for a profile, on the boxes that its hardware is for."""
    parser = parser_of(doc, verb, takes_words=True)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--inventory", help="inventory name, or a path (default: the hardware's)")
    set_option(parser)
    parser.add_argument(
        "--destroy", metavar="WHEN", help="destroy rented boxes afterwards: always, on-success or never"
    )
    return parser


def run_for_profile(
    given: argparse.Namespace,
    playbooks: Sequence[str],
    variables: Variables,
    *,
    stop_after: bool = False,
) -> int:
    """Play for a profile so that Ctrl-C stops what was started, or with ``--destroy`` so that rented boxes end."""
    have_entries(given.profile, given.set)
    name = inventory_of(given.profile, given.inventory)  # a wrong profile is told here, and not by Ansible
    wanted: Variables = {"profile": given.profile, "overrides": overrides(given.set), **variables}
    line = command(playbooks, name, wanted, given.words)
    os.chdir(WORK)
    if given.destroy:
        return run_rented(line, given.destroy, name)
    return run_stoppable(line, stop_after=stop_after)
