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
"""A `Finding` as JSON, with the name of its box under ``host``."""


def options() -> Parser:
    """The argument parser of `drafthouse doctor`."""
    parser = parser_of(__doc__, "doctor", takes_words=True)
    parser.add_argument("--inventory", help="inventory name, or a path (default: the profile's, or local)")
    parser.add_argument("--profile", help="profile that should be served (default: the inventory's)")
    parser.add_argument("--from", dest="outside", metavar="HOST", help="host that probes the ports from outside")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")
    return parser


def run_checks(args: argparse.Namespace) -> list[HostCheck]:
    """The results of all checks, of every box and of the vast.ai account.

    Raises DrafthouseError where nothing was checked.
    """
    account = account_checks(inventory_path(args.inventory))
    # A failed check must not fail the playbook: the exit status is computed here, from the checks.
    variables: Variables = {"profile": args.profile, "doctor_from": args.outside, "doctor_stops": False}
    command_line = command(phases("doctor"), args.inventory, variables, args.words)
    with tempfile.TemporaryDirectory(prefix="drafthouse-") as folder:
        file = Path(folder) / "checks.json"
        completed = subprocess.run(
            command_line,
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
    printed = [line for line in (completed.stderr + completed.stdout).splitlines() if line.strip()]
    last = "no host"  # a playbook that succeeds without a check had none
    if printed and completed.returncode:
        last = printable(printed[-1])
    raise one_problem(
        "no-such-host",
        f"nothing was checked: {last}",
        "a host in the inventory",
        "add one to its hosts.yml, or name another inventory; ansible-playbook site.yml --tags doctor shows more",
        args.inventory,
    )


def account_checks(inventory: Path) -> list[HostCheck]:
    """Checks of the rental ledger against the vast.ai account; empty for an inventory without vast.ai's plugin."""
    if not any(inventory.glob("*vastai.y*ml")) and not inventory.name.endswith(("vastai.yml", "vastai.yaml")):
        return []
    checks = doctor_rentals.checks(state_folder() / LEDGER, os.environ, Path.home())
    return [{"host": doctor_rentals.HOST, **check.as_dict()} for check in checks]


def report_lines(checks: Sequence[HostCheck]) -> list[str]:
    """The checks as lines of text, box by box, with an empty line between two boxes."""
    lines: list[str] = []
    for host, host_checks in groupby(checks, key=lambda check: str(check["host"])):
        findings = []
        for check in host_checks:
            fields = dict(check)
            del fields["host"]
            findings.append(Finding(**fields))
        if lines:
            lines.append("")
        lines += report(host, findings)
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks and print them; the exit status is that of the worst one."""
    args = options().parse_args(argv)
    args.inventory = inventory_for(args)
    checks = run_checks(args)
    if args.json:
        print_json("doctor", {"checks": checks})
    else:
        print("\n".join(map(printable, report_lines(checks))))
    return exit_code(checks)
