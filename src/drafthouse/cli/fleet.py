"""Several boxes behind one address: set them up, show them, take one out of traffic and put it back.

Examples:
  drafthouse fleet up
  drafthouse fleet status
  drafthouse fleet drain box2 --timeout 300
  drafthouse fleet undrain box2

To change the boxes one at a time there is drafthouse fleet-upgrade, or fleet upgrade.

up runs site.yml on every host of the inventory and then sets up the front. drain has a replica take no more requests
and waits until those that run have ended; the others take its share. Nothing is stopped. Words after -- are passed to
ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..core.errors import one_problem
from ..core.places import ROOT
from . import fleet_upgrade, stoppable
from .parser import Parser
from .playbooks import Variables, command, on_inventory, play

_OF_A_HOST = {"drain": "drained", "undrain": "undrained"}


def options() -> Parser:
    """Return the parser."""
    parser = on_inventory(__doc__, "fleet", default="fleet")
    parser.add_argument("action", choices=("up", "status", *_OF_A_HOST), help="what to do")
    parser.add_argument("host", nargs="?", default="", help="the replica, for drain and undrain")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long a drain waits (default: the inventory's, else 600)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["upgrade"]:
        return fleet_upgrade.main(words[1:])
    given = options().parse_args(words)
    if given.action in _OF_A_HOST:
        if not given.host:
            raise one_problem(
                "missing-option",
                f"drafthouse fleet {given.action} without a host",
                "the replica, as drafthouse fleet status names it",
                f"drafthouse fleet {given.action} HOST; with make: HOST=name",
            )
        variables: Variables = {"replica": given.host, "fleet_state": _OF_A_HOST[given.action]}
        if given.timeout is not None:
            variables["drain_s"] = given.timeout
        return play(["playbooks/fleet_drain.yml"], given.inventory, variables, given.words)
    if given.host:
        raise one_problem(
            "unknown-option",
            f"'{given.host}'",
            f"no host: drafthouse fleet {given.action} covers all of them",
            f"leave it out; to choose some: -- --limit {given.host}",
        )
    if given.action == "status":
        return play(["playbooks/fleet_status.yml"], given.inventory, {}, given.words)
    line = command(["site.yml"], given.inventory, {}, given.words)
    os.chdir(ROOT)
    return stoppable.main(["--", *line])
