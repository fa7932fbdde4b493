"""Stop the server of an inventory.

Examples:
  drafthouse stop
  drafthouse stop --inventory workstation

Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import on_inventory, play


def options() -> Parser:
    """Return the parser."""
    return on_inventory(__doc__, "stop")


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return play(["playbooks/stop.yml"], given.inventory, {}, given.words)
