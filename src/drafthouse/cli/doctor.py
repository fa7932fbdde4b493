"""Check a box and its server: one line per check, with what to do. Reads only.

Examples:
  drafthouse doctor
  drafthouse doctor --inventory vastai --profile h100-llama33-draft3b --json
  drafthouse doctor --inventory workstation --from neighbour -- --limit lab -e '{"doctor_parts": ["weights", "gpu"]}'

With a vast.ai inventory it also checks the account: whether everything that bills is in the ledger of rentals.

Each check is ok, a warning, failed, or skipped (it does not apply to this box, with the reason). --json prints
{"schema", "checks": [{"host", "id", "name", "status", "found", "needed", "do"}]}. A status is ok, warn, fail or
not here.

Exit status: 0 no findings; 1 a warning; 2 a failed check, or nothing could be checked.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ..cloud.vast.ledger import FILE as LEDGER
from ..cloud.vast.local_state import state_folder
from ..core.errors import one_problem
from ..core.places import WORK, phases
from ..core.plain_text import printable
from ..operate.checks.finding import FAIL, FILE, Finding, exit_code, report
from ..operate.doctor import rentals as doctor_rentals
from ..profiles.workspace import inventory_path
from .parser import Parser, parser_of, print_json
from .playbooks import Variables, command, inventory_for

HostCheck = dict[str, Any]
"""A `Finding` as JSON has it, with the ``host`` it is about."""


def options() -> Parser:
    """The parser."""
    parser = parser_of(__doc__, "doctor", takes_words=True)
    parser.add_argument("--inventory", help="inventory name, or a path (default: the profile's, or local)")
    parser.add_argument("--profile", help="profile that should be served (default: the inventory's)")
    parser.add_argument("--from", dest="outside", metavar="HOST", help="host that probes the ports from outside")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    return parser


def look(given: argparse.Namespace) -> list[HostCheck]:
    """All checks of all boxes, and of the account that they are rented from.

    Raises DrafthouseError where none is.
    """
    account = account_checks(inventory_path(given.inventory))
    # The lines say what fails, and the exit status is ours to make.
    variables: Variables = {"profile": given.profile, "doctor_from": given.outside, "doctor_stops": False}
    line = command(phases("doctor"), given.inventory, variables, given.words)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        file = Path(folder) / "checks.json"
        done = subprocess.run(
            line,
            cwd=WORK,
            env={**os.environ, FILE: str(file)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            checks: list[HostCheck] = json.loads(file.read_text("utf-8"))["checks"]
        except (OSError, ValueError, KeyError):
            checks = []
    if checks or any(check["status"] == FAIL for check in account):
        return [*checks, *account]
    printed = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    last = "no host"
    if printed and done.returncode:
        last = printable(printed[-1])
    raise one_problem(
        "no-such-host",
        f"nothing was checked: {last}",
        "a host in the inventory",
        "add one to its hosts.yml, or name another inventory; ansible-playbook site.yml --tags doctor shows more",
        given.inventory,
    )


def account_checks(inventory: Path) -> list[HostCheck]:
    """What is wrong between ledger and account, where the inventory asks vast.ai."""
    if not any(inventory.glob("*vastai.y*ml")) and not inventory.name.endswith(("vastai.yml", "vastai.yaml")):
        return []
    found = doctor_rentals.checks(state_folder() / LEDGER, os.environ, Path.home())
    return [{"host": doctor_rentals.HOST, **check.as_dict()} for check in found]


def lines(checks: Sequence[HostCheck]) -> list[str]:
    """The checks of every box as people read them."""
    found: list[str] = []
    for host, of_host in groupby(checks, key=lambda check: str(check["host"])):
        own = []
        for check in of_host:
            facts = dict(check)
            del facts["host"]
            own.append(Finding(**facts))
        if found:
            found.append("")
        found += report(host, own)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, and return the exit status."""
    given = options().parse_args(argv)
    given.inventory = inventory_for(given)
    checks = look(given)
    if given.json:
        print_json("doctor", {"checks": checks})
    else:
        print("\n".join(map(printable, lines(checks))))
    return exit_code(checks)
