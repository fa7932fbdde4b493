"""Serve the previous release again.

Examples:
  drafthouse rollback
  drafthouse rollback --inventory workstation --to 20261120T101500Z

Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import on_inventory, play


def options() -> Parser:
    """Return the parser."""
    parser = on_inventory(__doc__, "rollback")
    parser.add_argument(
        "--to", metavar="RELEASE", help="release listed by drafthouse history (default: the previous one)"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return play(["playbooks/rollback.yml"], given.inventory, {"release": given.to}, given.words)
