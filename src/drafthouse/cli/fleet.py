"""Several boxes behind one address: set them up, show them, take one out of traffic and put it back, change them.

Examples:
  drafthouse fleet up
  drafthouse fleet status
  drafthouse fleet drain box2 --timeout 300
  drafthouse fleet undrain box2
  drafthouse fleet upgrade --engine-version 0.33.0

up runs site.yml on every host of the inventory side by side, and then sets up the front. drain has a box take no more
requests and waits until those that run have ended; the others take its share. Nothing is stopped. upgrade runs site.yml
on one box after the other: a box whose server changes is taken out of traffic, waited for, changed, measured, asked for
a real answer, and put back. The first one that fails ends it. Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..core.errors import one_problem
from ..core.places import WORK
from .parser import Parser
from .playbooks import Variables, command, on_inventory, play
from .stoppable import run_stoppable

_TRAFFIC = {"drain": "out", "undrain": "in"}  # actions on one box, with the playbook's variable ``traffic``


def options() -> Parser:
    """The argument parser of `drafthouse fleet`."""
    parser = on_inventory(__doc__, "fleet", default="fleet")
    parser.add_argument("action", choices=("up", "status", *_TRAFFIC, "upgrade"), help="what to do")
    parser.add_argument("host", nargs="?", default="", help="the box, for drain and undrain")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="how long a drain waits (default: the inventory's, else 600)"
    )
    parser.add_argument("--engine-version", metavar="VERSION", help="for up and upgrade (default: the profile's)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the playbook of the action and return its exit status."""
    args = options().parse_args(argv)
    if args.action in _TRAFFIC:
        return _move(args.host, args.action, args.timeout, args.inventory, args.words)
    if args.host:
        raise one_problem(
            "unknown-option",
            f"'{args.host}'",
            f"no host: drafthouse fleet {args.action} covers all of them",
            f"leave it out; to choose some: -- --limit {args.host}",
        )
    if args.action == "status":
        return play(["playbooks/fleet_status.yml"], args.inventory, {}, args.words)
    variables: Variables = {"engine_version": args.engine_version or ""}
    if args.action == "upgrade":
        variables["fleet_serial"] = 1
    command_line = command(["site.yml"], args.inventory, variables, args.words)
    os.chdir(WORK)
    return run_stoppable(command_line)


def _move(host: str, action: str, timeout: float | None, inventory: str, words: Sequence[str]) -> int:
    """Take a box out of traffic or put it back; ``timeout`` in seconds, None for the inventory's value."""
    if not host:
        raise one_problem(
            "missing-option",
            f"drafthouse fleet {action} without a host",
            "the box, as drafthouse fleet status names it",
            f"drafthouse fleet {action} HOST",
        )
    variables: Variables = {"replica": host, "traffic": _TRAFFIC[action]}
    if timeout is not None:
        variables["drain_s"] = timeout
    return play(["playbooks/fleet_drain.yml"], inventory, variables, words)
