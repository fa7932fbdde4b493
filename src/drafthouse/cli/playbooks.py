"""How a verb runs playbooks: choose the inventory, build the command line of ansible-playbook, and run it."""

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
from .profile_arguments import add_missing_entries, inventory_of, overrides, set_option
from .rented import run_rented
from .stoppable import run_stoppable


class Variables(TypedDict, total=False):
    """Ansible variables that a verb sets. Empty values are not passed, so that the inventory's value counts."""

    profile: str | None
    overrides: Unchecked  # of the profile's values, by --set
    release: str | None  # id, to which a rollback goes
    verify: bool  # read every byte of the weights again
    doctor_parts: list[str]  # the checks to run
    doctor_from: str | None  # host that probes the ports from outside
    doctor_stops: bool  # a failed check fails the playbook
    replica: str  # the box of a fleet that is moved
    traffic: str  # in or out: where it is moved
    fleet_serial: int  # boxes of a fleet that are changed at once
    drain_s: float  # seconds for running requests to end
    engine_version: str
    report_folder: str  # absolute
    remeasure: bool  # measure although a result is kept
    rollback_why: str  # the reason, for the box's history


def inventory_for(args: argparse.Namespace) -> str:
    """The inventory of --inventory, else the one of the profile's hardware, else `local` (this machine)."""
    if args.profile and not args.inventory:
        return inventory_of(args.profile)
    return args.inventory or "local"


def environment() -> dict[str, str]:
    """The environment of ansible-playbook: ansible.cfg, PATH, caches, and the UTF-8 locale that Ansible requires.

    The Makefile exports the same. `cli.main` sets it once, before a verb that runs playbooks.
    """
    settings = {
        "ANSIBLE_CONFIG": str(ansible_config()),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "PYTHONDONTWRITEBYTECODE": "",  # without bytecode, every start would compile some 400 files again
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(CACHES / "cache" / "pip"),
        "UV_CACHE_DIR": _uv_cache(),
    }
    # LC_ALL overrides LC_CTYPE, which overrides LANG (POSIX).
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "C")
    if locale.upper().replace("-", "").endswith("UTF8"):
        return {**os.environ, **settings}
    return {**os.environ, **settings, "LC_ALL": "C.UTF-8"}


def _uv_cache() -> str:
    """The folder of uv's cache: the user's, which all clones share; where it is not writable, one of the clone."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or WORK, ".cache"))
    shared = Path(os.environ.get("UV_CACHE_DIR") or cache / "uv")
    with contextlib.suppress(OSError):
        shared.mkdir(parents=True, exist_ok=True)
        if os.access(shared, os.W_OK):
            return str(shared)
    return str(CACHES / "cache" / "uv")


def command(playbooks: Sequence[str], inventory: str, variables: Variables, words: Sequence[str]) -> list[str]:
    """The command line that runs ``playbooks``; ``words``, the user's arguments after `--`, come last."""
    filled = {name: value for name, value in variables.items() if value not in (None, "", {})}
    command_line = ["ansible-playbook", *map(playbook, playbooks), "-i", str(inventory_path(inventory))]
    if filled:
        command_line += ["-e", json.dumps(filled)]
    return [*command_line, *words]


def play(playbooks: Sequence[str], inventory: str, variables: Variables, words: Sequence[str]) -> int:
    """Run playbooks with their output shown, and return Ansible's exit status."""
    command_line = command(playbooks, inventory, variables, words)
    return subprocess.run(command_line, cwd=WORK, check=False).returncode


def on_inventory(doc: str | None, verb: str, default: str = "local") -> Parser:
    """A parser with --inventory, for a verb that runs playbooks on an inventory."""
    parser = parser_of(doc, verb, takes_words=True)
    parser.add_argument("--inventory", default=default, help="inventory name, or a path (default: %(default)s)")
    return parser


def for_profile(doc: str | None, verb: str) -> Parser:
    """A parser with a profile, --inventory, --set and --destroy, for a verb that runs playbooks for a profile."""
    parser = parser_of(doc, verb, takes_words=True)
    parser.add_argument("profile", help="profile name (listed by drafthouse profiles)")
    parser.add_argument("--inventory", help="inventory name, or a path (default: the hardware's)")
    set_option(parser)
    parser.add_argument(
        "--destroy", metavar="WHEN", help="destroy rented boxes afterwards: always, on-success or never"
    )
    return parser


def run_for_profile(
    args: argparse.Namespace,
    playbooks: Sequence[str],
    variables: Variables,
    *,
    stop_after: bool = False,
) -> int:
    """Run playbooks for a profile; return the exit status. Ctrl-C stops what was started.

    --destroy ends rented boxes afterwards; ``stop_after``, which stops every server at the end, is ignored then.
    """
    add_missing_entries(args.profile, args.set)
    inventory = inventory_of(args.profile, args.inventory)  # an unknown profile is an error here, before Ansible
    all_variables: Variables = {"profile": args.profile, "overrides": overrides(args.set), **variables}
    command_line = command(playbooks, inventory, all_variables, args.words)
    os.chdir(WORK)
    if args.destroy:
        return run_rented(command_line, args.destroy, inventory)
    return run_stoppable(command_line, stop_after=stop_after)
