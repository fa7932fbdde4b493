"""Stop the server of an inventory and remove what was installed on its boxes.

Examples:
  drafthouse teardown
  drafthouse teardown --inventory workstation -- -e weights=true

Weights, Docker and the driver stay. -e weights=true, container_engine=true or nvidia_driver=true removes them too.
Words after -- are passed to ansible-playbook.

Exit status: the playbook's (docs/exit-codes.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from .parser import Parser
from .playbooks import on_inventory, play


def options() -> Parser:
    """Return the parser."""
    return on_inventory(__doc__, "teardown")


def main(argv: Sequence[str] | None = None) -> int:
    """Play; return the exit status."""
    given = options().parse_args(argv)
    return play(["playbooks/teardown.yml"], given.inventory, {}, given.words)
